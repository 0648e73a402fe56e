from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix
from torch import Tensor
from torch.testing import assert_close
from torchmetrics.functional import jaccard_index
from torchmetrics.functional.segmentation import dice_score, mean_iou

from lossmith.kinds import Kind
from lossmith.metrics import segmentation
from lossmith.vocabulary import Metric
from tests.metrics.samples import sample

METRICS = {
    **segmentation.TABLE,
    "miou_per_image": segmentation.miou(per_image=True),
    "miou_foreground": segmentation.miou(include_background=False),
    "dice_per_image_foreground": segmentation.dice(per_image=True, include_background=False),
    "pixel_accuracy_per_image": segmentation.pixel_accuracy(per_image=True),
}
every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())
NUM_CLASSES = 3


@pytest.fixture
def stack(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """5 sets of 4 images with unlabelled pixels; one image has none, and class 2 is nowhere in the first set."""
    outputs, targets = sample(Kind.SEGMENTATION, num_sets=5, set_size=4, generator=generator, ignored_share=0.2)
    targets[3, 1] = -100
    targets[0] = targets[0].clamp(max=1)
    outputs[0, :, 2] = -50.0
    return outputs, targets


@pytest.mark.parametrize("include_background", [True, False])
@pytest.mark.parametrize("per_image", [True, False])
def test_values_are_those_of_a_confusion_matrix(
    stack: tuple[Tensor, Tensor], per_image: bool, include_background: bool
) -> None:
    """Of scikit-learn, image by image or all in one."""

    def values(outputs: Tensor, targets: Tensor) -> tuple[float, float, float]:
        is_kept = targets != -100
        if not is_kept.any():
            return (np.nan,) * 3
        predicted = outputs.argmax(1)[is_kept]
        matrix = confusion_matrix(targets[is_kept], predicted, labels=range(NUM_CLASSES)).astype(float)
        total = matrix.sum(0) + matrix.sum(1)
        right = matrix.diagonal()
        classes = np.flatnonzero(total) if include_background else np.flatnonzero(total[1:]) + 1
        iou, dice = right[classes] / (total - right)[classes], 2 * right[classes] / total[classes]
        return iou.mean(), dice.mean(), right.sum() / matrix.sum()

    for number, (outputs, targets) in enumerate(zip(*stack)):
        images = [(outputs, targets)] if not per_image else [(o[None], t[None]) for o, t in zip(outputs, targets)]
        expected = np.nanmean([values(*image) for image in images], axis=0)
        for metric, right_value in zip(
            (
                segmentation.miou(per_image=per_image, include_background=include_background),
                segmentation.dice(per_image=per_image, include_background=include_background),
                segmentation.pixel_accuracy(per_image=per_image),
            ),
            expected,
        ):
            assert metric.value(*stack)[number].item() == pytest.approx(right_value, abs=1e-6)


@pytest.mark.parametrize("include_background", [True, False])
def test_values_are_those_of_torchmetrics(generator: torch.Generator, include_background: bool) -> None:
    outputs, targets = sample(Kind.SEGMENTATION, generator=generator)
    predicted = outputs.argmax(2)
    options = {"num_classes": NUM_CLASSES, "include_background": include_background, "input_format": "index"}
    assert_close(
        segmentation.miou(per_image=True, include_background=include_background).value(outputs, targets),
        torch.stack([mean_iou(p, t, **options).mean() for p, t in zip(predicted, targets)]),
        atol=1e-6,
        rtol=0,
    )
    for per_image, level in ((True, "samplewise"), (False, "global")):
        assert_close(
            segmentation.dice(per_image=per_image, include_background=include_background).value(outputs, targets),
            torch.stack(
                [dice_score(p, t, aggregation_level=level, **options).mean() for p, t in zip(predicted, targets)]
            ),
            atol=1e-6,
            rtol=0,
        )


def test_miou_is_torchmetrics_jaccard_index(stack: tuple[Tensor, Tensor]) -> None:
    expected = [jaccard_index(o, t, "multiclass", num_classes=3, ignore_index=-100) for o, t in zip(*stack)]
    assert_close(segmentation.miou().value(*stack), torch.stack(expected), atol=1e-6, rtol=0)


def test_absent_classes_are_left_out_and_predicted_ones_are_not() -> None:
    outputs = torch.nn.functional.one_hot(torch.tensor([[[0, 0, 1, 1]]]), 4).movedim(-1, 1) * 9.0
    assert segmentation.miou()(outputs, torch.tensor([[[0, 0, 1, 1]]])) == 1
    # class 0: 2 of 2; class 1: 1 of 2; class 2: 0 of 1
    assert_close(segmentation.miou()(outputs, torch.tensor([[[0, 0, 1, 2]]])), torch.tensor(1.5 / 3))
    # what is predicted on unlabelled pixels is nobody's concern
    assert segmentation.miou()(outputs, torch.tensor([[[0, 0, 1, -100]]])) == 1


@every_metric
def test_stack_is_its_sets(metric: Metric, stack: tuple[Tensor, Tensor]) -> None:
    alone = torch.stack([metric(outputs, targets) for outputs, targets in zip(*stack)])
    assert_close(metric.value(*stack), alone)


@every_metric
def test_order_does_not_matter(metric: Metric, stack: tuple[Tensor, Tensor], generator: torch.Generator) -> None:
    outputs, targets = stack
    images, rows = torch.randperm(4, generator=generator), torch.randperm(4, generator=generator)
    value = metric.value(outputs, targets)
    assert_close(metric.value(outputs[:, images][..., rows, :], targets[:, images][..., rows, :]), value)
    assert_close(metric.value(outputs * 64 + 8, targets), value)


@every_metric
def test_higher_is_better(metric: Metric, generator: torch.Generator) -> None:
    _, targets = sample(Kind.SEGMENTATION, generator=generator)
    perfect = torch.nn.functional.one_hot(targets, NUM_CLASSES).movedim(-1, 2).float()
    noise = torch.randn(perfect.shape, generator=generator)
    assert (metric.value(perfect, targets) == 1).all()
    costs = [metric.cost(perfect + share * noise, targets) for share in (0.0, 0.7, 10.0)]
    assert (costs[0] < costs[1]).all()
    assert (costs[1] < costs[2]).all()


@every_metric
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(metric: Metric, dtype: torch.dtype, stack: tuple[Tensor, Tensor]) -> None:
    outputs, targets = stack
    outputs = outputs.bfloat16().half().float()  # what all of them can hold
    value = metric.value(outputs.to(dtype), targets)
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert_close(value.float(), metric.value(outputs, targets), atol=1e-6, rtol=0)
    assert_close(metric.value(outputs, targets.bfloat16()), metric.value(outputs, targets))


@every_metric
def test_undefined_is_nan(metric: Metric) -> None:
    outputs = torch.tensor([1e4, -1e4]).view(1, 2, 1, 1)
    assert metric(outputs, torch.tensor([[[-100]]])).isnan()
    assert metric(outputs, torch.tensor([[[1]]])) == 0


def test_one_pixel_of_background() -> None:
    outputs, targets = torch.tensor([1e4, -1e4]).view(1, 2, 1, 1), torch.tensor([[[0]]])
    for metric in segmentation.TABLE.values():
        assert metric(outputs, targets) == 1
    assert segmentation.miou(include_background=False)(outputs, targets).isnan()
