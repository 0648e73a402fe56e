"""A traced loss is the textbook's where there is one, trains models, and never gives a NaN."""

from __future__ import annotations

import copy
import io
import warnings

import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import accuracy_score
from torch import Tensor, nn
from torchmetrics.classification import BinaryAUROC, BinaryF1Score

import lossmith
from lossmith import TracedLoss, trace
from lossmith.metrics import METRICS, wrap
from lossmith.vocabulary import IGNORE_INDEX, Kind
from tests.metrics.samples import sample
from tests.tracing.unmodified import accuracy, average_precision, f1, ndcg, score_by_dictionary


def gradient_of(loss, outputs: Tensor, targets: Tensor) -> Tensor:
    outputs = outputs.detach().clone().requires_grad_()
    loss(outputs, targets).backward()
    assert outputs.grad is not None
    return outputs.grad


def thresholded_accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    return ((outputs > 0) == targets.bool()).float().mean()


# ---- the losses that people know


@pytest.mark.parametrize("metric", [accuracy, METRICS["accuracy"]], ids=["own", "lossmith"])
def test_accuracy_is_cross_entropy(metric, generator: torch.Generator) -> None:
    loss = trace(metric, link=0)
    for _ in range(3):
        outputs, targets = 5 * torch.randn(32, 7, generator=generator), torch.randint(7, (32,), generator=generator)
        torch.testing.assert_close(loss(outputs, targets), F.cross_entropy(outputs, targets))
        difference = gradient_of(loss, outputs, targets) - gradient_of(F.cross_entropy, outputs, targets)
        assert difference.abs().max() <= 1e-6


@pytest.mark.parametrize("metric", [thresholded_accuracy, METRICS["binary_accuracy"], METRICS["binary_error"]])
def test_thresholded_accuracy_is_binary_cross_entropy(metric, generator: torch.Generator) -> None:
    loss = trace(metric, link=0)
    for _ in range(3):
        outputs, targets = 5 * torch.randn(32, generator=generator), torch.randint(2, (32,), generator=generator)
        expected = gradient_of(F.binary_cross_entropy_with_logits, outputs, targets.float())
        assert (gradient_of(loss, outputs, targets) - expected).abs().max() <= 1e-6


def test_accuracy_at_link_one_is_the_expected_error(generator: torch.Generator) -> None:
    outputs, targets = torch.randn(32, 7, generator=generator), torch.randint(7, (32,), generator=generator)
    expected = 1 - outputs.softmax(-1).gather(1, targets[:, None]).mean()
    torch.testing.assert_close(trace(accuracy, link=1)(outputs, targets), expected)


def test_average_precision_worked_by_hand() -> None:
    # order 1 0 1: swaps of neighbours are worth -1/4 and 1/6, that of the ends nothing; mean over three partners
    outputs, targets = torch.tensor([2.0, 1.0, -1.0]), torch.tensor([1, 0, 1])
    expected = (F.softplus(torch.tensor(-1.0)) / 4 + F.softplus(torch.tensor(2.0)) / 6) / 3
    torch.testing.assert_close(trace(average_precision, link=0)(outputs, targets), expected)


def test_ndcg_has_the_gradient_of_lambdarank(generator: torch.Generator) -> None:
    outputs, relevance = torch.randn(12, generator=generator), torch.arange(12) % 4
    gains = 2.0**relevance - 1
    discounts = 1 / torch.log2(torch.arange(12) + 2.0)
    best = (gains.sort(descending=True).values * discounts).sum()
    position = outputs.argsort(descending=True).argsort()
    worth = ((gains[:, None] - gains) * (discounts[position][:, None] - discounts[position])).abs() / best
    is_above = gains[:, None] > gains
    lambdas = torch.where(is_above, -worth * torch.sigmoid(outputs - outputs[:, None]), 0)
    expected = (lambdas.sum(1) - lambdas.sum(0)) / 12
    torch.testing.assert_close(gradient_of(trace(ndcg, link=0), outputs, relevance), expected)


# ---- it trains


