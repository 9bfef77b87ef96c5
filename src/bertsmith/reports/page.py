"""The report of a run: a self-contained HTML page of curves, tables and settings.

The page loads nothing, needs no script, can be printed, and gives every figure as text too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template

from bertsmith.core import VERSION
from bertsmith.core.errors import MissingExtra
from bertsmith.core.log import say
from bertsmith.core.ownership import new_file
from bertsmith.core.printable import counted
from bertsmith.core.printable import html as escape
from bertsmith.reports.curves import Series, curves_svg, in_words, point_on, require_matplotlib

NAMED_ACROSS = 12
MAX_CLASSES = 20
MAX_PAIRS = 30


Confusion = Mapping[tuple[int, int], int]
"""Counts of pairs of a true and a predicted class; those that do not occur may be left out."""


def confusion_html(counts: Confusion, labels: Sequence[str]) -> str:
    """Return a confusion matrix as a table with recall per row and precision per column.

    Cells are shaded by their share of the true class. Columns are headed by names up to 12 classes
    and by numbers up to 20; beyond that, the most frequent confusions are listed.
    """
    classes = range(len(labels))
    assert all(true in classes and predicted in classes for true, predicted in counts)
    if len(labels) > MAX_CLASSES:
        return _most_frequent(counts, labels)
    matrix = [[counts.get((true, predicted), 0) for predicted in classes] for true in classes]
    numbered = len(labels) > NAMED_ACROSS
    rows = ""
    for number, (row, label) in enumerate(zip(matrix, labels, strict=True)):
        total = sum(row)
        name = f"{number + 1} {label}" if numbered else label
        cells = "".join(_cell(count, total, right=number == i) for i, count in enumerate(row))
        recall = _share(row[number], total, short=numbered)
        rows += f'<tr><th scope="row" dir="auto"><span>{escape(name)}</span></th>{cells}'
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
        + (str(number) if numbered else f'<span class="across" dir="auto">{escape(label)}</span>')
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


def _most_frequent(counts: Confusion, labels: Sequence[str]) -> str:
    totals = Counter[int]()
    for (true, _), count in counts.items():
        totals[true] += count
    pairs = sorted(
        (-count, true, predicted)
        for (true, predicted), count in counts.items()
        if count and true != predicted
    )
    rows = "".join(
        f'<tr><td dir="auto">{escape(labels[true])}</td>'
        f'<td dir="auto">{escape(labels[predicted])}</td>'
        f'<td class="number">{-count:,}</td>'
        f'<td class="number">{_share(-count, totals[true])}</td></tr>'
        for count, true, predicted in pairs[:MAX_PAIRS]
    )
    right = sum(count for (true, predicted), count in counts.items() if true == predicted)
    total = totals.total()
    summary = f"{right:,} of {total:,} right ({_share(right, total)}) in "
    summary += counted(len(labels), "class", "classes")
    if not pairs:
        return f"<p>{summary}</p>"
    return (
        f"<p>{summary}; the most frequent confusions:</p><table><thead><tr>"
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

    @classmethod
    def if_possible(cls, title: str, subtitle: str) -> Report | None:
        """Start the page of a run; without matplotlib return None, and print why there is none."""
        try:
            return cls(title, subtitle)
        except MissingExtra as missing:
            say(f"no report: {missing}")
            return None

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
            words += f" {event} at {point_on(x_label, x)}."
        caption = f'<figcaption class="note">{safe(words)}</figcaption>'
        label = safe(f"{title}: {y_label} over {x_label}")
        picture = f'<div role="img" aria-label="{label}">{svg}</div>'
        self._add(title, f"<figure>{picture}{caption}</figure>{_note(note)}")

    def table(
        self, title: str, header: Sequence[str], rows: Sequence[Sequence[Cell]], note: str = ""
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

    def confusion(self, title: str, counts: Confusion, labels: Sequence[str]) -> None:
        """Add a confusion matrix: rows are true classes, columns predicted ones.

        With many classes columns are numbered; beyond 20 the most frequent confusions are listed.
        """
        self._add(title, wide(title, confusion_html(counts, labels)), long=len(labels) > 25)

    def settings(self, title: str, settings: Mapping[str, object]) -> None:
        """Add names with their values; keys of nested mappings become dotted paths."""
        pairs = "".join(
            f"<dt>{safe(name)}</dt><dd>{_isolated(value)}</dd>" for name, value in _flat(settings)
        )
        self._add(title, f"<dl>{pairs}</dl>", long=True)

    def section(self, title: str, html: str) -> None:
        """Add a section of HTML, whose texts the caller has escaped."""
        self._add(title, html)

    def html(self) -> str:
        """Return the whole page."""
        return self.filled("report_page.html")

    def filled(self, template: str, **more: str) -> str:
        """Return the whole page in a template of this package, which may have `more` fields."""
        page = resources.files("bertsmith.reports").joinpath(template)
        return Template(page.read_text(encoding="utf-8")).substitute(
            title=safe(self.title),
            subtitle=safe(self.subtitle),
            version=safe(VERSION),
            body=self._contents() + "\n".join(html for _, html in self._sections),
            **more,
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
    return escape(text, _MAX_LENGTH)


def _note(note: str) -> str:
    return f'<p class="note">{safe(note)}</p>' if note else ""


def wide(title: str, html: str) -> str:
    """Wrap wide content in a region that scrolls by itself, also by keyboard."""
    label = safe(title)
    return f'<div class="wide" role="region" tabindex="0" aria-label="{label}">{html}</div>'


def named_rows(
    title: str, names: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[str] = ()
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
        kept = cell.replace("±", " ").replace("%", " ").replace(",", "")
        # millions, and times another number
        words = kept.removesuffix(" M").removesuffix(" x").split()
        try:
            [float(word) for word in words]
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


def _isolated(value: object) -> str:
    """Return a value as HTML, the items of a list that is shown whole each in its own direction."""
    text = _plain(value)
    if isinstance(value, list | tuple) and value and len(text) <= _MAX_LENGTH:
        return ", ".join(f"<bdi>{safe(_plain(item))}</bdi>" for item in value)
    return safe(text)


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
