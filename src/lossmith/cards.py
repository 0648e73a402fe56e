"""What is known of a learned loss, measured on held-out sets, and whether that is good enough to train with.

A card travels with its loss. It says how well the loss orders sets, beside cross-entropy on the same sets, and on how
many rows it rises as they get better: alignment alone does not show that.

>>> from lossmith.predictions import random_predictions
>>> from lossmith.surrogates import margin_loss
>>> sets = random_predictions("binary", num_sets=50, set_size=32, generator=torch.Generator().manual_seed(0))
>>> share_of_rising_rows(margin_loss("binary"), sets)
0.0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from lossmith.alignment import Estimate, measure_alignment
from lossmith.baselines import find_loss
from lossmith.surrogates import Surrogate
from lossmith.surrogates.rows import ROW_KINDS
from lossmith.vocabulary import CLASS_DIM, IGNORE_INDEX, Kind, Loss, Metric, Predictions

# A loss that rises on more than this share of rows pushes models the wrong way, however well it ranks.
MAX_SHARE_RISING = 0.05
# what a card says behind the name of a source that was only measured
UNSEEN = ", never learned from"


@dataclass(frozen=True)
class Measured:
    """Alignment on the sets of one source, beside that of cross-entropy where the kind has one."""

    spearman: Estimate
    kendall: Estimate
    base_spearman: Estimate | None = None
    base_kendall: Estimate | None = None


@dataclass(frozen=True)
class Card:
    """What is known of a learned loss; measured on held-out rows that neither taught nor chose."""

    metric: str
    measured: Mapping[str, Measured]
    """By source."""
    share_rising: float | None
    """Rows on which the loss rises as the true score does, at one size of the set; None: rows have no true score."""
    learned_from: str
    num_steps: int
    seed: int
    version: str

    def check(self) -> None:
        """Raise a ``ValueError`` unless the loss orders sets as the metric does and falls as rows get better."""
        for where, alignment in self.measured.items():
            if not alignment.spearman.low > 0:
                raise ValueError(
                    f"the loss does not rank held-out sets of {where} as {self.metric} does: Spearman "
                    f"{alignment.spearman}. Checkpoints that differ more in the metric, or another surrogate, may help."
                )
        if self.share_rising is not None and self.share_rising > MAX_SHARE_RISING:
            raise ValueError(
                f"the loss rises on {self.share_rising:.1%} of held-out rows as they get better: it would train the "
                "wrong way. A surrogate that falls by construction or a larger gradient_penalty works."
            )


def measure(surrogate: Surrogate, metric: Metric, sets: Predictions, *, seed: int = 0) -> Measured:
    """Alignment of the surrogate, and of cross-entropy, on these sets as they are."""

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        value: Tensor = surrogate(outputs.unsqueeze(0), targets.unsqueeze(0)).squeeze(0)
        return value

    learned = measure_alignment(loss, metric, sets, seed=seed)
    base = base_loss(metric.kind)
    if base is None:
        return Measured(learned.spearman, learned.kendall)
    rival = measure_alignment(base, metric, sets, seed=seed)
    return Measured(learned.spearman, learned.kendall, rival.spearman, rival.kendall)


def base_loss(kind: Kind) -> Loss | None:
    return find_loss("ce", kind) if kind in CLASS_DIM else None


def scale_to_base(surrogate: Surrogate, stacks: Iterable[Predictions]) -> float:
    """What brings the loss's gradient to cross-entropy's: the median over sets, because some have none."""
    base = base_loss(surrogate.kind)
    if base is None:
        return 1.0
    ratios = []
    for stack in stacks:
        few = stack[:100]
        outputs = few.outputs.detach().requires_grad_()
        (learned_gradient,) = torch.autograd.grad(surrogate(outputs, few.targets).sum(), outputs)
        losses = torch.stack([base(one, target) for one, target in zip(outputs, few.targets)])
        (base_gradient,) = torch.autograd.grad(losses.sum(), outputs)
        learned_norm, base_norm = (gradient.flatten(1).norm(dim=1) for gradient in (learned_gradient, base_gradient))
        ratios.append(base_norm.median() / learned_norm.median().clamp_min(1e-12))
    return float(torch.stack(ratios).median())


def share_of_rising_rows(surrogate: Surrogate, sets: Predictions) -> float | None:
    """On how many rows the loss rises as the score of the true class (or of the right answer) does."""
    kind = surrogate.kind
    if kind not in ROW_KINDS:
        return None
    outputs = sets.outputs.detach().float().requires_grad_()
    (gradient,) = torch.autograd.grad(surrogate(outputs, sets.targets).sum(), outputs)
    class_dim = CLASS_DIM[kind]
    if class_dim is None:
        slope = torch.where(sets.targets == 1, gradient, -gradient)
    else:
        index = sets.targets.clamp_min(0).long().unsqueeze(-1)
        slope = gradient.movedim(class_dim, -1).gather(-1, index).squeeze(-1)
    # where a loss is flat, rounding leaves slopes of either sign; and when one positive passes another, soft average
    # precision rises and falls by next to nothing
    is_rising = slope > 0.01 * slope.abs().mean()
    is_kept = sets.targets != IGNORE_INDEX
    return float((is_rising & is_kept).sum() / is_kept.sum().clamp_min(1))


def mean_share_of_rising_rows(surrogate: Surrogate, stacks: Iterable[Predictions]) -> float | None:
    shares = [share_of_rising_rows(surrogate, stack[:200]) for stack in stacks]
    known = [share for share in shares if share is not None]
    return sum(known) / len(known) if known else None
