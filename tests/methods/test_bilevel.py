"""The bilevel surrogate: three ways to start, no metric on which it collapses, the same run again from its state."""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from lossmith.kinds import IGNORE_INDEX, Kind
from lossmith.methods.bilevel import (
    BilevelSurrogate,
    bilevel_steps,
    jittered,
    stratified_batches,
    universal_steps,
)
from lossmith.metrics import METRICS, find_metric
from lossmith.predictions import random_predictions
from lossmith.ranking import spearman
from lossmith.training import shuffled_batches, train_steps
from lossmith.vocabulary import Step
from tests.metrics.samples import sample

BINARY = [name for name, metric in METRICS.items() if metric.kind is Kind.BINARY]
NUM_CLASSES = {"binary": 1, "multilabel": 1, "multiclass": 7}
Batch = tuple[Tensor, Tensor]


def data(generator: torch.Generator, *, num_rows: int = 2000) -> Batch:
    """Two features that matter and three that do not; a fifth of the rows are positive."""
    inputs = torch.randn(num_rows, 5, generator=generator)
    noise = 0.7 * torch.randn(num_rows, generator=generator)
    return inputs, (inputs[:, 0] - inputs[:, 1] + noise > 1.3).long()


def linear_model(seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(5, 1), nn.Flatten(0))


class Run:
    """One bilevel run, and the whole of its state."""

    def __init__(self, metric: str, seed: int = 0, *, surrogate_rate: float = 3e-3, **options: object) -> None:
        self.metric, self.options = metric, options
        self.generator = torch.Generator().manual_seed(seed)
        self.inputs, self.targets = data(torch.Generator().manual_seed(99))
        self.model = linear_model(seed)
        self.surrogate = BilevelSurrogate(generator=self.generator)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.03)
        self.surrogate_optimizer = torch.optim.Adam(self.surrogate.parameters(), lr=surrogate_rate)

    def steps(self, **options: object) -> Iterator[Step]:
        batches = stratified_batches(self.inputs, self.targets, batch_size=100, generator=self.generator)
        return bilevel_steps(
            self.model,
            self.surrogate,
            find_metric(self.metric),
            batches,
            self.optimizer,
            self.surrogate_optimizer,
            generator=self.generator,
            **{**self.options, **options},  # type: ignore[arg-type]
        )

    def state(self) -> dict[str, object]:
        parts = (self.model, self.surrogate, self.optimizer, self.surrogate_optimizer)
        return {"parts": [part.state_dict() for part in parts], "generator": self.generator.get_state()}

    def restore(self, state: dict[str, object]) -> None:
        parts = (self.model, self.surrogate, self.optimizer, self.surrogate_optimizer)
        for part, of_part in zip(parts, state["parts"]):  # type: ignore[call-overload]
            part.load_state_dict(of_part)
        self.generator.set_state(state["generator"])  # type: ignore[arg-type]

    def test_auc(self) -> float:
        inputs, targets = data(torch.Generator().manual_seed(7))
        with torch.no_grad():
            return float(find_metric("auc")(self.model(inputs), targets))


def universal(metric: str, generator: torch.Generator, *, num_steps: int = 500) -> BilevelSurrogate:
    surrogate = BilevelSurrogate(generator=generator)
    optimizer = torch.optim.Adam(surrogate.parameters(), lr=3e-3)
    for _ in universal_steps(
        surrogate, find_metric(metric), optimizer, generator=generator, num_steps=num_steps, num_sets=1024
    ):
        pass
    return surrogate


# ------------------------------------------------------------------------------------------------------- the loss


@pytest.mark.parametrize("kind", NUM_CLASSES)
def test_as_in_the_paper_the_gradient_is_that_of_the_value(kind: str, generator: torch.Generator) -> None:
    surrogate = BilevelSurrogate(
        kind,
        num_classes=NUM_CLASSES[kind],
        is_normalised=False,
        is_monotone=False,
        score_penalty=0,
        generator=generator,
    ).double()
    outputs, targets = sample(surrogate.kind, num_sets=1, generator=generator, ignored_share=0.2)
    outputs = outputs[0].double().requires_grad_()
    torch.autograd.gradcheck(
        lambda outputs: surrogate.network(outputs[None], targets[:1]).sum(), outputs, fast_mode=True
    )
    value = surrogate(outputs, targets[0])
    expected = surrogate.network(outputs[None], targets)[0]
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(*(torch.autograd.grad(each, outputs)[0] for each in (value, expected)))


