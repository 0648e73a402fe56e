"""scikit-learn's digits: 1,797 images of 8 x 8 pixels. Nothing to fetch, so the demo and the tests live on it.

>>> digits = load_digits()
>>> digits.train_inputs.shape, digits.test_inputs.shape
(torch.Size([1198, 64]), torch.Size([599, 64]))
"""

from __future__ import annotations

import torch

from lossmith.kinds import Kind
from lossmith.lab.datasets.dataset import Dataset


def load_digits(max_rows: int | None = None) -> Dataset:
    """At most ``max_rows`` rows of each part. Every third row is held out: both parts have the same mix of writers."""
    from sklearn.datasets import load_digits as load_arrays

    pixels, labels = load_arrays(return_X_y=True)
    inputs = torch.from_numpy(pixels).float() / 8 - 1
    targets = torch.from_numpy(labels).long()
    is_held_out = torch.arange(len(targets)) % 3 == 2
    return Dataset(
        "digits",
        Kind.MULTICLASS,
        inputs[~is_held_out][:max_rows],
        targets[~is_held_out][:max_rows],
        inputs[is_held_out][:max_rows],
        targets[is_held_out][:max_rows],
        num_classes=10,
    )
