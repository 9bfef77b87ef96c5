"""Text to ids by RoBERTa's byte-pair encoding, word by word with a cache."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from bertsmith.tokens.bpe.pairs import BLANK, BytePairs, ByteRules, word_ends, words, written
from bertsmith.tokens.spans import Remembered, Stretch
from bertsmith.tokens.vocabulary import BYTE_SPECIALS

_LITERAL_SPECIAL = re.compile("(" + "|".join(map(re.escape, BYTE_SPECIALS)) + ")")
_MASK = BYTE_SPECIALS[-1]

_Spans = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


class ByteText:
    """Encodes texts by RoBERTa's rules and byte-pair encoding."""

    def __init__(self, vocabulary: Sequence[str], rules: ByteRules, unknown_id: int) -> None:
        self._ids = {piece: number for number, piece in enumerate(vocabulary)}
        self._rules = rules
        self._unknown = unknown_id
        self._pairs = BytePairs(rules.merges)
        self._words = Remembered(self._word_ids)
        self._word_spans = Remembered(self._spans_of)

    def ids(
        self, text: str, *, specials_in_text: bool, inside: bool = False
    ) -> Iterator[Sequence[int]]:
        """Yield the ids of a text, in parts."""
        parted = specials_in_text and "<" in text
        if not inside and self._lacks_blank(text) and not (parted and self._rules.prefix_parts):
            text = " " + text
        if not parted:
            return map(self._words.__getitem__, words(text))
        return chain.from_iterable(
            [(self._ids[part],)]
            if special
            else map(self._words.__getitem__, words(self._prefixed(part)))
            for _, part, special in self._parts(text)
        )

    def spans(self, text: str, *, specials_in_text: bool) -> Iterator[Stretch]:
        """Yield the ids with the positions of the pieces, without surrounding blanks."""
        each_part = self._rules.prefix_parts and specials_in_text
        added = self._lacks_blank(text) and not each_part
        given = " " + text if added else text
        parts = self._parts(given) if specials_in_text else iter([(0, given, False)])
        for place, part, special in parts:
            if special:
                yield Stretch(place - added, (self._ids[part],), (0,), (len(part),))
                continue
            if each_part:
                yield from self._part_spans(part, place)
                continue
            start = 0
            for end in word_ends(part):
                stretch = Stretch(place + start - added, *self._word_spans[part[start:end]])
                own_blank = self._rules.prefix_blank and not added and place + start == 0
                yield _with_blank(stretch) if own_blank else stretch
                start = end

    def _part_spans(self, part: str, place: int) -> Iterator[Stretch]:
        """Yield the pieces of a part with their positions, without a prepended blank."""
        given = self._prefixed(part)
        added = len(given) - len(part)
        start = 0
        for end in word_ends(given):
            yield Stretch(place + start - added, *self._word_spans[given[start:end]])
            start = end

    def _prefixed(self, part: str) -> str:
        """Return a part between special tokens, with a blank prepended if each needs one."""
        return " " + part if self._rules.prefix_parts and part[0] != " " else part

    def _lacks_blank(self, text: str) -> bool:
        # the slow tokenizer accepts any white space as the blank, the fast one only a space
        has = text[:1] == " " if self._rules.prefix_parts else text[:1].isspace()
        return self._rules.prefix_blank and bool(text) and not has

    def _parts(self, text: str) -> Iterator[tuple[int, str, bool]]:
        """Yield the parts of a text: position, text, and whether it is a special token."""
        before = 0
        for match in _LITERAL_SPECIAL.finditer(text):
            part = text[before : match.start()]
            if self._rules.mask_takes_blank and match[0] == _MASK:
                part = part.rstrip()
            if part:
                yield before, part, False
            yield match.start(), match[0], True
            before = match.end()
        if before < len(text):
            yield before, text[before:], False

    def _word_ids(self, word: str) -> tuple[int, ...]:
        find, unknown = self._ids.get, self._unknown
        return tuple(find(piece, unknown) for piece in self._pairs.cut(written(word)))

    def _spans_of(self, word: str) -> _Spans:
        pieces = self._pairs.cut(written(word))
        at = [place for place, letter in enumerate(word) for _ in written(letter)]
        starts: list[int] = []
        ends: list[int] = []
        position = 0
        for piece in pieces:
            start, end = at[position], at[position + len(piece) - 1] + 1
            position += len(piece)
            starts.append(min(start + len(piece) - len(piece.lstrip(BLANK)), end))
            ends.append(max(end - (len(piece) - len(piece.rstrip(BLANK))), starts[-1]))
        return (
            tuple(self._ids.get(piece, self._unknown) for piece in pieces),
            tuple(starts),
            tuple(ends),
        )


def _with_blank(first: Stretch) -> Stretch:
    """Return a text's first word with its own blank included, as every word must have one."""
    nothing = first.starts[0] == first.ends[0]
    return first._replace(
        starts=(0, *first.starts[1:]), ends=(0 if nothing else first.ends[0], *first.ends[1:])
    )
