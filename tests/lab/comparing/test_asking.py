"""The whole answer: what is asked, what a folder keeps of it, and what it refuses to mix."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import lossmith
from lossmith.kinds import Kind
from lossmith.lab.comparing.asking import RUN_FILE, against_the_rest, answer_steps, data_in_words, settings_for
from lossmith.lab.comparing.insights import FILE_NAME, insight_steps, read_insights
from lossmith.lab.datasets.splitting import Pool
from lossmith.metrics import METRICS
from lossmith.vocabulary import Metric


def a_pool(num_classes: int = 2) -> Pool:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(90, 3, generator=generator)
    targets = torch.arange(90) % num_classes
    inputs[:, 0] += targets
    kind = Kind.BINARY if num_classes == 2 else Kind.MULTICLASS
    return Pool("toy", kind, inputs, targets, num_classes, ("a", "b", "c"), tuple("xyz"[:num_classes]))


POOL, F1 = a_pool(), METRICS["f1"]
SETTINGS = settings_for(POOL, F1, losses=["soft_f1"], num_seeds=2, num_trials=1, num_steps=10)


def answer(folder: Path, pool: Pool = POOL, metric: Metric = F1) -> None:
    settings = replace(SETTINGS, metric=metric.name)
    for _ in answer_steps(settings, pool, metric, folder, with_insights=False, command=("lossmith", "compare")):
        pass


def test_a_folder_belongs_to_one_question(tmp_path: Path) -> None:
    answer(tmp_path)
    kept = json.loads((tmp_path / RUN_FILE).read_text(encoding="utf8"))
    assert kept["facts"] == {
        "rows": "90",
        "columns": "3 as numbers",
        "classes": "x 50.0%, y 50.0%",
        "counts as yes": "y",
        "model that was trained": "linear",
    }
    answer(tmp_path)  # the same question
    mended = replace(POOL, targets=1 - POOL.targets)
    with pytest.raises(ValueError, match=r"has a run of another data: toy \(.*\), and now toy \(.*\) came"):
        answer(tmp_path, mended)
    with pytest.raises(ValueError, match=r"a run of another metric: f1 \(.*\), and now mcc"):
        answer(tmp_path, metric=METRICS["mcc"])
    other_code = replace(F1, value=lambda outputs, targets: METRICS["mcc"].value(outputs, targets))
    with pytest.raises(ValueError, match=r"a run of another metric: f1 \(.*\), and now f1"):
        answer(tmp_path, metric=other_code)


def test_the_class_that_counts_as_yes() -> None:
    three = a_pool(3)
    pool = against_the_rest(three, "y")
    assert (pool.kind, pool.num_classes, pool.classes) == (Kind.BINARY, 2, ("others", "y"))
    assert pool.targets.tolist() == (three.targets == 1).long().tolist()
    turned = against_the_rest(POOL, "x")
    assert (turned.name, turned.classes) == ("toy", ("y", "x"))
    assert data_in_words(turned) == "toy: 90 rows, 3 columns as numbers; classes y 50.0%, x 50.0%; x counts as yes."
    assert against_the_rest(POOL, None) is POOL
    with pytest.raises(ValueError, match="toy has no class 2; its classes are x, y"):
        against_the_rest(POOL, 2)


def test_columns_in_python() -> None:
    result = lossmith.compare(
        {"age": [float(k % 9) for k in range(60)], "kind": ["cat", "dog", "cow"] * 20},
        target="kind",
        positive_class="cow",
        metric="auc",
        losses=["pairwise"],
        num_seeds=2,
        num_trials=1,
        num_steps=10,
        progress=False,
    )
    assert result.settings.data == "data, cow against the rest"
    assert {row.recipe for row in result.table} == {"ce", "pairwise"}
    assert result.verdict in repr(result)
    assert "<table>" in result._repr_html_()


def test_what_else_helps_is_measured_again_where_cross_entropy_has_changed(tmp_path: Path) -> None:
    news = list(answer_steps(SETTINGS, POOL, F1, tmp_path))
    comparison = news[-1].comparison
    assert news[-1].what == "alignment"
    helps = read_insights(tmp_path).helps
    assert [each.what.split(" (")[0] for each in helps] == [
        "a tuned threshold",
        "twice as many steps",
        "a larger model",
    ]
    assert list(insight_steps(SETTINGS, POOL, F1, comparison, tmp_path)) == []
    content = json.loads((tmp_path / FILE_NAME).read_text(encoding="utf8"))
    (tmp_path / FILE_NAME).write_text(json.dumps({**content, "against": [0.0, 0.0]}), encoding="utf8")
    assert len(list(insight_steps(SETTINGS, POOL, F1, comparison, tmp_path))) > 0
