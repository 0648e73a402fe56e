"""The data sets of the lab; a new one is a file here and a line in the table.

>>> DATASETS["digits"].load(100).train_targets.shape
torch.Size([100])
"""

from __future__ import annotations

import difflib

from lossmith.lab.datasets import cifar10, cifar100, imagenet, mnist, omniglot
from lossmith.lab.datasets.cifar10 import load_cifar10
from lossmith.lab.datasets.cifar100 import load_cifar100
from lossmith.lab.datasets.dataset import DATA_VARIABLE, Dataset, Source, one_against_rest
from lossmith.lab.datasets.digits import load_digits
from lossmith.lab.datasets.imagenet import load_imagenet
from lossmith.lab.datasets.label_noise import with_label_noise
from lossmith.lab.datasets.mnist import load_mnist
from lossmith.lab.datasets.omniglot import load_omniglot
from lossmith.lab.datasets.tables import COVTYPE, TABLES
from lossmith.lab.datasets.unseen_classes import (
    CARS_FILE,
    FACES_FILE,
    load_cars,
    load_faces,
    load_omniglot_by_class,
    load_omniglot_mixed,
)

__all__ = ["DATASETS", "DATA_VARIABLE", "Dataset", "Source", "find_dataset", "one_against_rest"]

CIFAR10 = Source(load_cifar10, "60,000 colour images of 32 x 32 pixels, 10 classes", cifar10.FILE_NAME)

DATASETS: dict[str, Source] = {
    "digits": Source(load_digits, "1,797 handwritten digits of 8 x 8 pixels, 10 classes (from scikit-learn)"),
    "mnist": Source(load_mnist, "70,000 handwritten digits of 28 x 28 pixels, 10 classes", mnist.FILE_NAME),
    "cifar10": CIFAR10,
    "cifar10_noisy": with_label_noise(CIFAR10, "cifar10_noisy", 0.3),
    "cifar100": Source(
        load_cifar100,
        "60,000 colour images of 32 x 32 pixels, 100 classes (a folder cifar-100-binary)",
        cifar100.FOLDER_NAME,
    ),
    "imagenet": Source(
        load_imagenet,
        "a folder of images for each class, made 64 x 64 pixels (imagenet/train, imagenet/val)",
        imagenet.FOLDER_NAME,
    ),
    "omniglot": Source(load_omniglot, "4,840 characters of 242 kinds, each by twenty people", omniglot.FILE_NAME),
    "omniglot_by_class": Source(
        load_omniglot_by_class, "the same, 150 characters to train and 92 others to test", omniglot.FILE_NAME
    ),
    "omniglot_mixed": Source(
        load_omniglot_mixed, "the same, with characters of all alphabets in both parts", omniglot.FILE_NAME
    ),
    "cars": Source(load_cars, "8,144 photographs of 196 cars, 64 x 64 pixels, half of the cars unseen", CARS_FILE),
    "orl_faces": Source(load_faces, "400 photographs of 40 faces, 56 x 48 pixels, half of them unseen", FACES_FILE),
    "covtype": COVTYPE,
    **TABLES,
}


def find_dataset(name: str) -> Source:
    """The data set of that name, or an error that names the nearest."""
    if name not in DATASETS:
        nearest = difflib.get_close_matches(name, DATASETS, n=1, cutoff=0.0)[0]
        raise ValueError(f"there is no data set called {name!r}; did you mean {nearest!r}? All: {', '.join(DATASETS)}.")
    return DATASETS[name]
