from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from lossmith.kinds import Kind
from lossmith.predictions import load_predictions, save_predictions
from lossmith.vocabulary import Predictions
from tests.metrics.samples import sample

OUTPUTS = torch.tensor([[0.5, -1.0, 2.0], [3.0, 0.0, -2.0]])
TARGETS = torch.tensor([[1, 0, 1], [1, -100, 0]])


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("kind", list(Kind))
def test_round_trip(kind: Kind, suffix: str, tmp_path: Path, generator: torch.Generator) -> None:
    outputs, targets = sample(kind, num_sets=3, set_size=4, generator=generator, ignored_share=0.2)
    is_held_out = torch.tensor([True, False, True])
    path = tmp_path / f"p{suffix}"
    save_predictions(path, Predictions(outputs, targets, is_held_out), epoch=torch.tensor([1, 1, 9]))
    loaded = load_predictions(path, kind=kind)
    assert torch.equal(loaded.outputs, outputs)
    assert torch.equal(loaded.targets, targets)
    assert loaded.is_held_out is not None
    assert torch.equal(loaded.is_held_out, is_held_out)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("kind", list(Kind))
def test_one_set_becomes_a_stack_of_one(kind: Kind, tmp_path: Path, generator: torch.Generator) -> None:
    outputs, targets = sample(kind, num_sets=1, set_size=4, generator=generator)
    np.savez(tmp_path / "p.npz", outputs=outputs[0].numpy(), targets=targets[0].numpy())
    loaded = load_predictions(tmp_path / "p.npz", kind=str(kind))
    assert torch.equal(loaded.outputs, outputs)
    assert loaded.is_held_out is None


def test_bfloat16(tmp_path: Path) -> None:
    predictions = Predictions(OUTPUTS.bfloat16(), TARGETS)
    for suffix, dtype in ((".npz", torch.float32), (".safetensors", torch.bfloat16)):
        save_predictions(tmp_path / f"p{suffix}", predictions)
        assert load_predictions(tmp_path / f"p{suffix}", kind="binary").outputs.dtype == dtype


@pytest.mark.parametrize("dtype", ["uint8", "bool", "int16", ">i4", "float64", ">f4"])
def test_targets_of_any_type(dtype: str, tmp_path: Path) -> None:
    targets = np.array([[1, 0, 1], [1, 1, 0]]).astype(dtype)
    np.savez(tmp_path / "p.npz", outputs=OUTPUTS.numpy().astype(">f8"), targets=targets)
    loaded = load_predictions(tmp_path / "p.npz", kind="binary")
    assert loaded.targets.tolist() == [[1, 0, 1], [1, 1, 0]]
    assert loaded.outputs.dtype == torch.float64


