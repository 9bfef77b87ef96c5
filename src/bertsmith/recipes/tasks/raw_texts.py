"""Texts that come without words marked in them."""

from __future__ import annotations

from bertsmith.text.example import Example
from bertsmith.text.tagged import Tagged, words_of


def raw_text(example: Example) -> Tagged:
    """Return a text as a row without tags, a document of its own."""
    return Tagged(
        text=example.text,
        words=words_of(example.text),
        tags=None,
        entities=None,
        document=example.line,
        source=example.source,
        line=example.line,
    )
