"""Training children in lockstep, with a controller that moves their losses (paper, Algorithm 1).

One round: the controller looks at each child and moves its loss parameters; each child trains for one interval; those
whose metric fell (as a cost) are rewarded by 1, those whose rose by -1; the controller learns.

With a ``folder`` the run can be killed at any moment: it goes on from its last whole round, and ends the same.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import torch
from safetensors import safe_open
from torch import Tensor

from lossmith.methods.ala.adjustable import AdjustableLoss
from lossmith.methods.ala.children import (
    Batch,
    Child,
    Interval,
    Report,
    load_tensors,
    restore_child,
    save_child,
    save_tensors,
    train_interval,
    under,
)
from lossmith.methods.ala.controller import ALA, Experience, History
from lossmith.methods.ala.crew import (
    HELD_OUT_FILE,
    Backend,
    Job,
    MakeChild,
    check_can_travel,
    checkpoint_path,
    run_jobs,
)
from lossmith.vocabulary import Metric, Step

RUN_FILE, SELECTED_FILE = "run.safetensors", "selected.safetensors"


@dataclass(frozen=True)
class AdaptiveStep(Step):
    """A round. ``number`` counts training steps and ``loss`` is the mean over the children.

    ``details``, by child: ``values [children, U]``, ``statistics [children, U, F]`` (what the controller sees next),
    ``costs``, ``rewards``, ``selection``; of the controller:
    ``entropy`` and ``probabilities [3]`` of its moves; ``controller_seconds``, ``training_seconds``,
    ``evaluation_seconds`` of this round.
    """

    selected: Mapping[str, Tensor] | None = None
    """The weights of the best model so far, by the rows of ``selection``; None without such rows."""


@dataclass
class _State:
    """What lasts from round to round."""

    round_number: int
    histories: list[History]
    costs: list[Tensor]
    values: list[Tensor]
    best_cost: float = torch.inf
    selected: dict[str, Tensor] | None = None


def adaptive_steps(
    children: Sequence[Child] | Sequence[MakeChild],
    controller: ALA,
    metric: Metric,
    validation: Batch,
    *,
    num_steps: int,
    interval: int = 200,
    warmup_steps: int | None = None,
    selection: Batch | None = None,
    num_evaluations: int = 10,
    discount: float = 0.9,
    num_processes: int = 1,
    backend: Backend = "loky",
    max_restarts: int = 3,
    folder: str | Path | None = None,
) -> Iterator[AdaptiveStep]:
    """Train all children for ``num_steps`` steps each, and yield after each interval.

    Args:
        children: one for the paper's single-network training, several for its multi-network training, which share the
            controller. For several processes come functions that each make a child (importable ones, or partials of
            them): a child is made where it trains, from data that it loads there.
        controller: what moves the losses. One that does not learn is used as it is.
        metric: what is rewarded. The metric's value on ``validation`` is one number, never a mean over batches.
        validation: inputs and targets for rewards and for the controller's eyes. Training rows or a loss in the place
            of the metric (Figure 3) are possible.
        num_steps: of each child, warm-up included.
        interval: the paper's K.
        warmup_steps: before the first move, with a child's ``warmup_loss``. Default: one interval.
        selection: other inputs and targets, by which the best model is chosen: those that gave the rewards would
            flatter it.
        num_evaluations: of the metric near the end of each interval (eq. 4 takes one after each of its steps).
        discount: the paper's gamma.
        num_processes: children that train at the same time.
        backend: ``"loky"`` for local processes, ``"ray"`` for a Ray cluster (all see ``folder``).
        max_restarts: of processes that died, in each interval.
        folder: for checkpoints, which make a run resumable.
    """
    if isinstance(children, Child) or callable(children):
        raise ValueError("children came as one child; a list of it works.")
    if not isinstance(controller, ALA):
        raise ValueError(f"controller came as {type(controller).__name__}; lossmith.ALA(loss) works.")
    if backend not in get_args(Backend):
        raise ValueError(f"backend={backend!r} is unknown; 'loky' (local processes) and 'ray' work.")
    if warmup_steps is not None and warmup_steps < 0:
        raise ValueError(f"warmup_steps={warmup_steps} came; 0 or more work.")
    if num_steps < 1 or interval < 1 or not children:
        raise ValueError(
            f"num_steps={num_steps}, interval={interval} and {len(children)} children came; 1 or more of each works."
        )
    if num_evaluations < 1 or not 0 < discount <= 1 or num_processes < 1:
        raise ValueError(
            f"num_evaluations={num_evaluations}, discount={discount} and num_processes={num_processes} came; 1 or "
            "more, above 0 and at most 1, and 1 or more work."
        )
    if not isinstance(metric, Metric):
        raise ValueError(
            f"metric came as {type(metric).__name__}; one of lossmith.metrics works, or metrics.wrap(...)."
        )
    _check_rows("validation", validation)
    if selection is not None:
        _check_rows("selection", selection)
    crew = [child if isinstance(child, Child) else child() for child in children]
    makers = [child for child in children if not isinstance(child, Child)]
    if num_processes > 1 and len(makers) < len(children):
        raise ValueError("for several processes give functions that make the children, not the children.")
    if num_processes > 1:
        check_can_travel(makers, metric, backend)
    for part in ("model", "loss", "optimizer"):
        if len({id(getattr(child, part)) for child in crew}) < len(crew):
            raise ValueError(f"two children have one {part}; each child needs a {part} of its own.")
    for child in crew:
        if not isinstance(child.loss, AdjustableLoss):
            raise ValueError(f"the loss of a child is {child.loss!r:.60}; a loss with parameters to move works.")
        controller.check_fits(child.loss)
    warmup_steps = interval if warmup_steps is None else warmup_steps
    plan = Interval(0, interval, True, metric, validation, selection, num_evaluations, discount)
    settings = {
        "num_children": len(crew),
        "metric": metric.name,
        "num_steps": num_steps,
        "interval": interval,
        "warmup_steps": warmup_steps,
        "num_evaluations": num_evaluations,
        "discount": discount,
        "losses": [repr(child.loss) for child in crew],
        "seeds": [child.seed for child in crew],
        "controller": controller.settings,
    }
    if folder is None and num_processes > 1:
        with TemporaryDirectory() as temporary:
            yield from _rounds(
                crew, makers, controller, plan, settings, Path(temporary), num_processes, backend, max_restarts
            )
        return
    yield from _rounds(
        crew,
        makers,
        controller,
        plan,
        settings,
        Path(folder) if folder is not None else None,
        num_processes,
        backend,
        max_restarts,
    )


def _check_rows(name: str, rows: Batch) -> None:
    if not isinstance(rows, Sequence) or len(rows) != 2 or not all(isinstance(each, Tensor) for each in rows):
        found = [type(each).__name__ for each in rows] if isinstance(rows, Sequence) else type(rows).__name__
        raise ValueError(f"{name} came as {found}; inputs and targets, tensors, work.")
    if len(rows[0]) != len(rows[1]) or not len(rows[0]):
        raise ValueError(
            f"{name} has {len(rows[0])} inputs and {len(rows[1])} targets; as many of each, 1 or more, work."
        )


def _rounds(
    crew: list[Child],
    makers: list[MakeChild],
    controller: ALA,
    plan: Interval,
    settings: dict[str, Any],
    folder: Path | None,
    num_processes: int,
    backend: Backend,
    max_restarts: int,
) -> Iterator[AdaptiveStep]:
    num_steps, interval, warmup_steps = settings["num_steps"], settings["interval"], settings["warmup_steps"]
    state = _new_state(crew, controller)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        _restore(folder, settings, state, controller)
        for number, child in enumerate(crew):
            if state.round_number and num_processes == 1:
                restore_child(checkpoint_path(folder, number, state.round_number), child)
        if num_processes > 1:
            _save_held_out(folder, plan)
    for child, values in zip(crew, state.values):
        child.loss.values.copy_(values)

    first_step = state.round_number * interval
    while first_step < num_steps:
        state.round_number += 1
        # without a look at anything there is nothing to decide by
        is_warmup = first_step < warmup_steps or not state.costs
        present = replace(
            plan, first_step=first_step, num_steps=min(interval, num_steps - first_step), is_warmup=is_warmup
        )

        start = time.perf_counter()
        decided = [] if is_warmup else _move(crew, state.histories, controller, first_step / num_steps)
        controller_seconds = time.perf_counter() - start
        if num_processes > 1:
            assert folder is not None
            without_rows = replace(present, validation=(torch.empty(0),) * 2, selection=None)
            jobs = [
                Job(make, number, state.round_number, child.loss.values, without_rows, folder)
                for number, (make, child) in enumerate(zip(makers, crew))
            ]
            reports = run_jobs(jobs, num_processes=num_processes, backend=backend, max_restarts=max_restarts)
        else:
            reports = [train_interval(child, present) for child in crew]
            if folder is not None:
                for number, (child, report) in enumerate(zip(crew, reports)):
                    save_child(checkpoint_path(folder, number, state.round_number), child, report)
        start = time.perf_counter()
        details = _learn(controller, state, reports, decided)
        details["values"] = torch.stack([child.loss.values.cpu().clone() for child in crew])
        details["controller_seconds"] = torch.tensor(time.perf_counter() - start + controller_seconds)
        state.values = list(details["values"])
        _select(state, crew, reports, folder if num_processes > 1 else None)
        if folder is not None:
            _save(folder, settings, state, controller)
        first_step += present.num_steps
        mean_loss = torch.stack([report.loss for report in reports]).mean()
        yield AdaptiveStep(first_step, mean_loss, details, state.selected)


def _new_state(crew: Sequence[Child], controller: ALA) -> _State:
    histories = [History(controller.layout["history"]) for _ in crew]
    return _State(0, histories, [], [child.loss.values.cpu().clone() for child in crew])


def _move(
    crew: Sequence[Child], histories: Sequence[History], controller: ALA, progress: float
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Let the controller move each child's loss; what it saw and did, to learn from."""
    decided = []
    for child, history in zip(crew, histories):
        assert history.recent is not None
        index = child.loss.choose(history.recent[-1])
        states = history.states(child.loss, index, progress)
        moves, log_probabilities = controller.act(states)
        child.loss.adjust(index, moves)
        decided.append((states, moves, log_probabilities))
    return decided


