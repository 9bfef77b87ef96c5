"""What the user sees while the program works: result lines and progress bars, on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
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
from rich.text import Text

console = Console(stderr=True, highlight=False, soft_wrap=True)


def say(line: str = "") -> None:
    """Print one line of result to standard error, where progress bars do not disturb it."""
    console.print(line, markup=False)


class _Rate(ProgressColumn):
    """Units done a second, in thousands or millions where that reads better."""

    def render(self, task: Task) -> Text:
        """The rate of one bar."""
        unit = task.fields["unit"]
        speed = task.finished_speed or task.speed
        return Text("" if speed is None or not unit else f"{short_number(speed)} {unit}/s")


class Bar:
    """One progress bar; `advance` moves it, `note` writes beside it."""

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
        self._progress.update(self._task, note=text)


@contextmanager
def progress(description: str, total: float | None, unit: str = "") -> Iterator[Bar]:
    """A progress bar with rate, elapsed and remaining time, on a terminal; silent elsewhere."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        _Rate(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, transient=True, disable=not _terminal()) as bars:
        yield Bar(bars, bars.add_task(description, total=total, unit=unit, note=""))


def _terminal() -> bool:
    return sys.stderr.isatty()


def short_number(value: float) -> str:
    """A count as people read it: ``950``, ``12.3k``, ``4.56M``."""
    for limit, divisor, suffix in ((1e3, 1, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M")):
        if abs(value) < limit:
            number = value / divisor
            whole = divisor == 1 or number >= 100
            return f"{number:.0f}{suffix}" if whole else f"{number:.3g}{suffix}"
    return f"{value / 1e9:.3g}G"
