"""Logs of anything that trains: lines of JSON, or TensorBoard. Both are optional, and only the first process writes.

Training is a generator here, so a log is another one around it, which passes every step on and writes some of them.

>>> import tempfile, torch
>>> path = Path(tempfile.mkdtemp()) / "run.jsonl"
>>> steps = (Step(number, torch.tensor(1 / number)) for number in range(1, 5))
>>> with jsonl_log(path) as log:
...     for step in log_steps(steps, log, every=2):
...         pass
>>> print(path.read_text(), end="")
{"step": 2, "loss": 0.5}
{"step": 4, "loss": 0.25}
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch.distributed

from lossmith.vocabulary import Step

Log = Callable[[int, Mapping[str, float]], None]
"""``log(step, {"loss": 0.3, ...})``"""


def log_steps(steps: Iterable[Step], *logs: Log, every: int = 10) -> Iterator[Step]:
    """The same steps; the loss and the details that are single numbers of every ``every``-th go to the logs.

    Reading a number makes the host wait for the device, so do not log each step of a fast run.
    """
    if every < 1:
        raise ValueError(f"every={every}; 1 or more works.")
    for step in steps:
        if step.number % every == 0 and is_first_process():
            numbers = {"loss": float(step.loss)}
            numbers |= {name: float(value) for name, value in step.details.items() if value.numel() == 1}
            for log in logs:
                log(step.number, numbers)
        yield step


def is_first_process() -> bool:
    """True without ``torch.distributed``, too."""
    return (
        not torch.distributed.is_available()
        or not torch.distributed.is_initialized()
        or torch.distributed.get_rank() == 0
    )


@contextmanager
def jsonl_log(path: str | os.PathLike[str]) -> Iterator[Log]:
    """One object in a line, appended: a run that goes on goes on in its file. What is not a number becomes null."""
    if not is_first_process():
        yield _silent
        return
    with Path(path).open("a", encoding="utf8") as file:

        def write(step: int, numbers: Mapping[str, float]) -> None:
            finite = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
            file.write(json.dumps({"step": step, **finite}) + "\n")
            file.flush()  # a killed run keeps its lines

        yield write


@contextmanager
def tensorboard_log(folder: str | os.PathLike[str]) -> Iterator[Log]:
    """Scalars for TensorBoard; takes the extra ``lossmith[tensorboard]``."""
    if not is_first_process():
        yield _silent
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ValueError(
            "this log takes tensorboard: pip install 'lossmith[tensorboard]'; jsonl_log takes nothing."
        ) from None
    with SummaryWriter(str(folder)) as writer:

        def write(step: int, numbers: Mapping[str, float]) -> None:
            for name, value in numbers.items():
                writer.add_scalar(name, value, step)

        yield write


def _silent(step: int, numbers: Mapping[str, float]) -> None:
    """The log of all other processes."""
