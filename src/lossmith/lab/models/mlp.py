"""A plain network of dense layers, for tables and small images."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lossmith.lab.models.scores import Scores


class Mlp(nn.Module):
    """``[N, ...] -> [N, num_outputs]`` (``[N]`` for one output); rows are flattened. No widths: a linear model."""

    def __init__(self, input_shape: torch.Size, num_outputs: int, *, widths: Sequence[int] = (64, 64)) -> None:
        super().__init__()
        sizes = [input_shape.numel(), *widths]
        hidden = [layer for size, next_size in zip(sizes, widths) for layer in (nn.Linear(size, next_size), nn.ReLU())]
        self.layers = nn.Sequential(nn.Flatten(), *hidden, Scores(sizes[-1], num_outputs))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.layers(inputs)
        return outputs
