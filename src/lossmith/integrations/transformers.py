"""Hugging Face's ``Trainer``: its ``compute_loss_func`` and ``compute_metrics``, made of a loss and a metric.

    Trainer(
        model, arguments, train_dataset=..., eval_dataset=...,
        compute_loss_func=compute_loss_func(lossmith.load("accuracy")),
        compute_metrics=compute_metrics(METRICS["accuracy"]),
    )

Nothing here imports transformers.

>>> import torch
>>> from lossmith.metrics import METRICS
>>> compute_loss = compute_loss_func(torch.nn.CrossEntropyLoss())
>>> labels = torch.tensor([0, 1, -100])
>>> outputs = {"logits": torch.zeros(3, 2)}  # as a model gives them
>>> compute_loss(outputs, labels, num_items_in_batch=4)  # half of what the optimizer's step takes together
tensor(0.3466)
>>> compute_metrics(METRICS["accuracy"])((3 * torch.eye(2).numpy(), torch.tensor([0, 0]).numpy()))
{'accuracy': 0.5}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from lossmith.vocabulary import IGNORE_INDEX, Loss, Metric

Scores = Callable[[Any], Tensor]
"""From what a model (or an ``EvalPrediction``) gives, the raw scores."""


class ComputeLoss(Protocol):
    def __call__(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """As the ``Trainer`` calls it."""


def logits(outputs: Any) -> Tensor:
    """The ``logits`` of a model's output; a lone score for each example is a binary one, ``[N, 1]`` to ``[N]``."""
    if isinstance(outputs, Mapping):
        outputs = outputs["logits"]
    elif isinstance(outputs, tuple):
        outputs = outputs[0]
    scores = torch.as_tensor(outputs)
    return scores.squeeze(-1) if scores.shape[-1] == 1 else scores


def binary_logits(outputs: Any) -> Tensor:
    """The score of class 1 against class 0, for binary losses and metrics on a model with two labels."""
    scores = logits(outputs)
    if scores.dim() != 2 or scores.shape[-1] != 2:
        raise ValueError(f"logits have the shape {tuple(scores.shape)}; [N, 2] works.")
    return scores[:, 1] - scores[:, 0]


def compute_loss_func(loss: Loss, *, scores: Scores = logits, shifts_labels: bool = False) -> ComputeLoss:
    """``loss`` of each batch. With gradient accumulation a batch counts by its share of the labels of a step.

    That share is what ``num_items_in_batch`` is for: the ``Trainer`` does not divide a loss of one's own by the number
    of accumulated batches. A set stays one batch; the metric of a larger set takes a larger batch, not more of them.
    ``shifts_labels`` is for models that predict the next token.
    """

    def compute_loss(outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        if labels is None:
            raise ValueError('the batches have no "labels"; without targets there is no loss.')
        predicted = scores(outputs)
        if shifts_labels:
            predicted, labels = predicted[:, :-1], labels[:, 1:]
        value = loss(predicted, labels)
        if num_items_in_batch is None:
            return value
        return value * (labels != IGNORE_INDEX).sum() / num_items_in_batch

    return compute_loss


def compute_metrics(metric: Metric, *, scores: Scores = logits) -> Callable[[Any], dict[str, float]]:
    """``metric`` of the whole evaluation set, under its name: ``metric_for_best_model`` takes it."""

    def compute(prediction: Any) -> dict[str, float]:
        predicted, labels = prediction
        return {metric.name: float(metric(scores(predicted), torch.as_tensor(labels)))}

    return compute
