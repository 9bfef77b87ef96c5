"""Encoding of blank-free chunks of text, and a vectorised cache of their ids.

A chunk of up to 16 bytes of UTF-8 is its own key: two 64-bit words, compared as a whole, so no two
chunks are confused. The hash only determines the slot of the table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertsmith.text.corpus.sentences import (
    CLOSERS,
    CLOSES,
    OPENINGS,
    SPACED_STOPS,
    Follower,
    follower_of,
    has_capital,
    stop_of,
)
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.wordpiece import WordPiece

Integers = NDArray[np.int64]

_KEY_BYTES = 16
_BATCH = 1 << 15  # chunks looked up at a time, so that their data stays in the CPU cache
_MAX_CACHED_LENGTH = 64
_FIRST_SLOTS = 1 << 10
_LOW, _HIGH = (
    np.array([(1 << 8 * max(0, min(8, size - place))) - 1 for size in range(17)], np.uint64)
    for place in (0, 8)
)


class Encoded(NamedTuple):
    """The concatenated ids of some chunks; number of ids and traits of each chunk, (chunks,).

    Traits are a byte of further properties of a chunk.
    """

    ids: NDArray[np.int32]
    counts: Integers
    traits: NDArray[np.uint8]


WorkOut = Callable[[list[bytes]], Encoded]
"""Encodes chunks that are not in the table."""


class ChunkTable:
    """A hash table of the ids and traits of chunks, computed at their first occurrence.

    Memory is bounded: when the largest table is half full, or holds too many ids, it is cleared.
    Results do not depend on the contents of the table.
    """

    def __init__(self, work_out: WorkOut, *, slots: int = 1 << 20, most_ids: int = 1 << 22) -> None:
        """The table grows to `slots` of 32 bytes, and beyond only for a batch of new chunks."""
        self._work_out = work_out
        self._most = slots // 2
        self._most_ids = most_ids
        self._entries = self._used = 0
        # a row: the chunk's 16 bytes, the start of its ids, 256 times their number plus traits
        self._rows = np.zeros((_FIRST_SLOTS, 4), np.uint64)
        self._ids = np.zeros(_FIRST_SLOTS, np.int32)
        self._longer: dict[bytes, NDArray[np.uint64]] = {}

    def encode(self, data: bytes, starts: Integers, ends: Integers) -> Encoded:
        """Encode the chunks data[starts[i]:ends[i]] of UTF-8 text without zero bytes."""
        padded = np.frombuffer(data + bytes(_KEY_BYTES), np.uint8)
        parts = [
            self._encode_some(
                data, padded, starts[first : first + _BATCH], ends[first : first + _BATCH]
            )
            for first in range(0, len(starts), _BATCH)
        ]
        if len(parts) == 1:
            return parts[0]
        none = Encoded(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.uint8))
        ids, counts, traits = zip(*(parts or [none]), strict=True)
        return Encoded(np.concatenate(ids), np.concatenate(counts), np.concatenate(traits))

    def _encode_some(
        self, data: bytes, padded: NDArray[np.uint8], starts: Integers, ends: Integers
    ) -> Encoded:
        self._make_room(len(starts))
        sizes = ends - starts
        low, high = _keys(padded, starts, np.minimum(sizes, _KEY_BYTES))
        rows, missing = self._find(low, high)
        long = sizes > _KEY_BYTES
        missing = missing[~long[missing]]
        if len(missing):
            self._learn(data, starts, ends, (low, high), missing)
            rows[missing], none = self._find(low[missing], high[missing])
            assert not len(none)
        places = np.flatnonzero(long)
        if len(places):
            cuts = zip(starts[places].tolist(), ends[places].tolist(), strict=True)
            rows[places, 2:] = self._find_long([data[start:end] for start, end in cuts])
        packed = rows[:, 3]
        counts = (packed >> np.uint64(8)).astype(np.int64)
        ids = self._gather(rows[:, 2].astype(np.int64), counts)
        return Encoded(ids, counts, packed.astype(np.uint8))

    def _find(
        self, low: NDArray[np.uint64], high: NDArray[np.uint64]
    ) -> tuple[NDArray[np.uint64], Integers]:
        """Return the rows of some keys, and the indices of those that are not in the table."""
        slots = self._slots(low, high)
        rows = self._rows.take(slots, axis=0)
        wrong = np.flatnonzero((rows[:, 0] != low) | (rows[:, 1] != high))
        missing: list[Integers] = []
        while len(wrong):
            # no chunk begins with a zero byte, so a row that does is free
            free = rows[wrong, 0] == 0
            missing.append(wrong[free])
            wrong = wrong[~free]
            slots[wrong] = (slots[wrong] + 1) & (len(self._rows) - 1)
            probed = self._rows.take(slots[wrong], axis=0)
            rows[wrong] = probed
            wrong = wrong[(probed[:, 0] != low[wrong]) | (probed[:, 1] != high[wrong])]
        return rows, np.concatenate(missing) if missing else wrong

    def _learn(
        self,
        data: bytes,
        starts: Integers,
        ends: Integers,
        keys: tuple[NDArray[np.uint64], NDArray[np.uint64]],
        missing: Integers,
    ) -> None:
        """Encode the chunks with the indices `missing` and insert them into the table."""
        cuts = map(slice, starts[missing].tolist(), ends[missing].tolist())
        places = dict(zip(map(data.__getitem__, cuts), missing.tolist(), strict=True))
        new = np.fromiter(places.values(), np.int64, len(places))
        rows = np.empty((len(new), 4), np.uint64)
        rows[:, 0], rows[:, 1] = keys[0][new], keys[1][new]
        rows[:, 2:] = self._encode_new(list(places))
        self._entries += len(rows)
        self._insert(rows)

    def _insert(self, rows: NDArray[np.uint64]) -> None:
        slots = self._slots(rows[:, 0], rows[:, 1])
        while len(rows):
            free = np.flatnonzero(self._rows[slots, 0] == 0)
            self._rows[slots[free]] = rows[free]
            # of several rows for one slot the last one was written
            without = (self._rows[slots, :2] != rows[:, :2]).any(axis=1)
            rows, slots = rows[without], (slots[without] + 1) & (len(self._rows) - 1)

    def _find_long(self, chunks: list[bytes]) -> list[NDArray[np.uint64]]:
        """Return the latter half of the row of each chunk of over 16 bytes."""
        missing = list(dict.fromkeys(chunk for chunk in chunks if chunk not in self._longer))
        new = dict(zip(missing, self._encode_new(missing), strict=True)) if missing else {}
        for chunk, row in new.items():
            if len(chunk) <= _MAX_CACHED_LENGTH:
                self._longer[chunk] = row
                self._entries += 1
        return [new[chunk] if chunk in new else self._longer[chunk] for chunk in chunks]

    def _encode_new(self, chunks: list[bytes]) -> NDArray[np.uint64]:
        """Encode new chunks; return the starts of their ids, and the counts with the traits."""
        ids, counts, traits = self._work_out(chunks)
        start, end = self._used, self._used + len(ids)
        if end > len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros(max(end, len(self._ids)), np.int32)])
        self._ids[start:end] = ids
        self._used = end
        return np.column_stack([start + np.cumsum(counts) - counts, counts << 8 | traits]).astype(
            np.uint64
        )

    def _gather(self, firsts: Integers, counts: Integers) -> NDArray[np.int32]:
        ends = np.cumsum(counts)
        places = np.repeat(firsts - ends + counts, counts)
        places += np.arange(len(places))
        return self._ids.take(places)

    def _slots(self, low: NDArray[np.uint64], high: NDArray[np.uint64]) -> Integers:
        mixed = low * np.uint64(0x9E3779B97F4A7C15) ^ high * np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(32)
        mixed *= np.uint64(0x94D049BB133111EB)
        mixed >>= np.uint64(65 - len(self._rows).bit_length())
        return mixed.astype(np.int64)

    def _make_room(self, number: int) -> None:
        """Grow or clear the table so that it stays half empty with `number` more chunks."""
        if self._entries + number > self._most or self._used > self._most_ids:
            self._clear()
        slots = len(self._rows)
        while self._entries + number > slots // 2:
            slots *= 4
        if slots > len(self._rows):
            rows = self._rows[self._rows[:, 0] != 0]
            self._rows = np.zeros((slots, 4), np.uint64)
            self._insert(rows)

    def _clear(self) -> None:
        self._entries = self._used = 0
        self._rows = np.zeros((_FIRST_SLOTS, 4), np.uint64)
        self._ids = np.zeros(_FIRST_SLOTS, np.int32)
        self._longer = {}


def _keys(
    padded: NDArray[np.uint8], starts: Integers, sizes: Integers
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the first 16 bytes of each chunk as two little-endian numbers, padded with zeros."""
    words = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
    low = words[starts]
    # a chunk of 8 bytes or less must not read beyond the text's end
    high = words[np.minimum(starts + 8, len(words) - 1)]
    low &= _LOW[sizes]
    high &= _HIGH[sizes]
    return low, high


