"""Segmentation: one confusion matrix over all pixels of a set, from which every metric is read.

Counts are summed over the images of the set before any ratio is taken, as the benchmarks do; ``per_image=True``
takes one value per image and their mean. A class that is neither predicted nor there is left out of the mean over
classes. A pixel with target -100 is left out, whatever is predicted there; a set (or image) without a pixel is NaN.

>>> import torch
>>> outputs = torch.tensor([[[[2.0, 1.0, 0.0]], [[1.0, 2.0, 3.0]]]])  # predicted classes: 0 1 1
>>> targets = torch.tensor([[[0, 0, 1]]])
>>> pixel_accuracy()(outputs, targets), miou()(outputs, targets)
(tensor(0.6667), tensor(0.5000))
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from lossmith.kinds import IGNORE_INDEX, Kind
from lossmith.metrics.counts import Counts, Formula, f_beta, jaccard, value_dtype
from lossmith.vocabulary import Metric

# pixels of each actual class (rows) and predicted class (columns) [S, C, C] -> [S], NaN without a pixel
OfConfusion = Callable[[Tensor], Tensor]


def miou(*, per_image: bool = False, include_background: bool = True) -> Metric:
    """Mean over classes of intersection over union; without background, class 0 is left out of that mean."""
    return _metric("miou", _over_classes(jaccard, include_background), per_image)


def dice(*, per_image: bool = False, include_background: bool = True) -> Metric:
    """Mean over classes of the Dice score, the F1 of pixels; without background, class 0 is left out of that mean."""
    return _metric("dice", _over_classes(f_beta, include_background), per_image)


def pixel_accuracy(*, per_image: bool = False) -> Metric:
    """Share of the pixels that have the right class."""
    return _metric("pixel_accuracy", _accuracy, per_image)


def _over_classes(formula: Formula, include_background: bool) -> OfConfusion:
    return partial(_mean_over_classes, formula=formula, first_class=0 if include_background else 1)


def _metric(name: str, score: OfConfusion, per_image: bool) -> Metric:
    return Metric(name, Kind.SEGMENTATION, partial(_mean_over_images if per_image else _over_set, score=score))


def _over_set(outputs: Tensor, targets: Tensor, *, score: OfConfusion) -> Tensor:
    return score(_confusion(outputs, targets).to(value_dtype(outputs)))


def _mean_over_images(outputs: Tensor, targets: Tensor, *, score: OfConfusion) -> Tensor:
    one_image_sets = (each.flatten(0, 1).unsqueeze(1) for each in (outputs, targets))
    return _over_set(*one_image_sets, score=score).view(targets.shape[:2]).nanmean(-1)


def _mean_over_classes(confusion: Tensor, *, formula: Formula, first_class: int) -> Tensor:
    right, actual, predicted = confusion.diagonal(dim1=-2, dim2=-1), confusion.sum(-1), confusion.sum(-2)
    num_pixels = actual.sum(-1, keepdim=True)
    counts = Counts(right, predicted - right, actual - right, num_pixels - actual - predicted + right)
    is_there = actual + predicted > 0
    return formula(counts).where(is_there, torch.nan)[..., first_class:].nanmean(-1)


def _accuracy(confusion: Tensor) -> Tensor:
    return confusion.diagonal(dim1=-2, dim2=-1).sum(-1) / confusion.sum((-2, -1))


def _confusion(outputs: Tensor, targets: Tensor) -> Tensor:
    num_classes = outputs.shape[2]
    num_cells = num_classes**2
    # max and not argmax: over a dimension that is not the last it is several times as fast
    predicted = outputs.max(2).indices
    cell = (targets.long() * num_classes + predicted).where(targets != IGNORE_INDEX, num_cells).flatten(1)
    empty = torch.zeros(len(cell), num_cells + 1, dtype=torch.long, device=cell.device)
    counts = empty.scatter_add(1, cell, torch.ones_like(cell))
    return counts[:, :num_cells].reshape(-1, num_classes, num_classes)


TABLE: dict[str, Metric] = {"miou": miou(), "dice": dice(), "pixel_accuracy": pixel_accuracy()}
