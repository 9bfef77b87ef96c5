"""Text to ids by ModernBERT's rules: added tokens first, between them the joins of bytes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from unicodedata import normalize

from bertsmith.core.config import Config
from bertsmith.tokens.bpe.pairs import WHITE_SPACE, BytePairs, word_ends, words, written
from bertsmith.tokens.spans import Remembered, Stretch
from bertsmith.tokens.vocabulary import SPECIALS


@dataclass(frozen=True, kw_only=True)
class AddedPiece(Config):
    """A piece that is found in text before words are cut."""

    piece: str
    special: bool
    """It is a mark of the tokenizer's, and no text."""
    composed: bool
    """It is looked for in the composed text, not in the text as given."""


@dataclass(frozen=True, kw_only=True)
class ModernRules(Config):
    """How text becomes pieces of bytes, once it is in Unicode's composed form (NFC)."""

    merges: tuple[tuple[str, str], ...]
    """The pairs that are joined, in the order in which they were learned."""
    learned: int
    """How many of the vocabulary's first pieces are those that words are cut into."""
    added: tuple[AddedPiece, ...]
    """The added tokens by their ids, the special ones among them; some may be learned pieces."""
    mask_takes_blank: bool = True
    """The blanks before a literal mask belong to it."""


class Composed(NamedTuple):
    """A text in NFC; `starts` and `ends` (characters,) of its characters in the text as given."""

    text: str
    starts: tuple[int, ...]
    ends: tuple[int, ...]


class _Mark(NamedTuple):
    """A character and by how many it is more than what it was made of."""

    text: str
    change: int


def composed(text: str) -> Composed | None:
    """A text in NFC with its places; None where it is so already.

    Places are those of the compiled tokenizers: what characters are composed from is counted off
    the text in turn, and the composed one has the place of the first that it is counted for.
    """
    if unicodedata.is_normalized("NFC", text):
        return None
    starts: list[int] = []
    ends: list[int] = []
    letters: list[str] = []
    done = 0
    for letter, change in _composed(_decomposed(text)):
        letters.append(letter)
        start = done if change <= 0 else done - 1
        starts.append(max(start, 0))
        ends.append(start + 1)
        done += max(1 - change, 0)
    return Composed("".join(letters), tuple(starts), tuple(ends))


def _decomposed(text: str) -> Iterator[_Mark]:
    """The characters of a text in NFD; runs of marks in the order of their classes."""
    marks: list[_Mark] = []
    for character in text:
        for place, each in enumerate(unicodedata.normalize("NFD", character)):
            part = _Mark(each, int(place > 0))
            if unicodedata.combining(each):
                marks.append(part)
                continue
            yield from sorted(marks, key=_class)
            marks = []
            yield part
    yield from sorted(marks, key=_class)


def _composed(parts: Iterator[_Mark]) -> Iterator[_Mark]:
    """Canonical composition (Unicode, D117) of characters in NFD."""
    first: _Mark | None = None
    waiting: list[_Mark] = []
    for part in parts:
        kind = _class(part)
        # a mark of its own class, or a letter behind marks, is kept from the letter before
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
    """A stretch of a text, and the added token that it is."""

    start: int
    end: int
    number: int | None


