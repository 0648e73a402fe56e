"""UniLoss: against a version in plain loops, exact where a configuration is one of real scores, quiet on the edges."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from lossmith.kinds import IGNORE_INDEX, Kind
from lossmith.lab.datasets import DATASETS
from lossmith.methods.uniloss import (
    Refactoring,
    UniLoss,
    draw_anchors,
    interpolate,
    read_average_precision,
)
from lossmith.metrics import METRICS, f1, find_metric, ndcg, wrap
from lossmith.training import predict, shuffled_batches, train_steps
from tests.metrics.samples import sample

SUPPORTED = [
    name
    for name, metric in METRICS.items()
    if metric.kind not in (Kind.EMBEDDING, Kind.SPAN) and name not in ("auc_ovr", "ap_ovr")
]
ONE_OF_EACH_KIND = [
    "accuracy",
    "f1_macro",
    "f1",
    "ap",
    "auc",
    "ndcg",
    "multilabel_map",
    "miou",
    "pckh",
    "token_accuracy",
]


def one_set(name: str, generator: torch.Generator, *, size: int = 8, ignored: float = 0.0) -> tuple[Tensor, Tensor]:
    outputs, targets = sample(METRICS[name].kind, num_sets=1, set_size=size, generator=generator, ignored_share=ignored)
    return outputs[0], targets[0]


def refactor(loss: UniLoss, outputs: Tensor, targets: Tensor) -> Refactoring:
    return loss.refactor(outputs, targets, torch.Generator())


def gradient(loss: nn.Module, outputs: Tensor, targets: Tensor) -> Tensor:
    outputs = outputs.clone().requires_grad_()
    loss(outputs, targets).backward()
    assert outputs.grad is not None
    return outputs.grad


# ------------------------------------------------------------------------------------------------------ the formula


def test_interpolation_by_hand() -> None:
    # sigmoid(log 3) = 3/4: 1/4 from the anchor that has it right, 3/4 from those that have it wrong
    anchors = torch.tensor([[0.0], [1.0], [1.0]])
    value = interpolate(torch.tensor([-math.log(3)]), anchors, torch.tensor([-1.0, 0.0, 0.0]))
    torch.testing.assert_close(value, torch.tensor(-4 / (4 + 4 / 3 + 4 / 3)))


def cost_of_accuracy(anchor: Tensor, targets: Tensor) -> float:
    num_right = 0
    for row in range(len(targets)):
        num_right += not any(anchor[row, rival] for rival in range(anchor.shape[1]) if rival != targets[row])
    return -num_right / len(targets)


def cost_of_average_precision(anchor: Tensor, targets: Tensor) -> float:
    num_ahead = sorted(int(row.sum()) for row in anchor[0])
    precisions = [(place + 1) / (place + 1 + ahead) for place, ahead in enumerate(num_ahead)]
    return -sum(precisions) / len(precisions)


@pytest.mark.parametrize(
    ("name", "cost_of"), [("accuracy", cost_of_accuracy), ("ap", cost_of_average_precision)], ids=["accuracy", "ap"]
)
def test_value_and_gradient_are_those_of_plain_loops(name: str, cost_of, generator: torch.Generator) -> None:
    outputs, targets = one_set(name, generator)
    outputs = outputs.double().requires_grad_()
    if name == "accuracy":
        comparisons = {
            (row, rival): outputs[row, targets[row]] - outputs[row, rival]
            for row in range(len(targets))
            for rival in range(outputs.shape[1])
            if rival != targets[row]
        }
    else:
        positives, negatives = (outputs[targets == label] for label in (1, 0))
        comparisons = {
            (0, p, n): positives[p] - negatives[n] for p in range(len(positives)) for n in range(len(negatives))
        }
    loss = UniLoss(name, seed=3)
    anchors = draw_anchors(
        refactor(loss, outputs, targets).comparisons,
        loss.num_anchors,
        torch.Generator().manual_seed(3 * 0x9E3779B1 % 2**32),
    )
    assert len(anchors) == 1 + 3 * 16
    numerator = denominator = torch.zeros((), dtype=torch.float64)
    for anchor in anchors:
        squares = [
            # the paper's bits are 1 where they are right
            (torch.sigmoid(comparison) - (1 - anchor[index])) ** 2
            for index, comparison in comparisons.items()
        ]
        weight = 1 / torch.stack(squares).sum().sqrt()
        numerator = numerator + weight * cost_of(anchor, targets)
        denominator = denominator + weight
    expected = numerator / denominator
    value = loss(outputs, targets)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(*(torch.autograd.grad(each, outputs)[0] for each in (value, expected)))


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_gradcheck(name: str, generator: torch.Generator) -> None:
    outputs, targets = one_set(name, generator, size=3, ignored=0.2)
    # a new loss each time: the same anchors each time
    outputs = outputs.double().requires_grad_()
    torch.autograd.gradcheck(lambda outputs: UniLoss(name)(outputs, targets), outputs, fast_mode=True)


def test_anchors(generator: torch.Generator) -> None:
    comparisons = torch.randn(20, 10, generator=generator).masked_fill(torch.eye(20, 10, dtype=torch.bool), -torch.inf)
    is_wrong = (comparisons >= 0).float()
    best, good, near, bad = draw_anchors(comparisons, 16, generator).split([1, 16, 16, 16])
    assert best.sum() == 0
    assert (good.sum((1, 2)) == 1).all()
    assert ((near != is_wrong).sum((1, 2)) == 1).all()
    assert (near <= is_wrong).all()  # one wrong bit less
    assert ((bad == 1).float().mean((1, 2)) - 0.5).abs().max() < 0.2
    assert len(bad.unique(dim=0)) == 16
    every_anchor = torch.cat([best, good, near, bad])
    assert not every_anchor[:, torch.eye(20, 10, dtype=torch.bool)].any()  # nothing is compared there

    _, _, near, _ = draw_anchors(-comparisons.abs(), 16, generator).split([1, 16, 16, 16])
    assert (near.sum((1, 2)) == 1).all()  # nothing is wrong: near the present is near the best


# ------------------------------------------------------------------------------------ configurations and their costs


@pytest.mark.parametrize("num_rivals", [None, 5])
@pytest.mark.parametrize("name", SUPPORTED)
def test_configurations_of_scores_cost_what_the_metric_says(
    name: str, num_rivals: int | None, generator: torch.Generator
) -> None:
    """The present one, with everything else that UniLoss leaves as it is; and the best one."""
    metric = METRICS[name]
    loss = UniLoss(name, num_rivals=num_rivals)
    for ignored in (0.0, 0.3):
        outputs, targets = one_set(name, generator, size=12, ignored=ignored)
        refactoring = refactor(loss, outputs, targets)
        present = (refactoring.comparisons >= 0).float()
        best_cost, present_cost = refactoring.costs(torch.stack([torch.zeros_like(present), present]))
        torch.testing.assert_close(present_cost, metric.cost(outputs[None], targets[None])[0])
        if num_rivals is None:
            best = metric.cost(perfect_outputs(metric.kind, outputs, targets)[None], targets[None])[0]
            torch.testing.assert_close(best_cost, best)
        else:
            assert best_cost <= present_cost


def perfect_outputs(kind: Kind, outputs: Tensor, targets: Tensor) -> Tensor:
    if kind in (Kind.BINARY, Kind.MULTILABEL):
        return targets.float() - 0.5
    if kind is Kind.RANKING:
        return targets.float()
    if kind is Kind.HEATMAP:
        x, y = targets[..., 0].clamp(min=0), targets[..., 1].clamp(min=0)
        at_joint = (y * outputs.shape[-1] + x).long()[..., None]
        return torch.zeros_like(outputs).flatten(-2).scatter(-1, at_joint, 1.0).view_as(outputs)
    one_hot = nn.functional.one_hot(targets.clamp(min=0), outputs.shape[1 if kind is Kind.SEGMENTATION else -1])
    return one_hot.movedim(-1, 1).float() if kind is Kind.SEGMENTATION else one_hot.float()


def test_average_precision_of_bits_is_that_of_any_order(generator: torch.Generator) -> None:
    targets = (torch.arange(20) < 6).long()
    scores = torch.randn(50, 20, generator=generator)
    bits = (scores[:, None, :6, None] <= scores[:, None, None, 6:]).float()
    torch.testing.assert_close(
        read_average_precision(bits, targets), find_metric("ap").value(scores, targets.expand(50, -1))
    )


@pytest.mark.parametrize("name", ["ap", "auc", "ndcg", "eer", "multilabel_map", "partial_auc"])
def test_bits_that_are_no_order_have_a_cost_within_the_range(name: str, generator: torch.Generator) -> None:
    outputs, targets = one_set(name, generator)
    refactoring = refactor(UniLoss(name), outputs, targets)
    is_compared = refactoring.comparisons > -torch.inf
    random = torch.randint(2, (100, *is_compared.shape), generator=generator) * is_compared
    best, *costs = refactoring.costs(torch.cat([torch.zeros_like(random[:1]), random]).float())
    assert best <= min(costs) <= max(costs) <= 1
    assert len({round(float(cost), 6) for cost in costs}) > 10  # a cycle is not all the same


def test_which_row_comes_first_does_not_matter(generator: torch.Generator) -> None:
    outputs, targets = one_set("f1_macro", generator)
    order = torch.randperm(len(targets), generator=generator)
    one, other = (
        refactor(UniLoss("f1_macro"), outputs[rows], targets[rows]) for rows in (torch.arange(len(targets)), order)
    )
    torch.testing.assert_close(one.comparisons[order], other.comparisons)
    anchors = draw_anchors(one.comparisons, 16, generator)
    costs = one.costs(anchors)
    torch.testing.assert_close(costs, other.costs(anchors[:, order]))
    torch.testing.assert_close(
        interpolate(one.comparisons, anchors, costs), interpolate(other.comparisons, anchors[:, order], costs)
    )


def test_which_rival_wins_matters() -> None:
    """The first row falls to class 2, which leads the others now, unless class 1 alone is above the target."""
    outputs = torch.tensor([[0.0, 1.0, 2.0], [0.0, 3.0, 0.0], [0.0, 3.0, 0.0]])
    targets = torch.tensor([0, 1, 1])
    both, first = torch.zeros(2, 3, 3)
    both[0, 1:] = first[0, 1] = 1
    costs = refactor(UniLoss("f1_macro"), outputs, targets).costs(torch.stack([both, first]))
    # F1 by class: 0, 1, 0 and 0, 4/5, none
    torch.testing.assert_close(costs, torch.tensor([-1 / 3, -2 / 5]))


# ------------------------------------------------------------------------------------------------------ as a loss


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_going_down_improves_the_metric(name: str, generator: torch.Generator) -> None:
    outputs, targets = one_set(name, generator, ignored=0.1)
    outputs = -0.3 * outputs  # worse than chance
    before = METRICS[name].cost(outputs[None], targets[None])
    outputs.requires_grad_()
    optimizer = torch.optim.Adam([outputs], lr=0.1)
    loss = UniLoss(name)
    for _ in range(60):
        optimizer.zero_grad()
        loss(outputs, targets).backward()
        optimizer.step()
    after = METRICS[name].cost(outputs.detach()[None], targets[None])
    assert after < before - 0.05
    assert after < -0.97  # the best is -1 for all of these


def test_every_wrong_target_wants_to_rise(generator: torch.Generator) -> None:
    outputs, targets = one_set("accuracy", generator, size=64)
    is_right = outputs.argmax(-1) == targets
    slopes = gradient(UniLoss("accuracy"), outputs, targets).gather(-1, targets[:, None])[:, 0]
    assert (slopes[~is_right] < 0).float().mean() > 0.9
    assert slopes.sum() < 0


def test_learns_digits_about_as_well_as_cross_entropy() -> None:
    digits = DATASETS["digits"].load(None)

    def test_accuracy(loss: nn.Module) -> float:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        batches = shuffled_batches(
            digits.train_inputs,
            digits.train_targets,
            batch_size=128,
            num_epochs=30,
            generator=torch.Generator().manual_seed(0),
        )
        for _ in train_steps(model, loss, batches, torch.optim.Adam(model.parameters(), lr=0.01)):
            pass
        return float(METRICS["accuracy"](predict(model, digits.test_inputs), digits.test_targets))

    assert test_accuracy(UniLoss("accuracy")) > test_accuracy(nn.CrossEntropyLoss()) - 0.01


def test_value_is_the_cost_at_an_anchor_and_between_the_anchors_elsewhere(generator: torch.Generator) -> None:
    outputs, targets = one_set("accuracy", generator, size=32)
    value = UniLoss("accuracy")(outputs, targets)
    assert -1 < value < 0
    # scores so far apart that every bit is decided: the present configuration is the best anchor
    certain = 200.0 * nn.functional.one_hot(targets, outputs.shape[1])
    torch.testing.assert_close(UniLoss("accuracy")(certain, targets), torch.tensor(-1.0))
    assert UniLoss("accuracy")(3 * outputs + certain / 50, targets) < value


# ------------------------------------------------------------------------------------------------------- the edges


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_finite_on_every_edge(name: str, dtype: torch.dtype, generator: torch.Generator) -> None:
    outputs, targets = one_set(name, generator)
    outputs = outputs.to(dtype)
    saturated = 1e4 * outputs.sign()
    if name in ("f1", "ap", "auc", "multilabel_map", "ndcg"):
        one_class = torch.ones_like(targets)
    else:
        one_class = targets[:1].expand_as(targets)
    everything_ignored = torch.full_like(targets, IGNORE_INDEX)
    loss = UniLoss(name)
    loss(outputs, targets)  # the first call checks: probabilities are not what it gets below
    for edge_outputs, edge_targets in [
        (outputs, targets),
        (saturated, targets),
        (-saturated, targets),
        (torch.zeros_like(outputs), targets),
        (outputs[:1], targets[:1]),
        (outputs, one_class),
        (saturated, one_class),
        (outputs, everything_ignored),
    ]:
        value = loss(edge_outputs, edge_targets)
        assert value.dtype == dtype
        assert value.isfinite()
        assert gradient(loss, edge_outputs, edge_targets).isfinite().all()
    assert loss(outputs, everything_ignored) == 0
    assert gradient(loss, outputs, everything_ignored).abs().max() == 0


@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_all_ties_have_a_slope(name: str, generator: torch.Generator) -> None:
    """A model whose last layer starts at zero must be able to start."""
    outputs, targets = one_set(name, generator)
    assert gradient(UniLoss(name), torch.zeros_like(outputs), targets).abs().max() > 0


def test_one_class_says_nothing() -> None:
    outputs = torch.randn(5)
    for label in (0, 1):
        targets = torch.full((5,), label)
        assert UniLoss("ap")(outputs, targets) == 0
        assert gradient(UniLoss("ap"), outputs, targets).abs().max() == 0


@pytest.mark.parametrize("name", ["accuracy", "f1", "ap", "ndcg", "miou", "pckh"])
def test_what_is_left_out_has_no_gradient(name: str, generator: torch.Generator) -> None:
    outputs, targets = one_set(name, generator, ignored=0.4)
    is_left_out = targets == IGNORE_INDEX
    slopes = gradient(UniLoss(name), outputs, targets)
    if name == "pckh":
        is_left_out, slopes = is_left_out.any(-1), slopes.flatten(-2)
    elif name == "miou":
        slopes = slopes.movedim(1, -1)
    assert is_left_out.any()
    assert slopes[is_left_out].abs().max() == 0
    assert slopes[~is_left_out].abs().max() > 0


def test_autocast_changes_nothing(generator: torch.Generator) -> None:
    outputs, targets = one_set("accuracy", generator)
    expected = UniLoss("accuracy")(outputs, targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert UniLoss("accuracy")(outputs, targets) == expected


# ----------------------------------------------------------------------------------------------------- the options


def test_same_seed_same_anchors_and_a_resumed_run_goes_on(generator: torch.Generator) -> None:
    outputs, targets = one_set("accuracy", generator)
    loss = UniLoss("accuracy", seed=1)
    values = [loss(outputs, targets) for _ in range(4)]
    assert len({float(value) for value in values}) == 4
    again = UniLoss("accuracy", seed=1)
    assert [again(outputs, targets) for _ in range(2)] == values[:2]
    resumed = UniLoss("accuracy", seed=1)
    resumed.load_state_dict(again.state_dict())
    assert copy.deepcopy(resumed)(outputs, targets) == resumed(outputs, targets) == values[2]
    assert UniLoss("accuracy", seed=2)(outputs, targets) != values[0]


def test_rivals_are_the_highest_scored(generator: torch.Generator) -> None:
    outputs, targets = torch.randn(9, 30, generator=generator), torch.randint(30, (9,), generator=generator)
    slopes = gradient(UniLoss("accuracy", num_rivals=4), outputs, targets)
    others = outputs.scatter(-1, targets[:, None], -torch.inf)
    is_hard = others >= others.topk(4).values[:, -1:]
    assert ((slopes != 0) == is_hard.scatter(-1, targets[:, None], True)).all()
    positives = torch.arange(9) < 3
    scores = torch.randn(9, generator=generator)
    slopes = gradient(UniLoss("ap", num_rivals=2), scores, positives.long())
    hardest = scores[~positives].topk(2).values
    assert ((slopes != 0) == (positives | torch.isin(scores, hardest))).all()


def test_large_segmentations_are_sampled(generator: torch.Generator) -> None:
    outputs, targets = one_set("miou", generator, size=4)
    loss = UniLoss("miou", num_pixels=10)
    is_drawn = [gradient(loss, outputs, targets).abs().sum(1) > 0 for _ in range(2)]
    assert [int(each.sum()) for each in is_drawn] == [10, 10]
    assert (is_drawn[0] != is_drawn[1]).any()


def test_threshold(generator: torch.Generator) -> None:
    outputs, targets = one_set("f1", generator)
    at_one = UniLoss(f1(threshold=1.0), threshold=1.0)(outputs + 1, targets)
    torch.testing.assert_close(at_one, UniLoss("f1")(outputs, targets))
    with pytest.raises(ValueError, match="threshold= is to say"):
        UniLoss(f1(threshold=5.0))(outputs, targets)


def test_metrics_of_ones_own(generator: torch.Generator) -> None:
    def share_of_first_three(outputs: Tensor, targets: Tensor) -> Tensor:
        return targets[outputs.topk(3).indices].float().mean()

    outputs, targets = one_set("ap", generator, size=24)
    metric = wrap(share_of_first_three, kind="binary", higher_is_better=True)
    outputs = outputs - 2 * targets
    before = metric(outputs, targets)
    loss, step = UniLoss(metric), 0.1
    for _ in range(100):
        slopes = gradient(loss, outputs, targets)
        outputs = outputs - step * slopes / slopes.abs().max()
    assert metric(outputs, targets) == 1 > before


def test_a_loss_can_be_made_of_a_metric_with_parameters(generator: torch.Generator) -> None:
    outputs, targets = one_set("ndcg", generator)
    assert UniLoss(ndcg(k=1))(outputs, targets) != UniLoss(ndcg(k=10))(outputs, targets)


@pytest.mark.parametrize("name", ["auc_ovr", "ap_ovr"])
def test_refuses_what_compares_rows(name: str, generator: torch.Generator) -> None:
    outputs, targets = one_set(name, generator)
    with pytest.raises(ValueError, match="compares scores of different rows"):
        UniLoss(name)(outputs, targets)


def test_refuses_what_is_not_there() -> None:
    with pytest.raises(ValueError, match="did you mean 'accuracy'"):
        UniLoss("acuracy")
    with pytest.raises(ValueError, match="no refactoring"):
        UniLoss("retrieval_map")
    with pytest.raises(ValueError, match="num_anchors=0; 1 or more works"):
        UniLoss("accuracy", num_anchors=0)
    with pytest.raises(ValueError, match=r"one set is outputs \[N, C\]"):
        UniLoss("accuracy")(torch.randn(4), torch.ones(4))


def test_lower_is_better(generator: torch.Generator) -> None:
    outputs, targets = one_set("binary_error", generator)
    error, accuracy = (UniLoss(name)(outputs, targets) for name in ("binary_error", "binary_accuracy"))
    torch.testing.assert_close(error, 1 + accuracy)
