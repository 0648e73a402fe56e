"""Predictions that are judged row by row: every kind of classification as one stack of rows.

A pixel, a token or a label of an image is a row like any other. ``M`` rows in a set: scores ``[S, M]`` for yes-or-no
decisions, ``[S, M, C]`` for a choice among classes; targets ``[S, M]``.

>>> import torch
>>> scores, targets = torch.tensor([[[2.0, 0.5, 1.0]]]), torch.tensor([[2]])
>>> margins(scores, targets)
tensor([[-1.]])
"""

from __future__ import annotations

import torch
from torch import Tensor

from lossmith.vocabulary import IGNORE_INDEX, Kind

BINARY_KINDS = (Kind.BINARY, Kind.MULTILABEL)
CLASS_KINDS = (Kind.MULTICLASS, Kind.SEGMENTATION, Kind.TOKENS)
ROW_KINDS = BINARY_KINDS + CLASS_KINDS

# Scores this small are those of an untrained head: below it a set's scale is noise, and dividing by it an explosion.
SMALLEST_SCALE = 1e-2


def to_rows(kind: Kind, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Scores in at least single precision, and targets, as rows; a view wherever the layout allows it."""
    scores = outputs.float() if outputs.dtype in (torch.float16, torch.bfloat16) else outputs
    if kind is Kind.MULTILABEL:
        return scores.flatten(1, 2), targets.flatten(1, 2)
    if kind is Kind.SEGMENTATION:
        return scores.movedim(2, -1).flatten(1, 3), targets.flatten(1, 3)
    if kind is Kind.TOKENS:
        return scores.flatten(1, 2), targets.flatten(1, 2)
    if kind in (Kind.BINARY, Kind.MULTICLASS):
        return scores, targets
    raise ValueError(f"{kind} predictions are not judged row by row; {', '.join(ROW_KINDS)} predictions are.")


def margins(scores: Tensor, targets: Tensor, *, top: int = 1) -> Tensor:
    """``[S, M]``, positive exactly where the row is right.

    The true score minus the ``top``-th best of the other classes; for yes-or-no rows the score in the right direction.
    What is left out has a finite margin of no meaning.
    """
    if scores.dim() == targets.dim():
        return torch.where(targets > 0, scores, -scores)
    if scores.shape[-1] <= top:
        raise ValueError(
            f"{scores.shape[-1]} classes came: the true one is always among the best {top}. {top + 1} or more work."
        )
    index = targets.clamp_min(0).long().unsqueeze(-1)
    others = scores.scatter(-1, index, float("-inf"))
    rival = others.amax(-1) if top == 1 else others.topk(top, dim=-1).values[..., -1]
    return scores.gather(-1, index).squeeze(-1) - rival


def kept(targets: Tensor, scores: Tensor) -> Tensor:
    """1 for rows that count, 0 for those left out, in the scores' dtype."""
    return (targets != IGNORE_INDEX).to(scores.dtype)


def mean_of_kept(values: Tensor, weight: Tensor) -> Tensor:
    """Mean over the last dimension of what counts, and 0 (with a graph) where nothing does."""
    return (values * weight).sum(-1) / weight.sum(-1).clamp_min(1)


def scale_of_set(values: Tensor, weight: Tensor) -> Tensor:
    """``[S, 1]``: mean size of a set's values, a constant to the gradient.

    A decision does not depend on the scale of the scores, so neither should the loss that stands for it.
    """
    return mean_of_kept(values.detach().abs(), weight).clamp_min(SMALLEST_SCALE).unsqueeze(-1)


def root_mean_square(values: Tensor, weight: Tensor) -> Tensor:
    """``[S]``, over all other dimensions, of what counts; the root has no slope to give at 0."""
    return mean_of_kept(values.square().flatten(1), weight.flatten(1)).clamp_min(SMALLEST_SCALE**2).sqrt()
