"""The pictures of a report, each from the trials of a comparison.

>>> from lossmith.lab.statistics import rank_over_datasets
>>> ranked = rank_over_datasets({"a": [3.0, 2.0, 3.0], "b": [1.0, 1.0, 1.0], "c": [2.0, 3.0, 2.0]})
>>> "average rank" in plot_ranks(ranked, "seeds")
True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from lossmith.alignment import Alignment
from lossmith.lab.comparing.comparison import Comparison, Row, chosen
from lossmith.lab.comparing.insights import Shape
from lossmith.lab.comparing.records import CONTROL, REFERENCE
from lossmith.lab.report.themes import BAD, GOOD, LINE, MUTED, SERIES, TEXT, as_svg, in_page_style, new_figure, plain
from lossmith.lab.statistics import OverDatasets, Paired

WIDTH = 5.4
"""Inches: letters that suit a desk are still legible on a phone."""
MAX_DOTS = 200
MAX_CURVES = 6
"""More lines than a reader can tell apart are drawn pale."""


def colours_of(comparison: Comparison) -> dict[str, str]:
    """The best losses in colours, the same in every picture; the reference and the control in those of the text."""
    names = [row.recipe for row in comparison.table if row.recipe not in (REFERENCE, CONTROL)]
    coloured = dict(zip(names[:MAX_CURVES], SERIES))
    return {**dict.fromkeys(names, MUTED), **coloured, REFERENCE: TEXT, CONTROL: MUTED}


@in_page_style
def plot_curves(comparison: Comparison) -> str:
    """Validation metric over steps: mean of the seeds, and a band of one standard error.

    Splits differ more than losses do, so what the losses of a seed have in common is taken out of the bands: they show
    the noise that a comparison within seeds has.
    """
    colours = colours_of(comparison)
    explored = [trial for trial in comparison.trials if not trial.is_confirmation]
    best = chosen(explored, higher_is_better=comparison.higher_is_better)
    names = [row.recipe for row in comparison.table]
    steps, values = _curves([[trial.curve for _, trial in sorted(best[name].items())] for name in names])
    own = values - values.mean((0, 2), keepdim=True) + values.mean()  # [losses, seeds, steps]
    errors = own.std(1) / values.shape[1] ** 0.5
    means = values.mean(1)
    figure = new_figure(WIDTH, 3.4)
    axes = plain(figure.subplots())
    lows, highs = [], []
    for name, mean, error in reversed(list(zip(names, means, errors))):  # the best on top
        colour = colours[name]
        if colour == MUTED:
            axes.plot(steps, mean, color=colour, linewidth=0.8, alpha=0.55)
            continue
        line = "--" if name == REFERENCE else "-"
        axes.plot(steps, mean, color=colour, linewidth=1.8, linestyle=line, label=name)
        axes.fill_between(steps, mean - error, mean + error, color=colour, alpha=0.14, linewidth=0)
        lows.append((mean - error)[len(steps) // 4 :].min())
        highs.append((mean + error)[len(steps) // 4 :].max())
    # the first steps would press all that matters into a thin strip
    low, high = float(torch.stack(lows).min()), float(torch.stack(highs).max())
    room = 0.06 * (high - low) or 0.01
    if low == low and high == high:
        axes.set_ylim(low - room, high + room)
    axes.set_xlabel("training steps")
    axes.set_ylabel(f"{comparison.settings.metric} on validation rows")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles[::-1], labels[::-1], loc="outside upper left", ncols=3, frameon=False, labelcolor=TEXT, handlelength=1.3
    )
    return as_svg(figure, f"Learning curves: {comparison.settings.metric} on validation rows over training steps")


def _curves(curves: Sequence[Sequence[Sequence[tuple[int, float]]]]) -> tuple[Tensor, Tensor]:
    """``[steps]`` that all curves have, and ``[losses, seeds, steps]``; of the seeds that all losses have."""
    num_seeds = min(len(of_seeds) for of_seeds in curves)
    values = [[dict(curve) for curve in of_seeds[:num_seeds]] for of_seeds in curves]
    steps = sorted(set.intersection(*(set(each) for of_seeds in values for each in of_seeds)))
    table = [[[each[step] for step in steps] for each in of_seeds] for of_seeds in values]
    return torch.tensor(steps), torch.tensor(table, dtype=torch.float64)


@in_page_style
def plot_differences(comparison: Comparison) -> str:
    """Every loss against tuned cross-entropy: the mean difference over paired seeds, with its 95 % interval."""
    rows = [row for row in comparison.table if row.paired is not None]
    rows.sort(key=lambda row: row.paired.mean if row.paired else 0.0)
    fresh = {row.recipe: row for row in comparison.confirmation}
    figure = new_figure(WIDTH, 0.9 + 0.27 * len(rows))
    axes = plain(figure.subplots())
    axes.axvline(0, color=TEXT, linewidth=1)
    for height, row in enumerate(rows):
        factor = comparison.scale.factor
        _interval(axes, height + (0.14 if row.recipe in fresh else 0.0), row, factor, marker="o")
        if row.recipe in fresh:
            _interval(axes, height - 0.2, fresh[row.recipe], factor, marker="D")
    axes.set_yticks(range(len(rows)), [row.recipe for row in rows])
    axes.set_ylim(-0.7, len(rows) - 0.3)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(f"{comparison.scale.unit}{comparison.settings.metric} better than tuned cross-entropy".strip())
    return as_svg(figure, "Paired differences from tuned cross-entropy, with 95 % intervals")


def interval_of(paired: Paired) -> tuple[float, float]:
    """Of Student's t at 95 %: of a handful of seeds, a bootstrap is too sure, and would contradict the p-value."""
    from scipy import stats

    reach = float(stats.t.ppf(0.975, paired.num_pairs - 1)) * paired.standard_error
    return paired.mean - reach, paired.mean + reach


