"""Text to ids by ModernBERT's rules: added tokens first, then byte-pair encoding between them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple
from unicodedata import normalize

from bertsmith.core.config import Config
from bertsmith.tokens.added import AddedTokens, finders
from bertsmith.tokens.bpe import BytePairs, places_of, word_ends, words, written
from bertsmith.tokens.vocabulary import SPECIALS, BoundedCache, Pieces, TextRun

_MASK = SPECIALS[-1]


@dataclass(frozen=True, kw_only=True)
class ModernRules(Config):
    """The rules that split text in Unicode's composed form (NFC) into pieces of bytes."""

    merges: tuple[tuple[str, str], ...]
    """The pairs that are merged, in the order in which they were learned."""
    added: AddedTokens
    """The tokens that are matched in text beforehand."""

    @property
    def mask_takes_blank(self) -> bool:
        """Return whether the blanks before a literal mask belong to it."""
        return any(token.lstrip for token in self.added.tokens if token.piece == _MASK)


class Composed(NamedTuple):
    """A text in NFC with `starts` and `ends` (characters,) of its characters in the original."""

    text: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]


class _Mark(NamedTuple):
    """A character, and its number of characters minus that of its original."""

    text: str
    change: int


def composed(text: str) -> Composed | None:
    """Return a text in NFC with its positions in the original; None if it is in NFC already.

    Positions are those of the compiled tokenizers: the parts of composed characters are counted
    along the text, and a composed character has the position of its first part.
    """
    if unicodedata.is_normalized("NFC", text):
        return None
    starts: list[int] = []
    ends: list[int] = []
    letters: list[str] = []
    position = 0
    for letter, change in _composed(_decomposed(text)):
        letters.append(letter)
        start = position if change <= 0 else position - 1
        starts.append(max(start, 0))
        ends.append(start + 1)
        position += max(1 - change, 0)
    return Composed("".join(letters), tuple(starts), tuple(ends))


def _decomposed(text: str) -> Iterator[_Mark]:
    """Yield the characters of a text in NFD, with runs of marks ordered by class."""
    marks: list[_Mark] = []
    for character in text:
        for index, letter in enumerate(unicodedata.normalize("NFD", character)):
            part = _Mark(letter, int(index > 0))
            if unicodedata.combining(letter):
                marks.append(part)
                continue
            yield from sorted(marks, key=_class)
            marks = []
            yield part
    yield from sorted(marks, key=_class)


def _composed(parts: Iterator[_Mark]) -> Iterator[_Mark]:
    """Yield the canonical composition (Unicode, D117) of characters in NFD."""
    first: _Mark | None = None
    waiting: list[_Mark] = []
    for part in parts:
        kind = _class(part)
        # a mark after one of the same class, or a letter after marks, is blocked from composition
        if first is not None and (not waiting or _class(waiting[-1]) < kind):
            whole = unicodedata.normalize("NFC", first.text + part.text)
            if len(whole) == 1:
                first = _Mark(whole, first.change + part.change - 1)
                continue
        if kind and first is not None:
            waiting.append(part)
        elif kind:
            yield part
        else:
            yield from ([first] if first else [])
            yield from waiting
            first, waiting = part, []
    yield from ([first] if first else [])
    yield from waiting


def _class(part: _Mark) -> int:
    return unicodedata.combining(part.text)


class ModernText:
    """Encodes texts by ModernBERT's rules and byte-pair encoding."""

    def __init__(self, vocabulary: Pieces, rules: ModernRules, unknown_id: int) -> None:
        del unknown_id  # every byte is a piece
        self._ids = vocabulary.ids
        self._given, self._composed = finders(
            rules.added, vocabulary.ids, SPECIALS, partial(normalize, "NFC")
        )
        self._pairs = BytePairs(rules.merges)
        self._words = BoundedCache(self._word_ids)
        self._word_spans = BoundedCache(self._spans_of)

    def ids(
        self, text: str, *, specials_in_text: bool, inside: bool = False
    ) -> Iterator[Sequence[int]]:
        """Yield the ids of a text, in parts, independent of its context.

        Added tokens other than BERT's own are matched even without `specials_in_text`.
        """
        del inside
        for start, end, number in self._given.parts(text, specials_in_text):
            if number is not None:
                yield (number,)
                continue
            part = normalize("NFC", text[start:end])
            for first, last, token in self._composed.parts(part, specials_in_text):
                if token is not None:
                    yield (token,)
                else:
                    yield from map(self._words.__getitem__, words(part[first:last]))

    def spans(self, text: str, *, specials_in_text: bool) -> Iterator[TextRun]:
        """Yield the ids with the positions of the pieces, including preceding blanks."""
        for start, end, number in self._given.parts(text, specials_in_text):
            if number is not None:
                yield TextRun(start, (number,), (0,), (end - start,))
                continue
            part = text[start:end]
            other = composed(part)
            for stretch in self._between(part if other is None else other.text, specials_in_text):
                place, ids, starts, ends = stretch
                if other is None:
                    yield TextRun(start + place, ids, starts, ends)
                    continue
                yield TextRun(
                    start,
                    ids,
                    tuple(other.starts[place + at] for at in starts),
                    tuple(other.ends[place + at - 1] for at in ends),
                )

    def _between(self, text: str, specials_in_text: bool) -> Iterator[TextRun]:
        """Yield the encoding of text between the tokens matched in the original text."""
        for start, end, number in self._composed.parts(text, specials_in_text):
            if number is not None:
                yield TextRun(start, (number,), (0,), (end - start,))
                continue
            part = text[start:end]
            before = 0
            for after in word_ends(part):
                yield TextRun(start + before, *self._word_spans[part[before:after]])
                before = after

    def _word_ids(self, word: str) -> tuple[int, ...]:
        return tuple(self._ids[piece] for piece in self._pairs.cut(written(word)))

    def _spans_of(self, word: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        pieces = self._pairs.cut(written(word))
        starts, ends = zip(*places_of(pieces, word), strict=True)
        return tuple(self._ids[piece] for piece in pieces), starts, ends
