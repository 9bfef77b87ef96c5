"""The base of all tokenizers: vocabularies and their special tokens, inventories, encoded texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.errors import VocabularyError

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BYTE_SPECIALS = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
UNIGRAM_SPECIALS = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
MAX_PIECES = 1_000_000
WHITE_SPACE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)
"""White space as defined by Unicode, which differs slightly from Python's."""


class Pieces(tuple[str, ...]):
    """The pieces of a vocabulary by id; what several readers need of them all is made once."""

    @classmethod
    def of(cls, vocabulary: Sequence[str]) -> Self:
        """Return a vocabulary as pieces, itself if it is that already."""
        return vocabulary if isinstance(vocabulary, cls) else cls(vocabulary)

    @classmethod
    def of_table(cls, ids: Mapping[str, int]) -> Self:
        """Return the pieces of a table of ids, which are 0 to n-1 in its order."""
        pieces = cls(ids)
        pieces.ids = ids
        return pieces

    @cached_property
    def ids(self) -> Mapping[str, int]:
        """The id of each piece."""
        return dict(zip(self, range(len(self)), strict=True))

    @cached_property
    def lines(self) -> str:
        """The pieces, one per line, without a line feed at the end."""
        return "\n".join(self)

    def are_lines(self, text: str) -> bool:
        """Return whether a text is these pieces, one per line, without a line feed at the end."""
        return text == self.lines and text.count("\n") == len(self) - 1

    def __reduce__(self) -> tuple[type[Self], tuple[tuple[str, ...]]]:
        return type(self), (tuple(self),)


_PLACEHOLDER = re.compile(r"\[unused\d+\]|madeupword\d{4}|<\|(?:padding|endoftext)\|>")
_PLACEHOLDER_STARTS = ("[unused", "madeupword", "<|")


def is_placeholder(piece: str) -> bool:
    """Return whether a piece is a placeholder, such as BERT's [unused0], RoBERTa's madeupword0000.

    ModernBERT's <|padding|> and <|endoftext|> are left over from another tokenizer.
    """
    return _PLACEHOLDER.fullmatch(piece) is not None


def placeholders(vocabulary: Sequence[str]) -> list[int]:
    """Return the ids of a vocabulary's placeholders."""
    # few pieces begin like one, and looking at that is much faster
    return [
        number
        for number, piece in enumerate(vocabulary)
        if piece.startswith(_PLACEHOLDER_STARTS) and is_placeholder(piece)
    ]


def check_vocabulary(
    vocabulary: Sequence[str],
    where: Path | None = None,
    *,
    specials: Sequence[str] = SPECIALS,
    lines: bool = True,
) -> None:
    """Raise `VocabularyError` unless the pieces form a vocabulary with the given special tokens.

    `lines` states that `where` has one piece per line, as vocab.txt.
    """
    if not vocabulary:
        raise VocabularyError("holds no pieces", where=where, remedy="learn a vocabulary first")
    if len(vocabulary) > MAX_PIECES:
        raise VocabularyError(
            f"holds more than {MAX_PIECES:,} pieces",
            where=where,
            remedy="name a vocabulary, which has one piece a line",
        )
    pieces = Pieces.of(vocabulary)
    distinct = pieces.ids
    if len(distinct) < len(pieces) or not _all_valid(pieces, lines=lines):
        raise _first_error(pieces, where, lines=lines)
    missing = [special for special in specials if special not in distinct]
    if missing:
        raise VocabularyError(
            f"lacks the special tokens {' '.join(missing)}",
            where=where,
            remedy=f"a vocabulary of this kind has {' '.join(specials)}, each once",
        )
    if len(distinct) == len(specials):
        raise VocabularyError(
            "holds nothing but special tokens", where=where, remedy="learn a vocabulary first"
        )


def _all_valid(pieces: Pieces, *, lines: bool) -> bool:
    """Return whether no piece is empty, has a line break or cannot be written as UTF-8."""
    # all of them as one text, which is much faster than one by one
    together = pieces.lines
    breaks = lines and ("\r" in together or together.count("\n") >= len(pieces))
    return "" not in pieces.ids and not breaks and _is_unicode(together)


