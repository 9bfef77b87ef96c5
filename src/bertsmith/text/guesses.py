"""Encodings that files were guessed to be in, told once for many files."""

from __future__ import annotations

from pathlib import Path

from bertsmith.log import say
from bertsmith.text.encodings import OPTION, Verdict


def tell_guess(path: Path, verdict: Verdict, more: int = 0) -> None:
    """Say in which encoding a file was guessed to be, and how many more with it."""
    others = f" and {more:,} more file{'s' * (more > 1)}" if more else ""
    say(f"{path}{others}: read as {verdict.codec}: {verdict.guessed}; {OPTION} names another")


class Guesses:
    """The guesses about many files, by encoding: the first file, its verdict and their number."""

    def __init__(self, *, first_at_once: bool = False) -> None:
        """Tell all of them at the end or, of an encoding's files, the first at once."""
        self._first_at_once = first_at_once
        self._found: dict[str | None, tuple[Path, Verdict, int]] = {}

    def add(self, path: Path, verdict: Verdict) -> None:
        """Take the guess about one more file."""
        first, kept, count = self._found.get(verdict.codec, (path, verdict, 0))
        if self._first_at_once and not count:
            tell_guess(path, verdict)
        if self._first_at_once and count == 1:
            first = path
        self._found[verdict.codec] = (first, kept, count + 1)

    def tell(self) -> None:
        """Say what has not been told yet, in one line for each encoding."""
        for first, verdict, count in self._found.values():
            if not self._first_at_once:
                tell_guess(first, verdict, count - 1)
            elif count > 1:
                tell_guess(first, verdict, count - 2)
