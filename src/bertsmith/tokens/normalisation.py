"""The normalisation of text before unigram segmentation, by the rules of ALBERT and SentencePiece.

They are those of `transformers` 4.57's AlbertTokenizer and of SentencePiece's normaliser: white
space is collapsed, accents are stripped, text is lower-cased, rules replace characters, and a
marker replaces each blank and precedes the text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import ClassVar, Final

import numpy as np

from bertsmith.core.normal_forms import normalize
from bertsmith.tokens.added import AddedTokens
from bertsmith.tokens.vocabulary import BYTE_SPECIALS, UNIGRAM_SPECIALS, Traced

SPACE = "\u2581"
"""The character that represents a blank in pieces."""


_HEAD = 4
_LEAF = 1 << 31
_LABEL = _LEAF | 0xFF
_BLANK = 0x20
_MAX_MATCH_LENGTH, _MAX_BYTES = 256, 2**20


class CharsMap:
    """The character replacement rules of a SentencePiece model; no rules for no bytes."""

    def __init__(self, data: bytes) -> None:
        """Raises `ValueError` for bytes that contain no valid rules."""
        if len(data) > _MAX_BYTES:
            raise ValueError("they are longer than 1 MiB")
        size = int.from_bytes(data[:_HEAD], "little")
        if data and (len(data) < _HEAD or size % 4 or size > len(data) - _HEAD):
            raise ValueError("its table is longer than they are")
        self._units = np.frombuffer(data[_HEAD : _HEAD + size], "<u4")
        self._texts = data[_HEAD + size :]
        values = self._units[self._units >= _LEAF] & np.uint32(_LEAF - 1)
        if len(values) and (int(values.max()) >= len(self._texts) or self._texts[-1:] != b"\0"):
            raise ValueError("they point beyond their texts")

    def __bool__(self) -> bool:
        return bool(self._units.size)

    @cached_property
    def _trie(self) -> list[int]:
        # of Python's numbers, which are faster one by one
        units: list[int] = self._units.tolist()
        return units

    def exchange(self, text: bytes, start: int, *, shortest: bool = False) -> tuple[str, int]:
        """Return the replacement of the longest match at a position, and its bytes: 0 if none.

        With `shortest` it is that of the shortest match.
        """
        trie, length, result = self._trie, 0, 0
        if not trie:
            return "", 0
        node = _offset(trie[0])
        for position in range(start, len(text)):
            node ^= text[position]
            if node >= len(trie) or trie[node] & _LABEL != text[position]:
                break
            unit = trie[node]
            node ^= _offset(unit)
            if unit >> 8 & 1 and node < len(trie):
                length, result = position + 1 - start, trie[node] & (_LEAF - 1)
                if shortest:
                    break
        if not length:
            return "", 0
        return self._texts[result : self._texts.find(b"\0", result)].decode(
            "utf-8", "replace"
        ), length

    @cached_property
    def blanks(self) -> str:
        """The characters that become a blank, the blank among them unless it is replaced."""
        made = {chr(code): self.exchange(chr(code).encode(), 0) for code in range(0x3001)}
        return "".join(c for c, (text, size) in made.items() if (text if size else c) == " ")

    @cached_property
    def crosses_blanks(self) -> bool:
        """Return whether a rule matches a blank with other characters, across words."""
        units = self._units.astype(np.int64)
        nodes = np.arange(len(units))
        bases = nodes ^ (units >> 10 << ((units & 1 << 9) >> 6))
        labels = units & _LABEL
        level, depth = nodes[:1], 0
        while len(level):
            if depth > _MAX_MATCH_LENGTH:
                return True  # only cyclic rules are this deep
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


def compiled(exchanges: Mapping[str, str]) -> bytes:
    """Return the replacement rules of some texts, as a SentencePiece model has them.

    They are a double array (Aoe 1989): the children of a node lie at its offset, exclusive or the
    byte that leads to each, so that blocks of 256 hold all children.
    """
    values, texts = {}, b""
    for source_texts, text in exchanges.items():
        values[source_texts.encode() + b"\0"] = len(texts)
        texts += text.encode() + b"\0"
    units: dict[int, int] = {0: 0}
    nodes, base = [(b"", 0)], 0
    for prefix, position in nodes:
        labels = sorted({key[len(prefix)] for key in values if key.startswith(prefix)})
        # no two nodes have the same one, so that a label determines whose child a unit is
        base = next(n for n in count(base + 1) if not any(n ^ label in units for label in labels))
        units[position] |= (position ^ base) << 10 | (0 in labels) << 8
        for label in labels:
            units[base ^ label] = label
            if label:
                nodes.append((prefix + bytes([label]), base ^ label))
            else:
                units[base] = _LEAF | values[prefix + b"\0"]
    # unused units match no byte
    table = np.full(-(-(max(units) + 1) // 256) * 256, _LEAF, "<u4")
    table[list(units)] = list(units.values())
    return table.nbytes.to_bytes(_HEAD, "little") + table.tobytes() + texts


def _offset(unit: int) -> int:
    return unit >> 10 << ((unit & 1 << 9) >> 6)


_STRETCH: Final = re.compile(r"\S+")
_Part = tuple[str, int, int]
_ANY: Final = re.compile(".*", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class CompiledRules:
    """The rules that the compiled tokenizers have besides, as a tokenizer.json states them."""

    gaps: str | None = None
    """The character that several blanks become; None where they stay."""
    strips_end: bool = False
    """Remove white space at the end of a text."""
    late_mask: bool = False
    """Find a literal mask after replacement."""


@dataclass(frozen=True, kw_only=True)
class UnigramRules:
    """The rules that normalise text, and the scores of its pieces."""

    specials: ClassVar[tuple[str, ...]] = UNIGRAM_SPECIALS
    """Special tokens for padding, unknown, beginning, end and mask."""
    separators: ClassVar[int] = 1
    """Number of separators between the two texts of a pair; the second of 1 has a segment."""
    scores: tuple[float, ...]
    """Logarithm of the probability of each piece; of a SentencePiece model in 32 bits."""
    control: frozenset[int] = frozenset()
    """Ids of pieces that no text is split into, besides the special tokens."""
    wanted: frozenset[int] = frozenset()
    """Ids of pieces that are split off wherever they occur (SentencePiece: user defined)."""
    charsmap: bytes = b""
    """Compiled replacement rules; none if empty."""
    prefix_space: bool = True
    """Prepend a blank to a text."""
    lowercase: bool = True
    """Lower-case the text."""
    keep_accents: bool = False
    """Keep combining marks and compatibility characters."""
    remove_space: bool = True
    """Collapse white space to one blank."""
    number_commas: bool = True
    """Split off a comma after a digit."""
    mask_takes_blank: bool = True
    """True if the blanks before a literal mask belong to it."""
    joins_quotes: bool = True
    """Replace two single quotes by a double one."""
    segments: bool = True
    """Give the second text of a pair segment 1."""
    compiled: CompiledRules | None = None
    """Encode as the compiled tokenizers do (`compiled_unigram`); None to do so as SentencePiece."""
    added: AddedTokens | None = None
    """The tokens that are matched in text beforehand, if there are others than special ones."""

    @cached_property
    def exchanges(self) -> CharsMap:
        """The unpacked replacement rules."""
        return CharsMap(self.charsmap)


@dataclass(frozen=True, kw_only=True)
class PlainRules(UnigramRules):
    """The rules of XLM-RoBERTa: those of SentencePiece alone, and RoBERTa's special tokens."""

    specials: ClassVar[tuple[str, ...]] = BYTE_SPECIALS
    separators: ClassVar[int] = 2
    lowercase: bool = False
    keep_accents: bool = True
    remove_space: bool = False
    number_commas: bool = False
    joins_quotes: bool = False


