"""Heatmaps: the highest pixel of each joint's heatmap, and how far it lies from the joint.

Targets are ``x, y, visible`` and, where the data have it, ``scale`` per joint, in pixels of the *heatmap* (not of the
image). A joint with ``visible`` 0, or with -100 in any column, is left out; a set without joints is NaN.

Distances are measured by a length: the ``scale`` column (head size for PCKh, torso or box for PCK, the square root of
the person's area for OKS) or, without it, the size of the heatmap, which is that of the cropped person.

>>> import torch
>>> outputs = torch.zeros(1, 2, 4, 4)
>>> outputs[0, 0, 1, 3] = outputs[0, 1, 2, 0] = 5.0  # at x=3 y=1 and at x=0 y=2
>>> targets = torch.tensor([[[3.0, 1.0, 1.0, 2.0], [2.0, 2.0, 1.0, 2.0]]])
>>> pckh(alpha=0.5)(outputs, targets)  # the second is off by 2, one is allowed
tensor(0.5000)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from lossmith.kinds import IGNORE_INDEX, Kind
from lossmith.metrics.counts import value_dtype
from lossmith.vocabulary import Metric

Reference = Literal["scale", "box", "heatmap"]

COCO_SIGMAS = (
    0.026, 0.025, 0.025, 0.035, 0.035, 0.079, 0.079, 0.072, 0.072,
    0.062, 0.062, 0.107, 0.107, 0.087, 0.087, 0.089, 0.089,
)  # fmt: skip
"""How far annotators differ on COCO's joints: nose, eyes, ears, shoulders, elbows, wrists, hips, knees, ankles."""


def pck(*, alpha: float = 0.05, reference: Reference | None = None, quarter_shift: bool = False) -> Metric:
    """Share of the joints of a set that are found within ``alpha`` times a reference length (PCK@alpha).

    The length is the ``"scale"`` column, the longer side of the ``"box"`` around the person's visible joints, or the
    longer side of the ``"heatmap"``; None takes the scale where there is one and the heatmap where not. The default
    alpha is that of ReLoss (section 5.1); measured by the box or the torso, 0.1 and 0.2 are usual.
    """
    if reference not in (None, "scale", "box", "heatmap"):
        raise ValueError(f"reference={reference!r} is unknown; 'scale', 'box', 'heatmap' and None work.")
    return _share_within("pck", alpha, reference, quarter_shift)


def pckh(*, alpha: float = 0.5, quarter_shift: bool = False) -> Metric:
    """PCK measured by the size of the head, which targets must hold as ``scale``."""
    return _share_within("pckh", alpha, "scale", quarter_shift)


def oks(*, sigmas: float | Sequence[float] = 0.067, quarter_shift: bool = False) -> Metric:
    """Object keypoint similarity of COCO: the mean over a person's joints of ``exp(-d² / (2 scale² (2 sigma)²))``.

    ``d`` is the distance and ``scale`` the square root of the person's area (of the heatmap's, without that column).
    ``sigmas`` is one number for all joints, by default the mean of :data:`COCO_SIGMAS`, or one for each joint. The
    set's value is the mean over its persons with a visible joint.
    """
    sigma_of_joint = torch.as_tensor(sigmas, dtype=torch.float64)
    if sigma_of_joint.ndim > 1 or bool((sigma_of_joint <= 0).any()):
        raise ValueError(f"sigmas={sigmas!r}: one number above 0 works, or one for each joint.")
    return Metric("oks", Kind.HEATMAP, partial(_oks, sigmas=sigma_of_joint, quarter_shift=quarter_shift))


class _Joints(NamedTuple):
    distance: Tensor
    is_visible: Tensor
    scale: Tensor | None


def _share_within(name: str, alpha: float, reference: Reference | None, quarter_shift: bool) -> Metric:
    if alpha <= 0:
        raise ValueError(f"alpha={alpha:g}; a share of the reference length above 0 works.")
    value = partial(_pck, alpha=alpha, reference=reference, quarter_shift=quarter_shift)
    return Metric(name, Kind.HEATMAP, value)