@pytest.mark.parametrize("kind", NUM_CLASSES)
def test_its_gradient_leads_no_row_away_and_has_one_length(kind: str, generator: torch.Generator) -> None:
    surrogate = BilevelSurrogate(kind, num_classes=NUM_CLASSES[kind], score_penalty=0, generator=generator)
    for size in (20, 80):
        outputs, targets = (each[0] for each in sample(surrogate.kind, num_sets=1, set_size=size, generator=generator))
        outputs.requires_grad_()
        (gradient,) = torch.autograd.grad(surrogate(outputs, targets), outputs)
        is_true = nn.functional.one_hot(targets, 7) if kind == "multiclass" else targets
        assert (gradient[is_true == 1] <= 0).all()
        assert (gradient[is_true == 0] >= 0).all()
        assert gradient.norm() * targets.numel() ** 0.5 == pytest.approx(1, rel=1e-4)


def test_scores_that_grow_are_pulled_back(generator: torch.Generator) -> None:
    surrogate = BilevelSurrogate(generator=generator)
    targets = (torch.arange(20) < 8).long()
    outputs = (60.0 * (2 * targets - 1)).requires_grad_()
    (gradient,) = torch.autograd.grad(surrogate(outputs, targets), outputs)
    assert (gradient * outputs > 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", NUM_CLASSES)
def test_finite_on_every_edge(kind: str, dtype: torch.dtype, generator: torch.Generator) -> None:
    surrogate = BilevelSurrogate(kind, num_classes=NUM_CLASSES[kind], generator=generator)
    outputs, targets = (each[0] for each in sample(surrogate.kind, num_sets=1, generator=generator))
    outputs = outputs.to(dtype)
    saturated = 1e4 * outputs.sign()
    left_out = torch.full_like(targets, IGNORE_INDEX)
    edges = [
        (outputs, targets, False),
        (saturated, targets, False),
        (-saturated, targets, False),
        (torch.zeros_like(outputs), targets, False),
        (outputs, torch.where(targets == 1, 1, left_out), True),
        (outputs, left_out, True),
    ]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "BilevelSurrogate: a set of one class")
        for edge_outputs, edge_targets, says_nothing in edges:
            scores = edge_outputs.clone().requires_grad_()
            value = surrogate(scores, edge_targets)
            (gradient,) = torch.autograd.grad(value, scores)
            assert value.isfinite()
            assert gradient.isfinite().all()
            if says_nothing:
                assert value == 0
                assert gradient.abs().max() == 0


def test_one_warning_for_sets_of_one_class() -> None:
    surrogate, targets = BilevelSurrogate(), torch.ones(4, dtype=torch.long)
    with pytest.warns(UserWarning, match="a set of one class says nothing"):
        surrogate(torch.randn(4), targets)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        surrogate(torch.randn(4), targets)


# ------------------------------------------------------------------------------------------------- copies, batches


@pytest.mark.parametrize("kind", NUM_CLASSES)
def test_copies_are_behind_their_set(kind: str, generator: torch.Generator) -> None:
    outputs, targets = sample(Kind(kind), num_sets=4, generator=generator)
    sets = jittered(Kind(kind), outputs, targets, 3, 1.0, generator=generator)
    assert torch.equal(sets.outputs[::4], outputs)
    for number in range(4):
        assert torch.equal(sets.targets[number::4], targets)
    moves = sets.outputs.unflatten(0, (4, 4))[:, 1:] - outputs[:, None]
    assert (moves.flatten(2).abs().amax(-1) > 0.01).all()
    assert sets.outputs.isfinite().all()
    unmoved = jittered(Kind(kind), outputs, targets, 0, 1.0, generator=generator)
    assert torch.equal(unmoved.outputs, outputs)


