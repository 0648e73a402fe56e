"""The models of the lab; a new one is a file here and a line in the table.

>>> import torch
>>> MODELS["linear"](torch.Size([8, 8]), 10)(torch.zeros(5, 8, 8)).shape
torch.Size([5, 10])
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from lossmith.lab.models.mlp import Mlp
from lossmith.lab.models.resnet import CifarResNet
from lossmith.lab.models.small_cnn import SmallCnn

__all__ = ["MODELS", "CifarResNet", "Mlp", "SmallCnn"]

# (shape of one row of inputs, number of outputs) -> a new model
MODELS: dict[str, Callable[[torch.Size, int], nn.Module]] = {
    "linear": partial(Mlp, widths=()),
    "mlp": Mlp,
    "mlp_500_300": partial(Mlp, widths=(500, 300)),
    "small_cnn": SmallCnn,
    "resnet20": partial(CifarResNet, depth=20),
    "resnet32": partial(CifarResNet, depth=32),
    "resnet56": partial(CifarResNet, depth=56),
}
