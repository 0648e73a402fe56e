"""ReLoss (Huang et al. 2022): models trained with the shipped loss of accuracy beside cross-entropy (Tables 2 and 10).

On small sets every loss gets as many trials, on validation rows of seeds that the test does not use, and is tested on
other seeds; with the same seed all losses share rows, labels, weights and order, so differences are paired. Hand-made
losses try eight learning rates. The sum tries four, at each of them with half as much of the learned loss as of
cross-entropy and with eight times as much, from 30 % of the steps on. The opponents are the tuned cross-entropy, label
smoothing, Brier's score, and twice cross-entropy as a control. A ResNet-20 has two trials for cross-entropy and two
for the sum, and one rate for the others.

>>> [unit.name for unit in CLASSIFICATION.units("smoke")]
['digits:ce', 'digits:ce+accuracy', 'resnet:ce', 'resnet:ce+accuracy']
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from lossmith.lab.comparing.stack_losses import OfStack
from lossmith.lab.reproduce.compared_losses import compared_on_stack
from lossmith.lab.reproduce.experiment import Bar, Experiment, Result, Unit, Verdict, part_steps
from lossmith.lab.reproduce.many_seeds import Accuracies, Task, train_seeds
from lossmith.lab.reproduce.training_run import TrainingRun, trained_steps, training_run_steps
from lossmith.vocabulary import Kind

BASE, SUM, CONTROL = "ce", "ce+accuracy", "2ce"
LOSSES = (BASE, SUM, "accuracy", CONTROL, "label_smoothing", "brier")
# alone, the learned loss is for small sets to show
LOSSES_OF_NETWORKS = tuple(loss for loss in LOSSES if loss != "accuracy")
LEARNING_RATES = (0.003, 0.006, 0.01, 0.02, 0.035, 0.06, 0.1, 0.2)
RATES_OF_SUM = (0.006, 0.02, 0.06, 0.2)
WEIGHTED_SUMS = ("ce+0.5accuracy", "ce+8accuracy")
# the share of the steps that cross-entropy has for itself
WARMUP = 0.3
# two chose learning rates by luck: on digits twice cross-entropy lost half a point to cross-entropy
NUM_CHOOSING_SEEDS = 6
NUM_SEEDS = 10
FIRST_CHOOSING_SEED = 1000
# seeds from 0 and the official test rows have judged earlier forms of the sum
FIRST_SEED = 3000

TASKS = {
    "mnist_noisy": Task("mnist", num_rows=5000, num_epochs=20, label_noise=0.3, is_test_drawn=True),
    "covtype_underfit": Task("covtype", num_rows=20_000, num_epochs=4, widths=(32,), is_test_drawn=True),
    "digits": Task("digits", num_rows=600, num_epochs=30, batch_size=32, is_test_drawn=True),
    "mnist_2k": Task("mnist", num_rows=2000, num_epochs=20, batch_size=64, is_test_drawn=True),
    "covtype_2k": Task("covtype", num_rows=2000, num_epochs=20, batch_size=64, is_test_drawn=True),
}
NOISY, UNDERFIT = ("mnist_noisy", "cifar10_noisy"), ("covtype_underfit",)

# He et al. 2015, section 4.2; the paper (A.2) adds cutout and trains for 200 epochs
RESNET = TrainingRun(
    "cifar10",
    "resnet20",
    BASE,
    learning_rate=0.1,
    momentum=0.9,
    weight_decay=1e-4,
    milestones=(0.5, 0.75),
    warmup_share=WARMUP,
    is_augmented=True,
    is_bfloat16=True,
)
RUNS = {name: replace(RESNET, dataset=name) for name in ("cifar10_noisy", "cifar10")}
# without copies that are shifted and mirrored a network learns few images by heart in 30 epochs, wrong labels and all;
# the rows before have been seen by earlier forms of the sum
FEW_IMAGES = {
    name: replace(run, is_augmented=False, batch_size=64, first_row=5000, max_rows=4000, num_validation=1000)
    for name, run in RUNS.items()
}
# steps as long as those of cross-entropy, or twice: gradients of the sums are 1.5 and 4 times as long
TRIALS_OF_NETWORKS = {
    BASE: ((BASE, 0.1), (BASE, 0.04)),
    SUM: (("ce+0.5accuracy", 0.067), ("ce+3accuracy", 0.05)),
    CONTROL: ((CONTROL, 0.05),),
}
# on the first three seeds with right labels a sum at a rate of 0.1 has been tested before
FIRST_SEEDS_OF_NETWORKS = {"cifar10": FIRST_SEED + 10}
# of the other losses, which have no trials
RATE_OF_NETWORKS = 0.1


@dataclass(frozen=True)
class Choice:
    """One loss on one task: its best trial on validation rows, tested on fresh seeds."""

    task: Task
    loss: str
    learning_rates: tuple[float, ...] = LEARNING_RATES
    num_choosing_seeds: int = NUM_CHOOSING_SEEDS
    num_seeds: int = NUM_SEEDS
    first_seed: int = FIRST_SEED

    def unit(self, task_name: str) -> Unit:
        return Unit(f"{task_name}:{self.loss}", asdict(self), lambda folder: _choice_steps(self))

    @property
    def trials(self) -> list[tuple[str, float]]:
        if self.loss != SUM:
            return [(self.loss, rate) for rate in self.learning_rates]
        rates = [rate for rate in self.learning_rates if rate in RATES_OF_SUM]
        return [(loss, rate) for loss in WEIGHTED_SUMS for rate in rates]


def _choice_steps(choice: Choice) -> Generator[float, None, Result]:
    def accuracies(loss: str, rate: float, seeds: range) -> Accuracies:
        def make_losses(num_steps: int, num_models: int) -> OfStack:
            return compared_on_stack(loss, Kind.MULTICLASS, warmup_steps=round(WARMUP * num_steps))

        return train_seeds(choice.task, make_losses, learning_rate=rate, seeds=seeds)

    choosing = range(FIRST_CHOOSING_SEED, FIRST_CHOOSING_SEED + choice.num_choosing_seeds)
    validation: dict[str, float] = {}
    for number, (loss, rate) in enumerate(choice.trials, start=1):
        validation[f"{loss} at {rate:g}"] = float(accuracies(loss, rate, choosing).validation.mean())
        yield number / (len(choice.trials) + 3)
    loss, rate = choice.trials[max(range(len(choice.trials)), key=list(validation.values()).__getitem__)]
    test = accuracies(loss, rate, range(choice.first_seed, choice.first_seed + choice.num_seeds)).test
    return {"chosen": f"{loss} at {rate:g}", "validation": validation, "test": test.tolist()}


@dataclass(frozen=True)
class NetworkChoice:
    """The same for a network of minutes: its trials have one seed, and all epochs: wrong labels are learned last."""

    run: TrainingRun
    loss: str
    num_seeds: int
    first_seed: int = FIRST_SEED

    def unit(self, task_name: str) -> Unit:
        return Unit(f"{task_name}:{self.loss}", asdict(self), lambda folder: _network_steps(self, folder))

    @property
    def trials(self) -> Sequence[tuple[str, float]]:
        return TRIALS_OF_NETWORKS.get(self.loss, ((self.loss, RATE_OF_NETWORKS),))


def _network_steps(choice: NetworkChoice, folder: Path) -> Generator[float, None, Result]:
    # where there is nothing to choose, nothing is tried
    trials = choice.trials if len(choice.trials) > 1 else ()
    num_runs = len(trials) + choice.num_seeds

    def share_told(number: int) -> Callable[[float], float]:
        return lambda share: (number + share) / num_runs

    validation: dict[str, float] = {}
    for number, (loss, rate) in enumerate(trials):
        run = replace(choice.run, loss=loss, learning_rate=rate, seed=FIRST_CHOOSING_SEED)
        name = f"{loss} at {rate:g}"
        _, curve = yield from part_steps(trained_steps(run, folder / name), share_told(number))
        # three epochs, as one alone is a matter of luck
        validation[name] = statistics.mean(epoch["validation"] for epoch in curve[-3:])
    loss, rate = max(choice.trials, key=lambda trial: validation.get(f"{trial[0]} at {trial[1]:g}", 0.0))
    tests = []
    for number in range(choice.num_seeds):
        run = replace(choice.run, loss=loss, learning_rate=rate, seed=choice.first_seed + number)
        steps = training_run_steps(run, folder / f"seed{number}")
        result = yield from part_steps(steps, share_told(len(trials) + number))
        tests.append(result["test"])
    return {"chosen": f"{loss} at {rate:g}", "validation": validation, "test": tests}


def _units(scale: str) -> list[Unit]:
    if scale == "smoke":
        tiny = Task("digits", num_rows=200, num_epochs=2, is_test_drawn=True)
        run = TrainingRun("digits", "mlp", BASE, num_epochs=4, momentum=0.9, max_rows=300)
        choices = [Choice(tiny, loss, (0.006, 0.06), 1, 2).unit("digits") for loss in (BASE, SUM)]
        return choices + _networks({"resnet": run}, (BASE, SUM), num_seeds=1)
    choices = [Choice(task, loss).unit(name) for name, task in TASKS.items() for loss in LOSSES]
    if scale == "small":
        return choices
    if scale == "cpu":
        return choices + _networks(FEW_IMAGES, LOSSES_OF_NETWORKS, num_seeds=3)
    if scale == "day":
        return choices + _networks(RUNS, LOSSES_OF_NETWORKS, num_seeds=3)
    paper = replace(RESNET, model="resnet56", num_epochs=200)
    return _networks({name: replace(paper, dataset=name) for name in ("cifar10", "cifar100")}, (BASE, SUM), num_seeds=5)


def _networks(runs: Mapping[str, TrainingRun], losses: Sequence[str], *, num_seeds: int) -> list[Unit]:
    return [
        NetworkChoice(run, loss, num_seeds, FIRST_SEEDS_OF_NETWORKS.get(name, FIRST_SEED)).unit(name)
        for name, run in runs.items()
        for loss in losses
    ]


# ---- judgement


def _judge(scale: str, results: Mapping[str, Result]) -> Verdict:
    tests = tests_of(results)
    rows, leads = [], {}
    for task, by_loss in tests.items():
        for loss, values in by_loss.items():
            lead = [100 * (value - base) for value, base in zip(values, by_loss[BASE])]
            leads[task, loss] = statistics.mean(lead)
            error = f" ± {statistics.stdev(lead) / math.sqrt(len(lead)):.2f}" if len(lead) > 1 else ""
            deviation = f" ± {100 * statistics.stdev(values):.2f}" if len(values) > 1 else ""
            test = f"{100 * statistics.mean(values):.2f}{deviation}"
            chosen = results[f"{task}:{loss}"]["chosen"]
            rows.append((task, loss, chosen, test, "" if loss == BASE else f"{leads[task, loss]:+.2f}{error}"))
    columns = (
        "task",
        "loss",
        "chosen on validation",
        "test accuracy ± deviation",
        f"lead over {BASE} ± standard error",
    )
    return Verdict(columns, rows, [] if scale == "smoke" else _bars(scale, leads))


def _bars(scale: str, leads: Mapping[tuple[str, str], float]) -> list[Bar]:
    if scale == "paper":
        paper = {"cifar10": 0.25, "cifar100": 0.54}
        return [Bar(f"lead of {SUM} on {task}, in points", leads[task, SUM], bar) for task, bar in paper.items()]
    of_sum = {task: lead for (task, loss), lead in leads.items() if loss == SUM}
    bars = [Bar(f"lead of {SUM} on {task}, in points", of_sum[task], 1.5) for task in NOISY if task in of_sum]
    bars += [Bar(f"lead of {SUM} on {task}, in points", of_sum[task], 0.2) for task in UNDERFIT if task in of_sum]
    return [*bars, Bar(f"lowest lead of {SUM}, in points", min(of_sum.values()), -0.15)]


def tests_of(results: Mapping[str, Result]) -> dict[str, dict[str, list[float]]]:
    """Test accuracies by task and loss."""
    tests: dict[str, dict[str, list[float]]] = {}
    for unit, result in results.items():
        task, _, loss = unit.partition(":")
        tests.setdefault(task, {})[loss] = result["test"]
    return tests


CLASSIFICATION = Experiment(
    "reloss-classification",
    "Accuracy of models trained with cross-entropy and the shipped loss of accuracy (Tables 2 and 10).",
    {
        "smoke": "digits, seconds",
        "small": "small sets with 10 seeds, 10 minutes",
        "cpu": "small sets, and ResNet-20 on 3,000 images of CIFAR-10 for 30 epochs, 3 seeds, an hour",
        "day": "small sets, and ResNet-20 on all images of CIFAR-10 for 30 epochs, 3 seeds, a day",
        "paper": "200 epochs of ResNet-56 on CIFAR-10 and CIFAR-100, weeks",
    },
    _units,
    _judge,
    "The sum is the fourth form of it. Three earlier ones (weights 1 and 3 early, 0.5 late) were judged on other seeds "
    "and on the official test rows: they met the bars for MNIST with wrong labels and for the small model, lost up to "
    "0.3 points elsewhere, and seven points on ResNet-20 with wrong labels. Looking for the reason showed scores that "
    "grew without end: the gradient of a loss that is blind to the size of scores told all of them to grow. Without "
    "that part, weights of 0.5 and 8 from 30 % of the steps on were picked for perceptrons among 0.5, 1, 3, 8 and 30 "
    "(30 fails), and 0.5 and 3 for ResNet-20 (8 hardly learns in time), on other seeds and on training rows.\n\n"
    "Small sets: seeds that no form has seen, on rows of both official parts that the seed drew for nothing else. "
    "ResNet-20: training and test rows behind the first 5,000, which earlier forms had seen; cross-entropy and the sum "
    "have two trials each, the other losses one rate and no trial. With right labels the sum was first run at the rate "
    "of cross-entropy, 0.1, where its steps are half as long again, and lost 0.38 ± 0.18 points on three seeds; "
    "with steps of the same length, on other seeds, it is 0.6 points below, and the standard error 1.1: three seeds "
    "cannot tell that from nothing, and the bar is missed.\n\n"
    "ResNet-20 sees 3,000 images without shifted and mirrored copies, so that in 30 epochs it learns them by heart, "
    "wrong labels and all. With copies, 15 epochs are too few for that, and the early form with a weight of 3 lost "
    "seven points there: nothing is learned by heart that a bounded loss could save. Whether the present form does, "
    "at that setting or on all images (scale `day`), has not been measured. Alone, a learned loss does not train.",
)
