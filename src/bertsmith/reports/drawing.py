"""Figures drawn by matplotlib: as SVG that takes the colours of its page, and as PNG."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.reports.curves import (
    COLOURS,
    SOFT,
    STYLE,
    percent_labels,
    require_matplotlib,
    shown_label,
    svg_of_page,
)
from bertsmith.reports.fonts import fonts_for, without_warnings_of_glyphs

MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
SEQUENTIAL = "viridis"
# from this share of it on black has more contrast than white
_BRIGHT = 0.44
# letters of a title, on average, in an inch of the width of a heat map
_LETTERS_AN_INCH = 11.5
# a share of the attention that no axis shows
_LEAST = 1e-6

Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A figure: `svg` to stand in a page, and `png`, which has boxes for the letters `missing`."""

    svg: str
    png: bytes
    missing: str = ""


@contextmanager
def _figure(
    size: tuple[float, float], *, texts: Iterable[str] = (), as_svg: bool = True
) -> Iterator[tuple[Any, Callable[[str], Drawing]]]:
    """Yield a figure of a size in inches, and a function of its name that gives the drawing.

    `texts` are those in it that may be in any script. SVG is left out unless `as_svg`.
    """
    require_matplotlib()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    families, missing = fonts_for(texts)
    with mpl.rc_context(STYLE | {"font.family": families}):
        figure = Figure(figsize=size, layout="constrained")

        def finished(name: str) -> Drawing:
            picture = io.BytesIO()
            with without_warnings_of_glyphs():
                figure.savefig(picture, format="png", dpi=150, metadata={"Software": None})
            svg = svg_of_page(figure, name) if as_svg else ""
            return Drawing(svg, picture.getvalue(), missing)

        yield figure, finished


def layer_panels(
    name: str, statistics: Mapping[str, Values], titles: Mapping[str, str], shares: frozenset[str]
) -> Drawing:
    """Draw a panel for each statistic (layers, heads): a dot a head, a line through the means."""
    columns = 3
    rows = math.ceil(len(statistics) / columns)
    with _figure((10.5, 2.5 * rows)) as (figure, finished):
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes, (key, values) in zip(grid.flat, statistics.items(), strict=False):
            layers = np.arange(1, len(values) + 1)
            # heads side by side, so that none hides another
            heads = values.shape[1]
            spread = (np.arange(heads) - (heads - 1) / 2) * (0.56 / max(1, heads - 1))
            across = (layers[:, None] + spread).ravel()
            # whole where they lie on the axis, too, and to be seen on a dark page
            axes.scatter(
                across, values.ravel(), s=13, color=COLOURS[0], linewidths=0, clip_on=False,
                zorder=3,
            )  # fmt: skip
            axes.plot(layers, values.mean(1), color=COLOURS[1], linewidth=1.8)
            axes.set_title(shown_label(titles[key]), fontsize=9, loc="left", wrap=True)
            axes.set_xticks(layers if len(layers) <= 12 else layers[::2])
            axes.tick_params(labelsize=8)
            highest = float(np.nanmax(values))
            # of heads that are all 0 the axis has no scale of its own
            axes.set_ylim(0, highest * 1.08 if highest > _LEAST else 1)
            if key in shares:
                _percent(axes)
        for axes in list(grid.flat)[len(statistics) :]:
            axes.axis("off")
        # the lowest panel of each column
        for axes in list(grid.flat)[: len(statistics)][-columns:]:
            axes.set_xlabel("layer", fontsize=9)
        return finished(name)


def head_map(name: str, points: Values, layers: int, heads: int) -> Drawing:
    """Draw heads (layers x heads, 2) as points, a colour and a mark for each layer."""
    with _figure((8.5, 6)) as (figure, finished):
        import matplotlib as mpl

        axes = figure.subplots()
        colours = mpl.colormaps[SEQUENTIAL](np.linspace(0.02, 0.92, layers))
        for layer in range(layers):
            layer_points = points[layer * heads : (layer + 1) * heads]
            axes.scatter(
                *layer_points.T, s=42, color=colours[layer], marker=MARKS[layer % len(MARKS)],
                label=f"layer {layer + 1}", linewidths=0.8,
                # the first colours are nearly black, and a page may be dark
                edgecolors=SOFT,
            )  # fmt: skip
            for head, (x, y) in enumerate(layer_points, 1):
                axes.annotate(
                    f"{layer + 1}-{head}", (x, y), xytext=(4, 3), textcoords="offset points",
                    fontsize=7, color=SOFT,
                )  # fmt: skip
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_xlabel("first axis of the map")
        axes.set_ylabel("second axis")
        figure.legend(loc="outside right upper", fontsize=9)
        return finished(name)


