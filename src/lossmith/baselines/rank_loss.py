"""How many classes lie above the true one, softly (Blondel et al. 2020; ReLoss's table 14, its eq. 11).

>>> import torch
>>> loss = rank_loss(Kind.MULTICLASS, temperature=0.001)
>>> loss(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([1]))  # two of the three are above
tensor(2.)
"""

from __future__ import annotations

from functools import partial

from torch import Tensor

from lossmith.baselines.pointwise import Pointwise
from lossmith.ranking import soft_rank
from lossmith.vocabulary import CLASS_DIM, Kind, Loss


def rank_loss(kind: Kind, *, temperature: float = 0.1) -> Loss:
    """Mean over rows of the number of classes minus the soft rank of the true one."""
    if CLASS_DIM.get(kind) is None:
        names = ", ".join(name for name, dim in CLASS_DIM.items() if dim is not None)
        raise ValueError(f"the rank loss needs classes to rank, and {kind} predictions have none; {names} work.")
    term = partial(_class_term, temperature=temperature)
    return Pointwise(kind, term, term)


def _class_term(scores: Tensor, targets: Tensor, *, temperature: float) -> Tensor:
    rank = soft_rank(scores, temperature=temperature).gather(-1, targets[..., None])[..., 0]
    return scores.shape[-1] - rank
