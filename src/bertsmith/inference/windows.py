"""A stream of examples in windows of bounded size, so that memory does not grow with the stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bertsmith.text.examples import Example

ROWS = 2048
_CHARACTERS = 4_000_000


def windows(examples: Iterable[Example], rows: int) -> Iterator[list[Example]]:
    """Lists of at most `rows` examples, fewer when their texts are very long."""
    window: list[Example] = []
    characters = 0
    for example in examples:
        window.append(example)
        characters += len(example.text) + len(example.text_pair or "")
        if len(window) >= rows or characters >= _CHARACTERS:
            yield window
            window, characters = [], 0
    if window:
        yield window
