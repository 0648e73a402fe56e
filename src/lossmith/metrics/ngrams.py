"""N-grams in common, as one number: corpus BLEU (Papineni et al. 2002), from counts summed over a set of sequences.

>>> import torch
>>> hypothesis, reference = torch.tensor([[1, 2, 3, 4, 9]]), torch.tensor([[1, 2, 3, 4, 5]])
>>> length = torch.tensor([5])
>>> corpus_bleu(TokenPairs(hypothesis, reference, length, length))  # (4/5 * 3/4 * 2/3 * 1/2) ** (1/4)
tensor(0.6687)
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from lossmith.metrics.counts import ratio
from lossmith.metrics.sequences import TokenPairs, count_common_ngrams

Smoothing = Literal["exp", "floor", "add-k", "none"]


def corpus_bleu(pairs: TokenPairs, *, max_order: int = 4, smoothing: Smoothing = "exp") -> Tensor:
    """Pairs ``[..., N]`` to ``[...]``, from 0 to 1.

    ``smoothing`` says what becomes of an order of n-grams without a match (Chen and Cherry 2014, with the constants of
    sacrebleu): ``"exp"`` counts 1/2, 1/4 and so on with every such order, ``"floor"`` counts 0.1, ``"none"`` nothing,
    which makes the value 0; ``"add-k"`` adds 1 to matches and n-grams of every order but the first. As in sacrebleu, a
    set without any match is 0, and without ``"add-k"`` so is one that has no hypothesis of ``max_order`` tokens.
    """
    matches = count_common_ngrams(pairs, max_order=max_order).sum(-1)
    ngrams = torch.stack([(pairs.hypothesis_lengths - below).clamp(min=0).sum(-1) for below in range(max_order)])
    has_match = matches[0] > 0
    is_missed = (matches == 0) & (ngrams > 0)
    if smoothing == "exp":
        matches = matches.where(~is_missed, 0.5 ** is_missed.cumsum(0))
    elif smoothing == "floor":
        matches = matches.where(~is_missed, 0.1)
    elif smoothing == "add-k":
        matches[1:] += 1
        ngrams[1:] += 1
    length_ratio = ratio(pairs.reference_lengths.sum(-1), pairs.hypothesis_lengths.sum(-1))
    log_brevity = (1 - length_ratio).clamp(max=0)
    return (ratio(matches, ngrams).log().mean(0) + log_brevity).exp() * has_match
