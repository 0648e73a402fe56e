"""What every loss of a set promises, on every kind that it reads."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import sklearn.metrics
import torch
from torch import nn

from lossmith.baselines import aucpr_loss, bag_of_ngrams, find_loss, focal, smooth_ap
from lossmith.baselines.decisions import DECIDED_KINDS
from lossmith.kinds import CLASS_DIM, IGNORE_INDEX, Kind
from tests.metrics.samples import sample

NAMES = (
    "balanced_ce",
    "soft_f1",
    "soft_jaccard",
    "soft_mcc",
    "soft_balanced_accuracy",
    "lovasz",
    "pairwise",
    "smooth_ap",
)
GLOBAL = ("precision_at_recall", "recall_at_precision", "aucpr")
CASES = [
    *itertools.product(NAMES, DECIDED_KINDS),
    *((name, Kind.BINARY) for name in GLOBAL),
    *(("rank", kind) for kind, dim in CLASS_DIM.items() if dim is not None),
    ("bag_of_ngrams", Kind.TOKENS),
]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_what_is_left_out_has_no_say(name: str, kind: Kind, generator: torch.Generator) -> None:
    loss = find_loss(name, kind)
    outputs, targets = (stack[0] for stack in sample(kind, generator=generator, ignored_share=0.4))
    class_dim = CLASS_DIM[kind]
    ignored = targets == IGNORE_INDEX
    assert ignored.any()
    ignored = ignored if class_dim is None else ignored.unsqueeze(class_dim)
    torch.testing.assert_close(loss(outputs.masked_fill(ignored, 7.0), targets), loss(outputs, targets))


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_order_of_rows_has_no_say(name: str, kind: Kind, generator: torch.Generator) -> None:
    loss = find_loss(name, kind)
    outputs, targets = (stack[0] for stack in sample(kind, generator=generator))
    order = torch.randperm(len(targets), generator=generator)
    torch.testing.assert_close(loss(outputs[order], targets[order]), loss(outputs, targets))


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_a_step_down_the_gradient_is_better(name: str, kind: Kind, generator: torch.Generator) -> None:
    """Towards the targets the loss falls, and its gradient says so."""
    loss = find_loss(name, kind)
    outputs, targets = (stack[0] for stack in sample(kind, generator=generator))
    towards = torch.zeros_like(outputs)
    class_dim = CLASS_DIM[kind]
    if class_dim is None:
        towards += 2 * targets - 1
    else:
        towards.scatter_(class_dim, targets.unsqueeze(class_dim), torch.ones_like(outputs))
    scores = outputs.clone().requires_grad_()
    value = loss(scores, targets)
    value.backward()
    assert scores.grad is not None
    assert (scores.grad * towards).sum() < 0
    assert loss(outputs + 0.5 * towards, targets) < value


@pytest.mark.parametrize(("name", "kind"), CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_finite_everywhere(name: str, kind: Kind, dtype: torch.dtype, generator: torch.Generator) -> None:
    loss = find_loss(name, kind)
    outputs, targets = (stack[0] for stack in sample(kind, generator=generator, ignored_share=0.3))
    all_ignored = torch.full_like(targets, IGNORE_INDEX)
    one_class = targets.clamp(max=0)
    cases = [
        (outputs, targets),
        (1e4 * outputs.sign(), targets),
        (torch.zeros_like(outputs), targets),
        (outputs[:1], targets[:1]),
        (outputs, one_class),
        (outputs, all_ignored),
    ]
    for scores, labels in cases:
        scores = scores.to(dtype, copy=True).requires_grad_()
        value = loss(scores, labels)
        value.backward()
        assert value.isfinite()
        assert value.dtype == dtype
        assert scores.grad is not None
        assert scores.grad.isfinite().all()
        if labels is all_ignored:
            assert value == 0
            assert (scores.grad == 0).all()


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_autocast(name: str, kind: Kind, generator: torch.Generator) -> None:
    """A model's outputs in half precision, and whatever autocast does to the loss itself."""
    loss = find_loss(name, kind)
    outputs, targets = (stack[0] for stack in sample(kind, generator=generator, ignored_share=0.3))
    expected = loss(outputs.bfloat16().float(), targets)
    scores = outputs.bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(scores, targets)
    value.backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    torch.testing.assert_close(value.float(), expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_gradient(name: str, kind: Kind, generator: torch.Generator) -> None:
    outputs, targets = (stack[0] for stack in sample(kind, set_size=4, generator=generator, ignored_share=0.2))
    if kind is Kind.SEGMENTATION:
        outputs, targets = outputs[..., :2, :2], targets[..., :2, :2]
    loss = find_loss(name, kind)
    if isinstance(loss, nn.Module):
        loss.double()
    assert torch.autograd.gradcheck(lambda scores: loss(scores, targets), outputs.double().requires_grad_())


def test_by_hand() -> None:
    outputs, targets = torch.tensor([math.log(3), 0.0, -math.log(3)]), torch.tensor([1, 0, 1])
    # probabilities 3/4, 1/2, 1/4: tp 1, fp 1/2, fn 1, tn 1/2
    assert float(find_loss("soft_f1", "binary")(outputs, targets)) == pytest.approx(1 - 2 / 3.5)
    assert float(find_loss("soft_jaccard", "binary")(outputs, targets)) == pytest.approx(1 - 1 / 2.5)
    assert float(find_loss("soft_balanced_accuracy", "binary")(outputs, targets)) == pytest.approx(0.5)
    assert float(find_loss("soft_mcc", "binary")(outputs, targets)) == pytest.approx(1.0)
    expected = (math.log(1 + 1 / 3) + math.log(1 + 3)) / 2
    assert float(find_loss("pairwise", "binary")(outputs, targets)) == pytest.approx(expected)
    # precisions: the first has the negative above it by sigmoid(-log 3) = 1/4, the third of log 9 by 1/10; ...
    first = (1 + 0.1) / (1 + 0.1 + 0.25)
    third = (1 + 0.9) / (1 + 0.9 + 0.75)
    assert float(find_loss("smooth_ap", "binary")(outputs, targets)) == pytest.approx(1 - (first + third) / 2)


def test_lovasz_is_the_jaccard_loss_on_decisions() -> None:
    """On errors of 0 and 2 (scores of 1 on either side) it is twice the loss of the decisions."""
    generator = torch.Generator().manual_seed(3)
    for _ in range(20):
        targets = torch.randint(2, (9,), generator=generator)
        decided = torch.randint(2, (9,), generator=generator)
        intersection, union = (targets & decided).sum(), (targets | decided).sum()
        if targets.any():
            loss = find_loss("lovasz", "binary")(2.0 * decided - 1, targets)
            assert float(loss) == pytest.approx(2 * (1 - float(intersection / union)))


@pytest.mark.parametrize(
    ("name", "oracle"),
    [
        ("soft_f1", sklearn.metrics.f1_score),
        ("soft_jaccard", sklearn.metrics.jaccard_score),
        ("soft_mcc", sklearn.metrics.matthews_corrcoef),
        ("soft_balanced_accuracy", sklearn.metrics.balanced_accuracy_score),
    ],
)
def test_soft_counts_of_certain_scores_are_scikit_learns(
    name: str, oracle: Callable[..., float], generator: torch.Generator
) -> None:
    outputs, targets = (stack[0] for stack in sample(Kind.BINARY, generator=generator))
    expected = 1 - oracle(targets.numpy(), (outputs > 0).long().numpy())
    assert float(find_loss(name, "binary")(1e4 * outputs, targets)) == pytest.approx(expected, abs=1e-5)


def test_pairwise_is_torchs_soft_margin_of_all_differences(generator: torch.Generator) -> None:
    outputs, targets = (stack[0] for stack in sample(Kind.BINARY, generator=generator))
    differences = outputs[targets == 1].unsqueeze(-1) - outputs[targets == 0]
    expected = torch.nn.functional.soft_margin_loss(differences, torch.ones_like(differences))
    torch.testing.assert_close(find_loss("pairwise", "binary")(outputs, targets), expected)


def test_cold_smooth_ap_is_scikit_learns(generator: torch.Generator) -> None:
    outputs, targets = (stack[0] for stack in sample(Kind.BINARY, generator=generator))
    expected = 1 - sklearn.metrics.average_precision_score(targets.numpy(), outputs.numpy())
    loss = smooth_ap(Kind.BINARY, temperature=1e-5)
    assert float(loss(outputs, targets)) == pytest.approx(expected, abs=1e-4)


def test_lovasz_softmax_by_its_definition(generator: torch.Generator) -> None:
    """Errors, largest first, each times what it adds to scikit-learn's Jaccard loss of the errors so far (eq. 8)."""
    outputs, targets = (stack[0] for stack in sample(Kind.MULTICLASS, generator=generator))
    probabilities, values = outputs.softmax(-1), []
    for label in targets.unique():
        is_label = (targets == label).long()
        errors = (is_label - probabilities[:, label]).abs()
        order, before, value = errors.argsort(descending=True), 0.0, 0.0
        for number in range(1, len(order) + 1):
            decided = is_label.clone()
            decided[order[:number]] = 1 - decided[order[:number]]
            after = 1 - sklearn.metrics.jaccard_score(is_label.numpy(), decided.numpy())
            value += float(errors[order[number - 1]]) * (after - before)
            before = after
        values.append(value)
    expected = sum(values) / len(values)
    assert float(find_loss("lovasz", "multiclass")(outputs, targets)) == pytest.approx(expected, abs=1e-5)


def test_bag_of_ngrams_by_hand() -> None:
    outputs, targets = torch.tensor([[[3.0, 1.0], [1.0, 1.0], [1.0, 9.0]]]).log(), torch.tensor([[0, 1, -100]])
    # P(0) is 3/4, 1/2, 1/10; the third position is left out
    single = 1 - (min(3 / 4 + 1 / 2, 1) + min(1 / 4 + 1 / 2, 1)) / 2
    assert float(bag_of_ngrams(Kind.TOKENS, order=1)(outputs, targets)) == pytest.approx(single)
    assert float(bag_of_ngrams(Kind.TOKENS)(outputs, targets)) == pytest.approx(1 - 3 / 4 * 1 / 2)
    # 0 0 1: "0 0" and "0 1" at both places; P(0 0) is 3/8 + 1/20, P(0 1) is 3/8 + 9/20
    twice = bag_of_ngrams(Kind.TOKENS)(outputs, torch.tensor([[0, 0, 1]]))
    assert float(twice) == pytest.approx(1 - (3 / 8 + 1 / 20 + 3 / 8 + 9 / 20) / 2)
    # no pair of tokens in a sequence of one
    assert float(bag_of_ngrams(Kind.TOKENS)(outputs[:, :1], targets[:, :1])) == 0


def test_bag_of_ngrams_forgives_a_shift() -> None:
    reference = torch.tensor([[1, 2, 3, 4, 5, 6]])

    def certain(*tokens: int) -> torch.Tensor:
        return 50.0 * torch.nn.functional.one_hot(torch.tensor([tokens]), 8)

    loss = bag_of_ngrams("tokens")
    shifted = loss(certain(0, 1, 2, 3, 4, 5), reference)
    assert float(shifted) == pytest.approx(1 / 5)  # "5 6" is missing
    assert loss(certain(1, 2, 3, 4, 5, 6), reference) == pytest.approx(0, abs=1e-6)
    # a pair that the reference has once does not count twice
    assert float(loss(certain(1, 2, 1, 2, 1, 2), reference)) == pytest.approx(4 / 5)


def test_rank_loss_counts_what_is_above() -> None:
    outputs = torch.tensor([[3.0, 2.0, 1.0], [0.0, 5.0, 2.0]])
    loss = find_loss("rank", "multiclass")
    assert float(loss(outputs, torch.tensor([0, 1]))) == pytest.approx(0.0, abs=0.05)
    assert float(loss(outputs, torch.tensor([2, 0]))) == pytest.approx(2.0, abs=0.05)


def test_focal_without_focus_is_nearly_cross_entropy_where_all_is_wrong() -> None:
    outputs, targets = torch.tensor([-20.0, -30.0]), torch.tensor([1, 1])
    torch.testing.assert_close(
        find_loss("focal", "binary")(outputs, targets), find_loss("ce", "binary")(outputs, targets)
    )


def test_focal_by_hand() -> None:
    outputs, targets = torch.tensor([math.log(3), math.log(3), 9.0]), torch.tensor([1, 0, -100])
    # q of the target: 3/4 and 1/4
    expected = (0.25**2 * -math.log(0.75) + 0.75**2 * -math.log(0.25)) / 2
    assert float(find_loss("focal", "binary")(outputs, targets)) == pytest.approx(expected)


def test_global_objectives_by_hand() -> None:
    """Hinges at thresholds of 0 and multipliers of 1 (Eban et al. 2017, eq. 8 and 11)."""
    outputs, targets = torch.tensor([0.5, 3.0, -0.5, -4.0, 7.0]), torch.tensor([1, 1, 0, 0, -100])
    missed, alarms, num_positives, num_kept = 0.5, 0.5, 2, 4
    odds = 0.9 / (1 - 0.9)
    at_precision = ((1 + 1) * missed + odds * alarms - num_positives) / num_kept
    assert find_loss("recall_at_precision", "binary")(outputs, targets).item() == pytest.approx(at_precision)
    at_recall = (alarms + missed - (1 - 0.9) * num_positives) / num_kept
    assert find_loss("precision_at_recall", "binary")(outputs, targets).item() == pytest.approx(at_recall)
    # precisions of 1/3 and 2/3: odds of 1/2 and 2
    of_curve = (2 * missed + (0.5 + 2) / 2 * alarms - num_positives) / num_kept
    assert aucpr_loss(Kind.BINARY, num_anchors=2)(outputs, targets).item() == pytest.approx(of_curve)


def test_multipliers_rise_while_a_constraint_is_broken() -> None:
    loss = find_loss("recall_at_precision", "binary")
    assert isinstance(loss, nn.Module)
    loss(torch.tensor([-1.0, 1.0]), torch.tensor([1, 0])).backward()
    gradients = dict(loss.named_parameters())
    assert float(gradients["raw_multipliers"].grad) < 0  # type: ignore[arg-type]
    # and the threshold rises with the false alarm more than it falls with the missed positive
    assert float(gradients["thresholds"].grad) < 0  # type: ignore[arg-type]


def test_global_objective_reaches_its_precision(generator: torch.Generator) -> None:
    """With its weights in the optimizer it moves the scores until the precision is reached."""
    targets = (torch.rand(400, generator=generator) < 0.3).long()
    features = torch.stack([2 * targets + 0.8 * torch.randn(400, generator=generator), torch.ones(400)], dim=1)
    weight = torch.zeros(2, requires_grad=True)
    loss = find_loss("recall_at_precision", "binary")
    assert isinstance(loss, nn.Module)
    optimizer = torch.optim.Adam([weight, *loss.parameters()], lr=0.05)
    for _ in range(400):
        optimizer.zero_grad()
        loss(features @ weight, targets).backward()
        optimizer.step()
    chosen = (features @ weight - loss.thresholds.detach()) > 0
    assert (targets[chosen] == 1).float().mean() > 0.88
    assert chosen.sum() > 20


@pytest.mark.parametrize("name", [*NAMES, *GLOBAL, "rank"])
def test_wrong_kind(name: str) -> None:
    with pytest.raises(ValueError, match="heatmap predictions"):
        find_loss(name, "heatmap")


def test_wrong_options() -> None:
    with pytest.raises(ValueError, match=r"gamma=0\.5"):
        focal(Kind.BINARY, gamma=0.5)
    with pytest.raises(ValueError, match=r"temperature=0\.0"):
        smooth_ap(Kind.BINARY, temperature=0.0)
    with pytest.raises(ValueError, match="num_anchors=0"):
        aucpr_loss(Kind.BINARY, num_anchors=0)
    with pytest.raises(ValueError, match="order=0"):
        bag_of_ngrams(Kind.TOKENS, order=0)
    with pytest.raises(ValueError, match="n-grams are of tokens; binary"):
        bag_of_ngrams(Kind.BINARY)
