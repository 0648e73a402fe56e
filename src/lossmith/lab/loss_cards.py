"""The cards of the shipped losses as a page, with a plot of each: ``python -m lossmith.lab.loss_cards docs``.

The plot follows sets of random predictions while every row gets better at once: the metric rises, and the loss must
fall wherever it does.

>>> from lossmith.weights import load
>>> curve = improvement_curve(load("accuracy"))
>>> bool((curve.losses.diff()[curve.values.diff() > 0] < 0).all())
True
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from lossmith.cards import UNSEEN
from lossmith.methods.reloss import ReLoss
from lossmith.metrics import find_metric
from lossmith.predictions import random_predictions
from lossmith.vocabulary import CLASS_DIM
from lossmith.weights import load, shipped

NUM_CLASSES = 10
IMAGES = Path("images", "cards")
PAGE = Path("reference", "cards.md")
# dark enough to be read as text on white
OF_LOSS, OF_METRIC = "#1f6fb2", "#b35000"


class Curve(NamedTuple):
    """``[P]`` each: how far the true scores were raised, and the means over sets of what came of it."""

    raised: Tensor
    losses: Tensor
    values: Tensor


@torch.no_grad()
def improvement_curve(
    loss: ReLoss,
    *,
    num_sets: int = 100,
    set_size: int = 128,
    num_classes: int = NUM_CLASSES,
    num_points: int = 41,
    reach: float = 4.0,
    seed: int = 0,
) -> Curve:
    """Sets without any skill, whose true scores are raised from ``-reach`` to ``reach``."""
    generator = torch.Generator().manual_seed(seed)
    sets = random_predictions(
        loss.kind, num_sets=num_sets, set_size=set_size, num_classes=num_classes, generator=generator
    )
    noise = torch.randn(sets.outputs.shape, generator=generator)
    if CLASS_DIM[loss.kind] is None:
        direction = torch.where(sets.targets == 1, 1.0, -1.0)
    else:
        direction = torch.nn.functional.one_hot(sets.targets, num_classes).float()
    metric = find_metric(loss.card.metric)
    raised = torch.linspace(-reach, reach, num_points)
    points = [noise + amount * direction for amount in raised]
    losses = torch.stack([loss.of_stack(outputs, sets.targets).mean() for outputs in points])
    values = torch.stack([metric.value(outputs, sets.targets).nanmean() for outputs in points])
    return Curve(raised, losses, values)


def plot(loss: ReLoss, path: Path) -> None:
    """One SVG: the same bytes each time."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    curve = improvement_curve(loss)
    lowest, highest = curve.losses.min(), curve.losses.max()
    plt.rcParams["svg.hashsalt"] = loss.card.metric
    figure, left = plt.subplots(figsize=(5, 2.8), layout="constrained")
    left.plot(curve.raised, (curve.losses - lowest) / (highest - lowest), color=OF_LOSS)
    left.set_xlabel("true scores raised by")
    left.set_ylabel("loss (worst: 1, best: 0)", color=OF_LOSS)
    right = left.twinx()
    right.plot(curve.raised, curve.values, color=OF_METRIC, linestyle="--")
    right.set_ylabel(f"{loss.card.metric} (dashed)", color=OF_METRIC)
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)


def card_in_words(name: str, loss: ReLoss) -> str:
    """Markdown of one card."""
    card = loss.card
    num_weights = sum(weights.numel() for weights in loss.surrogate.parameters())
    lines = [
        f"## {name}",
        "",
        f"`lossmith.load({name!r})`: {loss.kind} predictions, a `{type(loss.surrogate).__name__}` of "
        f"{num_weights} weight{'' if num_weights == 1 else 's'}. Learned from "
        f"{card.learned_from} in {card.num_steps} steps, seed {card.seed}. Rows on which it rises as they get better: "
        f"{card.share_rising or 0:.1%}.",
        "",
        f"![loss and metric while predictions get better](../{IMAGES.as_posix()}/{name}.svg)",
        "",
        "| sets of | Spearman | Kendall | cross-entropy: Spearman | Kendall |",
        "|---|---|---|---|---|",
    ]
    for where, each in card.measured.items():
        source = f"{where.removesuffix(UNSEEN)} (never learned from)" if where.endswith(UNSEEN) else where
        numbers = (each.spearman, each.kendall, each.base_spearman, each.base_kendall)
        lines.append(f"| {source} | {' | '.join(str(number or '') for number in numbers)} |")
    return "\n".join(lines)


HEAD = """# Cards of the shipped losses

Made by `python -m lossmith.lab.loss_cards docs` from the files in the package; the losses are made by
`python -m lossmith.lab.ship`. Correlations are those of held-out sets of 128 rows, with their 95 % intervals, beside
cross-entropy on the same sets. In the plots every row of random sets gets better at once: where the metric rises, the
loss falls, if by little in places. Losses are brought to 0 and 1 there: only their order means something.
"""


def write_page(docs: Path) -> None:
    (docs / IMAGES).mkdir(parents=True, exist_ok=True)
    parts = [HEAD]
    for name in shipped():
        loss = load(name)
        plot(loss, docs / IMAGES / f"{name}.svg")
        parts.append(card_in_words(name, loss))
    (docs / PAGE).write_text("\n\n".join(part.strip() for part in parts) + "\n", encoding="utf8")


if __name__ == "__main__":
    write_page(Path(sys.argv[1]))
