"""Predictions travel in one file: ``.npz`` or ``.safetensors`` with the arrays ``outputs`` and ``targets``.

Either holds one set ``[N, ...]`` or a stack ``[S, N, ...]``; the kind tells which. ``is_held_out [S]`` may stand beside
them, and any other array that says where a set comes from (``seed``, ``epoch``). Reading runs no code: no pickle.

>>> import tempfile, torch
>>> path = Path(tempfile.mkdtemp()) / "p.npz"
>>> save_predictions(path, Predictions(torch.randn(2, 4), torch.ones(2, 4)), epoch=torch.tensor([1, 9]))
>>> load_predictions(path, kind="binary").outputs.shape
torch.Size([2, 4])
>>> load_predictions(path, kind="multiclass")
Traceback (most recent call last):
    ...
ValueError: ...p.npz: multiclass predictions: targets have the shape (2, 4); one set is outputs [N, C] with targets [N].
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lossmith.vocabulary import LAYOUTS, Kind, Predictions, check_predictions, parse_kind

SUFFIXES = (".npz", ".safetensors")
ARRAYS = ("outputs", "targets", "is_held_out")


def load_predictions(path: str | os.PathLike[str], *, kind: Kind | str, want_scores: bool = True) -> Predictions:
    """The stack of sets in the file, checked; one set becomes a stack of one.

    ``want_scores=False`` lets probabilities pass, for whoever reads nothing but their order.
    """
    path, kind = Path(path), parse_kind(kind)
    _check_suffix(path)
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file.")
    arrays = _read_npz(path) if path.suffix == ".npz" else _read_safetensors(path)
    outputs, targets = arrays["outputs"], arrays["targets"]
    is_stack = outputs.dim() == len(LAYOUTS[kind].outputs) + 1
    try:
        check_predictions(kind, outputs, targets, is_stack=is_stack, want_scores=want_scores)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not is_stack:
        outputs, targets = outputs[None], targets[None]
    is_held_out = arrays.get("is_held_out")
    if is_held_out is not None:
        if is_held_out.shape != outputs.shape[:1]:
            raise ValueError(
                f"{path}: is_held_out has the shape {tuple(is_held_out.shape)}; "
                f"one mark for each of the {len(outputs)} sets works."
            )
        is_held_out = is_held_out.bool()
    return Predictions(outputs, targets, is_held_out)


def save_predictions(path: str | os.PathLike[str], predictions: Predictions, **arrays: Tensor) -> None:
    """Write the stack, and ``arrays`` with a line per set (``seed``, ``epoch``) beside it.

    The file appears whole or not at all. ``.npz`` knows no bfloat16, which is stored as float32 there.
    """
    path = Path(path)
    _check_suffix(path)
    if not path.parent.is_dir():
        raise ValueError(f"{path} cannot be written: there is no folder {path.parent}.")
    contents = {"outputs": predictions.outputs, "targets": predictions.targets}
    if predictions.is_held_out is not None:
        contents["is_held_out"] = predictions.is_held_out
    for name, array in arrays.items():
        if name in ARRAYS:
            raise ValueError(f"{name} is part of the predictions; give the array beside them another name.")
        if array.shape[:1] != (predictions.num_sets,):
            raise ValueError(
                f"{name} has the shape {tuple(array.shape)}; a line for each of the {predictions.num_sets} sets works."
            )
        contents[name] = array
    contents = {name: tensor.detach().cpu().contiguous() for name, tensor in contents.items()}
    unfinished = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        if path.suffix == ".npz":
            as_numpy: dict[str, Any] = {
                name: (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
                for name, tensor in contents.items()
            }
            np.savez(unfinished, **as_numpy)
        else:
            save_file(contents, unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _check_suffix(path: Path) -> None:
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path}: predictions live in files that end in {' or '.join(SUFFIXES)}.")


def _names_to_read(path: Path, found: Collection[str]) -> list[str]:
    missing = [name for name in ("outputs", "targets") if name not in found]
    if missing:
        raise ValueError(
            f"{path} has no array called {' or '.join(missing)}; it has {', '.join(sorted(found)) or 'none at all'}."
        )
    return [name for name in ARRAYS if name in found]


def _read_npz(path: Path) -> dict[str, Tensor]:
    try:
        if not zipfile.is_zipfile(path):  # asked beforehand: of any other file, numpy says that it is a pickle
            raise ValueError("it is no archive of arrays, or only a part of one")
        with np.load(path, allow_pickle=False) as archive:
            names = archive.files
            arrays = {name: archive[name] for name in ARRAYS if name in names}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read as .npz: {error}") from None
    return {name: _as_tensor(path, name, arrays[name]) for name in _names_to_read(path, names)}


def _as_tensor(path: Path, name: str, array: object) -> Tensor:
    if not isinstance(array, np.ndarray):  # numpy gives the bytes of what it does not know
        raise ValueError(f"{path}: {name} is no array of numpy.")
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{path}: {name} holds {array.dtype}; real numbers work.")
    # an unsigned integer would read IGNORE_INDEX as 156; torch reads no foreign byte order, and nothing beyond 64 bits
    wanted = np.dtype(np.int64) if array.dtype.kind in "biu" else array.dtype.newbyteorder("=")
    if wanted.itemsize > 8:
        wanted = np.dtype(np.float64)
    return torch.from_numpy(np.ascontiguousarray(array, dtype=wanted))


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as archive:
            arrays = {name: archive.get_tensor(name) for name in _names_to_read(path, archive.keys())}
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} cannot be read as .safetensors: {error}") from None
    return {name: tensor if tensor.is_floating_point() else tensor.long() for name, tensor in arrays.items()}
