"""What every surrogate must fulfil: tables say what rows say, no order, the right sign, no NaN from finite scores."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lossmith.surrogates import (
    SURROGATES,
    CountsNetwork,
    DeepSets,
    PairLoss,
    PointwiseSurrogate,
    RankLoss,
    Surrogate,
    margin_loss,
    probability_network,
)
from lossmith.vocabulary import CLASS_DIM, IGNORE_INDEX, Kind
from tests.metrics.samples import sample

MAKERS: dict[str, Callable[[], Surrogate]] = {
    **{f"margin {kind}": lambda kind=kind: margin_loss(kind) for kind in CLASS_DIM if kind is not Kind.SPAN},
    "probability": lambda: probability_network("multiclass", width=8),
    "probability binary": lambda: probability_network("binary", width=8),
    "top-3": lambda: margin_loss("multiclass", top=3),
    **{f"counts {kind}": lambda kind=kind: CountsNetwork(kind) for kind in CLASS_DIM if kind is not Kind.SPAN},
    **{f"pairs {kind}": lambda kind=kind: PairLoss(kind) for kind in ("binary", "multilabel", "multiclass")},
    **{f"ranks {kind}": lambda kind=kind: RankLoss(kind) for kind in ("binary", "multilabel", "multiclass")},
    "deep sets": lambda: DeepSets("binary"),
    "deep sets multiclass": lambda: DeepSets("multiclass", num_classes=7),
}


@pytest.fixture(params=MAKERS)
def surrogate(request: pytest.FixtureRequest) -> Surrogate:
    torch.manual_seed(0)
    return MAKERS[request.param]()


def draw(surrogate: Surrogate, *, ignored_share: float = 0.1) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return sample(surrogate.kind, num_sets=5, set_size=20, generator=generator, ignored_share=ignored_share)


def test_tables_say_what_rows_say(surrogate: Surrogate) -> None:
    outputs, targets = draw(surrogate)
    exact = surrogate(outputs, targets)
    learned = surrogate.losses(*surrogate.summarize(outputs, targets))
    assert exact.shape == learned.shape == (5,)
    assert torch.allclose(exact, learned, atol=0.01 * float(exact.detach().abs().max()))
    assert surrogate.penalty(*surrogate.summarize(outputs, targets)).shape == (5,)


def test_order_does_not_matter(surrogate: Surrogate) -> None:
    outputs, targets = draw(surrogate)
    order = torch.randperm(outputs.shape[1], generator=torch.Generator().manual_seed(2))
    assert torch.allclose(surrogate(outputs, targets), surrogate(outputs[:, order], targets[:, order]), atol=1e-5)


def test_sets_are_alone(surrogate: Surrogate) -> None:
    outputs, targets = draw(surrogate)
    together = surrogate(outputs, targets)
    alone = torch.cat([surrogate(outputs[index : index + 1], targets[index : index + 1]) for index in range(5)])
    assert torch.allclose(together, alone, atol=1e-5)


def test_what_is_left_out_does_not_matter(surrogate: Surrogate) -> None:
    outputs, targets = draw(surrogate, ignored_share=0)
    expected = surrogate(outputs[:, :12], targets[:, :12])
    targets[:, 12:] = IGNORE_INDEX
    outputs[:, 12:] = 1e4
    assert torch.allclose(surrogate(outputs, targets), expected, atol=1e-5)


def test_better_scores_never_cost_more(surrogate: Surrogate) -> None:
    if not surrogate.has_sign_by_construction or isinstance(surrogate, RankLoss):
        return  # average precision falls for one positive that another passes; nothing gives networks a sign
    outputs, targets = draw(surrogate)
    outputs.requires_grad_()
    (gradient,) = torch.autograd.grad(surrogate(outputs, targets).sum(), outputs)
    class_dim = CLASS_DIM[surrogate.kind]
    if class_dim is None:
        slope = torch.where(targets == 1, gradient, -gradient)
    else:
        index = targets.clamp_min(0).unsqueeze(-1)
        slope = gradient.movedim(class_dim, -1).gather(-1, index).squeeze(-1)
    assert (slope[targets != IGNORE_INDEX] <= 1e-6).all()
    assert (slope < 0).any()


EDGES: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]] = {
    "saturated": lambda outputs, targets: (1e4 * outputs.sign(), targets),
    "saturated and small": lambda outputs, targets: (torch.where(outputs > 0, 1e4, 1e-4 * outputs), targets),
    "tiny": lambda outputs, targets: (1e-12 * outputs, targets),
    "ties": lambda outputs, targets: (torch.zeros_like(outputs), targets),
    "one row": lambda outputs, targets: (outputs[:, :1], targets[:, :1]),
    "all ignored": lambda outputs, targets: (outputs, torch.full_like(targets, IGNORE_INDEX)),
    "one class": lambda outputs, targets: (outputs, torch.ones_like(targets)),
    "no positive": lambda outputs, targets: (outputs, torch.zeros_like(targets)),
    "bfloat16": lambda outputs, targets: (outputs.bfloat16(), targets),
}


@pytest.mark.parametrize("edge", EDGES)
def test_finite_on_edges(surrogate: Surrogate, edge: str) -> None:
    outputs, targets = EDGES[edge](*draw(surrogate))
    outputs = outputs.detach().requires_grad_()
    losses = surrogate(outputs, targets)
    losses.sum().backward()
    assert losses.isfinite().all()
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()
    assert outputs.grad.dtype == outputs.dtype
    if edge == "all ignored":
        assert not losses.any()
        assert not outputs.grad.any()
    for parameter in surrogate.parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all()


def test_gradients_in_double_precision() -> None:
    """Through everything but the scale of the set, which is a constant to the gradient by decision."""
    for surrogate in (DeepSets("binary", is_scaled=False), probability_network("multiclass", width=4)):
        outputs, targets = draw(surrogate.double())
        outputs = outputs[:2, :6].double().requires_grad_()
        assert torch.autograd.gradcheck(lambda scores: surrogate(scores, targets[:2, :6]), outputs)  # noqa: B023


def test_weights_get_gradients_in_double_precision() -> None:
    for surrogate in (margin_loss("binary"), PairLoss("binary"), CountsNetwork("binary", num_widths=2, hidden=3)):
        outputs, targets = draw(surrogate.double())
        summary = surrogate.summarize(outputs.double(), targets)
        weights = dict(surrogate.named_parameters())

        def losses(*values: Tensor) -> Tensor:
            return torch.func.functional_call(_Losses(surrogate), _prefixed(weights, values), summary)  # noqa: B023

        assert torch.autograd.gradcheck(losses, tuple(weights.values()))


class _Losses(torch.nn.Module):
    def __init__(self, surrogate: Surrogate) -> None:
        super().__init__()
        self.surrogate = surrogate

    def forward(self, *summary: Tensor) -> Tensor:
        return self.surrogate.losses(*summary)


def _prefixed(weights: dict[str, torch.nn.Parameter], values: tuple[Tensor, ...]) -> dict[str, Tensor]:
    return {f"surrogate.{name}": value for name, value in zip(weights, values)}


def test_settings_make_the_same_again(surrogate: Surrogate) -> None:
    (made_by,) = (made_by for made_by in SURROGATES.values() if type(surrogate) is made_by)
    again = made_by(**surrogate.settings)  # type: ignore[arg-type]
    again.load_state_dict(surrogate.state_dict())
    outputs, targets = draw(surrogate)
    assert torch.equal(again(outputs, targets), surrogate(outputs, targets))


@pytest.mark.parametrize("make", [margin_loss, CountsNetwork, PairLoss, RankLoss, DeepSets])
@pytest.mark.parametrize("kind", ["embedding", "heatmap", "ranking", "span"])
def test_other_kinds_are_refused(make: Callable[[str], Surrogate], kind: str) -> None:
    with pytest.raises(ValueError, match=f"{kind} predictions"):
        make(kind)


def test_values_worked_by_hand() -> None:
    surrogate = PointwiseSurrogate("binary", floor=0.5)
    surrogate.curve = torch.nn.Identity()
    scores, targets = torch.tensor([[3.0, -1.0, 2.0, 9.0]]), torch.tensor([[1, 1, 0, IGNORE_INDEX]])
    # margins 3, -1, -2 in units of their mean size 2
    assert torch.allclose(surrogate(scores, targets), torch.tensor([0.0]))
    assert torch.allclose(surrogate(scores[:, :2], targets[:, :2]), torch.tensor([0.5]))
    three = margin_loss("multiclass", top=2)
    rows = torch.tensor([[[3.0, 2.0, 1.0]]])
    feature, _ = three.features(rows, torch.tensor([[2]]))
    assert feature.item() == pytest.approx(-1)  # below the second best of the others


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_sets_that_are_all_wrong_or_all_right_fall_as_they_get_better(side: float) -> None:
    """Margins in units of their mean: raising all changes their spread alone, which must not make a loss rise."""
    surrogate = margin_loss("binary").double()
    scores = side * torch.rand(50, 64).add(3.0).double()
    targets = torch.ones(50, 64)
    with torch.no_grad():
        for weights in surrogate.parameters():
            weights.add_(torch.randn(weights.shape))
        losses = torch.stack([surrogate(scores + raised, targets) for raised in torch.linspace(0, 1, 20)])
    assert (losses.diff(dim=0) < 0).all()


def test_counts_tell_sets_apart_that_are_nearly_all_wrong() -> None:
    torch.manual_seed(0)
    surrogate = CountsNetwork("binary", hidden=32, floor=0.002)
    with torch.no_grad():
        # as learning leaves them: every unit is saturated
        for weights in surrogate.head.raw_weights:
            weights.add_(4.0)
    targets = torch.randint(2, (1, 512))
    wrong = torch.randn(1, 512) + torch.where(targets == 1, -4.0, 4.0)
    losses = torch.stack(
        [surrogate(wrong + raised * torch.sign(targets - 0.5), targets) for raised in (0.0, 0.01, 0.02)]
    )
    assert (losses.diff(dim=0) < 0).all()


def test_classes_that_a_network_was_not_made_for() -> None:
    with pytest.raises(ValueError, match="made for 3 classes; 4 came"):
        DeepSets("multiclass", num_classes=3)(torch.zeros(1, 2, 4), torch.zeros(1, 2).long())
    with pytest.raises(ValueError, match="num_classes=2 does not go with binary"):
        DeepSets("binary", num_classes=2)


def test_the_penalty_knows_the_direction() -> None:
    surrogate = probability_network("multiclass", width=4)
    summary = surrogate.summarize(*draw(surrogate))

    class Line(torch.nn.Module):
        def __init__(self, slope: float) -> None:
            super().__init__()
            self.slope = slope

        def forward(self, x: Tensor) -> Tensor:
            return self.slope * x

    for slope, expected in ((-1.0, 0.0), (1.0, 4.0), (0.0, 1.0)):
        surrogate.curve = Line(slope)
        assert torch.allclose(surrogate.penalty(*summary), torch.tensor(expected), atol=1e-4)
