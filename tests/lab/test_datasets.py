"""Each data set: its parts, its scale, its labels; and one plain sentence where the files are not there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lossmith.kinds import Kind
from lossmith.lab.datasets import DATASETS, one_against_rest
from lossmith.lab.datasets.cifar10 import decode_images

NEED_FILES = [name for name, source in DATASETS.items() if source.file_name and source.file_name.endswith(".npz")]
# that a user has; tests make small ones
FOLDERS = [name for name, source in DATASETS.items() if source.file_name and not source.file_name.endswith(".npz")]
MANY_CLASSES = ("omniglot", "covtype")  # as many as rows, or too rare for so few rows
NUM_FACES = 200  # in each part


@pytest.mark.parametrize("name", [name for name in DATASETS if name not in FOLDERS])
def test_parts(name: str, request: pytest.FixtureRequest) -> None:
    if name in NEED_FILES:
        request.getfixturevalue("data_root")
    dataset = DATASETS[name].load(300)
    assert dataset.name == name
    for inputs, targets in (
        (dataset.train_inputs, dataset.train_targets),
        (dataset.test_inputs, dataset.test_targets),
    ):
        assert len(inputs) == len(targets) == (NUM_FACES if name == "orl_faces" else 300)
        assert inputs.dtype == torch.float32
        assert inputs.shape[1:] == dataset.input_shape
        assert 0.5 < inputs.std() < 2
        assert inputs.mean().abs() < 0.5
        assert targets.dtype == torch.int64
        assert 0 <= targets.min() <= targets.max() < dataset.num_classes
        if dataset.kind is not Kind.EMBEDDING and name not in MANY_CLASSES:
            assert len(targets.unique()) == dataset.num_classes
    if dataset.kind is Kind.EMBEDDING:  # what is tested was never seen
        assert dataset.train_targets.max() < dataset.test_targets.min()


@pytest.mark.parametrize(
    ("name", "num_train_classes"), [("orl_faces", 20), ("omniglot_by_class", 150), ("omniglot_mixed", 150)]
)
def test_unseen_classes_are_all_there(name: str, num_train_classes: int, data_root: Path) -> None:
    dataset = DATASETS[name].load(None)
    assert dataset.train_targets.unique().tolist() == list(range(num_train_classes))
    assert dataset.test_targets.unique().tolist() == list(range(num_train_classes, dataset.num_classes))


def test_digits_are_all_there_once() -> None:
    from sklearn.datasets import load_digits

    dataset = DATASETS["digits"].load(None)
    rows = torch.cat([dataset.train_inputs, dataset.test_inputs])
    assert torch.equal(rows.sum(0), (torch.from_numpy(load_digits().data).float() / 8 - 1).sum(0))
    assert len(rows) == 1797


def test_images_beside_their_pixels(data_root: Path) -> None:
    """The first image of each, normalised by hand."""
    with np.load(data_root / "mnist.npz") as arrays:
        first = torch.from_numpy(arrays["x_train"][0]).float()
    assert torch.allclose(DATASETS["mnist"].load(1).train_inputs[0, 0], (first / 255 - 0.1307) / 0.3081)
    dataset = DATASETS["cifar10"].load(2)
    with np.load(data_root / "cifar10_q95.npz") as arrays:
        pixels = decode_images(arrays["jpg_train"], arrays["off_train"][:3])
    assert pixels.shape == (2, 32, 32, 3)
    red = torch.from_numpy(pixels[1, :, :, 0]).float()
    assert torch.allclose(dataset.train_inputs[1, 0], (red - 125.307) / 62.993)
    assert dataset.train_inputs.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", NEED_FILES)
def test_missing_files(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LOSSMITH_DATA", raising=False)
    assert not DATASETS[name].is_here
    with pytest.raises(ValueError, match=r"^LOSSMITH_DATA is not set; it names the folder that holds [\w/]+\.npz\.$"):
        DATASETS[name].load(None)
    monkeypatch.setenv("LOSSMITH_DATA", str(tmp_path))
    assert not DATASETS[name].is_here
    with pytest.raises(ValueError, match="is not there"):
        DATASETS[name].load(None)
    file_name = DATASETS[name].file_name
    assert file_name
    (tmp_path / file_name).parent.mkdir(exist_ok=True)
    np.savez(tmp_path / file_name, z=np.zeros(3))
    with pytest.raises(ValueError, match=r"has no .*; it holds z"):
        DATASETS[name].load(None)


def test_one_against_rest() -> None:
    digits = DATASETS["digits"].load(None)
    eights = one_against_rest(digits, 8)
    assert (eights.kind, eights.num_outputs, eights.num_classes) == (Kind.BINARY, 1, 2)
    assert torch.equal(eights.test_targets, (digits.test_targets == 8).long())
    assert eights.train_inputs is digits.train_inputs
    with pytest.raises(ValueError, match="digits has no class 10; its classes go from 0 to 9"):
        one_against_rest(digits, 10)


# ------------------------------------------------------------------------------------------------ folders of a user's


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOSSMITH_DATA", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", FOLDERS)
def test_missing_folders(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not DATASETS[name].is_here
    with pytest.raises(ValueError, match="is not there; LOSSMITH_DATA names the folder that holds"):
        DATASETS[name].load(None)
    monkeypatch.delenv("LOSSMITH_DATA")
    with pytest.raises(ValueError, match=r"^LOSSMITH_DATA is not set; it names the folder that holds"):
        DATASETS[name].load(None)


def test_cifar100(folder: Path) -> None:
    """Two labels and 3,072 pixels a row, red, green and blue one behind the other."""
    (folder / "cifar-100-binary").mkdir()
    rows = np.random.default_rng(0).integers(0, 256, (5, 3074), dtype=np.uint8)
    rows[:, :2] = [[1, 7], [2, 99], [0, 0], [3, 42], [19, 5]]
    rows.tofile(folder / "cifar-100-binary" / "train.bin")
    with pytest.raises(ValueError, match=r"test\.bin is not there; the binary version"):
        DATASETS["cifar100"].load(None)
    rows[:2].tofile(folder / "cifar-100-binary" / "test.bin")
    assert DATASETS["cifar100"].is_here
    dataset = DATASETS["cifar100"].load(4)
    assert dataset.train_targets.tolist() == [7, 99, 0, 42]
    assert dataset.test_targets.tolist() == [7, 99]
    assert dataset.num_classes == 100
    green = torch.from_numpy(rows[1, 2 + 1024 : 2 + 2048].reshape(32, 32)).float()
    assert torch.allclose(dataset.train_inputs[1, 1], (green - 124.070) / 65.392)
    (folder / "cifar-100-binary" / "train.bin").write_bytes(b"too short")
    with pytest.raises(ValueError, match="has 9 bytes, no multiple of 3074"):
        DATASETS["cifar100"].load(None)
    rows[0, 1] = 100
    rows.tofile(folder / "cifar-100-binary" / "train.bin")
    with pytest.raises(ValueError, match="has a label 100; those of CIFAR-100 go from 0 to 99"):
        DATASETS["cifar100"].load(None)


def test_imagenet(folder: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for part, names in (("train", ("cat", "dog", "eel")), ("val", ("cat", "eel"))):
        for number, name in enumerate(names):
            (folder / "imagenet" / part / name).mkdir(parents=True)
            for index, size in enumerate([(100, 80), (70, 200)]):
                grey = 40 * number + 10 * index
                image.new("L", size, grey).save(folder / "imagenet" / part / name / f"{index}.PNG")
            (folder / "imagenet" / part / name / "notes.txt").write_text("not an image")
    dataset = DATASETS["imagenet"].load(None)
    assert dataset.input_shape == (3, 64, 64)
    assert dataset.num_classes == 3
    assert sorted(dataset.train_targets.tolist()) == [0, 0, 1, 1, 2, 2]
    assert sorted(dataset.test_targets.tolist()) == [0, 0, 2, 2]
    # an image of one grey stays so; each class has its own
    red = dataset.train_inputs[:, 0] * 58.395 + 123.675
    assert torch.allclose(red.amin((1, 2)), red.amax((1, 2)))
    assert (red[:, 0, 0] / 40).floor().long().tolist() == dataset.train_targets.tolist()
    assert len(DATASETS["imagenet"].load(2).train_targets) == 2
    (folder / "imagenet" / "train" / "cat" / "broken.jpg").write_text("no image")
    with pytest.raises(ValueError, match=r"broken\.jpg cannot be read as an image"):
        DATASETS["imagenet"].load(None)
    (folder / "imagenet" / "val" / "fox").mkdir()
    (folder / "imagenet" / "train" / "cat" / "broken.jpg").unlink()
    with pytest.raises(ValueError, match="has the class 'fox', which train has not"):
        DATASETS["imagenet"].load(None)
