"""Text to ids by ModernBERT's rules: added tokens first, then byte-pair encoding between them."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from bertsmith.core.config import Config
from bertsmith.core.normal_forms import normalize
from bertsmith.tokens.added import AddedText, AddedTokens, finders
from bertsmith.tokens.bpe import ByteWords
from bertsmith.tokens.vocabulary import SPECIALS, Pieces, TextEncoder, TextRun, Traced

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


class _Mark(NamedTuple):
    """A character, and its number of characters minus that of its original."""

    text: str
    change: int


def composed(text: str) -> Traced | None:
    """Return a text in NFC with its positions in the original; None if it is in NFC already.

    Positions are those of the compiled tokenizers: the parts of composed characters are counted
    along the text, and a composed character has the position of its first part.
    """
    if normalize("NFC", text) == text:
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
    return Traced("".join(letters), starts, ends)


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


class ComposedText:
    """Encodes texts by another encoder, which is given them in NFC."""

    def __init__(self, encoder: TextEncoder) -> None:
        self._encoder = encoder

    def ids(
        self, text: str, *, specials_in_text: bool, inside: bool = False
    ) -> Iterable[Sequence[int]]:
        """Yield the ids of a text, in parts."""
        made = normalize("NFC", text)
        return self._encoder.ids(made, specials_in_text=specials_in_text, inside=inside)

    def spans(self, text: str, *, specials_in_text: bool) -> Iterable[TextRun]:
        """Yield the ids with the positions of the pieces in the original text."""
        whole = composed(text)
        if whole is None:
            return self._encoder.spans(text, specials_in_text=specials_in_text)
        runs = self._encoder.spans(whole.text, specials_in_text=specials_in_text)
        return (
            TextRun(
                0,
                run.ids,
                [whole.starts[run.offset + at] for at in run.starts],
                [whole.ends[run.offset + at - 1] for at in run.ends],
            )
            for run in runs
        )


def modern_text(vocabulary: Pieces, rules: ModernRules, unknown_id: int) -> TextEncoder:
    """Return the encoder of texts by ModernBERT's rules.

    Positions of pieces include the blanks before them, as in the compiled tokenizers.
    """
    early, late = finders(rules.added, vocabulary.ids, SPECIALS, partial(normalize, "NFC"))
    words = ByteWords(vocabulary.ids, rules.merges, unknown_id)
    return AddedText(early, ComposedText(AddedText(late, words)))