STOP: Final = 0b0000111
FOLLOWER: Final = 0b0111000
FOLLOWER_SHIFT: Final = 3
CAPITAL: Final = 0b1000000
CAPITAL_SHIFT: Final = 6

_OPENS = 0b0000001  # trait of a word: punctuation that opens a sentence
_BLANK, _LETTER, _MARK, _TAIL, _HARD = 0, 1, 2, 4, 8  # kinds of bytes
_QUOTES = tuple(quote.encode()[2] for quote in "–—‘’“”…")  # E2 80, and one of these
_STOPS_AND_CLOSES = tuple(
    {mark.encode()[-1] for mark in ".!?\"')]–—‘’“”…" if mark in SPACED_STOPS or mark in CLOSES}
)
_CLOSERS = frozenset(closer.encode() for closer in CLOSERS)
_WORD_SLOTS = 1 << 18


class ChunkEncoder:
    """Encodes blank-free chunks of text; their traits are a `Stop`, a `Follower` and `CAPITAL`.

    Chunks of ASCII and the most common quotes and dashes are split into words in bulk, and the
    words looked up in a table; others are encoded one by one by the rules.
    """

    def __init__(self, rules: BasicRules, pieces: WordPiece) -> None:
        self._rules = rules
        self._pieces = pieces
        self._words = ChunkTable(self._new_words, slots=_WORD_SLOTS)

    def __call__(self, chunks: list[bytes]) -> Encoded:
        """Return the ids and traits of some non-empty chunks, in order."""
        kinds = _kinds(b"\n".join(chunks))
        hard = np.bitwise_or.reduceat(kinds, _starts(chunks)) >= _HARD
        if not hard.any():
            return self._plain(chunks)
        if hard.all():
            return self._by_rules(chunks)
        order = np.argsort(hard, kind="stable")
        arranged = [chunks[index] for index in order.tolist()]
        easy = len(chunks) - int(np.count_nonzero(hard))
        plain, others = self._plain(arranged[:easy]), self._by_rules(arranged[easy:])
        ids = np.concatenate([plain.ids, others.ids])
        counts = np.concatenate([plain.counts, others.counts])
        traits = np.concatenate([plain.traits, others.traits])
        back = np.argsort(order)
        places = np.repeat((np.cumsum(counts) - counts)[back], counts[back])
        places += np.arange(len(ids)) - np.repeat(_sums(counts[back]), counts[back])
        return Encoded(ids[places], counts[back], traits[back])

    def _plain(self, chunks: list[bytes]) -> Encoded:
        """Encode chunks of ASCII letters, digits and punctuation, and a few other marks."""
        data = b"\n".join(chunks)
        kinds = _kinds(data)
        letter = kinds == _LETTER
        begins = kinds == _MARK
        begins[0] |= letter[0]
        begins[1:] |= letter[1:] & ~letter[:-1]
        ending = (begins[1:] | (kinds[1:] == _BLANK)) & (kinds[:-1] != _BLANK)
        starts = np.flatnonzero(begins)
        ids, counts, traits = self._words.encode(
            data, starts, np.append(np.flatnonzero(ending) + 1, len(data))
        )
        first = np.searchsorted(starts, _starts(chunks))
        capitals = np.bitwise_or.reduceat(traits, first) & np.uint8(CAPITAL)
        followers = self._followers(chunks, first, traits)
        stops = _stops(chunks)
        return Encoded(ids, np.add.reduceat(counts, first), stops | followers | capitals)

    def _followers(
        self, chunks: list[bytes], first: NDArray[np.int64], traits: NDArray[np.uint8]
    ) -> NDArray[np.uint8]:
        """Return the shifted `Follower` of each chunk's first word after opening punctuation."""
        none, closer = Follower.NONE << FOLLOWER_SHIFT, Follower.CLOSER << FOLLOWER_SHIFT
        words = np.append(np.flatnonzero(traits & _OPENS == 0), len(traits))
        word = words[np.searchsorted(words, first)]
        inside = word < np.append(first[1:], len(traits))
        followers: NDArray[np.uint8] = np.append(traits, np.uint8(0))[word] & np.uint8(FOLLOWER)
        followers[~inside | (followers == closer)] = none
        closes = np.fromiter(map(_CLOSERS.__contains__, chunks), np.bool_, len(chunks))
        followers[closes] = closer
        return followers

    def _new_words(self, words: list[bytes]) -> Encoded:
        """Encode words of letters or one mark; their traits have `_OPENS` and no `Stop`."""
        texts = [word.decode() for word in words]
        lowered = map(str.lower, texts) if self._rules.lowercase else texts
        ids = list(map(self._pieces.ids, lowered))
        opens = np.fromiter(map(OPENINGS.__contains__, texts), np.uint8, len(texts))
        return _encoded(ids, texts, opens * np.uint8(_OPENS))

    def _by_rules(self, chunks: list[bytes]) -> Encoded:
        """Encode any chunks."""
        texts = [chunk.decode("utf-8", "surrogatepass") for chunk in chunks]
        ids = [self._pieces.ids_of(self._rules.words(text)) for text in texts]
        return _encoded(ids, texts, np.fromiter(map(stop_of, texts), np.uint8, len(texts)))


