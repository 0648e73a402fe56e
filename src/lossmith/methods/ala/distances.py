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

from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F

from lossmith.baselines.triplets import Sampling, draw_triplets, pairwise_distances, relations
from lossmith.methods.ala.adjustable import AdjustableLoss

# nearer than this, functions of the distance to a stranger are those of this: 1/d has no bound
NEAREST_STRANGER = 0.1
# embeddings of a validation set whose pairs a controller looks at
MAX_ROWS = 1024


def of_alike(distance: Tensor) -> Tensor:
    """The five rising functions F+, ``[...] -> [5, ...]``; the paper's supplement, which has them, is not published."""
    huber = F.huber_loss(distance, torch.zeros_like(distance), reduction="none", delta=0.5)
    return torch.stack([distance, distance**2, distance.expm1(), distance.log1p(), huber])


def of_strangers(distance: Tensor) -> Tensor:
    """The five falling functions F-, ``[...] -> [5, ...]``."""
    distance = distance.clamp(min=NEAREST_STRANGER)
    return torch.stack([0.5 / distance, -distance, -(distance**2), (-distance).exp(), -distance.log()])


@final
class DistanceMixture(AdjustableLoss):
    """``Σ Φ_i F+_i(d+) + Σ Φ_{i+5} F-_i(d-)``, over triplets of a batch; at the start ``d²`` and ``1 / 2d``.

    Args:
        sampling: how the stranger of a triplet is drawn, ``"distance_weighted"`` (as with the margin loss) or
            ``"uniform"``.
        step_size: the paper's beta.
        seed: of the draws, which go on from one call to the next.
    """

    num_statistics = 1
    num_calls: Tensor

    def __init__(self, *, sampling: Sampling = "distance_weighted", step_size: float = 0.1, seed: int = 0) -> None:
        super().__init__(torch.tensor([0.0, 1, 0, 0, 0, 1, 0, 0, 0, 0]), low=0, high=1, step_size=step_size)
        self.sampling: Sampling = sampling
        self.seed = seed
        self.register_buffer("num_calls", torch.tensor(0))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        generator = torch.Generator(outputs.device).manual_seed(self.seed * 1_000_003 + int(self.num_calls))
        self.num_calls += 1
        distances = pairwise_distances(outputs)
        anchors, alike, strangers = draw_triplets(
            distances, targets, self.sampling, generator, num_dimensions=outputs.shape[-1]
        )
        if not len(anchors):
            return 0.0 * outputs.sum()
        functions = torch.cat([of_alike(distances[anchors, alike]), of_strangers(distances[anchors, strangers])])
        return (self.values.to(functions) @ functions.mean(-1)).to(outputs.dtype)

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
        return torch.cat(parts)[:, None]


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
        super().__init__(torch.tensor(initial), low=0.5, high=32, step_size=step_size)
        self.offset = offset

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
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
