"""``lossmith plot-loss``: the surface of a loss beside its metric's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from lossmith.cli.align import choose_losses, choose_metric
from lossmith.cli.console import print_json

if TYPE_CHECKING:
    from torch import Tensor

    from lossmith.vocabulary import Metric


def plot_loss(
    out: Annotated[Path, Option(help="The picture (.png, .svg, .pdf).")],
    metric: Annotated[str | None, Option(help="A name from `lossmith metrics`.")] = None,
    metric_fn: Annotated[
        str | None, Option(help="In place of --metric: your own, module:function of (outputs, targets) of one set.")
    ] = None,
    kind: Annotated[str | None, Option(help="With --metric-fn: the kind of the predictions.")] = None,
    higher_is_better: Annotated[
        bool | None, Option("--higher-is-better/--lower-is-better", help="With --metric-fn.")
    ] = None,
    loss: Annotated[
        list[str] | None, Option(help="A name from `lossmith losses` or a saved loss; may be repeated.")
    ] = None,
    loss_fn: Annotated[
        list[str] | None, Option(help="Your own loss, module:function of (outputs, targets); may be repeated.")
    ] = None,
    predictions: Annotated[
        Path | None, Option(help="Take the batch from this file (its first set) in place of a random one.")
    ] = None,
    batch_size: Annotated[int, Option(min=2, help="Predictions in the batch.")] = 10,
    reach: Annotated[float, Option(help="Scores go from -REACH to REACH.")] = 3.0,
    seed: Annotated[int, Option(help="Of the random batch.")] = 0,
    as_json: Annotated[bool, Option("--json", help="One JSON object with all heights.")] = False,
) -> None:
    """Draw the surface of losses beside their metric's, as the scores of two predictions of a batch change."""
    from lossmith.surfaces import plot_surfaces, surfaces_of

    chosen = choose_metric(metric, metric_fn, kind, higher_is_better)
    losses = choose_losses(loss or [], loss_fn or [], chosen.kind)
    outputs, targets = _batch(chosen, predictions, batch_size, seed)
    surfaces = surfaces_of(losses, chosen, outputs, targets, reach=reach)
    plot_surfaces(surfaces, out)
    if as_json:
        heights = {surface.name: surface.heights.tolist() for surface in surfaces}
        print_json({"out": str(out), "values": surfaces[0].values.tolist(), "heights": heights})
    else:
        print(f"{out}: {', '.join(surface.name for surface in surfaces)}")


def _batch(metric: Metric, path: Path | None, batch_size: int, seed: int) -> tuple[Tensor, Tensor]:
    import torch

    from lossmith.predictions import load_predictions, random_predictions

    if path is not None:
        stored = load_predictions(path, kind=metric.kind, want_scores=not metric.reads_probabilities)
        return stored.outputs[0][:batch_size], stored.targets[0][:batch_size]
    generator = torch.Generator().manual_seed(seed)
    # of several, the most even one: a batch of a single class has nothing to show
    drawn = random_predictions(metric.kind, num_sets=64, set_size=batch_size, num_classes=4, generator=generator)
    spread = drawn.targets.flatten(1).float().std(1)
    best = int(spread.argmax())
    scores = drawn.outputs[best]
    return scores / scores.std(), drawn.targets[best]
