"""Byte-level byte-pair encoding: no unknown characters (Radford et al. 2019).

Each byte is written as a printable character, so that pieces can be stored in text files. Pairs of
pieces are merged in the order in which the merges were learned (Sennrich et al. 2016, section 3.2).
`ByteText` has the ids of RoBERTa's rules, word by word with a cache."""

from __future__ import annotations

import heapq
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Final

from bertsmith.core.config import Config
from bertsmith.core.lazy import CharacterTable
from bertsmith.tokens.added import (
    AddedText,
    AddedTokens,
    LiteralSpecials,
    Part,
    finders,
    learned_pieces,
)
from bertsmith.tokens.vocabulary import (
    BYTE_SPECIALS,
    WHITE_SPACE,
    BoundedCache,
    Pieces,
    Spans,
    TextEncoder,
    TextRun,
)

_WORD: Final = re.compile(
    r"'(?:[stmd]|re|ve|ll)| ?[A-Za-z]+| ?[0-9]+| ?[^A-Za-z0-9\t-\r ]+"
    r"|[\t-\r ]+(?![^\t-\r ])|[\t-\r ]+"
)


@dataclass(frozen=True, kw_only=True)
class ByteRules(Config):
    """The rules that split text into pieces of bytes."""

    merges: tuple[tuple[str, str], ...]
    """The pairs that are merged, in the order in which they were learned."""
    prefix_blank: bool = False
    """Prepend a blank to a text that does not begin with one."""
    prefix_parts: bool = False
    """Prepend it to each part between special tokens, as the fast tokenizers do."""
    mask_takes_blank: bool = True
    """True if the blanks before a literal mask belong to it."""
    added: AddedTokens | None = None
    """The tokens that are matched in text beforehand, if there are others than special ones."""


def word_ends(text: str) -> list[int]:
    """Return the ends of a text's words, in characters; each begins at the end of the previous."""
    return [match.end() for match in _WORD.finditer(_outline(text))]


