"""Any metric becomes a :class:`Metric`: of torchmetrics, of scikit-learn, or a function of your own.

What a function wants is stated, never guessed: the order of its arguments, and whether it takes raw scores,
probabilities or labels. lossmith converts its raw scores accordingly.

>>> import torch
>>> def best_row(outputs, targets):
...     return (outputs * targets).max()
>>> metric = wrap(best_row, kind="binary", higher_is_better=True)
>>> metric.name, metric(torch.tensor([0.5, 3.0, 9.0]), torch.tensor([1, 1, -100]))
('best_row', tensor(3.))

>>> from sklearn.metrics import f1_score
>>> wrap(f1_score, kind="binary", higher_is_better=True)
Traceback (most recent call last):
    ...
ValueError: scikit-learn's f1_score takes the targets first, and what it takes second differs ...
>>> f1 = wrap(f1_score, kind="binary", higher_is_better=True, order="targets_first", takes="labels", threshold=1.0)
>>> f1(torch.tensor([0.5, 3.0, -2.0]), torch.tensor([1, 1, 0]))
tensor(0.6667)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from inspect import isroutine
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from lossmith.metrics.stacking import OverSets
from lossmith.vocabulary import CLASS_DIM, IGNORE_INDEX, Kind, Metric, parse_kind

Order = Literal["outputs_first", "targets_first"]
Takes = Literal["scores", "probabilities", "labels"]

# kinds of which one row holds several predictions that can stand alone
FLATTENED = (Kind.MULTILABEL, Kind.RANKING, Kind.SEGMENTATION, Kind.TOKENS)
RETRIEVAL_MODULES = "torchmetrics.retrieval"


def wrap(
    fn: Callable[..., Any],
    *,
    kind: Kind | str,
    higher_is_better: bool | None = None,
    name: str | None = None,
    order: Order | None = None,
    takes: Takes | None = None,
    threshold: float = 0.0,
    flatten: bool = False,
    handles_ignored: bool = False,
) -> Metric:
    """The metric that ``fn`` computes on ONE set, for stacks of sets.

    A stack is evaluated by ``torch.vmap`` where that gives what single calls give, else in a loop, with one warning.

    Args:
        fn: a function of one set that gives a number, or a torchmetrics module. Fix further arguments by
            ``functools.partial``. A module is copied, and starts every set from a clean state.
        kind: what outputs and targets look like.
        higher_is_better: taken from a torchmetrics module when it knows.
        name: the function's own, when not given.
        order: what ``fn`` takes first. ``"outputs_first"`` when not given; to be said for scikit-learn.
        takes: what ``fn`` is given in place of the raw scores. ``"labels"`` are 0/1 by ``threshold``, or the best
            class; ``"probabilities"`` are the sigmoid, or the softmax over classes. When not given: ``"scores"``;
            for torchmetrics' classification ``"probabilities"``, because it reads scores that happen to lie in [0, 1]
            as probabilities. Its retrieval gets the ranks of the scores, because it takes nothing with a score of 0 or
            less as found. To be said for scikit-learn.
        threshold: label 1 is ``score > threshold``, on the scale of the raw scores.
        flatten: hand over every pixel, position, label or document as a prediction of its own: ``[M, C]`` or ``[M]``.
        handles_ignored: ``fn`` itself leaves out targets of -100. Otherwise rows left out are dropped before the call.
    """
    kind = parse_kind(kind)
    source: Any = fn
    while isinstance(source, partial):
        source = source.func
    own_name = getattr(source, "__name__", type(source).__name__).strip("<>")
    is_module = is_torchmetrics_module(source)
    if isinstance(source, type) or not callable(source) or (is_module and source is not fn):
        raise ValueError(f"wrap({own_name}): a function, or an instance of a torchmetrics module, works.")
    library = _library(source)
    is_sklearn = library.startswith("sklearn.metrics")
    is_classification = library.startswith(("torchmetrics.classification", "torchmetrics.functional.classification"))
    is_retrieval = library.startswith((RETRIEVAL_MODULES, "torchmetrics.functional.retrieval"))
    if is_sklearn and not isroutine(source):
        raise ValueError(f"wrap({own_name}): a scorer of scikit-learn takes a model; the function inside it works.")
    if is_sklearn and (order != "targets_first" or takes is None):
        raise ValueError(
            f"scikit-learn's {own_name} takes the targets first, and what it takes second differs from function to "
            "function: say order='targets_first' and takes='labels' (as for f1_score), 'scores' (roc_auc_score) or "
            "'probabilities' (log_loss)."
        )
    if library.startswith("torchmetrics.") and order == "targets_first":
        raise ValueError(f"wrap({own_name}): torchmetrics takes the outputs first.")
    if is_retrieval and takes not in (None, "scores"):
        raise ValueError(f"wrap({own_name}): torchmetrics' retrieval reads the order of scores: takes='scores' works.")
    if higher_is_better is None and is_module:
        higher_is_better = source.higher_is_better
    if higher_is_better is None:
        raise ValueError(f"wrap({own_name}): say higher_is_better=True or higher_is_better=False.")
    if takes is None:
        takes = "probabilities" if is_classification and kind in CLASS_DIM else "scores"
    if is_classification and kind is Kind.TOKENS and takes != "labels" and not flatten:
        raise ValueError(f"wrap({own_name}): torchmetrics wants classes in the second dimension; flatten=True works.")
    class_dim = CLASS_DIM.get(kind)
    if flatten and class_dim is not None:
        class_dim = -1
    call = _Call(
        CleanModule(fn) if is_module else fn,
        kind,
        class_dim=class_dim,
        order="outputs_first" if order is None else order,
        takes=takes,
        threshold=threshold,
        is_numpy=is_sklearn,
        has_integer_targets=is_sklearn or is_classification,
        is_retrieval=is_retrieval,
        is_module=is_module,
    )
    loops_because = None
    if is_sklearn:
        loops_because = "scikit-learn computes on numpy arrays"
    elif is_module:
        loops_because = "a torchmetrics module keeps a state"
    elif is_retrieval:
        loops_because = "torchmetrics' retrieval reads one query at a time"
    name = own_name if name is None else name
    value = OfFunction(OverSets(call, name, loops_because=loops_because), call, kind, flatten, handles_ignored)
    return Metric(name, kind, value, higher_is_better, reads_probabilities=threshold != 0)


@dataclass(frozen=True)
class OfFunction:
    """The value of a wrapped metric on a stack: lays predictions out, and leaves out what is ignored."""

    over_sets: OverSets
    call: _Call
    kind: Kind
    flatten: bool
    handles_ignored: bool

    def __post_init__(self) -> None:
        if self.flatten and self.kind not in FLATTENED:
            raise ValueError(
                f"flatten=True has nothing to take apart in {self.kind} predictions; {', '.join(FLATTENED)} work."
            )

    def at_threshold_zero(self) -> OfFunction:
        call = replace(self.call, threshold=0.0)
        over_sets = OverSets(call, self.over_sets.name, loops_because=self.over_sets.loops_because)
        return replace(self, over_sets=over_sets, call=call)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if self.flatten:
            class_dim = CLASS_DIM.get(self.kind)
            outputs = outputs.flatten(1) if class_dim is None else outputs.movedim(class_dim, -1).flatten(1, -2)
            targets = targets.flatten(1)
        is_ignored = targets == IGNORE_INDEX
        if not bool(is_ignored.any()):
            return self.over_sets(outputs, targets)
        is_empty = is_ignored.flatten(1).all(1)
        if bool(is_empty.any()):
            values = outputs.new_full(
                is_empty.shape, torch.nan, dtype=torch.promote_types(outputs.dtype, torch.float32)
            )
            if not bool(is_empty.all()):
                values[~is_empty] = self._of_kept(outputs[~is_empty], targets[~is_empty], is_ignored[~is_empty])
            return values
        return self._of_kept(outputs, targets, is_ignored)

    def _of_kept(self, outputs: Tensor, targets: Tensor, is_ignored: Tensor) -> Tensor:
        if self.handles_ignored:
            return self.over_sets(outputs, targets)
        by_row = is_ignored.flatten(2) if is_ignored.dim() > 2 else is_ignored[..., None]
        is_kept = ~by_row.all(2)
        if bool((by_row.any(2) & is_kept).any()):
            works = "flatten=True (every prediction for itself) or " if self.kind in FLATTENED else ""
            raise ValueError(
                f"{self.over_sets.name}: some rows of {self.kind} predictions are left out in part (targets of "
                f"{IGNORE_INDEX}); wrap(..., {works}handles_ignored=True (the function knows what to do) works."
            )
        return self.over_sets.loop((outputs[s][is_kept[s]], targets[s][is_kept[s]]) for s in range(len(outputs)))


@dataclass(frozen=True)
class _Call:
    """One set, handed to the function as it wants it."""

    fn: Callable[..., Any]
    kind: Kind
    class_dim: int | None
    order: Order
    takes: Takes
    threshold: float
    is_numpy: bool
    has_integer_targets: bool
    is_retrieval: bool
    is_module: bool

    def __post_init__(self) -> None:
        for option, value, known in (("order", self.order, get_args(Order)), ("takes", self.takes, get_args(Takes))):
            if value not in known:
                raise ValueError(f"{option}={value!r} came; {' or '.join(map(repr, known))} works.")
        if self.takes != "scores" and self.kind not in CLASS_DIM:
            raise ValueError(f"{self.kind} predictions have no {self.takes}; takes='scores' works.")
        if self.threshold != 0 and (self.takes != "labels" or self.class_dim is not None):
            raise ValueError("a threshold makes labels of binary or multilabel scores: it goes with takes='labels'.")

    def __call__(self, outputs: Tensor, targets: Tensor) -> object:
        if self.is_retrieval and not self.is_module and outputs.dim() > 1 and len(outputs) > 1:
            raise ValueError(
                f"a function of torchmetrics' retrieval reads one query, and takes a set of {len(outputs)} for one; "
                "its module (RetrievalMAP() and the like) and our own map, mrr and ndcg read all of them."
            )
        predicted: Any = self._predicted(outputs)
        wanted: Any = targets.long() if self.has_integer_targets and self.kind in CLASS_DIM else targets
        if self.is_numpy:
            predicted, wanted = _as_numpy(predicted), _as_numpy(wanted)
        return self.fn(predicted, wanted) if self.order == "outputs_first" else self.fn(wanted, predicted)

    def _predicted(self, outputs: Tensor) -> Tensor:
        if self.is_retrieval:
            place: Tensor = torch.unique(outputs, return_inverse=True)[1]
            return place + 1.0
        if self.takes == "scores":
            return outputs
        if self.takes == "probabilities":
            return outputs.sigmoid() if self.class_dim is None else outputs.softmax(self.class_dim)
        if self.class_dim is None:
            return (outputs > self.threshold).long()
        return outputs.argmax(self.class_dim)


class CleanModule:
    """A torchmetrics module as a function of one set: a copy, its state cleared before and after."""

    def __init__(self, module: Any) -> None:
        self.module = module.clone()
        self.module.sync_on_compute = False  # the set is whole: other processes have nothing to add

    def __call__(self, outputs: Tensor, targets: Tensor) -> object:
        module = self.module.to(outputs.device)
        module.reset()
        if _library(module).startswith(RETRIEVAL_MODULES):
            # one long list, and beside each document the number of its query
            query = torch.arange(outputs[..., 0].numel(), device=outputs.device).view(*outputs.shape[:-1], 1)
            module.update(outputs.flatten(), targets.flatten(), indexes=query.expand_as(outputs).flatten())
        else:
            module.update(outputs, targets)
        result = module.compute()
        module.reset()
        return result


def is_torchmetrics_module(source: object) -> bool:
    # by name: importing torchmetrics takes a second, and an instance of it has done so already
    return any((base.__module__, base.__name__) == ("torchmetrics.metric", "Metric") for base in type(source).__mro__)


def _library(source: Any) -> str:
    """The module that a metric comes from, or the class that it inherits from."""
    if is_torchmetrics_module(source):
        for base in type(source).__mro__:
            if base.__module__.startswith("torchmetrics.") and base.__module__ != "torchmetrics.metric":
                return base.__module__
    return source.__module__ or ""  # None for functions written in C


def _as_numpy(tensor: Tensor) -> Any:
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
