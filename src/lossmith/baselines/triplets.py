"""Triplet and margin losses of embeddings, with strangers drawn by distance (Schroff et al. 2015; Wu et al. 2017).

On a sphere of many dimensions most strangers are at a distance of about √2, where they teach nothing. Drawn with a
weight of one over the density of their distance, they come from everywhere alike. pytorch-metric-learning has these
losses too; here draws come from a seed of the loss, so that a run can be repeated and resumed.

Shape legend: ``N`` embeddings of a batch, ``T`` triplets of anchor, one of its own, and a stranger.

>>> import torch
>>> loss = triplet_loss(Kind.EMBEDDING)
>>> loss(torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]]), torch.tensor([3, 3, 4]))
tensor(0.)
"""

from __future__ import annotations

from typing import Literal, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lossmith.vocabulary import IGNORE_INDEX, Kind

Sampling = Literal["distance_weighted", "uniform"]
# Wu et al. section 4: nearer strangers are noise, farther ones have no gradient
CUTOFF, FARTHEST = 0.5, 1.4


def triplet_loss(kind: Kind, *, margin: float = 0.2, sampling: Sampling = "uniform", seed: int = 0) -> TripletLoss:
    """Mean of ``max(0, d+² - d-² + margin)`` over the triplets in which it is not zero."""
    _check(kind)
    return TripletLoss(margin=margin, sampling=sampling, seed=seed)


def margin_loss(
    kind: Kind, *, margin: float = 0.2, boundary: float = 1.2, sampling: Sampling = "distance_weighted", seed: int = 0
) -> TripletLoss:
    """Mean of ``max(0, d+ - boundary + margin)`` and ``max(0, boundary - d- + margin)`` over what is not zero."""
    _check(kind)
    return TripletLoss(margin=margin, boundary=boundary, sampling=sampling, seed=seed)


@final
class TripletLoss(nn.Module):
    """Made by :func:`triplet_loss`, and with a ``boundary`` by :func:`margin_loss`."""

    num_calls: Tensor

    def __init__(self, *, margin: float, boundary: float | None = None, sampling: Sampling, seed: int) -> None:
        super().__init__()
        self.margin, self.boundary, self.seed = margin, boundary, seed
        self.sampling: Sampling = sampling
        self.register_buffer("num_calls", torch.tensor(0))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        generator = torch.Generator(outputs.device).manual_seed(self.seed * 1_000_003 + int(self.num_calls))
        self.num_calls += 1
        distances = pairwise_distances(outputs)
        anchors, own, strangers = draw_triplets(
            distances, targets, self.sampling, generator, num_dimensions=outputs.shape[-1]
        )
        loss = self.of_distances(distances[anchors, own], distances[anchors, strangers])
        # 0 * outputs: without triplets a zero that keeps the graph
        return loss.to(outputs.dtype) + 0.0 * outputs.sum()

    def of_distances(self, near: Tensor, far: Tensor) -> Tensor:
        """``[T]`` distances to one's own and to strangers ``-> scalar``."""
        if self.boundary is None:
            terms = F.relu(near**2 - far**2 + self.margin)
        else:
            terms = torch.cat([F.relu(near - self.boundary + self.margin), F.relu(self.boundary - far + self.margin)])
        return terms.sum() / (terms > 0).sum().clamp(min=1)


def pairwise_distances(embeddings: Tensor) -> Tensor:
    """``[N, D] -> [N, N]``: Euclidean distances of embeddings brought to length 1, with a gradient at 0."""
    unit = F.normalize(embeddings.to(torch.promote_types(embeddings.dtype, torch.float32)), dim=-1)
    return (2 - 2 * unit @ unit.T).clamp(min=1e-6).sqrt()


def relations(targets: Tensor) -> tuple[Tensor, Tensor]:
    """Which pairs ``[N, N]`` are of one identity, and which of two; nobody is a pair with itself."""
    is_kept = targets != IGNORE_INDEX
    is_pair = is_kept[:, None] & is_kept
    is_same = targets[:, None] == targets
    is_other = ~torch.eye(len(targets), dtype=torch.bool, device=targets.device)
    return is_pair & is_same & is_other, is_pair & ~is_same


def draw_triplets(
    distances: Tensor, targets: Tensor, sampling: Sampling, generator: torch.Generator, *, num_dimensions: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Every ordered pair of one identity with one stranger: three times ``[T]``."""
    is_own, is_stranger = relations(targets)
    chances = is_stranger.to(distances.dtype)
    if sampling == "distance_weighted":
        chances = _one_over_density(distances.detach().masked_fill(~is_stranger, torch.inf), num_dimensions)
        # all strangers far away: any of them will do
        chances = torch.where(chances.sum(-1, keepdim=True) > 0, chances, is_stranger.to(chances.dtype))
    anchors, own = (is_own & is_stranger.any(-1, keepdim=True)).nonzero().unbind(-1)
    if not len(anchors):
        return anchors, own, own
    strangers = torch.multinomial(chances[anchors], 1, generator=generator)[:, 0]
    return anchors, own, strangers


def _one_over_density(distances: Tensor, num_dimensions: int) -> Tensor:
    """Wu et al. eq. 5, at most 1 in each row; 0 beyond the farthest distance that is drawn."""
    near = distances.clamp(min=CUTOFF, max=FARTHEST)
    log_weight = -(num_dimensions - 2) * near.log() - (num_dimensions - 3) / 2 * torch.log1p(-near.square() / 4)
    log_weight = log_weight.masked_fill(distances > FARTHEST, -torch.inf)
    highest = log_weight.amax(-1, keepdim=True)
    return (log_weight - highest.masked_fill(highest == -torch.inf, 0)).exp()


def _check(kind: Kind) -> None:
    if kind is not Kind.EMBEDDING:
        raise ValueError(f"triplets are of embeddings; {kind} predictions came.")