def words(text: str) -> list[str]:
    """Return the words of a text, which concatenated equal the text."""
    if text.isascii():
        return _WORD.findall(text)
    ends = word_ends(text)
    return [text[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def _outline(text: str) -> str:
    """Return an ASCII text of the same length with characters of the same classes."""
    return text if text.isascii() else text.translate(_OUTLINES)


def _outlined(character: str) -> str:
    if character.isascii():
        return character
    if character in WHITE_SPACE:
        return "\t"
    kind = unicodedata.category(character)[0]
    # letters that are part of no contraction
    return {"L": "x", "N": "0"}.get(kind, "!")


_OUTLINES: Final = CharacterTable(_outlined)


Merges = Sequence[tuple[str, str]]


@cache
def byte_letters() -> tuple[str, ...]:
    """Return the character that represents each byte, 0 to 255: itself if it is printable."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in printable else next(others)) for byte in range(256))


@cache
def _bytes() -> dict[str, int]:
    return {letter: byte for byte, letter in enumerate(byte_letters())}


def written(text: str) -> str:
    """Return a text with each byte of its UTF-8 as a character; lone surrogates are three bytes."""
    letters = byte_letters()
    return "".join(letters[byte] for byte in text.encode("utf-8", "surrogatepass"))


def read(pieces: str) -> bytes:
    """Return the bytes that pieces represent; other characters as their UTF-8."""
    table = _bytes()
    return b"".join(
        bytes((table[letter],)) if letter in table else letter.encode("utf-8", "surrogatepass")
        for letter in pieces
    )


BLANK: Final = "\u0120"
"""A blank as `written`."""


class BytePairs:
    """Splits words, written as bytes, into pieces."""

    def __init__(self, merges: Merges) -> None:
        self._ranks = dict(zip(merges, range(len(merges)), strict=True))
        self._pairs = merges

    def cut(self, word: str) -> list[str]:
        """Return the pieces of a word: of all pairs, the one learned first is merged everywhere.

        Takes n log n of the length, so that a page without blanks stays fast.
        """
        joining = _Joining(word)
        waiting: dict[int, list[int]] = {}
        order: list[int] = []

        def enqueue(position: int) -> None:
            rank = self._ranks.get(joining.pair(position))
            if rank is not None:
                if rank not in waiting:
                    heapq.heappush(order, rank)
                waiting.setdefault(rank, []).append(position)

        for position in range(len(word) - 1):
            enqueue(position)
        while order:
            rank = heapq.heappop(order)
            for position in sorted(waiting.pop(rank)):
                if joining.pair(position) == self._pairs[rank]:
                    for new in joining.join(position):
                        enqueue(new)
        return joining.pieces()


class _Joining:
    """A word while its pieces are merged; a piece's place is that of its first character."""

    def __init__(self, word: str) -> None:
        self._pieces = list(word)
        self._next = list(range(1, len(word) + 1))
        self._before = list(range(-1, len(word) - 1))

    def pair(self, position: int) -> tuple[str, str]:
        """Return the piece at a place and the next one; merged pieces are empty."""
        after = self._next[position]
        return self._pieces[position], self._pieces[after] if after < len(self._pieces) else ""

    def join(self, position: int) -> list[int]:
        """Merge the pair at a place; return the places of the new pairs."""
        removed = self._next[position]
        self._pieces[position] += self._pieces[removed]
        self._pieces[removed] = ""
        after = self._next[position] = self._next[removed]
        if after < len(self._pieces):
            self._before[after] = position
        before = self._before[position]
        return [before, position] if before >= 0 else [position]

    def pieces(self) -> list[str]:
        """Return the pieces of the word."""
        return [piece for piece in self._pieces if piece]


def places_of(pieces: Sequence[str], word: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each piece of a word, in characters."""
    at = [place for place, letter in enumerate(word) for _ in written(letter)]
    position = 0
    for piece in pieces:
        start, position = position, position + len(piece)
        yield at[start], at[position - 1] + 1


class ByteWords:
    """Encodes the words of texts by byte-pair encoding, each with the blank before it."""

    def __init__(
        self, ids: Mapping[str, int], merges: Merges, unknown_id: int, *, trims: bool = False
    ) -> None:
        """With `trims` the positions of pieces are without the blanks around them."""
        self._ids, self._unknown, self._trims = ids, unknown_id, trims
        self._pairs = BytePairs(merges)
        self._word_ids = BoundedCache(self._ids_of)
        self._word_spans = BoundedCache(self._spans_of)

    def ids(
        self, text: str, *, specials_in_text: bool = False, inside: bool = False
    ) -> Iterator[Sequence[int]]:
        """Yield the ids of the words of a text, none of which is a special token."""
        del specials_in_text, inside
        return map(self._word_ids.__getitem__, words(text))

    def spans(
        self, text: str, *, specials_in_text: bool = False, offset: int = 0
    ) -> Iterator[TextRun]:
        """Yield the ids with the positions of the pieces in a text that begins at `offset`."""
        del specials_in_text
        start = 0
        for end in word_ends(text):
            yield TextRun(offset + start, *self._word_spans[text[start:end]])
            start = end

    def _ids_of(self, word: str) -> tuple[int, ...]:
        find, unknown = self._ids.get, self._unknown
        return tuple(find(piece, unknown) for piece in self._pairs.cut(written(word)))

    def _spans_of(self, word: str) -> Spans:
        pieces = self._pairs.cut(written(word))
        starts, ends = zip(*places_of(pieces, word), strict=True)
        if self._trims:
            starts, ends = zip(*map(_without_blanks, pieces, starts, ends), strict=True)
        return tuple(self._ids.get(piece, self._unknown) for piece in pieces), starts, ends


def _without_blanks(piece: str, start: int, end: int) -> tuple[int, int]:
    """Return the start and end of a piece without the blanks that it begins and ends with."""
    start = min(start + len(piece) - len(piece.lstrip(BLANK)), end)
    return start, max(end - (len(piece) - len(piece.rstrip(BLANK))), start)


def byte_text(vocabulary: Pieces, rules: ByteRules, unknown_id: int) -> TextEncoder:
    """Return the encoder of texts by RoBERTa's rules, with added tokens if there are any."""
    encoder: TextEncoder = ByteText(vocabulary, rules, unknown_id)
    if rules.added is not None:
        # nothing is normalised, so that the passes differ in their order alone
        early, late = finders(rules.added, vocabulary.ids, BYTE_SPECIALS)
        encoder = AddedText(early, AddedText(late, encoder, trims=True), trims=True)
    return encoder


class ByteText:
    """Encodes texts by RoBERTa's rules and byte-pair encoding."""

    def __init__(self, vocabulary: Pieces, rules: ByteRules, unknown_id: int) -> None:
        ids = learned_pieces(vocabulary, rules.added).ids
        self._rules = rules
        self._specials = LiteralSpecials(
            ids, BYTE_SPECIALS, mask_takes_blank=rules.mask_takes_blank
        )
        self._words = ByteWords(ids, rules.merges, unknown_id, trims=True)

    def ids(
        self, text: str, *, specials_in_text: bool, inside: bool = False
    ) -> Iterator[Sequence[int]]:
        """Yield the ids of a text, in parts."""
        parted = specials_in_text and "<" in text
        if not inside and self._lacks_blank(text) and not (parted and self._rules.prefix_parts):
            text = " " + text
        if not parted:
            return self._words.ids(text)
        return chain.from_iterable(
            self._words.ids(self._prefixed(text[start:end])) if special is None else [(special,)]
            for start, end, special in self._parts(text)
        )

    def spans(self, text: str, *, specials_in_text: bool) -> Iterator[TextRun]:
        """Yield the ids with the positions of the pieces, without surrounding blanks."""
        each_part = self._rules.prefix_parts and specials_in_text
        added = self._lacks_blank(text) and not each_part
        whole = " " + text if added else text
        parts = self._parts(whole) if specials_in_text else [Part(0, len(whole), None)]
        for start, end, special in parts:
            if special is not None:
                yield TextRun(start - added, (special,), (0,), (end - start,))
                continue
            part = self._prefixed(whole[start:end]) if each_part else whole[start:end]
            for run in self._words.spans(part, offset=end - added - len(part)):
                own_blank = self._rules.prefix_blank and not (each_part or added or run.offset)
                yield _with_blank(run) if own_blank else run

    def _parts(self, text: str) -> Iterable[Part]:
        """Return the special tokens of a text and the parts between them."""
        if self._rules.added is None:
            return self._specials.parts(text)
        # they are added ones, which were found before where they count
        return [Part(0, len(text), None)] if text else []

    def _prefixed(self, part: str) -> str:
        """Return a part between special tokens, with a blank prepended if each needs one."""
        return " " + part if self._rules.prefix_parts and part[0] != " " else part

    def _lacks_blank(self, text: str) -> bool:
        # the slow tokenizer accepts any white space as the blank, the fast one only a space
        has = text[:1] == " " if self._rules.prefix_parts else text[:1].isspace()
        return self._rules.prefix_blank and bool(text) and not has


def _with_blank(first: TextRun) -> TextRun:
    """Return a text's first word with its own blank included, as every word must have one."""
    nothing = first.starts[0] == first.ends[0]
    return first._replace(
        starts=(0, *first.starts[1:]), ends=(0 if nothing else first.ends[0], *first.ends[1:])
    )
