"""``lossmith losses``: every loss that is ready to use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from typer import Option

from lossmith.cli.console import first_sentence, print_json, print_table

if TYPE_CHECKING:
    from lossmith.cards import Card
    from lossmith.vocabulary import Kind


def list_losses(
    kind: Annotated[str | None, Option(help="Only those that read predictions of this kind.")] = None,
    compared: Annotated[bool, Option("--compared", help="Those that `lossmith compare` knows, and tries.")] = False,
    as_json: Annotated[bool, Option("--json", help="One JSON object, with the cards of learned losses.")] = False,
) -> None:
    """List the hand-made losses, and the learned ones that come with lossmith."""
    if compared:
        _list_compared(kind, as_json=as_json)
        return
    from dataclasses import asdict

    from lossmith.baselines import LOSSES
    from lossmith.vocabulary import Kind, parse_kind
    from lossmith.weights import load, shipped

    wanted = None if kind is None else parse_kind(kind)
    names = list(LOSSES) if wanted is None else names_for(wanted)
    kinds = {name: [each.value for each in Kind if _can_read(name, each)] for name in names}
    sentences = {name: first_sentence(LOSSES[name].__doc__) for name in names}
    learned = {name: loss for name, loss in ((name, load(name)) for name in shipped()) if wanted in (None, loss.kind)}
    if as_json:
        hand_made = [{"name": name, "kinds": kinds[name], "description": sentences[name]} for name in names]
        cards = [{"name": name, "kind": loss.kind, "card": asdict(loss.card)} for name, loss in learned.items()]
        print_json({"losses": hand_made, "learned": cards})
        return
    rows = [(name, ", ".join(kinds[name]), sentences[name]) for name in names]
    print_table(f"{len(rows)} losses", ("name", "kinds", "what it is"), rows)
    if learned:
        print()
        of_cards = [(name, loss.kind, *_alignment_in_words(loss.card)) for name, loss in learned.items()]
        columns = ("name", "kind", "Spearman with the metric", "of cross-entropy", "on sources it never learned from")
        print_table(f"{len(learned)} learned losses: lossmith.load(name)", columns, of_cards)


def _list_compared(kind: str | None, *, as_json: bool) -> None:
    """What ``compare --losses`` takes."""
    from lossmith.lab.comparing import RECIPES
    from lossmith.vocabulary import parse_kind

    wanted = None if kind is None else parse_kind(kind)
    recipes = [recipe for recipe in RECIPES.values() if wanted is None or wanted in recipe.kinds]
    if as_json:
        print_json(
            {
                "compared": [
                    {
                        "name": recipe.name,
                        "kinds": [each.value for each in recipe.kinds],
                        "description": recipe.what,
                        "tried_for": list(recipe.metrics),
                    }
                    for recipe in recipes
                ]
            }
        )
        return
    rows = [
        (recipe.name, ", ".join(each.value for each in recipe.kinds), recipe.what, ", ".join(recipe.metrics))
        for recipe in recipes
    ]
    columns = ("name", "kinds", "what it is", "tried without being named, for")
    print_table(f"{len(rows)} losses to compare: lossmith compare ... --losses NAME,NAME", columns, rows)


def _alignment_in_words(card: Card) -> tuple[str, str, str]:
    """Means over the sources that taught the loss nothing, or over all where there is no such source."""
    from lossmith.cards import UNSEEN

    unseen = {where: each for where, each in card.measured.items() if where.endswith(UNSEEN)} or card.measured
    learned = [each.spearman.value for each in unseen.values()]
    base = [each.base_spearman.value for each in unseen.values() if each.base_spearman is not None]
    names = ", ".join(where.removesuffix(UNSEEN) for where in unseen)
    return f"{sum(learned) / len(learned):.3f}", f"{sum(base) / len(base):.3f}" if base else "", names


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
