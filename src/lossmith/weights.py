"""Learned losses in files: weights as safetensors, with a card beside them that says what is known of the loss.

A file holds numbers and JSON, and reading it runs no code. The wheel brings losses for common metrics.

>>> import tempfile, torch
>>> loss = load("accuracy")
>>> loss(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1])) < loss(torch.zeros(2, 2), torch.tensor([0, 1]))
tensor(True)
>>> path = Path(tempfile.mkdtemp()) / "mine.safetensors"
>>> save(loss, path)
>>> load(path).card == loss.card
True
>>> load("acuracy")
Traceback (most recent call last):
    ...
ValueError: there is no shipped loss 'acuracy' (did you mean 'accuracy'?) and no file of that name.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lossmith.alignment import Estimate
from lossmith.cards import Card, Measured
from lossmith.methods.reloss import ReLoss
from lossmith.surrogates import SURROGATES

SHIPPED_FOLDER = Path(__file__).parent / "shipped"
SUFFIX = ".safetensors"
FORMAT = 1
"""Raised when an older lossmith could not read a new file."""


def save(loss: ReLoss, path: str | os.PathLike[str]) -> None:
    """Write the loss and its card; the file appears whole or not at all.

    A loss that does not order sets as its metric does, or that rises as rows get better, is not written.
    """
    path = Path(path)
    if not isinstance(loss, ReLoss):
        raise ValueError(f"{type(loss).__name__} came; a learned loss is what a file can hold.")
    check_place(path)
    loss.card.check()
    (name,) = (name for name, made_by in SURROGATES.items() if type(loss.surrogate) is made_by)
    metadata = {
        "lossmith_format": str(FORMAT),
        "surrogate": name,
        "settings": json.dumps(dict(loss.surrogate.settings)),
        "scale": repr(loss.scale),
        "card": json.dumps(asdict(loss.card)),
    }
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in loss.surrogate.state_dict().items()}
    unfinished = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        save_file(weights, unfinished, metadata)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def check_place(path: Path) -> None:
    """Raise a ``ValueError`` where :func:`save` could not write."""
    if path.suffix != SUFFIX:
        raise ValueError(f"{path}: learned losses live in files that end in {SUFFIX}.")
    if not path.parent.is_dir():
        raise ValueError(f"{path} cannot be written: there is no folder {path.parent}.")


def load(name_or_path: str | os.PathLike[str]) -> ReLoss:
    """A loss of the wheel by its name (:func:`shipped` lists them), or a saved one by its path."""
    path = shipped().get(str(name_or_path), Path(name_or_path))
    if not path.is_file():
        if path.suffix == SUFFIX:
            raise ValueError(f"{path}: there is no such file.")
        nearest = difflib.get_close_matches(str(name_or_path), shipped(), n=1, cutoff=0.0)
        hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
        raise ValueError(f"there is no shipped loss {str(name_or_path)!r}{hint} and no file of that name.")
    metadata, weights = _read(path)
    if "lossmith_format" not in metadata:
        raise ValueError(f"{path} is not a loss of lossmith: it holds {', '.join(list(weights)[:3]) or 'nothing'}.")
    try:
        number = int(metadata["lossmith_format"])
    except ValueError:
        raise ValueError(f"{path} is damaged: its format is {metadata['lossmith_format']!r}.") from None
    if number > FORMAT:
        raise ValueError(f"{path} was written by a newer lossmith (format {number}); update lossmith to read it.")
    try:
        surrogate = SURROGATES[metadata["surrogate"]](**json.loads(metadata["settings"]))
        surrogate.load_state_dict(weights)
        loss = ReLoss(surrogate, _card(json.loads(metadata["card"])), scale=float(metadata["scale"]))
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} is damaged: {reason}.") from None
    if not all(bool(tensor.isfinite().all()) for tensor in weights.values()):
        raise ValueError(f"{path} is damaged: it holds weights that are NaN or infinite.")
    return loss


def shipped() -> dict[str, Path]:
    """The losses of the wheel: their names, which are those of their metrics, and their files."""
    return {path.stem: path for path in sorted(SHIPPED_FOLDER.glob(f"*{SUFFIX}"))}


def _read(path: Path) -> tuple[Mapping[str, str], dict[str, Tensor]]:
    try:
        with safe_open(path, framework="pt") as file:
            # safetensors gives a file without metadata as None
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{path} cannot be read as {SUFFIX}: {error}.") from None


def _card(fields: dict[str, Any]) -> Card:
    def measured(estimates: dict[str, Any]) -> Measured:
        return Measured(**{name: value and Estimate(**value) for name, value in estimates.items()})

    return Card(measured={where: measured(each) for where, each in fields.pop("measured").items()}, **fields)
