"""One run of an ALA experiment: some children, a loss that is steered or stays as it is, and the test at the end.

Every run, with or without a controller, goes through :func:`lossmith.methods.ala.adaptive_steps`: the same rows,
batches, schedule and checkpoints. A fixed loss is a warm-up that does not end. Children of the same seed start from the
same weights and see the same batches, so runs can be compared in pairs.

The training rows are split in three: most to train on, some for rewards, some to choose by. Labels are made wrong in
all three parts, as where nobody has clean ones; those of the test rows stay.

>>> from tempfile import TemporaryDirectory
>>> run = SteeredRun("digits", "mlp", "ala", num_epochs=2, interval=10)
>>> with TemporaryDirectory() as folder:
...     [round(share, 2) for share in steered_run_steps(run, Path(folder))]
[0.71, 1.0]
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import mean
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lossmith.baselines import find_loss
from lossmith.baselines.global_objectives import GlobalObjective
from lossmith.baselines.triplets import margin_loss, triplet_loss
from lossmith.lab.datasets import Dataset, find_dataset
from lossmith.lab.models import MODELS
from lossmith.lab.reproduce.experiment import Result, Unit
from lossmith.lab.reproduce.training_run import augmented
from lossmith.methods.ala import (
    ALA,
    AdjustableLoss,
    Child,
    ClassCorrelationLoss,
    DistanceMixture,
    EpochBatches,
    FocalWeighting,
    adaptive_steps,
)
from lossmith.methods.ala.adjustable import mean_log_loss
from lossmith.methods.ala.children import ROWS_AT_ONCE, load_tensors
from lossmith.methods.ala.steering import SELECTED_FILE
from lossmith.metrics import find_metric
from lossmith.ranking import spearman
from lossmith.training import predict
from lossmith.vocabulary import Kind, Loss, Metric

Corruption = Literal["clean", "noise", "imbalance"]
# wrong labels, drawn anew; of the rarest class, the share of rows that stays
NOISE, RAREST = 0.3, 0.05
EMBEDDING_SIZE = 64
# precisions at which Table 2's rival raises the recall
ANCHORS = [number / 11 for number in range(1, 11)]
# of a loss, that a result holds: those of 242 classes are 29,161
MAX_VALUES = 64


@dataclass(frozen=True)
class SteeredRun:
    """Plain values: they are kept beside the result, and say what it belongs to."""

    dataset: str
    model: str
    loss: str
    """A name of :data:`FIXED` or of :data:`STEERED`."""
    metric: str = "accuracy"
    reward: str = "metric"
    """What is rewarded, on which rows: ``metric`` or ``loss`` on validation rows, ``train_metric``, ``train_loss``."""
    corruption: Corruption = "clean"
    num_epochs: int = 15
    batch_size: int = 128
    learning_rate: float = 0.05
    weight_decay: float = 1e-4
    optimizer: Literal["sgd", "adam"] = "sgd"
    num_children: int = 1
    interval: int = 200
    num_evaluations: int = 4
    warmup: float = 0.1
    """Share of the steps before the first move."""
    policy: str | None = None
    """The name of another run of the experiment, whose policy is used."""
    is_learning: bool = True
    policy_learning_rate: float = 1e-3
    is_augmented: bool = False
    max_rows: int | None = None
    seed: int = 0

    def unit(self, name: str) -> Unit:
        return Unit(name, asdict(self), lambda folder: steered_run_steps(self, folder))


# ------------------------------------------------------------------------------------------------------------- losses


def random_matrix(outputs: Tensor, targets: Tensor) -> Tensor:
    """Table 1's control: the identity and 10 % noise, new in each step."""
    loss = ClassCorrelationLoss(outputs.shape[-1])
    loss.values.uniform_(-0.1, 0.1)
    value: Tensor = loss(outputs, targets)
    return value


def confusion_matrix(outputs: Tensor, targets: Tensor) -> Tensor:
    """Table 1's other control: confusion as the matrix. The paper leaves its sign and scale open; here the class that a
    class is most confused with, in the batch, is held apart by a tenth, and one that it is never confused with by none.
    """
    confusion = mean_log_loss(outputs.detach(), targets)
    nearness = 1 - confusion / confusion.amax(-1, keepdim=True)
    loss = ClassCorrelationLoss(outputs.shape[-1])
    loss.values.copy_(-0.1 * ((nearness + nearness.T) / 2)[loss.first, loss.second])
    value: Tensor = loss(outputs, targets)
    return value


