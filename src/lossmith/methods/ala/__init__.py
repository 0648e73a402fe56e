"""Adaptive Loss Alignment (Huang et al. 2019): a controller moves a loss while models train, and learns which moves
make the metric better.

It needs no gradient of the metric, and any loss with parameters will do. ``adjustable`` and ``distances`` have the
losses, ``controller`` the policy, ``children`` what is trained, ``crew`` the processes, ``steering`` the loop.

>>> import torch
>>> from lossmith.metrics import METRICS
>>> _ = torch.manual_seed(0)
>>> inputs = torch.randn(400, 2)
>>> targets = (inputs.sum(1) > 0).long() + (inputs[:, 0] > 1).long()
>>> model, loss = torch.nn.Linear(2, 3), ClassCorrelationLoss(3)
>>> optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
>>> child = Child(model, loss, optimizer, EpochBatches(inputs[:200], targets[:200], batch_size=20, seed=0))
>>> for step in adaptive_steps(
...     [child], ALA(loss), METRICS["accuracy"], (inputs[200:300], targets[200:300]), num_steps=60, interval=20,
...     selection=(inputs[300:], targets[300:]),
... ):
...     print(step.number, step.details["values"].shape)
20 torch.Size([1, 3])
40 torch.Size([1, 3])
60 torch.Size([1, 3])
>>> _ = model.load_state_dict(step.selected)
"""

from lossmith.methods.ala.adjustable import AdjustableLoss, ClassCorrelationLoss, ParametricLoss, weighted_losses
from lossmith.methods.ala.children import Child, EpochBatches
from lossmith.methods.ala.controller import ALA
from lossmith.methods.ala.distances import DistanceMixture, FocalWeighting
from lossmith.methods.ala.steering import AdaptiveStep, adaptive_steps

__all__ = [
    "ALA",
    "AdaptiveStep",
    "AdjustableLoss",
    "Child",
    "ClassCorrelationLoss",
    "DistanceMixture",
    "EpochBatches",
    "FocalWeighting",
    "ParametricLoss",
    "adaptive_steps",
    "weighted_losses",
]
