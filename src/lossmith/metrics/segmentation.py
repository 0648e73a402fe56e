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

import torch
from torch import Tensor

from lossmith.metrics.counts import Counts, Formula, f_beta, jaccard, value_dtype
from lossmith.vocabulary import IGNORE_INDEX, Kind, Metric


def miou(*, per_image: bool = False, include_background: bool = True) -> Metric:
    """Mean over classes of intersection over union; without background, class 0 is left out of that mean."""
    return _mean_over_classes("miou", jaccard, per_image, include_background)


def dice(*, per_image: bool = False, include_background: bool = True) -> Metric:
    """Mean over classes of the Dice score, the F1 of pixels; without background, class 0 is left out of that mean."""
    return _mean_over_classes("dice", f_beta, per_image, include_background)


def pixel_accuracy(*, per_image: bool = False) -> Metric:
    """Share of the pixels that have the right class."""

    def score(confusion: Tensor) -> Tensor:
        return confusion.diagonal(dim1=-2, dim2=-1).sum(-1) / confusion.sum((-2, -1))

    return _of_confusion("pixel_accuracy", score, per_image)


def _mean_over_classes(name: str, formula: Formula, per_image: bool, include_background: bool) -> Metric:
    first_class = 0 if include_background else 1

    def score(confusion: Tensor) -> Tensor:
        right, actual, predicted = confusion.diagonal(dim1=-2, dim2=-1), confusion.sum(-1), confusion.sum(-2)
        num_pixels = actual.sum(-1, keepdim=True)
        counts = Counts(right, predicted - right, actual - right, num_pixels - actual - predicted + right)
        is_there = actual + predicted > 0
        return formula(counts).where(is_there, torch.nan)[..., first_class:].nanmean(-1)

    return _of_confusion(name, score, per_image)


def _of_confusion(name: str, score: Callable[[Tensor], Tensor], per_image: bool) -> Metric:
    """``score`` takes counts of pixels ``[S, C, C]``, actual class by predicted class, and is NaN without any."""

    def value(outputs: Tensor, targets: Tensor) -> Tensor:
        return score(_confusion(outputs, targets).to(value_dtype(outputs)))

    def mean_over_images(outputs: Tensor, targets: Tensor) -> Tensor:
        one_image_sets = (each.flatten(0, 1).unsqueeze(1) for each in (outputs, targets))
        return value(*one_image_sets).view(targets.shape[:2]).nanmean(-1)

    return Metric(name, Kind.SEGMENTATION, mean_over_images if per_image else value)


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
