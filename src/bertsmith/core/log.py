"""Result lines and progress bars, on standard error, while the program works.

Nothing here can fail or mislead: standard error that is closed, full or read by nobody any more
loses what is shown and ends no run, and every string passes through `printable`, so that a label
with escape sequences or line breaks in it is shown as such. A line of result is one line.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import timedelta
from typing import IO, Any, Protocol, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.segment import Segment
from rich.table import Column
from rich.table import Table as RichTable
from rich.text import Text

from bertsmith.core.printable import display_width, printable, printable_lines

SECONDS_BETWEEN_LINES = 30.0
_SLOW = 0.5
_USUAL_WIDTH = 80
# longer words of a table are cut in a narrow terminal
_MAX_WORD = 24
_UNITS = ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"))
MAX_LINE_LENGTH = 4000
"""Characters of a line of result that are shown; a foreign string in it is shorter."""


class _StandardError:
    """Standard error, whatever it is by now; what cannot be written is lost without a word."""

    def write(self, text: str) -> int:
        """Write a text, if that is possible."""
        # ValueError: closed by Python itself
        with suppress(OSError, ValueError):
            self._stream().write(text)
        return len(text)

    def flush(self) -> None:
        """Hand on what was written."""
        with suppress(OSError, ValueError):
            self._stream().flush()

    def isatty(self) -> bool:
        """Return whether standard error is an interactive terminal."""
        with suppress(OSError, ValueError):
            return bool(self._stream().isatty())
        return False

    def fileno(self) -> int:
        """Return the descriptor of the stream below."""
        return int(self._stream().fileno())

    @property
    def encoding(self) -> str:
        """The encoding of the stream below."""
        with suppress(ValueError):
            return str(getattr(self._stream(), "encoding", None) or "utf-8")
        return "utf-8"

    def _stream(self) -> Any:  # noqa: ANN401
        if sys.stderr is None:
            raise ValueError
        # while a bar is drawn, rich puts itself before the stream
        return getattr(sys.stderr, "rich_proxied_file", sys.stderr)


_standard_error = _StandardError()
console = Console(
    file=cast("IO[str]", _standard_error),
    highlight=False,
    soft_wrap=True,
    markup=False,
    emoji=False,
    # else each line is an HTML output of its own in a notebook, and standard error has none
    force_jupyter=False,
)
if not console.width:
    # to rich, COLUMNS=0 is no room for a letter; to others, a width that is not known
    console.width = _USUAL_WIDTH


_rewrite: ContextVar[Callable[[str], str] | None] = ContextVar("rewrite", default=None)


@contextmanager
def reworded(rewrite: Callable[[str], str]) -> Iterator[None]:
    """Rewrite the lines that `say` prints in this context."""
    token = _rewrite.set(rewrite)
    try:
        yield
    finally:
        _rewrite.reset(token)


def say(line: str = "") -> None:
    """Print one line of result to standard error, where progress bars do not disturb it."""
    rewrite = _rewrite.get()
    line = printable(line if rewrite is None else rewrite(line), MAX_LINE_LENGTH)
    if _screens:
        _screens[-1].say(line)
    else:
        console.print(line)


def print_error(line: str) -> None:
    """Print the one line on standard error with which the program ends."""
    # no console: a thread that is drawing may hold its lock for ever
    _standard_error.write(f"bertsmith: {printable(line, MAX_LINE_LENGTH)}\n")
    _standard_error.flush()


class Table(RichTable):
    """A table for the terminal: what its cells hold is shown as it is, never as markup."""

    def add_column(self, header: RenderableType = "", *others: Any, **settings: Any) -> None:  # noqa: ANN401
        """Add a column under a header, which may have several lines."""
        super().add_column(_shown(header), *others, **settings)

    def add_row(self, *cells: RenderableType | None, **settings: Any) -> None:  # noqa: ANN401
        """Add a row of cells of one line each."""
        super().add_row(*map(_shown, cells), **settings)

    def least_width(self) -> int:
        """Return the width at which no column but the first is narrower than its words."""
        columns = [
            [line for cell in (column.header, *column.cells) for line in str(cell).split("\n")]
            for column in self.columns
        ]
        words = [word for lines in columns[1:] for line in lines for word in line.split()]
        longest_word = min(max(map(display_width, words), default=0), _MAX_WORD)
        # rich makes the widest columns narrower until they are of one width, and then those that
        # may not be wrapped, all in proportion
        widest = [max(map(display_width, lines)) for lines in columns]
        widths = (
            width if column.no_wrap else min(width, longest_word)
            for column, width in zip(self.columns, widest, strict=True)
        )
        # blanks around a cell, and a line beside it
        _, right, _, left = self.padding
        beside = left + right + (self.box is not None)
        return sum(widths) + beside * len(columns) + 1

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterable[RenderableType | Segment]:
        """Render the table, wider than the terminal where a number would be cut otherwise."""
        # lines that the terminal wraps can still be read, an ellipsis in place of a number cannot
        width = max(options.max_width, self.least_width())
        return super().__rich_console__(console, options.update_width(width))


def table_of(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: bool = False,
    lined: bool = True,
) -> Table:
    """Return a table of rows; with `numbers` all columns but the first are right-aligned."""
    table = Table(*header) if lined else Table(*header, box=None)
    for column in table.columns[1:] if numbers else ():
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    return table


def _shown(cell: Any) -> Any:  # noqa: ANN401
    return Text(printable_lines(cell)) if isinstance(cell, str) else cell


class _Rate(ProgressColumn):
    """Units done a second, in thousands or millions where that reads better."""

    def render(self, task: Task) -> Text:
        """Return the rate of one bar."""
        unit = task.fields["unit"]
        speed = task.finished_speed or task.speed
        return Text("" if speed is None or not unit else _rate(speed, unit))


class Bar(Protocol):
    """The progress of one piece of work; `advance` moves it, `note` adds a remark."""

    def advance(self, amount: float = 1) -> None:
        """Move on by some units."""

    def move_to(self, done: float) -> None:
        """Move to an absolute number of units."""

    def note(self, text: str) -> None:
        """Show live figures beside it."""


class Screen(Protocol):
    """A display of lines and bars in place of standard error."""

    def say(self, line: str) -> None:
        """Show a line of result."""

    def bar(self, description: str, total: float | None, unit: str) -> Bar:
        """Show a bar until the next one begins."""
        ...


_screens: list[Screen] = []


@contextmanager
def shown_on(screen: Screen) -> Iterator[None]:
    """Show lines and bars somewhere else meanwhile: in another process, say."""
    _screens.append(screen)
    try:
        yield
    finally:
        _screens.pop()


class _TerminalBar:
    """One bar on a terminal."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def advance(self, amount: float = 1) -> None:
        """Move the bar by some units."""
        self._progress.advance(self._task, amount)

    def move_to(self, done: float) -> None:
        """Move the bar to an absolute number of units."""
        self._progress.update(self._task, completed=done)

    def note(self, text: str) -> None:
        """Write live figures beside the bar."""
        self._progress.update(self._task, note=printable(text))

    def remove(self) -> None:
        """Draw it no more."""
        self._progress.remove_task(self._task)