def test_a_function_of_ones_own_trains_a_model(generator: torch.Generator) -> None:
    """A Python loop, an if, an argmax and a dictionary: nobody thought of a gradient."""
    centers = 2 * torch.randn(4, 5, generator=generator)
    targets = torch.arange(32) % 4
    inputs = centers[targets] + torch.randn(32, 5, generator=generator)
    torch.manual_seed(0)
    model = nn.Linear(5, 4)
    loss, optimizer = trace(score_by_dictionary), torch.optim.Adam(model.parameters(), lr=0.1)
    before = float(score_by_dictionary(model(inputs), targets))
    for _ in range(25):
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()
        optimizer.step()
    after = float(score_by_dictionary(model(inputs), targets))
    chance = (1.0 + 0.5 + 0.25 + 0.1) / 16
    best = (1.0 + 0.5 + 0.25 + 0.1) / 4
    assert max(before, chance) + 0.5 * (best - chance) < after


@pytest.mark.parametrize("name", METRICS)
def test_a_step_down_improves_the_metric(name: str, generator: torch.Generator) -> None:
    metric = METRICS[name]
    if name in ("top5_accuracy", "mrr"):
        outputs, targets = sample(metric.kind, num_sets=1, set_size=24, generator=generator)
        outputs = outputs * 0 + torch.randn(outputs.shape, generator=generator)
    else:
        outputs, targets = sample(metric.kind, num_sets=1, set_size=8, generator=generator)
    scores, targets = outputs[0], targets[0]
    if metric.kind is Kind.EMBEDDING:  # identities apart from each other leave nothing to improve
        scores = scores * 0.5 + torch.randn(scores.shape, generator=generator)
    loss = trace(name)
    before = metric.cost(scores[None], targets[None])
    for _ in range(10):
        gradient = gradient_of(loss, scores, targets)
        scores = scores - 0.5 * gradient / gradient.abs().max().clamp(min=1e-12)
    assert metric.cost(scores[None], targets[None]) < before


# ---- what must never happen


def edge_cases(kind: Kind, generator: torch.Generator) -> dict[str, tuple[Tensor, Tensor]]:
    (outputs,), (targets,) = sample(kind, num_sets=1, set_size=6, generator=generator)
    (with_gaps,), (gaps,) = sample(kind, num_sets=1, set_size=6, generator=generator, ignored_share=0.3)
    one_class = targets if kind is Kind.HEATMAP else torch.zeros_like(targets)
    return {
        "saturated": (outputs * 1e4, targets),
        "saturated and wrong": (-outputs * 1e4, targets),
        "one class": (outputs, one_class),
        "one row": (outputs[:1], targets[:1]),
        "ties": (torch.zeros_like(outputs), targets),
        "nothing left": (outputs, torch.full_like(targets, IGNORE_INDEX)),
        "some left out": (with_gaps, gaps),
        "bfloat16": (outputs.bfloat16(), targets),
    }


@pytest.mark.parametrize("name", METRICS)
def test_gradients_are_finite(name: str, generator: torch.Generator) -> None:
    for link in (0.0, 0.5):
        for case, (outputs, targets) in edge_cases(METRICS[name].kind, generator).items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # "the metric is not defined": told of below
                outputs = outputs.requires_grad_()
                value = trace(name, link=link)(outputs, targets)
                value.backward()
            assert value.isfinite(), case
            assert outputs.grad is not None
            assert outputs.grad.isfinite().all(), case
            assert outputs.grad.dtype == outputs.dtype


@pytest.mark.parametrize("name", METRICS)
def test_what_is_left_out_has_no_gradient(name: str, generator: torch.Generator) -> None:
    metric = METRICS[name]
    (outputs,), (targets,) = sample(metric.kind, num_sets=1, set_size=12, generator=generator, ignored_share=0.3)
    gradient = gradient_of(trace(name), outputs, targets)
    is_left_out = targets == IGNORE_INDEX
    if metric.kind is Kind.HEATMAP:
        is_left_out = is_left_out.any(-1)
    if metric.kind is Kind.SPAN:
        is_left_out = is_left_out.any(-1)
    assert is_left_out.any()
    if metric.kind is Kind.SEGMENTATION:
        gradient = gradient.movedim(1, -1)
    # a word too much may be wrong where the reference has ended: bleu and its like read the whole hypothesis
    assert gradient[is_left_out].abs().sum() == 0


def test_rows_left_out_of_a_function_of_ones_own(generator: torch.Generator) -> None:
    outputs, targets = torch.randn(12, 4, generator=generator), torch.arange(12) % 4
    is_kept = torch.arange(12) % 3 > 0
    expected = trace(accuracy)(outputs[is_kept], targets[is_kept])
    torch.testing.assert_close(trace(accuracy)(outputs, targets.where(is_kept, IGNORE_INDEX)), expected)


