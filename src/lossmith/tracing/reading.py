"""Which operations on scores are decisions, and how each is read.

>>> score = as_score(torch.tensor([0.3, 2.0, -1.0]))
>>> decision, finish = read_decision(torch.max, "max", (score, 0), {})
>>> decision.outcome, finish(torch.tensor(2)).values  # what is seen if the last one had been chosen
(tensor(1), tensor(-1.))
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import torch
from torch import Tensor

from lossmith.tracing.decisions import Choice, Decision, Order, Threshold
from lossmith.tracing.operations import COMPARISONS
from lossmith.tracing.scores import Score, as_score


class Reading(Enum):
    """What scores that leave torch for NumPy are taken for; which it is shows when their decisions are replayed."""

    WINNERS = "the largest score of each row"
    ROWS = "the order of each row"
    COLUMNS = "the order of all rows, in each column"
    NOTHING = "numbers"


Finish = Callable[[Tensor], Any]
"""Outcome -> what the code sees as the result of the operation. The outcome may be lanes."""

LEAVING = "numpy"
# logits of thresholds at or beyond 0 and 1, which no probability crosses
MAX_LOGIT = 15.0


def read_decision(
    func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Decision, Finish] | None:
    """The decision that an operation on scores takes, or None if the operation is continuous."""
    read = _READERS.get(name)
    return None if read is None else read(func, name, args, kwargs)


def _argument(args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str, default: Any) -> Any:
    return args[position] if len(args) > position else kwargs.get(name, default)


def _threshold(
    name: str, comparisons: Tensor, outcome: Tensor, lower: Tensor | None = None, upper: Tensor | None = None
) -> tuple[Decision, Finish]:
    return Threshold(name, comparisons, outcome, lower=lower, upper=upper), lambda outcome: outcome


def _on_scale_of_logits(value: Any, like: Tensor) -> Tensor:
    """A score of unknown origin, or a constant, between probabilities."""
    if isinstance(value, Score) and value.origin is not None:
        return value.origin.logits()
    return (
        torch.as_tensor(value, dtype=like.dtype, device=like.device).logit().nan_to_num(0).clamp(-MAX_LOGIT, MAX_LOGIT)
    )


def _read_comparison(func: Any, name: str, args: Any, kwargs: Any) -> tuple[Decision, Finish]:
    left, right = args[0], _argument(args, kwargs, 1, "other", None)
    outcome = func(left, right)
    origins = [isinstance(side, Score) and side.origin is not None for side in (left, right)]
    is_constant = [not isinstance(side, Score) for side in (left, right)]
    if (origins[0] and (origins[1] or is_constant[1])) or (origins[1] and is_constant[0]):
        like = left if isinstance(left, Tensor) else right
        left, right = _on_scale_of_logits(left, like), _on_scale_of_logits(right, like)
    return _threshold(name, ((left - right) * COMPARISONS[name]).expand(outcome.shape), outcome)


def _read_step(func: Any, name: str, args: Any, kwargs: Any) -> tuple[Decision, Finish] | None:
    """Functions of one score that jump; a unit may go to the other side of the jump that is nearest."""
    outcome = func(*args, **kwargs)
    if name in ("to", "type", "type_as") and outcome.is_floating_point():
        return None
    score, rest = args[0], args[1:]
    if name in ("floor_divide", "floordiv"):
        score, rest, func = args[0] / args[1], (), torch.floor
    x = score.detach()
    if name in ("sign", "sgn", "heaviside"):
        jump = torch.zeros_like(x)
    elif name == "round":
        scale = 10 ** kwargs.get("decimals", 0)
        jump = (torch.floor(x * scale) + 0.5) / scale
    elif name in ("floor", "ceil", "floor_divide", "floordiv"):
        jump = x.round()
    else:  # towards zero: nothing happens there
        jump = x.round().where(x.abs() >= 0.5, torch.where(x < 0, -1.0, 1.0))
    distance = 0.25 / 10 ** kwargs.get("decimals", 0)
    lower, upper = (func((jump + side).to(x.dtype), *rest, **kwargs) for side in (-distance, distance))
    comparisons = score - jump
    if isinstance(score, Score) and score.origin is not None:
        comparisons = score.origin.logits() - _on_scale_of_logits(jump, x)
    return _threshold(name, comparisons, outcome, lower, upper)


def _read_bucket(func: Any, name: str, args: Any, kwargs: Any) -> tuple[Decision, Finish] | None:
    score, boundaries = args[:2] if name == "bucketize" else (args[1], args[0])
    if isinstance(boundaries, Score) or not isinstance(score, Score):
        return None
    outcome = func(*args, **kwargs)
    last = len(boundaries) - 1
    below, above = (boundaries[index.clamp(0, last)] for index in (outcome - 1, outcome))
    is_above_nearer = ((above - score.detach()).abs() < (score.detach() - below).abs()) & (outcome <= last) | (
        outcome == 0
    )
    lower = torch.where(is_above_nearer, outcome, outcome - 1)
    return _threshold(name, score - torch.where(is_above_nearer, above, below), outcome, lower, lower + 1)


def insertion(name: str, args: Any, kwargs: Any) -> tuple[Tensor, Tensor, bool]:
    """Values, boundaries, and whether a value comes behind the boundaries that it equals."""
    first, second = ("input", "boundaries") if name == "bucketize" else ("sorted_sequence", "input")
    left, right = _argument(args, kwargs, 0, first, None), _argument(args, kwargs, 1, second, None)
    values, boundaries = (left, right) if name == "bucketize" else (right, left)
    is_right = bool(kwargs.get("right", False)) or kwargs.get("side") == "right"
    return torch.as_tensor(values), boundaries, is_right


def count_boundaries(values: Tensor, boundaries: Tensor, is_right: bool) -> Tensor:
    """``searchsorted``, of boundaries in any order."""
    values = values.unsqueeze(-1)
    boundaries = boundaries.unsqueeze(-2) if boundaries.dim() > 1 else boundaries
    return (values >= boundaries if is_right else values > boundaries).sum(-1)


def _read_choice(func: Any, name: str, args: Any, kwargs: Any) -> tuple[Decision, Finish] | None:
    score = args[0]
    dim = _argument(args, kwargs, 1, "dim", None)
    has_values = name in ("max", "min")
    if isinstance(dim, Tensor) or (has_values and dim is None) or score.dim() == 0:
        return None  # the maximum of two tensors, or of all elements, is continuous
    keeps_dim = _argument(args, kwargs, 2, "keepdim", False) and dim is not None
    result = func(*args, **kwargs)
    index = result[1] if has_values else result
    sign = -1 if name in ("argmin", "min") else 1
    comparisons = score if score.origin is None else score.origin.rows()
    values = score
    if dim is None:
        comparisons, values, dim = comparisons.flatten(), values.flatten(), 0
    comparisons = comparisons.movedim(dim, -1) * sign

    def finish(outcome: Tensor) -> Any:
        index = outcome.unsqueeze(dim) if keeps_dim else outcome
        if not has_values:
            return index
        chosen = values.gather(dim, outcome.unsqueeze(dim))
        return type(result)((chosen if keeps_dim else chosen.squeeze(dim), index))

    return Choice(name, comparisons, index.squeeze(dim) if keeps_dim else index), finish


def _read_order(func: Any, name: str, args: Any, kwargs: Any) -> tuple[Decision, Finish] | None:
    score = args[0]
    if score.dim() == 0:
        return None
    is_topk = name == "topk"
    dim = _argument(args, kwargs, 2 if is_topk else 1, "dim", -1)
    is_descending = _argument(args, kwargs, 3 if is_topk else 2, "largest" if is_topk else "descending", is_topk)
    if isinstance(dim, bool):  # argsort(score, True)
        dim, is_descending = -1, dim
    result = func(*args, **kwargs)
    order = (result if name == "argsort" else result[1]).movedim(dim, -1)
    comparisons = (score if score.origin is None else score.origin.logits()).movedim(dim, -1)
    comparisons = comparisons if is_descending else -comparisons
    num_seen = order.shape[-1]
    if num_seen < comparisons.shape[-1]:
        order = _with_the_rest(order, comparisons)
    values = as_score(score.movedim(dim, -1))

    def finish(outcome: Tensor) -> Any:
        seen = outcome if num_seen == outcome.shape[-1] else outcome.narrow(-1, 0, num_seen)
        index = seen.movedim(-1, dim)
        if name == "argsort":
            return index
        return type(result)((values.gather(-1, seen).movedim(-1, dim), index))

    return Order(name, comparisons, order, num_seen=num_seen), finish


def _with_the_rest(first: Tensor, comparisons: Tensor) -> Tensor:
    """``topk`` alone knows how it broke ties: its items first, then all others from the largest on."""
    others = comparisons.detach().argsort(-1, descending=True)
    is_first = torch.zeros_like(others, dtype=torch.bool).scatter(-1, first, True).gather(-1, others)
    behind = others.gather(-1, is_first.long().argsort(stable=True, dim=-1))
    return torch.cat((first, behind[..., : others.shape[-1] - first.shape[-1]]), -1)


def _read_unique(func: Any, name: str, args: Any, kwargs: Any) -> tuple[Decision, Finish] | None:
    """The inverse of ``unique`` is a rank: an order, written differently."""
    score = args[0]
    sorts = _argument(args, kwargs, 1, "sorted", True)
    if not (_argument(args, kwargs, 2, "return_inverse", False) and sorts) or kwargs.get("dim") is not None:
        return None
    result = func(*args, **kwargs)
    order = score.detach().flatten().argsort(stable=True)
    group = result[1].flatten()[order]  # equal scores share a rank

    def finish(outcome: Tensor) -> Any:
        inverse = torch.empty_like(outcome).scatter(-1, outcome, group)
        return (result[0], inverse.view(score.shape), *result[2:])

    return Order(name, -score.flatten(), order, num_seen=len(order)), finish


def read_leaving(score: Score, reading: Reading) -> tuple[Decision, Finish]:
    """Scores that leave torch for code that only looks at their order, as AUC does: they may change places."""
    is_table = score.dim() == 2
    if is_table and reading is Reading.WINNERS:
        return _read_winners(score)
    dim = 1 if is_table and reading is Reading.ROWS else 0
    comparisons = (score if score.origin is None else score.origin.logits()).movedim(dim, -1)
    order = score.detach().argsort(dim, descending=True).movedim(dim, -1)
    sorted_scores = score.detach().movedim(dim, -1).gather(-1, order)

    def finish(outcome: Tensor) -> Any:
        return torch.empty_like(sorted_scores).scatter(-1, outcome, sorted_scores).movedim(-1, dim)

    return Order(LEAVING, comparisons, order, num_seen=score.shape[dim]), finish


def _read_winners(score: Score) -> tuple[Decision, Finish]:
    comparisons = score if score.origin is None else score.origin.rows()
    scores, winner = score.detach(), score.detach().argmax(1)

    def finish(outcome: Tensor) -> Any:
        """The winner and another alternative in each other's place."""
        places = torch.stack((winner, outcome), 1)
        return scores.scatter(1, places, scores.gather(1, places.flip(1)))

    return Choice(LEAVING, comparisons, winner), finish


_READERS: dict[str, Callable[[Any, str, Any, Any], tuple[Decision, Finish] | None]] = {
    **dict.fromkeys(COMPARISONS, _read_comparison),
    **dict.fromkeys(
        "byte ceil char fix floor floor_divide floordiv heaviside int long round sgn short sign to trunc type".split(),
        _read_step,
    ),
    **dict.fromkeys(("bucketize", "searchsorted"), _read_bucket),
    **dict.fromkeys(("argmax", "argmin", "max", "min"), _read_choice),
    **dict.fromkeys(("sort", "argsort", "topk"), _read_order),
    "unique": _read_unique,
}