def _encoded(ids: list[list[int]], texts: list[str], stops: NDArray[np.uint8]) -> Encoded:
    followers, capitals = (
        np.fromiter(map(trait, texts), np.uint8, len(texts)) for trait in (follower_of, has_capital)
    )
    return Encoded(
        np.fromiter(chain.from_iterable(ids), np.int32),
        np.fromiter(map(len, ids), np.int64, len(ids)),
        stops | followers << np.uint8(FOLLOWER_SHIFT) | capitals << np.uint8(CAPITAL_SHIFT),
    )


def _stops(chunks: list[bytes]) -> NDArray[np.uint8]:
    stops = np.zeros(len(chunks), np.uint8)
    last = np.fromiter((chunk[-1] for chunk in chunks), np.uint8, len(chunks))
    for index in np.flatnonzero(_closing()[last]).tolist():
        stops[index] = stop_of(chunks[index].decode())
    return stops


def _starts(chunks: list[bytes]) -> NDArray[np.int64]:
    """Return the starts of chunks that are separated by one byte."""
    return _sums(np.fromiter(map(len, chunks), np.int64, len(chunks)) + 1)


def _sums(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the sum of all counts before each."""
    return np.cumsum(counts) - counts


def _kinds(data: bytes) -> NDArray[np.uint8]:
    """Return the kind of each byte: blank, letter or digit, mark or its tail, other."""
    text = np.frombuffer(data, np.uint8)
    kinds = _ascii_kinds()[text]
    first = np.flatnonzero(text == 0xE2)
    if len(first):
        first = first[first + 2 < len(text)]
        first = first[(text[first + 1] == 0x80) & np.isin(text[first + 2], _QUOTES)]
        kinds[first] = _MARK
        kinds[first + 1] = kinds[first + 2] = _TAIL
    return kinds


@cache
def _ascii_kinds() -> NDArray[np.uint8]:
    kinds = np.full(256, _HARD, np.uint8)
    for code in range(33, 127):
        kinds[code] = _LETTER if chr(code).isalnum() else _MARK
    kinds[ord("_")] = _HARD  # punctuation to the rules, a letter to those for sentences
    kinds[ord("\n")] = _BLANK
    return kinds


@cache
def _closing() -> NDArray[np.bool_]:
    closing = np.zeros(256, np.bool_)
    closing[list(_STOPS_AND_CLOSES)] = True
    return closing
