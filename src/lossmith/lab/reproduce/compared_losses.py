"""The losses of a comparison by name: ``ce``, ``2ce``, ``accuracy``, ``ce+accuracy``, ``ce+3accuracy``.

A number in front multiplies. Behind a ``+`` comes what is added to a base loss: brought to the gradient norm of the
base in each batch, and held back for the first steps (:func:`~lossmith.combining.combine`). Twice cross-entropy is the
control: whatever a sum gains must be more than what longer steps gain.

>>> compared_loss("ce+3accuracy", "multiclass", warmup_steps=10)
CombinedLoss(
  weight=3.0, warmup_steps=10
  (learned): ReLoss(
    metric=accuracy, kind=multiclass, ...
"""

from __future__ import annotations

import re

from lossmith.baselines import LOSSES, find_loss
from lossmith.combining import combine
from lossmith.lab.comparing.stack_losses import Mix, OfStack, on_stack
from lossmith.vocabulary import Kind, Loss
from lossmith.weights import load, shipped

PART = re.compile(r"(?P<weight>\d*\.?\d*)(?P<name>[a-z]\w*)")


def compared_loss(name: str, kind: Kind | str, *, warmup_steps: int = 0) -> Loss:
    """A new loss at each call: sums count their steps."""
    base_name, _, added_name = name.partition("+")
    weight, base = _part(base_name, kind)
    base = base if weight == 1 else _times(weight, base)
    if not added_name:
        return base
    weight, added = _part(added_name, kind)
    return combine(base, added, weight=weight, warmup_steps=warmup_steps)


def compared_on_stack(name: str, kind: Kind | str, *, warmup_steps: int = 0) -> OfStack:
    """The same for many models at once, ``[M, N, ...]`` to ``[M]``; it counts its steps."""
    base_name, _, added_name = name.partition("+")
    base = on_stack(compared_loss(base_name, kind))
    if not added_name:
        return base
    weight, added = _part(added_name, kind)
    return Mix(base, on_stack(added), weight=weight, warmup_steps=warmup_steps).of_stack


def _part(name: str, kind: Kind | str) -> tuple[float, Loss]:
    match = PART.fullmatch(name)
    if match is None or match["name"] not in [*LOSSES, *shipped()]:
        raise ValueError(f"{name!r} is no loss of a comparison; {', '.join([*LOSSES, *shipped()])} work.")
    loss = load(match["name"]) if match["name"] in shipped() else find_loss(match["name"], kind)
    return float(match["weight"] or 1), loss


def _times(weight: float, loss: Loss) -> Loss:
    return lambda outputs, targets: weight * loss(outputs, targets)
