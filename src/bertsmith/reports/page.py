"""The report of a run: a self-contained HTML page of curves, tables and settings.

The page loads nothing, needs no script, can be printed, and gives every figure as text too. Curves
are SVG text, drawn by matplotlib."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

from bertsmith.core import VERSION
from bertsmith.core.errors import MissingExtra
from bertsmith.core.log import short_number
from bertsmith.core.ownership import new_file
from bertsmith.core.printable import counted, html, printable
from bertsmith.core.printable import html as escape

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
    from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

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
        for axis in (axes.xaxis, axes.yaxis):
            # each tick takes time to draw
            axis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
            ticks = axis.get_majorticklocs().tolist()
            form = _labelling(ticks)
            axis.set_major_formatter(FuncFormatter(lambda value, _, form=form: form(value)))
        # a layout of matplotlib's own would take longer than all the drawing
        left = max(1.05, 0.45 + 0.09 * max(len(form(tick)) for tick in ticks))
        axes.set_position(
            (left / width, 0.55 / height, 1 - (left + 0.1) / width, 1 - (0.55 + top) / height)
        )
        if percent:
            axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
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
    figure.savefig(text, format="svg", metadata=nothing)
    svg = re.sub(r' id="|href="#|url\(#', rf"\g<0>{name}-", text.getvalue())
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg[svg.index("<svg") :].strip()


def in_words(series: Series, *, x_label: str, percent: bool) -> str:
    """Return the last and extreme values of each series as text, for screen readers."""
    parts = []
    for name, points in series.items():
        finite = [(x, y) for x, y in points if math.isfinite(y)]
        if len(finite) > LONG_SERIES:
            finite = smoothed(finite)
        if finite:
            x, y = finite[-1]
            low, high = min(y for _, y in finite), max(y for _, y in finite)
            last, bottom, top = (_value(v, percent=percent) for v in (y, low, high))
            parts.append(f"{name}: {last} at {x_label} {_tick(x)} (lowest {bottom}, highest {top})")
        else:
            parts.append(f"{name}: no values")
    return "; ".join(parts) + "."


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
    # matplotlib leaves out labels that begin with an underscore, and reads $ as mathematics
    label = "\N{ZERO WIDTH SPACE}" + printable(name).replace("$", r"\$")
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


NAMED_ACROSS = 12
MAX_CLASSES = 20
MAX_PAIRS = 30


def confusion_html(matrix: Sequence[Sequence[int]], labels: Sequence[str]) -> str:
    """Return the matrix (labels, labels) as a table with recall per row and precision per column.

    Cells are shaded by their share of the true class. Columns are headed by names up to 12 classes
    and by numbers up to 20; beyond that, the most frequent confusions are listed.
    """
    assert len(matrix) == len(labels)
    assert all(len(row) == len(labels) for row in matrix)
    if len(labels) > MAX_CLASSES:
        return _most_frequent(matrix, labels)
    numbered = len(labels) > NAMED_ACROSS
    rows = ""
    for number, (row, label) in enumerate(zip(matrix, labels, strict=True)):
        total = sum(row)
        name = f"{number + 1} {label}" if numbered else label
        cells = "".join(_cell(count, total, right=number == i) for i, count in enumerate(row))
        recall = _share(row[number], total, short=numbered)
        rows += f'<tr><th scope="row" title="{escape(label)}">{escape(name)}</th>{cells}'
        rows += f'<td class="rate">{recall}</td></tr>'
    columns = [sum(column) for column in zip(*matrix, strict=True)]
    shares = [_share(matrix[i][i], total, short=numbered) for i, total in enumerate(columns)]
    precision = "".join(f"<td>{share}</td>" for share in shares)
    return (
        f'<table class="confusion{" compact" if numbered else ""}">'
        f"<thead>{_head(labels, numbered=numbered)}</thead><tbody>{rows}</tbody>"
        f'<tfoot><tr><th scope="row">precision</th>{precision}<td></td></tr></tfoot></table>'
    )


def _head(labels: Sequence[str], *, numbered: bool) -> str:
    across = "".join(
        f'<th scope="col" title="{escape(label)}">'
        + (str(number) if numbered else f'<span class="across">{escape(label)}</span>')
        + "</th>"
        for number, label in enumerate(labels, 1)
    )
    return (
        f'<tr><td></td><th scope="colgroup" colspan="{len(labels)}">predicted</th><td></td></tr>'
        f'<tr><th scope="col">true</th>{across}<th scope="col">recall</th></tr>'
    )


def _cell(count: int, total: int, *, right: bool) -> str:
    share = count / total if total else 0.0
    # blue if correct, orange if not; text can be read on them, dark or light
    colour = "11, 83, 148" if right else "191, 87, 0"
    style = f"background: rgba({colour}, {0.6 * share:.2f})" if count else "color: var(--soft)"
    return f'<td style="{style}">{count:,}</td>'


def _most_frequent(matrix: Sequence[Sequence[int]], labels: Sequence[str]) -> str:
    pairs = sorted(
        (
            (count, true, predicted)
            for true, row in enumerate(matrix)
            for predicted, count in enumerate(row)
            if count and true != predicted
        ),
        key=lambda pair: (-pair[0], pair[1], pair[2]),
    )
    rows = "".join(
        f"<tr><td>{escape(labels[true])}</td><td>{escape(labels[predicted])}</td>"
        f'<td class="number">{count:,}</td>'
        f'<td class="number">{_share(count, sum(matrix[true]))}</td></tr>'
        for count, true, predicted in pairs[:MAX_PAIRS]
    )
    right = sum(matrix[i][i] for i in range(len(labels)))
    total = sum(map(sum, matrix))
    return (
        f"<p>{right:,} of {total:,} right ({_share(right, total)}) in "
        f"{counted(len(labels), 'class', 'classes')}; "
        f"the most frequent confusions:</p><table><thead><tr>"
        f'<th scope="col">true</th><th scope="col">predicted</th>'
        f'<th scope="col" class="number">times</th>'
        f'<th scope="col" class="number">of the true class</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _share(part: int, whole: int, *, short: bool = False) -> str:
    if not whole:
        return "–"
    return f"{100 * part / whole:.0f}%" if short else f"{100 * part / whole:.1f} %"


_MAX_LENGTH = 10_000

Cell = str | int | float | None


class Report:
    """An HTML page of sections in the order they are added; all text is escaped."""

    def __init__(self, title: str, subtitle: str = "") -> None:
        """Start the page. Raises `MissingExtra` without matplotlib, which draws the curves."""
        require_matplotlib()
        self.title = title
        self.subtitle = subtitle
        self._sections: list[tuple[str, str]] = []

    def text(self, title: str, paragraphs: Sequence[str]) -> None:
        """Add paragraphs of plain text."""
        self._add(title, "".join(f"<p>{safe(paragraph)}</p>" for paragraph in paragraphs))

    def curves(
        self,
        title: str,
        series: Mapping[str, Sequence[tuple[float, float]]],
        *,
        x_label: str,
        y_label: str,
        percent: bool = False,
        marks: Mapping[str, float] | None = None,
        note: str = "",
    ) -> None:
        """Add lines of (x, y) points over one axis; NaN leaves a gap.

        Long series are drawn faint with their moving average on top. `percent` shows y from 0 to 1
        as 0 % to 100 %. `marks` are the x of events, by name.
        """
        drawn: Series = {name: list(points) for name, points in series.items()}
        name = f"drawing-{len(self._sections) + 1}"
        svg = curves_svg(
            drawn, name=name, x_label=x_label, y_label=y_label, percent=percent, marks=marks
        )
        words = in_words(drawn, x_label=x_label, percent=percent)
        for event, x in (marks or {}).items():
            words += f" {event} at {x_label} {x:.3g}."
        caption = f'<figcaption class="note">{safe(words)}</figcaption>'
        label = safe(f"{title}: {y_label} over {x_label}")
        picture = f'<div role="img" aria-label="{label}">{svg}</div>'
        self._add(title, f"<figure>{picture}{caption}</figure>{_note(note)}")

    def table(
        self,
        title: str,
        header: Sequence[str],
        rows: Sequence[Sequence[Cell]],
        note: str = "",
    ) -> None:
        """Add a table; numbers, and strings such as ``0.91 ± 0.02``, are right-aligned."""
        rights = [bool(rows) and all(_numeric(row[i]) for row in rows) for i in range(len(header))]
        kinds = [' class="number"' if right else "" for right in rights]
        head = "".join(
            f'<th scope="col"{kind}>{safe(name)}</th>'
            for name, kind in zip(header, kinds, strict=True)
        )
        body = ""
        for row in rows:
            # texts of scripts that are written from right to left begin there
            cells = zip(row, (kind or ' dir="auto"' for kind in kinds), strict=True)
            body += f"<tr>{''.join(f'<td{kind}>{_shown(cell)}</td>' for cell, kind in cells)}</tr>"
        rest = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        table = f'<table aria-label="{safe(title)}">{rest}'
        self._add(title, wide(title, table) + _note(note), long=len(rows) > 25)

    def confusion(
        self,
        title: str,
        matrix: Sequence[Sequence[int]],
        labels: Sequence[str],
        note: str = "",
    ) -> None:
        """Add a confusion matrix (labels, labels): rows are true classes, columns predicted ones.

        With many classes columns are numbered; beyond 20 the most frequent confusions are listed.
        """
        page = wide(title, confusion_html(matrix, labels))
        self._add(title, page + _note(note), long=len(labels) > 25)

    def settings(self, title: str, settings: Mapping[str, object]) -> None:
        """Add names with their values; keys of nested mappings become dotted paths."""
        pairs = "".join(
            f"<dt>{safe(name)}</dt><dd>{safe(_plain(value))}</dd>"
            for name, value in _flat(settings)
        )
        self._add(title, f"<dl>{pairs}</dl>", long=True)

    def section(self, title: str, html: str) -> None:
        """Add a section of HTML, whose texts the caller has escaped."""
        self._add(title, html)

    def html(self) -> str:
        """Return the whole page."""
        page = resources.files("bertsmith.reports").joinpath("report_page.html")
        return Template(page.read_text(encoding="utf-8")).substitute(
            title=safe(self.title),
            subtitle=safe(self.subtitle),
            version=safe(VERSION),
            body=self._contents() + "\n".join(html for _, html in self._sections),
        )

    def write(self, path: Path) -> None:
        """Write the page atomically: a reader sees the old file or the new one."""
        text = self.html()
        with new_file(path) as part:
            part.write_text(text, encoding="utf-8", errors="xmlcharrefreplace")

    def _contents(self) -> str:
        if len(self._sections) < 4:
            return ""
        links = "".join(
            f'<li><a href="#section-{number}">{safe(title)}</a></li>'
            for number, (title, _) in enumerate(self._sections, 1)
        )
        return f'<nav aria-label="Contents"><ul>{links}</ul></nav>\n'

    def _add(self, title: str, html: str, *, long: bool = False) -> None:
        number = len(self._sections) + 1
        kind = ' class="long"' if long else ""
        opening = f'<section id="section-{number}"{kind}><h2>{safe(title)}</h2>'
        self._sections.append((title, f"{opening}{html}</section>"))


def safe(text: str) -> str:
    """Escape a text, however long."""
    return html(text, _MAX_LENGTH)


def _note(note: str) -> str:
    return f'<p class="note">{safe(note)}</p>' if note else ""


def wide(title: str, html: str) -> str:
    """Wrap wide content in a region that scrolls by itself, also by keyboard."""
    label = safe(title)
    return f'<div class="wide" role="region" tabindex="0" aria-label="{label}">{html}</div>'


def named_rows(
    title: str,
    names: Sequence[str],
    rows: Iterable[Sequence[str]],
    words: Collection[str] = (),
) -> str:
    """Return a table whose first column, under the title, has the names of the rows.

    The other columns are numbers, but for those whose `names` are among the `words`.
    """
    heads = ["" if name in words else ' class="number"' for name in names]
    kinds = ["whole" if name in words else "number" for name in names]
    header = "".join(
        f'<th scope="col"{head}>{safe(name)}</th>' for name, head in zip(names, heads, strict=True)
    )
    body = "".join(
        f'<tr><th scope="row" class="whole">{safe(first)}</th>'
        + "".join(
            f'<td class="{kind}">{safe(cell)}</td>' for cell, kind in zip(cells, kinds, strict=True)
        )
        + "</tr>"
        for first, *cells in rows
    )
    return wide(
        title,
        f'<table aria-label="{safe(title)}"><thead><tr><th scope="col">{safe(title)}</th>{header}'
        f"</tr></thead><tbody>{body}</tbody></table>",
    )


def _numeric(cell: Cell) -> bool:
    if isinstance(cell, str):
        kept = cell.replace("±", " ").replace("%", " ").replace(",", "").split()
        try:
            [float(word) for word in kept]
        except ValueError:
            return cell in ("", "-", "–")
        return True
    return True


def _shown(cell: Cell) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return f"{cell:,}" if isinstance(cell, int) else safe(cell)


def _plain(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_plain(item) for item in value) or "–"
    return "–" if value is None else str(value)


def _flat(settings: Mapping[str, object], prefix: str = "") -> list[tuple[str, object]]:
    pairs: list[tuple[str, object]] = []
    for name, value in settings.items():
        if isinstance(value, Mapping):
            pairs += _flat(value, f"{prefix}{name}.")
        else:
            pairs.append((prefix + name, value))
    return pairs
