"""What a data set is in the lab, and where the files of those that do not come with a package lie.

No data set is downloaded: the environment variable ``LOSSMITH_DATA`` names the folder that holds the files.

>>> dataset = Dataset("toy", Kind.MULTICLASS, *(torch.zeros(4, 2), torch.tensor([0, 1, 2, 1])) * 2, num_classes=3)
>>> one_against_rest(dataset, 1).train_targets
tensor([0, 1, 0, 1])
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lossmith.kinds import Kind

DATA_VARIABLE = "LOSSMITH_DATA"


@dataclass(frozen=True)
class Dataset:
    """Rows to train on and rows that are held out; ``kind`` is that of a plain model's predictions."""

    name: str
    kind: Kind
    train_inputs: Tensor
    train_targets: Tensor
    test_inputs: Tensor
    test_targets: Tensor
    num_classes: int

    @property
    def input_shape(self) -> torch.Size:
        return self.train_inputs.shape[1:]

    @property
    def num_outputs(self) -> int:
        """Scores that a model gives for a row: one where the question is yes or no."""
        return 1 if self.kind is Kind.BINARY else self.num_classes


@dataclass(frozen=True)
class Source:
    """One line of the table: how to load, what it is, the file or folder it needs (none: it comes with a package)."""

    load: Callable[[int | None], Dataset]
    description: str
    file_name: str | None = None

    @property
    def is_here(self) -> bool:
        if self.file_name is None:
            return True
        folder = os.environ.get(DATA_VARIABLE)
        return folder is not None and Path(folder, self.file_name).exists()


def find_folder(name: str) -> Path:
    """A folder in the data folder."""
    path = _in_data_folder(name)
    if not path.is_dir():
        raise ValueError(f"{path} is not there; {DATA_VARIABLE} names the folder that holds {name}.")
    return path


def _in_data_folder(name: str) -> Path:
    folder = os.environ.get(DATA_VARIABLE)
    if not folder:
        raise ValueError(f"{DATA_VARIABLE} is not set; it names the folder that holds {name}.")
    return Path(folder, name)


def read_arrays(file_name: str, *names: str) -> dict[str, NDArray[Any]]:
    """The named arrays of one ``.npz`` file in the data folder."""
    path = _in_data_folder(file_name)
    if not path.is_file():
        raise ValueError(f"{path} is not there; {DATA_VARIABLE} names the folder that holds {file_name}.")
    with np.load(path, allow_pickle=False) as arrays:
        missing = [name for name in names if name not in arrays]
        if missing:
            raise ValueError(f"{path} has no {', '.join(missing)}; it holds {', '.join(arrays)}.")
        return {name: arrays[name] for name in names}


def one_against_rest(dataset: Dataset, positive_class: int) -> Dataset:
    """The same rows with a yes-or-no question: is it this class?"""
    if not 0 <= positive_class < dataset.num_classes:
        raise ValueError(
            f"{dataset.name} has no class {positive_class}; its classes go from 0 to {dataset.num_classes - 1}."
        )
    return replace(
        dataset,
        name=f"{dataset.name}, {positive_class} against the rest",
        kind=Kind.BINARY,
        train_targets=(dataset.train_targets == positive_class).long(),
        test_targets=(dataset.test_targets == positive_class).long(),
        num_classes=2,
    )