def test_a_set_that_says_nothing_costs_nothing_and_warns_once() -> None:
    loss, outputs = trace("auc"), torch.randn(5, requires_grad=True)
    with pytest.warns(UserWarning, match="not defined on a set"):
        value = loss(outputs, torch.zeros(5).long())
    value.backward()
    assert value == 0
    assert outputs.grad is not None
    assert (outputs.grad == 0).all()
    loss(outputs, torch.zeros(5).long())  # a second warning would be an error


def test_python_divides_by_zero_where_torch_gives_nan() -> None:
    def precision(outputs: Tensor, targets: Tensor) -> float:
        is_chosen = outputs > 0
        return int((is_chosen & (targets == 1)).sum()) / int(is_chosen.sum())

    loss, targets = trace(precision), torch.tensor([1, 0, 1])
    assert gradient_of(loss, torch.tensor([1.0, 2.0, -1.0]), targets).abs().sum() > 0
    with pytest.warns(UserWarning, match="not defined on a set"):
        assert gradient_of(loss, torch.tensor([-1.0, -2.0, -1.0]), targets).abs().sum() == 0


@pytest.mark.parametrize("link", [0.0, 0.5, 1.0])
def test_classes_that_are_masked_out_have_no_gradient(link: float, generator: torch.Generator) -> None:
    outputs, targets = torch.randn(8, 4, generator=generator), torch.arange(8) % 4
    outputs[:, 2] = -torch.inf  # the right answer of two rows
    gradient = gradient_of(trace(accuracy, link=link), outputs, targets)
    assert gradient.isfinite().all()
    assert (gradient[:, 2] == 0).all()
    assert gradient.abs().sum() > 0


@pytest.mark.parametrize("link", [0.0, 0.5, 1.0])
def test_a_score_of_infinity_has_a_finite_gradient(link: float, generator: torch.Generator) -> None:
    outputs, targets = torch.randn(8, 4, generator=generator), torch.arange(8) % 4
    outputs[1, 1] = outputs[2, 0] = torch.inf  # a row that is right, and one that is not
    outputs.requires_grad_()
    value = trace(accuracy, link=link)(outputs, targets)
    value.backward()
    assert value.isfinite()
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()
    assert (outputs.grad[3:] != 0).any(-1).all()


def test_a_first_set_of_ties_does_not_hide_the_decisions(generator: torch.Generator) -> None:
    """As of a model whose last layer starts at zero."""
    targets = torch.arange(12) % 2
    outputs = torch.randn(12, generator=generator)
    loss, expected = trace(BinaryAUROC()), gradient_of(trace(BinaryAUROC()), outputs, targets)
    assert gradient_of(loss, torch.zeros(12), targets).isfinite().all()  # a warning would be an error
    torch.testing.assert_close(gradient_of(loss, outputs, targets), expected)


def test_code_that_writes_to_its_arguments_writes_to_copies(generator: torch.Generator) -> None:
    def careless(outputs: Tensor, targets: Tensor) -> Tensor:
        outputs -= outputs.mean()
        targets[targets == 3] = 0
        return (outputs.argmax(-1) == targets).float().mean()

    outputs, targets = torch.randn(8, 4, generator=generator), torch.arange(8) % 4
    outputs_before, targets_before = outputs.clone(), targets.clone()
    expected = gradient_of(F.cross_entropy, outputs, targets.where(targets != 3, 0))
    torch.testing.assert_close(gradient_of(trace(careless, link=0), outputs, targets), expected)
    assert torch.equal(outputs, outputs_before)
    assert torch.equal(targets, targets_before)


