"""Tables of numbers: one ``.npz`` file each, columns standardised with the training part.

Files with an official split keep it; of the others every third row is held out. The order is drawn once, because some
files are sorted.

>>> standardised(torch.tensor([[0.0, 3.0], [2.0, 3.0]]), torch.tensor([[4.0, 3.0]]))[1]
tensor([[3., 0.]])
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath

import numpy as np
import torch
from torch import Tensor

from lossmith.kinds import Kind
from lossmith.lab.datasets.dataset import Dataset, Source, one_against_rest, read_arrays


def load_table(name: str, file_name: str, max_rows: int | None = None, *, is_split: bool = False) -> Dataset:
    """A yes-or-no table: at most ``max_rows`` rows of each part."""
    if is_split:
        arrays = read_arrays(file_name, "x_train", "y_train", "x_test", "y_test")
        rows, labels = (np.concatenate([arrays[f"{part}_train"], arrays[f"{part}_test"]]) for part in "xy")
        is_held_out = torch.arange(len(rows)) >= len(arrays["x_train"])
    else:
        arrays = read_arrays(file_name, "x", "y")
        rows, labels = arrays["x"], arrays["y"]
        is_held_out = torch.arange(len(rows)) % 3 == 2
    return _dataset(name, Kind.BINARY, torch.from_numpy(rows), torch.from_numpy(labels), is_held_out, max_rows)


def load_covtype(max_rows: int | None = None) -> Dataset:
    """The type of forest on 581,012 patches of land: seven classes from 54 columns."""
    arrays = read_arrays(COVTYPE_FILE, "x", "cover_type")
    rows, labels = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["cover_type"]) - 1
    is_held_out = torch.arange(len(rows)) % 3 == 2
    return _dataset("covtype", Kind.MULTICLASS, rows, labels, is_held_out, max_rows)


def load_covtype_binary(max_rows: int | None = None) -> Dataset:
    """Is it the commonest type, lodgepole pine?"""
    return replace(one_against_rest(load_covtype(max_rows), 1), name="covtype_binary")


def _dataset(name: str, kind: Kind, rows: Tensor, labels: Tensor, is_held_out: Tensor, max_rows: int | None) -> Dataset:
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    train, test = order[~is_held_out[order]][:max_rows], order[is_held_out[order]][:max_rows]
    train_inputs, test_inputs = standardised(rows[train].float(), rows[test].float())
    targets = labels.long()
    num_classes = int(targets.max()) + 1
    return Dataset(name, kind, train_inputs, targets[train], test_inputs, targets[test], num_classes)


def standardised(train_rows: Tensor, test_rows: Tensor) -> tuple[Tensor, Tensor]:
    """Mean 0 and standard deviation 1 of each column of the training rows; a constant column becomes 0."""
    mean, deviation = train_rows.mean(0), train_rows.std(0, correction=0)
    unit = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
    return (train_rows - mean) / unit, (test_rows - mean) / unit


COVTYPE_FILE = "tabular/covtype.npz"
COVTYPE = Source(load_covtype, "581,012 patches of land in 54 columns, 7 types of forest", COVTYPE_FILE)


def _table(file_name: str, description: str, *, is_split: bool = False, name: str | None = None) -> Source:
    name = name or PurePath(file_name).stem

    def load(max_rows: int | None = None) -> Dataset:
        return load_table(name, file_name, max_rows, is_split=is_split)

    return Source(load, description, file_name)


TABLES: dict[str, Source] = {
    "a9a": _table("tabular/a9a.npz", "48,842 incomes in 123 columns, 24 % positive", is_split=True),
    "bank_marketing": _table("tabular/bank_marketing.npz", "45,211 calls of a bank in 51 columns, 12 % positive"),
    "ccfraud_sample": _table("tabular/ccfraud_sample.npz", "6,502 card payments in 30 columns, 8 % positive"),
    "covtype_binary": Source(load_covtype_binary, "the same patches: type 2 or another, 49 % positive", COVTYPE_FILE),
    "credit_default": _table("tabular/credit_default.npz", "24,000 loans in 23 columns, 22 % positive"),
    "higgs": _table(
        "tabular/higgs_lightgbm.npz", "7,500 collisions in 28 columns, 53 % positive", is_split=True, name="higgs"
    ),
    "ijcnn1": _table("tabular/ijcnn1.npz", "141,691 engine states in 22 columns, 10 % positive", is_split=True),
    "magic_telescope": _table("tabular/magic_telescope.npz", "19,020 showers in 10 columns, 65 % positive"),
    "mammography": _table("tabular/mammography.npz", "11,183 spots in 6 columns, 2 % positive"),
    "phoneme": _table("tabular/phoneme.npz", "5,404 vowels in 5 columns, 29 % positive"),
    "skin": _table("tabular/skin.npz", "245,057 colours of pixels in 3 columns, 21 % positive"),
}
