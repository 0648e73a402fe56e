"""CIFAR-100: 50,000 and 10,000 images of a hundred things, 3 x 32 x 32 pixels, from its authors' folder.

Of the three forms of it this is the one for C programs, ``cifar-100-binary``: a byte for the coarse label, one for the
fine label and 3,072 for the pixels, image after image. The one for Python is a pickle, and a pickle runs code.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from lossmith.kinds import Kind
from lossmith.lab.datasets.dataset import Dataset, find_folder

FOLDER_NAME = "cifar-100-binary"
NUM_CLASSES = 100
SHAPE = (3, 32, 32)
NUM_LABELS = 2
# of the training images, by channel, on the scale 0 to 255
MEAN = (129.304, 124.070, 112.434)
STANDARD_DEVIATION = (68.170, 65.392, 70.418)


def load_cifar100(max_rows: int | None = None) -> Dataset:
    """At most ``max_rows`` rows of each official part (their order is random); the hundred fine classes."""
    train, test = (_read_part(f"{part}.bin", max_rows) for part in ("train", "test"))
    return Dataset("cifar100", Kind.MULTICLASS, *train, *test, num_classes=NUM_CLASSES)


def _read_part(file_name: str, max_rows: int | None) -> tuple[Tensor, Tensor]:
    path = find_folder(FOLDER_NAME) / file_name
    if not path.is_file():
        raise ValueError(f"{path} is not there; the binary version of CIFAR-100 has train.bin and test.bin.")
    size = NUM_LABELS + int(np.prod(SHAPE))
    stored = np.fromfile(path, np.uint8, -1 if max_rows is None else max_rows * size)
    if not len(stored) or len(stored) % size:
        raise ValueError(f"{path} has {len(stored)} bytes, no multiple of {size}: it is not CIFAR-100, or not whole.")
    rows = torch.from_numpy(stored).view(-1, size)
    targets = rows[:, NUM_LABELS - 1].long()
    if int(targets.max()) >= NUM_CLASSES:
        raise ValueError(f"{path} has a label {int(targets.max())}; those of CIFAR-100 go from 0 to 99.")
    images = rows[:, NUM_LABELS:].view(-1, *SHAPE).float().contiguous(memory_format=torch.channels_last)
    mean, deviation = (torch.tensor(each).view(-1, 1, 1) for each in (MEAN, STANDARD_DEVIATION))
    return images.sub_(mean).div_(deviation), targets
