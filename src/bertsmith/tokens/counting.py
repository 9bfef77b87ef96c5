"""Counting the words of a corpus in bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

_MOST_CHUNKS = 2_000_000


class BoundedCounter:
    """Counts as a `Counter` does, in `counts`; of over two million the rarest are forgotten.

    So what is rare is counted low.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, chunks: Iterable[str]) -> None:
        """Count some chunks of text."""
        self.counts.update(chunks)
        lowest = 1
        while len(self.counts) > _MOST_CHUNKS:
            self.counts = Counter({chunk: n for chunk, n in self.counts.items() if n > lowest})
            lowest *= 2


def repeated(words: Mapping[str, int]) -> Iterator[str]:
    """Each word as often as it was counted: the compiled trainers take text, not counts."""
    for word, number in words.items():
        for done in range(0, number, 10_000):
            yield f"{word} " * min(10_000, number - done)
