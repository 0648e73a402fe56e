"""The last layer of every model of the lab.

>>> import torch
>>> Scores(4, 3)(torch.zeros(5, 4)).shape, Scores(4, 1)(torch.zeros(5, 4)).shape
(torch.Size([5, 3]), torch.Size([5]))
"""

from __future__ import annotations

from torch import Tensor, nn


class Scores(nn.Linear):
    """A dense layer; a single output is ``[N]``, as binary predictions are everywhere."""

    def __init__(self, num_features: int, num_outputs: int) -> None:
        super().__init__(num_features, num_outputs)

    def forward(self, input: Tensor) -> Tensor:
        outputs = super().forward(input)
        return outputs.squeeze(-1) if self.out_features == 1 else outputs
