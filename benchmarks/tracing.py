"""Traced losses in milliseconds, forward and backward, one thread; average precision beside its peers.

    python benchmarks/tracing.py [--json]

The peers are measured where they are installed: pip install --no-deps libauc imbalanced-losses tqdm
Their rows are left out, and named, where they are not. benchmarks/uniloss.py has these rows, too.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from timing import Row, best_seconds, best_seconds_of, report
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from lossmith import trace
from lossmith.lab.models import MODELS
from lossmith.vocabulary import Loss

# as in the peers' own examples of imbalanced data
POSITIVE_SHARE = 0.1

# ---- metrics as people write them


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs.argmax(-1) == targets).float().mean()


def average_precision(outputs: Tensor, targets: Tensor) -> Tensor:
    hits = targets[outputs.argsort(descending=True)].float()
    precision = hits.cumsum(0) / torch.arange(1, len(hits) + 1)
    return (precision * hits).sum() / hits.sum()


def ndcg(outputs: Tensor, relevance: Tensor) -> Tensor:
    discounts = 1 / torch.log2(torch.arange(len(outputs)) + 2.0)
    gains = 2.0**relevance - 1
    best = gains.sort(descending=True).values
    return (gains[outputs.argsort(descending=True)] * discounts).sum() / (best * discounts).sum()


def f1(outputs: Tensor, targets: Tensor) -> Tensor:
    predicted = (outputs > 0).float()
    return 2 * (predicted * targets).sum() / (predicted.sum() + targets.sum()).clamp(min=1)


# ---- rows


def step(loss: Loss, outputs: Tensor, targets: Tensor) -> Callable[[], None]:
    def call() -> None:
        outputs.grad = None
        loss(outputs, targets).backward()

    outputs.requires_grad_()
    call()  # the first call finds out how
    return call


def rare(size: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    is_positive = (torch.rand(size, generator=generator) < POSITIVE_SHARE).long()
    return torch.randn(size, generator=generator) + is_positive, is_positive


def small_rows() -> list[Row]:
    """128 predictions, as in one batch of a classifier."""
    generator = torch.Generator().manual_seed(0)
    scores, classes = torch.randn(128, 10, generator=generator), torch.randint(10, (128,), generator=generator)
    network = MODELS["resnet20"](torch.Size([3, 32, 32]), 10)
    images = torch.randn(128, 3, 32, 32, generator=generator)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)

    def network_step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(images), classes).backward()
        optimizer.step()

    of_network = best_seconds(network_step, budget=3)
    of_cross_entropy = best_seconds(step(torch.nn.functional.cross_entropy, scores.clone(), classes))
    of_accuracy = best_seconds(step(trace(accuracy), scores.clone(), classes))
    rows = [
        Row("cross-entropy, 128 x 10", 1e3 * of_cross_entropy, "ms"),
        Row("traced accuracy, 128 x 10", 1e3 * of_accuracy, "ms", 0.6, is_at_least=False),
        Row("a step of ResNet-20, 128 images", 1e3 * of_network, "ms"),
        Row("traced accuracy, share of that step", 100 * of_accuracy / of_network, "%", 1.0, is_at_least=False),
    ]
    is_positive = (torch.arange(128) < 13).long()
    for name, metric, targets in (
        ("F1, 13 of 128 positive", f1, is_positive),
        ("AP, 13 of 128 positive", average_precision, is_positive),
        ("NDCG, 128 documents of 4 grades", ndcg, torch.arange(128) % 4),
    ):
        call = step(trace(metric), torch.randn(128, generator=generator), targets)
        rows.append(Row(f"traced {name}", 1e3 * best_seconds(call), "ms"))
    return rows


def peer_rows(size: int = 8192) -> list[Row]:
    peers: dict[str, Callable[[], None]] = {}
    missing = []
    scores, is_positive = rare(size)
    if importlib.util.find_spec("libauc"):
        from libauc.losses import APLoss

        of_batch, index = APLoss(data_len=size), torch.arange(size)
        peers["LibAUC APLoss"] = step(
            lambda outputs, targets: of_batch(outputs, targets, index), scores.clone(), is_positive
        )
    else:
        missing.append("libauc")
    if importlib.util.find_spec("imbalanced_losses"):
        from imbalanced_losses import SmoothAPLoss

        smooth = SmoothAPLoss(num_classes=1, queue_size=0)
        peers["imbalanced-losses SmoothAPLoss"] = step(
            lambda outputs, targets: smooth(outputs.unsqueeze(1), targets), scores.clone(), is_positive
        )
    else:
        missing.append("imbalanced-losses")
    # each by itself, as in training: taking turns, we would start from the caches that a peer's matrices have emptied
    seconds = best_seconds(step(trace(average_precision), scores.clone(), is_positive))
    of_peers = [best_seconds(call) for call in peers.values()]
    note = f"not installed: {', '.join(missing)}" if missing else ""
    # a tenth of the faster peer's time on the machine of the first measurement; below, of what they take on this one
    rows = [Row(f"traced AP, n = {size:,}", 1e3 * seconds, "ms", 5.1, is_at_least=False, note=note)]
    for name, each in zip(peers, of_peers):
        rows += [
            Row(f"{name}, n = {size:,}", 1e3 * each, "ms"),
            Row(f"{name}, times as long as traced AP", each / seconds, "x", 10),
        ]
    return rows


def large_rows(size: int = 1_000_000) -> list[Row]:
    scores, is_positive = rare(size)
    plain = scores.clone()
    of_loss, of_metric = best_seconds_of(
        [step(trace(average_precision), scores, is_positive), lambda: average_precision(plain, is_positive)], budget=3
    )
    fewer, more = (extra_bytes(each) for each in (size // 4, size))
    name = f"traced AP, n = {size:,}"
    return [
        Row(name, 1e3 * of_loss, "ms"),
        Row(f"{name}, evaluations of AP", of_loss / of_metric, "x", 6, is_at_least=False),
        Row(f"{name}, memory", more / 2**20, "MiB", note=f"{more / size:.0f} bytes an item"),
        # linear is 4, quadratic 16
        Row(f"{name}, memory over that of a quarter", more / fewer, "x", 5, is_at_least=False),
    ]


def extra_bytes(size: int) -> int:
    """The most that torch has allocated at a time during one step, beyond what was there before it."""
    call = step(trace(average_precision), *rare(size))
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler, TemporaryDirectory() as folder:
        call()
        profiler.stop()
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    memory = [event for event in events if event["name"] == "[memory]"]
    first = memory[0]["args"]
    before = first["Total Allocated"] - first["Bytes"]
    return max(event["args"]["Total Allocated"] for event in memory) - before


def calibration_row() -> Row:
    """What this machine, under its present load, needs for something that everyone can time."""
    matrix = torch.randn(512, 512)
    return Row("calibration: product of two 512 x 512 matrices", 1e3 * best_seconds(lambda: matrix @ matrix), "ms")


def traced_rows() -> list[Row]:
    return [*small_rows(), *peer_rows(), *large_rows()]


def measure() -> list[Row]:
    return [calibration_row(), *traced_rows()]


if __name__ == "__main__":
    report(measure, __doc__)
