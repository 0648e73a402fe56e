"""The paper's network of a set with its weights in one tensor and its gradients written out.

The same function as :class:`~lossmith.surrogates.deep_sets.DeepSets` on raw scores. A bilevel run takes ten steps of it
for three of the model, and it is so small that autograd and an optimizer of ten tensors cost several times what its
arithmetic does.

Shape legend: ``S`` sets, ``M`` rows, ``C`` scores in a row (1 in yes-or-no kinds).

>>> generator = torch.Generator().manual_seed(0)
>>> network = FlatDeepSets("binary", generator=generator)
>>> outputs = torch.randn(3, 50, generator=generator)
>>> summary = network.summarize(outputs, torch.randint(2, (3, 50), generator=generator))
>>> costs = torch.tensor([0.0, 0.5, 1.0])
>>> optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
>>> first = network.fit(*summary, costs)  # sets the gradient
>>> for _ in range(50):
...     optimizer.step()
...     fit = network.fit(*summary, costs)
>>> bool(fit < first)
True
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lossmith.surrogates.rows import BINARY_KINDS, ROW_KINDS, kept, to_rows
from lossmith.surrogates.surrogate import Setting, Surrogate
from lossmith.vocabulary import Kind, parse_kind

# a network has no use for a score of 10,000, and its gradient none for infinity
LARGEST_SCORE = 64.0


@final
class FlatDeepSets(Surrogate):
    """``h(mean over rows of g(scores, target))``: by default g has 30 and 30 units, h 10, 10 and 1 (section 4.1)."""

    def __init__(
        self,
        kind: Kind | str,
        *,
        num_classes: int = 1,
        row_widths: list[int] | None = None,
        set_widths: list[int] | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.kind = parse_kind(kind)
        if self.kind not in ROW_KINDS:
            raise ValueError(f"{kind} predictions are not judged row by row; {', '.join(ROW_KINDS)} predictions are.")
        if (num_classes == 1) != (self.kind in BINARY_KINDS):
            raise ValueError(f"num_classes={num_classes} does not go with {self.kind} predictions.")
        self.num_classes = num_classes
        self.row_widths = [30, 30] if row_widths is None else row_widths
        self.set_widths = [10, 10] if set_widths is None else set_widths
        sizes = [2 * num_classes, *self.row_widths, *self.set_widths, 1]
        self._shapes = [shape for size, next_size in pairwise(sizes) for shape in ((next_size, size), (next_size,))]
        self._lengths = [torch.Size(shape).numel() for shape in self._shapes]
        self._cut: list[tuple[Tensor, Tensor]] | None = None
        with torch.no_grad():
            self.weights = nn.Parameter(torch.rand(sum(self._lengths), generator=generator))
            self._spread()

    @property
    def has_sign_by_construction(self) -> bool:
        return False

    @property
    def settings(self) -> Mapping[str, Setting]:
        return {
            "kind": str(self.kind),
            "num_classes": self.num_classes,
            "row_widths": self.row_widths,
            "set_widths": self.set_widths,
        }

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return self.losses(*self.summarize(outputs, targets))

    def summarize(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        """Rows ``[S, M, 2C]``, scores beside the target (-1 and 1, or one-hot), and each row's share ``[S, M]``."""
        scores, targets = to_rows(self.kind, outputs, targets)
        weight = kept(targets, scores)
        count = weight.sum(-1, keepdim=True)
        if self.kind in BINARY_KINDS:
            is_positive = targets == 1
            rows = torch.stack([scores, torch.where(is_positive, 1.0, -1.0).to(scores.dtype)], -1)
            # Two positives among a hundred would hardly move the mean. Nothing is lost: a class's part of the whole,
            # the root of its count, still tells how many it has. On the paper's balanced sets it is the plain mean.
            num_positives = is_positive.sum(-1, keepdim=True)
            weight = weight / torch.where(is_positive, num_positives, count - num_positives).clamp_min(1).sqrt()
        else:
            if scores.shape[-1] != self.num_classes:
                raise ValueError(f"this loss was made for {self.num_classes} classes; {scores.shape[-1]} came.")
            truth = F.one_hot(targets.clamp_min(0).long(), self.num_classes)
            rows = torch.cat([scores, truth.to(scores.dtype)], -1)
        share = weight / weight.sum(-1, keepdim=True).masked_fill(count == 0, 1)
        return rows.clamp(-LARGEST_SCORE, LARGEST_SCORE), share

    def losses(self, *summary: Tensor) -> Tensor:
        rows, share = summary
        hidden = rows.flatten(0, 1)
        layers = self._layers(self.weights)
        num_row_layers = len(self.row_widths)
        for weight, bias in layers[:num_row_layers]:
            hidden = F.softplus(torch.addmm(bias, hidden, weight.T))
        pooled = torch.bmm(share.unsqueeze(1), hidden.view(*share.shape, -1)).squeeze(1)
        for weight, bias in layers[num_row_layers:-1]:
            pooled = F.softplus(torch.addmm(bias, pooled, weight.T))
        weight, bias = layers[-1]
        judged = torch.addmm(bias, pooled, weight.T).squeeze(-1)
        # a set of which everything is left out says nothing: zero, with a graph
        return torch.where(share.sum(-1) > 0, judged, judged * 0)

    def penalty(self, *summary: Tensor) -> Tensor:
        rows, share = summary
        with torch.enable_grad():
            rows = rows.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.losses(rows, share).sum(), rows, create_graph=True)
        scores_slope, truth = gradient[..., : self.num_classes], rows[..., self.num_classes :].detach()
        # in the right direction, and of one row's own loss, not of its share in the mean
        slope = (scores_slope * truth).sum(-1) / share.masked_fill(share == 0, 1)
        return ((slope + 1).square() * share).sum(-1)

    @torch.no_grad()
    def fit(self, rows: Tensor, share: Tensor, costs: Tensor) -> Tensor:
        """The mean distance of losses and costs ``[S]`` (L1, the paper's meta-loss); ``weights.grad`` becomes its
        gradient. A cost that is NaN does not count.
        """
        judged, trail = self._judge(rows, share)
        errors = (judged - costs).masked_fill(costs.isnan(), 0)
        parts: list[Tensor] = []
        self._go_back(trail, errors.sign() / len(errors), share, parts)
        self.weights.grad = torch.cat(parts[::-1])
        return errors.abs().mean()

    @torch.no_grad()
    def slopes(self, rows: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
        """The losses ``[S]`` and their gradient with respect to the scores ``[S, M, C]``."""
        judged, trail = self._judge(rows, share)
        gradient = self._go_back(trail, torch.ones_like(judged), share)
        return judged, gradient[..., : self.num_classes] * (rows[..., : self.num_classes].abs() < LARGEST_SCORE)

    def _layers(self, weights: Tensor) -> list[tuple[Tensor, Tensor]]:
        parts = [part.view(shape) for part, shape in zip(weights.split(self._lengths), self._shapes)]
        return list(zip(parts[::2], parts[1::2]))

    def _layers_in_place(self) -> list[tuple[Tensor, Tensor]]:
        """:meth:`_layers` of the weights as they are, kept: to cut ten views for each step takes as long as a layer."""
        if self._cut is None or self._cut[0][0].data_ptr() != self.weights.data_ptr():
            self._cut = self._layers(self.weights.detach())
        return self._cut

    def _spread(self) -> None:
        """First weights, from uniform ones in ``weights``: with those of torch's dense layers all sets look alike.

        The first layer's kinks lie all over the scores; the others hand on what they get instead of shrinking it. A
        softplus is log 2 at 0, which the bias of the next layer takes away.
        """
        self.weights.mul_(2).sub_(1)
        for number, (weight, bias) in enumerate(self._layers(self.weights)):
            bound = (2 if number else 4) * weight.shape[1] ** -0.5
            weight.mul_(bound)
            if number:
                bias.copy_(-math.log(2) * weight.sum(1))
            else:
                bias.mul_(bound)

    def _judge(self, rows: Tensor, share: Tensor) -> tuple[Tensor, _Trail]:
        """:meth:`losses`, and each layer's weight, input and output before its activation."""
        layers = self._layers_in_place()
        hidden, trail = rows.flatten(0, 1), []
        for number, (weight, bias) in enumerate(layers, start=1):
            before = F.linear(hidden, weight, bias)
            trail.append((weight, hidden, before))
            hidden = before if number == len(layers) else F.softplus(before)
            if number == len(self.row_widths):
                hidden = torch.bmm(share.unsqueeze(1), hidden.view(*share.shape, -1)).squeeze(1)
        return hidden.squeeze(-1), trail

    def _go_back(self, trail: _Trail, gradient: Tensor, share: Tensor, parts: list[Tensor] | None = None) -> Tensor:
        """From the gradient of the losses to that of the rows, or, collecting ``parts``, to those of the weights."""
        gradient = gradient.unsqueeze(-1)
        for number in reversed(range(len(trail))):
            weight, inputs, before = trail[number]
            if number == len(self.row_widths) - 1:
                gradient = torch.bmm(share.unsqueeze(-1), gradient.unsqueeze(1)).flatten(0, 1)
            if number < len(trail) - 1:
                gradient = torch.ops.aten.softplus_backward(gradient, before, 1, 20)
            if parts is not None:
                parts += [gradient.sum(0), (gradient.T @ inputs).flatten()]
                if number == 0:
                    return gradient
            gradient = gradient @ weight
        return gradient.view(*share.shape, -1)


_Trail = list[tuple[Tensor, Tensor, Tensor]]
