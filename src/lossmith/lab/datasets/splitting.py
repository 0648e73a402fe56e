"""One table, split anew for every seed: 60 % to train, 20 % to validate, 20 % to test, by default.

All parts have the same share of every class; columns are standardised by the training rows of their own seed.

A missing value is NaN in the table. It becomes the mean of its column in the training rows, which is 0 after they are
standardised; a column that is constant there is 0 throughout.

>>> pool = Pool("toy", Kind.BINARY, torch.arange(20.0).view(10, 2), torch.tensor([0, 1] * 5), 2)
>>> parts = split(pool, [0, 1], shares=(0.6, 0.2, 0.2))
>>> parts.train.shape, parts.rows(parts.test).shape
(torch.Size([2, 6]), torch.Size([2, 2, 2]))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from lossmith.kinds import Kind
from lossmith.lab.datasets.dataset import Dataset

Scaling = Literal["standard", "range"]
"""Columns of mean 0 and deviation 1, or from 0 to 1, in the training rows."""

SHARES = (0.6, 0.2, 0.2)
# what an evaluation needs; more rows would only take time
MAX_VALIDATION, MAX_TEST = 20_000, 40_000
MAX_NUMBERS_KEPT = 50_000_000


@dataclass(frozen=True)
class Pool:
    """All rows ``[N, F]`` of a data set, in no parts yet; NaN where a value is missing."""

    name: str
    kind: Kind
    inputs: Tensor
    targets: Tensor
    num_classes: int
    columns: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()

    @property
    def num_outputs(self) -> int:
        return 1 if self.kind is Kind.BINARY else self.num_classes


def pool_of(dataset: Dataset) -> Pool:
    inputs = torch.cat([dataset.train_inputs, dataset.test_inputs]).flatten(1)
    targets = torch.cat([dataset.train_targets, dataset.test_targets])
    return Pool(dataset.name, dataset.kind, inputs, targets, dataset.num_classes)


@dataclass(frozen=True, eq=False)
class Parts:
    """Numbers of rows ``[G, n]`` for each of G seeds, and how its columns are scaled, ``[G, 1, F]``."""

    pool: Pool
    train: Tensor
    validation: Tensor
    test: Tensor
    mean: Tensor
    scale: Tensor

    def rows(self, index: Tensor) -> Tensor:
        """``[G, B, F]``, scaled."""
        return self.pool.inputs[index].sub_(self.mean).mul_(self.scale).nan_to_num_(0.0)

    def train_rows(self, place: Tensor) -> Tensor:
        """``[G, B, F]`` of places ``[G, B]`` in the training part."""
        if self._train_block is None:
            return self.rows(self.train.gather(1, place))
        return torch.stack([rows[index] for rows, index in zip(self._train_block, place)])

    def train_targets(self, place: Tensor) -> Tensor:
        return self._all_train_targets.gather(1, place)

    @cached_property
    def validation_rows(self) -> Tensor:
        return self.rows(self.validation)

    @cached_property
    def test_rows(self) -> Tensor:
        return self.rows(self.test)

    @cached_property
    def _train_block(self) -> Tensor | None:
        # standardising once is faster, as long as a copy for every seed fits
        is_small = self.train.numel() * self.pool.inputs.shape[1] <= MAX_NUMBERS_KEPT
        return self.rows(self.train) if is_small else None

    @cached_property
    def _all_train_targets(self) -> Tensor:
        return self.targets(self.train)

    def targets(self, index: Tensor) -> Tensor:
        return self.pool.targets[index]


def split(
    pool: Pool,
    seeds: Sequence[int],
    *,
    shares: tuple[float, float, float] = SHARES,
    max_rows: int | None = None,
    max_validation: int = MAX_VALIDATION,
    max_test: int = MAX_TEST,
    scaling: Scaling = "standard",
) -> Parts:
    """``max_rows`` is of the training part. Parts are drawn class by class, so all seeds have parts of one size."""
    most = (max_rows or len(pool.targets), max_validation, max_test)
    sizes = [min(share, limit / len(pool.targets)) for share, limit in zip(shares, most)]
    drawn = [_draw(pool, sizes, torch.Generator().manual_seed(seed)) for seed in seeds]
    train, validation, test = (torch.stack(part) for part in zip(*drawn))
    mean, scale = _moments(pool, train) if scaling == "standard" else _ranges(pool, train)
    return Parts(pool, train, validation, test, mean, scale)


def _draw(pool: Pool, shares: Sequence[float], generator: torch.Generator) -> list[Tensor]:
    parts: list[list[Tensor]] = [[] for _ in shares]
    for label in range(pool.num_classes):
        members = (pool.targets == label).nonzero().squeeze(1)
        members = members[torch.randperm(len(members), generator=generator)]
        begin = 0
        for part, share in zip(parts, shares):
            # every part has at least one row of a class that has three
            end = begin + max(round(share * len(members)), 1)
            part.append(members[begin:end])
            begin = end
    joined = [torch.cat(part) for part in parts]
    if not all(len(part) for part in joined):
        raise ValueError(f"{pool.name} has {len(pool.targets)} rows, too few to train, validate and test on.")
    return [part[torch.randperm(len(part), generator=generator)] for part in joined]


def _moments(pool: Pool, train: Tensor) -> tuple[Tensor, Tensor]:
    means, scales = [], []
    for index in train:  # one seed at a time: all at once would copy the table for every seed
        rows = pool.inputs[index].double()
        mean = rows.nanmean(0).nan_to_num(0.0)
        variance = (rows - mean).square().nanmean(0).nan_to_num(0.0)
        is_constant = variance <= 1e-12 * mean.square().clamp(min=1e-12)
        means.append(mean)
        scales.append(variance.masked_fill(is_constant, 1).rsqrt().masked_fill(is_constant, 0))
    return torch.stack(means)[:, None].float(), torch.stack(scales)[:, None].float()


def _ranges(pool: Pool, train: Tensor) -> tuple[Tensor, Tensor]:
    """The least value of each column in place of its mean; a value that is missing then becomes that one."""
    lowest, scales = [], []
    for index in train:
        rows = pool.inputs[index]
        low, high = rows.nan_to_num(torch.inf).amin(0), rows.nan_to_num(-torch.inf).amax(0)
        is_constant = high <= low
        lowest.append(low.masked_fill(is_constant, 0))
        scales.append((high - low).masked_fill(is_constant, torch.inf).reciprocal())
    return torch.stack(lowest)[:, None].float(), torch.stack(scales)[:, None].float()
