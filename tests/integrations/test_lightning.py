from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import lossmith
from lossmith.baselines import find_loss
from lossmith.metrics import METRICS
from lossmith.predictions import load_predictions
from tests.integrations.digits import nines

pytest.importorskip("lightning")
from lightning.pytorch import LightningModule, Trainer

from lossmith.integrations.lightning import StorePredictions
from lossmith.integrations.torchmetrics import SetMetric

# what it warns of is our small task: no workers, no logger, a folder that is not empty
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


class Nines(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(64, 1), nn.Flatten(0))
        self.loss = lossmith.combine(find_loss("ce", "binary"), find_loss("pairwise", "binary"), warmup_steps=3)
        self.ap = SetMetric(METRICS["ap"])

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        inputs, targets = batch
        return self.loss(self.model(inputs), targets)

    def validation_step(self, batch: list[Tensor], index: int) -> dict[str, Tensor]:
        inputs, targets = batch
        outputs = self.model(inputs)
        self.ap.update(outputs, targets)
        self.log("ap", self.ap)
        return {"outputs": outputs, "targets": targets}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.model.parameters(), lr=0.02)


def fit(folder: Path, *, num_epochs: int, checkpoint: str | None = None) -> tuple[Nines, Trainer]:
    torch.manual_seed(0)
    module = Nines()
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=num_epochs,
        default_root_dir=folder,
        callbacks=[StorePredictions(folder / "p.npz", kind="binary")],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = DataLoader(TensorDataset(*nines()), batch_size=150)  # batches of 150, 150 and 100
    trainer.fit(module, loader, loader, ckpt_path=checkpoint)
    return module, trainer


def test_stores_logs_and_goes_on(tmp_path: Path) -> None:
    module, trainer = fit(tmp_path, num_epochs=2)
    stored = load_predictions(tmp_path / "p.npz", kind="binary")
    assert stored.outputs.shape == (2, 400)  # nothing of the check before training
    inputs, targets = nines()
    module.eval()
    with torch.no_grad():
        expected = module.model(inputs)
    torch.testing.assert_close(stored.outputs[-1], expected)
    assert torch.equal(stored.targets[-1], targets)
    assert trainer.callback_metrics["ap"] == METRICS["ap"](expected, targets)
    assert int(module.loss.num_steps) == 6

    trainer.save_checkpoint(tmp_path / "two.ckpt")
    fit(tmp_path, num_epochs=4)  # another run writes further than the checkpoint
    resumed, _ = fit(tmp_path, num_epochs=3, checkpoint=str(tmp_path / "two.ckpt"))
    assert int(resumed.loss.num_steps) == 9  # the warm-up does not begin again
    again = load_predictions(tmp_path / "p.npz", kind="binary")
    assert torch.equal(again.outputs[:2], stored.outputs)
    with np.load(tmp_path / "p.npz") as archive:
        assert archive["step"].tolist() == [3, 6, 9]


def test_a_step_that_returns_something_else(tmp_path: Path) -> None:
    callback = StorePredictions(tmp_path / "p.npz", kind="binary")
    with pytest.raises(ValueError, match='returned Tensor; a dict with "outputs"'):
        callback.on_validation_batch_end(Trainer(logger=False), Nines(), torch.zeros(1), None, 0)
