from __future__ import annotations

import gzip
import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from rapidfuzz.distance import LCSseq
from torchmetrics.functional.text import squad

from lossmith.metrics import text

ANSWERS = [
    "",
    "the",
    "The cat.",
    "a cat",
    "cat sat",
    "sat cat",
    "the cat, the cat",
    "in 1889",
    "1,889",
    "1889",
    "an-cat",
]


def published_words(answer: str) -> list[str]:
    """The rules of the SQuAD paper in another order of code: character by character."""
    kept = [
        " " if each.isspace() else each
        for each in answer.lower()
        if each not in r"""!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~"""
    ]
    separated = re.split(r"(\W)", "".join(kept))
    return "".join(" " if each in ("a", "an", "the") else each for each in separated).split()


def published_scores(prediction: str, references: list[str]) -> tuple[float, float]:
    matches, f1s = [], []
    for reference in references:
        left, right = Counter(published_words(prediction)), Counter(published_words(reference))
        same = sum(min(count, right[word]) for word, count in left.items())
        matches.append(float(published_words(prediction) == published_words(reference)))
        if not left or not right:
            f1s.append(float(left == right))
        elif same == 0:
            f1s.append(0.0)
        else:
            precision, recall = same / left.total(), same / right.total()
            f1s.append(2 * precision * recall / (precision + recall))
    return max(matches), max(f1s)


def check_squad(predictions: list[str], references: list[list[str]]) -> None:
    scores = [published_scores(*each) for each in zip(predictions, references)]
    matches, f1s = zip(*scores)
    assert text.squad_exact_match(predictions, references) == pytest.approx(sum(matches) / len(matches), abs=1e-9)
    assert text.squad_f1(predictions, references) == pytest.approx(sum(f1s) / len(f1s), abs=1e-9)


def test_squad_on_hard_answers() -> None:
    pairs = [(prediction, [reference]) for prediction in ANSWERS for reference in ANSWERS]
    for prediction, references in pairs:
        check_squad([prediction], [references])
    predictions, references = (list(each) for each in zip(*pairs))
    check_squad(predictions, references)
    check_squad(ANSWERS, [ANSWERS[i : i + 3] or ["x"] for i in range(len(ANSWERS))])
    # the implementation that most projects use
    score = squad(
        [{"id": str(i), "prediction_text": each} for i, each in enumerate(predictions)],
        [{"id": str(i), "answers": {"answer_start": [0], "text": each}} for i, each in enumerate(references)],
    )
    assert text.squad_exact_match(predictions, references) == pytest.approx(score["exact_match"].item() / 100, abs=1e-6)
    assert text.squad_f1(predictions, references) == pytest.approx(score["f1"].item() / 100, abs=1e-6)


def test_squad_on_real_answers(data_root: Path) -> None:
    """Predictions: another annotator's answer, and the answer with its neighbourhood in the text."""
    with gzip.open(data_root / "squad11_dev.json.gz", "rt", encoding="utf8") as file:
        articles = json.load(file)["data"]
    predictions, references = [], []
    for paragraph in (paragraph for article in articles[:4] for paragraph in article["paragraphs"]):
        for question in paragraph["qas"]:
            first, *others = question["answers"]
            near = paragraph["context"][
                max(0, first["answer_start"] - 9) : first["answer_start"] + len(first["text"]) + 9
            ]
            predictions += [others[-1]["text"] if others else "", near]
            references += [[each["text"] for each in others[:-1]] + [first["text"]]] * 2
    check_squad(predictions, references)
    assert 0.3 < text.squad_exact_match(predictions, references) < text.squad_f1(predictions, references) < 1


def test_squad_without_an_answer() -> None:
    assert text.squad_f1(["", "cat"], [[], []]) == text.squad_exact_match(["", "cat"], [[], []]) == 0.5


def test_bleu_is_that_of_sacrebleu_with_several_references() -> None:
    import sacrebleu

    hypotheses = ["The cat sat on the mat.", "It is raining."]
    expected = sacrebleu.corpus_bleu(
        hypotheses, [["A cat sat on the mat.", "It rains."], ["The cat sits.", None]]
    ).score
    references = [["A cat sat on the mat.", "The cat sits."], "It rains."]
    assert text.bleu(hypotheses, references) == pytest.approx(expected / 100, abs=1e-9)
    assert text.bleu(["你好吗朋友"], ["你好吗朋友"], tokenizer="zh") == pytest.approx(1)
    assert text.bleu(["one word"], ["one word"], smoothing="none") == 0
    assert text.bleu(["one word"], ["one word"], max_order=2) == pytest.approx(1)


def test_rouge_l() -> None:
    hypothesis, reference = "the quick brown fox jumps", "a quick fox will jump, the fox jumps"
    common = LCSseq.similarity(hypothesis.split(), reference.replace(",", "").split())
    assert text.rouge_l([hypothesis], [reference]) == pytest.approx(2 * common / (5 + 8))
    assert text.rouge_l([hypothesis], [["none at all", hypothesis]]) == pytest.approx(1)  # the best reference counts
    assert text.rouge_l(["日本語"], ["日本人"]) == 0  # no word of a-z
    assert text.rouge_l(["日本語"], ["日本人"], tokenizer=list) == pytest.approx(2 / 3)


def test_edit_distance() -> None:
    hypotheses, references = ["kitten", "", "same"], ["sitting", "abc", "same"]
    assert text.edit_distance(hypotheses, references) == 3 + 3 + 0
    assert text.normalized_edit_distance(hypotheses, references) == pytest.approx((3 / 7 + 1 + 0) / 3)
    assert text.normalized_edit_distance([""], [""]) == 0
    assert text.edit_distance([["the", "cat"]], [["the", "dog"]]) == 1  # lists of words


@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        ("one", ["one"], "lists of strings work"),
        (["one"], [], "1 hypotheses came with references for 0"),
        ([], [], "there are no hypotheses"),
        (["one"], [[]], "an example came without references"),
    ],
)
def test_bad_input(hypotheses: list[str], references: list[str], message: str) -> None:
    for score in (text.bleu, text.rouge_l):
        with pytest.raises(ValueError, match=message):
            score(hypotheses, references)


@pytest.mark.parametrize(("score", "package"), [(text.bleu, "sacrebleu"), (text.edit_distance, "rapidfuzz")])
def test_a_missing_extra_is_named(score: object, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.distance", None)
    with pytest.raises(ModuleNotFoundError, match=rf"{package}, .*pip install 'lossmith\[text\]'"):
        score(["a"], ["b"])  # type: ignore[operator]