def test_long_doubles(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", outputs=OUTPUTS.numpy().astype(np.longdouble), targets=TARGETS.numpy())
    assert torch.equal(load_predictions(tmp_path / "p.npz", kind="binary").outputs, OUTPUTS.double())


def test_probabilities_pass_where_the_caller_says_so(tmp_path: Path) -> None:
    probabilities, targets = torch.rand(4, 50), torch.randint(2, (4, 50))
    save_predictions(tmp_path / "p.npz", Predictions(probabilities, targets))
    with pytest.raises(ValueError, match=r"p\.npz: .* these are probabilities; raw scores \(logits\) work"):
        load_predictions(tmp_path / "p.npz", kind="binary")
    loaded = load_predictions(tmp_path / "p.npz", kind="binary", want_scores=False)
    assert torch.equal(loaded.outputs, probabilities)


def test_an_unsigned_target_is_never_read_as_left_out(tmp_path: Path) -> None:
    targets = np.full((1, 2), 156, dtype=np.uint8)  # -100 modulo 256
    np.savez(tmp_path / "p.npz", outputs=np.zeros((1, 2, 3), dtype=np.float32), targets=targets)
    with pytest.raises(ValueError, match=r"targets go from 156 to 156; 0 to 2 works"):
        load_predictions(tmp_path / "p.npz", kind="multiclass")


def write(path: Path, **arrays: object) -> Path:
    np.savez(path, **{name: np.asarray(array) for name, array in arrays.items()})
    return path


def test_plain_errors(tmp_path: Path) -> None:
    outputs, targets = OUTPUTS.numpy(), TARGETS.numpy()
    not_a_number = np.where(outputs > 1, np.nan, outputs)
    cases = [
        (tmp_path / "none.npz", r"none\.npz: there is no such file"),
        (tmp_path / "p.csv", r"files that end in \.npz or \.safetensors"),
        (write(tmp_path / "names.npz", logits=outputs, labels=targets), "outputs or targets; it has labels, logits"),
        (write(tmp_path / "half.npz", outputs=outputs), "no array called targets; it has outputs"),
        (write(tmp_path / "nan.npz", outputs=not_a_number, targets=targets), "2 of 6 outputs are NaN"),
        (write(tmp_path / "sizes.npz", outputs=outputs, targets=targets[:, :2]), r"differ in N \(3 and 2\)"),
        (write(tmp_path / "dims.npz", outputs=outputs[None, None], targets=targets), r"one set is outputs \[N\]"),
        (write(tmp_path / "text.npz", outputs=outputs, targets=[["a"]]), "targets holds <U1; real numbers work"),
        (write(tmp_path / "complex.npz", outputs=outputs * 1j, targets=targets), "outputs holds complex64; real"),
        (write(tmp_path / "kept.npz", outputs=outputs, targets=targets, is_held_out=[True]), "each of the 2 sets"),
        (write(tmp_path / "int.npz", outputs=targets, targets=targets), "outputs are torch.int64"),
    ]
    for path, message in cases:
        with pytest.raises(ValueError, match=message):
            load_predictions(path, kind="binary")
    save_file({"logits": OUTPUTS}, tmp_path / "names.safetensors")
    with pytest.raises(ValueError, match="outputs or targets; it has logits"):
        load_predictions(tmp_path / "names.safetensors", kind="binary")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("outputs,targets")
    (tmp_path / "empty.npz").touch()
    with (tmp_path / "single.npz").open("wb") as file:
        np.save(file, OUTPUTS.numpy())
    (tmp_path / "text.safetensors").write_text("outputs,targets")
    write(tmp_path / "cut.npz", outputs=OUTPUTS, targets=TARGETS)
    whole = (tmp_path / "cut.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps({"outputs": 1}))
    for path in sorted(tmp_path.iterdir()):
        with pytest.raises(ValueError, match=f"{path.name} cannot be read as {path.suffix}") as error:
            load_predictions(path, kind="binary")
        assert "allow_pickle" not in str(error.value), "that is no advice"
    with zipfile.ZipFile(tmp_path / "other.npz", "w") as archive:
        for name in ("outputs.npy", "targets.npy"):
            archive.writestr(name, b"1,2,3")
    with pytest.raises(ValueError, match=r"other\.npz: outputs is no array of numpy"):
        load_predictions(tmp_path / "other.npz", kind="binary")


def test_pickles_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", outputs=np.array([{"a": 1}], dtype=object), targets=TARGETS.numpy())
    with pytest.raises(ValueError, match=r"p\.npz cannot be read as \.npz"):
        load_predictions(tmp_path / "p.npz", kind="binary")


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    predictions = Predictions(OUTPUTS, TARGETS)
    with pytest.raises(ValueError, match=r"end in \.npz or"):
        save_predictions(tmp_path / "p.pt", predictions)
    with pytest.raises(ValueError, match="outputs is part of the predictions"):
        save_predictions(tmp_path / "p.npz", predictions, outputs=OUTPUTS)
    with pytest.raises(ValueError, match="a line for each of the 2 sets"):
        save_predictions(tmp_path / "p.npz", predictions, epoch=torch.tensor([1]))
    with pytest.raises(ValueError, match="there is no folder"):
        save_predictions(tmp_path / "nowhere" / "p.npz", predictions)
    assert not list(tmp_path.iterdir())
