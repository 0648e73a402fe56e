"""The last resort, for metrics that nobody can look into: move all scores a little, and see what that is worth.

An estimate of the gradient of the metric smoothed by Gaussian noise, from pairs of opposite noise (evolution
strategies, Salimans et al. 2017). It needs many runs for a noisy answer, and never looks at a decision.

>>> targets = torch.tensor([1.0, -1.0])
>>> def misses(outputs, targets):
...     return float(((outputs > 0) != (targets > 0)).float().mean())
>>> outputs = torch.zeros(2, requires_grad=True)
>>> smoothed_cost(misses, outputs, targets, sigma=1.0, generator=torch.Generator().manual_seed(0)).backward()
>>> outputs.grad.sign()  # a step against it takes the first up and the second down
tensor([-1.,  1.])
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

NUM_PAIRS = 16


def smoothed_cost(
    cost: Callable[[Tensor, Tensor], float],
    outputs: Tensor,
    targets: Tensor,
    *,
    sigma: float,
    generator: torch.Generator,
) -> Tensor:
    """The mean cost under noise of the width ``sigma``, with an estimate of its gradient."""
    scores = outputs.detach()
    total, gradient, num_pairs = 0.0, torch.zeros_like(scores), 0
    for _ in range(NUM_PAIRS):
        noise = torch.randn(scores.shape, generator=generator).to(scores)
        above, below = cost(scores + sigma * noise, targets), cost(scores - sigma * noise, targets)
        if above == above and below == below:  # a set on which the metric is not defined says nothing
            total += (above + below) / 2
            gradient += (above - below) / (2 * sigma) * noise
            num_pairs += 1
    num_pairs = max(num_pairs, 1)
    return total / num_pairs + ((outputs - scores) * gradient / num_pairs).sum()
