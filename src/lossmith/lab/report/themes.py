"""Pictures that follow the page's theme: matplotlib draws in stand-in colours, which become CSS variables.

One SVG serves light, dark and print, stays sharp at every size, and its text is text: it can be found, copied and read
aloud. What users typed reaches the page through matplotlib's own escaping and is never taken for mathematics.

>>> figure = new_figure(2, 1)
>>> _ = figure.subplots().plot([0, 1], color=SERIES[0])
>>> svg = as_svg(figure, "a <line>")
>>> "var(--series-0)" in svg, "#a10000" in svg, 'aria-label="a &lt;line&gt;"' in svg
(True, False, True)
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import wraps
from html import escape
from typing import Any, ParamSpec

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# colours that no theme has, each in the place of a variable of the style sheet
SERIES = tuple(f"#a1000{number}" for number in range(8))
TEXT, LINE, MUTED, GOOD, BAD = "#b10000", "#b10001", "#b10002", "#b10003", "#b10004"
VARIABLES = {colour: f"var(--series-{number})" for number, colour in enumerate(SERIES)} | {
    TEXT: "currentColor",
    LINE: "var(--line)",
    MUTED: "var(--muted)",
    GOOD: "var(--good)",
    BAD: "var(--bad)",
}
_STAND_IN = re.compile("|".join(VARIABLES))
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a column called $x$ is a column called $x$
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}


Arguments = ParamSpec("Arguments")


def in_page_style(plot: Callable[Arguments, str]) -> Callable[Arguments, str]:
    """Text takes its size and its parser when it is made, so a whole plot is drawn in the style of the page."""

    @wraps(plot)
    def styled(*arguments: Arguments.args, **options: Arguments.kwargs) -> str:
        with matplotlib.rc_context(_STYLE):
            return plot(*arguments, **options)

    return styled


def new_figure(width: float, height: float) -> Figure:
    """Inches; five of them are as wide as a phone."""
    return Figure(figsize=(width, height), layout="constrained")


def plain(axes: Axes) -> Axes:
    """Nothing but what carries meaning: two thin axes, a pale grid."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(LINE)
    axes.tick_params(colors=TEXT, color=LINE, length=0)
    axes.grid(color=LINE, linewidth=0.6)
    axes.set_axisbelow(True)
    for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
        text.set_color(TEXT)
    return axes


def as_svg(figure: Figure, description: str) -> str:
    """To be put into a page as it is."""
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))  # the same trials give the same file
    with matplotlib.rc_context({"svg.hashsalt": description}):
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    # the page sets the size; the picture keeps its proportions
    head, rest = svg.split(">", 1)
    width = float(re.search(r'width="([\d.]+)pt"', head).group(1))  # type: ignore[union-attr]
    head = re.sub(r' (?:width|height)="[\d.]+pt"', "", head)
    svg = f'{head} role="img" aria-label="{escape(description)}" style="--width:{width:.0f}">{rest}'
    svg = re.sub(r"font: ([\d.]+)px [^;\"]+", r"font-size: \1px", svg)  # in the letters of the page
    return _STAND_IN.sub(lambda found: VARIABLES[found[0]], svg)