def original_span(whole: Traced, start: int, end: int, original: str) -> tuple[int, int]:
    """Return the start and end of a piece in the original, without its marker of a blank.

    Where the marker is a character of the original, it belongs to the piece.
    """
    at, after = whole.starts[start], whole.ends[start]
    marks = whole.text[start] == SPACE and original[at:after] != SPACE
    first = start + marks
    if first < end:
        return whole.starts[first], whole.ends[end - 1]
    # a character may have become a blank and what follows it, such as U+00B4
    at = min([whole.ends[start], *whole.starts[first : first + 1]])
    return at, at


def lowered(text: str) -> str:
    """Lower-case each character alone."""
    return text.lower() if text.isascii() else "".join(map(str.lower, text))


def tidied(rules: UnigramRules, text: str) -> str:
    """Normalise a text as AlbertTokenizer does before it calls SentencePiece."""
    if rules.remove_space:
        text = " ".join(text.split())
    if rules.joins_quotes:
        text = text.replace("``", '"').replace("''", '"')
    if not rules.keep_accents:
        decomposed = normalize("NFKD", text)
        text = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    return text.lower() if rules.lowercase else text


def traced(rules: UnigramRules, text: str) -> Traced:
    """Return the result of `tidied` for a text not lower-cased yet, with positions in that text."""
    parts: list[_Part] = []
    stretches = _STRETCH.finditer(text) if rules.remove_space else [_ANY.search(text)]
    for result in filter(None, stretches):
        if parts:
            parts.append((" ", result.start() - 1, result.start()))
        parts += _unquoted(rules, result[0], result.start())
    if not rules.keep_accents:
        # all marks that would be reordered are removed
        parts = [
            (letter, start, end)
            for part, start, end in parts
            for letter in unicodedata.normalize("NFKD", part)
            if not unicodedata.combining(letter)
        ]
    if rules.lowercase:
        parts = [(letter, start, end) for part, start, end in parts for letter in part.lower()]
    whole = tidied(rules, lowered(text) if rules.lowercase else text)
    assert len(whole) == len(parts)
    return Traced(whole, [start for _, start, _ in parts], [end for _, _, end in parts])


