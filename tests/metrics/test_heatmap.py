from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from lossmith.kinds import Kind
from lossmith.metrics import heatmap
from lossmith.vocabulary import Metric
from tests.metrics.samples import sample

METRICS = {
    **heatmap.TABLE,
    "pck_of_box": heatmap.pck(alpha=0.2, reference="box"),
    "pck_of_heatmap": heatmap.pck(alpha=0.2, reference="heatmap"),
    "pck_shifted": heatmap.pck(alpha=0.1, quarter_shift=True),
    "oks_sigmas": heatmap.oks(sigmas=(0.05, 0.1, 0.2, 0.3, 0.4), quarter_shift=True),
}
every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())


@pytest.fixture
def stack(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """6 sets of 4 people with 5 joints; scales differ, some joints are invisible or left out, one person is."""
    outputs, targets = sample(Kind.HEATMAP, set_size=4, generator=generator, ignored_share=0.1)
    outputs = torch.nn.functional.pad(outputs, (0, 3))  # wider than high
    scale = 1 + 7 * torch.rand(targets.shape[:-1], generator=generator)
    targets[..., 3] = scale.where(targets[..., 3] != -100, -100)
    targets[0, 2, 3, 0] = targets[0, 3, 1, 3] = -100  # one column alone leaves the joint out
    targets[1, 1, :, 2] = 0
    return outputs, targets


def peak_of(pixels: np.ndarray, quarter_shift: bool) -> tuple[float, float]:
    y, x = np.unravel_index(pixels.argmax(), pixels.shape)
    dx = dy = 0.0
    if quarter_shift and 0 < x < pixels.shape[1] - 1:
        dx = 0.25 * np.sign(pixels[y, x + 1] - pixels[y, x - 1])
    if quarter_shift and 0 < y < pixels.shape[0] - 1:
        dy = 0.25 * np.sign(pixels[y + 1, x] - pixels[y - 1, x])
    return x + dx, y + dy


def people(outputs: Tensor, targets: Tensor, quarter_shift: bool) -> list[dict[str, Any]]:
    """Joint by joint in numpy: the visible joints of each person that has some."""
    found = []
    for heatmaps, joints in zip(outputs.double().numpy(), targets.double().numpy()):
        keep = [k for k, joint in enumerate(joints) if joint[2] > 0 and -100 not in joint]
        if keep:
            peaks = np.array([peak_of(heatmaps[k], quarter_shift) for k in keep])
            distances = np.hypot(*(peaks - joints[keep, :2]).T)
            found.append({"index": keep, "distance": distances, "joints": joints[keep]})
    return found


@pytest.mark.parametrize("quarter_shift", [False, True])
@pytest.mark.parametrize("reference", [None, "scale", "box", "heatmap"])
@pytest.mark.parametrize("num_columns", [3, 4])
def test_pck_counts_the_joints_in_reach(
    stack: tuple[Tensor, Tensor], reference: heatmap.Reference | None, quarter_shift: bool, num_columns: int
) -> None:
    stack = (stack[0], stack[1][..., :num_columns])
    metric = heatmap.pck(alpha=0.23, reference=reference, quarter_shift=quarter_shift)
    if num_columns == 3 and reference == "scale":
        with pytest.raises(ValueError, match="fourth column"):
            metric.value(*stack)
        return
    for outputs, targets, value in zip(*stack, metric.value(*stack)):
        is_found: list[bool] = []
        for person in people(outputs, targets, quarter_shift):
            length = np.full(len(person["index"]), 11.0)
            if reference == "box":
                length[:] = np.ptp(person["joints"][:, :2], axis=0).max()
            elif reference != "heatmap" and num_columns == 4:
                length = person["joints"][:, 3]
            is_found += list(person["distance"] <= 0.23 * length)
        assert value.item() == pytest.approx(np.mean(is_found), abs=1e-6)


@pytest.mark.parametrize("sigmas", [0.067, (0.05, 0.1, 0.2, 0.3, 0.4)])
@pytest.mark.parametrize("num_columns", [3, 4])
def test_oks_is_the_formula_of_coco(
    stack: tuple[Tensor, Tensor], sigmas: float | tuple[float, ...], num_columns: int
) -> None:
    stack = (stack[0], stack[1][..., :num_columns])
    for outputs, targets, value in zip(*stack, heatmap.oks(sigmas=sigmas).value(*stack)):
        similarities = []
        for person in people(outputs, targets, quarter_shift=False):
            area = person["joints"][:, 3] ** 2 if num_columns == 4 else 8 * 11
            variance = (2 * np.broadcast_to(sigmas, 5)[person["index"]]) ** 2
            similarities.append(np.exp(-(person["distance"] ** 2) / (2 * area * variance)).mean())
        assert value.item() == pytest.approx(np.mean(similarities), abs=1e-6)


def test_pckh_is_pck_of_the_scale(stack: tuple[Tensor, Tensor]) -> None:
    outputs, targets = stack
    for one_outputs, one_targets, value in zip(outputs, targets, heatmap.pckh().value(outputs, targets)):
        found = [
            distance <= 0.5 * joint[3]
            for person in people(one_outputs, one_targets, False)
            for distance, joint in zip(person["distance"], person["joints"])
        ]
        assert value.item() == pytest.approx(np.mean(found), abs=1e-6)
    assert_close(heatmap.pckh().value(outputs, targets), heatmap.pck(alpha=0.5).value(outputs, targets))
    with pytest.raises(ValueError, match="fourth column"):
        heatmap.pckh()(outputs[0], targets[0, ..., :3])


def test_a_joint_at_the_limit_is_found() -> None:
    outputs = torch.zeros(1, 1, 9, 9)
    outputs[0, 0, 4, 3] = 1.0  # 3-4-5 triangle from the origin
    for scale, expected in ((10.0, 1.0), (9.99, 0.0)):
        assert heatmap.pckh(alpha=0.5)(outputs, torch.tensor([[[0.0, 0.0, 1.0, scale]]])) == expected


def test_peaks() -> None:
    heatmaps = torch.zeros(4, 3, 5)
    heatmaps[0, 1, 3] = 3.0
    heatmaps[0, 1, 2] = 2.0  # left of the peak
    heatmaps[0, 2, 3] = 1.0  # below it
    heatmaps[1, 0, 4] = 3.0  # in a corner: no two neighbours either way
    heatmaps[1, 0, 3] = 2.0
    heatmaps[2] = -heatmaps[0] - 7  # below zero, and the first of many equal ones
    heatmaps[3, 2, 0] = heatmaps[3, 1, 1] = 1e4
    expected = torch.tensor([[3.0, 1.0], [4.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    assert_close(heatmap.find_peaks(heatmaps), expected)
    shifted = torch.tensor([[2.75, 1.25], [4.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    assert_close(heatmap.find_peaks(heatmaps, quarter_shift=True), shifted)


@every_metric
def test_stack_is_its_sets(metric: Metric, stack: tuple[Tensor, Tensor]) -> None:
    alone = torch.stack([metric(outputs, targets) for outputs, targets in zip(*stack)])
    assert_close(metric.value(*stack), alone)


@every_metric
def test_order_of_people_does_not_matter(metric: Metric, stack: tuple[Tensor, Tensor]) -> None:
    outputs, targets = stack
    order = torch.tensor([2, 0, 3, 1])
    value = metric.value(outputs, targets)
    assert_close(metric.value(outputs[:, order], targets[:, order]), value)
    assert_close(metric.value(outputs * 4 - 2, targets), value)


@every_metric
def test_higher_is_better(metric: Metric, stack: tuple[Tensor, Tensor], generator: torch.Generator) -> None:
    _, targets = stack
    x, y = targets[..., 0, None, None], targets[..., 1, None, None]
    columns, rows = torch.arange(8.0), torch.arange(8.0)[:, None]
    perfect = -((columns - x) ** 2 + (rows - y) ** 2)
    noise = torch.randn(perfect.shape, generator=generator)
    assert (metric.value(perfect, targets) == 1).all()
    costs = [metric.cost(perfect + share * noise, targets).mean() for share in (0.0, 3.0, 100.0)]
    assert costs[0] < costs[1] < costs[2]


@every_metric
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(metric: Metric, dtype: torch.dtype, stack: tuple[Tensor, Tensor]) -> None:
    outputs, targets = stack
    outputs = outputs.bfloat16().half().float()  # what all of them can hold
    value = metric.value(outputs.to(dtype), targets)
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert_close(value.float(), metric.value(outputs, targets), atol=1e-6, rtol=0)
    if metric.name != "pckh":
        whole = targets[..., :3].long()
        assert_close(metric.value(outputs, whole.to(torch.int16)), metric.value(outputs, whole.float()))


@every_metric
def test_undefined_is_nan(metric: Metric) -> None:
    outputs = torch.full((1, 5, 1, 1), -1e4)
    targets = torch.tensor([0.0, 0.0, 1.0, 2.0]).expand(1, 5, 4)
    assert metric(outputs, targets) == 1
    assert metric(outputs, targets * torch.tensor([1.0, 1.0, 0.0, 1.0])).isnan()
    assert metric(outputs, torch.full_like(targets, -100)).isnan()


def test_options_that_do_not_exist(stack: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(ValueError, match="alpha=0"):
        heatmap.pck(alpha=0)
    with pytest.raises(ValueError, match="'scale', 'box', 'heatmap' and None work"):
        heatmap.pck(reference="torso")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="above 0"):
        heatmap.oks(sigmas=(0.1, 0.0))
    with pytest.raises(ValueError, match="17 sigmas came with heatmaps of 5 joints"):
        heatmap.oks(sigmas=heatmap.COCO_SIGMAS).value(*stack)