def _learn(
    controller: ALA, state: _State, reports: Sequence[Report], decided: Sequence[tuple[Tensor, Tensor, Tensor]]
) -> dict[str, Tensor]:
    lasts: list[Tensor | None] = list(state.costs) or [None] * len(reports)
    costs = [_cost_or_last(report.cost, last) for report, last in zip(reports, lasts)]
    # eq. 5, of costs
    rewards = [torch.sign(before - after) for before, after in zip(state.costs, costs)] if decided else []
    controller.learn([Experience(*what, float(reward)) for what, reward in zip(decided, rewards)])
    state.costs = costs
    for history, report in zip(state.histories, reports):
        history.add(report.statistics)
    details = {
        "costs": torch.stack(costs),
        "rewards": torch.stack(rewards) if rewards else torch.full((len(costs),), torch.nan),
        "selection": torch.stack([report.selection for report in reports]),
        "statistics": torch.stack([report.statistics for report in reports]),
        "training_seconds": torch.stack([report.training_seconds for report in reports]).sum(),
        "evaluation_seconds": torch.stack([report.evaluation_seconds for report in reports]).sum(),
    }
    if decided:
        states = torch.cat([states for states, _, _ in decided])
        details |= {"entropy": controller.entropy(states), "probabilities": controller.probabilities(states).mean(0)}
    return details