def _unquoted(rules: UnigramRules, stretch: str, start: int) -> Iterator[_Part]:
    """Yield the characters of a word with their positions, two quotes as one."""
    position = 0
    while position < len(stretch):
        quoted = rules.joins_quotes and stretch[position : position + 2] in ("``", "''")
        size = 2 if quoted else 1
        character = '"' if size == 2 else stretch[position]
        for letter in character.lower() if rules.lowercase else character:
            yield letter, start + position, start + position + size
        position += size


Kept = Mapping[int, Mapping[int, Collection[bytes]]]
"""Texts in UTF-8 by their first byte and their length, the longest first."""


def normalised(rules: UnigramRules, wanted: Kept, text: str, *, prefix: bool) -> Traced:
    """Normalise a text as SentencePiece does: replacements, single blanks, blanks marked.

    `wanted` are texts that are kept unchanged.
    """
    letters: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    after_blank = True
    for replaced, start, end in _exchanged(rules.exchanges, wanted, text):
        part = replaced.lstrip(" ") if after_blank else replaced
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


def _exchanged(rules: CharsMap, wanted: Kept, text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the parts of a text after replacement, with their positions."""
    data = text.encode("utf-8", "surrogatepass")
    position = letter = 0
    while position < len(data):
        kept = b""
        for size, pieces in wanted.get(data[position], {}).items():
            if data[position : position + size] in pieces:
                kept = data[position : position + size]
                break
        part, size = (kept.decode(), len(kept)) if kept else rules.exchange(data, position)
        if not size:
            size = len(text[letter].encode("utf-8", "surrogatepass"))
            part = text[letter] if size > 3 or not _is_half(text[letter]) else "\ufffd" * 3
        end = letter
        position += size
        while size > 0:
            size -= len(text[end].encode("utf-8", "surrogatepass"))
            end += 1
        yield part, letter, end
        letter = end


def _is_half(character: str) -> bool:
    """Return whether a character is a lone surrogate: three bytes that are not valid UTF-8."""
    return "\ud800" <= character <= "\udfff"