def class_weighted(targets: Tensor, num_classes: int) -> Loss:
    """Cross-entropy with each class as heavy as any other."""
    counts = torch.bincount(targets, minlength=num_classes).clamp(min=1)
    return nn.CrossEntropyLoss(len(targets) / num_classes / counts)


class GlobalObjectives(nn.Module):
    """Table 2's rival: for each class against the others, the area under its curve as Eban et al. bound it."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.losses = nn.ModuleList(
            GlobalObjective(Kind.BINARY, constraint="precision", anchors=ANCHORS) for _ in range(num_classes)
        )

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        terms = [loss(outputs[:, label], (targets == label).long()) for label, loss in enumerate(self.losses)]
        return torch.stack(terms).mean()


class WithLoss(nn.Module):
    """A model with the weights of its loss: optimizer and checkpoints must have both."""

    def __init__(self, model: nn.Module, loss: nn.Module) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.model(inputs)
        return outputs


# by the name of a loss: what it is for these training rows
FIXED: dict[str, Callable[[Dataset], Loss]] = {
    "ce": lambda dataset: find_loss("ce", Kind.MULTICLASS),
    "label_smoothing": lambda dataset: find_loss("label_smoothing", Kind.MULTICLASS),
    "pairwise": lambda dataset: find_loss("pairwise", Kind.MULTICLASS),
    "smooth_ap": lambda dataset: find_loss("smooth_ap", Kind.MULTICLASS),
    "global_objectives": lambda dataset: GlobalObjectives(dataset.num_classes),
    "class_weights": lambda dataset: class_weighted(dataset.train_targets, dataset.num_classes),
    "random_matrix": lambda dataset: random_matrix,
    "confusion_matrix": lambda dataset: confusion_matrix,
    "triplet": lambda dataset: triplet_loss(Kind.EMBEDDING, sampling="distance_weighted"),
    "margin": lambda dataset: margin_loss(Kind.EMBEDDING),
    # eq. 9 and 10 where the paper begins, without a controller
    "mixture": lambda dataset: DistanceMixture(),
    "focal": lambda dataset: FocalWeighting(),
}
STEERED: dict[str, Callable[[int], AdjustableLoss]] = {
    "ala": lambda num_classes: ClassCorrelationLoss(num_classes),
    "ala_diagonal": lambda num_classes: ClassCorrelationLoss(num_classes, has_free_diagonal=True),
    "ala_sigmoid": lambda num_classes: ClassCorrelationLoss(num_classes, form="sigmoid"),
    "ala_robust": lambda num_classes: ClassCorrelationLoss(num_classes, form="bounded_sigmoid"),
    # section 4 to the letter
    "ala_paper": lambda num_classes: ClassCorrelationLoss(num_classes, form="sigmoid", bound=1.0, step_size=0.1),
    # steps too small to matter: what the sigmoid does without a controller
    "sigmoid": lambda num_classes: ClassCorrelationLoss(num_classes, form="sigmoid", step_size=1e-9),
    "ala_log_sigmoid": lambda num_classes: ClassCorrelationLoss(num_classes, form="log_sigmoid"),
    "triplet_ala": lambda num_classes: DistanceMixture("triplet"),
    "margin_ala": lambda num_classes: DistanceMixture("margin"),
    "focal_ala": lambda num_classes: FocalWeighting(),
}


# --------------------------------------------------------------------------------------------------------------- data


@dataclass(frozen=True)
class Parts:
    """Inputs and targets of the four parts; of embeddings, each part has classes of its own."""

    train: tuple[Tensor, Tensor]
    reward: tuple[Tensor, Tensor]
    selection: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


def split_rows(dataset: Dataset, corruption: Corruption) -> Parts:
    """A tenth of the training rows (or classes) for rewards, a tenth to choose by, the others to train on."""
    inputs, targets = corrupted(dataset, corruption)
    if dataset.kind is Kind.EMBEDDING:
        classes = targets.unique()
        place = torch.searchsorted(classes, targets) / len(classes)
    else:
        place = torch.arange(len(targets)) / len(targets)
    reward, selection, train = place < 0.1, (place >= 0.1) & (place < 0.2), place >= 0.2
    return Parts(
        (inputs[train], targets[train]),
        (inputs[reward], targets[reward]),
        (inputs[selection], targets[selection]),
        (dataset.test_inputs, dataset.test_targets),
    )


def corrupted(dataset: Dataset, corruption: Corruption) -> tuple[Tensor, Tensor]:
    """The training rows with 30 % of the labels drawn anew, or with classes that get rarer and rarer."""
    inputs, targets = dataset.train_inputs, dataset.train_targets
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(len(targets), generator=generator)
    if corruption == "noise":
        others = torch.randint(dataset.num_classes, targets.shape, generator=generator)
        return inputs, torch.where(drawn < NOISE, others, targets)
    if corruption == "imbalance":
        is_kept = drawn < RAREST ** (targets / (dataset.num_classes - 1))
        return inputs[is_kept], targets[is_kept]
    return inputs, targets


@dataclass(frozen=True)
class ClassBatches:
    """Some classes and some rows of each, as pairs of one identity are rare in batches drawn at random."""

    inputs: Tensor
    targets: Tensor
    num_classes: int
    rows_per_class: int
    seed: int

    def __call__(self, first_step: int) -> Iterator[tuple[Tensor, Tensor]]:
        members = [(self.targets == label).nonzero()[:, 0] for label in self.targets.unique()]
        step = first_step
        while True:
            generator = torch.Generator().manual_seed(1_000_003 * self.seed + step)
            drawn = [members[int(number)] for number in torch.randperm(len(members), generator=generator)]
            index = torch.cat(
                [
                    rows[torch.randperm(len(rows), generator=generator)[: self.rows_per_class]]
                    for rows in drawn[: self.num_classes]
                ]
            )
            yield self.inputs[index], self.targets[index]
            step += 1


def crop_and_mirror(images: Tensor, generator: torch.Generator) -> Tensor:
    ((changed, _),) = augmented([(images, torch.empty(0))], generator)
    return changed


# ------------------------------------------------------------------------------------------------------------ the run


def steered_run_steps(run: SteeredRun, folder: Path) -> Generator[float, None, Result]:
    """Share of the steps that is done; returns the tests of the last models and of the chosen one, and the curve."""
    dataset, parts = load_parts(run.dataset, run.max_rows, run.corruption)
    is_steered = run.loss in STEERED
    num_steps = max(1, len(parts.train[0]) // run.batch_size) * run.num_epochs
    children = [
        new_child(run, dataset, parts, num_steps, run.seed + 1000 * number) for number in range(run.num_children)
    ]
    controller = _new_controller(run, folder, children[0].loss)
    metric = find_metric(run.metric)
    reward = cross_entropy_metric() if run.reward.endswith("loss") else metric
    curve_file = folder / "curve.json"
    curve: list[Result] = json.loads(curve_file.read_text(encoding="utf8")) if curve_file.is_file() else []
    for step in adaptive_steps(
        children,
        controller,
        reward,
        parts.train if run.reward.startswith("train") else parts.reward,
        num_steps=num_steps,
        interval=run.interval,
        warmup_steps=max(run.interval, int(run.warmup * num_steps)) if is_steered else num_steps,
        selection=parts.selection,
        num_evaluations=run.num_evaluations if is_steered else 1,
        folder=folder,
    ):
        # a run that was killed after it wrote this does the round again
        curve = [row for row in curve if row["step"] < step.number]
        curve.append(
            {
                "step": step.number,
                "loss": float(step.loss),
                "costs": step.details["costs"].tolist(),
                "selection": step.details["selection"].tolist(),
                "seconds": {
                    what: round(float(step.details[f"{what}_seconds"]), 3)
                    for what in ("training", "evaluation", "controller")
                },
            }
        )
        if "entropy" in step.details:
            curve[-1] |= {
                "rewards": step.details["rewards"].tolist(),
                "entropy": float(step.details["entropy"]),
                "probabilities": step.details["probabilities"].tolist(),
                "values": [round(value, 3) for value in step.details["values"][0].tolist()],
            }
        curve_file.write_text(json.dumps(curve), encoding="utf8")
        yield step.number / num_steps
    values = children[0].loss.values.tolist()
    tests = [held_out_value(metric, child.model, parts.test) for child in children]
    selected = new_model(run, dataset, run.seed)
    selected.load_state_dict(load_tensors(folder / SELECTED_FILE))
    controller.save(folder / "policy.safetensors")
    return {
        "test": sum(tests) / len(tests),
        "tests": tests,
        "train": held_out_value(metric, children[0].model, parts.train) if len(parts.train[0]) <= 50_000 else None,
        "selected": held_out_value(metric, selected, parts.test),
        "selection": sum(curve[-1]["selection"]) / len(tests),
        # every round, with the loss parameters, stays in the folder
        "rounds": _summary(curve),
        "values": [round(value, 3) for value in values] if is_steered and len(values) <= MAX_VALUES else None,
    }


def _summary(curve: list[Result]) -> Result:
    """What the controller got and became, and whether the loss fell when the cost did."""
    rewards = [reward for row in curve for reward in row.get("rewards", [])]
    losses, costs = (torch.tensor(each) for each in zip(*((row["loss"], mean(row["selection"])) for row in curve)))
    return {
        "moved": sum("rewards" in row for row in curve),
        "rewards": {str(sign): rewards.count(sign) for sign in (-1, 0, 1)},
        "entropy": curve[-1].get("entropy"),
        "probabilities": curve[-1].get("probabilities"),
        "agreement": round(float(spearman(losses, costs)), 4) if len(curve) > 1 else None,
        "seconds": {what: round(sum(row["seconds"][what] for row in curve), 2) for what in curve[0]["seconds"]},
    }


def _new_controller(run: SteeredRun, folder: Path, loss: AdjustableLoss) -> ALA:
    if run.policy is None:
        return ALA(loss, learning_rate=run.policy_learning_rate, is_learning=run.is_learning, seed=run.seed)
    return ALA.load(
        folder.parent / run.policy / "policy.safetensors",
        loss,
        learning_rate=run.policy_learning_rate,
        is_learning=run.is_learning,
        seed=run.seed,
    )


def new_child(run: SteeredRun, dataset: Dataset, parts: Parts, num_steps: int, seed: int) -> Child:
    model = new_model(run, dataset, seed)
    if run.optimizer == "sgd":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(
            model.parameters(), lr=run.learning_rate, momentum=0.9, weight_decay=run.weight_decay
        )
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=run.learning_rate, weight_decay=run.weight_decay)

    def learning_rate(step: int) -> float:
        """Up in the first twentieth, then down along a cosine."""
        rise = num_steps / 20
        return run.learning_rate * min((step + 1) / rise, 0.5 * (1 + math.cos(math.pi * step / num_steps)))

    is_embedding = dataset.kind is Kind.EMBEDDING
    inputs, targets = parts.train
    loss = STEERED.get(run.loss, STEERED["margin_ala" if is_embedding else "ala"])(dataset.num_classes)
    is_squashed = isinstance(loss, ClassCorrelationLoss) and loss.form != "bounded"
    warmup_loss = find_loss("ce", Kind.MULTICLASS) if is_squashed else None
    if isinstance(model, WithLoss):
        warmup_loss = model.loss
    elif run.loss in FIXED:
        warmup_loss = FIXED[run.loss](dataset)
    return Child(
        model,
        loss,
        optimizer,
        ClassBatches(inputs, targets, run.batch_size // 4, 4, seed)
        if is_embedding
        else EpochBatches(inputs, targets, run.batch_size, seed, crop_and_mirror if run.is_augmented else None),
        learning_rate,
        warmup_loss,
        seed=seed,
    )


def new_model(run: SteeredRun, dataset: Dataset, seed: int) -> nn.Module:
    num_outputs = EMBEDDING_SIZE if dataset.kind is Kind.EMBEDDING else dataset.num_outputs
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = MODELS[run.model](dataset.input_shape, num_outputs)
    if run.loss == "global_objectives":
        model = WithLoss(model, GlobalObjectives(dataset.num_classes))
    # the format that convolutions on a CPU are fastest in; torch's type stubs do not know it
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def held_out_value(metric: Metric, model: nn.Module, rows: tuple[Tensor, Tensor]) -> float:
    return float(metric.value(predict(model, rows[0], ROWS_AT_ONCE)[None], rows[1][None])[0])


def cross_entropy_metric() -> Metric:
    """The loss in the place of the metric (Figure 3)."""

    def value(outputs: Tensor, targets: Tensor) -> Tensor:
        return torch.stack([F.cross_entropy(*each) for each in zip(outputs, targets)])

    return Metric("cross_entropy", Kind.MULTICLASS, value, higher_is_better=False)


@lru_cache(maxsize=1)
def load_parts(name: str, max_rows: int | None, corruption: Corruption) -> tuple[Dataset, Parts]:
    """``max_rows`` are of training: a test on all test rows costs little, and one on a few is noise."""
    dataset = find_dataset(name).load(None)
    cut = replace(dataset, train_inputs=dataset.train_inputs[:max_rows], train_targets=dataset.train_targets[:max_rows])
    return cut, split_rows(cut, corruption)
