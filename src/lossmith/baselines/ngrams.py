"""Expected n-grams in common with the reference, wherever they stand (Shao et al. 2020, bag of n-grams).

Cross-entropy punishes a sentence that is shifted by one word as if all of it were wrong. Here a position is a
distribution over tokens, independent of the others, so the expected number of times that an n-gram occurs is a sum of
products of probabilities; only n-grams of the reference matter, and none counts more often than it has them.

Shape legend: ``N`` sequences, ``T`` positions, ``V`` tokens, ``W`` places at which an n-gram can begin.

>>> import torch
>>> outputs = torch.tensor([[[3.0, 1.0], [1.0, 1.0]]]).log()
>>> bag_of_ngrams(Kind.TOKENS, order=1)(outputs, torch.tensor([[0, 0]]))  # 1 - (3/4 + 1/2) / 2
tensor(0.3750)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lossmith.vocabulary import IGNORE_INDEX, Kind, Loss, parse_kind


@dataclass(frozen=True)
class BagOfNgrams:
    """A loss: the mean over sequences of 1 minus the share of the reference's n-grams that are expected.

    What is left out is in no n-gram; a sequence without an n-gram says nothing. Memory grows with the square of T.
    """

    order: int

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        scores = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        is_kept = targets != IGNORE_INDEX
        reference = targets.masked_fill(~is_kept, 0).long()
        # [N, T, T]: the probability at one position of the token that the reference has at another
        index = reference.unsqueeze(-2).expand(-1, reference.shape[-1], -1)
        probability = scores.softmax(-1).gather(-1, index)
        is_equal = reference.unsqueeze(-1) == reference.unsqueeze(-2)
        num_places = max(reference.shape[-1] - self.order + 1, 0)

        def joined(pairs: Tensor) -> Tensor:
            """Of tokens to n-grams, ``[N, T, T]`` to ``[N, W, W]``: all along a diagonal."""
            product = pairs[:, :num_places, :num_places]
            for step in range(1, self.order):
                product = product * pairs[:, step : step + num_places, step : step + num_places]
            return product

        is_ngram = is_kept.unfold(-1, self.order, 1).all(-1) if num_places else is_kept[:, :0]
        begins = is_ngram.to(scores.dtype)
        expected = (joined(probability) * begins.unsqueeze(-1)).sum(-2)
        occurrences = (joined(is_equal.to(scores.dtype)) * begins.unsqueeze(-1)).sum(-2)
        # an n-gram that the reference has twice stands at two places: each counts half of what is matched
        matched = torch.minimum(expected, occurrences) / occurrences.clamp(min=1) * begins
        num_ngrams = begins.sum(-1)
        missed = (num_ngrams - matched.sum(-1)) / num_ngrams.clamp(min=1)
        # 0 * scores: without any n-gram a zero that keeps the graph
        value = missed.sum() / (num_ngrams > 0).sum().clamp(min=1) + 0.0 * scores.sum()
        return value.to(outputs.dtype)


def bag_of_ngrams(kind: Kind | str, *, order: int = 2) -> Loss:
    """Share of the reference's n-grams (by default pairs of tokens) not to be expected, wherever they stand."""
    if parse_kind(kind) is not Kind.TOKENS:
        raise ValueError(f"n-grams are of tokens; {kind} predictions came.")
    if order < 1:
        raise ValueError(f"order={order} came; 1 or more tokens make an n-gram.")
    return BagOfNgrams(order)
