"""The residual networks for CIFAR of He et al. 2015, section 4.2: three stages of 16, 32, 64 channels.

>>> sum(weights.numel() for weights in CifarResNet(torch.Size([3, 32, 32]), 10, depth=20).parameters())
269722
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lossmith.lab.models.scores import Scores


class CifarResNet(nn.Module):
    """``[N, channels, height, width] -> [N, num_outputs]``; ``depth`` is 6n + 2: 20, 32, 44, 56, 110."""

    def __init__(self, input_shape: torch.Size, num_outputs: int, *, depth: int) -> None:
        super().__init__()
        if depth < 8 or depth % 6 != 2:
            raise ValueError(f"depth is {depth}; 6n + 2 works: 20, 32, 44, 56, 110.")
        channels = [width for width in (16, 32, 64) for _ in range((depth - 2) // 6)]
        self.stem = nn.Conv2d(input_shape[0], 16, 3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(16)
        self.blocks = nn.Sequential(*(Block(*pair) for pair in zip([16, *channels], channels)))
        self.scores = Scores(64, num_outputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.blocks(F.relu(self.stem_norm(self.stem(inputs))))
        outputs: Tensor = self.scores(hidden.mean((2, 3)))
        return outputs


class Block(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut; where the channels double, the image is halved."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.stride = out_channels // in_channels
        self.new_channels = out_channels - in_channels
        self.first = nn.Conv2d(in_channels, out_channels, 3, stride=self.stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(out_channels)
        self.second = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(out_channels)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = F.relu(self.first_norm(self.first(inputs)))
        return F.relu(self.second_norm(self.second(hidden)) + self._shortcut(inputs))

    def _shortcut(self, inputs: Tensor) -> Tensor:
        """The paper's option A: no weights, every other pixel, zeros for the new channels."""
        if not self.new_channels:
            return inputs
        return F.pad(inputs[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.new_channels))