def _interval(axes: Axes, height: float, row: Row, factor: float, *, marker: str) -> None:
    paired = row.paired
    if paired is None:
        return
    low, high = interval_of(paired)
    is_told_apart = row.recipe != CONTROL
    colour = GOOD if low > 0 and is_told_apart else BAD if high < 0 and is_told_apart else MUTED
    axes.plot([factor * low, factor * high], [height, height], color=colour, linewidth=2.2, solid_capstyle="round")
    axes.plot([factor * paired.mean], [height], marker, color=colour, markersize=5.5 if marker == "o" else 4.5)


@in_page_style
def plot_ranks(ranked: OverDatasets, over: str) -> str:
    """Critical-difference diagram (Demsar 2006): the better, the further left; a bar joins what is not told apart."""
    order = sorted(range(len(ranked.names)), key=lambda index: ranked.average_ranks[index])
    num, half = len(order), -(-len(order) // 2)
    lowest, highest = 1, max(2, num)
    bars = 0.16 * len(ranked.groups)
    figure = new_figure(WIDTH, 1.05 + 0.24 * half + 0.55 * bars)
    axes = figure.subplots()
    axes.set_axis_off()
    span = highest - lowest
    axes.set_xlim(lowest - 0.42 * span, highest + 0.42 * span)
    bottom = -(bars + 0.3 + 0.32 * half)
    axes.set_ylim(bottom - 0.1, 1.6)
    axes.plot([lowest, highest], [0, 0], color=TEXT, linewidth=1.2)
    every = max(1, span // 10)
    for tick in range(lowest, highest + 1, every):
        axes.plot([tick, tick], [0, 0.1], color=TEXT, linewidth=1)
        axes.text(tick, 0.16, str(tick), color=TEXT, ha="center", va="bottom", fontsize=8)
    axes.text(
        (lowest + highest) / 2, 1.15, f"average rank over {over}", color=TEXT, ha="center", va="bottom", fontsize=9
    )
    for place, index in enumerate(order):
        is_left = place < half
        rank = ranked.average_ranks[index]
        height = -(bars + 0.3 + 0.32 * (place if is_left else num - 1 - place))
        end = lowest - 0.06 * span if is_left else highest + 0.06 * span
        axes.plot([rank, rank, end], [0, height, height], color=LINE, linewidth=1)
        axes.plot([rank], [0], "o", color=GOOD if place == 0 else TEXT, markersize=3.5)
        label = f"{ranked.names[index]}  {rank:.1f}" if is_left else f"{rank:.1f}  {ranked.names[index]}"
        axes.text(
            end + (-0.02 if is_left else 0.02) * span,
            height,
            label,
            color=TEXT,
            fontsize=8.5,
            va="center",
            ha="right" if is_left else "left",
        )
    for number, group in enumerate(ranked.groups):
        ranks = [ranked.average_ranks[ranked.names.index(name)] for name in group]
        height = -0.16 * (number + 1)
        axes.plot(
            [min(ranks) - 0.02 * span, max(ranks) + 0.02 * span],
            [height] * 2,
            color=MUTED,
            linewidth=3.2,
            solid_capstyle="round",
        )
    axes.plot([lowest, min(highest, lowest + ranked.critical_difference)], [0.55, 0.55], color=MUTED, linewidth=1.2)
    axes.text(
        lowest, 0.62, f"critical difference {ranked.critical_difference:.2f}", color=MUTED, fontsize=7.5, va="bottom"
    )
    return as_svg(figure, f"Critical-difference diagram over {over}")


@in_page_style
def plot_alignments(alignments: Mapping[str, Alignment], colours: Mapping[str, str]) -> str:
    """A dot for every set of held-out predictions: the ranks of its loss and of its cost. A diagonal is perfect."""
    figure, grid = _small_multiples(len(alignments))
    for axes, (name, alignment) in zip(grid, alignments.items()):
        colour = colours.get(name, MUTED)
        costs, losses = (
            values.argsort().argsort() / max(1, len(values) - 1) for values in (alignment.costs, alignment.losses)
        )
        axes.scatter(costs[:MAX_DOTS], losses[:MAX_DOTS], s=5, color=colour, alpha=0.45, linewidths=0)
        axes.set_title(f"{name}  {alignment.spearman.value:.3f}", loc="left", color=TEXT)
        axes.set_xticks([])
        axes.set_yticks([])
    figure.supxlabel("rank of the metric's cost", color=TEXT, fontsize=9)
    figure.supylabel("rank of the loss", color=TEXT, fontsize=9)
    return as_svg(figure, "Alignment of every loss with the metric on held-out sets")


@in_page_style
def plot_shapes(shape: Shape, colours: Mapping[str, str]) -> str:
    """The loss of one batch as the score of a positive rises, on the cost of the metric."""
    figure, grid = _small_multiples(len(shape.losses))
    for axes, (name, losses) in zip(grid, shape.losses.items()):
        axes.plot(shape.scores, _unit(shape.cost), color=MUTED, linewidth=1, drawstyle="steps-mid")
        axes.plot(shape.scores, _unit(losses), color=colours.get(name, MUTED), linewidth=1.8)
        axes.set_title(name, loc="left", color=TEXT)
        axes.set_yticks([])
    figure.supxlabel("score of one positive", color=TEXT, fontsize=9)
    return as_svg(figure, "Shape of every loss, and of the metric's cost in grey, as the score of one positive rises")


def _unit(values: Tensor) -> Tensor:
    span = values.max() - values.min()
    return (values - values.min()) / span if float(span) > 0 else values * 0


def _small_multiples(num: int) -> tuple[Figure, list[Axes]]:
    num_columns = min(4, num)
    num_rows = -(-num // num_columns)
    figure = new_figure(WIDTH * num_columns / 4, 0.35 + 1.2 * num_rows)
    grid = figure.subplots(num_rows, num_columns, squeeze=False, sharex=True).flatten()
    for axes in grid[num:]:
        axes.set_visible(False)
    return figure, [plain(axes) for axes in grid[:num]]