def _cost_or_last(cost: Tensor, last: Tensor | None) -> Tensor:
    """Where the metric is undefined there is no reward: as if it had stayed."""
    if bool(cost.isfinite()):
        return cost
    if last is None:
        raise ValueError(
            f"the metric of the validation rows is {float(cost)} in the first interval: nothing to steer by."
        )
    warnings.warn("the metric is undefined on the validation rows: no reward in this round.", stacklevel=2)
    return last


def _select(state: _State, crew: Sequence[Child], reports: Sequence[Report], folder: Path | None) -> None:
    """Keep the weights of the best model so far; those of other processes lie in ``folder``."""
    # undefined is not best; min would take a NaN that comes first
    costs = [float(report.selection.nan_to_num(nan=torch.inf)) for report in reports]
    best = min(range(len(costs)), key=lambda number: costs[number])
    if not costs[best] < state.best_cost:
        return
    state.best_cost = costs[best]
    weights = (
        crew[best].model.state_dict()
        if folder is None
        else under("model.", load_tensors(checkpoint_path(folder, best, state.round_number)))
    )
    state.selected = {name: tensor.detach().clone() for name, tensor in weights.items()}


# ----------------------------------------------------------------------------------------------------- going on


def _save_held_out(folder: Path, plan: Interval) -> None:
    contents = {"validation.inputs": plan.validation[0], "validation.targets": plan.validation[1]}
    if plan.selection is not None:
        contents |= {"selection.inputs": plan.selection[0], "selection.targets": plan.selection[1]}
    save_tensors(folder / HELD_OUT_FILE, contents)


