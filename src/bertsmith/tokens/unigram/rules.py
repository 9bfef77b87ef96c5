"""Text to what the likeliest cutting cuts, by the rules of ALBERT and SentencePiece.

They are those of `transformers` 4.57's AlbertTokenizer and of SentencePiece's normaliser: white
space is one blank, accents and capitals go, rules exchange characters, and a mark stands for each
blank and before the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from bertsmith.tokens.unigram.pieces import SPACE

_HEAD = 4
_LEAF = 1 << 31
_LABEL = _LEAF | 0xFF
_BLANK = 0x20
_LONGEST_MATCH, _LARGEST = 256, 2**20


class CharsMap:
    """Rules in the bytes that a SentencePiece model holds; none at all when there are none."""

    def __init__(self, data: bytes) -> None:
        """Raises `ValueError` for bytes that hold no rules."""
        if len(data) > _LARGEST:
            raise ValueError("they are longer than 1 MiB")
        size = int.from_bytes(data[:_HEAD], "little")
        if data and (len(data) < _HEAD or size % 4 or size > len(data) - _HEAD):
            raise ValueError("its table is longer than they are")
        self._units = np.frombuffer(data[_HEAD : _HEAD + size], "<u4")
        self._texts = data[_HEAD + size :]
        values = self._units[self._units >= _LEAF] & np.uint32(_LEAF - 1)
        if len(values) and (int(values.max()) >= len(self._texts) or self._texts[-1:] != b"\0"):
            raise ValueError("they point beyond their texts")
        self._trie: list[int] = self._units.tolist()

    def __bool__(self) -> bool:
        return bool(self._trie)

    def exchange(self, text: bytes, start: int) -> tuple[str, int]:
        """What stands for the longest match at a place, and how many bytes it takes: 0 if none."""
        trie, length, found = self._trie, 0, 0
        if not trie:
            return "", 0
        node = _offset(trie[0])
        for place in range(start, len(text)):
            node ^= text[place]
            if node >= len(trie) or trie[node] & _LABEL != text[place]:
                break
            unit = trie[node]
            node ^= _offset(unit)
            if unit >> 8 & 1 and node < len(trie):
                length, found = place + 1 - start, trie[node] & (_LEAF - 1)
        if not length:
            return "", 0
        return self._texts[found : self._texts.find(b"\0", found)].decode(
            "utf-8", "replace"
        ), length

    @cached_property
    def crosses_blanks(self) -> bool:
        """Whether a rule holds a blank beside anything else, so that stretches of text depend."""
        units = self._units.astype(np.int64)
        nodes = np.arange(len(units))
        bases = nodes ^ (units >> 10 << ((units & 1 << 9) >> 6))
        labels = units & _LABEL
        level, depth = nodes[:1], 0
        while len(level):
            if depth > _LONGEST_MATCH:
                return True  # so deep only rules that lead in a circle
            after = nodes[(labels < 256) & np.isin(nodes ^ labels, bases[level])]
            if depth and (labels[after] == _BLANK).any():
                return True
            blank = level[labels[level] == _BLANK]
            if (
                depth == 1
                and np.isin(nodes ^ labels, bases[blank])[(labels > 0) & (labels < 256)].any()
            ):
                return True
            level, depth = np.unique(after[labels[after] > 0]), depth + 1
        return False


def _offset(unit: int) -> int:
    return unit >> 10 << ((unit & 1 << 9) >> 6)


_STRETCH: Final = re.compile(r"\S+")
_Part = tuple[str, int, int]
_ANY: Final = re.compile(".*", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class UnigramRules:
    """How text becomes pieces of the likeliest cutting."""

    scores: tuple[float, ...]
    """Of each piece the logarithm of its probability, in 32 bits."""
    control: frozenset[int] = frozenset()
    """The ids of pieces that no text is cut into; special tokens are none in any case."""
    wanted: frozenset[int] = frozenset()
    """The ids of pieces that are cut out wherever they stand (SentencePiece: user defined)."""
    charsmap: bytes = b""
    """Compiled rules of normalisation; none if empty."""
    prefix_space: bool = True
    """Put a blank before a text."""
    lowercase: bool = True
    """Take capitals away."""
    keep_accents: bool = False
    """Leave combining marks, and characters that others make up, as they are."""
    remove_space: bool = True
    """Make all white space one blank."""
    number_commas: bool = True
    """Cut a comma behind a digit off."""
    mask_takes_blank: bool = True
    """The blanks before a literal mask belong to it."""

    @cached_property
    def exchanges(self) -> CharsMap:
        """The rules of normalisation, unpacked."""
        return CharsMap(self.charsmap)


@dataclass(frozen=True, slots=True)
class Traced:
    """A text that was made from another; `starts` and `ends` (characters,) are places in that."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]


