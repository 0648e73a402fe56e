"""Omniglot: 242 characters of eight alphabets, each drawn by the same twenty people, from ``omniglot_small.npz``.

Four of the twenty people are held out: a character is read in a hand that was never seen.
"""

from __future__ import annotations

import numpy as np
import torch

from lossmith.kinds import Kind
from lossmith.lab.datasets.dataset import Dataset, read_arrays

FILE_NAME = "omniglot_small.npz"
SIDE, PACKED_SIDE = 28, 105


def load_omniglot(max_rows: int | None = None) -> Dataset:
    """At most ``max_rows`` rows of each part, as pictures of 1 x 28 x 28."""
    arrays = read_arrays(FILE_NAME, "packed", "y", "drawer")
    bits = np.unpackbits(arrays["packed"], axis=1)[:, : PACKED_SIDE**2].reshape(-1, 1, PACKED_SIDE, PACKED_SIDE)
    ink = torch.nn.functional.adaptive_avg_pool2d(torch.from_numpy(bits).float(), SIDE)
    targets = torch.from_numpy(arrays["y"]).long()
    is_held_out = torch.from_numpy(arrays["drawer"]) % 5 == 0
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(0))
    train, test = order[~is_held_out[order]][:max_rows], order[is_held_out[order]][:max_rows]
    mean, deviation = ink[train].mean(), ink[train].std()
    inputs = (ink - mean) / deviation
    return Dataset(
        "omniglot",
        Kind.MULTICLASS,
        inputs[train],
        targets[train],
        inputs[test],
        targets[test],
        num_classes=int(targets.max()) + 1,
    )
