"""The data commands, and that stored predictions do not depend on how often their making was interrupted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from lossmith.lab.datasets import DATASETS
from lossmith.predictions import load_predictions
from tests.cli.conftest import Run

SMALL = ("--seeds", 2, "--epochs", 2, "--rows", 50, "--max-rows", 300)


def test_list(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOSSMITH_DATA", raising=False)
    listed = {dataset["name"]: dataset["is_here"] for dataset in run("data", "list", "--json").json["datasets"]}
    assert listed == {name: source.file_name is None for name, source in DATASETS.items()}
    out = run("data", "list").out
    assert re.search(r"\ndigits +yes  ", out)
    assert re.search(r"\nmnist +no  ", out)
    assert out.splitlines()[-1] == "LOSSMITH_DATA names the folder that holds the files of the others."


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_predictions(run: Run, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"p{suffix}"
    result = run("data", "predictions", "digits", "--out", out, *SMALL, "--json")
    assert (result.code, result.err) == (0, "")
    # 9 steps an epoch: after steps 1 and 4 and after 2 epochs, 2 seeds, rows of training and held-out rows
    assert result.json == {"out": str(out), "kind": "multiclass", "num_sets": 16, "set_size": 50}
    predictions = load_predictions(out, kind="multiclass")
    assert predictions.outputs.shape == (16, 50, 10)
    assert predictions.is_held_out is not None
    assert predictions.is_held_out.tolist() == [False, True] * 8
    assert list(tmp_path.iterdir()) == [out]


def test_seed_and_epoch_are_stored(run: Run, tmp_path: Path) -> None:
    run("data", "predictions", "digits", "--out", tmp_path / "p.npz", *SMALL)
    with np.load(tmp_path / "p.npz") as arrays:
        assert arrays["seed"].tolist() == [0] * 8 + [1] * 8
        assert arrays["epoch"][::2][:4] == pytest.approx([1 / 9, 4 / 9, 1, 2])


def test_yes_or_no_predictions(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "p.npz"
    result = run("data", "predictions", "digits", "--out", out, *SMALL, "--positive-class", 3)
    assert result.out == f"{out}: 16 sets of 50 binary predictions, half of them held out.\n"
    assert set(load_predictions(out, kind="binary").targets.unique().tolist()) == {0, 1}


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_predictions_of_images(run: Run, tmp_path: Path, data_root: Path, name: str) -> None:
    small = ("--seeds", 1, "--epochs", 1, "--rows", 16, "--max-rows", 256)
    result = run("data", "predictions", name, "--out", tmp_path / "p.npz", *small, "--json")
    assert result.json["num_sets"] == 4


def test_killed_and_started_again_ends_the_same(run: Run, tmp_path: Path) -> None:
    long = ("--seeds", 2, "--epochs", 3, "--rows", 50)
    whole, killed = tmp_path / "whole.npz", tmp_path / "killed.npz"
    assert run("data", "predictions", "digits", "--out", whole, *long).code == 0
    command = [Path(sys.executable).with_name("lossmith"), "data", "predictions", "digits", "--out", killed]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # as many as the whole run has
    process = subprocess.Popen([*command, *map(str, long)], env=one_thread)
    while len(list(tmp_path.glob("killed*/*.safetensors"))) < 3:
        assert process.poll() is None
        time.sleep(0.002)
    process.kill()
    process.wait()
    assert not killed.exists()
    assert run("data", "predictions", "digits", "--out", killed, *long).code == 0
    assert killed.read_bytes() == whole.read_bytes()
    assert sorted(tmp_path.iterdir()) == [killed, whole]


def test_unknown_data_set(run: Run) -> None:
    sentence = run("data", "predictions", "dgits", "--out", "p.npz").sentence
    assert sentence.startswith("there is no data set called 'dgits'; did you mean 'digits'? All: digits, mnist, ")


def test_data_folder_is_not_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOSSMITH_DATA", raising=False)
    sentence = run("data", "predictions", "mnist", "--out", "p.npz").sentence
    assert sentence == "LOSSMITH_DATA is not set; it names the folder that holds mnist.npz."


def test_no_such_class(run: Run) -> None:
    sentence = run("data", "predictions", "digits", "--out", "p.npz", "--positive-class", 12).sentence
    assert sentence == "digits has no class 12; its classes go from 0 to 9."


def test_a_suffix_that_cannot_be_written_is_refused_before_the_training(run: Run, tmp_path: Path) -> None:
    sentence = run("data", "predictions", "digits", "--out", tmp_path / "p.csv").sentence
    assert sentence.endswith("predictions live in files that end in .npz or .safetensors.")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    sentence = run("data", "predictions", "digits", "--out", tmp_path / "file" / "p.npz").sentence
    assert sentence == f"{tmp_path / 'file' / 'p.npz.checkpoints'}: Not a directory."


def test_numbers_out_of_range(run: Run) -> None:
    for option in ("--seeds", "--epochs", "--rows", "--max-rows"):
        assert option in run("data", "predictions", "digits", "--out", "p.npz", option, 0).sentence
