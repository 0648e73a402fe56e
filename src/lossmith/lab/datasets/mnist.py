"""MNIST: 60,000 and 10,000 images of handwritten digits, one channel of 28 x 28 pixels, from ``mnist.npz``."""

from __future__ import annotations

import torch
from torch import Tensor

from lossmith.kinds import Kind
from lossmith.lab.datasets.dataset import Dataset, read_arrays

FILE_NAME = "mnist.npz"
# of the training images, on the scale 0 to 1
MEAN, STANDARD_DEVIATION = 0.1307, 0.3081


def load_mnist(max_rows: int | None = None) -> Dataset:
    """At most ``max_rows`` rows of each official part (their order is random)."""
    arrays = read_arrays(FILE_NAME, "x_train", "y_train", "x_test", "y_test")

    def images(name: str) -> Tensor:
        pixels = torch.from_numpy(arrays[name][:max_rows])[:, None].float() / 255
        return (pixels - MEAN) / STANDARD_DEVIATION

    def labels(name: str) -> Tensor:
        return torch.from_numpy(arrays[name][:max_rows]).long()

    return Dataset(
        "mnist",
        Kind.MULTICLASS,
        images("x_train"),
        labels("y_train"),
        images("x_test"),
        labels("y_test"),
        num_classes=10,
    )
