"""Metrics that are a mean over rows: what an option is worth depends on the target of its row, and on nothing else.

Accuracy is one, of classes, pixels or tokens. Once gains are known they make a table, and the next set needs no lanes:
a plain run says what was decided, and the table what everything is worth. Every single use is verified by the value of
the metric: it is the sum of the entries of what was decided, or the table does not hold for this set.

>>> from lossmith.tracing.decisions import Threshold
>>> scores, targets = torch.tensor([0.5, 2.0, -1.0, -2.0]), torch.tensor([1, 0, 1, 0])
>>> decision = Threshold("gt", scores, scores > 0)
>>> gains = torch.tensor([[-0.25, 0.25, 0.25, -0.25]])  # of the other side: accuracy is 1/2
>>> table = Table.of(decision, gains, targets, goodness=0.5)
>>> table.look_up(decision, targets, goodness=0.5)
tensor([[-0.2500,  0.2500,  0.2500, -0.2500]])
>>> table.look_up(decision, targets, goodness=0.75) is None
True
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lossmith.kinds import IGNORE_INDEX
from lossmith.tracing.decisions import Choice, Decision, Threshold

MAX_TARGET = 4096
TOLERANCE = 1e-5
# tables that failed in a row before no more are made
MAX_MISSES = 16


class Tables:
    """Of one metric, by the number of rows."""

    def __init__(self) -> None:
        self._tables: dict[int, Table] = {}
        self._num_misses = 0

    def has_one_for(self, targets: Tensor) -> bool:
        return targets.numel() in self._tables and self._num_misses < MAX_MISSES

    def look_up(self, decision: Decision, targets: Tensor, goodness: float) -> Tensor | None:
        found = self._tables[targets.numel()].look_up(decision, targets, goodness)
        if found is not None:
            self._num_misses = 0
        return found

    def learn(self, decision: Decision, gains: Tensor, targets: Tensor, goodness: float) -> None:
        """After a miss, or at first: a table of this set, and of earlier ones for targets that this set lacks."""
        if self._num_misses < MAX_MISSES:
            self._num_misses += 1
            table, known = Table.of(decision, gains, targets, goodness), self._tables.get(targets.numel())
            if table is not None:
                self._tables[targets.numel()] = table if known is None else table.joined(known)


@dataclass(frozen=True, eq=False)
class Table:
    """``worth [T, O]`` of outcome o for target ``t + IGNORE_INDEX``, 0 at least; NaN for targets that were not seen.

    ``base`` is the value if every row had its worst outcome.
    """

    worth: Tensor
    base: float
    num_rows: int

    @classmethod
    def of(cls, decision: Decision, gains: Tensor, targets: Tensor, goodness: float) -> Table | None:
        """From the gains ``[L, *rows]`` of one set; None where they depend on more than targets."""
        outcome, index = _outcome(decision), _index(decision, targets)
        if outcome is None or index is None:
            return None
        by_outcome = gains.reshape(len(gains), -1).T.double()
        if isinstance(decision, Threshold):  # its one option is the other side
            by_outcome = torch.zeros_like(by_outcome).expand(-1, 2).scatter(1, 1 - outcome.unsqueeze(1), by_outcome)
        by_outcome = by_outcome - by_outcome.amin(1, keepdim=True)
        worth = by_outcome.new_full((int(index.max()) + 1, by_outcome.shape[1]), torch.nan)
        worth[index] = by_outcome
        found = worth[index]
        if not torch.allclose(found, by_outcome, rtol=1e-3, atol=TOLERANCE * float(by_outcome.max())):
            return None
        base = goodness - float(found.gather(1, outcome.unsqueeze(1)).sum())
        return cls(worth.to(gains.dtype), base, len(index))

    def joined(self, earlier: Table) -> Table:
        worth = self.worth.new_full((max(len(self.worth), len(earlier.worth)), self.worth.shape[1]), torch.nan)
        worth[: len(earlier.worth)] = earlier.worth
        is_seen = ~self.worth.isnan()
        worth[: len(self.worth)][is_seen] = self.worth[is_seen]
        return Table(worth, self.base, self.num_rows)

    def look_up(self, decision: Decision, targets: Tensor, goodness: float) -> Tensor | None:
        """Gains ``[L, *rows]``; None where the table does not explain the value of this set."""
        outcome, index = _outcome(decision), _index(decision, targets)
        if outcome is None or index is None or len(index) != self.num_rows or int(index.max()) >= len(self.worth):
            return None
        by_outcome = self.worth[index]
        decided = by_outcome.gather(1, outcome.unsqueeze(1))
        expected = float(decided.sum()) + self.base  # NaN if there is a target that was not seen
        if not abs(expected - goodness) <= TOLERANCE * max(abs(goodness), 1):
            return None
        if isinstance(decision, Threshold):
            by_outcome = by_outcome.gather(1, 1 - outcome.unsqueeze(1)) - decided
        return by_outcome.T.reshape(-1, *decision.rows)


def _outcome(decision: Decision) -> Tensor | None:
    if isinstance(decision, Choice):
        return decision.outcome.flatten()
    if isinstance(decision, Threshold) and decision.upper is None:
        return decision.outcome.flatten().long()
    return None


def _index(decision: Decision, targets: Tensor) -> Tensor | None:
    if targets.is_floating_point() or targets.numel() != decision.rows.numel():
        return None
    low, high = targets.aminmax()
    if int(low) < IGNORE_INDEX or int(high) > MAX_TARGET:
        return None
    return targets.flatten().long() - IGNORE_INDEX
