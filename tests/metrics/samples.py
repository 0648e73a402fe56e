"""Random predictions of every kind: stacks that look like a model's, with as many targets left out as asked for."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lossmith.vocabulary import IGNORE_INDEX, Kind


def sample(
    kind: Kind, *, num_sets: int = 6, set_size: int = 24, generator: torch.Generator, ignored_share: float = 0.0
) -> tuple[Tensor, Tensor]:
    """``outputs [S, N, ...]``, ``targets [S, N, ...]``: better than chance, worse than perfect.

    What is left out is a whole row of targets, or in the kinds that allow it (segmentation, tokens, multilabel,
    ranking) any single target.
    """
    outputs, targets = MAKERS[kind](num_sets, set_size, generator)
    drawn = torch.rand(targets.shape, generator=generator)
    if kind in (Kind.HEATMAP, Kind.SPAN):
        drawn = drawn[..., :1].expand_as(drawn)
    return outputs, targets.masked_fill(drawn < ignored_share, IGNORE_INDEX)


def _binary(num_sets: int, set_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return _zeros_and_ones((num_sets, set_size), generator)


def _multiclass(num_sets: int, set_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    targets = torch.randint(7, (num_sets, set_size), generator=generator)
    return _scores_of_classes(targets, 7, generator), targets


def _multilabel(num_sets: int, set_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    return _zeros_and_ones((num_sets, set_size, 5), generator)


def _ranking(num_sets: int, set_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    targets = torch.randint(4, (num_sets, set_size, 12), generator=generator)
    return targets + 2 * _normal(targets.shape, generator), targets


def _embedding(num_sets: int, set_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    targets = torch.randint(4, (num_sets, set_size), generator=generator)
    centers = _normal((4, 8), generator)
    return centers[targets] + _normal((num_sets, set_size, 8), generator), targets


def _segmentation(num_sets: int, set_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    targets = torch.randint(3, (num_sets, set_size, 4, 5), generator=generator)
    return _scores_of_classes(targets, 3, generator).movedim(-1, 2), targets


def _heatmap(num_sets: int, set_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    joints = torch.randint(1, 7, (num_sets, set_size, 5, 2), generator=generator)
    visible = torch.rand((num_sets, set_size, 5, 1), generator=generator) < 0.8
    scale = torch.full((num_sets, set_size, 5, 1), 4.0)
    heatmaps = _normal((num_sets, set_size, 5, 8, 8), generator)
    at_joint = joints[..., 1] * 8 + joints[..., 0]
    heatmaps.flatten(-2).scatter_add_(-1, at_joint[..., None], torch.full((*at_joint.shape, 1), 2.0))
    return heatmaps, torch.cat([joints, visible, scale], dim=-1)


def _span(num_sets: int, set_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    targets = torch.randint(9, (num_sets, set_size, 2), generator=generator).sort(-1).values
    return _scores_of_classes(targets, 9, generator).movedim(-1, -2), targets


def _tokens(num_sets: int, set_size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    targets = torch.randint(11, (num_sets, set_size, 10), generator=generator)
    return _scores_of_classes(targets, 11, generator), targets


def _zeros_and_ones(shape: tuple[int, ...], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    targets = torch.randint(2, shape, generator=generator)
    return 2.0 * targets - 1 + _normal(shape, generator), targets


def _scores_of_classes(targets: Tensor, num_classes: int, generator: torch.Generator) -> Tensor:
    return 2.0 * torch.nn.functional.one_hot(targets, num_classes) + _normal((*targets.shape, num_classes), generator)


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator)


MAKERS: dict[Kind, Callable[[int, int, torch.Generator], tuple[Tensor, Tensor]]] = {
    Kind.BINARY: _binary,
    Kind.MULTICLASS: _multiclass,
    Kind.MULTILABEL: _multilabel,
    Kind.RANKING: _ranking,
    Kind.EMBEDDING: _embedding,
    Kind.SEGMENTATION: _segmentation,
    Kind.HEATMAP: _heatmap,
    Kind.SPAN: _span,
    Kind.TOKENS: _tokens,
}
