"""Squared error of heatmaps: by hand, on joints that are not there, and downhill."""

from __future__ import annotations

import math

import pytest
import torch

from lossmith.baselines import find_loss, heatmap_squared_error
from lossmith.baselines.gaussian_heatmaps import gaussian_heatmaps
from lossmith.kinds import IGNORE_INDEX, Kind
from lossmith.metrics import METRICS
from tests.metrics.samples import sample


def test_by_hand() -> None:
    outputs = torch.zeros(1, 3, 2, 2)
    outputs[0, 1] = 0.5
    joints = torch.tensor([[[0.0, 0.0, 1.0], [1.0, 0.0, 2.0], [1.0, 1.0, 0.0]]])
    near, far = math.exp(-1 / 8), math.exp(-2 / 8)  # sigma = 2: at distances 1 and sqrt 2
    first = (1 + 2 * near**2 + far**2) / 4
    second = (0.25 + 2 * (near - 0.5) ** 2 + (far - 0.5) ** 2) / 4
    value = heatmap_squared_error("heatmap")(outputs, joints)
    assert float(value) == pytest.approx((first + second) / 2)


def test_its_own_target_is_best_and_found_by_the_metric(generator: torch.Generator) -> None:
    _, targets = (stack[0] for stack in sample(Kind.HEATMAP, generator=generator))
    perfect = gaussian_heatmaps(targets, height=8, width=8, sigma=2.0)
    loss = find_loss("heatmap_mse", "heatmap")
    assert loss(perfect, targets) == 0
    assert float(METRICS["pck"](perfect, targets)) == 1
    assert loss(perfect + 0.1, targets) > 0


def test_gradient_and_what_is_left_out(generator: torch.Generator) -> None:
    outputs, targets = (stack[0] for stack in sample(Kind.HEATMAP, set_size=3, generator=generator, ignored_share=0.3))
    is_left_out = (targets == IGNORE_INDEX).any(-1) | (targets[..., 2] == 0)
    assert is_left_out.any()
    loss, scores = find_loss("heatmap_mse", "heatmap"), outputs.clone().requires_grad_()
    loss(scores, targets).backward()
    assert scores.grad is not None
    assert (scores.grad[is_left_out] == 0).all()
    small = outputs[:1, :2, :3, :3].double().requires_grad_()
    assert torch.autograd.gradcheck(lambda scores: loss(scores, targets[:1, :2].clamp(max=2)), small)
    assert loss((outputs - 0.1 * scores.grad / scores.grad.norm()), targets) < loss(outputs, targets)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_finite_everywhere(dtype: torch.dtype, generator: torch.Generator) -> None:
    outputs, targets = (stack[0] for stack in sample(Kind.HEATMAP, generator=generator, ignored_share=0.3))
    nobody = torch.full_like(targets, IGNORE_INDEX)
    loss = find_loss("heatmap_mse", "heatmap")
    for heatmaps, joints in (
        (outputs, targets),
        (1e4 * outputs.sign(), targets),
        (torch.zeros_like(outputs), targets),
        (outputs[:1], targets[:1]),
        (outputs, targets + 1e6),  # far outside
        (outputs, nobody),
    ):
        scores = heatmaps.to(dtype, copy=True).requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype is torch.bfloat16):
            value = loss(scores, joints)
        value.backward()
        assert value.isfinite()
        assert value.dtype == dtype
        assert scores.grad is not None
        assert scores.grad.isfinite().all()
    assert value == 0
    assert (scores.grad == 0).all()


def test_mistakes() -> None:
    with pytest.raises(ValueError, match="binary predictions came"):
        heatmap_squared_error("binary")
    with pytest.raises(ValueError, match="sigma=0"):
        heatmap_squared_error("heatmap", sigma=0)
