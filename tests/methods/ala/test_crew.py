"""Children in processes: the same run as in one, also where a process is killed on its way."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from lossmith.methods.ala import Child
from lossmith.methods.ala.crew import checkpoint_path, run_jobs
from tests.methods.ala.test_steering import assert_same_end
from tests.methods.ala.toys import make_child, make_dying_child, make_short_child, makers, run


def test_two_processes_and_a_child_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL of the second child's process in its third interval; it goes on, and the run ends as if nothing was."""
    dying = partial(make_dying_child, 1, 24, tmp_path / "marker")
    with pytest.warns(UserWarning, match="a process died"):
        # a lambda goes to a process, too
        steps = run([lambda: make_child(0), dying], tmp_path / "run", num_processes=2)
    assert (tmp_path / "marker").exists()
    assert len(steps) == 6
    assert_same_end(steps, run(makers()))


def test_what_cannot_go_to_a_process_is_told_before_one_is_started(tmp_path: Path) -> None:
    numbers = (number for number in range(3))

    def make() -> Child:
        next(numbers)
        return make_child(0)

    with pytest.raises(
        ValueError, match=r"a child or the metric cannot go to another process \(cannot pickle 'generator' object"
    ):
        run([make, *makers(1)], tmp_path, num_processes=2)


def test_jobs_that_are_done_are_not_done_again(tmp_path: Path) -> None:
    assert run_jobs([], num_processes=2, backend="loky", max_restarts=0) == []
    assert checkpoint_path(tmp_path, 1, 2).name == "child1-round2.safetensors"


def test_refuses_other_backends(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'loky' \\(local processes\\) and 'ray' work"):
        run(makers(), tmp_path, num_processes=2, backend="threads")


def test_ray_and_a_worker_that_is_killed(tmp_path: Path) -> None:
    """A real local cluster of two workers; SIGKILL of the second child's in its third interval."""
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'lossmith[ray]'")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        dying = partial(make_dying_child, 1, 24, tmp_path / "marker")
        with pytest.warns(UserWarning, match=r"a process died \(WorkerCrashedError\)"):
            steps = run([partial(make_child, 0), dying], tmp_path / "run", num_processes=2, backend="ray")
    finally:
        ray.shutdown()
    assert (tmp_path / "marker").exists()
    assert_same_end(steps, run(makers()))


def test_an_error_of_a_child_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="batches of a child ended after 5 of the 10 steps"):
        run([partial(make_child, 0), partial(make_short_child, 1)], tmp_path, num_processes=2)
