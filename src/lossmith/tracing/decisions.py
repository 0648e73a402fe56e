"""What a decision is: a place where the code of a metric turns scores into something discrete.

There are three. A *threshold* puts every unit on one of two sides of a boundary (``>``, ``sign``, ``round``,
``bucketize``); a *choice* picks one of several alternatives for every unit (``argmax``, ``max(dim)``); an *order* sorts
the items of every row (``sort``, ``argsort``, ``topk``). Each knows its outcome, the scores that led to it in a
differentiable form, and its options: what could have been decided instead.

Shape legend: ``*rows`` units, or rows of an order; ``P`` alternatives of a choice; ``D`` items of a row;
``L`` options of a row; ``B`` single options, each of one row.

>>> scores = torch.tensor([0.2, -1.0])
>>> Threshold("gt", scores, scores > 0).options()  # the other side, for every unit at once
tensor([[False,  True]])
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

# rows up to this length swap every pair of positions, longer ones pairs at distances that grow by a factor
MAX_LENGTH_OF_ALL_PAIRS = 32
DISTANCE_GROWTH = 1.5


@dataclass(eq=False)
class Decision(ABC):
    """All decisions of one operation in one run of the metric."""

    operation: str
    comparisons: Tensor
    """Differentiable; what the outcome depends on, before any sigmoid or softmax."""
    outcome: Tensor
    source: str = ""
    """``file:line`` of the metric's code."""

    @property
    @abstractmethod
    def rows(self) -> torch.Size:
        """Shape of the units that are decided independently of each other."""

    @abstractmethod
    def options(self, leader: Decision | None = None) -> Tensor:
        """``[L, *rows]`` (an order: ``[L, *rows, D]``): outcomes that differ in every row by one decision.

        With a ``leader``, which decided the same before: the outcomes that go along with its options.
        """

    @abstractmethod
    def change(self, option: Tensor, row: Tensor, leader: Decision | None = None) -> Tensor:
        """``[B]`` (an order: ``[B, D]``): what option ``option[b]`` makes of row ``row[b]``."""

    def num_meant(self, option: Tensor) -> Tensor:
        """``[B]``: how many decisions of its kind an option stands for."""
        return torch.ones_like(option)

    @abstractmethod
    def margin(self, option: Tensor, row: Tensor) -> Tensor:
        """``[B]``, differentiable: by how much the scores favour an option over the outcome; not above 0."""

    @property
    @abstractmethod
    def num_options(self) -> int:
        """``L``"""

    @abstractmethod
    def is_same_as(self, earlier: Decision) -> bool:
        """Does this operation decide nothing that ``earlier`` has not decided already?"""

    def single_options(self, option: Tensor, row: Tensor, leader: Decision | None = None) -> Tensor:
        """``[B, *outcome]``: outcomes that differ by one decision alone, option ``option[b]`` in row ``row[b]``."""
        outcomes = self.outcome.unsqueeze(0).repeat(len(row), *(1 for _ in self.outcome.shape))
        each = torch.arange(len(row), device=row.device)
        by_row = outcomes.view(len(row), self.rows.numel(), *self.outcome.shape[len(self.rows) :])
        by_row[each, row] = self.change(option, row, leader)
        return outcomes


@dataclass(eq=False)
class Threshold(Decision):
    """``comparisons`` above 0 put a unit on the upper side."""

    lower: Tensor | None = None
    """Outcome on the lower side, if that is not False; ``upper``: if that is not True."""
    upper: Tensor | None = None

    @property
    def rows(self) -> torch.Size:
        return self.outcome.shape

    def is_upper(self) -> Tensor:
        return self.outcome if self.upper is None else self.outcome == self.upper

    def options(self, leader: Decision | None = None) -> Tensor:
        if self.lower is None or self.upper is None:
            return ~self.outcome.unsqueeze(0)
        return self.lower.where(self.is_upper(), self.upper).unsqueeze(0)

    def change(self, option: Tensor, row: Tensor, leader: Decision | None = None) -> Tensor:
        return self.options()[0].flatten()[row]

    def margin(self, option: Tensor, row: Tensor) -> Tensor:
        toward_upper = self.comparisons.reshape(-1)[row]
        return torch.where(self.is_upper().flatten()[row], -toward_upper, toward_upper)

    @property
    def num_options(self) -> int:
        return 1

    def is_same_as(self, earlier: Decision) -> bool:
        # `s > 0` and later `s <= 0` are one decision, written twice
        return isinstance(earlier, Threshold) and (
            _are_equal(self.comparisons, earlier.comparisons) or _are_equal(self.comparisons, -earlier.comparisons)
        )