def _save(folder: Path, settings: Mapping[str, Any], state: _State, controller: ALA) -> None:
    """The state after a round. Checkpoints of the round before are needed until this is written, and no longer."""
    contents = {f"controller.{name}": tensor for name, tensor in controller.tensors().items()}
    for number, (history, cost, values) in enumerate(zip(state.histories, state.costs, state.values)):
        assert history.recent is not None
        assert history.average is not None
        contents |= {f"{number}.recent": history.recent, f"{number}.average": history.average}
        contents |= {f"{number}.cost": cost, f"{number}.values": values}
    contents["round_number"] = torch.tensor(state.round_number)
    contents["best_cost"] = torch.tensor(state.best_cost, dtype=torch.float64)
    if state.selected is not None:
        save_tensors(folder / SELECTED_FILE, state.selected)
    save_tensors(folder / RUN_FILE, contents, {"settings": json.dumps(settings)})
    for number in range(len(state.histories)):
        checkpoint_path(folder, number, state.round_number - 1).unlink(missing_ok=True)


def _restore(folder: Path, settings: Mapping[str, Any], state: _State, controller: ALA) -> None:
    path = folder / RUN_FILE
    if not path.is_file():
        # of a run that was killed in its first round, perhaps with other settings: nothing says which
        for checkpoint in folder.glob("child*-round*.safetensors"):
            checkpoint.unlink()
        return
    with safe_open(path, framework="pt") as file:
        found = json.loads(file.metadata()["settings"])
    if found != settings:
        changed = ", ".join(name for name in settings if found.get(name) != settings[name])
        raise ValueError(f"{path} is of another run (other {changed}); go on with its settings, or delete its folder.")
    contents = load_tensors(path)
    controller.restore(under("controller.", contents))
    for number, history in enumerate(state.histories):
        history.recent, history.average = contents[f"{number}.recent"], contents[f"{number}.average"]
        state.costs.append(contents[f"{number}.cost"])
        state.values[number] = contents[f"{number}.values"]
    state.round_number, state.best_cost = int(contents["round_number"]), float(contents["best_cost"])
    if (folder / SELECTED_FILE).is_file():
        state.selected = load_tensors(folder / SELECTED_FILE)
