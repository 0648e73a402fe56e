"""``lossmith learn``: a loss for a metric, from stored predictions, in one file."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from lossmith.cli.align import choose_metric
from lossmith.cli.console import print_json, print_table


def learn(
    predictions: Annotated[Path, Option(help="File with the arrays outputs and targets (.npz or .safetensors).")],
    out: Annotated[Path, Option(help="Where the loss goes (.safetensors).")],
    metric: Annotated[str | None, Argument(help="A name from `lossmith metrics`.")] = None,
    metric_fn: Annotated[
        str | None, Option(help="In place of METRIC: your own, module:function of (outputs, targets) of one set.")
    ] = None,
    kind: Annotated[str | None, Option(help="With --metric-fn: the kind of the predictions.")] = None,
    higher_is_better: Annotated[
        bool | None, Option("--higher-is-better/--lower-is-better", help="With --metric-fn.")
    ] = None,
    steps: Annotated[int, Option(min=1, help="Of the optimizer, for each surrogate that is tried.")] = 400,
    set_size: Annotated[int, Option(min=2, help="Predictions in a set.")] = 128,
    seed: Annotated[int, Option(help="Of the drawing, and of the weights.")] = 0,
    as_json: Annotated[bool, Option("--json", help="One JSON object.")] = False,
) -> None:
    """Learn a loss that ranks predictions as a metric does, and say how well it does on rows it has not seen.

    A run that was stopped goes on when the same command is given again.
    """
    from lossmith.methods.reloss import learn
    from lossmith.predictions import load_predictions
    from lossmith.weights import check_place, save

    check_place(out)  # now, and not after learning
    chosen = choose_metric(metric, metric_fn, kind, higher_is_better)
    stored = load_predictions(predictions, kind=chosen.kind)
    state = Path(f"{out}.unfinished")
    source = {predictions.name: stored}
    try:
        loss = learn(chosen, source, num_steps=steps, set_size=set_size, seed=seed, resume_from=state)
    except KeyboardInterrupt:
        if state.is_file():
            print(f"Stopped. The same command goes on from {state}.", file=sys.stderr)
        raise
    save(loss, out)
    state.unlink(missing_ok=True)
    if as_json:
        print_json({"out": str(out), "surrogate": type(loss.surrogate).__name__, **asdict(loss.card)})
        return
    rows = [
        (where, *(str(number or "") for number in (each.spearman, each.kendall, each.base_spearman)))
        for where, each in loss.card.measured.items()
    ]
    columns = ("held-out rows of", "Spearman", "Kendall", "Spearman of cross-entropy")
    print_table(f"{out}: {chosen.name}, a {type(loss.surrogate).__name__}", columns, rows)
    print(f"Use it: lossmith.load({str(out)!r}), beside the ordinary loss with lossmith.combine.")
