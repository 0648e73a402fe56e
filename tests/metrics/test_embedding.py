from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_curve
from torch import Tensor
from torch.testing import assert_close

from lossmith.kinds import Kind
from lossmith.metrics import embedding
from lossmith.vocabulary import Metric
from tests.metrics.samples import sample

METRICS = {
    **embedding.TABLE,
    "recall_at_5": embedding.retrieval_recall_at_k(k=5),
    "recall_euclidean": embedding.retrieval_recall_at_k(distance="euclidean"),
    "map_euclidean": embedding.retrieval_map(distance="euclidean"),
    "accuracy_balanced": embedding.verification_accuracy(balanced=True),
    "accuracy_euclidean": embedding.verification_accuracy(distance="euclidean"),
    "eer_euclidean": embedding.verification_eer(distance="euclidean"),
}
every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())
every_distance = pytest.mark.parametrize("distance", ["cosine", "euclidean"])
SINGLETON = 99


@pytest.fixture
def stack(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """With items left out, and one that has no partner in each set."""
    outputs, targets = sample(Kind.EMBEDDING, generator=generator, ignored_share=0.1)
    targets[:, 3] = SINGLETON
    return outputs, targets


@pytest.fixture
def stack_of_ties() -> tuple[Tensor, Tensor]:
    """Some embeddings are equal and some similarities: few places, on the axes and the diagonals, in two lengths."""
    generator = torch.Generator().manual_seed(1)
    outputs = torch.randint(-2, 3, (12, 9, 2), generator=generator).float()
    outputs[(outputs == 0).all(-1)] = 1.0
    return outputs, torch.randint(3, (12, 9), generator=generator)


def compare(outputs: Tensor, targets: Tensor, distance: str) -> tuple[np.ndarray, np.ndarray]:
    """Similarity and sameness of the kept items, in plain numpy; equal but for rounding is equal."""
    embeddings = outputs[targets != -100].double().numpy()
    if distance == "cosine":
        embeddings = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
        similarity = (embeddings[:, None] * embeddings[None]).sum(-1)
    else:
        similarity = -np.linalg.norm(embeddings[:, None] - embeddings[None], axis=-1)
    identities = targets[targets != -100].numpy()
    return similarity.round(7), identities[:, None] == identities[None]


def queries(outputs: Tensor, targets: Tensor, distance: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Similarity and sameness of the others, for each item that has a partner."""
    similarity, is_same = compare(outputs, targets, distance)
    others = ~np.eye(len(similarity), dtype=bool)
    rows = [(similarity[item][keep], is_same[item][keep]) for item, keep in enumerate(others)]
    return [(scores, same) for scores, same in rows if same.any()]


def roc(outputs: Tensor, targets: Tensor, distance: str) -> tuple[np.ndarray, np.ndarray, float]:
    """False and true positive rate at every threshold over pairs, and the share of pairs of one identity."""
    similarity, is_same = compare(outputs, targets, distance)
    upper = np.triu_indices(len(similarity), 1)
    false_rate, true_rate, _ = roc_curve(is_same[upper], similarity[upper], drop_intermediate=False)
    return false_rate, true_rate, is_same[upper].mean()


@every_distance
@pytest.mark.parametrize("k", [1, 2, 5, 100])
def test_recall_is_that_of_a_search(stack: tuple[Tensor, Tensor], distance: embedding.Distance, k: int) -> None:
    values = embedding.retrieval_recall_at_k(k=k, distance=distance).value(*stack)
    for outputs, targets, value in zip(*stack, values):
        hits = [same[np.argsort(-scores)[:k]].any() for scores, same in queries(outputs, targets, distance)]
        assert value.item() == pytest.approx(np.mean(hits), abs=1e-6)


@every_distance
def test_map_is_that_of_scikit_learn(stack: tuple[Tensor, Tensor], distance: embedding.Distance) -> None:
    values = embedding.retrieval_map(distance=distance).value(*stack)
    for outputs, targets, value in zip(*stack, values):
        precisions = [average_precision_score(same, scores) for scores, same in queries(outputs, targets, distance)]
        assert value.item() == pytest.approx(np.mean(precisions), abs=1e-6)


@every_distance
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_recall_of_ties_is_the_mean_over_all_orders(
    stack_of_ties: tuple[Tensor, Tensor], distance: embedding.Distance, k: int
) -> None:
    stack = tuple(each[:, :6] for each in stack_of_ties)
    values = embedding.retrieval_recall_at_k(k=k, distance=distance).value(*stack)
    for outputs, targets, value in zip(*stack, values):
        hits = [
            same[sorted(order, key=lambda item: -scores[item])[:k]].any()
            for scores, same in queries(outputs, targets, distance)
            for order in permutations(range(5))
        ]
        assert value.item() == pytest.approx(np.mean(hits), abs=1e-6)


@every_distance
@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("predictions", ["stack", "stack_of_ties"])
def test_accuracy_is_the_best_of_all_thresholds(
    predictions: str, distance: embedding.Distance, balanced: bool, request: pytest.FixtureRequest
) -> None:
    stack = request.getfixturevalue(predictions)
    values = embedding.verification_accuracy(distance=distance, balanced=balanced).value(*stack)
    for outputs, targets, value in zip(*stack, values):
        false_rate, true_rate, share = roc(outputs, targets, distance)
        share = 0.5 if balanced else share
        assert value.item() == pytest.approx((share * true_rate + (1 - share) * (1 - false_rate)).max(), abs=1e-6)


@every_distance
@pytest.mark.parametrize("predictions", ["stack", "stack_of_ties"])
def test_equal_error_rate_is_where_the_rates_meet(
    predictions: str, distance: embedding.Distance, request: pytest.FixtureRequest
) -> None:
    stack = request.getfixturevalue(predictions)
    values = embedding.verification_eer(distance=distance).value(*stack)
    for outputs, targets, value in zip(*stack, values):
        false_rate, true_rate, _ = roc(outputs, targets, distance)
        gap = np.abs(false_rate - (1 - true_rate))
        candidates = ((false_rate + 1 - true_rate) / 2)[gap <= gap.min() + 1e-12]
        assert np.abs(candidates - value.item()).min() < 1e-6


@every_metric
def test_stack_is_its_sets(metric: Metric, stack: tuple[Tensor, Tensor], stack_of_ties: tuple[Tensor, Tensor]) -> None:
    for outputs, targets in (stack, stack_of_ties):
        alone = torch.stack([metric(o, t) for o, t in zip(outputs, targets)])
        assert_close(metric.value(outputs, targets), alone, atol=1e-6, rtol=0)


@every_metric
def test_order_and_names_of_identities_do_not_matter(
    metric: Metric, stack_of_ties: tuple[Tensor, Tensor], generator: torch.Generator
) -> None:
    outputs, targets = stack_of_ties
    order = torch.randperm(targets.shape[1], generator=generator)
    names = torch.tensor([70, -3, 12])
    assert_close(metric.value(outputs[:, order], names[targets[:, order]]), metric.value(outputs, targets))


@every_metric
def test_left_out_is_as_if_it_were_not_there(metric: Metric, stack: tuple[Tensor, Tensor]) -> None:
    for outputs, targets in zip(*stack):
        is_kept = targets != -100
        assert_close(metric(outputs, targets), metric(outputs[is_kept], targets[is_kept]), atol=1e-6, rtol=0)


def test_singletons_are_found_but_do_not_ask() -> None:
    outputs = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.9, 0.4]])
    assert embedding.retrieval_recall_at_k()(outputs, torch.tensor([1, 1, 2])) == 0
    assert embedding.retrieval_map()(outputs, torch.tensor([1, 1, 2])) == 0.5
    assert embedding.retrieval_recall_at_k()(outputs, torch.tensor([1, 1, -100])) == 1


@every_metric
def test_better_embeddings_cost_less(metric: Metric, generator: torch.Generator) -> None:
    targets = torch.arange(5).repeat(1, 6)
    perfect = torch.nn.functional.one_hot(targets, 8).float()
    noise = torch.randn(perfect.shape, generator=generator)
    # five chances are easily taken, and "never the same" is hard to beat: each needs noise of its own to show it
    some = 0.7 if metric is METRICS["recall_at_5"] else 0.4
    costs = [metric.cost(perfect + share * noise, targets) for share in (0.01, some, 10.0)]
    assert costs[0] < costs[1] < costs[2]
    assert metric.value(perfect, targets) == (1 if metric.higher_is_better else 0)


@every_metric
@pytest.mark.parametrize("width", [1, 7, 100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_collapsed_embeddings_are_all_ties(
    metric: Metric, width: int, dtype: torch.dtype, generator: torch.Generator
) -> None:
    """Not the rounding errors of a matrix product: 2 of 10 are its own, one asks 9 others."""
    targets = torch.tensor([0, 1, 2, 3, 4] * 2)
    outputs = torch.randn(50, 1, width, dtype=dtype, generator=generator).expand(-1, 10, -1)
    values = metric.value(outputs, targets.expand(50, -1))
    expected = {
        "retrieval_recall_at_k": 5 / 9 if metric is METRICS["recall_at_5"] else 1 / 9,
        "retrieval_map": sum(1 / rank for rank in range(1, 10)) / 9,
        "verification_accuracy": 0.5 if metric is METRICS["accuracy_balanced"] else 40 / 45,
        "verification_eer": 0.5,
    }[metric.name]
    assert_close(values, torch.full((50,), expected, dtype=dtype), atol=1e-6, rtol=0)


@every_metric
def test_undefined_is_nan(metric: Metric) -> None:
    outputs = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert metric(outputs[:1], torch.tensor([4])).isnan()
    assert metric(outputs, torch.tensor([1, 2, 3])).isnan()
    assert metric(outputs, torch.tensor([-100, -100, -100])).isnan()
    assert metric(outputs, torch.tensor([5, -100, 6])).isnan()
    only_one_identity = metric(outputs, torch.tensor([5, 5, 5]))
    assert only_one_identity.isnan() if metric.name.startswith("verification") else only_one_identity == 1


@every_metric
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(metric: Metric, dtype: torch.dtype, stack_of_ties: tuple[Tensor, Tensor]) -> None:
    outputs, targets = stack_of_ties  # small whole numbers
    value = metric.value(outputs.to(dtype), targets)
    assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert_close(value.float(), metric.value(outputs, targets), atol=1e-6, rtol=0)


@every_metric
def test_saturated_and_zero_embeddings(metric: Metric) -> None:
    outputs = torch.tensor([[1e4, -1e4], [1e4, -1e4], [0.0, 0.0], [-1e4, 1e4]])
    assert metric(outputs, torch.tensor([0, 0, 1, 2])) == (1 if metric.higher_is_better else 0)


def test_options_that_do_not_exist() -> None:
    with pytest.raises(ValueError, match="'cosine' and 'euclidean' work"):
        embedding.retrieval_map(distance="manhattan")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="k=0"):
        embedding.retrieval_recall_at_k(k=0)
