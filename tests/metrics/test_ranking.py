from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from math import log2

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score
from torch import Tensor
from torch.testing import assert_close
from torchmetrics.functional import retrieval as torchmetrics

from lossmith.metrics import ranking
from lossmith.vocabulary import Metric

# textbook definitions on the relevance of one query's documents, in order
TEXTBOOK: dict[str, Callable[[list[int], int], float]] = {
    "map": lambda ordered, k: np.mean([np.mean(np.sign(ordered[: i + 1])) for i, r in enumerate(ordered) if r]),
    "mrr": lambda ordered, k: 1 / (1 + next(i for i, r in enumerate(ordered) if r)),
    "precision_at_k": lambda ordered, k: np.count_nonzero(ordered[:k]) / k,
    "recall_at_k": lambda ordered, k: np.count_nonzero(ordered[:k]) / np.count_nonzero(ordered),
    "ndcg": lambda ordered, k: dcg(ordered, k) / dcg(sorted(ordered, reverse=True), k),
}
K = 2
METRICS = {
    **ranking.TABLE,
    "ndcg": ranking.ndcg(k=K),
    "precision_at_k": ranking.precision_at_k(k=K),
    "recall_at_k": ranking.recall_at_k(k=K),
}
every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())


def dcg(ordered: list[int], k: int) -> float:
    return sum((2**relevance - 1) / log2(2 + position) for position, relevance in enumerate(ordered[:k]))


def random_stack(
    generator: torch.Generator, *, num_levels: int = 1000, max_relevance: int = 2
) -> tuple[Tensor, Tensor]:
    """6 sets of 5 queries with 12 documents, padded, some queries without a relevant document, some without any."""
    outputs = torch.randint(num_levels, (6, 5, 12), generator=generator).float() - num_levels // 2
    targets = torch.randint(max_relevance + 1, (6, 5, 12), generator=generator)
    targets[torch.rand(targets.shape, generator=generator) < 0.2] = -100
    targets[1, 1] = -100
    targets[2] = targets[2].clamp(max=0)
    targets[3, 4] = 0
    return outputs, targets


@every_metric
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=6))
@settings(deadline=None, max_examples=60)
def test_ties_are_the_mean_over_all_orders(metric: Metric, documents: list[tuple[int, int]]) -> None:
    scores, relevance = zip(*documents)
    value = metric(torch.tensor([scores]).float(), torch.tensor([relevance]))
    if not any(relevance):
        assert value.isnan()
        return
    # a stable sort of every order of the documents: every order of tied documents, equally often
    orders = (sorted(order, key=lambda document: -document[0]) for order in permutations(documents))
    expected = np.mean([TEXTBOOK[metric.name]([r for _, r in order], K) for order in orders])
    assert value.item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("num_levels", [3, 10_000], ids=["many ties", "few ties"])
