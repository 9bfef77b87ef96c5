"""Text to ids by ModernBERT's rules: added tokens first, then byte-pair encoding between them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from unicodedata import normalize

from bertsmith.core.config import Config
from bertsmith.tokens.bpe import WHITE_SPACE, BytePairs, places_of, word_ends, words, written
from bertsmith.tokens.vocabulary import SPECIALS, BoundedCache, Pieces, TextRun


@dataclass(frozen=True, kw_only=True)
class AddedPiece(Config):
    """A token that is matched in text before byte-pair encoding."""

    piece: str
    special: bool
    """True if it is a special token and not text."""
    composed: bool
    """True if it is matched in the composed text, not in the original one."""


@dataclass(frozen=True, kw_only=True)
class ModernRules(Config):
    """The rules that split text in Unicode's composed form (NFC) into pieces of bytes."""

    merges: tuple[tuple[str, str], ...]
    """The pairs that are merged, in the order in which they were learned."""
    learned: int
    """Number of pieces, the vocabulary's first, that words are split into."""
    added: tuple[AddedPiece, ...]
    """The added tokens in the order of ids, including special ones; some may be learned pieces."""
    mask_takes_blank: bool = True
    """True if the blanks before a literal mask belong to it."""


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


_MASK = SPECIALS[-1]


class _Part(NamedTuple):
    """A part of a text, with the id of the added token if it is one."""

    start: int
    end: int
    number: int | None


class ModernText:
    """Encodes texts by ModernBERT's rules and byte-pair encoding."""

    def __init__(self, vocabulary: Pieces, rules: ModernRules, unknown_id: int) -> None:
        del unknown_id  # every byte is a piece
        self._ids = ids = vocabulary.ids
        takes_blank = _MASK if rules.mask_takes_blank else None
        self._given, self._composed = (
            _Finder([token for token in rules.added if token.composed == late], ids, takes_blank)
            for late in (False, True)
        )
        self._pairs = BytePairs(rules.merges)
        self._words = BoundedCache(self._word_ids)
        self._word_spans = BoundedCache(self._spans_of)

    def ids(
        self, text: str, *, specials_in_text: bool, inside: bool = False
    ) -> Iterator[Sequence[int]]:
        """Yield the ids of a text, in parts, independent of its context.

        Added tokens that are not special are matched even without `specials_in_text`.
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


class _Finder:
    """Matches added tokens in a text: the leftmost, and of several there the longest."""

    def __init__(
        self, added: Sequence[AddedPiece], ids: Mapping[str, int], takes_blank: str | None
    ) -> None:
        self._ids = {token.piece: ids[token.piece] for token in added}
        self._specials = {token.piece for token in added if token.special}
        self._takes_blank = takes_blank
        self._pattern = re.compile(_pattern(list(self._ids))) if added else None

    def parts(self, text: str, specials_in_text: bool) -> Iterator[_Part]:
        """Yield the added tokens of a text and the parts between them."""
        position = 0
        for match in self._pattern.finditer(text) if self._pattern else ():
            piece, start = match[0], match.start()
            if not specials_in_text and piece in self._specials:
                continue
            if piece == self._takes_blank:
                start = position + len(text[position:start].rstrip(WHITE_SPACE))
            if position < start:
                yield _Part(position, start, None)
            yield _Part(start, match.end(), self._ids[piece])
            position = match.end()
        if position < len(text):
            yield _Part(position, len(text), None)


def _pattern(pieces: Sequence[str]) -> str:
    """Return a regular expression of alternatives, longest first, grouped by prefix for speed."""
    groups: dict[str, list[str]] = {}
    for piece in sorted(pieces, key=len, reverse=True):
        groups.setdefault(piece[:2], []).append(re.escape(piece[2:]))
    return "|".join(
        f"{re.escape(begin)}(?:{'|'.join(ends)})"
        for begin, ends in sorted(groups.items(), key=lambda group: -len(group[0]))
    )
