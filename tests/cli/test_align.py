"""Alignment from the command line, and one sentence for each thing that can be wrong with a file."""

from __future__ import annotations

import math
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from lossmith.alignment import measure_alignment
from lossmith.baselines import find_loss
from lossmith.metrics import METRICS
from lossmith.predictions import load_predictions
from tests.cli.conftest import Run

DRAW = ("--sets", 100, "--set-size", 32)


def logits(generator: torch.Generator, num_sets: int = 6, num_rows: int = 200) -> tuple[Tensor, Tensor]:
    """Binary scores of models that are better and better."""
    targets = torch.randint(2, (num_sets, num_rows), generator=generator)
    skill = torch.linspace(0.2, 3, num_sets)[:, None]
    return skill * (2 * targets - 1) + torch.randn(num_sets, num_rows, generator=generator), targets


@pytest.fixture
def binary_file(tmp_path: Path, generator: torch.Generator) -> Path:
    return write(tmp_path, *logits(generator))


def write(folder: Path, outputs: Tensor, targets: Tensor) -> Path:
    np.savez(folder / "p.npz", outputs=outputs.numpy(), targets=targets.numpy())
    return folder / "p.npz"


def test_json_is_what_the_library_says(run: Run, binary_file: Path) -> None:
    chosen = ("--loss", "ce", "--loss", "mse")
    result = run("align", "--metric", "ap", *chosen, "--predictions", binary_file, *DRAW, "--seed", 3, "--json")
    assert (result.code, result.err) == (0, "")
    assert list(result.json["losses"]) == ["ce", "mse"]
    stored = load_predictions(binary_file, kind="binary")
    expected = measure_alignment(find_loss("ce", "binary"), METRICS["ap"], stored, num_sets=100, set_size=32, seed=3)
    got = result.json["losses"]["ce"]
    assert got["spearman"] == vars(expected.spearman)
    assert got["kendall"] == vars(expected.kendall)
    assert got["sign"] == 1
    assert got["num_sets"] == 100
    assert 0.8 < got["spearman"]["value"] <= 1


def test_table_has_the_best_first(run: Run, binary_file: Path) -> None:
    lines = run("align", "--metric", "auc", "--predictions", binary_file, *DRAW).out.splitlines()
    assert lines[0].strip() == "auc on 100 sets of 32 predictions"
    values = [float(re.search(r"-?\d\.\d+", line).group()) for line in lines[2:]]  # type: ignore[union-attr]
    assert len(values) >= 2
    assert values == sorted(values, reverse=True)
    assert re.search(
        r"\nce +0\.\d{3} \[0\.\d{3}, \d\.\d{3}\] +0\.\d{3} \[0\.\d{3}, \d\.\d{3}\] +\d+\.\d%", "\n".join(lines)
    )


def test_plot(run: Run, binary_file: Path, tmp_path: Path) -> None:
    plot = tmp_path / "p.png"
    chosen = ("--metric", "auc", "--loss", "ce", "--loss", "mse")
    assert run("align", *chosen, "--predictions", binary_file, *DRAW, "--plot", plot).code == 0
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_sets_without_a_value_are_counted(run: Run, tmp_path: Path, generator: torch.Generator) -> None:
    outputs, targets = logits(generator)
    targets[:, 2:] = 0  # few positives: many a drawn set has none
    out = run("align", "--metric", "ap", "--loss", "ce", "--predictions", write(tmp_path, outputs, targets), *DRAW).out
    assert re.fullmatch(r"\d+ sets are left out: the metric is not defined on them.", out.splitlines()[-1])


