"""A metric of the whole evaluation set, filled batch by batch: what ``self.log`` of Lightning and plain loops want.

F1, AP or BLEU of a set is not the mean over its batches. The metric keeps all outputs and targets, of all processes
where there are several, and is computed once.

>>> import torch
>>> from lossmith.metrics import METRICS
>>> f1 = SetMetric(METRICS["f1"])
>>> f1.update(torch.tensor([2.0, -1.0]), torch.tensor([1, 0]))
>>> f1.update(torch.tensor([1.0, -3.0]), torch.tensor([0, 0]))
>>> f1.compute()
tensor(0.6667)
"""

from __future__ import annotations

from torch import Tensor
from torchmetrics import Metric as TorchMetric
from torchmetrics.utilities import dim_zero_cat

from lossmith.vocabulary import Metric


class SetMetric(TorchMetric):
    """``metric`` of everything since the last ``reset()``; NaN where it is not defined."""

    full_state_update = False
    is_differentiable = False
    outputs: list[Tensor]
    targets: list[Tensor]

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self.metric = metric
        for name in ("outputs", "targets"):
            self.add_state(name, [], dist_reduce_fx="cat")

    @property
    def higher_is_better(self) -> bool:  # type: ignore[override]
        return self.metric.higher_is_better

    def update(self, outputs: Tensor, targets: Tensor) -> None:
        self.outputs.append(outputs.detach())
        self.targets.append(targets)

    def compute(self) -> Tensor:
        if not len(self.outputs):
            raise ValueError(f"{self.metric.name} has seen no predictions: update(outputs, targets) comes first.")
        return self.metric(dim_zero_cat(self.outputs), dim_zero_cat(self.targets))
