"""A quick task that every loop of the tests learns: is it a nine?"""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor


def nines() -> tuple[Tensor, Tensor]:
    """``[400, 64]`` pixels and ``[400]`` targets."""
    inputs, digits = load_digits(return_X_y=True)
    return torch.tensor(inputs[:400] / 16, dtype=torch.float32), torch.tensor(digits[:400] == 9).long()
