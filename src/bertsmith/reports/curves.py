"""Curves over one axis, drawn by matplotlib as SVG text in the colours of their page."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from bertsmith.core.errors import MissingExtra
from bertsmith.core.log import short_number
from bertsmith.core.printable import printable
from bertsmith.reports.fonts import without_warnings_of_glyphs

Series = Mapping[str, Sequence[tuple[float, float]]]
Points = list[tuple[float, float]]

# Okabe and Ito's colours, which the colour-blind can tell apart; dashes tell them apart in grey
INK, SOFT, LINE = "#1c2128", "#57606a", "#d0d7de"
_VARIABLES = {INK: "--ink", SOFT: "--soft", LINE: "--line"}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#56B4E9", INK)
DASHES = ("-", "--", "-.", ":")
LONG_SERIES = 150
DRAWN_POINTS = 1000
LEGEND_COLUMNS = 3
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "bertsmith",
    "font.family": "sans-serif",
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "text.color": INK,
    "legend.frameon": False,
}


def require_matplotlib() -> None:
    """Raise `MissingExtra` unless matplotlib is installed; call it before a long run."""
    if find_spec("matplotlib") is None:
        raise MissingExtra("matplotlib", "report", "the report")


def curves_svg(
    series: Series,
    *,
    name: str,
    x_label: str,
    y_label: str,
    percent: bool,
    marks: Mapping[str, float] | None = None,
) -> str:
    """Return an ``<svg>`` element with a line for each series of (x, y).

    `name` prefixes all ids inside, so that several figures can share a page; `marks` are labelled
    vertical lines at an x.
    """
    require_matplotlib()
    import matplotlib as mpl
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    with mpl.rc_context(STYLE):
        rows = math.ceil(len(series) / LEGEND_COLUMNS) if len(series) > 1 else 0
        top = 0.15 + 0.24 * rows
        width, height = 9, 3.65 + top
        figure = Figure(figsize=(width, height))
        axes = figure.add_axes((0, 0, 1, 1))
        for number, (label, points) in enumerate(series.items()):
            _draw(axes, label, list(points), number)
        for words, x in (marks or {}).items():
            axes.axvline(x, color=SOFT, linewidth=1, linestyle=":")
            left, right = axes.get_xlim()
            beyond = x > (left + right) / 2
            axes.annotate(
                words, xy=(x, 1), xycoords=("data", "axes fraction"), fontsize=9,
                xytext=(-3 if beyond else 3, -2), textcoords="offset points",
                ha="right" if beyond else "left", va="top",
            )  # fmt: skip
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.margins(x=0.02)
        # there is no layer 1.5, nor a step
        whole = all(float(x).is_integer() for points in series.values() for x, _ in points)
        for axis, integer in ((axes.xaxis, whole), (axes.yaxis, False)):
            # each tick takes time to draw
            steps = [1, 2, 2.5, 5, 10]
            axis.set_major_locator(MaxNLocator(nbins=6, steps=steps, integer=integer))
            ticks = axis.get_majorticklocs().tolist()
            form = _labelling(ticks)
            axis.set_major_formatter(FuncFormatter(lambda value, _, form=form: form(value)))
        if percent:
            axes.yaxis.set_major_formatter(percent_labels())
        # a layout of matplotlib's own would take longer than all the drawing
        labels = axes.yaxis.get_major_formatter().format_ticks(ticks)
        left = max(1.05, 0.45 + 0.09 * max(map(len, labels)))
        axes.set_position(
            (left / width, 0.55 / height, 1 - (left + 0.1) / width, 1 - (0.55 + top) / height)
        )
        if len(series) > 1:
            figure.legend(loc="upper left", ncols=LEGEND_COLUMNS)
        return svg_of_page(figure, name)


def svg_of_page(figure: Any, name: str) -> str:  # noqa: ANN401
    """Return the ``<svg>`` element of a figure of matplotlib, in the colours of its page.

    `name` prefixes all ids inside. The figure has no background from now on.
    """
    for part in (figure, *figure.axes):
        part.patch.set_alpha(0)
    text = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    # the browser has fonts of its own
    with without_warnings_of_glyphs():
        figure.savefig(text, format="svg", metadata=nothing)
    svg = re.sub(r' id="|href="#|url\(#', rf"\g<0>{name}-", text.getvalue())
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg[svg.index("<svg") :].strip()


def percent_labels() -> Any:  # noqa: ANN401
    """Return how the ticks of an axis of shares, 0 to 1, are labelled: as in text, ``4.5 %``."""
    from matplotlib.ticker import PercentFormatter

    return PercentFormatter(xmax=1, symbol=" %")


def shown_label(text: str) -> str:
    """Return a label as matplotlib shows it: it leaves out ``_a``, and reads $ as mathematics."""
    return "\N{ZERO WIDTH SPACE}" * text.startswith("_") + printable(text).replace("$", r"\$")


def in_words(series: Series, *, x_label: str, percent: bool) -> str:
    """Return the last and extreme values of each series as text, for screen readers.

    What stands in brackets after the label is left out.
    """
    parts, x_label = [], x_label.partition(" (")[0]
    for name, points in series.items():
        finite, kind = [(x, y) for x, y in points if math.isfinite(y)], ""
        if len(finite) > LONG_SERIES:
            finite, kind = smoothed(finite), ", moving average"
        if finite:
            x, y = finite[-1]
            low, high = min(y for _, y in finite), max(y for _, y in finite)
            last, bottom, top = (_value(v, percent=percent) for v in (y, low, high))
            place = point_on(x_label, x)
            extremes = f" (lowest {bottom}, highest {top})" if len(finite) > 1 else ""
            parts.append(f"{name}{kind}: {last} at {place}{extremes}")
        else:
            parts.append(f"{name}: no values")
    return "; ".join(parts) + "."


def point_on(x_label: str, x: float) -> str:
    """Return a point of an axis in words: "2.5 minutes" where the label is a plural, "layer 3"."""
    plural = any(word.endswith("s") for word in x_label.split())
    return f"{_tick(x)} {x_label}" if plural else f"{x_label} {_tick(x)}"


def smoothed(points: Points) -> Points:
    """Return the moving average over a window of a thirtieth of the series."""
    half_window = max(1, len(points) // 60)
    sums = [0.0]
    for _, y in points:
        sums.append(sums[-1] + y)
    means = []
    for i, (x, _) in enumerate(points):
        # symmetric at the beginning, where the curve is steep; fewer points after at the end
        before = min(half_window, i)
        last = min(i + before + 1, len(points))
        means.append((x, (sums[last] - sums[i - before]) / (last - i + before)))
    return means


def thinned(points: Points, max_points: int) -> Points:
    """Return at most `max_points` points, each the mean of a run of neighbours."""
    size = math.ceil(len(points) / max_points)
    runs = [points[i : i + size] for i in range(0, len(points), size)]
    return [(sum(x for x, _ in run) / len(run), sum(y for _, y in run) / len(run)) for run in runs]


def _draw(axes: Any, name: str, points: Points, number: int) -> None:  # noqa: ANN401
    colour = COLOURS[number % len(COLOURS)]
    dash = DASHES[number // len(COLOURS) % len(DASHES)]
    label = shown_label(name)
    if len(points) > LONG_SERIES:
        points = thinned(points, DRAWN_POINTS)
        axes.plot(*zip(*points, strict=True), color=colour, alpha=0.25, linewidth=0.8)
        points = smoothed([(x, y) for x, y in points if math.isfinite(y)])
    marker = "o" if len(points) <= 30 else ""
    columns = zip(*points, strict=True) if points else ((), ())
    axes.plot(*columns, dash, color=colour, label=label, linewidth=1.8, marker=marker, markersize=4)


def _tick(value: float) -> str:
    """Format a tick label: plain below a thousand, shortened above."""
    return short_number(value) if abs(value) >= 1000 else f"{value:z.3g}"


def _labelling(ticks: Sequence[float]) -> Callable[[float], str]:
    """Return how the ticks of an axis are labelled: in short, unless some would look the same."""
    distinct = len(set(map(_tick, ticks))) == len(ticks)
    return _tick if distinct else lambda value: f"{value:z,.10g}"


def _value(value: float, *, percent: bool) -> str:
    if percent:
        return f"{100 * value:z.1f} %"
    return short_number(value) if abs(value) >= 1000 else f"{value:z.4g}"
