"""Cross-entropy, plain and with smoothed labels: the loss that everything else is compared with.

>>> import torch
>>> loss = cross_entropy(Kind.MULTICLASS)
>>> loss(torch.tensor([[2.0, 0.0], [0.0, 0.0], [5.0, 1.0]]), torch.tensor([0, 1, -100]))
tensor(0.4100)
"""

from __future__ import annotations

from functools import partial

import torch.nn.functional as F
from torch import Tensor

from lossmith.baselines.pointwise import Pointwise
from lossmith.vocabulary import Kind, Loss


def cross_entropy(kind: Kind, *, smoothing: float = 0.0) -> Loss:
    """Mean of ``-log q(target)``, with the sigmoid of a score or the softmax of the classes as ``q``.

    ``smoothing`` moves that share of each label to all classes alike (Szegedy et al. 2016, section 7).
    """
    if not 0 <= smoothing < 1:
        raise ValueError(f"smoothing={smoothing} came; 0 up to, but not including, 1 works.")
    return Pointwise(kind, partial(_score_term, smoothing=smoothing), partial(_class_term, smoothing=smoothing))


def label_smoothing(kind: Kind) -> Loss:
    """Cross-entropy with a tenth of each label moved to all classes alike."""
    return cross_entropy(kind, smoothing=0.1)


def _score_term(scores: Tensor, targets: Tensor, *, smoothing: float) -> Tensor:
    targets = targets * (1 - smoothing) + smoothing / 2
    return F.binary_cross_entropy_with_logits(scores, targets, reduction="none")


def _class_term(scores: Tensor, targets: Tensor, *, smoothing: float) -> Tensor:
    log_q = scores.log_softmax(-1)
    hit = log_q.gather(-1, targets[..., None])[..., 0]
    return -(1 - smoothing) * hit - smoothing * log_q.mean(-1)
