"""Files of arrays as data of a comparison: features, or several scores of a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from lossmith.kinds import Kind
from lossmith.lab.datasets.array_file import read_arrays
from lossmith.predictions import save_predictions
from lossmith.vocabulary import Predictions

LABELS = np.arange(60) % 2


def stored(folder: Path, **arrays: np.ndarray) -> Path:
    np.savez(folder / "a.npz", **arrays)
    return folder / "a.npz"


def test_features(tmp_path: Path, generator: torch.Generator) -> None:
    images = torch.randn(60, 2, 3, generator=generator)
    targets = torch.arange(60) % 3
    targets[:6] = -100
    save_file({"inputs": images, "targets": targets}, tmp_path / "a.safetensors")
    pool = read_arrays(tmp_path / "a.safetensors")
    assert (pool.name, pool.kind, pool.num_classes) == ("a", Kind.MULTICLASS, 3)
    assert torch.equal(pool.inputs, images[6:].flatten(1))
    assert torch.equal(pool.targets, targets[6:])
    binary = read_arrays(stored(tmp_path, inputs=np.zeros((60, 4)), targets=LABELS.astype(float)))
    assert (binary.kind, binary.num_outputs, binary.inputs.dtype) == (Kind.BINARY, 1, torch.float32)


def test_outputs_of_the_last_held_out_set(tmp_path: Path, generator: torch.Generator) -> None:
    outputs, targets = torch.randn(3, 60, 3, generator=generator), (torch.arange(60) % 3).expand(3, -1).contiguous()
    path = tmp_path / "p.npz"
    save_predictions(path, Predictions(outputs, targets, torch.tensor([False, True, False])))
    assert torch.equal(read_arrays(path).inputs, outputs[1])
    save_predictions(path, Predictions(outputs, targets))
    assert torch.equal(read_arrays(path).inputs, outputs[2])


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": LABELS}, "has the arrays none; targets, and inputs or outputs work"),
        ({"outputs": np.zeros(60), "targets": LABELS}, "one score for each row.*lossmith align"),
        ({"inputs": np.zeros((59, 2)), "targets": LABELS}, r"inputs have the shape \(59, 2\)"),
        ({"inputs": np.zeros((60, 2)), "targets": LABELS / 2}, "targets are no classes"),
        ({"inputs": np.zeros((60, 2)), "targets": LABELS - 1}, "targets go from -1 to 0"),
        ({"inputs": np.zeros((60, 2)), "targets": 0 * LABELS}, "every target in a.npz is 0"),
        ({"inputs": np.zeros((60, 2)), "targets": LABELS * (np.arange(60) < 4)}, "class 1 has 2 rows"),
        ({"inputs": np.zeros((20, 2)), "targets": LABELS[:20]}, "has 20 rows; 30 are the least"),
        ({"inputs": np.array([["a", "b"]] * 60), "targets": LABELS}, "cannot be read as .npz"),
        ({"inputs": np.array([None] * 60), "targets": LABELS}, "cannot be read as .npz"),
    ],
)
def test_what_is_wrong_with_a_file(tmp_path: Path, arrays: dict[str, np.ndarray], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_arrays(stored(tmp_path, **arrays))


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not there"):
        read_arrays(tmp_path / "a.npz")
    with pytest.raises(ValueError, match="files that end in"):
        read_arrays(tmp_path / "a.pt")
