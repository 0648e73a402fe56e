"""``lossmith.trace``: a loss from the code of a metric, with nothing to learn.

>>> def accuracy(outputs, targets):
...     return (outputs.argmax(-1) == targets).float().mean()
>>> loss = trace(accuracy, link=0)
>>> outputs, targets = torch.tensor([[2.0, 0.0, 1.0], [0.0, 0.5, 0.0]]), torch.tensor([0, 2])
>>> loss(outputs, targets), torch.nn.functional.cross_entropy(outputs, targets)
(tensor(0.8510), tensor(0.8510))
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lossmith.metrics import find_metric
from lossmith.metrics.wrap import CleanModule, is_torchmetrics_module
from lossmith.tracing.explanation import Explanation, explain
from lossmith.tracing.gains import Subject
from lossmith.tracing.plan import Plan, find, recheck, survey
from lossmith.tracing.recording import MetricFunction
from lossmith.tracing.score_function import smoothed_cost
from lossmith.tracing.table import Tables
from lossmith.vocabulary import IGNORE_INDEX, Kind, Metric, check_predictions

# calls between two checks of the way in which gains are found
CALLS_BETWEEN_CHECKS = 100
# calls in which nothing was to be gained, before any in which something was
NUM_IDLE_CALLS = 3


def trace(
    metric: Metric | MetricFunction | str,
    *,
    link: float = 0.5,
    temperature: float | Tensor = 1.0,
    memory: int = 0,
    higher_is_better: bool | None = None,
) -> TracedLoss:
    """The loss of a metric: a :class:`~lossmith.vocabulary.Metric`, a torchmetrics module, or any function of one set.

    Args:
        metric: called as ``metric(outputs, targets)``, it gives one number. It is not changed. A name is one of
            ``lossmith.metrics.METRICS``. A function of one's own that knows nothing of targets of -100 is given the
            rows that have another target; in layouts of more dimensions it sees the targets as they are:
            :func:`lossmith.metrics.wrap` says what its kind is, and leaves them out.
        link: 0 is ``-log q`` (accuracy becomes cross-entropy), 1 is ``1 - q`` (the expected cost of decisions drawn by
            chance), q the probability of the better decision. The larger, the less a decision pulls that is wrong
            beyond hope.
        temperature: of these probabilities. A parameter is learned with the model; a number may change at any time.
        memory: how many earlier batches, without gradients, belong to the set: a ranking metric then sees
            ``memory + 1`` batches. In training mode only.
        higher_is_better: True when not given, where the metric does not say it itself.
    """
    if isinstance(metric, str):
        metric = find_metric(metric)
    says_it = isinstance(metric, Metric) or is_torchmetrics_module(metric)
    known = getattr(metric, "higher_is_better", None) if says_it else None
    if known is not None and higher_is_better not in (None, known):
        raise ValueError(f"higher_is_better={higher_is_better} came; the metric itself says {known}.")
    direction = known if known is not None else higher_is_better is not False
    return TracedLoss(metric, bool(direction), link=link, temperature=temperature, memory=memory)


class TracedLoss(nn.Module):
    """``loss(outputs, targets)``: for every decision that the metric takes on the outputs, what it is worth, times the
    link of how sure the scores are to take the better one. See :func:`trace`.

    ``state_dict`` keeps the batches of ``memory`` and the number of calls, which is the seed of what is drawn: a
    training run that is resumed goes on as it would have.
    """

    temperature: float | Tensor

    def __init__(
        self,
        metric: Metric | MetricFunction,
        higher_is_better: bool,
        *,
        link: float = 0.5,
        temperature: float | Tensor = 1.0,
        memory: int = 0,
    ) -> None:
        super().__init__()
        _check_metric(metric)
        if not link >= 0 or memory < 0 or memory != int(memory) or not _as_number(temperature) > 0:
            raise ValueError(
                f"trace: link={link}, temperature={_as_number(temperature)}, memory={memory} came; a link of 0 "
                "or more, a whole number of batches and a temperature above 0 work."
            )
        self.higher_is_better = higher_is_better
        self.link = link
        self.temperature = temperature
        self._metric = metric if isinstance(metric, Metric) else None
        self._fn = _function_of(metric)
        self._batches: deque[tuple[Tensor, Tensor]] = deque(maxlen=int(memory))
        self._plans: dict[Any, Plan] = {}
        self._tables = Tables()
        self._num_calls = self._num_idle_calls = self._num_tied_calls = 0
        self._has_gained = False
        self._warned: set[str] = set()

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        wants_gradient = torch.is_grad_enabled()
        self._check(outputs, targets)
        # gains are found by gradients; decisions and comparisons are not for autocast to round
        with torch.inference_mode(False), torch.enable_grad(), torch.autocast(outputs.device.type, enabled=False):
            loss = self._loss(*self._set_of(outputs, targets))
        return loss if wants_gradient else loss.detach()

    def explain(self, outputs: Tensor, targets: Tensor) -> Explanation:
        """Which decisions the metric takes on this set, and how their gains are found."""
        self._check(outputs, targets)
        with torch.inference_mode(False), torch.enable_grad():
            outputs, targets = self._prepared(outputs, targets)
            self._check_layout(outputs, targets)
            subject = self._subject(outputs, targets)
            return explain(subject, survey(subject, self._generator()), _as_number(self.temperature), self.link)

    def get_extra_state(self) -> dict[str, Any]:
        return {"num_calls": self._num_calls, "batches": [list(batch) for batch in self._batches]}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._num_calls = int(state["num_calls"])
        self._batches.clear()
        self._batches.extend((outputs, targets) for outputs, targets in state["batches"])

    def extra_repr(self) -> str:
        name = self._metric.name if self._metric is not None else getattr(self._fn, "__name__", "metric")
        return f"{name}, link={self.link}, temperature={_as_number(self.temperature):g}, memory={self._batches.maxlen}"

    def _set_of(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        outputs, targets = self._prepared(outputs, targets)
        if not (self.training and self._batches.maxlen):
            return outputs, targets
        earlier = list(self._batches)
        self._batches.append((outputs.detach(), targets))
        return (
            torch.cat((outputs, *(scores for scores, _ in earlier))),
            torch.cat((targets, *(truth for _, truth in earlier))),
        )

    def _check(self, outputs: Tensor, targets: Tensor) -> None:
        if not (isinstance(outputs, Tensor) and outputs.is_floating_point() and outputs.dim()):
            raise ValueError(f"{self}: outputs came as {_what(outputs)}; a tensor of scores in floating point works.")
        if not isinstance(targets, Tensor):
            raise ValueError(f"{self}: targets came as {_what(targets)}; a tensor works.")
        if outputs.dim() == 2 and outputs.shape[1] == 1 and targets.shape == outputs.shape[:1]:
            raise ValueError(
                f"{self}: outputs came as {_what(outputs)}, targets as {_what(targets)}, and code that compares them "
                "compares each with all; outputs.squeeze(1) works."
            )
        if not _as_number(self.temperature) > 0:
            raise ValueError(f"{self}: the temperature has become {_as_number(self.temperature):g}; above 0 works.")

    def _check_layout(self, outputs: Tensor, targets: Tensor) -> None:
        if self._metric is not None:
            wants_scores = not self._metric.reads_probabilities
            check_predictions(self._metric.kind, outputs.detach(), targets, want_scores=wants_scores)
        elif bool(outputs.isnan().any()):
            raise ValueError(f"{self}: outputs contain NaN; scores that are numbers work.")

    def _prepared(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of 32 bits or more, without rows that are left out: these have no part in any decision."""
        if outputs.is_inference():
            outputs, targets = outputs.clone(), targets.clone()
        if outputs.dtype.itemsize < 4:
            outputs = outputs.float()
        if targets.dim() == 1 and len(targets) == len(outputs):
            is_kept = targets != IGNORE_INDEX
            if not bool(is_kept.all()):
                outputs, targets = outputs[is_kept], targets[is_kept]
        return outputs, targets

    def _subject(self, outputs: Tensor, targets: Tensor) -> Subject:
        if self._metric is not None and self._metric.kind is Kind.MULTILABEL:
            # a single label that is left out comes last in every order, infinitely far from changing places
            outputs = outputs.masked_fill(targets == IGNORE_INDEX, -torch.inf)
        return Subject(self._fn, outputs, targets, 1 if self.higher_is_better else -1)

    def _loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if not outputs.numel():
            return self._nothing_said(outputs)
        key = (
            outputs.shape[1:],
            targets.shape[1:],
            outputs.dtype,
            targets.dtype,
            outputs.device,
            len(outputs).bit_length(),
        )
        if key not in self._plans:
            self._check_layout(outputs, targets)
        subject = self._subject(outputs, targets)
        self._num_calls += 1
        plan = self._plan(key, subject)
        if plan is None:
            return self._nothing_said(outputs)
        if plan.black_box:
            return smoothed_cost(
                self._cost, outputs, targets, sigma=_as_number(self.temperature), generator=self._generator()
            )
        goodness, gains = find(plan, subject, _as_number(self.temperature), self._generator(), self._tables)
        if not bool(goodness.isfinite()):
            return self._nothing_said(outputs)
        losses = [each.loss(self.temperature, self.link) for each in gains.values()]
        if plan.is_continuous:
            losses.append(-goodness)
        total = sum(losses[1:], losses[0]) if losses else (outputs * 0).sum()
        if not self._has_gained and not plan.is_continuous:
            self._note_idle(all(each.is_nothing() for each in gains.values()))
        return total

    def _note_idle(self, is_idle: bool) -> None:
        # afterwards nothing to gain is a set on which all is well
        self._has_gained = not is_idle
        self._num_idle_calls += is_idle
        if self._num_idle_calls == NUM_IDLE_CALLS:
            self._warn(
                f"{self}: on the first {NUM_IDLE_CALLS} sets no single decision changes the metric, which gives a loss "
                "of 0 without a direction. Start from another loss, or add one: lossmith.combine."
            )

    def _plan(self, key: Any, subject: Subject) -> Plan | None:
        """Of this layout of predictions; None where the metric is not defined on the first set of it."""
        plan = self._plans.get(key)
        if plan is None:
            value, _ = subject.run()
            if not bool(subject.goodness(value).isfinite()):
                return None
            plan = survey(subject, self._generator())
            if plan.black_box and self._num_tied_calls < NUM_IDLE_CALLS and _is_tied(subject.outputs):
                self._num_tied_calls += 1
                return plan  # as of a model at its very start: the next set may tell more of the metric
            self._plans[key] = plan
            if plan.black_box:
                self._warn(
                    f"{self} follows the metric by random steps of the outputs, slowly and noisily: {plan.black_box}. "
                    "Decisions that the code takes in torch, as in (outputs > 0).numpy(), can be traced."
                )
        elif plan.black_box:
            if self._num_calls % CALLS_BETWEEN_CHECKS == 0:
                plan = self._plans[key] = survey(subject, self._generator())
        elif self._num_calls % CALLS_BETWEEN_CHECKS == 0 or not plan.is_tested:
            checked = recheck(plan, subject, self._generator())
            if plan.is_tested and checked.ways != plan.ways:
                self._warn(f"{self} finds gains in another way from now on: {plan.ways} did not hold.")
            plan = self._plans[key] = checked
        return plan

    def _cost(self, outputs: Tensor, targets: Tensor) -> float:
        value = float(self._fn(outputs, targets))
        return -value if self.higher_is_better else value

    def _nothing_said(self, outputs: Tensor) -> Tensor:
        self._warn(f"{self}: the metric is not defined on a set (one class? all left out?), which gives a loss of 0.")
        return (outputs * 0).sum()

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            warnings.warn(message, stacklevel=2)

    def _generator(self) -> torch.Generator:
        # drawn anew for every call: the same sequence of calls gives the same losses
        return torch.Generator().manual_seed(self._num_calls)