class ModernText:
    """Texts as ids by ModernBERT's rules and joins of bytes."""

    def __init__(self, vocabulary: Sequence[str], rules: ModernRules, unknown_id: int) -> None:
        del unknown_id  # every byte is a piece
        ids = {piece: number for number, piece in enumerate(vocabulary)}
        self._ids = {piece: ids[piece] for piece in vocabulary[: rules.learned]}
        takes_blank = _MASK if rules.mask_takes_blank else None
        self._given, self._composed = (
            _Finder([each for each in rules.added if each.composed == late], ids, takes_blank)
            for late in (False, True)
        )
        self._pairs = BytePairs(rules.merges)
        self._words = Remembered(self._word_ids)
        self._word_spans = Remembered(self._spans_of)

    def ids(
        self, text: str, *, specials_in_text: bool, inside: bool = False
    ) -> Iterator[Sequence[int]]:
        """The ids of a text, in parts; the same wherever it stands.

        Without `specials_in_text`, added tokens that are not special are found nonetheless.
        """
        del inside
        for start, end, number in self._given.parts(text, specials_in_text):
            if number is not None:
                yield (number,)
                continue
            part = normalize("NFC", text[start:end])
            for first, last, found in self._composed.parts(part, specials_in_text):
                if found is not None:
                    yield (found,)
                else:
                    yield from map(self._words.__getitem__, words(part[first:last]))

    def spans(self, text: str, *, specials_in_text: bool) -> Iterator[Stretch]:
        """The same with the places of the pieces, blanks before them included."""
        for start, end, number in self._given.parts(text, specials_in_text):
            if number is not None:
                yield Stretch(start, (number,), (0,), (end - start,))
                continue
            part = text[start:end]
            other = composed(part)
            for found in self._between(part if other is None else other.text, specials_in_text):
                place, ids, starts, ends = found
                if other is None:
                    yield Stretch(start + place, ids, starts, ends)
                    continue
                yield Stretch(
                    start,
                    ids,
                    tuple(other.starts[place + each] for each in starts),
                    tuple(other.ends[place + each - 1] for each in ends),
                )

    def _between(self, text: str, specials_in_text: bool) -> Iterator[Stretch]:
        """What stands between the tokens that are found in the text as given."""
        for start, end, number in self._composed.parts(text, specials_in_text):
            if number is not None:
                yield Stretch(start, (number,), (0,), (end - start,))
                continue
            part = text[start:end]
            before = 0
            for after in word_ends(part):
                yield Stretch(start + before, *self._word_spans[part[before:after]])
                before = after

    def _word_ids(self, word: str) -> tuple[int, ...]:
        return tuple(self._ids[piece] for piece in self._pairs.cut(written(word)))

    def _spans_of(self, word: str) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        pieces = self._pairs.cut(written(word))
        at = [place for place, letter in enumerate(word) for _ in written(letter)]
        starts: list[int] = []
        ends: list[int] = []
        done = 0
        for piece in pieces:
            starts.append(at[done])
            done += len(piece)
            ends.append(at[done - 1] + 1)
        return tuple(self._ids[piece] for piece in pieces), tuple(starts), tuple(ends)


class _Finder:
    """Finds added tokens in a text: the leftmost, and of several there the longest."""

    def __init__(
        self, added: Sequence[AddedPiece], ids: Mapping[str, int], takes_blank: str | None
    ) -> None:
        self._ids = {each.piece: ids[each.piece] for each in added}
        self._specials = {each.piece for each in added if each.special}
        self._takes_blank = takes_blank
        self._pattern = re.compile(_pattern(list(self._ids))) if added else None

    def parts(self, text: str, specials_in_text: bool) -> Iterator[_Part]:
        """The stretches of a text."""
        done = 0
        for found in self._pattern.finditer(text) if self._pattern else ():
            piece, start = found[0], found.start()
            if not specials_in_text and piece in self._specials:
                continue
            if piece == self._takes_blank:
                start = done + len(text[done:start].rstrip(WHITE_SPACE))
            if done < start:
                yield _Part(done, start, None)
            yield _Part(start, found.end(), self._ids[piece])
            done = found.end()
        if done < len(text):
            yield _Part(done, len(text), None)


def _pattern(pieces: Sequence[str]) -> str:
    """Any of some pieces, the longest first; grouped by how they begin, so that few are tried."""
    groups: dict[str, list[str]] = {}
    for piece in sorted(pieces, key=len, reverse=True):
        groups.setdefault(piece[:2], []).append(re.escape(piece[2:]))
    return "|".join(
        f"{re.escape(begin)}(?:{'|'.join(ends)})"
        for begin, ends in sorted(groups.items(), key=lambda group: -len(group[0]))
    )
