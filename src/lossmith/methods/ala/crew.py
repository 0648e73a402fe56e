"""Children in processes of their own: each interval of a child is a job that goes from one checkpoint to the next.

A job that finds its result does nothing, so jobs can be handed out again after a process died. Nothing but the path of
the run, the number of the child and its loss parameters goes to a process; what a child is made of, it makes there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from pickle import PicklingError
from typing import Any, Literal

from torch import Tensor

from lossmith.methods.ala.children import (
    Child,
    Interval,
    Report,
    load_tensors,
    read_report,
    restore_child,
    save_child,
    train_interval,
    under,
)
from lossmith.vocabulary import Metric

Backend = Literal["loky", "ray"]
MakeChild = Callable[[], Child]
HELD_OUT_FILE = "held_out.safetensors"


@dataclass(frozen=True)
class Job:
    """One interval of one child. ``interval`` comes without its rows: they lie in a file of the run's folder."""

    make: MakeChild
    number: int
    round_number: int
    values: Tensor
    interval: Interval
    folder: Path

    @property
    def path(self) -> Path:
        return checkpoint_path(self.folder, self.number, self.round_number)


def checkpoint_path(folder: Path, number: int, round_number: int) -> Path:
    """Of a child after so many rounds."""
    return folder / f"child{number}-round{round_number}.safetensors"


def run_job(job: Job) -> None:
    child = job.make()
    if job.round_number > 1:
        restore_child(checkpoint_path(job.folder, job.number, job.round_number - 1), child)
    child.loss.values.copy_(job.values)
    rows = load_tensors(job.folder / HELD_OUT_FILE)
    validation, selection = (under(f"{part}.", rows) for part in ("validation", "selection"))
    interval = replace(
        job.interval,
        validation=(validation["inputs"], validation["targets"]),
        selection=(selection["inputs"], selection["targets"]) if selection else None,
    )
    save_child(job.path, child, train_interval(child, interval))


def run_jobs(jobs: Sequence[Job], *, num_processes: int, backend: Backend, max_restarts: int) -> list[Report]:
    """Do all jobs, and those of a process that died once more."""
    do, deaths = _crew_of(backend)
    for num_restarts in range(max_restarts + 1):
        waiting = [job for job in jobs if not job.path.is_file()]
        if not waiting:
            break
        try:
            do(waiting, num_processes)
        except deaths as error:
            if num_restarts == max_restarts:
                raise
            warnings.warn(
                f"a process died ({type(error).__name__}); its child goes on from the last checkpoint.", stacklevel=2
            )
    return [read_report(job.path) for job in jobs]


def check_can_travel(makers: Sequence[MakeChild], metric: Metric, backend: Backend) -> None:
    """Before any process is started: what cannot be sent to one."""
    _crew_of(backend)
    if backend == "loky":
        from joblib.externals.loky.backend.reduction import dumps
    else:
        from ray.cloudpickle import dumps
    try:
        dumps((makers, metric))
    except (TypeError, AttributeError, PicklingError) as error:
        raise ValueError(
            f"a child or the metric cannot go to another process ({error}); functions, partials of them and plain data "
            "can. What cannot, such as open files and generators, is made within the function that makes a child."
        ) from None


def _crew_of(backend: Backend) -> tuple[Callable[[Sequence[Job], int], None], tuple[type[Exception], ...]]:
    """What does jobs, and what it raises when a process of it is gone."""
    if backend == "loky":
        try:
            from joblib.externals.loky.process_executor import BrokenProcessPool
        except ModuleNotFoundError:
            raise ValueError("several processes take joblib, which comes with: pip install 'lossmith[lab]'.") from None
        return _do_locally, (BrokenProcessPool,)
    if backend != "ray":
        raise ValueError(f"backend={backend!r} is unknown; 'loky' (local processes) and 'ray' work.")
    try:
        from ray.exceptions import NodeDiedError, OutOfMemoryError, WorkerCrashedError
    except ModuleNotFoundError:
        raise ValueError("backend='ray' takes Ray, which comes with: pip install 'lossmith[ray]'.") from None
    return _do_with_ray, (WorkerCrashedError, NodeDiedError, OutOfMemoryError)


def _do_locally(jobs: Sequence[Job], num_processes: int) -> None:
    from joblib import Parallel, delayed

    # one job at a time for each process, and no arrays in shared memory: there are none
    Parallel(n_jobs=num_processes, batch_size=1, max_nbytes=None)(delayed(run_job)(job) for job in jobs)


def _do_with_ray(jobs: Sequence[Job], num_processes: int) -> None:
    """As tasks of Ray, not through its backend for joblib: that one waits for ever where a worker cannot start."""
    import ray

    task = ray.remote(max_retries=0)(run_job)
    started: list[Any] = []
    for job in jobs:
        num_ended = len(started) - num_processes + 1
        if num_ended > 0:
            ray.wait(started, num_returns=num_ended)
        started.append(task.remote(job))
    # all come to their end before an error is raised: a job that is done once more must not meet itself
    ray.wait(started, num_returns=len(started))
    ray.get(started)
