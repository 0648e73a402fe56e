"""Two convolutions and a dense layer: enough for 99 % on MNIST in one epoch or two."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lossmith.lab.models.scores import Scores


class SmallCnn(nn.Module):
    """``[N, channels, height, width] -> [N, num_outputs]``; height and width are multiples of 4."""

    def __init__(self, input_shape: torch.Size, num_outputs: int) -> None:
        super().__init__()
        channels, height, width = input_shape
        self.layers = nn.Sequential(
            nn.Conv2d(channels, 16, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * (height // 4) * (width // 4), 64),
            nn.ReLU(),
            Scores(64, num_outputs),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layers(inputs)
        return outputs
