"""Many sets out of few: each new set draws its rows, without replacement, from one stored set.

>>> import torch
>>> stored = Predictions(torch.arange(6.0).view(2, 3), torch.tensor([[0, 0, 0], [1, 1, 1]]))
>>> drawn = draw_sets(stored, num_sets=5, set_size=2, generator=torch.Generator().manual_seed(0))
>>> drawn.outputs.shape
torch.Size([5, 2])
>>> bool(((drawn.outputs > 2.5) == drawn.targets).all())  # the rows of one set come from one stored set
True
"""

from __future__ import annotations

import torch
from torch import Tensor

from lossmith.vocabulary import Predictions


def draw_sets(predictions: Predictions, *, num_sets: int, set_size: int, generator: torch.Generator) -> Predictions:
    """``num_sets`` new sets of ``set_size`` rows: a uniform choice of a stored set for each, and of its rows.

    Rows keep their order; a set drawn from a held-out set is held out.
    """
    if num_sets < 1 or set_size < 1:
        raise ValueError(f"num_sets={num_sets} and set_size={set_size} came; both are 1 or more.")
    if predictions.num_sets == 0:
        raise ValueError("there are no stored sets to draw from.")
    if set_size > predictions.set_size:
        raise ValueError(
            f"set_size={set_size} rows without replacement cannot come from stored sets of {predictions.set_size} rows."
        )
    device = predictions.outputs.device
    source = torch.randint(predictions.num_sets, (num_sets,), generator=generator, device=generator.device).to(device)
    rows = _draw_rows(num_sets, set_size, predictions.set_size, generator).to(device)
    is_held_out = None if predictions.is_held_out is None else predictions.is_held_out[source]
    pick = (source[:, None], rows)
    return Predictions(predictions.outputs[pick], predictions.targets[pick], is_held_out)


def _draw_rows(num_sets: int, set_size: int, num_rows: int, generator: torch.Generator) -> Tensor:
    """``[num_sets, set_size]``: different row numbers in each set, rising; every choice of rows is as likely."""
    if 2 * set_size > num_rows:
        keys = torch.rand(num_sets, num_rows, generator=generator, device=generator.device)
        return keys.topk(set_size).indices.sort().values
    # Work and memory that do not grow with the stored set: draw, and draw again what came twice. No row is treated
    # unlike another, so no choice of rows is likelier than another.
    rows = torch.randint(num_rows, (num_sets, set_size), generator=generator, device=generator.device)
    while True:
        rows = rows.sort().values
        is_repeated = torch.nn.functional.pad(rows[:, 1:] == rows[:, :-1], (1, 0))
        num_repeated = int(is_repeated.sum())
        if num_repeated == 0:
            return rows
        rows[is_repeated] = torch.randint(num_rows, (num_repeated,), generator=generator, device=generator.device)
