"""Text to the ids of WordPiece, stretch by stretch between blanks, each remembered.

Blanks part words whatever stands around them, so stretches are independent of each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from bertsmith.tokens.alignment import aligned_words
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.remembering import Remembered
from bertsmith.tokens.spans import Stretch
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.tokens.wordpiece import CONTINUES, WordPiece

_SPECIALS: Final = frozenset(SPECIALS)
_LITERAL_SPECIAL: Final = re.compile("(" + "|".join(map(re.escape, SPECIALS)) + ")")
# str.split takes these for blanks; to the rules they are control characters, which just go
_FALSE_BLANKS: Final = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
_STRETCH: Final = re.compile(r"[\S\x0b\x0c\x1c-\x1f\x85]+")
_BEYOND_PLAIN: Final = re.compile(r"[^\t\n\r -~]")

_Spans = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


class WordPieceText:
    """Texts as ids by the basic rules and WordPiece."""

    def __init__(self, vocabulary: Sequence[str], rules: BasicRules, unknown_id: int) -> None:
        self._vocabulary = vocabulary
        self._rules = rules
        self._special = {piece: vocabulary.index(piece) for piece in SPECIALS}
        self._pieces = WordPiece(vocabulary, unknown_id)
        self._unknown = unknown_id
        self._chunks = Remembered(self._chunk_ids)
        self._chunk_spans = Remembered(self._spans_of)

    def ids(
        self, text: str, *, specials_in_text: bool, inside: bool = False
    ) -> Iterator[Sequence[int]]:
        """The ids of a text, in parts; the same wherever it stands."""
        del inside
        if not specials_in_text or "[" not in text:
            return self._plain(text)
        parts = _LITERAL_SPECIAL.split(text)
        return chain.from_iterable(
            [(self._special[part],)] if place % 2 else self._between_specials(part)
            for place, part in enumerate(parts)
        )

    def spans(self, text: str, *, specials_in_text: bool) -> Iterator[Stretch]:
        """The same with the places of the pieces."""
        if not specials_in_text or "[" not in text:
            yield from self._plain_spans(text, 0, len(text))
            return
        before = 0
        for found in _LITERAL_SPECIAL.finditer(text):
            yield from self._spans_between(text, before, found.start())
            yield Stretch(found.start(), (self._special[found[0]],), (0,), (len(found[0]),))
            before = found.end()
        yield from self._spans_between(text, before, len(text))

    def _plain(self, text: str) -> Iterator[tuple[int, ...]]:
        if _FALSE_BLANKS.search(text):
            text = _FALSE_BLANKS.sub("", text)
        return map(self._chunks.__getitem__, text.split())

    def _plain_spans(self, text: str, start: int, end: int) -> Iterator[Stretch]:
        for found in _STRETCH.finditer(text, start, end):
            yield Stretch(found.start(), *self._chunk_spans[found[0]])

    def _between_specials(self, text: str) -> Iterator[Sequence[int]]:
        if self._may_hide_special(text):
            return iter([self._pieces.ids_of(self._rules.words_keeping(text, _SPECIALS))])
        return self._plain(text)

    def _spans_between(self, text: str, start: int, end: int) -> Iterator[Stretch]:
        if not self._may_hide_special(text[start:end]):
            yield from self._plain_spans(text, start, end)
            return
        for found in _STRETCH.finditer(text, start, end):
            yield Stretch(found.start(), *self._spans_of(found[0], _SPECIALS))

    def _may_hide_special(self, text: str) -> bool:
        """Removing a character or an accent may leave a special token, unless lower-cased.

        Only the slow tokenizer, which composes text, looks for them then.
        """
        cased = self._rules.composes and not self._rules.lowercase
        return cased and "[" in text and bool(_BEYOND_PLAIN.search(text))

    def _chunk_ids(self, chunk: str) -> tuple[int, ...]:
        return tuple(self._pieces.ids_of(self._rules.words(chunk)))

    def _spans_of(self, chunk: str, kept: frozenset[str] = frozenset()) -> _Spans:
        ids: list[int] = []
        starts: list[int] = []
        ends: list[int] = []
        for word in aligned_words(self._rules, chunk, kept):
            first = 0
            for number in self._pieces.ids(word.text):
                last = (
                    len(word.text) if number == self._unknown else first + self._size(number, first)
                )
                ids.append(number)
                starts.append(word.starts[first])
                ends.append(word.ends[last - 1])
                first = last
        return tuple(ids), tuple(starts), tuple(ends)

    def _size(self, number: int, first: int) -> int:
        """Characters of a piece, that begins a word or goes it on."""
        return len(self._vocabulary[number]) - (len(CONTINUES) if first else 0)
