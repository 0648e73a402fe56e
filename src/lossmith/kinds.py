"""What predictions look like: nine kinds, and the check at the door.

Shape legend, everywhere in this package:
``S`` sets in a stack, ``N`` predictions in a set, ``C`` classes, ``L`` labels, ``Q`` queries, ``D`` documents (or the
width of an embedding), ``H W`` height and width, ``K`` joints, ``T`` positions in a sequence, ``V`` vocabulary.

``outputs`` are raw scores and always come first, ``targets`` second. A *set* is the group of predictions on which a
metric is one number; a *stack* puts several sets of one size behind each other, along a new first dimension.

>>> import torch
>>> check_predictions(Kind.BINARY, torch.randn(8), torch.ones(8, 1))
Traceback (most recent call last):
    ...
ValueError: binary predictions: targets have the shape (8, 1); one set is outputs [N] with targets [N].
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

IGNORE_INDEX = -100
"""A target with this value is left out: padding of ragged sets, unlabelled pixels, missing joints."""


class Kind(str, Enum):
    """What the outputs and targets of one set look like; :data:`LAYOUTS` has the shapes."""

    BINARY = "binary"
    MULTICLASS = "multiclass"
    MULTILABEL = "multilabel"
    RANKING = "ranking"
    EMBEDDING = "embedding"
    SEGMENTATION = "segmentation"
    HEATMAP = "heatmap"
    SPAN = "span"
    TOKENS = "tokens"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Layout:
    """Shapes of ONE set. Equal letters stand for equal sizes; a digit is a size itself."""

    outputs: tuple[str, ...]
    targets: tuple[str, ...]

    def __str__(self) -> str:
        return f"outputs [{', '.join(self.outputs)}] with targets [{', '.join(self.targets)}]"


LAYOUTS: dict[Kind, Layout] = {
    Kind.BINARY: Layout(("N",), ("N",)),
    Kind.MULTICLASS: Layout(("N", "C"), ("N",)),
    Kind.MULTILABEL: Layout(("N", "L"), ("N", "L")),
    Kind.RANKING: Layout(("Q", "D"), ("Q", "D")),
    Kind.EMBEDDING: Layout(("N", "D"), ("N",)),
    Kind.SEGMENTATION: Layout(("N", "C", "H", "W"), ("N", "H", "W")),
    Kind.HEATMAP: Layout(("N", "K", "H", "W"), ("N", "K", "3 or 4")),
    Kind.SPAN: Layout(("N", "T", "2"), ("N", "2")),
    Kind.TOKENS: Layout(("N", "T", "V"), ("N", "T")),
}

CLASS_DIM: dict[Kind, int | None] = {
    Kind.BINARY: None,
    Kind.MULTILABEL: None,
    Kind.MULTICLASS: -1,
    Kind.SEGMENTATION: -3,
    Kind.TOKENS: -1,
    Kind.SPAN: -2,
}
"""The dimension of outputs along which classes (in a span: positions) compete; None where each score stands alone.
Kinds whose targets are no labels are not listed."""


def parse_kind(kind: Kind | str) -> Kind:
    """The kind of that name, or an error that lists the names."""
    try:
        return Kind(kind)
    except ValueError:
        names = ", ".join(member.value for member in Kind)
        raise ValueError(f"{kind!r} is not a kind of predictions; kinds are {names}.") from None


def check_predictions(
    kind: Kind, outputs: Tensor, targets: Tensor, *, is_stack: bool = False, want_scores: bool = True
) -> None:
    """Raise a ``ValueError`` that names what came and what works, unless this is one set (or a stack) of ``kind``.

    Reads the values, so it belongs at the door of an evaluation and not on a training step's hot path.
    ``want_scores=False`` lets probabilities pass, for metrics that are told where their threshold is.
    """
    for name, tensor in (("outputs", outputs), ("targets", targets)):
        if not isinstance(tensor, Tensor):
            raise ValueError(
                f"{kind} predictions: {name} came as {type(tensor).__name__}; a torch.Tensor works (torch.as_tensor)."
            )
    _check_shapes(kind, outputs, targets, is_stack)
    if not outputs.is_floating_point() or outputs.element_size() == 1:
        raise ValueError(
            f"{kind} predictions: outputs are {outputs.dtype}; raw scores in floating point, of 16 bits or more, work."
        )
    if not bool(torch.isfinite(outputs).all()):
        num_bad = int((~torch.isfinite(outputs)).sum())
        raise ValueError(f"{kind} predictions: {num_bad} of {outputs.numel()} outputs are NaN or infinite.")
    _check_targets(kind, outputs, targets)
    if want_scores:
        _check_scores(kind, outputs)


def _check_shapes(kind: Kind, outputs: Tensor, targets: Tensor, is_stack: bool) -> None:
    layout = LAYOUTS[kind]
    what = "a stack is the same with S sets in front of" if is_stack else "one set is"
    sizes: dict[str, int] = {}
    for name, tensor, letters in (("outputs", outputs, layout.outputs), ("targets", targets, layout.targets)):
        shape = tuple(tensor.shape)
        complaint = f"{kind} predictions: {name} have the shape {shape}; {what} {layout}."
        if len(shape) != len(letters) + is_stack:
            raise ValueError(complaint)
        if is_stack and sizes.setdefault("S", shape[0]) != shape[0]:
            raise ValueError(f"{kind} predictions: {sizes['S']} sets of outputs came with {shape[0]} sets of targets.")
        for letter, size in zip(letters, shape[is_stack:]):
            if letter[0].isdigit():
                if str(size) not in letter.split(" or "):
                    raise ValueError(complaint)
            elif sizes.setdefault(letter, size) != size:
                raise ValueError(
                    f"{kind} predictions: outputs {tuple(outputs.shape)} and targets {tuple(targets.shape)} "
                    f"differ in {letter} ({sizes[letter]} and {size}); {what} {layout}."
                )
    if outputs.numel() == 0:
        raise ValueError(f"{kind} predictions: outputs have the shape {tuple(outputs.shape)}: the set is empty.")


def _check_targets(kind: Kind, outputs: Tensor, targets: Tensor) -> None:
    if targets.is_complex() or (targets.is_floating_point() and not bool(torch.isfinite(targets).all())):
        raise ValueError(f"{kind} predictions: targets hold NaN, infinite or complex values.")
    if not targets.dtype.is_signed and targets.dtype != torch.bool:
        # unsigned, -100 is 156: a class would count as left out
        raise ValueError(f"{kind} predictions: targets are {targets.dtype}; signed integers work: targets.long().")
    if kind is Kind.HEATMAP:  # coordinates: any real numbers
        is_read = (targets[..., 2] > 0) & (targets != IGNORE_INDEX).all(-1)
        scales = targets[is_read][:, 3:]
        if scales.numel() > 0 and bool((scales <= 0).any()):
            raise ValueError(f"heatmap predictions: scale goes down to {scales.min().item():g}; above 0 works.")
        return
    kept = targets[targets != IGNORE_INDEX]
    if kept.numel() == 0:
        return
    low, high = kept.min().item(), kept.max().item()
    if kind is Kind.RANKING:
        if low < 0:
            raise ValueError(f"ranking predictions: relevance goes down to {low:g}; 0 or more works.")
        return
    if kept.is_floating_point() and bool((kept != kept.round()).any()):
        example = kept[kept != kept.round()][0].item()
        raise ValueError(f"{kind} predictions: targets hold {example:g}; whole numbers work (no soft labels).")
    if kind is Kind.EMBEDDING:
        return  # identities: any whole numbers
    num_values = 2
    if kind in (Kind.MULTICLASS, Kind.SEGMENTATION):
        num_values = outputs.shape[LAYOUTS[kind].outputs.index("C") - len(LAYOUTS[kind].outputs)]
    elif kind is Kind.SPAN:
        num_values = outputs.shape[-2]
        is_backwards = (targets[..., 0] > targets[..., 1]) & (targets != IGNORE_INDEX).all(-1)
        if bool(is_backwards.any()):
            start, end = targets[is_backwards][0].tolist()
            raise ValueError(f"span predictions: a target starts at {start:g} and ends at {end:g}; start <= end works.")
    elif kind is Kind.TOKENS:
        num_values = outputs.shape[-1]
    if low < 0 or high >= num_values:
        raise ValueError(
            f"{kind} predictions: targets go from {low:g} to {high:g}; "
            f"0 to {num_values - 1} works, and {IGNORE_INDEX} for what is left out."
        )


def _check_scores(kind: Kind, outputs: Tensor) -> None:
    """Probabilities where scores are due: an error when there is no doubt, a warning when there is."""
    if kind not in (Kind.BINARY, Kind.MULTICLASS, Kind.MULTILABEL, Kind.SEGMENTATION, Kind.TOKENS):
        return
    low, high = outputs.min().item(), outputs.max().item()
    if low < 0 or high > 1 or low == high:
        return
    if kind in (Kind.BINARY, Kind.MULTILABEL):
        # logits of a real model that stay inside [0, 1] and yet spread over half of it do not happen by chance
        # in a set of some size; a small or narrow set may well be honest, but is worth a word
        if outputs.numel() >= 20 and high - low > 0.5:
            raise ValueError(
                f"{kind} predictions: all {outputs.numel()} outputs lie between {low:.3g} and {high:.3g}: these are "
                "probabilities; raw scores (logits) work: torch.logit(probabilities)."
            )
        if outputs.numel() >= 8:
            warnings.warn(
                f"{kind} predictions: all outputs lie between {low:.3g} and {high:.3g}; they are read as raw scores "
                "(logits), not as probabilities.",
                stacklevel=4,
            )
        return
    class_dim = -1 if kind in (Kind.MULTICLASS, Kind.TOKENS) else -3
    if outputs.shape[class_dim] > 1 and bool(((outputs.sum(class_dim) - 1).abs() < 1e-3).all()):
        raise ValueError(
            f"{kind} predictions: every row of outputs is a probability distribution (0 to 1, sum 1); "
            "raw scores (logits) work: torch.log(probabilities)."
        )