@dataclass(frozen=True)
class _OfOneSet:
    """The value of a metric on a stack of one."""

    value: Callable[[Tensor, Tensor], Tensor]

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.value(outputs.unsqueeze(0), targets.unsqueeze(0))[0]


def _function_of(metric: Metric | MetricFunction) -> MetricFunction:
    if isinstance(metric, Metric):
        return _OfOneSet(metric.value)
    return CleanModule(metric) if is_torchmetrics_module(metric) else metric


def _check_metric(metric: object) -> None:
    name = getattr(metric, "__name__", type(metric).__name__)
    if not callable(metric):
        raise ValueError(f"trace: {name} came; a Metric or a function of outputs and targets works.")
    if isinstance(metric, type):
        raise ValueError(f"trace: the class {name} came; an instance of it, {name}(...), works.")
    if str(getattr(metric, "__module__", "")).startswith("sklearn."):
        raise ValueError(
            f"trace: {name} of scikit-learn came, which takes targets first, and most of its metrics labels, not "
            "scores; lossmith.metrics.wrap() says so, with order='targets_first' and takes='labels'."
        )


def _is_tied(outputs: Tensor) -> bool:
    """Most of the scores are equal to others."""
    num_distinct: int = outputs.unique().numel()
    return num_distinct <= outputs.numel() // 2


def _as_number(temperature: float | Tensor) -> float:
    return float(temperature.detach() if isinstance(temperature, Tensor) else temperature)


def _what(value: object) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
