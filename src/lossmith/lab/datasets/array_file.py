"""Rows that are numbers already: what a network gives, in the arrays of one file.

``inputs`` are features of your own (of the last layer but one, say). Without them the ``outputs`` of stored predictions
take their place: several raw scores for each row, which a small model then corrects for the metric.

>>> import tempfile
>>> path = Path(tempfile.mkdtemp(), "features.npz")
>>> np.savez(path, inputs=np.random.default_rng(0).normal(size=(60, 5)), targets=np.arange(60) % 2)
>>> pool = read_arrays(path)
>>> pool.name, str(pool.kind), tuple(pool.inputs.shape)
('features', 'binary', (60, 5))
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lossmith.kinds import IGNORE_INDEX, Kind
from lossmith.lab.datasets.splitting import Pool
from lossmith.lab.datasets.table_file import MAX_CLASSES, MIN_ROWS
from lossmith.predictions.files import SUFFIXES, load_predictions


def read_arrays(path: str | Path) -> Pool:
    """``inputs [N, ...]`` and ``targets [N]``; or ``outputs`` and ``targets`` of several classes, as ``lossmith align``
    reads them, of which the last held-out set is taken.
    """
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path.name} came; files that end in {' or '.join(SUFFIXES)} work.")
    if not path.is_file():
        raise ValueError(f"{path} is not there.")
    found = _arrays(path)
    if "targets" not in found or not {"inputs", "outputs"} & set(found):
        raise ValueError(
            f"{path.name} has the arrays {', '.join(sorted(found)) or 'none'}; targets, and inputs or outputs work."
        )
    inputs, targets = (found["inputs"], found["targets"]) if "inputs" in found else _last_held_out(path, found)
    if targets.dim() != 1 or inputs.dim() < 2 or len(inputs) != len(targets):
        raise ValueError(
            f"{path.name}: inputs have the shape {tuple(inputs.shape)}, and targets {tuple(targets.shape)}; "
            "inputs [N, ...] and targets [N] work."
        )
    if targets.is_floating_point() and not bool((targets == targets.round()).all()):
        raise ValueError(f"{path.name}: targets are no classes; whole numbers from 0 on work.")
    is_kept = targets != IGNORE_INDEX
    inputs, targets = inputs[is_kept].flatten(1).float(), targets[is_kept].long()
    _check_classes(path.name, targets)
    num_classes = int(targets.max()) + 1
    kind = Kind.BINARY if num_classes == 2 else Kind.MULTICLASS
    return Pool(path.stem, kind, inputs, targets, num_classes)


def _arrays(path: Path) -> dict[str, Tensor]:
    names = ("inputs", "outputs", "targets")
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                found = {name: archive[name] for name in names if name in archive.files}
            return {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in found.items()}
        with safe_open(path, framework="pt") as archive:
            stored = set(archive.keys())
            return {name: archive.get_tensor(name) for name in names if name in stored}
    except (ValueError, TypeError, OSError, EOFError, SafetensorError) as error:
        raise ValueError(f"{path.name} cannot be read as {path.suffix}: {error}") from None


def _last_held_out(path: Path, found: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """On rows that a model was trained on, its scores are better than they will ever be again."""
    outputs, targets = found["outputs"], found["targets"]
    if outputs.dim() == targets.dim():
        raise ValueError(
            f"{path.name} has one score for each row, and no loss can put rows in another order by that alone; "
            "`lossmith align` says which losses rank them as the metric does, metrics.tune_threshold where to cut, "
            "and an array called inputs is something to compare on."
        )
    stored = load_predictions(path, kind=Kind.MULTICLASS)
    if stored.is_held_out is not None and bool(stored.is_held_out.any()):
        stored = stored[stored.is_held_out]
    return stored.outputs[-1], stored.targets[-1]


def _check_classes(name: str, targets: Tensor) -> None:
    if len(targets) < MIN_ROWS:
        raise ValueError(f"{name} has {len(targets)} rows; {MIN_ROWS} are the least to train and judge on.")
    if int(targets.min()) < 0 or int(targets.max()) >= MAX_CLASSES:
        raise ValueError(
            f"{name}: targets go from {int(targets.min())} to {int(targets.max())}; "
            f"classes from 0 to at most {MAX_CLASSES - 1} work."
        )
    counts = targets.bincount()
    if len(counts) == 1:
        raise ValueError(f"every target in {name} is 0; there is nothing to predict.")
    if int(counts.min()) < 5:
        rarest = int(counts.argmin())
        raise ValueError(
            f"class {rarest} has {int(counts[rarest])} rows in {name}; 5 are the least, so that training, validation "
            "and test rows all have some."
        )
