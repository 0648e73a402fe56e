"""A function of one number that falls by construction, and is never sharper than allowed.

``phi(x) = sum a_i sigmoid((b_i - x) / T_i) + sum c_j softplus((d_j - x) / U_j)`` with positive heights and widths of at
least ``floor``. The steps count errors, the ramps keep a slope where every step is flat. Rank correlation cares for
neither slope nor scale, so nothing else keeps a learned loss fit to train with: without a floor it becomes a staircase.

>>> import torch
>>> phi = FallingMixture(floor=0.1)
>>> x = torch.linspace(-5, 5, 100)
>>> bool((phi(x).diff() < 0).all())
True
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# softplus(-4) = .02
RAMP = -4.0


class FallingMixture(nn.Module):
    """48 numbers by default; maps any shape to the same shape, elementwise."""

    def __init__(self, *, floor: float, num_steps: int = 8, num_ramps: int = 8, reach: float = 2.0) -> None:
        super().__init__()
        if floor <= 0:
            raise ValueError(f"floor is {floor}; a positive width works (0.03 to 1), larger is smoother.")
        self.floor = floor
        self.num_steps = num_steps
        # denser around 0, where decisions fall, and as sharp as the place is narrow: a blurred start stays blurred,
        # because a few hundred steps do not carry a width over orders of magnitude
        even = torch.cat([torch.linspace(-1, 1, num_steps), torch.linspace(-1, 1, num_ramps)])
        centres = even * even.abs()
        self.centres = nn.Parameter(reach * centres)
        self.raw_widths = nn.Parameter((floor + centres.abs()).log())
        # ramps start low: they are for slopes where every step is flat
        self.raw_heights = nn.Parameter(torch.cat([torch.zeros(num_steps), torch.full((num_ramps,), RAMP)]))

    def forward(self, x: Tensor) -> Tensor:
        heights = F.softplus(self.raw_heights)
        widths = self.floor + self.raw_widths.exp()
        depth = (self.centres - x.unsqueeze(-1)) / widths
        steps, ramps = depth.split([self.num_steps, depth.shape[-1] - self.num_steps], dim=-1)
        values = torch.sigmoid(steps) @ heights[: self.num_steps] + F.softplus(ramps) @ heights[self.num_steps :]
        return values / self._unit(heights, widths)

    def _unit(self, heights: Tensor, widths: Tensor) -> Tensor:
        """Value at 0: a prediction that is just undecided costs 1, whatever the optimiser did to the scale."""
        steps, ramps = (self.centres / widths).split([self.num_steps, len(widths) - self.num_steps])
        return torch.sigmoid(steps) @ heights[: self.num_steps] + F.softplus(ramps) @ heights[self.num_steps :]
