"""What the user sees while the program works: result lines and progress bars, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol

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

SECONDS_BETWEEN_LINES = 30.0

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


class Bar(Protocol):
    """How far something is; `advance` moves it, `note` says more."""

    def advance(self, amount: float = 1) -> None:
        """Move on by some units."""

    def move_to(self, done: float) -> None:
        """Move to an absolute number of units."""

    def note(self, text: str) -> None:
        """Tell live figures beside it."""


class _DrawnBar:
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
        self._progress.update(self._task, note=text)


class ToldBar:
    """A bar where nobody watches, in the log of a batch job say: a line every half minute."""

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
        """Tell live figures in the next line."""
        self._note = text

    def line(self) -> str:
        """How far it is, how long it took and will take, and the note."""
        since, first = self._first or (self._began, 0.0)
        speed = (self._done - first) / max(self._told - since, 1e-9)
        shown = [f"{timedelta(seconds=round(self._told - self._began))} elapsed"]
        if self._unit and speed > 0:
            done = f"{short_number(self._done)} {self._unit}"
            shown.insert(0, f"{done}, {short_number(speed)} {self._unit}/s")
        if self._total and speed > 0:
            left = max(self._total - self._done, 0.0) / speed
            shown.insert(0, f"{100 * min(self._done / self._total, 1):.0f} %")
            shown.append(f"{timedelta(seconds=round(left))} left")
        return f"{self._description}: " + " · ".join([*shown, *filter(None, [self._note])])


@contextmanager
def progress(description: str, total: float | None, unit: str = "") -> Iterator[Bar]:
    """A bar with rate, elapsed and remaining time on a terminal; elsewhere a line now and then."""
    if not _terminal():
        yield ToldBar(description, total, unit)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        _Rate(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        yield _DrawnBar(bars, bars.add_task(description, total=total, unit=unit, note=""))


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