def lowered(text: str) -> str:
    """Every character in lower case by itself."""
    return text.lower() if text.isascii() else "".join(map(str.lower, text))


def tidied(rules: UnigramRules, text: str) -> str:
    """A text as AlbertTokenizer hands it to SentencePiece."""
    if rules.remove_space:
        text = " ".join(text.split())
    text = text.replace("``", '"').replace("''", '"')
    if not rules.keep_accents:
        decomposed = unicodedata.normalize("NFKD", text)
        text = "".join(each for each in decomposed if not unicodedata.combining(each))
    return text.lower() if rules.lowercase else text


def traced(rules: UnigramRules, text: str) -> Traced:
    """What `tidied` makes of a text that is not lowered yet, with the places in that."""
    parts: list[_Part] = []
    stretches = _STRETCH.finditer(text) if rules.remove_space else [_ANY.search(text)]
    for found in filter(None, stretches):
        if parts:
            parts.append((" ", found.start() - 1, found.start()))
        parts += _unquoted(rules, found[0], found.start())
    if not rules.keep_accents:
        # all that would be put into another order goes
        parts = [
            (each, start, end)
            for part, start, end in parts
            for each in unicodedata.normalize("NFKD", part)
            if not unicodedata.combining(each)
        ]
    if rules.lowercase:
        parts = [(each, start, end) for part, start, end in parts for each in part.lower()]
    whole = tidied(rules, lowered(text) if rules.lowercase else text)
    assert len(whole) == len(parts)
    return Traced(whole, [start for _, start, _ in parts], [end for _, _, end in parts])


def _unquoted(rules: UnigramRules, stretch: str, start: int) -> Iterator[_Part]:
    """The characters of a stretch with their places, two quotes as one."""
    place = 0
    while place < len(stretch):
        size = 2 if stretch[place : place + 2] in ("``", "''") else 1
        character = '"' if size == 2 else stretch[place]
        for each in character.lower() if rules.lowercase else character:
            yield each, start + place, start + place + size
        place += size


def normalised(rules: UnigramRules, wanted: Sequence[bytes], text: str, *, prefix: bool) -> Traced:
    """A text as SentencePiece cuts it: exchanged, its blanks single and marked.

    `wanted` are stretches that stay as they are, in UTF-8, the longest first.
    """
    letters: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    after_blank = True
    for found, start, end in _exchanged(rules.exchanges, wanted, text):
        part = found.lstrip(" ") if after_blank else found
        if part:
            letters += part
            starts += [start] * len(part)
            ends += [end] * len(part)
            after_blank = part.endswith(" ")
    while letters and letters[-1] in (" ", SPACE):
        letters.pop()
    given = "".join(letters).replace(" ", SPACE)
    if not given or not prefix:
        return Traced(given, starts, ends)
    return Traced(SPACE + given, [starts[0], *starts], [starts[0], *ends])


def _exchanged(
    rules: CharsMap, wanted: Sequence[bytes], text: str
) -> Iterator[tuple[str, int, int]]:
    """A text in parts, each character or stretch as the rules have it, with its place."""
    data = text.encode("utf-8", "surrogatepass")
    place = letter = 0
    while place < len(data):
        kept = next((piece for piece in wanted if data.startswith(piece, place)), b"")
        part, size = (kept.decode(), len(kept)) if kept else rules.exchange(data, place)
        if not size:
            size = len(text[letter].encode("utf-8", "surrogatepass"))
            part = text[letter] if size > 3 or not _is_half(text[letter]) else "\ufffd" * 3
        end = letter
        place += size
        while size > 0:
            size -= len(text[end].encode("utf-8", "surrogatepass"))
            end += 1
        yield part, letter, end
        letter = end


def _is_half(character: str) -> bool:
    """Half a surrogate pair: three bytes that are no UTF-8."""
    return "\ud800" <= character <= "\udfff"