def test_copies_span_better_and_worse(generator: torch.Generator) -> None:
    """What the surrogate is for is what happens next: it must have seen both."""
    outputs, targets = sample(Kind.BINARY, num_sets=50, set_size=100, generator=generator)
    sets = jittered(Kind.BINARY, outputs, targets, 3, 1.0, generator=generator)
    costs = find_metric("auc").cost(sets.outputs, sets.targets).view(50, 4)
    assert 0.2 < (costs[:, 1:] < costs[:, :1]).float().mean() < 0.8


def test_stratified_batches(generator: torch.Generator) -> None:
    inputs, targets = data(generator)
    for share, num_positives in ((0.5, 50), (0.1, 10)):
        batches = stratified_batches(inputs, targets, batch_size=100, generator=generator, positive_share=share)
        for _, labels in itertools.islice(batches, 3):
            assert labels.sum() == num_positives
    with pytest.raises(ValueError, match="leaves one class out"):
        next(stratified_batches(inputs, targets, batch_size=100, generator=generator, positive_share=0.001))
    with pytest.raises(ValueError, match="of one class"):
        next(stratified_batches(inputs, targets * 0, batch_size=100, generator=generator))


# ----------------------------------------------------------------------------------------- three ways to start


@pytest.mark.parametrize("metric", ["f1", "jaccard"])
def test_the_universal_one_knows_random_sets(metric: str, generator: torch.Generator) -> None:
    surrogate = universal(metric, generator)
    sets = random_predictions("binary", num_sets=400, set_size=100, num_classes=2, generator=generator)
    with torch.no_grad():
        values = surrogate.network(sets.outputs, sets.targets)
    costs = find_metric(metric).cost(sets.outputs, sets.targets)
    is_defined = ~costs.isnan()
    assert spearman(values[is_defined], costs[is_defined]) > 0.7


def test_universal_sets_as_in_the_paper(generator: torch.Generator) -> None:
    surrogate = BilevelSurrogate(generator=generator)
    optimizer = torch.optim.Adam(surrogate.parameters(), lr=1e-2)
    steps = universal_steps(
        surrogate, find_metric("auc"), optimizer, generator=generator, num_steps=300, num_sets=1024, is_paper=True
    )
    losses = [float(step.loss) for step in steps]
    # fair coins: an AUC of about a half is all that it sees
    assert losses[-1] < 0.05 < losses[0]


@pytest.mark.parametrize("start", ["universal", "refined"])
def test_universal_and_refined_train_a_model(start: str, generator: torch.Generator) -> None:
    run = Run("auc", surrogate_rate=1e-3)
    run.surrogate.load_state_dict(universal("auc", generator).state_dict())
    if start == "universal":
        # SL-U: a loss like any other
        batches = stratified_batches(run.inputs, run.targets, batch_size=100, generator=generator)
        for _ in itertools.islice(train_steps(run.model, run.surrogate, batches, run.optimizer), 200):
            pass
    else:
        for _ in itertools.islice(run.steps(num_first_steps=0), 60):
            pass
    assert run.test_auc() > 0.93


@pytest.mark.parametrize("metric", BINARY)
def test_from_scratch_it_never_collapses(metric: str) -> None:
    """The worst of three seeds, on every metric of yes-or-no predictions."""
    tests = []
    for seed in range(3):
        run = Run(metric, seed, num_first_steps=300)
        for _ in itertools.islice(run.steps(), 60):
            pass
        tests.append(run.test_auc())
    assert min(tests) > 0.9


@pytest.mark.parametrize(("name", "kind"), [("accuracy", "multiclass"), ("multilabel_f1", "multilabel")])
def test_several_scores_in_a_row(name: str, kind: str, generator: torch.Generator) -> None:
    inputs = torch.randn(1000, 5, generator=generator)
    scores = inputs[:, :3] + 0.3 * torch.randn(1000, 3, generator=generator)
    targets = scores.argmax(1) if kind == "multiclass" else (scores > 0.3).long()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Linear(5, 3)
    surrogate = BilevelSurrogate(kind, num_classes=3 if kind == "multiclass" else 1, generator=generator)
    steps = bilevel_steps(
        model,
        surrogate,
        METRICS[name],
        shuffled_batches(inputs, targets, batch_size=100, num_epochs=200, generator=generator),
        torch.optim.Adam(model.parameters(), lr=0.03),
        torch.optim.Adam(surrogate.parameters(), lr=3e-3),
        generator=generator,
        num_first_steps=500,
    )
    before = float(METRICS[name](model(inputs), targets))
    for _ in itertools.islice(steps, 80):
        pass
    assert float(METRICS[name](model(inputs), targets)) > max(0.75, before + 0.2)


