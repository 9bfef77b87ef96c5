"""Chunks of text that are met for the first time: their ids, and what they say of sentences."""

from __future__ import annotations

from functools import cache
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bertsmith.text.sentences import CLOSERS, OPENINGS, Follower, follower_of, has_capital, stop_of
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.chunks import ChunkTable, Encoded
from bertsmith.tokens.wordpiece import WordPiece

STOP: Final = 0b0000111
FOLLOWER: Final = 0b0111000
FOLLOWER_SHIFT: Final = 3
CAPITAL: Final = 0b1000000
CAPITAL_SHIFT: Final = 6

_OPENS = 0b0000001  # of a word: it is a mark that opens before a sentence
_BLANK, _LETTER, _MARK, _TAIL, _HARD = 0, 1, 2, 4, 8  # of a byte
_QUOTES = tuple(quote.encode()[2] for quote in "–—‘’“”…")  # E2 80, and one of these
_STOPS_AND_CLOSES = tuple({character.encode()[-1] for character in ".!?…\"'”’)]"})
_CLOSERS = frozenset(closer.encode() for closer in CLOSERS)
_WORD_SLOTS = 1 << 18


class ChunkEncoder:
    """Encodes blank-free chunks of text; their traits are a `Stop`, a `Follower` and `CAPITAL`.

    Chunks of ASCII and the commonest quotes and dashes are cut into words many at once, and the
    words looked up in a table; others go one by one by the rules.
    """

    def __init__(self, rules: BasicRules, pieces: WordPiece) -> None:
        self._rules = rules
        self._pieces = pieces
        self._words = ChunkTable(self._new_words, slots=_WORD_SLOTS)

    def __call__(self, chunks: list[bytes]) -> Encoded:
        """The ids and traits of some chunks, none empty, in their order."""
        kinds = _kinds(b"\n".join(chunks))
        hard = np.bitwise_or.reduceat(kinds, _starts(chunks)) >= _HARD
        if not hard.any():
            return self._plain(chunks)
        if hard.all():
            return self._by_rules(chunks)
        order = np.argsort(hard, kind="stable")
        arranged = [chunks[place] for place in order.tolist()]
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
        """Chunks of letters, digits and marks of ASCII, and of some marks beyond."""
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
        """Of each chunk the `Follower` of its first word behind what opens, shifted."""
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
        """Words by the rules, of letters or a mark; their traits without a `Stop`, but `_OPENS`."""
        texts = [word.decode() for word in words]
        lowered = map(str.lower, texts) if self._rules.lowercase else texts
        ids = list(map(self._pieces.ids, lowered))
        opens = np.fromiter(map(OPENINGS.__contains__, texts), np.uint8, len(texts))
        return _encoded(ids, texts, opens * np.uint8(_OPENS))

    def _by_rules(self, chunks: list[bytes]) -> Encoded:
        """Chunks of whatever there is."""
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
    for place in np.flatnonzero(_closing()[last]).tolist():
        stops[place] = stop_of(chunks[place].decode())
    return stops


def _starts(chunks: list[bytes]) -> NDArray[np.int64]:
    """Where chunks begin that are parted by one byte."""
    return _sums(np.fromiter(map(len, chunks), np.int64, len(chunks)) + 1)


def _sums(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The sum of all before each."""
    return np.cumsum(counts) - counts


def _kinds(data: bytes) -> NDArray[np.uint8]:
    """The kind of each byte: blanks, letters and digits, marks with their tails, all others."""
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
    kinds[ord("_")] = _HARD  # a mark to the rules, a letter to those for sentences
    kinds[ord("\n")] = _BLANK
    return kinds


@cache
def _closing() -> NDArray[np.bool_]:
    closing = np.zeros(256, np.bool_)
    closing[list(_STOPS_AND_CLOSES)] = True
    return closing
