"""ModernBERT's rules: text composed, added tokens apart, the rest words as RoBERTa's, as bytes."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from bertsmith.config import Config


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


class _Part(NamedTuple):
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


def _decomposed(text: str) -> Iterator[_Part]:
    """The characters of a text in NFD; runs of marks in the order of their classes."""
    marks: list[_Part] = []
    for character in text:
        for place, each in enumerate(unicodedata.normalize("NFD", character)):
            part = _Part(each, int(place > 0))
            if unicodedata.combining(each):
                marks.append(part)
                continue
            yield from sorted(marks, key=_class)
            marks = []
            yield part
    yield from sorted(marks, key=_class)


def _composed(parts: Iterator[_Part]) -> Iterator[_Part]:
    """Canonical composition (Unicode, D117) of characters in NFD."""
    first: _Part | None = None
    waiting: list[_Part] = []
    for part in parts:
        kind = _class(part)
        # a mark of its own class, or a letter behind marks, is kept from the letter before
        if first is not None and (not waiting or _class(waiting[-1]) < kind):
            whole = unicodedata.normalize("NFC", first.text + part.text)
            if len(whole) == 1:
                first = _Part(whole, first.change + part.change - 1)
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


def _class(part: _Part) -> int:
    return unicodedata.combining(part.text)
