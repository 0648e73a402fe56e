"""``lossmith demo``: the main job, end to end, on data that come with scikit-learn."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

from typer import Exit, Option

from lossmith.cli.align import print_alignments
from lossmith.cli.compare import STOPPED, follow, report_comparison
from lossmith.cli.console import progress_bar

if TYPE_CHECKING:
    from lossmith.alignment import Alignment

FOLDER = Path("runs/demo")
POSITIVE_CLASS = 8  # the digit that is most often taken for another
METRIC = "ap"
HAND_MADE = ("ce", "label_smoothing", "soft_f1", "pairwise", "smooth_ap")
LEARNED = "learned"
NUM_SETS, SET_SIZE = 1000, 128
COMPARED = ("ce_again", "focal", "smooth_ap", "traced", "ce+traced")
NUM_SEEDS, NUM_TRIALS, NUM_STEPS = 5, 4, 700


def demo(as_json: Annotated[bool, Option("--json", help="One JSON object.")] = False) -> None:
    """Which loss for average precision? A minute or two, nothing to fetch.

    One handwritten digit against the rest. First: which losses rank predictions as the metric does? Small models
    train with cross-entropy, a loss for average precision is learned from what they predict early and late, and
    held-out sets tell how well it and the hand-made losses order them. Then: which loss trains the better model? The
    same model under several losses, a verdict, and a page with all that it rests on. Writes runs/demo/.
    """
    import torch

    from lossmith.alignment import measure_alignment, plot_alignment
    from lossmith.baselines import find_loss
    from lossmith.lab.checkpoints import CheckpointRun, checkpoint_steps, collect_checkpoints
    from lossmith.lab.comparing.asking import answer_steps, data_in_words, read_data, settings_for
    from lossmith.lab.datasets import find_dataset, one_against_rest
    from lossmith.lab.recipes import recipe_for
    from lossmith.methods.reloss import learn
    from lossmith.metrics import find_metric
    from lossmith.predictions import save_predictions
    from lossmith.vocabulary import Loss
    from lossmith.weights import save

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

    learned = learn(METRIC, stored.predictions)
    save(learned, FOLDER / "loss.safetensors")
    losses: dict[str, Loss] = {LEARNED: learned, **{name: find_loss(name, dataset.kind) for name in HAND_MADE}}
    alignments: dict[str, Alignment] = {}
    with progress_bar("measuring losses", len(losses)) as advance:
        for name, loss in losses.items():
            alignments[name] = measure_alignment(
                loss, find_metric(METRIC), stored.predictions, num_sets=NUM_SETS, set_size=SET_SIZE
            )
            advance(len(alignments))
    plot_alignment(alignments, FOLDER / "alignment.png")

    if not as_json:
        _tell_alignments(alignments)
    metric, pool = find_metric(METRIC), read_data("digits", positive_class=POSITIVE_CLASS)
    settings = settings_for(
        pool, metric, losses=COMPARED, num_seeds=NUM_SEEDS, num_trials=NUM_TRIALS, num_steps=NUM_STEPS
    )
    command = ("lossmith", "compare", "digits", f"--positive-class={POSITIVE_CLASS}", f"--metric={METRIC}")
    news = answer_steps(settings, pool, metric, FOLDER, command=(*command, f"--losses={','.join(COMPARED)}"))
    comparison, is_stopped = follow(news, title=data_in_words(pool), is_quiet=as_json)
    report_comparison(comparison, FOLDER, as_json=as_json)
    if is_stopped:
        print(f"Stopped. What is done is kept in {FOLDER}: the same command goes on.", file=sys.stderr)
        raise Exit(STOPPED)
    if not as_json:
        print("Next, on a table of yours:\n    lossmith compare table.csv --target COLUMN --metric f1 --budget 5m")


def _tell_alignments(alignments: dict[str, Alignment]) -> None:
    print_alignments(
        alignments, f"digit {POSITIVE_CLASS} against the rest: average precision on {NUM_SETS} held-out sets"
    )
    shares = {name: alignments[name].discordant_share for name in (LEARNED, "ce")}
    print(
        f"\nOf two sets of predictions, cross-entropy prefers the one with the worse average precision in "
        f"{shares['ce']:.0%} of all cases; the loss learned for it, in {shares[LEARNED]:.1%} "
        f"({FOLDER}/alignment.png shows every set)."
        f'\nIt trains in place of any loss of torch: loss = lossmith.load("{FOLDER}/loss.safetensors")'
        "\n\nA good order is not yet a good model, so the same model is now trained under several losses."
    )
