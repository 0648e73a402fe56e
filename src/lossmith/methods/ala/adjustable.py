"""Losses with parameters that a controller moves while a model trains, and what it sees of each (paper, section 4).

A loss parameter has *statistics*: one or two numbers of the held-out predictions that say how things stand where this
parameter acts. They carry no units, so that a policy learned on one task can read those of another.

Shape legend: ``U`` adjusted parameters, ``F`` statistics of each, ``N`` predictions, ``C`` classes.

>>> import torch
>>> loss = ClassCorrelationLoss(3)
>>> outputs, targets = torch.tensor([[2.0, 0.0, 1.0], [0.0, 0.5, 0.0]]), torch.tensor([0, 1])
>>> torch.equal(loss(outputs, targets), torch.nn.functional.cross_entropy(outputs, targets))
True
>>> loss.adjust(torch.tensor([2]), torch.tensor([1]))  # the pair (1, 2), one step up
>>> loss.matrix
tensor([[1.0000, 0.0000, 0.0000],
        [0.0000, 1.0000, 0.0500],
        [0.0000, 0.0500, 1.0000]])
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Literal, final, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lossmith.vocabulary import IGNORE_INDEX, Kind, Loss, check_predictions

Form = Literal["bounded", "bounded_sigmoid", "sigmoid", "log_sigmoid"]
FORMS: tuple[Form, ...] = get_args(Form)


class AdjustableLoss(nn.Module, ABC):
    """A loss with ``values [U]`` inside ``[low, high]``, each moved by ``step_size`` at a time.

    ``num_statistics`` is F, the same for all losses of a class.
    """

    values: Tensor
    num_statistics: int

    def __init__(self, initial: Tensor, *, low: float, high: float, step_size: float) -> None:
        super().__init__()
        is_inside = bool(((initial >= low) & (initial <= high)).all())
        if step_size <= 0 or not is_inside or not low < high or not len(initial):
            raise ValueError(
                f"loss parameters {initial.tolist()[:5]} with low={low}, high={high} and step_size={step_size} came; "
                "one parameter or more, inside the bounds, which lie apart, and a step above 0 work."
            )
        self.low, self.high, self.step_size = low, high, step_size
        self.register_buffer("values", initial.clone().float())

    @abstractmethod
    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The loss of one set."""

    @abstractmethod
    def statistics(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """``[U, F]`` of held-out predictions, without units."""

    def choose(self, statistics: Tensor) -> Tensor:
        """The numbers of the parameters that may move now: all, unless a loss has many."""
        return torch.arange(len(self.values))

    def identities(self) -> Tensor:
        """``[U, I]``, by which the controller tells parameters apart; I is 0 where one rule serves all of them."""
        return torch.eye(len(self.values))

    @torch.no_grad()
    def adjust(self, index: Tensor, moves: Tensor) -> None:
        """Move the chosen parameters by -1, 0 or 1 steps."""
        index = index.to(self.values.device)
        moved = self.values[index] + self.step_size * moves.to(self.values)
        self.values[index] = moved.clamp(self.low, self.high)

    def extra_repr(self) -> str:
        return f"{len(self.values)} parameters in [{self.low:g}, {self.high:g}], step {self.step_size:g}"


@final
class ClassCorrelationLoss(AdjustableLoss):
    """A symmetric matrix Φ of class correlations (paper, eq. 6), at the start the identity.

    ``form`` says what becomes of ``z = y Φ log p``:

    - ``"bounded"``, the default: cross-entropy with the positive correlations as soft labels, and ``-|Φ| log(1 - p)``
      for the negative ones. At the identity it *is* cross-entropy, and it cannot fall without end.
    - ``"sigmoid"``: the paper's ``-sigmoid(z)``. At the identity that is ``-p / (1 + p)``: its gradient vanishes where
      the model is far off, so start with cross-entropy (``warmup_loss`` of a child). It forgives wrong labels. A
      negative correlation pays without end for a probability that goes to 0, until the sigmoid is saturated and the
      right class has no gradient left.
    - ``"bounded_sigmoid"``: ``-sigmoid`` of minus the bounded loss. At the identity the same as ``"sigmoid"``, forgives
      as much, and cannot be paid so.
    - ``"log_sigmoid"``: ``-log sigmoid(z)``, whose gradient does not vanish.

    Args:
        num_classes: C; the C (C - 1) / 2 pairs are the parameters.
        form: see above.
        bound: of the correlations; the paper's is 1. Default ``0.2 * min(1, 10 / C)``: where a correlation comes near
            1, two classes are as good as one, and the rewards of a few dozen intervals do not keep a policy from
            wandering there.
        step_size: the paper's beta, 0.1. Default ``0.05 * min(1, 10 / C)``.
        num_moves: so many pairs, the most confused ones, move at once. Default C; of ten classes a fifth of all pairs.
        has_free_diagonal: let the controller move the diagonal too, in steps of its own; pinned, it fixes the scale.
    """

    num_statistics = 2
    index: Tensor

    def __init__(
        self,
        num_classes: int,
        *,
        form: Form = "bounded",
        bound: float | None = None,
        step_size: float | None = None,
        num_moves: int | None = None,
        has_free_diagonal: bool = False,
    ) -> None:
        if num_classes < 2 or form not in FORMS:
            raise ValueError(f"{num_classes} classes and form={form!r} came; 2 or more, and {', '.join(FORMS)} work.")
        if num_moves is not None and num_moves < 1:
            raise ValueError(f"num_moves={num_moves} came; 1 or more pairs at once work.")
        self.first, self.second = torch.triu_indices(num_classes, num_classes, offset=0 if has_free_diagonal else 1)
        # the diagonal, where it is free, as its distance from 1
        scale = min(1, 10 / num_classes)
        bound = 0.2 * scale if bound is None else bound
        step_size = 0.05 * scale if step_size is None else step_size
        num_moves = num_classes if num_moves is None else num_moves
        super().__init__(torch.zeros(len(self.first)), low=-bound, high=bound, step_size=step_size)
        self.num_classes, self.form = num_classes, form
        self.num_moves = min(num_moves, num_classes * (num_classes - 1) // 2)
        # where each entry of the matrix lies in [values, 0]; the last is the pinned diagonal
        index = torch.full((num_classes, num_classes), len(self.first))
        index[self.first, self.second] = index[self.second, self.first] = torch.arange(len(self.first))
        self.register_buffer("index", index, persistent=False)
        self.has_checked = False

    @property
    def matrix(self) -> Tensor:
        """Φ, ``[C, C]``."""
        return F.pad(self.values, (0, 1))[self.index] + torch.eye(self.num_classes, device=self.values.device)

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        if not self.has_checked:
            self._check(outputs, targets)
        is_kept = targets != IGNORE_INDEX
        log_p = outputs.to(torch.promote_types(outputs.dtype, torch.float32)).log_softmax(-1)
        weights = self.matrix.to(log_p)[targets.clamp(min=0).long()]
        if self.form in ("bounded", "bounded_sigmoid"):
            log_not_p = torch.log1p(-log_p.exp().clamp(max=1 - 1e-6))
            terms = -(weights.clamp(min=0) * log_p - weights.clamp(max=0) * log_not_p).sum(-1)
            if self.form == "bounded_sigmoid":
                terms = -(-terms).sigmoid()
        elif self.form == "sigmoid":
            terms = -(weights * log_p).sum(-1).sigmoid()
        else:
            terms = -F.logsigmoid((weights * log_p).sum(-1))
        return ((terms * is_kept).sum() / is_kept.sum().clamp(min=1)).to(outputs.dtype)

    def statistics(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """``[C_ij, C_ji]`` of each pair (eq. 7), over the mean of its row off the diagonal: below 1 is confused.

        Of a class itself, where the diagonal is free, twice ``C_ii`` over the mean of all classes: above 1 is hard.
        """
        if not self.has_checked:
            self._check(outputs, targets)
        confusion = mean_log_loss(outputs, targets)
        is_own = torch.eye(self.num_classes, dtype=torch.bool, device=confusion.device)
        mean = torch.where(
            is_own, confusion.diagonal().mean(), confusion.masked_fill(is_own, 0).sum(-1, True) / (len(confusion) - 1)
        )
        relative = confusion / mean.clamp(min=1e-6)
        return torch.stack([relative[self.first, self.second], relative[self.second, self.first]], -1)

    def choose(self, statistics: Tensor) -> Tensor:
        is_pair = self.first != self.second
        confused = statistics.mean(-1).cpu().masked_fill(~is_pair, torch.inf).topk(self.num_moves, largest=False)
        return torch.cat([confused.indices.sort().values, (~is_pair).nonzero()[:, 0]])

    def identities(self) -> Tensor:
        is_own = (self.first == self.second).float()
        return torch.stack([1 - is_own, is_own], -1)[:, : 2 * int(is_own.any())]

    def extra_repr(self) -> str:
        return f"{self.num_classes} classes, {self.form}, {super().extra_repr()}, {self.num_moves} pairs at once"

    def _check(self, outputs: Tensor, targets: Tensor) -> None:
        check_predictions(Kind.MULTICLASS, outputs, targets)
        if outputs.shape[1] != self.num_classes:
            raise ValueError(f"outputs of {outputs.shape[1]} classes came; this loss is for {self.num_classes}.")
        self.has_checked = True


def mean_log_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """``[C, C]``: the mean of ``-log p_j`` over rows of class i (paper, eq. 7); a class without rows takes all."""
    is_kept, num_classes = targets != IGNORE_INDEX, outputs.shape[-1]
    log_loss, labels = -outputs.float().log_softmax(-1)[is_kept], targets[is_kept].long()
    sums = log_loss.new_zeros(num_classes, num_classes).index_add(0, labels, log_loss)
    num_rows = torch.bincount(labels, minlength=num_classes)[:, None]
    return torch.where(num_rows > 0, sums / num_rows.clamp(min=1), log_loss.mean(0))


@final
class ParametricLoss(AdjustableLoss):
    """Any function ``(outputs, targets, values [U]) -> scalar``: weights of a sum, a temperature, a threshold.

    The controller sees the loss on held-out predictions and how it changes over a step of each parameter up and down,
    per unit, both squashed by ``v / (1 + |v|)``.

    >>> import torch
    >>> def tempered(outputs, targets, values):
    ...     return torch.nn.functional.cross_entropy(outputs / values[0], targets)
    >>> loss = ParametricLoss(tempered, initial=[1.0], low=0.5, high=4.0)
    >>> loss.adjust(torch.tensor([0]), torch.tensor([1]))
    >>> loss.values
    tensor([1.1000])
    """

    num_statistics = 2

    def __init__(
        self,
        function: Callable[[Tensor, Tensor, Tensor], Tensor],
        *,
        initial: Sequence[float],
        low: float = 0.0,
        high: float = 1.0,
        step_size: float = 0.1,
    ) -> None:
        super().__init__(torch.tensor(initial), low=low, high=high, step_size=step_size)
        self.function = function

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        loss = self.function(outputs, targets, self.values)
        if not isinstance(loss, Tensor) or loss.ndim:
            found = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            raise ValueError(f"the function of a ParametricLoss gave {found}; a scalar tensor works, such as a mean.")
        return loss

    def statistics(self, outputs: Tensor, targets: Tensor) -> Tensor:
        # differences, not gradients: torch has none for thresholds, nor for some weights (``pos_weight``)
        loss, slopes = self._at(outputs, targets, self.values), []
        for place in range(len(self.values)):
            lower, upper = self.values.clone(), self.values.clone()
            lower[place] = max(float(self.values[place]) - self.step_size, self.low)
            upper[place] = min(float(self.values[place]) + self.step_size, self.high)
            rise = self._at(outputs, targets, upper) - self._at(outputs, targets, lower)
            slopes.append(rise / (upper - lower)[place])
        # without an end a value would be inf / inf
        both = torch.stack([loss.expand(len(slopes)), torch.stack(slopes)], -1).clamp(-1e9, 1e9)
        return both / (1 + both.abs())

    def _at(self, outputs: Tensor, targets: Tensor, values: Tensor) -> Tensor:
        return self.function(outputs, targets, values).detach().float()


def weighted_losses(
    losses: Sequence[Loss], *, initial: Sequence[float] | None = None, step_size: float = 0.1
) -> ParametricLoss:
    """A sum of losses with weights from 0 to 1 that the controller moves; at the start the first loss alone.

    >>> import torch
    >>> loss = weighted_losses([torch.nn.functional.cross_entropy, torch.nn.functional.multi_margin_loss])
    >>> loss.values
    tensor([1., 0.])
    """
    initial = [1.0] + [0.0] * (len(losses) - 1) if initial is None else initial
    if not losses or len(initial) != len(losses):
        raise ValueError(f"{len(losses)} losses and {len(initial)} weights came; one weight for each loss works.")
    for loss in losses:
        if not callable(loss):
            raise ValueError(f"{loss!r:.60} is among the losses; functions and modules of outputs and targets work.")
    return ParametricLoss(_WeightedSum(losses), initial=initial, step_size=step_size)


class _WeightedSum(nn.Module):
    """A module, so that losses with weights or counters of their own are part of a checkpoint."""

    def __init__(self, losses: Sequence[Loss]) -> None:
        super().__init__()
        self.losses = list(losses)
        self.modules_of_losses = nn.ModuleList(loss for loss in losses if isinstance(loss, nn.Module))

    def forward(self, outputs: Tensor, targets: Tensor, values: Tensor) -> Tensor:
        return torch.stack([value * loss(outputs, targets) for value, loss in zip(values, self.losses)]).sum()
