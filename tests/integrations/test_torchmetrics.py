from __future__ import annotations

import pickle

import pytest
import torch

from lossmith.integrations.torchmetrics import SetMetric
from lossmith.metrics import METRICS
from tests.metrics.samples import sample


@pytest.mark.parametrize("name", ["ap", "accuracy", "miou", "bleu"])
def test_is_the_metric_of_all_batches_together(name: str, generator: torch.Generator) -> None:
    metric = METRICS[name]
    outputs, targets = (each[0] for each in sample(metric.kind, num_sets=1, set_size=60, generator=generator))
    whole = SetMetric(metric)
    assert whole.higher_is_better
    for _ in range(2):  # reset() forgets everything
        for batch in zip(outputs.split(17), targets.split(17)):
            whole.update(*batch)
        torch.testing.assert_close(whole.compute(), metric(outputs, targets))
        whole.reset()


def test_of_one_batch_by_a_call(generator: torch.Generator) -> None:
    outputs, targets = sample(METRICS["auc"].kind, num_sets=2, generator=generator)
    whole = SetMetric(METRICS["auc"])
    for batch in zip(outputs, targets):
        assert whole(*batch) == METRICS["auc"](*batch)
    assert whole.compute() == METRICS["auc"](outputs.flatten(), targets.flatten())
    assert pickle.loads(pickle.dumps(whole)).compute() == whole.compute()


def test_direction() -> None:
    assert not SetMetric(METRICS["eer"]).higher_is_better


@pytest.mark.filterwarnings("ignore:The ``compute`` method of metric SetMetric was called before")
def test_nothing_seen() -> None:
    with pytest.raises(ValueError, match=r"f1 has seen no predictions: update\(outputs, targets\) comes first"):
        SetMetric(METRICS["f1"]).compute()
