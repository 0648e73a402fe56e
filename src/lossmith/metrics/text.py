"""Scores of strings, for evaluation: SQuAD's exact match and F1, BLEU, ROUGE-L, edit distance.

Training works on token ids (:mod:`lossmith.metrics.tokens`, :mod:`lossmith.metrics.span`). What is reported in a paper
is measured on strings, with the normalisation that its benchmark prescribes, and where that is a package, by calling
it. Fractions go from 0 to 1. A reference is a string, or several of which the best counts.

>>> squad_exact_match(["The Eiffel Tower!", "in 1889"], ["eiffel tower", ["1889", "the year 1889"]])
0.5
>>> round(squad_f1(["The Eiffel Tower!", "in 1889"], ["eiffel tower", ["1889", "the year 1889"]]), 4)
0.8333
>>> edit_distance(["kitten", "lawn"], ["sitting", "lawn"])
3
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from importlib import import_module
from statistics import fmean
from typing import Any

from lossmith.metrics.ngrams import Smoothing

References = Sequence[str | Sequence[str]]

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def squad_exact_match(predictions: Sequence[str], references: References) -> float:
    """Share of the predictions that are equal to a reference after :func:`normalize_answer`.

    An example without references (``[]``) has no answer, and an empty prediction is right.
    """
    return _mean_of_best(lambda prediction, reference: float(prediction == reference), predictions, references)


def squad_f1(predictions: Sequence[str], references: References) -> float:
    """Mean F1 of the words of predictions and references after :func:`normalize_answer`, without their order.

    As in the script of SQuAD 2.0, an empty answer scores 1 against an empty one and 0 against any other; that of 1.1
    gives 0 for both.
    """
    return _mean_of_best(_f1_of_words, predictions, references)


def normalize_answer(answer: str) -> str:
    """SQuAD's rules: lower case, no punctuation, no articles, single spaces."""
    words = re.sub(r"\b(a|an|the)\b", " ", answer.lower().translate(_PUNCTUATION))
    return " ".join(words.split())


def bleu(
    hypotheses: Sequence[str],
    references: References,
    *,
    max_order: int = 4,
    smoothing: Smoothing = "exp",
    tokenizer: str = "13a",
) -> float:
    """Corpus BLEU by sacrebleu; ``tokenizer`` is one of its own: ``"13a"``, ``"zh"``, ``"char"``, ``"none"``..."""
    several = _lists_of_references(hypotheses, references)
    most = max(map(len, several))
    # sacrebleu wants one list per reference, with None where an example has fewer
    columns = [[each[column] if column < len(each) else None for each in several] for column in range(most)]
    scorer = _text_package("sacrebleu").BLEU(max_ngram_order=max_order, smooth_method=smoothing, tokenize=tokenizer)
    return float(scorer.corpus_score(hypotheses, columns).score) / 100


def rouge_l(
    hypotheses: Sequence[str], references: References, *, tokenizer: Callable[[str], Sequence[str]] | None = None
) -> float:
    """Mean F1 of the longest common subsequence of words, by torchmetrics.

    Without a ``tokenizer``, words are runs of a-z and 0-9 in the lower-case text, as in the original script. Any other
    script needs one (``list`` for characters, ``str.split`` for words): it is given the text as it is.
    """
    from torchmetrics.functional.text import rouge_score  # here: it takes a second to load

    several = _lists_of_references(hypotheses, references)
    normalizer = None if tokenizer is None else str
    scores = rouge_score(hypotheses, several, "best", rouge_keys="rougeL", normalizer=normalizer, tokenizer=tokenizer)
    return float(scores["rougeL_fmeasure"])


def edit_distance(hypotheses: Sequence[Sequence[Hashable]], references: Sequence[Sequence[Hashable]]) -> int:
    """Total of the Levenshtein distances between the characters of strings, or between lists of tokens."""
    _check_pairs(hypotheses, references)
    levenshtein = _text_package("rapidfuzz.distance").Levenshtein
    return sum(map(levenshtein.distance, hypotheses, references))


def normalized_edit_distance(
    hypotheses: Sequence[Sequence[Hashable]], references: Sequence[Sequence[Hashable]]
) -> float:
    """Mean of the Levenshtein distances, each over the length of the longer of the two; two empty strings are equal."""
    _check_pairs(hypotheses, references)
    levenshtein = _text_package("rapidfuzz.distance").Levenshtein
    return fmean(map(levenshtein.normalized_distance, hypotheses, references))


def _f1_of_words(prediction: str, reference: str) -> float:
    predicted, actual = prediction.split(), reference.split()
    if not predicted or not actual:
        return float(predicted == actual)
    common = (Counter(predicted) & Counter(actual)).total()
    return 2 * common / (len(predicted) + len(actual))


def _mean_of_best(score: Callable[[str, str], float], predictions: Sequence[str], references: References) -> float:
    several = _lists_of_references(predictions, [each or "" for each in references])
    return fmean(
        max(score(normalize_answer(prediction), normalize_answer(reference)) for reference in each)
        for prediction, each in zip(predictions, several)
    )


def _lists_of_references(hypotheses: Sequence[str], references: References) -> list[Sequence[str]]:
    _check_pairs(hypotheses, references)
    several = [[each] if isinstance(each, str) else each for each in references]
    if not all(several):
        raise ValueError("an example came without references; one or more work.")
    return several


def _check_pairs(hypotheses: Sequence[object], references: Sequence[object]) -> None:
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise ValueError("hypotheses or references came as one string; lists of strings work.")
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses came with references for {len(references)}.")
    if not hypotheses:
        raise ValueError("there are no hypotheses: a score needs one or more.")


def _text_package(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0]
        message = f"this score takes {package}, which comes with an extra: pip install 'lossmith[text]'."
        raise ModuleNotFoundError(message, name=error.name) from None
