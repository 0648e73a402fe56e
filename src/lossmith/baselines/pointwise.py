"""A pointwise loss is a term for each prediction, averaged over the predictions that are not left out.

The kinds fall in two families. In ``binary`` and ``multilabel`` a score stands for itself; in ``multiclass``,
``segmentation``, ``tokens`` and ``span`` the scores of the classes (or of the positions) compete. A pointwise loss is a
formula for each family; shapes, padding and precision are handled here.

>>> import torch
>>> def distance(scores, targets):
...     return (scores - targets).abs()
>>> loss = Pointwise(Kind.BINARY, score_term=distance, class_term=distance)
>>> loss(torch.tensor([0.5, 3.0, 9.0]), torch.tensor([1, 1, -100]))
tensor(1.2500)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lossmith.vocabulary import CLASS_DIM, IGNORE_INDEX, Kind

Term = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Pointwise:
    """A loss: one set of ``kind`` -> scalar, the mean of a term.

    ``score_term(scores [...], targets [...] 0 or 1) -> [...]`` serves the first family, ``class_term(scores [..., C],
    targets [...]) -> [...]`` the second.
    """

    kind: Kind
    score_term: Term
    class_term: Term

    def __post_init__(self) -> None:
        if self.kind not in CLASS_DIM:
            names = ", ".join(CLASS_DIM)
            raise ValueError(f"a pointwise loss cannot read {self.kind} predictions; {names} work.")

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        # half precision would lose a small term in the sum of many
        scores = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        is_kept = targets != IGNORE_INDEX
        known = targets.masked_fill(~is_kept, 0)
        class_dim = CLASS_DIM[self.kind]
        if class_dim is None:
            terms = self.score_term(scores, known.to(scores.dtype))
        else:
            terms = self.class_term(scores.movedim(class_dim, -1), known.long())
        # nothing kept: zero over one, a zero that keeps the graph
        return (terms.masked_fill(~is_kept, 0).sum() / is_kept.sum().clamp(min=1)).to(outputs.dtype)
