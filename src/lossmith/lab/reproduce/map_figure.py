"""Draws the map of where losses made from the metric pay, from the committed results of ``tables-map``.

``python -m lossmith.lab.reproduce.map_figure docs/images/when-it-pays.svg``
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from lossmith.lab.reproduce import committed_results
from lossmith.lab.reproduce.experiment import Result
from lossmith.lab.reproduce.tables_map import (
    MAP,
    METRICS_JUDGED,
    RECIPES,
    SIZES,
    TABLES,
    WIDTH_ROWS,
    WIDTHS,
    Place,
    gain_at,
)


def draw(results: Mapping[str, Result], path: Path) -> None:
    """Mean gain over the tables with its standard error, over widths and over numbers of rows; tables in thin lines."""
    figure = Figure(figsize=(8.4, 7.2), layout="constrained")
    slices = [
        ("units of the model, 8,000 rows", [(WIDTHS[model], Place(model, WIDTH_ROWS)) for model in WIDTHS]),
        *(
            (f"training rows, {what}", [(f"{rows:,}", Place(model, rows)) for rows in SIZES])
            for model, what in (("linear", "linear model"), ("mlp32", "32-32 units"))
        ),
    ]
    grid = figure.subplots(len(METRICS_JUDGED), len(slices), sharey="row", width_ratios=[7, 5, 5])
    for axes_of_metric, metric in zip(grid, METRICS_JUDGED):
        for axes, (what, ticks) in zip(axes_of_metric, slices):
            axes.axhline(0, color="0.4", linewidth=1)
            axes.set_yscale("symlog", linthresh=1)
            for number, recipe in enumerate(name for name, by in RECIPES.items() if by == metric):
                gains = [gain_at(place, recipe, results, TABLES) for _, place in ticks]
                colour = ("#3a6ea5", "#c2571a")[number]
                for table in TABLES:
                    axes.plot([gain.means[table] for gain in gains], color=colour, linewidth=0.6, alpha=0.4)
                errors = [gain.standard_error for gain in gains]
                means = [gain.mean for gain in gains]
                axes.errorbar(range(len(ticks)), means, errors, color=colour, linewidth=2, capsize=2, label=recipe)
            axes.set_xticks(range(len(ticks)), [tick for tick, _ in ticks], fontsize=7, rotation=30)
            axes.grid(axis="y", color="0.92")
            axes.spines[["top", "right"]].set_visible(False)
            if metric == METRICS_JUDGED[-1]:
                axes.set_xlabel(what, fontsize=8)
        axes_of_metric[0].set_ylabel(f"points of {metric} gained")
        axes_of_metric[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


if __name__ == "__main__":
    draw(committed_results(MAP, "cpu"), Path(sys.argv[1]))
