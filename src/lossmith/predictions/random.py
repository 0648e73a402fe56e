"""Random predictions (the paper's G_R): sets of every difficulty, imbalance and scale, for every kind.

Each set has a skill of its own, from worse than chance to nearly perfect, so that a stack spans the values of a metric;
uniform noise alone, as the paper has it, would show a learner nothing but bad models. Scores come in all scales,
because a loss that is learned on one scale is blind on the others.

>>> import torch
>>> predictions = random_predictions("multiclass", num_sets=3, set_size=8, num_classes=5, generator=torch.Generator())
>>> predictions.outputs.shape, predictions.targets.shape
(torch.Size([3, 8, 5]), torch.Size([3, 8]))
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from lossmith.vocabulary import IGNORE_INDEX, Kind, Predictions, parse_kind

# logits from nearly zero to saturated
SMALLEST_SCALE, LARGEST_SCALE = 0.03, 8.0


def random_predictions(
    kind: Kind | str,
    *,
    num_sets: int,
    set_size: int,
    generator: Generator,
    num_classes: int = 10,
    length: int = 12,
) -> Predictions:
    """A stack of random sets.

    ``num_classes`` counts classes, labels, joints or words; ``length`` is that of a sequence, of a query's list of
    documents, of an embedding, and of a picture's sides.
    """
    draw = _DRAWS[parse_kind(kind)]
    sizes = {"num_sets": num_sets, "set_size": set_size, "num_classes": num_classes, "length": length}
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name}={size} came; 1 or more works.")
    outputs, targets = draw(num_sets, set_size, num_classes, length, generator)
    scale = _log_uniform(num_sets, SMALLEST_SCALE, LARGEST_SCALE, generator)
    return Predictions(outputs * _each_set(scale, outputs), targets)


def _uniform(num_sets: int, low: float, high: float, generator: Generator) -> Tensor:
    return low + (high - low) * torch.rand(num_sets, generator=generator)


def _log_uniform(num_sets: int, low: float, high: float, generator: Generator) -> Tensor:
    return _uniform(num_sets, math.log(low), math.log(high), generator).exp()


def _noise(*shape: int, generator: Generator) -> Tensor:
    return torch.randn(*shape, generator=generator)


def _each_set(number_of_set: Tensor, like: Tensor) -> Tensor:
    """``[S]`` shaped to meet ``[S, ...]``."""
    return number_of_set.view(-1, *(1,) * (like.dim() - 1))


def _choices(num_sets: int, rows: tuple[int, ...], num_classes: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """``[S, *rows, C]``: noise, and the true class raised by the set's skill, more in some rows than in others."""
    targets = torch.randint(num_classes, (num_sets, *rows), generator=generator)
    boost = _uniform(num_sets, -1, 7, generator)
    unevenness = _uniform(num_sets, 0, 3, generator)
    raised = _each_set(boost, targets) + _each_set(unevenness, targets) * _noise(*targets.shape, generator=generator)
    outputs = _noise(num_sets, *rows, num_classes, generator=generator)
    return outputs.scatter_add(-1, targets.unsqueeze(-1), raised.unsqueeze(-1)), targets


def _multiclass(num_sets: int, size: int, classes: int, length: int, generator: Generator) -> tuple[Tensor, Tensor]:
    return _choices(num_sets, (size,), classes, generator)


