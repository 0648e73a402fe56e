"""``lossmith losses``: every loss that is ready to use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

from lossmith.cli.console import first_sentence, print_json, print_table

if TYPE_CHECKING:
    from lossmith.vocabulary import Kind


def list_losses(
    kind: Annotated[str | None, Option(help="Only those that read predictions of this kind.")] = None,
    as_json: Annotated[bool, Option("--json", help="One JSON object.")] = False,
) -> None:
    """List the hand-made losses."""
    from lossmith.baselines import LOSSES
    from lossmith.vocabulary import Kind, parse_kind

    wanted = None if kind is None else parse_kind(kind)
    names = list(LOSSES) if wanted is None else names_for(wanted)
    kinds = {name: [each.value for each in Kind if _can_read(name, each)] for name in names}
    sentences = {name: first_sentence(LOSSES[name].__doc__) for name in names}
    if as_json:
        print_json({"losses": [{"name": name, "kinds": kinds[name], "description": sentences[name]} for name in names]})
        return
    rows = [(name, ", ".join(kinds[name]), sentences[name]) for name in names]
    print_table(f"{len(rows)} losses", ("name", "kinds", "what it is"), rows)


def names_for(kind: Kind) -> list[str]:
    """Of the losses that read such predictions."""
    from lossmith.baselines import LOSSES

    return [name for name in LOSSES if _can_read(name, kind)]


def _can_read(name: str, kind: Kind) -> bool:
    from lossmith.baselines import find_loss

    try:
        find_loss(name, kind)
    except ValueError:
        return False
    return True
