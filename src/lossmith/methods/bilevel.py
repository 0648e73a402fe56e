"""Learning surrogate losses (Grabocka, Scholz and Schmidt-Thieme 2019): a network learns the metric while it trains
the model.

A small network of sets (:class:`~lossmith.surrogates.flat_sets.FlatDeepSets`) is fitted to the metric on the model's
own predictions, and the model descends on it: three steps of the one, ten of the other, again and again (Algorithm 1).
What the network has learned elsewhere it need not have right, so 1,500 weights are enough.

Three ways to start (section 4.2): *universal*, learned on random sets and never touched again (SL-U); *scratch*, random
weights (SL-S); *refined*, from the universal one (SL-R).

>>> _ = torch.manual_seed(0)
>>> inputs = torch.randn(2000, 5)
>>> targets = (inputs[:, 0] + 0.5 * torch.randn(2000) > 1).long()
>>> model, generator = nn.Sequential(nn.Linear(5, 1), nn.Flatten(0)), torch.Generator().manual_seed(0)
>>> surrogate = BilevelSurrogate("binary", generator=generator)
>>> batches = stratified_batches(inputs, targets, batch_size=100, generator=generator)
>>> steps = bilevel_steps(
...     model,
...     surrogate,
...     find_metric("auc"),
...     batches,
...     torch.optim.Adam(model.parameters(), lr=0.03),
...     torch.optim.Adam(surrogate.parameters(), lr=0.003),
...     generator=generator,
... )
>>> for step in itertools.islice(steps, 60):
...     if step.number % 60 == 0:
...         print(bool(find_metric("auc")(model(inputs), targets) > 0.95))
True
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.optim import Optimizer

from lossmith.learning import surrogate_steps
from lossmith.metrics import find_metric as find_metric
from lossmith.predictions import random_predictions
from lossmith.surrogates.flat_sets import FlatDeepSets
from lossmith.vocabulary import IGNORE_INDEX, Kind, Metric, Predictions, Step, check_predictions, parse_kind

Batch = tuple[Tensor, Tensor]
"""Inputs and targets."""

KINDS = (Kind.BINARY, Kind.MULTILABEL, Kind.MULTICLASS)
# so many batches in a row without two classes are no accident
MOST_SKIPPED = 1000


class BilevelSurrogate(nn.Module):
    """The learned loss of one set: its value is the surrogate's estimate of the cost.

    Its gradient is that of the value only with ``is_normalised=False, is_monotone=False, score_penalty=0``, as the
    paper has it. By default it is what makes a young and steep network a loss to rely on.

    Args:
        kind: binary, multilabel or multiclass (of few classes: with ten it learns far more slowly than cross-entropy).
        num_classes: of multiclass predictions.
        row_widths: of g (section 4.1: 30, 30).
        set_widths: of h (section 4.1: 10, 10).
        is_normalised: each set's gradient is brought to one length: 1 per row, in the root mean square. The paper clips
            all gradients by a norm of 1e-5, which has this effect, and starves whatever Adam's epsilon exceeds.
        is_monotone: no row is pushed away from its target. Better scores of a row never hurt any metric of ours, but a
            network that was fitted in a few steps may think so, and then leads the model to the worst there is.
        score_penalty: times the mean square of the scores: a gradient of constant length would raise them for ever.
        generator: of the first weights.
    """

    def __init__(
        self,
        kind: Kind | str = Kind.BINARY,
        *,
        num_classes: int = 1,
        row_widths: list[int] | None = None,
        set_widths: list[int] | None = None,
        is_normalised: bool = True,
        is_monotone: bool = True,
        score_penalty: float = 1e-2,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.kind = parse_kind(kind)
        if self.kind not in KINDS:
            raise ValueError(f"{kind} predictions came; {', '.join(KINDS)} predictions work.")
        self.network = FlatDeepSets(
            self.kind, num_classes=num_classes, row_widths=row_widths, set_widths=set_widths, generator=generator
        )
        self.is_normalised = is_normalised
        self.is_monotone = is_monotone
        self.score_penalty = score_penalty
        self._is_checked = False
        self._has_warned = False

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if not self._is_checked:
            check_predictions(self.kind, outputs, targets)
            self._is_checked = True
        if not has_two_classes(targets):
            if not self._has_warned:
                self._has_warned = True
                warnings.warn("BilevelSurrogate: a set of one class says nothing; its loss is 0.", stacklevel=2)
            return (outputs * 0).sum()
        value, gradient = self.slopes(outputs, targets)
        # the value as it is, the gradient as it was made
        return value + ((outputs - outputs.detach()) * gradient).sum().to(value.dtype)

    def slopes(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The value for one set and the gradient that its scores are given, both without a graph."""
        outputs = outputs.detach()
        rows, share = self.network.summarize(outputs.nan_to_num().unsqueeze(0), targets.unsqueeze(0))
        values, gradient = self.network.slopes(rows, share)
        if self.is_monotone:
            truth = rows[..., self.network.num_classes :]
            # -1 and 1 in yes-or-no rows, 0 and 1 in one-hot ones
            is_away = (gradient > 0) == (truth > 0)
            gradient = gradient.masked_fill_(is_away, 0)
        is_kept = share.unsqueeze(-1) > 0
        num_rows = is_kept.sum()
        if self.is_normalised:
            length = gradient.norm().clamp_min(torch.finfo(gradient.dtype).tiny)
            gradient = gradient / (length * num_rows.sqrt())
        if self.score_penalty:
            scores = rows[..., : self.network.num_classes]
            gradient = gradient + 2 * self.score_penalty / num_rows * scores * is_kept
        return values[0], gradient.reshape(outputs.shape).to(outputs.dtype)