def grouped_bars(
    name: str, labels: Sequence[str], series: Mapping[str, Sequence[float]], x_label: str
) -> Drawing:
    """Draw horizontal bars, shares from 0 to 1, the series of a label below each other."""
    height = 0.8 / len(series)
    size = (9.5, 0.9 + 0.26 * len(series) * len(labels))
    with _figure(size, texts=labels) as (figure, finished):
        axes = figure.subplots()
        position = np.arange(len(labels))
        hatches = (None, "////", "....")
        for number, (label, values) in enumerate(series.items()):
            at = position + (number - (len(series) - 1) / 2) * height
            bars = axes.barh(
                at, values, height * 0.92, label=label, color=COLOURS[number],
                hatch=hatches[number % 3], edgecolor="white", linewidth=0,
            )  # fmt: skip
            axes.bar_label(
                bars, [f"{100 * v:z.1f}" for v in values], padding=3, fontsize=8, color=SOFT
            )
        axes.set_yticks(position, [shown_label(label) for label in labels])
        axes.margins(y=0.01)
        axes.invert_yaxis()
        axes.set_xlim(0, 1.05)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(x_label)
        axes.xaxis.set_major_formatter(percent_labels())
        figure.legend(loc="outside upper left", ncols=3, fontsize=9)
        return finished(name)


def layer_lines(
    name: str, series: Mapping[str, Sequence[float]], *, y_label: str, first: int = 1,
    percent: bool = False, logarithmic: bool = False,
) -> Drawing:  # fmt: skip
    """Draw a line for each series of values by layer, from layer `first`."""
    with _figure((9, 3.8), texts=series) as (figure, finished):
        from matplotlib.ticker import LogFormatterSciNotation

        axes = figure.subplots()
        dashes = ("-", "--", "-.", ":")
        for number, (label, values) in enumerate(series.items()):
            layers = np.arange(first, first + len(values))
            axes.plot(
                layers, values, dashes[number % 4], marker=MARKS[number % len(MARKS)],
                color=COLOURS[number % len(COLOURS)], label=shown_label(label), linewidth=1.8,
                markersize=5,
            )  # fmt: skip
        axes.set_xticks(layers)
        axes.set_xlabel("layer" if first else "layer (0: embeddings)")
        axes.set_ylabel(y_label)
        if logarithmic:
            axes.set_yscale("log")
            # powers of ten alone would leave less than two of them without a scale
            axes.yaxis.set_minor_formatter(LogFormatterSciNotation(minor_thresholds=(2, 1)))
        elif percent:
            _percent(axes)
        figure.legend(loc="outside upper left", ncols=3, fontsize=9)
        return finished(name)


def heat_map(
    name: str,
    values: Values,
    title: str,
    *,
    labels: tuple[str, str] = ("layer", "head"),
    first: tuple[int, int] = (1, 1),
    as_svg: bool = True,
) -> Drawing:
    """Draw values (rows, columns) with their numbers; `first` numbers the first row and column.

    Without `as_svg` as PNG alone.
    """
    rows, columns = values.shape
    # matplotlib would cut a title that is longer than the map is wide
    lines = textwrap.wrap(title, round(_LETTERS_AN_INCH * (1 + 0.62 * columns)))
    size = (1.6 + 0.62 * columns, 1 + 0.2 * len(lines) + 0.42 * rows)
    with _figure(size, as_svg=as_svg) as (figure, finished):
        axes = figure.subplots()
        # correlations may be negative
        least, most = min(0.0, float(np.nanmin(values))), float(np.nanmax(values))
        image = axes.imshow(values, cmap=SEQUENTIAL, aspect="auto", vmin=least)
        middle = least + ((most - least) or 1.0) * _BRIGHT
        for row, row_values in enumerate(values):
            for column, value in enumerate(row_values):
                axes.text(
                    column, row, f"{value:z.2f}", ha="center", va="center", fontsize=8,
                    color="white" if value < middle else "black",
                )  # fmt: skip
        axes.set_xticks(range(columns), [str(first[1] + number) for number in range(columns)])
        axes.set_yticks(range(rows), [str(first[0] + number) for number in range(rows)])
        axes.grid(visible=False)
        axes.set_ylabel(labels[0])
        axes.set_xlabel(labels[1])
        axes.set_title("\n".join(map(shown_label, lines)), fontsize=11, loc="left")
        figure.colorbar(image, ax=axes, pad=0.01)
        return finished(name)


def use_map(name: str, points: Values, clusters: NDArray[np.int64]) -> Drawing:
    """Draw the uses of a word (uses, 2) as points, a colour and a mark for each cluster."""
    with _figure((8.5, 5)) as (figure, finished):
        axes = figure.subplots()
        for cluster in range(int(clusters.max()) + 1):
            members = points[clusters == cluster]
            axes.scatter(
                *members.T, s=36, color=COLOURS[cluster % len(COLOURS)], linewidths=0,
                marker=MARKS[cluster % len(MARKS)], label=f"cluster {cluster + 1} ({len(members)})",
            )  # fmt: skip
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_xlabel("first axis of the map")
        axes.set_ylabel("second axis")
        figure.legend(loc="outside upper left", ncols=5, fontsize=9)
        return finished(name)


def _percent(axes: Any) -> None:  # noqa: ANN401
    axes.yaxis.set_major_formatter(percent_labels())
