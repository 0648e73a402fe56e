"""Lightning: what a model predicts on its way, stored for :func:`lossmith.learn` and ``lossmith align``.

A loss needs no adapter. Kept as an attribute of the ``LightningModule`` it moves to its device and its state travels in
checkpoints; :class:`~lossmith.integrations.torchmetrics.SetMetric` is for ``self.log``.

    class Model(LightningModule):
        def validation_step(self, batch, index):
            inputs, targets = batch
            return {"outputs": self(inputs), "targets": targets}

    Trainer(callbacks=[StorePredictions("p.safetensors", kind="multiclass")])
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from lossmith.distributed import gather_set
from lossmith.predictions import load_predictions, save_predictions
from lossmith.vocabulary import Kind, Predictions, check_predictions, parse_kind


class StorePredictions(Callback):
    """Each run of the validation adds one set to the file, with the number of its training step beside it.

    ``validation_step`` returns a mapping with ``outputs`` (raw scores) and ``targets``; of several loaders the first
    counts. A run that goes on from a checkpoint goes on with the file as it was then.
    """

    def __init__(self, path: str | os.PathLike[str], *, kind: Kind | str) -> None:
        self.path = Path(path)
        self.kind = parse_kind(kind)
        self._steps: list[int] = []
        self._sets: list[tuple[Tensor, Tensor]] = []
        self._batches: list[tuple[Tensor, Tensor]] = []

    def state_dict(self) -> dict[str, Any]:
        return {"steps": list(self._steps)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._steps = list(state_dict["steps"])
        if self._steps:
            stored = load_predictions(self.path, kind=self.kind)[: len(self._steps)]
            self._sets = list(zip(stored.outputs, stored.targets))

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._batches = []

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Tensor | Mapping[str, Any] | None,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if dataloader_idx:
            return
        if not isinstance(outputs, Mapping) or not {"outputs", "targets"} <= outputs.keys():
            raise ValueError(
                f"StorePredictions: validation_step returned {type(outputs).__name__}; "
                'a dict with "outputs" (raw scores) and "targets" works.'
            )
        self._batches.append((outputs["outputs"].detach(), outputs["targets"]))

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.sanity_checking or not self._batches:
            return
        outputs, targets = gather_set(*(torch.cat(each) for each in zip(*self._batches)))
        self._batches = []
        outputs, targets = outputs.cpu(), targets.cpu()
        check_predictions(self.kind, outputs, targets)
        self._steps.append(trainer.global_step)
        self._sets.append((outputs, targets))
        if trainer.is_global_zero:
            stack = Predictions(*(torch.stack(each) for each in zip(*self._sets)))
            save_predictions(self.path, stack, step=torch.tensor(self._steps))