# ------------------------------------------------------------------------------------------------------- Algorithm 1


def bilevel_steps(
    model: nn.Module,
    surrogate: BilevelSurrogate,
    metric: Metric,
    batches: Iterable[Batch],
    optimizer: Optimizer,
    surrogate_optimizer: Optimizer,
    *,
    generator: torch.Generator,
    num_model_steps: int = 3,
    num_surrogate_steps: int = 10,
    num_first_steps: int = 1000,
    num_copies: int = 3,
    jitter: float = 1.0,
    max_gradient_norm: float | None = None,
    first_step: int = 0,
) -> Iterator[Step]:
    """Train ``model`` and its loss, until the batches end; a :class:`Step` is one iteration of Algorithm 1.

    Every iteration takes ``num_model_steps`` batches to train the model and ``num_surrogate_steps`` others, of the same
    size, to fit the surrogate. Batches of one class are passed over. ``Step.loss`` is the surrogate's value in the last
    model step, ``details`` have the ``meta_loss`` (the distance of surrogate and metric) and the metric's ``cost``.

    The state of a run is that of its model, surrogate, two optimizers, ``generator`` and whatever draws the batches. A
    run that goes on from there says how many iterations are done: ``first_step``.

    Args:
        model: gives outputs of the surrogate's kind.
        surrogate: the loss that is learned along.
        metric: what the surrogate is to say; of the same kind.
        batches: pairs of inputs and targets, for the model and for the surrogate in turn.
        optimizer: of the model's weights.
        surrogate_optimizer: of the surrogate's weights.
        generator: draws the jitter.
        num_model_steps: of the model, in one iteration.
        num_surrogate_steps: of the surrogate, in one iteration.
        num_first_steps: of the surrogate, before the model takes its first.
        num_copies: jittered copies of each set of outputs, beside the set itself. A surrogate that only saw the outputs
            as they are would not know what happens when they change, which is all that its gradient is about.
        jitter: how far copies move, in units of the standard deviation of a set's scores.
        max_gradient_norm: clip gradients of model and surrogate (the paper: 1e-5).
        first_step: iterations that are done already.
    """
    if min(num_model_steps, num_surrogate_steps) < 1:
        raise ValueError(
            f"num_model_steps={num_model_steps} and num_surrogate_steps={num_surrogate_steps} came; 1 or more works."
        )
    if metric.kind is not surrogate.kind:
        raise ValueError(f"{metric.name} judges {metric.kind} predictions; the surrogate is for {surrogate.kind} ones.")
    stream = _with_two_classes(batches)
    fitting = _Fitting(model, surrogate.network, metric, surrogate_optimizer, generator, num_copies, jitter)
    if not first_step:
        for _ in range(0, num_first_steps, num_surrogate_steps):
            fitting.fit(list(itertools.islice(stream, num_surrogate_steps)), max_gradient_norm)
    value = torch.zeros(())
    for number in itertools.count(first_step + 1):
        for inputs, targets in itertools.islice(stream, num_model_steps):
            outputs = model(inputs)
            value, gradient = surrogate.slopes(outputs, targets)
            optimizer.zero_grad()
            outputs.backward(gradient)
            if max_gradient_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), max_gradient_norm)
            optimizer.step()
        others = list(itertools.islice(stream, num_surrogate_steps))
        if len(others) < num_surrogate_steps:
            return
        yield Step(number, value, fitting.fit(others, max_gradient_norm))


