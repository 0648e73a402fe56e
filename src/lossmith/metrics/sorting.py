"""The sort that every metric of an order begins with, and that is most of the time it takes.

>>> import torch
>>> ascending(torch.tensor([[3.0, 1.0, 2.0]]))
(tensor([[1., 2., 3.]]), tensor([[1, 2, 0]]))
>>> highest(torch.tensor([[3.0, 1.0, 2.0]]), 2)
(tensor([[3., 2.]]), tensor([[0, 2]]))
"""

from __future__ import annotations

import torch
from torch import Tensor

# up to this length numpy has sorted a whole row sooner than torch has found its first ten
MAX_SORTED_WHOLE = 512


def ascending(values: Tensor) -> tuple[Tensor, Tensor]:
    """``[..., N]`` sorted along the last dimension, and where each was; ties in any order, no gradient."""
    values = values.detach()
    if _is_for_numpy(values):
        try:
            # with the vector instructions of its processor numpy is ten times as fast as torch
            order = torch.from_numpy(values.numpy().argsort(-1))
        except RuntimeError:  # under torch.vmap nobody sees the numbers
            return values.sort(-1)
        return values.gather(-1, order), order
    return values.sort(-1)


def highest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The highest ``k`` of ``[..., N]`` from the highest on, and where each was; ties in any order, no gradient."""
    values, size = values.detach(), values.shape[-1]
    if size <= max(k, MAX_SORTED_WHOLE) and _is_for_numpy(values):
        ordered, order = ascending(values)
        return ordered.flip(-1)[..., :k], order.flip(-1)[..., :k]
    first, order = values.topk(k) if k < size else values.sort(-1, descending=True)
    return first, order


def _is_for_numpy(values: Tensor) -> bool:
    is_plain = type(values) is Tensor and not torch.compiler.is_compiling()  # not one that a traced loss watches
    return is_plain and values.device.type == "cpu" and values.dtype in (torch.float32, torch.float64)
