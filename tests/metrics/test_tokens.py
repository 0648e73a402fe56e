from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from rapidfuzz.distance import Levenshtein
from sacrebleu.metrics.bleu import BLEU
from torch import Tensor
from torch.testing import assert_close
from torchmetrics.functional.classification import multiclass_accuracy
from torchmetrics.functional.text import rouge_score, squad

from lossmith.metrics import tokens
from lossmith.vocabulary import IGNORE_INDEX, Kind, Metric
from tests.metrics.samples import sample
from tests.metrics.test_sequences import Sequences

END = 0
OF_PAIRS: dict[str, Callable[..., Metric]] = {
    "bleu": tokens.bleu,
    "rouge_l": tokens.rouge_l,
    "bag_f1": tokens.bag_f1,
    "edit_distance": tokens.edit_distance,
    "normalized_edit_distance": tokens.normalized_edit_distance,
}


def scores_of(ids: list[list[int]]) -> Tensor:
    """Scores whose best tokens are ``ids``."""
    return 5.0 * torch.nn.functional.one_hot(torch.tensor(ids), 10) - 1.0


def read(hypotheses: Tensor, targets: Tensor, end_token: int | None) -> tuple[Sequences, Sequences]:
    """One set, with plain loops: what the docstring of the module says."""
    hypotheses_read, references_read = [], []
    for hypothesis, target in zip(hypotheses.tolist(), targets.tolist()):
        kept = [i for i, token in enumerate(target) if token != IGNORE_INDEX]
        if not kept:
            continue
        reference = [target[i] for i in kept]
        if end_token is not None:
            kept += range(kept[-1] + 1, len(target))
        hypothesis = [hypothesis[i] for i in kept]
        for ids, read in ((hypothesis, hypotheses_read), (reference, references_read)):
            read.append(ids[: ids.index(end_token)] if end_token in ids else ids)
    return hypotheses_read, references_read


def oracle(name: str, hypotheses: Sequences, references: Sequences) -> float:
    if name == "edit_distance":
        return sum(map(Levenshtein.distance, hypotheses, references))
    if name == "normalized_edit_distance":
        return sum(map(Levenshtein.normalized_distance, hypotheses, references)) / len(references)
    predicted, actual = ([" ".join(map(str, ids)) for ids in each] for each in (hypotheses, references))
    if name == "bleu":
        return BLEU(tokenize="none", force=True).corpus_score(predicted, [actual]).score / 100
    if name == "rouge_l":
        return rouge_score(predicted, actual, rouge_keys="rougeL")["rougeL_fmeasure"].item()
    assert name == "bag_f1"
    predictions = [{"id": str(i), "prediction_text": each} for i, each in enumerate(predicted)]
    answers = [{"id": str(i), "answers": {"answer_start": [0], "text": [each]}} for i, each in enumerate(actual)]
    return squad(predictions, answers)["f1"].item() / 100


@pytest.mark.parametrize("end_token", [None, END])
@pytest.mark.parametrize("ignored_share", [0.0, 0.3])
@pytest.mark.parametrize("name", OF_PAIRS)
def test_equal_to_the_oracle(
    name: str, ignored_share: float, end_token: int | None, generator: torch.Generator
) -> None:
    metric = OF_PAIRS[name](end_token=end_token)
    outputs, targets = sample(Kind.TOKENS, set_size=12, generator=generator, ignored_share=ignored_share)
    targets[:, :2] = IGNORE_INDEX
    values = metric.value(outputs, targets)
    expected = [oracle(name, *read(*one_set, end_token)) for one_set in zip(outputs.argmax(-1), targets)]
    assert_close(values, torch.tensor(expected, dtype=values.dtype), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("hypothesis", "target", "expected"),
    [
        ([0, 5, 5, 5], [5, 6, 0, -100], ([], [5, 6])),  # an empty hypothesis
        ([5, 6, 7, 8], [0, -100, -100, -100], ([5, 6, 7, 8], [])),  # an empty reference, a hypothesis without end
        ([0, 5, 5, 5], [0, -100, -100, -100], ([], [])),
        (
            [9, 9, 5, 6, 7, 0],
            [-100, -100, 5, 6, 0, -100],
            ([5, 6, 7], [5, 6]),
        ),  # a prompt is left out, what follows not
        ([5, 9, 6, 0], [5, -100, 6, 0], ([5, 6], [5, 6])),  # a gap
        ([5, 6, 0, 7], [5, 6, 7, 8], ([5, 6], [5, 6, 7, 8])),
    ],
)
def test_where_a_hypothesis_ends(hypothesis: list[int], target: list[int], expected: tuple[list[int], ...]) -> None:
    pairs = tokens.read_pairs(scores_of([hypothesis]), torch.tensor([target]), end_token=END)
    lengths = int(pairs.hypothesis_lengths), int(pairs.reference_lengths)
    ids = pairs.hypotheses[0].tolist(), pairs.references[0].tolist()
    assert tuple(each[:length] for each, length in zip(ids, lengths)) == expected


