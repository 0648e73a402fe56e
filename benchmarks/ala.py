"""ALA: what a controller costs beside the training that it steers, and what a second process gives.

    python benchmarks/ala.py [--json]

The controller's share is in seconds of the processor. Two processes are judged by the clock where two cores are free
before and after; where they are not, the clock says nothing, the benchmark says so, and judges by seconds of the
processor what two free cores would give: the work outside the children and half of the children's own. What processes
take to start is left out by the difference of a long and a short run.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import torch
from timing import Row, best_seconds_of, report
from torch import Tensor, nn

from lossmith.lab.models import MODELS
from lossmith.methods.ala import ALA, Child, ClassCorrelationLoss, EpochBatches, adaptive_steps
from lossmith.methods.ala.controller import Experience, History
from lossmith.metrics import METRICS
from lossmith.training import train_steps

# the paper's K, and of its steps those that are measured: all are alike
INTERVAL = 200
# name, inputs, batch size, measured steps
MODELS_STEERED = (
    ("resnet20", (3, 32, 32), 128, 2),
    ("small_cnn", (1, 28, 28), 64, 10),
    ("mlp", (1, 28, 28), 64, 50),
)
NUM_CHILDREN = 4
# throughput of two processes over that of one; of two cores, what must be idle for the clock to say anything
BAR, MIN_FREE_CORES = 1.7, 1.9
ROWS_OF_CHILD, STEPS_OF_ROUND = (1000, 1, 28, 28), 60


def training(
    name: str, shape: tuple[int, ...], batch_size: int, num_steps: int, num_classes: int
) -> Callable[[], None]:
    model = MODELS[name](torch.Size(shape), num_classes)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    loss = ClassCorrelationLoss(num_classes)
    batch = (torch.randn(batch_size, *shape), torch.randint(num_classes, (batch_size,)))

    def train() -> None:
        for _ in train_steps(model, loss, [batch] * num_steps, optimizer):
            pass

    return train


def controller_round(num_classes: int) -> Callable[[], None]:
    """What a controller does between two intervals of a child, with its memory full."""
    loss, history = ClassCorrelationLoss(num_classes), History(10)
    controller = ALA(loss)
    held_out = torch.randn(1000, num_classes), torch.randint(num_classes, (1000,))
    many = torch.zeros(10_000, dtype=torch.long)
    controller.learn([Experience(torch.randn(10_000, controller.num_features), many, many.float(), 1.0)])
    history.add(loss.statistics(*held_out))

    def call() -> None:
        assert history.recent is not None
        index = loss.choose(history.recent[-1])
        states = history.states(loss, index, 0.5)
        moves, log_probabilities = controller.act(states)
        loss.adjust(index, moves)
        controller.learn([Experience(states, moves, log_probabilities, 1.0)])
        history.add(loss.statistics(*held_out))

    return call


def overhead_rows() -> list[Row]:
    rows = []
    for name, shape, batch_size, num_steps in MODELS_STEERED:
        for num_classes in (10, 100):
            trained, controlled = best_seconds_of(
                [training(name, shape, batch_size, num_steps, num_classes), controller_round(num_classes)], budget=0.5
            )
            share = 100 * controlled / (trained * INTERVAL / num_steps)
            what = f"controller, {num_classes} classes: of {INTERVAL} steps of {name}"
            rows.append(Row(what, share, "%", 3.0, is_at_least=False, note=f"{1e3 * controlled:.1f} ms a round"))
    return rows


# ------------------------------------------------------------------------------------------------- several processes


def held_out(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(ROWS_OF_CHILD, generator=generator), torch.randint(10, ROWS_OF_CHILD[:1], generator=generator)


def make_child(seed: int) -> Child:
    torch.set_num_threads(1)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: nn.Module = MODELS["small_cnn"](torch.Size(ROWS_OF_CHILD[1:]), 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    batches = EpochBatches(*held_out(seed), batch_size=64, seed=seed)
    return Child(model, ClassCorrelationLoss(10), optimizer, batches, seed=seed)


def processor_seconds() -> tuple[float, float]:
    """Of this process, and of those that it started and that have ended."""
    own, others = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime, others.ru_utime + others.ru_stime


def run_seconds(num_processes: int, num_rounds: int) -> Tensor:
    """Of this process, of its processes, of the clock; the processes are new, and end."""
    from joblib.externals.loky import get_reusable_executor

    start, clock = processor_seconds(), time.perf_counter()
    for _ in adaptive_steps(
        [partial(make_child, seed) for seed in range(NUM_CHILDREN)],
        ALA(ClassCorrelationLoss(10)),
        METRICS["accuracy"],
        held_out(100),
        num_steps=num_rounds * STEPS_OF_ROUND,
        interval=STEPS_OF_ROUND,
        num_processes=num_processes,
    ):
        pass
    clock = time.perf_counter() - clock
    if num_processes > 1:
        get_reusable_executor().shutdown(wait=True)
    own, others = (after - before for before, after in zip(start, processor_seconds()))
    return torch.tensor([own, others, clock])


def free_cores(num_cores: int) -> float:
    """Of so many processes that only count for a second, the cores that they got."""
    count = "import time; end = time.time() + 1\nwhile time.time() < end: pass\nprint(time.process_time())"
    busy = [
        subprocess.Popen([sys.executable, "-c", count], stdout=subprocess.PIPE, text=True) for _ in range(num_cores)
    ]
    return sum(float(process.communicate()[0]) for process in busy)


def throughput_rows() -> list[Row]:
    free = free_cores(2)
    alone, together = (
        torch.stack([run_seconds(number, 5) - run_seconds(number, 1) for _ in range(2)]).amin(0) for number in (1, 2)
    )
    side_by_side = together[0] + together[1] / 2
    free = min(free, free_cores(2))
    is_free = free >= MIN_FREE_CORES
    load = f"{free:.1f} of 2 cores were free, load {os.getloadavg()[0]:.1f} on {os.cpu_count()}"
    by_clock, by_processor = (BAR, None) if is_free else (None, BAR)
    if not is_free:
        print(f"THE CORES ARE NOT FREE ({load}): throughput by the clock means nothing here; run it again alone.")
    return [
        Row("4 rounds of 4 children in one process", float(alone[0]), "s"),
        Row("4 rounds of 4 children in two processes: outside the children", float(together[0]), "s"),
        Row("4 rounds of 4 children in two processes: the children", float(together[1]), "s"),
        Row(
            "throughput of two processes, as seconds of the processor promise it",
            float(alone[0] / side_by_side),
            "x",
            by_processor,
        ),
        Row("throughput of two processes here, by the clock", float(alone[2] / together[2]), "x", by_clock, note=load),
    ]


def measure() -> list[Row]:
    torch.manual_seed(0)
    return overhead_rows() + throughput_rows()


if __name__ == "__main__":
    report(measure, __doc__)