@dataclass(frozen=True)
class _Fitting:
    """The lower half of Algorithm 1: ``K_beta`` steps of the surrogate on fresh batches."""

    model: nn.Module
    network: FlatDeepSets
    metric: Metric
    optimizer: Optimizer
    generator: torch.Generator
    num_copies: int
    jitter: float

    def fit(self, batches: Sequence[Batch], max_gradient_norm: float | None) -> dict[str, Tensor]:
        """One step for each batch. The model does not change in between, so it judges all of them at once."""
        if not batches:
            return {}
        with torch.no_grad():
            outputs = self.model(torch.cat([inputs for inputs, _ in batches])).nan_to_num()
            stacked_outputs, targets = _as_stack(outputs.float(), [targets for _, targets in batches])
            sets = jittered(
                self.metric.kind, stacked_outputs, targets, self.num_copies, self.jitter, generator=self.generator
            )
            costs = self.metric.cost(sets.outputs, sets.targets).to(outputs.dtype)
            rows, share = self.network.summarize(sets.outputs, sets.targets)
            num_sets = self.num_copies + 1
            distances = []
            for part in zip(rows.split(num_sets), share.split(num_sets), costs.split(num_sets)):
                distances.append(self.network.fit(*part))
                if max_gradient_norm is not None:
                    nn.utils.clip_grad_norm_(self.network.parameters(), max_gradient_norm)
                self.optimizer.step()
        return {"meta_loss": torch.stack(distances).mean(), "cost": costs[::num_sets].nanmean()}