@dataclass(eq=False)
class Choice(Decision):
    """``comparisons [*rows, P]``, the largest is chosen; ``outcome [*rows]`` is its index."""

    @property
    def rows(self) -> torch.Size:
        return self.outcome.shape

    def options(self, leader: Decision | None = None) -> Tensor:
        every = torch.arange(self.comparisons.shape[-1], device=self.outcome.device)
        return every.view(-1, *(1 for _ in self.rows)).expand(-1, *self.rows)

    def change(self, option: Tensor, row: Tensor, leader: Decision | None = None) -> Tensor:
        return option

    def margin(self, option: Tensor, row: Tensor) -> Tensor:
        scores = self.comparisons.reshape(-1, self.comparisons.shape[-1])
        return scores[row, option] - scores[row, self.outcome.flatten()[row]]

    @property
    def num_options(self) -> int:
        return self.comparisons.shape[-1]

    def is_same_as(self, earlier: Decision) -> bool:
        return isinstance(earlier, Choice) and _are_equal(self.comparisons, earlier.comparisons)


@dataclass(eq=False)
class Order(Decision):
    """``comparisons [*rows, D]`` of the items, the largest goes first; ``outcome [*rows, D]``: items by position.

    An option swaps what is at two positions.
    """

    num_seen: int = 0
    """How many of the first positions the metric sees."""

    @property
    def rows(self) -> torch.Size:
        return self.outcome.shape[:-1]

    @property
    def swaps(self) -> Swaps:
        return Swaps.of_row(self.outcome.shape[-1], self.num_seen, self.outcome.device)

    @property
    def num_options(self) -> int:
        return len(self.swaps)

    def options(self, leader: Decision | None = None) -> Tensor:
        positions = (leader or self).outcome
        upper, lower = self.swaps[torch.arange(self.num_options, device=positions.device)]
        first, second = (positions[..., index].movedim(-1, 0).unsqueeze(-1) for index in (upper, lower))
        return _exchange(self.outcome, first, second)

    def change(self, option: Tensor, row: Tensor, leader: Decision | None = None) -> Tensor:
        length = self.outcome.shape[-1]
        positions = (leader or self).outcome.reshape(-1, length)[row]
        first, second = (positions.gather(-1, index.unsqueeze(-1)) for index in self.swaps[option])
        return _exchange(self.outcome.reshape(-1, length)[row], first, second)

    def margin(self, option: Tensor, row: Tensor) -> Tensor:
        scores = self.sorted_comparisons().reshape(-1, self.outcome.shape[-1])
        upper, lower = self.swaps[option]
        return scores[row, lower] - scores[row, upper]

    def sorted_comparisons(self) -> Tensor:
        return self.comparisons.gather(-1, self.outcome)

    def num_meant(self, option: Tensor) -> Tensor:
        return self.swaps.num_meant[torch.searchsorted(self.swaps.ends, option, right=True)]

    def is_same_as(self, earlier: Decision) -> bool:
        return (
            isinstance(earlier, Order)
            and self.num_seen == earlier.num_seen
            and (
                _are_equal(self.comparisons, earlier.comparisons) or _are_equal(self.comparisons, -earlier.comparisons)
            )
        )


@dataclass(frozen=True)
class Swaps:
    """Pairs of positions of a row, numbered without being listed: a million items have thirty million of them."""

    distances: Tensor
    """``[K]``, each for a run of pairs ``(0, d), (1, d + 1), ...``"""
    num_meant: Tensor
    """``[K]``: how many distances, from this one on, it stands for."""
    ends: Tensor
    """``[K]``: number of the pair behind the last one of each run."""

    @classmethod
    @functools.lru_cache(maxsize=16)
    def of_row(cls, length: int, num_seen: int, device: torch.device) -> Swaps:
        """All pairs of a short row; of a long one those at growing distances.

        Two positions behind the first ``num_seen`` are no pair: nobody sees them change.
        """
        distances = [1] if length > 1 else []
        while distances and distances[-1] < length:
            growth = 1 if length <= MAX_LENGTH_OF_ALL_PAIRS else int(distances[-1] * (DISTANCE_GROWTH - 1))
            distances.append(min(distances[-1] + max(growth, 1), length))
        each = torch.tensor(distances, dtype=torch.long, device=device)
        return cls(each[:-1], each.diff(), (length - each[:-1]).clamp(max=num_seen).cumsum(0))

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def __getitem__(self, number: Tensor) -> tuple[Tensor, Tensor]:
        """Positions of pairs, the upper one first."""
        run = torch.searchsorted(self.ends, number, right=True)
        start = torch.cat((self.ends.new_zeros(1), self.ends))[run]
        return number - start, number - start + self.distances[run]


def _exchange(order: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """The same order with two items in each other's place."""
    return second.where(order == first, first.where(order == second, order))


def _are_equal(left: Tensor, right: Tensor) -> bool:
    return left is right or (left.shape == right.shape and torch.equal(left, right))
