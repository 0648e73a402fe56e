from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

import lossmith
from lossmith.baselines import find_loss
from lossmith.metrics import METRICS
from tests.integrations.digits import nines

skorch = pytest.importorskip("skorch")
from lossmith.integrations.skorch import criterion, epoch_scoring  # noqa: E402 (after the skip)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scores = nn.Linear(64, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.scores(inputs)


@pytest.mark.parametrize("name", ["function", "module"])
def test_trains_and_scores(name: str) -> None:
    cross_entropy = nn.functional.cross_entropy
    loss = cross_entropy if name == "function" else lossmith.combine(cross_entropy, find_loss("brier", "multiclass"))
    torch.manual_seed(0)
    net = skorch.NeuralNetClassifier(
        Network,
        criterion=criterion(loss),
        predict_nonlinearity=nn.Softmax(-1),
        optimizer=torch.optim.Adam,
        lr=0.05,
        max_epochs=8,
        batch_size=32,
        callbacks=[epoch_scoring(METRICS["ap_ovr"]), epoch_scoring(METRICS["ap_ovr"], on_train=True)],
        verbose=0,
    )
    net = clone(net)
    inputs, targets = (each.numpy() for each in nines())
    net.fit(inputs, targets)
    values = net.history[:, "ap_ovr"]
    assert values[-1] > 0.9  # chance is 0.5
    assert net.history[-1, "train_ap_ovr"] > 0.9
    np.testing.assert_allclose(net.predict_proba(inputs).sum(-1), 1, rtol=1e-5)
    # of the whole validation part at once
    _, valid = net.get_split_datasets(inputs, targets)
    rows = list(valid.indices)
    expected = METRICS["ap_ovr"](net.forward(inputs[rows]), torch.tensor(targets[rows]))
    assert values[-1] == pytest.approx(float(expected))


def test_direction() -> None:
    assert not epoch_scoring(METRICS["auc"]).lower_is_better
    assert epoch_scoring(METRICS["eer"]).lower_is_better
