"""Squared error against a Gaussian at each joint: how networks of human poses are trained (Xiao et al. 2018).

>>> import torch
>>> joints = torch.tensor([[[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]])  # at x=1 y=0, and one that is not visible
>>> gaussian_heatmaps(joints, height=1, width=3, sigma=1.0)[0, 0]
tensor([[0.6065, 1.0000, 0.6065]])
>>> heatmap_squared_error(Kind.HEATMAP, sigma=1.0)(torch.zeros(1, 2, 1, 3), joints)  # (2 / e + 1) / 3
tensor(0.5786)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lossmith.vocabulary import IGNORE_INDEX, Kind, Loss, parse_kind


@dataclass(frozen=True)
class HeatmapSquaredError:
    """A loss: the mean over visible joints of the mean over pixels of ``(output - Gaussian)²``."""

    sigma: float

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        heatmaps = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        is_visible = (targets[..., 2] > 0) & (targets != IGNORE_INDEX).all(-1)
        height, width = outputs.shape[-2:]
        wanted = gaussian_heatmaps(targets.to(heatmaps.dtype), height=height, width=width, sigma=self.sigma)
        of_joint = (heatmaps - wanted).square().mean((-2, -1))
        # no joint is visible: zero over one, a zero that keeps the graph
        return (of_joint.masked_fill(~is_visible, 0).sum() / is_visible.sum().clamp(min=1)).to(outputs.dtype)


def gaussian_heatmaps(joints: Tensor, *, height: int, width: int, sigma: float) -> Tensor:
    """``[..., 3 or 4]`` (x and y first) to ``[..., height, width]``: 1 at the joint, ``exp(-d² / 2 sigma²)`` beside."""
    x = torch.arange(width, device=joints.device, dtype=joints.dtype) - joints[..., 0:1]
    y = torch.arange(height, device=joints.device, dtype=joints.dtype) - joints[..., 1:2]
    squares = y.square().unsqueeze(-1) + x.square().unsqueeze(-2)
    return (squares / (-2 * sigma**2)).exp()


def heatmap_squared_error(kind: Kind | str, *, sigma: float = 2.0) -> Loss:
    """Squared error of heatmaps against a Gaussian at each visible joint, ``sigma`` in pixels of the heatmap."""
    if parse_kind(kind) is not Kind.HEATMAP:
        raise ValueError(f"Gaussians stand at joints; {kind} predictions came, heatmap predictions work.")
    if sigma <= 0:
        raise ValueError(f"sigma={sigma} came; more than 0 works.")
    return HeatmapSquaredError(sigma)
