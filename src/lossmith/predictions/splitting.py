"""Stored predictions in three parts: rows to learn from, rows to choose by, rows that judge and do nothing else.

>>> import torch
>>> parts = split(Predictions(torch.randn(4, 90), torch.ones(4, 90)))
>>> parts.learning.set_size, parts.choosing.set_size, parts.judging.set_size
(60, 15, 15)
"""

from __future__ import annotations

from typing import NamedTuple

from lossmith.vocabulary import Predictions

MIN_ROWS = 6


class Parts(NamedTuple):
    learning: Predictions
    choosing: Predictions
    judging: Predictions


def split(predictions: Predictions) -> Parts:
    """The held-out sets choose with one half of their rows and judge with the other.

    Where none is marked, the last third of the rows of every set is held out.
    """
    size = predictions.set_size
    if size < MIN_ROWS:
        raise ValueError(
            f"the sets have {size} rows each; a third of the rows is held out, so {MIN_ROWS} or more work, and "
            "hundreds are better: store a whole data set's outputs as one set."
        )
    is_held_out = predictions.is_held_out
    if is_held_out is None or not bool(is_held_out.any()):
        first, second = size * 2 // 3, size * 5 // 6
        return Parts(_rows(predictions, 0, first), _rows(predictions, first, second), _rows(predictions, second, None))
    if bool(is_held_out.all()):
        raise ValueError("every set is held out: there is nothing left to learn from.")
    held_out = predictions[is_held_out]
    return Parts(predictions[~is_held_out], _rows(held_out, 0, size // 2), _rows(held_out, size // 2, None))


def _rows(predictions: Predictions, start: int, stop: int | None) -> Predictions:
    return Predictions(predictions.outputs[:, start:stop], predictions.targets[:, start:stop])
