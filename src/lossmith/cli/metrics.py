"""``lossmith metrics``: every metric, what it reads and which way is up."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

from typer import Option

from lossmith.cli.console import first_sentence, print_json, print_table

if TYPE_CHECKING:
    from lossmith.vocabulary import Metric


def list_metrics(
    kind: Annotated[str | None, Option(help="Only those that read predictions of this kind.")] = None,
    as_json: Annotated[bool, Option("--json", help="One JSON object.")] = False,
) -> None:
    """List the metrics."""
    from lossmith.metrics import METRICS
    from lossmith.vocabulary import parse_kind

    wanted = None if kind is None else parse_kind(kind)
    metrics = {name: metric for name, metric in METRICS.items() if wanted in (None, metric.kind)}
    sentences = {name: _describe(name, metric) for name, metric in metrics.items()}
    if as_json:
        listed = [
            {
                "name": name,
                "kind": metric.kind,
                "higher_is_better": metric.higher_is_better,
                "description": sentences[name],
            }
            for name, metric in metrics.items()
        ]
        print_json({"metrics": listed})
        return
    rows = [
        (name, metric.kind.value, "higher" if metric.higher_is_better else "lower", sentences[name])
        for name, metric in metrics.items()
    ]
    print_table(f"{len(rows)} metrics", ("name", "kind", "better", "what it is"), rows)


def _describe(name: str, metric: Metric) -> str:
    """From the function that makes it: it stands in the file of its kind and has its name, with k for a number."""
    makers = vars(import_module(f"lossmith.metrics.{metric.kind}"))
    return first_sentence(makers[re.sub(r"\d+", "_k", name) if name not in makers else name].__doc__)
