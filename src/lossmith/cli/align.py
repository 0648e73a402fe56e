"""``lossmith align``: how well do losses rank predictions, compared with a metric?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from lossmith.cli.console import print_json, print_table, progress_bar

if TYPE_CHECKING:
    from lossmith.alignment import Alignment
    from lossmith.vocabulary import Kind, Loss, Metric

PLOT_SUFFIXES = (".png", ".svg", ".pdf")


def align(
    predictions: Annotated[Path, Option(help="File with the arrays outputs and targets (.npz or .safetensors).")],
    metric: Annotated[str | None, Option(help="A name from `lossmith metrics`.")] = None,
    metric_fn: Annotated[
        str | None, Option(help="In place of --metric: your own, module:function of (outputs, targets) of one set.")
    ] = None,
    kind: Annotated[str | None, Option(help="With --metric-fn: the kind of the predictions.")] = None,
    higher_is_better: Annotated[
        bool | None, Option("--higher-is-better/--lower-is-better", help="With --metric-fn.")
    ] = None,
    loss: Annotated[
        list[str] | None,
        Option(help="A name from `lossmith losses` or a saved loss; may be repeated. Without: all that fit."),
    ] = None,
    loss_fn: Annotated[
        list[str] | None, Option(help="Your own loss, module:function of (outputs, targets); may be repeated.")
    ] = None,
    sets: Annotated[int, Option(min=1, help="Sets to draw from the held-out predictions.")] = 2000,
    set_size: Annotated[int, Option(min=1, help="Predictions in a set.")] = 128,
    seed: Annotated[int, Option(help="Of the drawing.")] = 0,
    plot: Annotated[Path | None, Option(help="Write a scatter plot here (.png, .svg, .pdf).")] = None,
    as_json: Annotated[bool, Option("--json", help="One JSON object.")] = False,
) -> None:
    """Measure how well losses rank predictions as a metric does: 1 is the same order, negative the wrong way."""
    from lossmith.alignment import measure_alignment, plot_alignment
    from lossmith.predictions import load_predictions

    if plot is not None and (plot.suffix not in PLOT_SUFFIXES or not plot.parent.is_dir()):  # not after measuring
        raise ValueError(
            f"the plot cannot be written to {plot}: a file that ends in {' or '.join(PLOT_SUFFIXES)} works, "
            "in a folder that is there."
        )
    chosen = choose_metric(metric, metric_fn, kind, higher_is_better)
    losses = choose_losses(loss or [], loss_fn or [], chosen.kind)
    # hand-made losses read raw scores, and would rank probabilities without a word of warning
    want_scores = not (chosen.reads_probabilities and losses.keys() <= set(loss_fn or []))
    stored = load_predictions(predictions, kind=chosen.kind, want_scores=want_scores)
    alignments: dict[str, Alignment] = {}
    with progress_bar("measuring", len(losses)) as advance:
        for name, each in losses.items():
            alignments[name] = measure_alignment(each, chosen, stored, num_sets=sets, set_size=set_size, seed=seed)
            advance(len(alignments))
    if plot is not None:
        plot_alignment(alignments, plot)
    if as_json:
        print_json(
            {
                "metric": chosen.name,
                "predictions": str(predictions),
                "num_sets": sets,
                "set_size": set_size,
                "seed": seed,
                "losses": {name: as_plain(alignment) for name, alignment in alignments.items()},
            }
        )
    else:
        print_alignments(alignments, f"{chosen.name} on {sets} sets of {set_size} predictions")


def print_alignments(alignments: dict[str, Alignment], title: str) -> None:
    """The best first, with 95 % intervals."""
    # a loss that is the same on all sets has no correlation: NaN, at the end
    best_first = sorted(alignments.items(), key=lambda item: (isnan(value := item[1].spearman.value), -value))
    rows = [(name, str(each.spearman), str(each.kendall), f"{each.discordant_share:.1%}") for name, each in best_first]
    print_table(title, ("loss", "Spearman", "Kendall", "pairs in the wrong order"), rows)
    num_left_out = best_first[0][1].num_sets_left_out
    if num_left_out:
        print(f"{num_left_out} sets are left out: the metric is not defined on them.")


def as_plain(alignment: Alignment) -> dict[str, Any]:
    """Without the losses and costs of each set."""
    names = ("sign", "discordant_share", "num_sets", "num_sets_left_out")
    return {
        "spearman": vars(alignment.spearman),
        "kendall": vars(alignment.kendall),
        **{name: getattr(alignment, name) for name in names},
    }


def choose_metric(
    name: str | None, function_name: str | None, kind: str | None, higher_is_better: bool | None
) -> Metric:
    from lossmith.metrics import find_metric
    from lossmith.metrics.wrap import wrap

    if (name is None) == (function_name is None):
        raise ValueError(
            "name one metric: --metric NAME (`lossmith metrics` lists them) or --metric-fn MODULE:FUNCTION."
        )
    if name is not None:
        if kind is not None or higher_is_better is not None:
            raise ValueError(
                f"{name} knows its kind and its direction; --kind and --higher-is-better go with --metric-fn."
            )
        return find_metric(name)
    assert function_name is not None
    if kind is None or higher_is_better is None:
        raise ValueError(f"say what {function_name} reads (--kind) and --higher-is-better or --lower-is-better.")
    return wrap(import_function(function_name), kind=kind, higher_is_better=higher_is_better)


def choose_losses(names: list[str], function_names: list[str], kind: Kind) -> dict[str, Loss]:
    from lossmith.cli.losses import names_for

    if not names and not function_names:
        names = names_for(kind)
        if not names:
            raise ValueError(f"no hand-made loss reads {kind} predictions; --loss-fn MODULE:FUNCTION takes your own.")
    return {name: _find(name, kind) for name in names} | {name: import_function(name) for name in function_names}


def _find(name: str, kind: Kind) -> Loss:
    """A hand-made loss, a shipped one, or a file."""
    from lossmith.baselines import LOSSES, find_loss
    from lossmith.weights import SUFFIX, load, shipped

    if name in LOSSES or not (name in shipped() or name.endswith(SUFFIX)):
        return find_loss(name, kind)
    learned = load(name)
    if learned.kind is not kind:
        raise ValueError(f"{name} is a loss for {learned.kind} predictions; these are {kind}.")
    return learned


def import_function(name: str) -> Callable[..., Any]:
    """The function behind ``module:function``; the module may lie in the current folder."""
    module_name, colon, function_name = name.partition(":")
    if not (module_name and colon and function_name):
        raise ValueError(f"{name!r} came; MODULE:FUNCTION works, as in my_metrics:cost_of_errors.")
    sys.path.insert(0, "")
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise  # the module is there, and something that it imports is not
        raise ValueError(f"there is no module {module_name!r} here or among the installed ones.") from None
    finally:
        sys.path.remove("")
    function: Callable[..., Any] | None = getattr(module, function_name, None)
    if not callable(function):
        raise ValueError(f"{module_name} has no function {function_name!r}.")
    return function
