"""Two processes on the loopback device do what one process does with the whole batch."""

from __future__ import annotations

import multiprocessing
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as processes
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import lossmith
from lossmith.baselines import find_loss
from lossmith.distributed import WholeSet, gather_set
from lossmith.metrics import METRICS

NUM_STEPS = 3
FIRST_SIZES = (5, 3)  # rows of each process in the first step; one more in each later step


def batches(step: int) -> list[tuple[Tensor, Tensor]]:
    """Of both processes."""
    generator = torch.Generator().manual_seed(step)
    sizes = [size + step for size in FIRST_SIZES]
    inputs = torch.randn(sum(sizes), 4, generator=generator)
    targets = (inputs[:, 0] + torch.randn(sum(sizes), generator=generator) > 0).long()
    targets[0] = -100
    return list(zip(inputs.split(sizes), targets.split(sizes)))


def new_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1), nn.Flatten(0))


def losses() -> dict[str, nn.Module]:
    combined = lossmith.combine(find_loss("ce", "binary"), lossmith.trace(METRICS["ap"]))
    return {
        "traced": WholeSet(lossmith.trace(METRICS["ap"]), memory=1),
        "combined": WholeSet(combined),
        "smooth_ap": WholeSet(find_loss("smooth_ap", "binary")),
    }


def gradients_of(model: nn.Module, name: str, ranks: tuple[int, ...]) -> list[Tensor]:
    """After each step, of a process that sees the batches of these ranks."""
    loss, found = losses()[name], []
    for step in range(NUM_STEPS):
        inputs, targets = (torch.cat(parts) for parts in zip(*(batches(step)[rank] for rank in ranks)))
        model.zero_grad()
        loss(model(inputs), targets).backward()
        found.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))  # type: ignore[union-attr]
    return found


def work(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    processes.init_process_group(
        "gloo", f"file://{folder}/rendezvous", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    found: dict[str, object] = {}
    for name in losses():
        found[name] = gradients_of(DistributedDataParallel(new_model()), name, (rank,))
    # evaluation: any shape and type, also where a process has nothing
    rows = torch.arange(rank * 2.0).reshape(-1, 1, 2).bfloat16()
    found["gathered"] = gather_set(rows, torch.full((len(rows),), bool(rank)))
    if rank == 0:
        alone = WholeSet(nn.MSELoss()).eval()
        found["alone"] = alone(torch.ones(2), torch.zeros(2))
    try:
        gather_set(torch.zeros(1, 2 + rank), torch.zeros(1))
    except ValueError as error:
        found["error"] = str(error)
    torch.save(found, folder / f"{rank}.pt")
    processes.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, object]]:
    if not processes.is_available():
        pytest.skip("this torch is built without torch.distributed")
    folder = tmp_path_factory.mktemp("two")
    context = multiprocessing.get_context("spawn")
    both = [context.Process(target=work, args=(rank, folder)) for rank in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        for process in both:
            process.start()
    for process in both:
        process.join(120)
        assert process.exitcode == 0
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("name", losses())
def test_gradients_are_those_of_one_process(name: str, found: list[dict[str, object]]) -> None:
    expected = gradients_of(new_model(), name, (0, 1))
    assert all(gradient.abs().max() > 1e-4 for gradient in expected)
    for each in found:
        torch.testing.assert_close(each[name], expected)


def test_parts_alone_would_give_other_gradients() -> None:
    """What the gathering is for: the mean of the losses of the parts is the loss of another metric."""
    parts = [gradients_of(new_model(), "smooth_ap", (rank,)) for rank in (0, 1)]
    whole = gradients_of(new_model(), "smooth_ap", (0, 1))
    assert not torch.allclose((parts[0][0] + parts[1][0]) / 2, whole[0], rtol=0.1)


def test_any_rows(found: list[dict[str, object]]) -> None:
    for each in found:
        outputs, targets = each["gathered"]  # type: ignore[misc]
        assert torch.equal(outputs, torch.tensor([[[0.0, 1.0]]]).bfloat16())
        assert targets.tolist() == [True]


def test_a_process_evaluates_alone(found: list[dict[str, object]]) -> None:
    assert found[0]["alone"] == 1


def test_rows_of_other_sizes(found: list[dict[str, object]]) -> None:
    for each in found:
        assert each["error"] == "a row of outputs has [2, 3] numbers in the processes; the same number works."


def test_without_processes() -> None:
    outputs, targets = torch.randn(3, requires_grad=True), torch.ones(3)
    gathered = gather_set(outputs, targets)
    assert gathered[0] is outputs
    assert gathered[1] is targets
    loss = WholeSet(nn.MSELoss(), memory=1)
    values = [float(loss(torch.tensor([value]), torch.zeros(1))) for value in (1.0, 2.0, 3.0)]
    assert values == [1, 2.5, 6.5]
    with pytest.raises(ValueError, match="memory=-1 came"):
        WholeSet(nn.MSELoss(), memory=-1)