class LogBar:
    """The progress of work whose output is no terminal: a line in the log every 30 seconds."""

    def __init__(
        self,
        description: str,
        total: float | None,
        unit: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._description = description
        self._total = total
        self._unit = unit
        self._clock = clock
        self._began = self._told = clock()
        self._done = 0.0
        # where a resumed run begins says nothing of its speed
        self._first: tuple[float, float] | None = None
        self._note = ""

    def advance(self, amount: float = 1) -> None:
        """Move on by some units."""
        self.move_to(self._done + amount)

    def move_to(self, done: float) -> None:
        """Move to an absolute number of units."""
        now = self._clock()
        self._done = done
        self._first = self._first or (now, done)
        if now - self._told >= SECONDS_BETWEEN_LINES:
            self._told = now
            say(self.line())

    def note(self, text: str) -> None:
        """Show live figures in the next line."""
        self._note = text

    def line(self) -> str:
        """Return the progress, the time taken and left, and the note."""
        start, first = self._first or (self._began, 0.0)
        speed = (self._done - first) / max(self._told - start, 1e-9)
        shown = [f"{timedelta(seconds=round(self._told - self._began))} elapsed"]
        if self._unit and speed > 0:
            shown.insert(0, f"{amount(self._done, self._unit)}, {_rate(speed, self._unit)}")
        if self._total and speed > 0:
            seconds_left = max(self._total - self._done, 0.0) / speed
            shown.insert(0, f"{100 * min(self._done / self._total, 1):.0f} %")
            # of a run without an end in sight it is more than there are days to count
            with suppress(OverflowError):
                shown.append(f"{timedelta(seconds=round(seconds_left))} left")
        return f"{self._description}: " + " · ".join([*shown, *filter(None, [self._note])])


@contextmanager
def progress(description: str, total: float | None, unit: str = "") -> Iterator[Bar]:
    """Yield a bar with rate, elapsed and remaining time; without a terminal, occasional lines."""
    if _screens:
        yield _screens[-1].bar(description, total, unit)
    elif not _standard_error.isatty():
        yield LogBar(description, total, unit)
    else:
        with _drawing() as drawing:
            yield _add_bar(drawing, description, total, unit)


class _Drawing(Progress):
    """Bars one below the other; then their notes, each in a line, so that no bar makes room."""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield the bars and the notes."""
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            if note := task.fields["note"]:
                name = f"{task.description}: " if len(self.tasks) > 1 else ""
                yield Text(f"{name}{note}", no_wrap=True, overflow="ellipsis")


def _drawing() -> Progress:
    """Return the place where bars are drawn; there is one at a time."""
    # in a narrow terminal the bar is shorter, and times are whole
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        _Rate(table_column=Column(no_wrap=True)),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        TextColumn("left"),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
    )
    return _Drawing(*columns, console=console, transient=True)


def _add_bar(drawing: Progress, description: str, total: float | None, unit: str) -> _TerminalBar:
    shown = printable(description)
    return _TerminalBar(drawing, drawing.add_task(shown, total=total, unit=unit, note=""))


class Bars:
    """The bars of concurrent tasks by name, below one bar for all of them.

    Where the output is no terminal, lines show that one alone, with the share of each task.
    """

    def __init__(self, total_bar: Bar, drawing: Progress | None = None) -> None:
        self._whole = total_bar
        self._drawing = drawing
        self._drawn: dict[str, _TerminalBar] = {}
        self._shares: dict[str, float] = {}
        self._ended = 0

    def move_to(self, name: str, share: float, note: str = "") -> None:
        """Show the share of a task that is done, 0 to 1."""
        self._shares[name] = share
        if self._drawing is not None:
            if name not in self._drawn:
                self._drawn[name] = _add_bar(self._drawing, name, 1.0, "")
            self._drawn[name].move_to(share)
            self._drawn[name].note(note)
        self._move_whole()

    def end(self, name: str) -> None:
        """Show that a task has ended."""
        self._shares.pop(name, None)
        if name in self._drawn:
            self._drawn.pop(name).remove()
        self._ended += 1
        self._move_whole()

    def _move_whole(self) -> None:
        if self._drawing is None:
            shown = (f"{name} {100 * share:.0f} %" for name, share in self._shares.items())
            self._whole.note(", ".join(shown))
        self._whole.move_to(self._ended + sum(self._shares.values()))


@contextmanager
def progress_of_several(description: str, count: int) -> Iterator[Bars]:
    """Yield the bars of a number of tasks, some of which run at the same time."""
    if not _standard_error.isatty():
        yield Bars(LogBar(description, count, ""))
        return
    with _drawing() as drawing:
        yield Bars(_add_bar(drawing, description, count, ""), drawing)


def _rate(speed: float, unit: str) -> str:
    """Return units a second, or a minute where they are slow."""
    if speed < _SLOW:
        return f"{amount(60 * speed, unit)}/min"
    return f"{amount(speed, unit)}/s"


def amount(value: float, unit: str) -> str:
    """Return an amount with its unit: `12.3k words`, but `12.3 kB`."""
    shown = short_number(value)
    if unit == "B" and not shown[-1].isdigit():
        return f"{shown[:-1]} {shown[-1]}B"
    return f"{shown} {unit}"


def short_number(value: float) -> str:
    """Return a count as people read it: ``950``, ``12.3k``, ``4.56M``."""
    for divisor, suffix in _UNITS:
        number = value / divisor
        is_whole = divisor == 1 or abs(number) >= 100
        shown = f"{number:z.0f}" if is_whole else f"{number:z.3g}"
        if abs(float(shown)) < 1000:
            return f"{shown}{suffix}"
    return f"{value / 1e15:.3g}P"
