"""The check at the door: what is wrong with predictions is said in one sentence, and nothing else is refused."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor

from lossmith.kinds import IGNORE_INDEX, Kind, check_predictions, parse_kind
from tests.metrics.samples import sample

each_kind = pytest.mark.parametrize("kind", list(Kind))
# 40 of each, spread over [0, 1]
PROBABILITIES = torch.linspace(0.01, 0.99, 40)
LABELS = torch.arange(40) % 2


@each_kind
@pytest.mark.parametrize("is_stack", [False, True])
def test_good_predictions_pass(kind: Kind, is_stack: bool, generator: torch.Generator) -> None:
    outputs, targets = sample(kind, generator=generator, ignored_share=0.3)
    if not is_stack:
        outputs, targets = outputs[0], targets[0]
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        check_predictions(kind, outputs.to(dtype), targets, is_stack=is_stack)
    check_predictions(kind, outputs, torch.full_like(targets, IGNORE_INDEX), is_stack=is_stack)


@each_kind
def test_what_is_wrong_in_any_kind(kind: Kind, generator: torch.Generator) -> None:
    stacks = sample(kind, generator=generator)
    outputs, targets = (each[0] for each in stacks)
    broken = outputs.clone(memory_format=torch.contiguous_format)
    broken.flatten()[3] = torch.nan
    cases: list[tuple[object, object, str]] = [
        (outputs.tolist(), targets, r"outputs came as list; a torch\.Tensor works"),
        (outputs, targets.numpy(), r"targets came as ndarray; a torch\.Tensor works"),
        (outputs[None], targets, r"outputs have the shape \(1, .*\); one set is outputs \[.*\] with targets \[.*\]"),
        (outputs, targets[None], r"targets have the shape \(1, .*\); one set is outputs \[.*\] with targets \[.*\]"),
        (outputs[:5], targets, r"differ in [NQ] \(5 and 24\)"),
        (outputs[:0], targets[:0], r"the set is empty"),
        (outputs.long(), targets, r"outputs are torch\.int64; raw scores in floating point"),
        (outputs.to(torch.float8_e4m3fn), targets, r"outputs are torch\.float8_e4m3fn; raw scores"),
        (broken, targets, rf"1 of {outputs.numel()} outputs are NaN or infinite"),
        (outputs, targets.float() * torch.nan, r"targets hold NaN"),
        (outputs, targets + 0j, r"targets hold NaN, infinite or complex values"),
    ]
    for some_outputs, some_targets, message in cases:
        with pytest.raises(ValueError, match=f"^{kind} predictions: .*{message}"):
            check_predictions(kind, some_outputs, some_targets)  # type: ignore[arg-type]
    outputs, targets = stacks
    with pytest.raises(ValueError, match="6 sets of outputs came with 5 sets of targets"):
        check_predictions(kind, outputs, targets[:5], is_stack=True)
    with pytest.raises(ValueError, match="a stack is the same with S sets in front of outputs"):
        check_predictions(kind, outputs[0], targets[0], is_stack=True)


@pytest.mark.parametrize(
    ("kind", "outputs", "targets", "message"),
    [
        (Kind.BINARY, torch.randn(3), torch.tensor([0, 1, 2]), "targets go from 0 to 2; 0 to 1 works, and -100"),
        (Kind.BINARY, torch.randn(3), torch.tensor([-1, 1, 1]), "targets go from -1 to 1"),
        (Kind.BINARY, torch.randn(2), torch.tensor([0.5, 1.0]), r"targets hold 0\.5; whole numbers work"),
        (Kind.MULTICLASS, torch.randn(2, 4), torch.tensor([0, 4]), "targets go from 0 to 4; 0 to 3 works"),
        (Kind.MULTILABEL, torch.randn(2, 4), torch.full((2, 4), 3), "targets go from 3 to 3; 0 to 1 works"),
        (Kind.RANKING, torch.randn(1, 2), torch.tensor([[0, -1]]), "relevance goes down to -1; 0 or more works"),
        (Kind.SEGMENTATION, torch.randn(1, 2, 3, 3), torch.full((1, 3, 3), 2), "0 to 1 works"),
        (Kind.HEATMAP, torch.randn(1, 2, 3, 3), torch.zeros(1, 2, 2), r"targets have the shape \(1, 2, 2\)"),
        (Kind.HEATMAP, torch.randn(1, 1, 3, 3), torch.tensor([[[1, 1, 1, 0]]]), "scale goes down to 0; above 0 works"),
        (Kind.SPAN, torch.randn(1, 5, 2), torch.tensor([[3, 1]]), "starts at 3 and ends at 1; start <= end works"),
        (Kind.SPAN, torch.randn(1, 5, 2), torch.tensor([[3, 5]]), "0 to 4 works"),
        (Kind.TOKENS, torch.randn(1, 2, 5), torch.tensor([[1, 5]]), "0 to 4 works"),
    ],
)
def test_targets_out_of_range(kind: Kind, outputs: Tensor, targets: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{kind} predictions: .*{message}"):
        check_predictions(kind, outputs, targets)


def test_the_scale_of_a_joint_that_is_left_out_is_not_read() -> None:
    targets = torch.tensor([[[1, 1, 0, 0], [1, 1, IGNORE_INDEX, 0], [1, 1, 1, 4]]])
    check_predictions(Kind.HEATMAP, torch.randn(1, 3, 3, 3), targets)


@pytest.mark.parametrize(
    ("kind", "outputs", "targets"),
    [
        (Kind.BINARY, PROBABILITIES, LABELS),
        (Kind.MULTILABEL, PROBABILITIES.view(8, 5), LABELS.view(8, 5)),
        (Kind.MULTICLASS, torch.eye(4), torch.arange(4)),
        (Kind.SEGMENTATION, torch.full((1, 2, 2, 2), 0.5) + torch.tensor([0.1, -0.1]).view(2, 1, 1), LABELS[:4]),
        (Kind.TOKENS, torch.eye(4)[None], torch.arange(4)[None]),
    ],
)
def test_probabilities_are_refused_unless_they_are_read(kind: Kind, outputs: Tensor, targets: Tensor) -> None:
    targets = targets.view(1, 2, 2) if kind is Kind.SEGMENTATION else targets
    with pytest.raises(ValueError, match=r"probabilit.* raw scores \(logits\) work: torch\.log"):
        check_predictions(kind, outputs, targets)
    check_predictions(kind, outputs, targets, want_scores=False)
    check_predictions(kind, 10 * outputs - 3, targets)


def test_scores_in_a_narrow_range_may_be_honest() -> None:
    with pytest.warns(UserWarning, match=r"all outputs lie between 0\.00\d+ and 0\.\d+; they are read as raw scores"):
        check_predictions(Kind.BINARY, PROBABILITIES * 0.4, LABELS)
    with pytest.warns(UserWarning, match="they are read as raw scores"):
        check_predictions(Kind.BINARY, PROBABILITIES[:10], LABELS[:10])  # no proof, but none of them is negative
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_predictions(Kind.BINARY, PROBABILITIES[:5], LABELS[:5])  # too few to tell
        check_predictions(Kind.BINARY, torch.zeros(40), LABELS)  # a model that has not learned yet


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16])
def test_unsigned_targets_are_refused(dtype: torch.dtype) -> None:
    """-100 wraps around to 156 there, and class 156 would silently be left out."""
    targets = torch.tensor([156, 3]).to(dtype)
    with pytest.raises(ValueError, match=r"targets are torch\.uint\d+; signed integers work: targets\.long\(\)"):
        check_predictions(Kind.MULTICLASS, torch.randn(2, 200), targets)


def test_bool_targets_are_labels() -> None:
    check_predictions(Kind.BINARY, torch.tensor([2.0, -1.0]), torch.tensor([True, False]))


def test_names_of_kinds() -> None:
    assert parse_kind("span") is parse_kind(Kind.SPAN) is Kind.SPAN
    with pytest.raises(ValueError, match="'binry' is not a kind of predictions; kinds are binary, multiclass, "):
        parse_kind("binry")
