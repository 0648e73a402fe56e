"""Data sets for metric learning: the classes of the test rows are never seen in training.

Cars come as 98 models of cars to train on and 98 others to test; ORL as 20 people and 20 others; of the characters of
Omniglot, 150 and the other 92, of other alphabets or of all. Targets of both parts count on, so no class has two
meanings.

>>> from lossmith.lab.datasets.digits import load_digits
>>> by_class = split_by_class("digits by class", *pooled(load_digits()), num_train_classes=6)
>>> by_class.train_targets.unique().tolist(), by_class.test_targets.unique().tolist()
([0, 1, 2, 3, 4, 5], [6, 7, 8, 9])
"""

from __future__ import annotations

import torch
from torch import Tensor

from lossmith.kinds import Kind
from lossmith.lab.datasets.cifar10 import decode_images
from lossmith.lab.datasets.dataset import Dataset, read_arrays
from lossmith.lab.datasets.omniglot import load_omniglot

CARS_FILE, FACES_FILE = "cars196_train64.npz", "orl_faces.npz"
NUM_TRAIN_CARS, NUM_TRAIN_PEOPLE, NUM_TRAIN_CHARACTERS = 98, 20, 150


def load_cars(max_rows: int | None = None) -> Dataset:
    """Stanford Cars, 3 x 64 x 64: classes 0 to 97 to train, 98 to 195 to test (the usual split for retrieval)."""
    arrays = read_arrays(CARS_FILE, "jpg", "off", "y")
    images = torch.from_numpy(decode_images(arrays["jpg"], arrays["off"])).permute(0, 3, 1, 2).float()
    return split_by_class("cars", images, torch.from_numpy(arrays["y"]), NUM_TRAIN_CARS, max_rows)


def load_faces(max_rows: int | None = None) -> Dataset:
    """The ORL faces, 1 x 56 x 48: half of the people to train, the others to test."""
    arrays = read_arrays(FACES_FILE, "x", "y")
    images = torch.nn.functional.avg_pool2d(torch.from_numpy(arrays["x"])[:, None].float(), 2)
    return split_by_class("orl_faces", images, torch.from_numpy(arrays["y"]), NUM_TRAIN_PEOPLE, max_rows)


def load_omniglot_by_class(max_rows: int | None = None) -> Dataset:
    """Omniglot, 1 x 28 x 28: 150 characters to train, 92 others to test, all people in both."""
    return split_by_class("omniglot_by_class", *pooled(load_omniglot()), NUM_TRAIN_CHARACTERS, max_rows)


def load_omniglot_mixed(max_rows: int | None = None) -> Dataset:
    """Omniglot, 150 characters of all alphabets to train and 92 others of them to test."""
    inputs, targets = pooled(load_omniglot())
    others = torch.randperm(int(targets.max()) + 1, generator=torch.Generator().manual_seed(0))
    return split_by_class("omniglot_mixed", inputs, others[targets.long()], NUM_TRAIN_CHARACTERS, max_rows)


def pooled(dataset: Dataset) -> tuple[Tensor, Tensor]:
    """The inputs and targets of both parts."""
    inputs = torch.cat([dataset.train_inputs, dataset.test_inputs])
    return inputs, torch.cat([dataset.train_targets, dataset.test_targets])


def split_by_class(
    name: str, inputs: Tensor, targets: Tensor, num_train_classes: int, max_rows: int | None = None
) -> Dataset:
    """At most ``max_rows`` rows of each part, in random order; inputs standardised by the training rows."""
    targets = targets.long()
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(0))
    is_train = targets < num_train_classes
    train, test = order[is_train[order]][:max_rows], order[~is_train[order]][:max_rows]
    deviation, mean = torch.std_mean(inputs[train])
    return Dataset(
        name,
        Kind.EMBEDDING,
        (inputs[train] - mean) / deviation,
        targets[train],
        (inputs[test] - mean) / deviation,
        targets[test],
        num_classes=int(targets.max()) + 1,
    )