@pytest.mark.parametrize("k", [1, 3, 12, 100])
@pytest.mark.parametrize("gain", ["exponential", "linear"])
def test_ndcg_is_that_of_scikit_learn(generator: torch.Generator, num_levels: int, k: int, gain: ranking.Gain) -> None:
    outputs = torch.randint(num_levels, (8, 4, 12), generator=generator).float()
    targets = torch.randint(5, (8, 4, 12), generator=generator)
    targets[0] = 0
    targets[1, 2] = 0
    gains = 2**targets - 1 if gain == "exponential" else targets
    expected = [ndcg_score(g, scores, k=k) for g, scores in zip(gains.numpy(), outputs.numpy())]
    values = ranking.ndcg(k=k, gain=gain, empty_query="zero").value(outputs, targets)
    assert_close(values.double(), torch.tensor(expected, dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ndcg_of_relevance_that_counts_clicks(dtype: torch.dtype) -> None:
    """2 ** 5000 is infinite in any precision; beside the best document, all others count as nothing."""
    outputs = torch.tensor([[3.0, 2.0, 1.0, 0.0]], dtype=dtype)
    value = ranking.ndcg()(outputs, torch.tensor([[4000, 5000, 3, 0]]))
    assert_close(value, torch.tensor(1 / log2(3), dtype=dtype))
    assert ranking.ndcg(k=1)(outputs, torch.tensor([[4000, 5000, 3, 0]])) < 1e-30
    assert ranking.ndcg()(outputs, torch.tensor([[5000, 4000, 3, 0]])) == 1


@pytest.mark.parametrize("k", [1, 5, 12, 30])
def test_values_are_those_of_torchmetrics(generator: torch.Generator, k: int) -> None:
    # above 0, because torchmetrics takes a document with a score below 0 for one that was not retrieved
    outputs = torch.rand(40, 1, 12, generator=generator) + 0.01
    targets = torch.randint(2, (40, 1, 12), generator=generator)
    for metric, peer in (
        (ranking.ndcg(k=k), lambda o, t: torchmetrics.retrieval_normalized_dcg(o, t, top_k=k)),
        (ranking.map(), torchmetrics.retrieval_average_precision),
        (ranking.mrr(), torchmetrics.retrieval_reciprocal_rank),
        (ranking.precision_at_k(k=k), lambda o, t: torchmetrics.retrieval_precision(o, t, top_k=k)),
        (ranking.recall_at_k(k=k), lambda o, t: torchmetrics.retrieval_recall(o, t, top_k=k)),
    ):
        expected = torch.stack([peer(o[0], t[0]) for o, t in zip(outputs, targets)])
        assert_close(metric.value(outputs, targets), expected, atol=1e-6, rtol=0)


@every_metric
def test_padding_is_as_if_it_were_not_there(metric: Metric, generator: torch.Generator) -> None:
    outputs, targets = random_stack(generator, num_levels=4)
    for scores, relevance in zip(outputs, targets):
        alone = [metric(s[r != -100][None], r[r != -100][None]) for s, r in zip(scores, relevance) if (r != -100).any()]
        assert_close(metric(scores, relevance), torch.stack(alone).nanmean(), equal_nan=True, atol=1e-6, rtol=0)


@every_metric
def test_stack_is_its_sets(metric: Metric, generator: torch.Generator) -> None:
    outputs, targets = random_stack(generator, num_levels=4)
    alone = torch.stack([metric(o, t) for o, t in zip(outputs, targets)])
    assert_close(metric.value(outputs, targets), alone, equal_nan=True)
    assert alone.isnan().tolist() == [False, False, True, False, False, False]


@every_metric
def test_order_scale_and_shift_do_not_matter(metric: Metric, generator: torch.Generator) -> None:
    outputs, targets = random_stack(generator, num_levels=5)
    documents, queries = torch.randperm(12, generator=generator), torch.randperm(5, generator=generator)
    shuffled = (each[:, queries][..., documents] for each in (outputs, targets))
    value = metric.value(outputs, targets)
    assert_close(metric.value(*shuffled), value, equal_nan=True, atol=1e-6, rtol=0)
    assert_close(metric.value(outputs * 64 - 32, targets), value, equal_nan=True)


@every_metric
def test_higher_is_better(metric: Metric) -> None:
    targets = torch.tensor([[3, 1, 0, 0], [0, 0, 0, 2]])
    assert metric(-targets.float(), targets) < metric(torch.zeros(2, 4), targets) < metric(targets.float(), targets)
    if metric.name != "precision_at_k":  # two documents fit into the first two, the second query has one
        assert metric(targets.float(), targets) == 1
    assert metric.cost(targets[None].float(), targets[None]) < metric.cost(-targets[None].float(), targets[None])


@every_metric
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(metric: Metric, dtype: torch.dtype, generator: torch.Generator) -> None:
    outputs, targets = random_stack(generator, num_levels=100)  # whole numbers that bfloat16 holds
    value = metric.value(outputs.to(dtype), targets)
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert_close(value.float(), metric.value(outputs, targets), equal_nan=True, atol=1e-6, rtol=0)


@every_metric
def test_saturated_scores_and_sets_of_one(metric: Metric) -> None:
    assert_close(
        metric(torch.tensor([[1e4, -1e4]]), torch.tensor([[1, 0]])),
        metric(torch.tensor([[1.0, 0.0]]), torch.tensor([[1, 0]])),
    )
    assert metric(torch.tensor([[-7.0]]), torch.tensor([[1]])) == (1 / K if metric.name == "precision_at_k" else 1)
    assert metric(torch.tensor([[-7.0]]), torch.tensor([[0]])).isnan()
    assert metric(torch.tensor([[-7.0]]), torch.tensor([[-100]])).isnan()


def test_queries_without_a_relevant_document() -> None:
    outputs = torch.tensor([[2.0, 1.0], [1.0, 2.0], [2.0, 1.0]])
    targets = torch.tensor([[1, 0], [0, 0], [-100, -100]])
    assert ranking.mrr()(outputs, targets) == 1
    assert ranking.mrr(empty_query="zero")(outputs, targets) == 0.5
    assert ranking.mrr(empty_query="zero")(outputs[2:], targets[2:]).isnan()


def test_long_queries_of_equal_scores() -> None:
    """Closed forms: the mean of 1/position, and the sum over harmonic numbers."""
    num_documents = 1000
    targets = torch.zeros(1, num_documents, dtype=torch.long)
    targets[0, 0] = 1
    harmonic = sum(1 / position for position in range(1, num_documents + 1))
    for metric in (ranking.map(), ranking.mrr()):
        assert metric(torch.ones(1, num_documents), targets).item() == pytest.approx(harmonic / num_documents, abs=1e-6)
    targets[:] = 1
    for metric in (ranking.map(), ranking.mrr(), ranking.ndcg(k=500)):
        assert metric(torch.ones(1, num_documents), targets).item() == pytest.approx(1, abs=1e-6)


def test_options_that_do_not_exist() -> None:
    for k in (0, 2.5, "10"):
        with pytest.raises(ValueError, match=f"k={k!r}; a whole number from 1 on works"):
            ranking.ndcg(k=k)
    with pytest.raises(ValueError, match="'exponential' and 'linear' work"):
        ranking.ndcg(gain="log")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'skip' and 'zero' work"):
        ranking.map(empty_query="one")  # type: ignore[arg-type]
