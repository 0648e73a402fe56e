"""How gains become a loss: what a decision is worth, times a link of how sure the scores are to take it the better way.

The link of the probability ``q`` of the better side is ``(1 - q^beta) / beta`` (Box and Cox 1964; for classification
the generalised cross-entropy of Zhang and Sabuncu 2018). At ``beta = 0`` it is ``-log q``, and the loss of accuracy is
cross-entropy; at ``beta = 1`` it is ``1 - q``, the expected loss if every decision were drawn by chance.

>>> scores = torch.tensor([[2.0, 0.0], [0.0, 0.5]])
>>> gains = torch.tensor([[1.0, 0.0], [0.0, 1.0]]) / 2  # each row has its right answer, worth half the accuracy
>>> choice_loss(scores, gains, beta=0.0), torch.nn.functional.cross_entropy(scores, torch.tensor([0, 1]))
(tensor(0.3005), tensor(0.3005))
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def link(log_q: Tensor, beta: float) -> Tensor:
    """From ``log q``, because ``q`` itself underflows."""
    return -log_q if beta == 0 else -torch.expm1(beta * log_q) / beta


def margin_loss(margins: Tensor, gains: Tensor, *, beta: float, num_meant: Tensor | None = None) -> Tensor:
    """Of options that stand against what happened: ``margins`` is how much the scores favour them, in temperatures.

    All of one shape. An option stands for ``num_meant`` of its like.
    """
    # what a metric has set to infinity never changes places: such a decision is sure, and costs nothing
    gains = gains.where(margins.isfinite(), 0)
    margins = margins.where(gains != 0, 0)
    losses = gains.abs() * link(F.logsigmoid(gains.sign() * margins), beta)
    return (losses if num_meant is None else losses * num_meant).sum()


def choice_loss(scores: Tensor, gains: Tensor, *, beta: float) -> Tensor:
    """``scores [*rows, P]`` in temperatures, ``gains [P, *rows]`` of choosing each: q is the share of the best gain
    that a draw from the softmax keeps.
    """
    gains = gains.movedim(0, -1)
    # an alternative that is masked out by -inf has a chance of 0; a very small number has it too, and a finite gradient
    limit = torch.finfo(scores.dtype).max / 4
    scores = scores.clamp(-limit, limit)
    worst, best = gains.amin(-1, keepdim=True), gains.amax(-1, keepdim=True)
    worth = best - worst
    share = ((gains - worst) / worth).where(worth > 0, 1.0)
    log_q = (F.log_softmax(scores, -1) + share.log()).logsumexp(-1)
    return (worth.squeeze(-1) * link(log_q, beta)).sum()
