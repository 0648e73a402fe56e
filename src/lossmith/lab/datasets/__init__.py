"""The data sets of the lab; a new one is a file here and a line in the table.

>>> DATASETS["digits"].load(100).train_targets.shape
torch.Size([100])
"""

from __future__ import annotations

import difflib

from lossmith.lab.datasets import cifar10, mnist, omniglot
from lossmith.lab.datasets.cifar10 import load_cifar10
from lossmith.lab.datasets.dataset import DATA_VARIABLE, Dataset, Source, one_against_rest
from lossmith.lab.datasets.digits import load_digits
from lossmith.lab.datasets.mnist import load_mnist
from lossmith.lab.datasets.omniglot import load_omniglot
from lossmith.lab.datasets.tables import COVTYPE, TABLES

__all__ = ["DATASETS", "DATA_VARIABLE", "Dataset", "Source", "find_dataset", "one_against_rest"]

DATASETS: dict[str, Source] = {
    "digits": Source(load_digits, "1,797 handwritten digits of 8 x 8 pixels, 10 classes (from scikit-learn)"),
    "mnist": Source(load_mnist, "70,000 handwritten digits of 28 x 28 pixels, 10 classes", mnist.FILE_NAME),
    "cifar10": Source(load_cifar10, "60,000 colour images of 32 x 32 pixels, 10 classes", cifar10.FILE_NAME),
    "omniglot": Source(load_omniglot, "4,840 characters of 242 kinds, each by twenty people", omniglot.FILE_NAME),
    "covtype": COVTYPE,
    **TABLES,
}


def find_dataset(name: str) -> Source:
    """The data set of that name, or an error that names the nearest."""
    if name not in DATASETS:
        nearest = difflib.get_close_matches(name, DATASETS, n=1, cutoff=0.0)[0]
        raise ValueError(f"there is no data set called {name!r}; did you mean {nearest!r}? All: {', '.join(DATASETS)}.")
    return DATASETS[name]
