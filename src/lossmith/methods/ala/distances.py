"""Adjustable losses of embeddings: a mixture of distance functions (paper, eq. 9) and focal weights (eq. 10).

Embeddings are brought to length 1, so a distance ``d`` lies between 0 and 2.

>>> import torch
>>> embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
>>> alike, strangers = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
>>> for loss in (DistanceMixture(), FocalWeighting()):
...     print(bool(loss(embeddings, alike) < loss(embeddings, strangers)))
True
True
"""

from __future__ import annotations

from typing import Literal, final, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from lossmith.baselines.triplets import (
    Sampling,
    draw_triplets,
    margin_loss,
    pairwise_distances,
    relations,
    triplet_loss,
)
from lossmith.kinds import Kind
from lossmith.methods.ala.adjustable import AdjustableLoss

Base = Literal["triplet", "margin"]
BASES = {"triplet": triplet_loss, "margin": margin_loss}
SAMPLINGS: tuple[Sampling, ...] = get_args(Sampling)

# nearer than this, 1/d and -log d of a stranger go on as straight lines: they have no bound, and clamped they would
# have no gradient where strangers have fallen together
NEAREST_STRANGER = 0.1
# of the ten functions, those that the paper begins with: d² and 1 / 2d
SQUARE, INVERSE = 1, 5
# embeddings of a validation set whose pairs a controller looks at
MAX_ROWS = 1024


def of_alike(distance: Tensor) -> Tensor:
    """The five rising functions F+, ``[...] -> [5, ...]``; the paper's supplement, which has them, is not published."""
    huber = F.huber_loss(distance, torch.zeros_like(distance), reduction="none", delta=0.5)
    return torch.stack([distance, distance**2, distance.expm1(), distance.log1p(), huber])


def of_strangers(distance: Tensor) -> Tensor:
    """The five falling functions F-, ``[...] -> [5, ...]``."""
    kept = distance.clamp(min=NEAREST_STRANGER)
    nearer = distance - kept
    inverse = 0.5 / kept - 0.5 / NEAREST_STRANGER**2 * nearer
    logarithm = kept.log() + nearer / NEAREST_STRANGER
    return torch.stack([inverse, -distance, -(distance**2), (-distance).exp(), -logarithm])


@final
class DistanceMixture(AdjustableLoss):
    """``Σ Φ_i F+_i(d+) + Σ Φ_{i+5} F-_i(d-)``, the mean over triplets of a batch, beside a base loss of the same.

    With a base all Φ are 0 at the start: the loss *is* the triplet or the margin loss, draws included, until the
    controller moves it, and the base stays in the sum. Without one it is the paper's eq. 9, which begins with ``d²``
    and ``1 / 2d``. That is neither of the two: it has no margin, and over uniform draws it is far worse than the
    triplet loss.

    Args:
        base: ``"triplet"``, ``"margin"``, or None.
        sampling: how the stranger of a triplet is drawn, ``"distance_weighted"`` (as with the margin loss) or
            ``"uniform"``.
        step_size: the paper's beta.
        seed: of the draws, which go on from one call to the next.
    """

    num_statistics = 1
    num_calls: Tensor

    def __init__(
        self,
        base: Base | None = None,
        *,
        sampling: Sampling = "distance_weighted",
        step_size: float = 0.1,
        seed: int = 0,
    ) -> None:
        if base not in (None, *BASES) or sampling not in SAMPLINGS:
            raise ValueError(
                f"base={base!r} and sampling={sampling!r} came; {', '.join(map(repr, BASES))} or None, and "
                f"{' or '.join(map(repr, SAMPLINGS))} work."
            )
        initial = torch.zeros(10)
        if base is None:
            initial[[SQUARE, INVERSE]] = 1
        super().__init__(initial, low=0, high=1, step_size=step_size)
        self.base = None if base is None else BASES[base](Kind.EMBEDDING)
        self.sampling: Sampling = sampling
        self.seed = seed
        self.register_buffer("num_calls", torch.tensor(0))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        _check(outputs, targets)
        generator = torch.Generator(outputs.device).manual_seed(self.seed * 1_000_003 + int(self.num_calls))
        self.num_calls += 1
        distances = pairwise_distances(outputs)
        anchors, alike, strangers = draw_triplets(
            distances, targets, self.sampling, generator, num_dimensions=outputs.shape[-1]
        )
        if not len(anchors):
            return 0.0 * outputs.sum()
        near, far = distances[anchors, alike], distances[anchors, strangers]
        loss = self.values.to(distances) @ torch.cat([of_alike(near), of_strangers(far)]).mean(-1)
        if self.base is not None:
            loss = loss + self.base.of_distances(near, far)
        return loss.to(outputs.dtype)

    def statistics(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean of each function, from 0 to 1 between its values at the nearest and the farthest distance."""
        distances = pairwise_distances(outputs[:MAX_ROWS].float())
        is_alike, is_stranger = relations(targets[:MAX_ROWS])
        ends = torch.tensor([NEAREST_STRANGER, 2.0], device=distances.device)
        parts = []
        for functions, is_pair in ((of_alike, is_alike), (of_strangers, is_stranger)):
            at_ends = functions(ends)
            means = functions(distances[is_pair]).mean(-1) if bool(is_pair.any()) else at_ends.mean(-1)
            low, high = at_ends.amin(-1), at_ends.amax(-1)
            parts.append((means - low) / (high - low))
        return torch.cat(parts)[:, None].clamp(0, 1)


@final
class FocalWeighting(AdjustableLoss):
    """Every anchor against all its pairs, the hard ones first (paper, eq. 10): Φ₁ and Φ₂ say how much so.

    Args:
        offset: the paper's alpha, the distance between near and far.
        initial: Φ₁ and Φ₂ at the start, which the paper does not tell.
        step_size: theirs is 0.1, of parameters between 0 and 1; these are larger.
    """

    num_statistics = 1

    def __init__(
        self, *, offset: float = 1.0, initial: tuple[float, float] = (2.0, 10.0), step_size: float = 0.5
    ) -> None:
        if len(initial) != 2:
            raise ValueError(f"initial={initial} came; two values work, of one's own and of strangers.")
        super().__init__(torch.tensor(initial), low=0.5, high=32, step_size=step_size)
        self.offset = offset

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        _check(outputs, targets)
        excess = pairwise_distances(outputs) - self.offset
        total = 0.0 * outputs.sum()
        for sharpness, sign, is_pair in zip(self.values.to(excess), (1, -1), relations(targets)):
            exponents = (sign * sharpness * excess).masked_fill(~is_pair, -torch.inf)
            # the 1 in log(1 + Σ exp): an exponent of 0 more
            terms = F.pad(exponents, (1, 0)).logsumexp(-1) / sharpness
            has_pair = is_pair.any(-1)
            total = total + (terms * has_pair).sum() / has_pair.sum().clamp(min=1)
        return total.to(outputs.dtype)

    def statistics(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The mean distance to one's own, and to strangers, as shares of the longest."""
        distances = pairwise_distances(outputs[:MAX_ROWS].float())
        means = [(distances * is_pair).sum() / is_pair.sum().clamp(min=1) for is_pair in relations(targets[:MAX_ROWS])]
        return torch.stack(means)[:, None] / 2


def _check(outputs: Tensor, targets: Tensor) -> None:
    """Shapes alone, which make no device wait."""
    if outputs.ndim != 2 or targets.shape != outputs.shape[:1]:
        raise ValueError(
            f"embeddings of shape {tuple(outputs.shape)} and identities of shape {tuple(targets.shape)} came; [N, D] "
            "and [N] work."
        )