def test_under_autocast_and_in_half_precision(generator: torch.Generator) -> None:
    torch.manual_seed(0)
    model, inputs, targets = nn.Linear(6, 3), torch.randn(16, 6, generator=generator), torch.arange(16) % 3
    loss = trace(accuracy, link=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = model(inputs)
        assert outputs.dtype == torch.bfloat16
        value = loss(outputs, targets)
    torch.testing.assert_close(value, F.cross_entropy(outputs.float(), targets))
    value.backward()
    assert model.weight.grad is not None
    assert model.weight.grad.isfinite().all()


@pytest.mark.parametrize("metric", [accuracy, f1, average_precision, METRICS["auc"], METRICS["f1_macro"]])
@pytest.mark.parametrize("link", [0.0, 0.5, 1.0])
def test_gradcheck(metric, link: float, generator: torch.Generator) -> None:
    kind = Kind.MULTICLASS if metric in (accuracy, METRICS["f1_macro"]) else Kind.BINARY
    (outputs,), (targets,) = sample(kind, num_sets=1, set_size=9, generator=generator)
    loss = trace(metric, link=link)
    loss(outputs.double(), targets)  # finds its way
    assert torch.autograd.gradcheck(lambda outputs: loss(outputs, targets), outputs.double().requires_grad_())


# ---- what is refused, named, or warned of


def test_randomness_is_named() -> None:
    def noisy(outputs: Tensor, targets: Tensor) -> Tensor:
        return ((outputs + torch.randn_like(outputs) > 0) == targets).float().mean()

    with pytest.raises(ValueError, match=r"draws lots \(it calls randn_like at .*test_loss.py:\d+\)"):
        trace(noisy)(torch.randn(8), torch.ones(8))


def test_what_depends_on_more_than_decisions_is_followed_by_random_steps() -> None:
    def clipped(outputs: Tensor, targets: Tensor) -> float:
        scores = outputs.detach().numpy()
        return float((abs(scores - targets.numpy()) < 1).mean() + 0 * scores.sum())

    loss, outputs = trace(clipped), torch.tensor([3.0, -3.0], requires_grad=True)
    with pytest.warns(UserWarning, match=r"random steps.*numpy at .*test_loss.py:\d+\. Decisions .* in torch"):
        loss(outputs, torch.zeros(2)).backward()
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()
    assert "not traced" in str(loss.explain(outputs, torch.zeros(2)))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: trace(3), "int came; a Metric or a function"),  # type: ignore[arg-type]
        (lambda: trace("f2"), "did you mean"),
        (lambda: trace(accuracy, link=-1), "link=-1"),
        (lambda: trace(accuracy, temperature=0), "temperature above 0 work"),
        (lambda: trace("auc", higher_is_better=False), "the metric itself says True"),
        (lambda: trace(accuracy)([1.0], torch.ones(1)), "outputs came as list"),  # type: ignore[arg-type]
        (lambda: trace(accuracy)(torch.ones(1).long(), torch.ones(1)), "floating point works"),
        (lambda: trace(accuracy)(torch.randn(3, 2), [0, 1, 0]), "targets came as list"),  # type: ignore[arg-type]
        (lambda: trace(lambda o, t: o > 0)(torch.randn(3), torch.ones(3)), "one number works"),
        (lambda: trace(lambda o, t: "good")(torch.randn(3), torch.ones(3)), "str; one number works"),
        (lambda: trace("auc")(torch.randn(3, 2), torch.ones(3)), "binary predictions"),
        (lambda: trace(accuracy, temperature=float("nan")), "temperature=nan"),
        (lambda: trace(accuracy, memory=1.5), "memory=1.5"),  # type: ignore[arg-type]
        (lambda: trace(f1)(torch.randn(3, 1), torch.ones(3)), r"outputs.squeeze\(1\) works"),
        (lambda: trace(BinaryF1Score), r"an instance of it, BinaryF1Score\(...\), works"),
        (lambda: trace(accuracy_score), "accuracy_score of scikit-learn came.*targets_first"),
    ],
)
def test_mistakes_get_a_sentence(call, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


# ---- options and state


def test_lower_is_better_turns_the_gradient(generator: torch.Generator) -> None:
    outputs, targets = torch.randn(9, 4, generator=generator), torch.arange(9) % 4

    def error(outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.argmax(-1) != targets).float().mean()

    expected = gradient_of(trace(accuracy), outputs, targets)
    torch.testing.assert_close(gradient_of(trace(error, higher_is_better=False), outputs, targets), expected)


def test_a_wrapped_metric_of_another_library(generator: torch.Generator) -> None:
    metric = wrap(accuracy_score, kind="binary", higher_is_better=True, order="targets_first", takes="labels")
    outputs, targets = torch.randn(9, generator=generator), torch.arange(9) % 2
    expected = gradient_of(F.binary_cross_entropy_with_logits, outputs, targets.float())
    torch.testing.assert_close(gradient_of(trace(metric, link=0), outputs, targets), expected)


def test_temperature_is_learned_scheduled_and_saved(generator: torch.Generator) -> None:
    outputs, targets = torch.randn(9, 4, generator=generator), torch.arange(9) % 4
    loss = trace(accuracy, link=0, temperature=nn.Parameter(torch.tensor(2.0)))
    value = loss(outputs, targets)
    torch.testing.assert_close(value, F.cross_entropy(outputs / 2, targets))
    value.backward()
    assert isinstance(loss.temperature, nn.Parameter)
    assert loss.temperature.grad is not None
    other = trace(accuracy, link=0, temperature=nn.Parameter(torch.tensor(1.0)))
    other.load_state_dict(loss.state_dict())
    torch.testing.assert_close(other(outputs, targets), value)

    scheduled = trace(accuracy, link=0)
    scheduled.temperature = 0.5
    torch.testing.assert_close(scheduled(outputs, targets), F.cross_entropy(outputs / 0.5, targets))
    scheduled.temperature = -1.0
    with pytest.raises(ValueError, match="temperature has become -1"):
        scheduled(outputs, targets)


def test_memory_is_a_larger_set(generator: torch.Generator) -> None:
    batches = [(torch.randn(9, generator=generator), torch.arange(9) % 2) for _ in range(4)]
    loss = trace(average_precision, memory=2)
    values = [loss(*batch) for batch in batches]
    together = [torch.cat(each) for each in zip(*batches[3:0:-1])]
    torch.testing.assert_close(values[3], trace(average_precision)(*together))
    gradient = gradient_of(lambda outputs, targets: loss.eval()(outputs, targets), *batches[0])
    torch.testing.assert_close(gradient, gradient_of(trace(average_precision), *batches[0]))


def test_memory_survives_resuming(generator: torch.Generator) -> None:
    batches = [(torch.randn(9, generator=generator), torch.arange(9) % 2) for _ in range(3)]
    loss, resumed = trace(average_precision, memory=2), trace(average_precision, memory=2)
    for batch in batches[:2]:
        loss(*batch)
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    assert resumed(*batches[2]) == loss(*batches[2])


def test_a_copy_is_independent(generator: torch.Generator) -> None:
    batches = [(torch.randn(9, generator=generator), torch.arange(9) % 2) for _ in range(2)]
    loss = trace(average_precision, memory=1)
    loss(*batches[0])
    copied = copy.deepcopy(loss)
    assert copied(*batches[1]) == loss(*batches[1])
    loss(*batches[0])
    assert copied(*batches[1]) != loss(*batches[1])


def test_gradients_accumulate(generator: torch.Generator) -> None:
    batches = [(torch.randn(9, 4, generator=generator), torch.arange(9) % 4) for _ in range(2)]
    weight = torch.ones(4, requires_grad=True)
    loss = trace(accuracy)
    for outputs, targets in batches:
        (loss(outputs * weight, targets) / 2).backward()
    accumulated, weight.grad = weight.grad, None
    (sum(loss(outputs * weight, targets) for outputs, targets in batches) / 2).backward()
    torch.testing.assert_close(accumulated, weight.grad)


def test_without_gradients_nothing_is_kept(generator: torch.Generator) -> None:
    outputs, targets = torch.randn(9, 4, generator=generator, requires_grad=True), torch.arange(9) % 4
    loss = trace(accuracy)
    with torch.no_grad():
        assert not loss(outputs, targets).requires_grad
    with torch.inference_mode():
        value = loss(outputs * 1, targets)
    torch.testing.assert_close(value.clone(), loss(outputs, targets).detach())


def test_batches_of_every_size_and_layout(generator: torch.Generator) -> None:
    loss = trace(accuracy, link=0)
    for size in (3, 64, 5, 17, 64):
        outputs, targets = torch.randn(size, 4, generator=generator), torch.randint(4, (size,), generator=generator)
        torch.testing.assert_close(loss(outputs, targets), F.cross_entropy(outputs, targets))


def test_the_public_names() -> None:
    assert lossmith.trace is trace
    assert isinstance(trace("f1"), TracedLoss)
    assert "f1, link=0.5" in repr(trace("f1"))


def test_scores_that_are_no_numbers_are_refused() -> None:
    for metric in ("f1", lambda outputs, targets: ((outputs > 0) == targets).float().mean()):
        with pytest.raises(ValueError, match="NaN"):
            lossmith.trace(metric)(torch.full((6,), float("nan")), torch.tensor([0, 1] * 3))