@pytest.mark.parametrize("name", OF_PAIRS)
@pytest.mark.parametrize(
    ("hypothesis", "target"), [([0, 5], [5, 6]), ([5, 6], [0, -100]), ([0, 5], [0, -100]), ([5, 5], [5, 5])]
)
def test_empty_sequences(name: str, hypothesis: list[int], target: list[int]) -> None:
    value = OF_PAIRS[name](end_token=END)(scores_of([hypothesis]), torch.tensor([target]))
    pair = read(torch.tensor([hypothesis]), torch.tensor([target]), END)
    assert value.item() == pytest.approx(oracle(name, *pair), abs=1e-6)


def test_worked_by_hand() -> None:
    outputs = scores_of([[1, 2, 3, 4], [5, 5, 6, 9]])
    targets = torch.tensor([[1, 3, 4, 4], [5, 6, 6, -100]])
    assert tokens.edit_distance()(outputs, targets).item() == 3  # drop 2 and add 4; 5 becomes 6
    assert tokens.normalized_edit_distance()(outputs, targets).item() == pytest.approx((2 / 4 + 1 / 3) / 2)
    assert tokens.token_accuracy()(outputs, targets).item() == pytest.approx(4 / 7)
    assert tokens.rouge_l()(outputs, targets).item() == pytest.approx((3 / 4 + 2 / 3) / 2)
    assert tokens.bag_f1()(outputs, targets).item() == pytest.approx((3 / 4 + 2 / 3) / 2)
    # first sequence: precision 3/4, recall 3/4; a large beta leaves recall, here with a longer hypothesis
    assert tokens.rouge_l(beta=1e4)(scores_of([[1, 2, 3, 4]]), torch.tensor([[1, 3, 4, 9]])).item() == pytest.approx(
        0.75
    )
    assert tokens.bleu(max_order=1)(outputs, targets).item() == pytest.approx(5 / 7)


def test_token_accuracy_is_that_of_all_positions(generator: torch.Generator) -> None:
    outputs, targets = sample(Kind.TOKENS, generator=generator, ignored_share=0.4)
    is_kept = targets != IGNORE_INDEX
    is_right = outputs.argmax(-1) == targets
    expected = torch.stack([right[kept].float().mean() for right, kept in zip(is_right, is_kept)])
    assert_close(tokens.token_accuracy().value(outputs, targets), expected)
    peer = [
        multiclass_accuracy(o.flatten(0, 1), t.flatten(), 11, average="micro", ignore_index=-100)
        for o, t in zip(outputs, targets)
    ]
    assert_close(tokens.token_accuracy().value(outputs, targets), torch.stack(peer))


def test_parameters_are_checked() -> None:
    with pytest.raises(ValueError, match="max_order=0"):
        tokens.bleu(max_order=0)
    with pytest.raises(ValueError, match="beta=-1"):
        tokens.rouge_l(beta=-1)
    with pytest.raises(ValueError, match="smoothing='add-1' is unknown; exp, floor, add-k, none work"):
        tokens.bleu(smoothing="add-1")  # type: ignore[arg-type]
