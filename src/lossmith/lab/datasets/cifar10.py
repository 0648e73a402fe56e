"""CIFAR-10: 50,000 and 10,000 images of ten things, 3 x 32 x 32 pixels, from ``cifar10_q95.npz``.

The file holds each part as one run of JPEG images and the offset at which each begins. Images come back in
``channels_last`` memory, as they are decoded and as convolutions want them.
"""

from __future__ import annotations

import io
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lossmith.kinds import Kind
from lossmith.lab.datasets.dataset import Dataset, read_arrays

FILE_NAME = "cifar10_q95.npz"
# of the training images, by channel, on the scale 0 to 255
MEAN = (125.307, 122.950, 113.865)
STANDARD_DEVIATION = (62.993, 62.089, 66.705)


def load_cifar10(max_rows: int | None = None) -> Dataset:
    """At most ``max_rows`` rows of each official part (their order is random)."""
    arrays = read_arrays(FILE_NAME, "jpg_train", "off_train", "y_train", "jpg_test", "off_test", "y_test")

    def images(part: str) -> Tensor:
        pixels = decode_images(arrays[f"jpg_{part}"], arrays[f"off_{part}"][: max_rows and max_rows + 1])
        normalised = (torch.from_numpy(pixels).float() - torch.tensor(MEAN)) / torch.tensor(STANDARD_DEVIATION)
        return normalised.permute(0, 3, 1, 2)

    def labels(part: str) -> Tensor:
        return torch.from_numpy(arrays[f"y_{part}"][:max_rows]).long()

    return Dataset(
        "cifar10",
        Kind.MULTICLASS,
        images("train"),
        labels("train"),
        images("test"),
        labels("test"),
        num_classes=10,
    )


def decode_images(blob: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint8]:
    """``[rows, height, width, 3]`` from JPEG images that follow each other in one array of bytes."""
    from PIL import Image

    encoded = blob.tobytes()
    pixels = [np.asarray(Image.open(io.BytesIO(encoded[start:end])).convert("RGB")) for start, end in pairwise(offsets)]
    return np.stack(pixels)
