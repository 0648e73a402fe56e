"""UniLoss (Liu, Wang and Deng 2020): a metric of decisions, interpolated between configurations of those decisions.

A metric is refactored into comparisons of scores (the paper's f), the bit that each comparison decides (h, relaxed by
a sigmoid) and the metric of all bits (g). g is known exactly at a few *anchors*, configurations near the best one, near
the present one and at random; in between it is their mean, weighted by inverse distance (eq. 10).

Comparisons are turned so that a positive one contradicts the targets, and a bit of 1 is *wrong*: the best configuration
is all zeros. g decodes a configuration back into scores and calls the metric itself. So any metric of
decisions works, with one refactoring for each family of decisions: which class wins, what passes a threshold, what
comes first.

Shape legend: ``A`` anchors, ``B...`` the bits of one set, in the shape that their family gives them.

>>> import torch
>>> outputs = torch.tensor([[2.0, -1.0, 0.0], [0.5, 0.0, 3.0], [0.0, 1.0, 0.5]], requires_grad=True)
>>> UniLoss("accuracy")(outputs, torch.tensor([0, 2, 2])).backward()
>>> outputs.grad[2] < 0  # the third row is wrong: its target, class 2, wants to rise
tensor([False, False,  True])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor, nn

from lossmith.metrics import METRICS, find_metric
from lossmith.vocabulary import IGNORE_INDEX, Kind, Metric, check_predictions

# decoded scores [A, ...] -> exact costs [A]
CostsOfScores = Callable[[Tensor], Tensor]


class Decisions(Enum):
    """What a metric reads of the scores."""

    WINNERS = "which of the scores in a row are the highest"
    THRESHOLDS = "whether each score passes a threshold"
    ORDERS = "which of two items comes first"


@dataclass(frozen=True)
class Refactoring:
    """f and g for one set; h is the same for every metric."""

    comparisons: Tensor
    """``[B...]``: 0 or more where scores contradict the targets (as a tie does), -inf where nothing is compared."""
    costs: Callable[[Tensor], Tensor]
    """The exact cost of configurations of wrong bits, ``[A, B...] -> [A]``."""


class UniLoss(nn.Module):
    """The interpolated cost of one set; it is negative for a metric of which more is better.

    Anchors are drawn anew in each call, from ``seed`` and the number of calls so far. ``state_dict`` keeps that number:
    a training run that is resumed draws what it would have drawn. A set on which the metric says nothing costs 0.

    Args:
        metric: a metric, or the name of one, that reads nothing but decisions.
        num_anchors: of each type: good, near and bad (section 3.4).
        num_rivals: compare each target with so many of its highest-scored rivals (classes, pixels, items that belong
            behind it). The paper takes "a portion" of the bits of CIFAR-100, its code these hard negatives, 20 of them.
            A metric of the first k needs at least k.
        num_pixels: of larger segmentations, so many are drawn in each call.
        threshold: the score above which a metric of thresholds takes an output for a yes.
        seed: of the anchors.
    """

    def __init__(
        self,
        metric: Metric | str,
        *,
        num_anchors: int = 16,
        num_rivals: int | None = None,
        num_pixels: int = 4096,
        threshold: float = 0.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        for name, number in (("num_anchors", num_anchors), ("num_rivals", num_rivals), ("num_pixels", num_pixels)):
            if number is not None and number < 1:
                raise ValueError(f"{name}={number}; 1 or more works.")
        self.metric = find_metric(metric) if isinstance(metric, str) else metric
        if self.metric.kind in (Kind.EMBEDDING, Kind.SPAN):
            raise ValueError(
                f"{self.metric.name} decides by distances, or by pairs of positions: UniLoss has no refactoring for it."
            )
        self.num_anchors = num_anchors
        self.num_rivals = num_rivals
        self.num_pixels = num_pixels
        self.threshold = threshold
        self.seed = seed
        self.num_calls = 0
        self._decisions: Decisions | None = None
        self._read_bits: Callable[[Tensor, Tensor], Tensor] | None = None
        if self.metric.value is METRICS["accuracy"].value:
            self._read_bits = read_accuracy
        elif self.metric.value is METRICS["ap"].value and num_rivals is None:
            # the count of those ahead needs all rivals
            self._read_bits = read_average_precision

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        # multiplied, so that seeds that are neighbours are far apart; torch reads no more than 32 bits on a CPU
        seed_of_call = (self.seed * 0x9E3779B1 + self.num_calls) % 2**32
        generator = torch.Generator(outputs.device).manual_seed(seed_of_call)
        self.num_calls += 1
        # squared distances of a thousand bits differ by one: half precision does not see that
        with torch.autocast(outputs.device.type, enabled=False):
            refactoring = self.refactor(outputs, targets, generator)
            comparisons = refactoring.comparisons
            if comparisons.numel() == 0:
                # one class, one item: nothing to compare
                return (outputs * 0).sum()
            with torch.no_grad():
                anchors = draw_anchors(comparisons, self.num_anchors, generator)
                costs = refactoring.costs(anchors)
            return interpolate(comparisons, anchors, costs).to(outputs.dtype)

    def refactor(self, outputs: Tensor, targets: Tensor, generator: torch.Generator) -> Refactoring:
        """Comparisons of one set, and what they cost; the generator draws the pixels of a large segmentation."""
        if self._decisions is None:
            check_predictions(self.metric.kind, outputs, targets, want_scores=not self.metric.reads_probabilities)
            self._decisions = find_decisions(self.metric, outputs, self.threshold)
        scores = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        if self.metric.kind is Kind.SEGMENTATION and targets.numel() > self.num_pixels:
            scores, targets = draw_pixels(scores, targets, self.num_pixels, generator)

        def costs(decoded: Tensor) -> Tensor:
            cost = self.metric.cost(decoded, targets.expand(len(decoded), *targets.shape))
            # a metric that is not defined on these targets is not, whatever the scores: nothing to learn
            return cost.nan_to_num(nan=0.0).to(scores.dtype)

        if self._decisions is Decisions.THRESHOLDS:
            return refactor_thresholds(scores, targets, costs, threshold=self.threshold)
        rows, labels, restore = lay_out(self.metric.kind, scores, targets)
        refactor = refactor_winners if self._decisions is Decisions.WINNERS else refactor_orders
        refactoring = refactor(rows, labels, lambda decoded: costs(restore(decoded)), num_rivals=self.num_rivals)
        read_bits = self._read_bits
        if read_bits is None:
            return refactoring
        return Refactoring(refactoring.comparisons, lambda anchors: -read_bits(anchors, labels))

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.num_calls)

    def set_extra_state(self, state: Tensor) -> None:
        self.num_calls = int(state)


# ------------------------------------------------------------------------------------------ interpolation: h and g


def interpolate(comparisons: Tensor, anchors: Tensor, costs: Tensor) -> Tensor:
    """The relaxed bits (eq. 9) and their cost between the anchors (eq. 10): ``[B...], [A, B...], [A] -> []``."""
    relaxed = comparisons.sigmoid().flatten()
    anchors = anchors.flatten(1)
    # the square of (bit - anchor) written out, so that no number is needed for each bit of each anchor
    squared_distances = torch.addmv(anchors.sum(1), anchors, relaxed, alpha=-2) + relaxed.dot(relaxed)
    # the smallest number stands for 0: at an anchor its cost counts alone, as in eq. 10, and the slope stays finite
    log_weights = squared_distances.clamp(min=torch.finfo(relaxed.dtype).tiny).log() * -0.5
    weights: Tensor = log_weights.softmax(0)
    return weights.dot(costs)


def draw_anchors(comparisons: Tensor, num_anchors: int, generator: torch.Generator) -> Tensor:
    """The best configuration and ``num_anchors`` good, near and bad ones (section 3.4): ``[3 num_anchors + 1, B...]``.

    1 is a wrong bit. Good anchors flip one bit of the best. Near ones flip one bit of the present configuration, a
    wrong one while there is any (so does the released code; the paper does not say). Bad ones are random.
    """
    flat = comparisons.detach().flatten()
    chances = torch.stack([flat > -torch.inf, flat >= 0]).to(flat.dtype)
    is_bit, is_wrong = chances
    anchors = flat.new_zeros(3 * num_anchors + 1, len(flat))
    good_and_near, near, bad = anchors[1:-num_anchors], anchors[-2 * num_anchors : -num_anchors], anchors[-num_anchors:]
    near.copy_(is_wrong)
    torch.mul(_draw_bits(num_anchors, len(flat), generator), is_bit, out=bad)
    # the small chances count where there is nothing else to draw: no wrong bit, or no bit at all
    is_wrong.add_(is_bit, alpha=1e-9)
    flipped = torch.multinomial(chances.add_(1e-18), num_anchors, replacement=True, generator=generator).view(-1, 1)
    good_and_near.scatter_(1, flipped, 1 - good_and_near.gather(1, flipped))
    return anchors.view(-1, *comparisons.shape)


def _draw_bits(num_rows: int, num_bits: int, generator: torch.Generator) -> Tensor:
    # eight rows from one random byte: drawing is a good part of the whole cost
    shape = (-(-num_rows // 8), num_bits)
    randoms = torch.randint(256, shape, dtype=torch.uint8, device=generator.device, generator=generator)
    shifts = torch.arange(8, dtype=torch.uint8, device=generator.device)
    return (randoms >> shifts[:, None, None] & 1).flatten(0, 1)[:num_rows]


# ------------------------------------------------------------------------- refactorings: f, and how g decodes the bits


def refactor_winners(
    scores: Tensor, labels: Tensor, costs_of: CostsOfScores, *, num_rivals: int | None = None
) -> Refactoring:
    """Each row's target against its rivals (section 3.2): scores ``[..., C]``, labels ``[...]``, bits ``[..., R]``.

    A configuration decodes into scores with the target at 0 and its rivals above or below, among themselves in their
    present order. So it also tells which rival wins, as F1 and mIoU want to know.
    """
    num_classes = scores.shape[-1]
    # a target that is left out is ahead of everything: no bit
    label = labels.clamp(min=0).long().unsqueeze(-1)
    own_scores = scores.gather(-1, label).masked_fill((labels == IGNORE_INDEX).unsqueeze(-1), torch.inf)
    comparisons = (scores - own_scores).scatter(-1, label, -torch.inf)
    rivals: Tensor | None = None
    if num_rivals is not None and num_rivals < num_classes - 1:
        comparisons, rivals = comparisons.topk(num_rivals)

    def costs(anchors: Tensor) -> Tensor:
        if rivals is not None:
            anchors = scores.new_zeros(len(anchors), *scores.shape).scatter(-1, rivals.expand_as(anchors), anchors)
        places = (scores.argsort(-1).argsort(-1) - num_classes).scatter(-1, label, 0)
        return costs_of(places + (num_classes + 1) * anchors)

    return Refactoring(comparisons, costs)


def refactor_thresholds(scores: Tensor, targets: Tensor, costs_of: CostsOfScores, *, threshold: float) -> Refactoring:
    """One bit for each score: is it on the side of the threshold where its target is?"""
    side = torch.where(targets == 1, 1.0, -1.0).to(scores.dtype)
    comparisons = (side * (threshold - scores)).masked_fill(targets == IGNORE_INDEX, -torch.inf)
    return Refactoring(comparisons, lambda anchors: costs_of(threshold + side * (1 - 2 * anchors)))


def refactor_orders(
    scores: Tensor, relevance: Tensor, costs_of: CostsOfScores, *, num_rivals: int | None = None
) -> Refactoring:
    """Each item against those of its query that belong behind it (section 4.2): ``[Q, D]``, bits ``[Q, rows, R]``.

    Items of equal relevance are not compared; they stay in their present order. A configuration decodes into the number
    of items that each one beats, which are the places of an order, if it is one. Most random bits are none (a before b
    before c before a). The released code calls their metric 0; here items get what they win, and may be tied.
    """
    # most relevant first, left out last: the items to compare are a leading block, their rivals a trailing one
    order = torch.argsort(relevance, dim=-1, descending=True, stable=True)
    scores, relevance = scores.gather(-1, order), relevance.gather(-1, order).to(scores.dtype)
    is_kept = relevance != IGNORE_INDEX
    lowest = relevance.masked_fill(~is_kept, torch.inf).amin(-1, keepdim=True)
    # these sizes depend on the targets: a GPU waits here
    num_rows = int((relevance > lowest).sum(-1).max())
    num_best = int((relevance == relevance[:, :1]).sum(-1).min())
    rivals = torch.arange(num_best, scores.shape[-1], device=scores.device).expand(len(scores), -1)
    if num_rivals is not None and num_rivals < rivals.shape[-1]:
        is_rival = is_kept & (relevance < relevance[:, :1])
        rivals = scores.detach().masked_fill(~is_rival, -torch.inf).topk(num_rivals).indices
    belongs_behind = relevance[:, :num_rows, None] > relevance.gather(-1, rivals)[:, None]
    belongs_behind &= is_kept.gather(-1, rivals)[:, None]
    comparisons = (scores.gather(-1, rivals)[:, None] - scores[:, :num_rows, None]).masked_fill(
        ~belongs_behind, -torch.inf
    )

    def costs(anchors: Tensor) -> Tensor:
        # of equal scores the more relevant one is behind, as in the bits; beating what is left out is no merit
        places = torch.argsort(scores.masked_fill(~is_kept, -torch.inf), dim=-1, stable=True).argsort(-1)
        num_beaten = places.to(scores.dtype).repeat(len(anchors), 1, 1)
        won_back = (comparisons >= 0).to(scores.dtype) - anchors
        num_beaten[..., :num_rows] += won_back.sum(-1)
        num_beaten.scatter_add_(-1, rivals.expand(len(anchors), -1, -1), -won_back.sum(-2))
        return costs_of(torch.empty_like(num_beaten).scatter_(-1, order.expand_as(num_beaten), num_beaten))

    return Refactoring(comparisons, costs)


# ------------------------------------------- two metrics straight from their bits, several times as fast as from scores


def read_accuracy(anchors: Tensor, labels: Tensor) -> Tensor:
    """A row is right where no rival is above its target (eq. 8): ``[A, N, R], [N] -> [A]``."""
    is_kept = labels != IGNORE_INDEX
    # a product, because sums of a few numbers each are slow
    num_above = anchors @ anchors.new_ones(anchors.shape[-1])
    num_right = ((num_above == 0) & is_kept).sum(-1)
    return num_right.to(anchors.dtype) / is_kept.sum().clamp(min=1)


def read_average_precision(anchors: Tensor, _: Tensor) -> Tensor:
    """``[A, 1, rows, R] -> [A]``: the positives, by the number of negatives ahead of each, are in a known order.

    The k-th of them has n negatives and k - 1 positives ahead: its precision is k / (k + n). For bits that are no order
    this is the definition.
    """
    num_ahead = anchors[:, 0].sum(-1).sort(-1).values
    place = torch.arange(1, num_ahead.shape[-1] + 1, device=anchors.device)
    return (place / (place + num_ahead)).mean(-1)


# -------------------------------------------------------------------------------- what the kind of a metric stands for


def find_decisions(metric: Metric, outputs: Tensor, threshold: float) -> Decisions:
    """What the metric reads, found by moving random scores in ways that leave some decisions as they are.

    ``outputs``, one set, tell the number of classes or labels, which a metric may insist on.
    """
    generator = torch.Generator().manual_seed(0)

    def costs(scores: Tensor, targets: Tensor) -> Tensor:
        return metric.cost(scores.to(outputs.device), targets.to(outputs.device))

    if metric.kind is Kind.RANKING:
        return Decisions.ORDERS
    if metric.kind in (Kind.BINARY, Kind.MULTILABEL):
        shape = (1, 64, *outputs.shape[1:])
        targets = torch.randint(2, shape, generator=generator)
        scores = threshold + targets - 0.5 + torch.randn(shape, generator=generator)
        base, above, below = (costs(scores + shift, targets) for shift in (0, 10, -10))
        if torch.allclose(base, above) and torch.allclose(base, below):
            return Decisions.ORDERS
        right, wrong = (costs(threshold + side * (targets - 0.5), targets) for side in (1, -1))
        if not bool(right < wrong):
            raise ValueError(
                f"{metric.name} is no better with every score on its target's side of {threshold:g} than with none; "
                "threshold= is to say from which score on the metric takes a yes."
            )
        return Decisions.THRESHOLDS
    if metric.kind is Kind.MULTICLASS:
        targets = torch.randint(outputs.shape[1], (1, 64), generator=generator)
        scores = torch.randn(1, 64, outputs.shape[1], generator=generator)
        shift, scale = torch.randn(2, 1, 64, 1, generator=generator)
        if not torch.allclose(costs(scores, targets), costs(shift + scale.exp() * scores, targets)):
            raise ValueError(
                f"{metric.name} compares scores of different rows; UniLoss takes multiclass metrics that read the "
                "order of the scores within each row."
            )
    return Decisions.WINNERS


def lay_out(kind: Kind, scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
    """One set as rows or queries ``[..., C]`` with their labels or relevance, and the way back for decoded scores."""
    if kind is Kind.BINARY:
        return scores[None], targets[None], lambda decoded: decoded[:, 0]
    if kind is Kind.MULTILABEL:
        # a query for each label
        return scores.T, targets.T, lambda decoded: decoded.mT
    if kind is Kind.SEGMENTATION:
        return scores.movedim(1, -1), targets, lambda decoded: decoded.movedim(-1, 2)
    if kind is Kind.HEATMAP:
        height, width = scores.shape[-2:]
        return (
            scores.flatten(2),
            find_pixels(targets, height, width),
            lambda decoded: decoded.unflatten(-1, (height, width)),
        )
    return scores, targets, lambda decoded: decoded


def find_pixels(targets: Tensor, height: int, width: int) -> Tensor:
    """The pixel of each joint ``[N, K]``, which competes with all others of its heatmap.

    The paper compares every pixel within the radius with every one outside (section 4.3): a quadratic number of bits.
    One of them is enough for a right answer, and the metric still counts all of them as right.
    """
    is_kept = (targets[..., 2] > 0) & (targets != IGNORE_INDEX).all(-1)
    x, y = targets[..., 0].round().clamp(0, width - 1), targets[..., 1].round().clamp(0, height - 1)
    return (y * width + x).long().where(is_kept, IGNORE_INDEX)


def draw_pixels(scores: Tensor, targets: Tensor, num_pixels: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A segmentation of fewer pixels: one image, one pixel wide."""
    picked = torch.randperm(targets.numel(), device=targets.device, generator=generator)[:num_pixels]
    return scores.movedim(1, 0).flatten(1)[:, picked][None, :, :, None], targets.flatten()[picked][None, :, None]
