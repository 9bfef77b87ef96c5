"""Texts that come without words marked in them."""

from __future__ import annotations

from collections.abc import Iterator

from bertsmith.recipes.texts import Texts
from bertsmith.text.tagged import Tagged, words_of


class RawTexts:
    """Texts as rows without tags; `blank` counts the empty lines passed over."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts

    @property
    def blank(self) -> int:
        """Empty lines so far."""
        return self._texts.blank

    def __iter__(self) -> Iterator[Tagged]:
        for number, example in enumerate(self._texts):
            yield Tagged(
                text=example.text,
                words=words_of(example.text),
                tags=None,
                entities=None,
                document=number,
                source=example.source,
                line=example.line,
            )