def _is_unicode(text: str) -> bool:
    """Return whether a text can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _first_error(vocabulary: Sequence[str], where: Path | None, *, lines: bool) -> VocabularyError:
    """Return the error of the first piece that is not valid, or that is there already."""
    places: dict[str, int] = {}
    for line, piece in enumerate(vocabulary, start=1):
        broken = lines and ("\n" in piece or "\r" in piece)
        if piece in places or not piece or broken or not _is_unicode(piece):
            break
        places[piece] = line
    if piece in places:
        error = f"the piece {piece[:50]!r} is already on line {places[piece]}"
        remedy = "a piece has one id: remove the duplicate"
    else:
        error = "a piece is empty, holds a line break or cannot be written as UTF-8"
        remedy = "every line must hold one piece"
    return VocabularyError(error, where=where, line=line if lines else None, remedy=remedy)


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenInventory:
    """The ids of a vocabulary, and the special ones among them.

    Tokens may be pieces of text (a `Tokenizer` is an inventory that also encodes), SMILES, codes or
    clusters. A sequence is ``cls first sep``, a pair ``cls first sep second sep`` with `separators`
    times ``sep`` in the middle; an inventory without `cls_id` or `sep_id` omits it.
    """

    size: int
    """Number of ids."""
    pad_id: int
    """Id of padding, needed only by other programs."""
    unknown_id: int
    """Id of unknown tokens."""
    cls_id: int | None = None
    """Id that begins a sequence."""
    sep_id: int | None = None
    """Id that ends a text."""
    mask_id: int | None = None
    """Id of the mask, required for masked language modelling."""
    special_ids: frozenset[int]
    """Ids that are never predicted nor used as a random replacement."""
    ordinary_ids: NDArray[np.int64]
    """Candidate ids of random replacement (ordinary,): no special tokens, no placeholders."""
    continues: NDArray[np.bool_]
    """True for tokens that continue the word of the previous token (size,)."""
    separators: int = 1
    """Number of separators between the two texts of a pair."""
    segments: bool = True
    """True if the second text of a pair has segment id 1."""
    fingerprint: str
    """SHA-256 of all that determines the ids, recorded by a token store."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.size:,} ids>"

    @property
    def begin(self) -> tuple[int, ...]:
        """Ids before a text: the classification token, if there is one."""
        return () if self.cls_id is None else (self.cls_id,)

    @property
    def end(self) -> tuple[int, ...]:
        """Ids after a text: the separator, if there is one."""
        return () if self.sep_id is None else (self.sep_id,)

    def specials_around(self, *, pair: bool) -> int:
        """Return the number of special tokens around one text, or around and between two."""
        ends = (1 + self.separators * pair) * len(self.end)
        return len(self.begin) + ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """The token ids of a text; `ids`, `starts` and `ends` are each (pieces,).

    Piece i represents ``text[starts[i]:ends[i]]``, in characters of the original text, as in the
    offset mapping of `transformers`.
    """

    ids: NDArray[np.int32]
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Traced:
    """A text with the `starts` and `ends` (characters,) of its characters in the original."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]

    def part(self, start: int, end: int) -> Traced:
        """Return a part of the text, with positions in the whole original."""
        return Traced(self.text[start:end], self.starts[start:end], self.ends[start:end])


Spans = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""The ids of the pieces of a word, their starts and their ends."""


class TextRun(NamedTuple):
    """A part of a text as pieces: ids, and their starts and ends relative to `offset`."""

    offset: int
    ids: Sequence[int]
    starts: Sequence[int]
    ends: Sequence[int]


class TextEncoder(Protocol):
    """Encodes texts, with a bounded cache."""

    def ids(
        self, text: str, *, specials_in_text: bool, inside: bool = False
    ) -> Iterable[Sequence[int]]:
        """Yield the ids of a text, in parts; `inside` if it continues a paragraph."""
        ...

    def spans(self, text: str, *, specials_in_text: bool) -> Iterable[TextRun]:
        """Yield the ids with the positions of the pieces."""
        ...


def join_runs(stretches: Iterable[TextRun]) -> Encoding:
    """Return the encoding of a text from its parts, in order."""
    parts = list(stretches)
    sizes = [len(part.ids) for part in parts]
    places = np.repeat(np.array([part.offset for part in parts], np.int32), sizes)

    def flat(rows: Iterable[Sequence[int]]) -> NDArray[np.int32]:
        return np.fromiter(chain.from_iterable(rows), np.int32, len(places))

    return Encoding(
        ids=flat(part.ids for part in parts),
        starts=flat(part.starts for part in parts) + places,
        ends=flat(part.ends for part in parts) + places,
    )


def sizes_by_beginning(pieces: Iterable[str], length: int) -> dict[str, tuple[int, ...]]:
    """Return the sizes of pieces, descending, by their first `length` characters.

    Sizes below `length`, which say nothing of a beginning, are always among them.
    """
    # sets of sizes as bits of a number, since thousands of containers would set off the collector
    results: dict[str, int] = {}
    bits_of, shorter = results.get, (1 << length) - 2
    for piece in pieces:
        beginning = piece[:length]
        results[beginning] = bits_of(beginning, shorter) | 1 << len(piece)
    sizes = {bits: tuple(_places(bits)) for bits in set(results.values())}
    return {beginning: sizes[bits] for beginning, bits in results.items()}


def _places(bits: int) -> Iterator[int]:
    """Yield the places of the bits of a number that are set, descending."""
    while bits:
        place = bits.bit_length() - 1
        yield place
        bits ^= 1 << place


_CACHE_SIZE = 200_000
_MAX_CACHED_LENGTH = 48

Value = TypeVar("Value")


class BoundedCache(dict[str, Value]):
    """A cache of the ids of a piece of text, or of any other function of it.

    Memory is bounded: when the cache is full, it is cleared; long texts are not stored.
    """

    def __init__(self, compute: Callable[[str], Value]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, stretch: str) -> Value:
        value = self._compute(stretch)
        if len(stretch) <= _MAX_CACHED_LENGTH:
            if len(self) >= _CACHE_SIZE:
                self.clear()
            self[stretch] = value
        return value