@pytest.fixture
def my_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"mine_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(
        "not_a_function = 3\n"
        "def right(outputs, targets):\n    return ((outputs > 0) == targets.bool()).float().mean()\n"
        "def wrong(outputs, targets):\n    return 1 - right(outputs, targets)\n"
        "def soft(outputs, targets):\n    return (outputs.sigmoid() - targets).abs().mean()\n"
    )
    (tmp_path / f"broken_{name}.py").write_text("import a_package_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    return name


def test_functions_of_ones_own(run: Run, binary_file: Path, my_functions: str) -> None:
    common = ("--kind", "binary", "--predictions", binary_file, *DRAW, "--json")
    losses = ("--loss", "ce", "--loss-fn", f"{my_functions}:soft")
    higher = run("align", "--metric-fn", f"{my_functions}:right", "--higher-is-better", *losses, *common).json
    lower = run("align", "--metric-fn", f"{my_functions}:wrong", "--lower-is-better", *losses, *common).json
    assert higher["metric"] == "right"
    assert list(higher["losses"]) == ["ce", f"{my_functions}:soft"]
    for name in higher["losses"]:
        assert higher["losses"][name]["spearman"]["value"] > 0.7
        assert higher["losses"][name]["spearman"] == lower["losses"][name]["spearman"]
    known = run(
        "align", "--metric", "binary_accuracy", "--loss", "ce", "--predictions", binary_file, *DRAW, "--json"
    ).json
    assert known["losses"]["ce"]["kendall"] == higher["losses"]["ce"]["kendall"]


def test_functions_that_are_not_there(run: Run, binary_file: Path, my_functions: str) -> None:
    def sentence(name: str, *options: str) -> str:
        return run("align", "--metric-fn", name, *options, "--predictions", binary_file).sentence

    known = ("--kind", "binary", "--higher-is-better")
    assert sentence("nothing_here:f", *known) == "there is no module 'nothing_here' here or among the installed ones."
    assert sentence(f"{my_functions}:f", *known) == f"{my_functions} has no function 'f'."
    assert sentence(f"{my_functions}:not_a_function", *known) == f"{my_functions} has no function 'not_a_function'."
    assert sentence("f", *known) == "'f' came; MODULE:FUNCTION works, as in my_metrics:cost_of_errors."
    assert sentence(f"{my_functions}:right").startswith(f"say what {my_functions}:right reads (--kind)")
    assert sentence(f"{my_functions}:right", "--kind", "binry", "--higher-is-better").startswith(
        "'binry' is not a kind"
    )


def test_functions_that_fail(run: Run, binary_file: Path, my_functions: str) -> None:
    """No traceback: what failed, and where in the user's file."""
    Path(f"failing_{my_functions}.py").write_text(
        "import torch\n"
        "def one_argument(outputs):\n    return 0.0\n"
        "def raises(outputs, targets):\n    return torch.cat([outputs, targets[None]]).mean()\n"
        "def value_error(outputs, targets):\n    raise ValueError('of mine')\n"
        "def not_a_number(outputs, targets):\n    return outputs\n"
    )
    Path(f"syntax_{my_functions}.py").write_text("def f(:\n")

    def sentence(name: str, *options: str) -> str:
        return run("align", *options, name, "--predictions", binary_file, *DRAW).sentence

    metric = ("--loss", "ce", "--kind", "binary", "--higher-is-better", "--metric-fn")
    for options in (("--metric", "f1", "--loss-fn"), metric):
        file = f"failing_{my_functions}"
        assert "your code failed with TypeError: one_argument() takes 1" in sentence(f"{file}:one_argument", *options)
        assert re.fullmatch(
            rf"your code failed with RuntimeError: .*\({file}\.py, line 5\)", sentence(f"{file}:raises", *options)
        )
        assert "ValueError: of mine" in sentence(f"{file}:value_error", *options)
        assert "a single real number works" in sentence(f"{file}:not_a_number", *options)
    assert "your code failed with SyntaxError" in sentence(f"syntax_{my_functions}:f", *metric)
    assert sentence(f"broken_{my_functions}:f", *metric) == (
        "your code failed with ModuleNotFoundError: No module named 'a_package_that_is_not_there' "
        f"(broken_{my_functions}.py, line 1)"
    )


def test_probabilities_for_a_metric_and_a_loss_that_read_them(
    run: Run, tmp_path: Path, generator: torch.Generator, my_functions: str
) -> None:
    path = write(tmp_path, *probabilities(*logits(generator)))
    common = ("--loss-fn", f"{my_functions}:right", "--predictions", path, *DRAW)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = run("align", "--metric", "auc", *common)
    assert result.code == 0
    assert result.err.startswith("Warning: binary predictions: all 1200 outputs")
    for options in (("--metric", "f1"), ("--metric", "auc", "--loss", "ce")):
        assert "these are probabilities" in run("align", *options, *common).sentence


def test_a_loss_that_is_the_same_on_all_sets_comes_last(run: Run, binary_file: Path, my_functions: str) -> None:
    Path(f"constant_{my_functions}.py").write_text("def zero(outputs, targets):\n    return 0 * outputs.sum()\n")
    losses = ("--loss-fn", f"constant_{my_functions}:zero", "--loss", "hinge", "--loss", "ce")
    lines = run("align", "--metric", "auc", *losses, "--predictions", binary_file, *DRAW).out.splitlines()
    assert "zero" in lines[-1]


def test_which_metric(run: Run, binary_file: Path) -> None:
    for options in ((), ("--metric", "ap", "--metric-fn", "a:b")):
        assert run("align", *options, "--predictions", binary_file).sentence.startswith(
            "name one metric: --metric NAME"
        )
    sentence = run("align", "--metric", "ap", "--kind", "binary", "--predictions", binary_file).sentence
    assert sentence == "ap knows its kind and its direction; --kind and --higher-is-better go with --metric-fn."


def test_unknown_names(run: Run, binary_file: Path) -> None:
    sentence = run("align", "--metric", "balanced_acuracy", "--predictions", binary_file).sentence
    assert "no metric called 'balanced_acuracy'; did you mean 'balanced_accuracy'?" in sentence
    sentence = run("align", "--metric", "ap", "--loss", "hinj", "--predictions", binary_file).sentence
    assert "no loss called 'hinj'; did you mean 'hinge'?" in sentence


def test_a_kind_without_a_hand_made_loss(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lossmith.cli.losses.names_for", lambda _: [])
    sentence = run("align", "--metric", "pck", "--predictions", tmp_path / "p.npz").sentence
    assert sentence == "no hand-made loss reads heatmap predictions; --loss-fn MODULE:FUNCTION takes your own."


# what is done to a good file, and what the sentence says of it
def probabilities(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    return outputs.sigmoid(), targets


def with_nan(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    outputs[1, 5] = math.nan
    return outputs, targets


def label_two(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    targets[1, 5] = 2
    return outputs, targets


def empty(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    return outputs[:, :0], targets[:, :0]


def one_class(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    return outputs, torch.ones_like(targets)


def other_shapes(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    return outputs, targets[:, :50]


def small(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    return outputs[:, :20], targets[:, :20]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (probabilities, r"these are probabilities; raw scores \(logits\) work"),
        (with_nan, r"1 of 1200 outputs are NaN or infinite"),
        (label_two, r"targets go from 0 to 2; 0 to 1 works"),
        (empty, r"the set is empty"),
        (one_class, r"every target is [01]; targets of several classes work"),
        (other_shapes, r"outputs \(6, 200\) and targets \(6, 50\) differ in N"),
        (small, r"set_size=32 rows .* stored sets of 20 rows"),
    ],
)
def test_bad_predictions(run: Run, tmp_path: Path, generator: torch.Generator, spoil: object, words: str) -> None:
    assert callable(spoil)
    path = write(tmp_path, *spoil(*logits(generator)))
    assert re.search(words, run("align", "--metric", "ap", "--loss", "ce", "--predictions", path, *DRAW).sentence)


def test_bad_files(run: Run, tmp_path: Path) -> None:
    def sentence(path: Path, metric: str = "ap") -> str:
        return run("align", "--metric", metric, "--loss", "ce", "--predictions", path).sentence

    assert sentence(tmp_path / "nowhere.npz") == f"{tmp_path / 'nowhere.npz'}: there is no such file."
    assert "end in .npz or .safetensors" in sentence(tmp_path / "p.pt")
    np.savez(tmp_path / "other.npz", x=np.zeros(3), y=np.zeros(3))
    assert sentence(tmp_path / "other.npz").endswith("has no array called outputs or targets; it has x, y.")
    (tmp_path / "broken.npz").write_bytes(b"no zip file")
    assert "cannot be read as .npz" in sentence(tmp_path / "broken.npz")
    (tmp_path / "broken.safetensors").write_bytes(b"no safetensors file")
    assert "cannot be read as .safetensors" in sentence(tmp_path / "broken.safetensors")


def test_metric_of_another_kind(run: Run, binary_file: Path) -> None:
    sentence = run("align", "--metric", "accuracy", "--loss", "ce", "--predictions", binary_file).sentence
    assert "one set is outputs [N, C] with targets [N]" in sentence


@pytest.mark.parametrize("name", ["missing/p.png", "p.xyz", "p"])
def test_a_plot_that_cannot_be_written_is_refused_before_anything_is_measured(
    run: Run, tmp_path: Path, name: str
) -> None:
    plot = tmp_path / name
    nothing = tmp_path / "nothing.npz"
    result = run("align", "--metric", "ap", "--loss", "ce", "--predictions", nothing, *DRAW, "--plot", plot)
    assert result.code == 2
    assert f"the plot cannot be written to {plot}: a file that ends in .png or .svg or .pdf works" in result.err
