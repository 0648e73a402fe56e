"""What people write when nobody watches: business rules, loops, exceptions, objects. Whole sets, higher is better."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
import torch
import torch.nn.functional as F

CLASSES = 4
COST = {(0, 1): 5, (1, 0): 1, (2, 3): 3}

# ---- outputs [N, 4], targets [N]


def costs_in_a_dictionary(outputs, targets):
    total = 0.0
    for guess, truth in zip(outputs.argmax(1).tolist(), targets.tolist()):
        total -= 0 if guess == truth else COST.get((truth, guess), 2)
    return total / len(targets)


def top2_with_ties(outputs, targets):
    second = outputs.topk(2, -1).values[:, -1:]
    return (outputs.gather(1, targets[:, None]) >= second).float().mean()


def reciprocal_place_of_the_target(outputs, targets):
    num_above = (outputs > outputs.gather(1, targets[:, None])).sum(1)
    return (1 / (1 + num_above.float())).mean()


def worst_class_with_exceptions(outputs, targets):
    counts = defaultdict(lambda: [0, 0])
    for guess, truth in zip(outputs.argmax(-1), targets):
        counts[int(truth)][int(guess == truth)] += 1
    shares = []
    for wrong, right in counts.values():
        try:
            shares.append(right / (wrong + right))
        except ZeroDivisionError:  # noqa: PERF203 - as people write it
            shares.append(0.0)
    return min(shares) + sum(shares)


def confusion_by_einsum(outputs, targets):
    guesses, truths = F.one_hot(outputs.argmax(-1), CLASSES).float(), F.one_hot(targets, CLASSES).float()
    confusion = torch.einsum("nc,nd->cd", truths, guesses)
    return (confusion.diag() / confusion.sum(1)).square().mean()


def accuracy_less_the_largest_class(outputs, targets):
    guesses = outputs.argmax(1)
    return (guesses == targets).float().mean() - 0.1 * max(Counter(guesses.tolist()).values()) / len(targets)


def accuracy_of_the_sure(outputs, targets):
    confidence, guesses = outputs.softmax(1).max(1)
    keep = confidence > 0.4
    if keep.sum() == 0:
        return torch.tensor(0.0)
    return (guesses[keep] == targets[keep]).float().mean() * keep.float().mean()


def nearest_neighbour_of_ones_class(outputs, targets):
    similarity = F.normalize(outputs, dim=1) @ F.normalize(outputs, dim=1).T
    similarity.fill_diagonal_(-1)
    return (targets[similarity.argmax(1)] == targets).float().mean()


def three_nearest_neighbours(outputs, targets):
    distance = torch.cdist(outputs, outputs)
    distance.fill_diagonal_(torch.inf)
    nearest = distance.topk(3, largest=False).indices
    return (targets[nearest] == targets[:, None]).float().mean()


def largest_in_numpy(outputs, targets):
    return (outputs.detach().cpu().numpy().argmax(1) == targets.numpy()).mean()


def first_two_in_numpy(outputs, targets):
    first = np.argsort(-outputs.softmax(1).detach().numpy(), axis=1)[:, :2]
    return np.mean([truth in row for row, truth in zip(first, targets.numpy())])


# ---- outputs [N], targets [N] of 0 and 1


def in_place_with_a_sigmoid(outputs, targets):
    outputs.sub_(0.2).sigmoid_()
    outputs[outputs < 0.5] = 0
    outputs[outputs >= 0.5] = 1
    return 1 - (outputs - targets).abs_().mean()


def share_of_those_behind(outputs, targets):
    rejected = outputs[targets == 0].sort().values
    return torch.searchsorted(rejected, outputs[targets == 1]).float().mean() / len(rejected)


def best_f1_of_some_thresholds(outputs, targets):
    best = torch.tensor(0.0)
    for threshold in (-0.5, 0.0, 0.5):
        is_called = outputs > threshold
        value = 2 * (is_called & (targets == 1)).sum() / (is_called.sum() + targets.sum())
        if value > best:
            best = value
    return best


def calls_until_the_money_is_gone(outputs, targets):
    order, i, money, gain = outputs.argsort(descending=True), 0, 20.0, 0.0
    while i < len(order) and money >= 2:
        money -= 2
        gain += 7.0 if targets[order[i]] == 1 else 0.0
        i += 1
    return gain


def decisions_in_a_function_in_a_function(outputs, targets):
    def decide(score):
        return 1 if score > 0 else 0

    def reward(guesses, truths):
        return sum(
            3 * (guess == 1 and truth == 1) - (guess == 1 and truth == 0) for guess, truth in zip(guesses, truths)
        )

    return reward([decide(score) for score in outputs], targets.tolist()) / len(targets)


def weights_by_where(outputs, targets):
    weights = torch.where(targets == 1, torch.tensor(3.0), torch.tensor(1.0))
    return (weights * torch.where(outputs > 0, targets, 1 - targets)).sum() / weights.sum()


def product_of_masked_means(outputs, targets):
    return (outputs[targets == 1] > 0).float().mean() * (outputs[targets == 0] <= 0).float().mean()


def hits_of_the_first_fifth(outputs, targets):
    return targets[outputs.sort(descending=True).indices].cumsum(0)[len(targets) // 5].float() / targets.sum()


def kolmogorov_smirnov(outputs, targets):
    in_order = targets[outputs.argsort()]
    shares = [(in_order == label).cumsum(0) / (in_order == label).sum() for label in (0, 1)]
    return (shares[0] - shares[1]).max()


def profit_in_numpy(outputs, targets):
    is_called, is_true = (outputs > 0).numpy().astype(int), targets.numpy()
    return float((3 * (is_called & is_true) - (is_called & (1 - is_true))).mean())


def f1_with_math(outputs, targets):
    hits, called = int(((outputs > 0) & (targets == 1)).sum()), int((outputs > 0).sum())
    return math.sqrt(hits / max(called, 1) * hits / int(targets.sum()))


def difference_of_groups(outputs, targets):
    group, is_called = torch.arange(len(targets)) % 2, outputs > 0
    gap = (is_called[group == 0].float().mean() - is_called[group == 1].float().mean()).abs()
    return (is_called == (targets == 1)).float().mean() - gap


def words(outputs, targets):
    names = ["no", "yes"]
    return sum(names[int(score > 0)] == names[int(truth)] for score, truth in zip(outputs, targets)) / len(targets)


def mean_of_numpy_bools(outputs, targets):
    return np.mean([bool(score > 0) == bool(truth) for score, truth in zip(outputs, targets)])


class Profit:
    def __init__(self, gain: float, cost: float) -> None:
        self.gain, self.cost = gain, cost

    def __call__(self, outputs, targets):
        is_called = outputs > 0
        return (self.gain * (is_called & (targets == 1)).sum() - self.cost * is_called.sum()) / len(targets)


# ---- of which the code gives no decisions away: random steps


def overlap_of_histograms(outputs, targets):
    shares = [torch.histc(outputs[targets == label], 10, -3, 3) / (targets == label).sum() for label in (0, 1)]
    return 1 - torch.minimum(*shares).sum()


def threshold_in_numpy(outputs, targets):
    return float(np.mean((outputs.detach().numpy() > 0.5) == targets.numpy()))


def floats(outputs, targets):
    return sum((2.0 if truth else -1.0) * (float(score) > 0) for score, truth in zip(outputs, targets))


MULTICLASS = [
    costs_in_a_dictionary, top2_with_ties, reciprocal_place_of_the_target, worst_class_with_exceptions,
    confusion_by_einsum, accuracy_less_the_largest_class, accuracy_of_the_sure,
    largest_in_numpy, first_two_in_numpy, nearest_neighbour_of_ones_class, three_nearest_neighbours,
]  # fmt: skip
BINARY = [
    in_place_with_a_sigmoid, share_of_those_behind, best_f1_of_some_thresholds, calls_until_the_money_is_gone,
    decisions_in_a_function_in_a_function, weights_by_where, product_of_masked_means, hits_of_the_first_fifth,
    kolmogorov_smirnov, profit_in_numpy, f1_with_math, difference_of_groups, words, mean_of_numpy_bools,
    Profit(gain=10, cost=1),
]  # fmt: skip
BLACK_BOXES = {overlap_of_histograms: "histc", threshold_in_numpy: "numpy", floats: "__float__"}