def _segmentation(num_sets: int, size: int, classes: int, length: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Classes in patches, as pictures have them."""
    coarse = torch.randint(classes, (num_sets * size, 1, 3, 3), generator=generator).float()
    targets = F.interpolate(coarse, size=(length, length)).long().view(num_sets, size, length, length)
    boost = _uniform(num_sets, -1, 5, generator)
    outputs = _noise(num_sets, size, classes, length, length, generator=generator)
    raised = _each_set(boost, outputs).expand(num_sets, size, 1, length, length)
    return outputs.scatter_add(2, targets.unsqueeze(2), raised), targets


def _tokens(num_sets: int, size: int, classes: int, length: int, generator: Generator) -> tuple[Tensor, Tensor]:
    outputs, targets = _choices(num_sets, (size, length), classes, generator)
    lengths = torch.randint(1, length + 1, (num_sets, size, 1), generator=generator)
    return outputs, targets.masked_fill(torch.arange(length) >= lengths, IGNORE_INDEX)


def _yes_or_no(num_sets: int, rows: tuple[int, ...], generator: Generator) -> tuple[Tensor, Tensor]:
    """Two overlapping bells: how far apart, how wide each, how rare the positives, and where the threshold falls."""
    rare = _log_uniform(num_sets, 0.02, 0.5, generator)
    prevalence = torch.where(torch.rand(num_sets, generator=generator) < 0.3, 1 - rare, rare)
    uniform = torch.rand(num_sets, *rows, generator=generator)
    targets = (uniform < _each_set(prevalence, uniform)).long()
    distance = _uniform(num_sets, -0.5, 4, generator)
    spread_of_positives = _log_uniform(num_sets, 0.5, 2, generator)
    noise = _noise(*targets.shape, generator=generator)
    positive = _each_set(distance, noise) / 2 + _each_set(spread_of_positives, noise) * noise
    negative = -_each_set(distance, noise) / 2 + noise
    outputs = torch.where(targets == 1, positive, negative)
    return outputs - _each_set(1.5 * _noise(num_sets, generator=generator), outputs), targets


def _binary(num_sets: int, size: int, classes: int, length: int, generator: Generator) -> tuple[Tensor, Tensor]:
    return _yes_or_no(num_sets, (size,), generator)


def _multilabel(num_sets: int, size: int, classes: int, length: int, generator: Generator) -> tuple[Tensor, Tensor]:
    return _yes_or_no(num_sets, (size, classes), generator)


def _ranking(num_sets: int, size: int, classes: int, length: int, generator: Generator) -> tuple[Tensor, Tensor]:
    levels = torch.tensor([0.7, 0.2, 0.1]).expand(num_sets * size, 3)
    targets = torch.multinomial(levels, length, replacement=True, generator=generator).view(num_sets, size, length)
    noise = _noise(num_sets, size, length, generator=generator)
    return _each_set(_uniform(num_sets, -0.5, 4, generator), noise) * targets + noise, targets


def _embedding(num_sets: int, size: int, classes: int, length: int, generator: Generator) -> tuple[Tensor, Tensor]:
    targets = torch.randint(max(2, size // 4), (num_sets, size), generator=generator)
    centres = _noise(num_sets, max(2, size), length, generator=generator)
    centre = centres.gather(1, targets.unsqueeze(-1).expand(-1, -1, length))
    skill = _uniform(num_sets, 0, 3, generator)
    return _each_set(skill, centre) * centre + _noise(*centre.shape, generator=generator), targets


def _span(num_sets: int, size: int, classes: int, length: int, generator: Generator) -> tuple[Tensor, Tensor]:
    ends = torch.randint(length, (num_sets, size, 2), generator=generator).sort().values
    boost = _uniform(num_sets, -1, 6, generator)
    outputs = _noise(num_sets, size, length, 2, generator=generator)
    return outputs.scatter_add(2, ends.unsqueeze(2), _each_set(boost, ends.unsqueeze(2)).expand(-1, size, 1, 2)), ends


def _heatmap(num_sets: int, size: int, classes: int, length: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """A bump beside the joint, as far away as the set is unskilled, over noise; one joint in ten is not visible."""
    joints = torch.rand(num_sets, size, classes, 2, generator=generator) * (length - 1)
    distance = _log_uniform(num_sets, 0.1, length, generator)
    peaks = joints + _each_set(distance, joints) * _noise(*joints.shape, generator=generator) / 2
    axis = torch.arange(length)
    x_distance = axis - peaks[..., 0, None]
    y_distance = axis - peaks[..., 1, None]
    squared = y_distance.square().unsqueeze(-1) + x_distance.square().unsqueeze(-2)
    outputs = (-squared / 4).exp() + 0.1 * _noise(*squared.shape, generator=generator)
    is_visible = torch.rand(num_sets, size, classes, 1, generator=generator) < 0.9
    return outputs, torch.cat([joints, is_visible.to(joints.dtype)], dim=-1)


_DRAWS: dict[Kind, Callable[[int, int, int, int, Generator], tuple[Tensor, Tensor]]] = {
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