def _pck(outputs: Tensor, targets: Tensor, *, alpha: float, reference: Reference | None, quarter_shift: bool) -> Tensor:
    joints = _read(outputs, targets, quarter_shift)
    is_found = (joints.distance <= alpha * _length(outputs, targets, joints, reference)).to(joints.distance.dtype)
    return is_found.where(joints.is_visible, torch.nan).flatten(1).nanmean(-1)


def _length(outputs: Tensor, targets: Tensor, joints: _Joints, reference: Reference | None) -> Tensor | int:
    if reference == "box":
        return _longer_side(targets[..., :2].to(joints.distance.dtype), joints.is_visible).unsqueeze(-1)
    if reference == "heatmap" or (reference is None and joints.scale is None):
        return max(outputs.shape[-2:])
    if joints.scale is None:
        raise ValueError("this PCK is measured by the scale of each joint; targets came without that fourth column.")
    return joints.scale


def _longer_side(positions: Tensor, is_visible: Tensor) -> Tensor:
    """Of the box around the visible joints: ``[..., K, 2]`` to ``[...]``."""
    is_left_out = ~is_visible.unsqueeze(-1)
    high = positions.masked_fill(is_left_out, -torch.inf).amax(-2)
    low = positions.masked_fill(is_left_out, torch.inf).amin(-2)
    return (high - low).amax(-1)


def _oks(outputs: Tensor, targets: Tensor, *, sigmas: Tensor, quarter_shift: bool) -> Tensor:
    if sigmas.ndim == 1 and len(sigmas) != outputs.shape[2]:
        raise ValueError(f"{len(sigmas)} sigmas came with heatmaps of {outputs.shape[2]} joints.")
    joints = _read(outputs, targets, quarter_shift)
    height, width = outputs.shape[-2:]
    scale = (height * width) ** 0.5 if joints.scale is None else joints.scale
    error = joints.distance / (scale * 2 * sigmas.to(joints.distance))
    similarity = (-(error**2) / 2).exp().where(joints.is_visible, torch.nan)
    return similarity.nanmean(-1).nanmean(-1)


def find_peaks(heatmaps: Tensor, *, quarter_shift: bool = False) -> Tensor:
    """``[..., H, W]`` to ``x, y`` of the highest pixel ``[..., 2]``; of equally high ones, the first by rows.

    ``quarter_shift`` moves each coordinate by a quarter of a pixel towards the higher of the two neighbours, where
    there are two (Xiao et al. 2018, SimpleBaseline).
    """
    height, width = heatmaps.shape[-2:]
    pixels = heatmaps.flatten(-2)
    peak = pixels.argmax(-1, keepdim=True)
    x, y = peak % width, peak // width

    def shift(position: Tensor, size: int, stride: int) -> Tensor:
        before, after = (pixels.gather(-1, (peak + step).clamp(0, height * width - 1)) for step in (-stride, stride))
        return ((after - before).sign() / 4).where((position > 0) & (position < size - 1), 0)

    peaks = torch.cat([x, y], dim=-1).to(value_dtype(heatmaps))
    if not quarter_shift:
        return peaks
    return peaks + torch.cat([shift(x, width, 1), shift(y, height, width)], dim=-1)


def _read(outputs: Tensor, targets: Tensor, quarter_shift: bool) -> _Joints:
    peaks = find_peaks(outputs, quarter_shift=quarter_shift)
    joints = targets.to(peaks.dtype)
    distance = torch.linalg.vector_norm(peaks - joints[..., :2], dim=-1)
    is_visible = (joints[..., 2] > 0) & (joints != IGNORE_INDEX).all(-1)
    return _Joints(distance, is_visible, joints[..., 3] if joints.shape[-1] == 4 else None)


TABLE: dict[str, Metric] = {"pck": pck(), "pckh": pckh(), "oks": oks()}
