"""``lossmith explain``: which decisions a metric takes, and which loss its own code makes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from lossmith.cli.align import import_function
from lossmith.cli.console import print_json, print_table, spinner

if TYPE_CHECKING:
    from torch import Tensor

    from lossmith.tracing import Explanation
    from lossmith.vocabulary import Kind


def explain(
    metric: Annotated[
        str, Argument(help="A name from `lossmith metrics`, or your own: module:function of (outputs, targets).")
    ],
    kind: Annotated[str | None, Option(help="What your own metric reads: binary, multiclass, ...")] = None,
    predictions: Annotated[
        Path | None,
        Option(help="File with the arrays outputs and targets; its first set is explained, not a random one."),
    ] = None,
    set_size: Annotated[int, Option(min=1, help="Random predictions in the set.")] = 64,
    classes: Annotated[int, Option(min=2, help="Of the random predictions.")] = 10,
    link: Annotated[float, Option(min=0, help="0: -log q, 1: 1 - q.")] = 0.5,
    lower_is_better: Annotated[bool, Option("--lower-is-better", help="Of your own metric.")] = False,
    seed: Annotated[int, Option(help="Of the random predictions.")] = 0,
    as_json: Annotated[bool, Option("--json", help="One JSON object.")] = False,
) -> None:
    """Run a metric's own code on one set of predictions, and tell the loss that it makes: every decision with its line.

    What is counted in lanes are runs of the code side by side, each with one decision changed.
    """
    from lossmith import trace
    from lossmith.metrics import find_metric
    from lossmith.vocabulary import Metric, parse_kind

    chosen = import_function(metric) if ":" in metric else find_metric(metric)
    if isinstance(chosen, Metric):
        if kind is not None or lower_is_better:
            raise ValueError(
                f"{metric} knows its kind and its direction; --kind and --lower-is-better are for your own."
            )
        of_kind = chosen.kind
    elif kind is None:
        raise ValueError(f"say what {metric} reads: --kind binary, multiclass, multilabel, ranking, ...")
    else:
        of_kind = parse_kind(kind)
    outputs, targets = _one_set(of_kind, predictions, set_size, classes, seed)
    loss = trace(chosen, link=link, higher_is_better=False if lower_is_better else None)
    with spinner("tracing"):
        explanation = loss.explain(outputs, targets)
    if as_json:
        print_json({"metric": metric, "kind": str(of_kind), "link": link, **asdict(explanation)})
    else:
        _print(explanation, f"{metric} on {len(outputs):,} {of_kind} predictions")


def _one_set(kind: Kind, path: Path | None, set_size: int, num_classes: int, seed: int) -> tuple[Tensor, Tensor]:
    import torch

    from lossmith.predictions import load_predictions, random_predictions

    if path is not None:
        stored = load_predictions(path, kind=kind, want_scores=False)
    else:
        generator = torch.Generator().manual_seed(seed)
        stored = random_predictions(kind, num_sets=1, set_size=set_size, num_classes=num_classes, generator=generator)
    return stored.outputs[0], stored.targets[0]


def _print(explanation: Explanation, title: str) -> None:
    rows = [
        (
            each.operation,
            ", ".join(each.sources),
            each.size,
            each.form,
            f"{each.way}{f', off by {each.error:.1%} at most' if each.error else ''}",
        )
        for each in explanation.decisions
    ]
    print_table(title, ("decision", "at", "options", "its part of the loss", "gains are found by"), rows)
    print(f"metric {explanation.value:.6g}, in {explanation.milliseconds_of_metric:.2f} ms")
    if explanation.is_continuous:
        print("The value has a gradient of its own, which is part of the loss.")
    if explanation.dropped:
        print(f"Dropped, nothing to decide here: {'; '.join(explanation.dropped)}")
    if explanation.black_box:
        print(f"Not traced, followed by random steps of the outputs: {explanation.black_box}")
    else:
        print(f"all gains: {explanation.num_runs} runs of the metric, {explanation.milliseconds:.2f} ms")
