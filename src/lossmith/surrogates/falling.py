"""A function of one number that falls by construction, and is never sharper than allowed.

``phi(x) = sum a_i sigmoid(-x / T_i) - c x`` with positive heights, a positive slope, and widths of at least ``floor``.
The steps count errors, the slope keeps a gradient where every step is flat. Rank correlation cares for neither slope
nor scale, so nothing else keeps a learned loss fit to train with: without a floor it becomes a staircase.

Every step is at 0, where decisions change. Steps elsewhere would fit no worse, but a loss that divides margins by their
mean size also sees how they spread: of a set that is all wrong a step below 0 makes it rise while every row gets
better. This one is concave left of 0 and convex right of it, and there it falls.

>>> import torch
>>> phi = FallingMixture(floor=0.1)
>>> x = torch.linspace(-5, 5, 100)
>>> bool((phi(x).diff() < 0).all())
True
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# softplus(-4) = .02
FIRST_SLOPE = -4.0
WIDEST_AT_FIRST = 2.0


class FallingMixture(nn.Module):
    """17 numbers by default; maps any shape to the same shape, elementwise."""

    def __init__(self, *, floor: float, num_steps: int = 8, first_width: float | None = None) -> None:
        """``first_width`` starts all steps at one width; by default they start at many. One step has no slope."""
        super().__init__()
        if floor <= 0:
            raise ValueError(f"floor is {floor}; a positive width works (0.03 to 1), larger is smoother.")
        self.floor = floor
        # many widths from the start: a few hundred steps do not carry one over orders of magnitude
        widths = floor + WIDEST_AT_FIRST * torch.linspace(0, 1, num_steps).square()
        self.raw_widths = nn.Parameter(widths.log())
        if first_width is not None:
            nn.init.constant_(self.raw_widths, math.log(first_width))
        self.raw_heights = nn.Parameter(torch.zeros(num_steps))
        self.raw_slope = nn.Parameter(torch.tensor(FIRST_SLOPE)) if num_steps > 1 else None

    def forward(self, x: Tensor) -> Tensor:
        heights = F.softplus(self.raw_heights)
        widths = self.floor + self.raw_widths.exp()
        values = torch.sigmoid(-x.unsqueeze(-1) / widths) @ heights
        if self.raw_slope is not None:
            values = values - F.softplus(self.raw_slope) * x
        # a prediction that is just undecided costs 1, whatever the optimiser did to the scale
        return values / (heights.sum() / 2)