# ------------------------------------------------------------------------------------------------------ Algorithm 1


def test_an_iteration_is_three_steps_of_the_one_and_ten_of_the_other() -> None:
    run = Run("auc", num_first_steps=20)
    sizes = []

    def counted() -> Iterator[Batch]:
        for batch in stratified_batches(run.inputs, run.targets, batch_size=50, generator=run.generator):
            sizes.append(len(batch[1]))
            yield batch

    steps = bilevel_steps(
        run.model,
        run.surrogate,
        find_metric("auc"),
        counted(),
        run.optimizer,
        run.surrogate_optimizer,
        generator=run.generator,
        num_first_steps=20,
    )
    counts = []
    for step in itertools.islice(steps, 3):
        counts.append(len(sizes))
        assert set(step.details) == {"meta_loss", "cost"}
    assert counts == [33, 46, 59]
    of_model, of_surrogate = (
        {int(state["step"]) for state in each.state.values()} for each in (run.optimizer, run.surrogate_optimizer)
    )
    assert (of_model, of_surrogate) == ({9}, {50})


def test_it_ends_with_its_batches() -> None:
    run = Run("auc", num_first_steps=20)
    batches = itertools.islice(
        stratified_batches(run.inputs, run.targets, batch_size=50, generator=run.generator), 20 + 2 * 13 + 5
    )
    steps = bilevel_steps(
        run.model,
        run.surrogate,
        find_metric("auc"),
        batches,
        run.optimizer,
        run.surrogate_optimizer,
        generator=run.generator,
        num_first_steps=20,
    )
    assert [step.number for step in steps] == [1, 2]


def test_a_run_goes_on_from_its_state() -> None:
    whole, first = Run("f1", num_first_steps=20), Run("f1", num_first_steps=20)
    for _ in itertools.islice(whole.steps(), 6):
        pass
    for _ in itertools.islice(first.steps(), 4):
        pass
    state = copy.deepcopy(first.state())
    second = Run("f1", seed=5)
    second.restore(state)
    numbers = [step.number for step in itertools.islice(second.steps(first_step=4), 2)]
    assert numbers == [5, 6]
    for one, other in zip(
        (*whole.model.parameters(), whole.surrogate.network.weights),
        (*second.model.parameters(), second.surrogate.network.weights),
    ):
        assert torch.equal(one, other)


def test_batches_of_one_class_are_passed_over(generator: torch.Generator) -> None:
    run = Run("auc")
    one_class = run.inputs[:50], torch.zeros(50, dtype=torch.long)

    def mixed() -> Iterator[Batch]:
        for batch in stratified_batches(run.inputs, run.targets, batch_size=50, generator=generator):
            yield one_class
            yield batch

    def steps(batches: Iterator[Batch]) -> Iterator[Step]:
        return bilevel_steps(
            run.model,
            run.surrogate,
            find_metric("auc"),
            batches,
            run.optimizer,
            run.surrogate_optimizer,
            generator=generator,
            num_first_steps=20,
        )

    assert len(list(itertools.islice(steps(mixed()), 2))) == 2
    assert all(weights.isfinite().all() for weights in run.model.parameters())
    with pytest.raises(ValueError, match="were each of one class"):
        next(steps(itertools.repeat(one_class)))


def test_mistakes(generator: torch.Generator) -> None:
    with pytest.raises(ValueError, match="binary, multilabel, multiclass predictions work"):
        BilevelSurrogate("heatmap")
    run = Run("auc")
    with pytest.raises(ValueError, match="num_model_steps=0"):
        next(run.steps(num_model_steps=0))
    run.metric = "accuracy"
    with pytest.raises(ValueError, match="judges multiclass predictions; the surrogate is for binary ones"):
        next(run.steps())
