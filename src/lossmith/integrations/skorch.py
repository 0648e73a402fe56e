"""skorch: any loss as ``criterion``, and a metric of the whole validation part after each epoch.

    NeuralNetClassifier(
        Network,
        criterion=criterion(lossmith.load("accuracy")),
        predict_nonlinearity=torch.nn.Softmax(-1),
        callbacks=[epoch_scoring(METRICS["accuracy"])],
    )

skorch guesses from the type of the criterion how scores become probabilities; ours are raw scores, so say it.
"""

from __future__ import annotations

from typing import Any

import torch
from skorch.callbacks import EpochScoring
from torch import Tensor, nn

from lossmith.vocabulary import Loss, Metric


class _Criterion(nn.Module):
    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.loss(outputs, targets)


def criterion(loss: Loss) -> nn.Module:
    """A loss that is a module as it is; a function as a module, because skorch would take it for a class."""
    return loss if isinstance(loss, nn.Module) else _Criterion(loss)


def epoch_scoring(metric: Metric, *, on_train: bool = False) -> EpochScoring:
    """The callback that has ``metric`` in the table and the history of the net, under its name."""

    def score(net: Any, inputs: Any, targets: Any) -> float:
        return float(metric(net.forward(inputs), torch.as_tensor(targets)))

    return EpochScoring(
        score, lower_is_better=not metric.higher_is_better, on_train=on_train, name=("train_" * on_train) + metric.name
    )
