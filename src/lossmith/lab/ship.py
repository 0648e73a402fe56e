"""The losses of the wheel, each learned again by one command: ``python -m lossmith.lab.ship accuracy``.

They learn from rows that their networks did not train on: of rows that a network has seen it makes no errors any more,
and there is nothing to learn from a metric that does not vary. The cards add how well each loss does on sources that
taught it nothing.

>>> sorted(PLANS)
['accuracy', 'ap', 'auc', 'balanced_accuracy', 'f1', 'f1_macro', 'jaccard', 'mcc', 'top5_accuracy']
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from lossmith.cards import UNSEEN, Card, measure
from lossmith.lab.checkpoints import CheckpointRun, checkpoint_steps, collect_checkpoints
from lossmith.lab.datasets import find_dataset
from lossmith.lab.recipes import recipe_for
from lossmith.methods.reloss import ReLoss, learn
from lossmith.metrics import find_metric
from lossmith.predictions import draw_sets
from lossmith.surrogates import CountsNetwork, PairLoss, RankLoss, Surrogate, margin_loss
from lossmith.vocabulary import Metric, Predictions
from lossmith.weights import SHIPPED_FOLDER, SUFFIX, save

RUNS_FOLDER = Path.home() / ".cache" / "lossmith-runs"
TABLES_TO_LEARN_FROM = ("phoneme", "credit_default", "a9a", "ijcnn1")
OTHER_TABLES = ("mammography", "bank_marketing", "ccfraud_sample", "magic_telescope")


@dataclass(frozen=True)
class Plan:
    """What a shipped loss is made of."""

    surrogate: Callable[[], Surrogate]
    sources: tuple[str, ...]
    other_sources: tuple[str, ...]
    """Never seen in learning: the card says how the loss does there."""
    num_classes: tuple[int, ...] = ()
    num_real_sets: int = 2048
    within: float = 0.5

    def learn(
        self, metric: Metric, predictions: Mapping[str, Predictions], *, seed: int, num_steps: int = 400, progress: bool
    ) -> ReLoss:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            surrogate = self.surrogate()
        return learn(
            metric,
            predictions,
            surrogate=surrogate,
            num_steps=num_steps,
            seed=seed,
            progress=progress,
            within=self.within,
            num_real_sets=self.num_real_sets,
            num_classes=self.num_classes,
        )


BINARY = Plan(
    lambda: CountsNetwork("binary", hidden=32, floor=0.002), TABLES_TO_LEARN_FROM, OTHER_TABLES, num_real_sets=4096
)

PLANS: dict[str, Plan] = {
    "accuracy": Plan(
        lambda: margin_loss("multiclass"), ("digits",), ("mnist", "covtype", "omniglot"), (2, 3, 5, 10, 30, 100, 300)
    ),
    "top5_accuracy": Plan(
        lambda: margin_loss("multiclass", top=5), ("digits",), ("mnist", "covtype", "omniglot"), (7, 10, 30, 100, 300)
    ),
    "f1_macro": Plan(lambda: CountsNetwork("multiclass"), ("digits",), ("mnist", "covtype"), (3, 5, 10, 20, 50)),
    "f1": BINARY,
    "jaccard": BINARY,
    "mcc": BINARY,
    "balanced_accuracy": BINARY,
    # a pair in the wrong order counts as much in any checkpoint
    "auc": replace(BINARY, surrogate=lambda: PairLoss("binary"), num_real_sets=2048, within=0.0),
    "ap": replace(BINARY, surrogate=lambda: RankLoss("binary"), num_real_sets=2048),
}


def held_out_predictions(
    name: str, *, folder: Path = RUNS_FOLDER, num_seeds: int = 3, num_rows: int = 2000
) -> Predictions:
    """Checkpoints of a network on rows that it does not train on, without a mark: other networks are the test."""
    run = CheckpointRun(find_dataset(name).load(None), recipe_for(name), folder / name, num_seeds, num_rows)
    for _ in checkpoint_steps(run):
        pass
    stored = collect_checkpoints(run).predictions
    assert stored.is_held_out is not None
    return Predictions(stored.outputs[stored.is_held_out], stored.targets[stored.is_held_out])


def make(metric_name: str, *, seed: int = 0, folder: Path = RUNS_FOLDER, progress: bool = True) -> ReLoss:
    """Learn the loss and measure it on other sources."""
    plan, metric = PLANS[metric_name], find_metric(metric_name)
    taught = {name: held_out_predictions(name, folder=folder) for name in plan.sources}
    loss = plan.learn(metric, taught, seed=seed, progress=progress)
    elsewhere = {}
    for name in plan.other_sources:
        sets = draw_sets(
            held_out_predictions(name, folder=folder),
            num_sets=500,
            set_size=128,
            generator=torch.Generator().manual_seed(seed),
        )
        elsewhere[f"{name}{UNSEEN}"] = measure(loss.surrogate, metric, sets, seed=seed)
    card: Card = replace(loss.card, measured={**loss.card.measured, **elsewhere})
    card.check()
    return ReLoss(loss.surrogate, card, scale=loss.scale)


def main(names: list[str]) -> None:
    for name in names or PLANS:
        loss = make(name)
        save(loss, SHIPPED_FOLDER / f"{name}{SUFFIX}")
        for where, measured in loss.card.measured.items():
            print(f"{name}: {where}: Spearman {measured.spearman} (cross-entropy {measured.base_spearman})", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