def _as_stack(outputs: Tensor, targets: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The outputs of all batches, one behind the other, as one set for each; the shorter ones filled with nothing."""
    sizes = [len(labels) for labels in targets]
    if min(sizes) == max(sizes):
        return outputs.unflatten(0, (len(sizes), -1)), torch.stack(list(targets))
    padded = pad_sequence(list(targets), batch_first=True, padding_value=IGNORE_INDEX)
    return pad_sequence(outputs.split(sizes), batch_first=True), padded


def jittered(
    kind: Kind, outputs: Tensor, targets: Tensor, num_copies: int, jitter: float, *, generator: torch.Generator
) -> Predictions:
    """Each set, followed by its copies: ``[S, ...]`` to ``[S * (num_copies + 1), ...]``.

    Copies move as training moves scores: all scores scaled or shifted, those of one class raised against the others,
    those of one class that lie near some place, and each by itself.
    """
    num_sets = len(outputs)
    if not num_copies:
        return Predictions(outputs, targets)
    num_dims = outputs.dim() - 1

    def draw(*shape: int) -> Tensor:
        drawn = torch.randn(num_copies, num_sets, *shape, device=outputs.device, generator=generator)
        return drawn.view(num_copies, num_sets, *shape, *(1,) * (num_dims - len(shape)))

    scale = outputs.flatten(1).std(-1).clamp_min(0.1).view(1, -1, *(1,) * num_dims) * jitter
    if kind is Kind.MULTICLASS:
        is_true = torch.nn.functional.one_hot(targets.clamp_min(0), outputs.shape[-1])
        shift = draw(1, outputs.shape[-1])
    else:
        is_true, shift = targets == 1, draw()
    truth = torch.where(is_true > 0, 1.0, -1.0)
    # a place among the scores, and the class that moves there
    place = outputs.flatten(1).gather(1, torch.randint(outputs[0].numel(), (num_sets, num_copies), generator=generator))
    distance = (outputs - place.T.reshape(num_copies, num_sets, *(1,) * num_dims)) / scale
    bump = torch.where(draw() > 0, 1 + truth, 1 - truth) * torch.exp(-0.5 * distance.square())
    moves = shift + draw() * truth + draw() * bump + draw() * draw(*outputs.shape[1:])
    copies = outputs * (jitter * draw()).exp() + scale * moves
    everything = torch.cat([outputs.unsqueeze(1), copies.movedim(0, 1)], 1).flatten(0, 1)
    return Predictions(everything, targets.repeat_interleave(num_copies + 1, 0))


# ------------------------------------------------------------------------------------------------ universal surrogates


def universal_steps(
    surrogate: BilevelSurrogate,
    metric: Metric,
    surrogate_optimizer: Optimizer,
    *,
    generator: torch.Generator,
    num_steps: int = 1000,
    num_sets: int = 4096,
    set_size: int = 100,
    sets_per_step: int = 32,
    is_paper: bool = False,
) -> Iterator[Step]:
    """Fit the surrogate to the metric on random sets (eq. 3): alone SL-U, before :func:`bilevel_steps` SL-R.

    Sets are of all skills. With ``is_paper`` they are as in section 4.2: targets from a fair coin, scores from a
    standard normal distribution, so none is much better than chance.
    """
    network = surrogate.network
    if is_paper and network.kind is Kind.BINARY:
        shape = (num_sets, set_size)
        predictions = Predictions(torch.randn(shape, generator=generator), torch.randint(2, shape, generator=generator))
    else:
        predictions = random_predictions(
            network.kind,
            num_sets=num_sets,
            set_size=set_size,
            num_classes=max(2, network.num_classes),
            generator=generator,
        )
    yield from surrogate_steps(
        network,
        metric,
        [predictions],
        _mean_distance,
        surrogate_optimizer,
        num_steps=num_steps,
        generator=generator,
        sets_per_step=sets_per_step,
    )


def _mean_distance(losses: Tensor, costs: Tensor, progress: float) -> Tensor:
    """The paper's meta-loss, L1."""
    return (losses - costs).abs().mean(-1)


# ------------------------------------------------------------------------------------------------------------- batches


def stratified_batches(
    inputs: Tensor,
    targets: Tensor,
    *,
    batch_size: int,
    generator: torch.Generator,
    positive_share: float = 0.5,
) -> Iterator[Batch]:
    """Endless batches with a fixed share of positives, drawn with replacement (section 4.1: a half).

    A metric that depends on how many positives there are (AP, F1, accuracy) has another value on such batches than on
    the data: 1 % of false alarms is nothing among halves and much among rare positives.
    """
    positives, negatives = (targets == 1).nonzero()[:, 0], (targets == 0).nonzero()[:, 0]
    num_positives = round(positive_share * batch_size)
    if not 0 < num_positives < batch_size:
        raise ValueError(f"positive_share={positive_share} of batches of {batch_size} leaves one class out.")
    if not (len(positives) and len(negatives)):
        raise ValueError("the targets are of one class; stratified batches need two.")
    members = torch.cat([positives, negatives])
    num_of_each = torch.tensor([num_positives, batch_size - num_positives])
    # where a row's class begins among the members, and how long it is
    begin = torch.tensor([0, len(positives)]).repeat_interleave(num_of_each)
    length = torch.tensor([len(positives), len(negatives)]).repeat_interleave(num_of_each).double()
    while True:
        drawn = torch.rand(batch_size, dtype=torch.double, generator=generator)
        index = members[drawn.mul_(length).long().add_(begin)]
        yield inputs.index_select(0, index), targets[index]


def has_two_classes(targets: Tensor) -> bool:
    if not targets.numel():
        return False
    lowest, highest = targets.aminmax()
    if lowest < 0:  # some are left out
        kept = targets[targets != IGNORE_INDEX]
        return bool(kept.numel() and kept.min() != kept.max())
    return bool(lowest != highest)


def _with_two_classes(batches: Iterable[Batch]) -> Iterator[Batch]:
    num_skipped = 0
    for inputs, targets in batches:
        num_skipped = 0 if has_two_classes(targets) else num_skipped + 1
        if num_skipped == MOST_SKIPPED:
            raise ValueError(f"the last {MOST_SKIPPED} batches were each of one class: there is nothing to learn.")
        if not num_skipped:
            yield inputs, targets
