"""``lossmith demo``: the main job, end to end, on data that come with scikit-learn."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from lossmith.cli.align import print_alignments
from lossmith.cli.console import progress_bar

if TYPE_CHECKING:
    from lossmith.alignment import Alignment

FOLDER = Path("runs/demo")
POSITIVE_CLASS = 8  # the digit that is most often taken for another
METRIC = "ap"
NUM_SETS, SET_SIZE = 1000, 128


def demo() -> None:
    """Which loss ranks predictions as average precision does? Half a minute, nothing to fetch.

    One handwritten digit against the rest: train small models with cross-entropy, keep what they predict early and
    late, and see on held-out sets how well each loss orders those predictions. Writes runs/demo/.
    """
    import torch

    from lossmith.alignment import measure_alignment, plot_alignment
    from lossmith.baselines import find_loss
    from lossmith.cli.losses import names_for
    from lossmith.lab.checkpoints import CheckpointRun, checkpoint_steps, collect_checkpoints
    from lossmith.lab.datasets import find_dataset, one_against_rest
    from lossmith.lab.recipes import recipe_for
    from lossmith.metrics import find_metric
    from lossmith.predictions import save_predictions

    # the models are so small that threads cost more than they bring, eight times as much on a busy machine
    torch.set_num_threads(1)
    dataset = one_against_rest(find_dataset("digits").load(None), POSITIVE_CLASS)
    with TemporaryDirectory() as folder:
        run = CheckpointRun(dataset, recipe_for("digits"), Path(folder))
        with progress_bar(f"training {run.num_seeds} models", run.num_steps) as advance:
            for step in checkpoint_steps(run):
                advance(step.number)
        stored = collect_checkpoints(run)
    FOLDER.mkdir(parents=True, exist_ok=True)
    save_predictions(FOLDER / "predictions.npz", stored.predictions, seed=stored.seed, epoch=stored.epoch)

    names = names_for(dataset.kind)
    alignments: dict[str, Alignment] = {}
    with progress_bar("measuring losses", len(names)) as advance:
        for name in names:
            alignments[name] = measure_alignment(
                find_loss(name, dataset.kind),
                find_metric(METRIC),
                stored.predictions,
                num_sets=NUM_SETS,
                set_size=SET_SIZE,
            )
            advance(len(alignments))
    plot_alignment(alignments, FOLDER / "alignment.png")

    print_alignments(
        alignments, f"digit {POSITIVE_CLASS} against the rest: average precision on {NUM_SETS} held-out sets"
    )
    best = max(alignments, key=lambda name: alignments[name].spearman.value)
    share = alignments[best].discordant_share
    print(
        f"\nEven {best}, the best of these losses, prefers the set with the worse average precision in {share:.0%} of "
        "all pairs: a model that lowers it need not get better at what it is judged by "
        f"({FOLDER}/alignment.png shows every set)."
        "\nNext, the same for your predictions (.npz with outputs and targets) and your metric (`lossmith metrics`):"
        f"\n    lossmith align --metric f1 --predictions {FOLDER}/predictions.npz"
    )
