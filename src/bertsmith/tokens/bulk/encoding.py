"""Splitting of text into chunks, their encoding, and the sentence ends that follow from them."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bertsmith.text.corpus.sentences import (
    CJK_STOPS,
    CLOSERS,
    ENDS,
    OPENINGS,
    Follower,
    Stop,
    follower_of,
    has_capital,
    sentence_starts,
    stop_of,
)
from bertsmith.tokens.basic import CJK_RANGES, BasicRules
from bertsmith.tokens.bulk.chunks import ChunkTable, Encoded, Integers
from bertsmith.tokens.wordpiece import WordPiece

DOCUMENT: Final = 0
CUT: Final = 1
PARAGRAPH: Final = 10
BLANK: Final = 32

_IDEOGRAPH, _STOP = 1, 2
_FIRST_LEAD = 0xE3  # smallest first byte of ideographs and CJK stops; quotes and dashes are below


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunks:
    """A text split at blanks, around ideographs, and where CJK stops end a sentence.

    `starts`, `ends` (chunks,) are in bytes; `after` (chunks,) is what follows each chunk: the byte
    that ends a document or paragraph, a blank, or nothing (`CUT`). `paragraph_ends` (paragraphs,)
    are chunk indices. `settled` are the paragraphs with CJK stops, whose sentences, except for each
    first one, begin at the bytes `sentences`.
    """

    starts: Integers
    ends: Integers
    after: NDArray[np.uint8]
    paragraph_ends: Integers
    settled: Integers
    sentences: Integers


def cut_at_seams(data: bytes, *, ideographs: bool) -> Chunks:
    """Split documents (ended by zero bytes) of paragraphs (by line feeds) of words (by blanks).

    With `ideographs` each CJK ideograph is a separate chunk, as in the rules.
    """
    text = np.frombuffer(data, np.uint8)
    parts = (text == BLANK) | (text == PARAGRAPH) | (text == DOCUMENT)
    settled = sentences = np.zeros(0, np.int64)
    is_end = parts
    if len(text) and text.max() >= _FIRST_LEAD:
        places, sizes, kinds = _cjk(text)
        settled, sentences = _settled(data, text, places[kinds == _STOP])
        cuts = [sentences]
        if ideographs:
            found = kinds == _IDEOGRAPH
            cuts += [places[found], places[found] + sizes[found]]
        is_end = parts | _cut_between(parts, np.concatenate(cuts))
    ends = np.append(np.flatnonzero(is_end), len(text))
    inner = ends[:-1]
    parted = parts[inner]
    after = np.append(np.where(parted, text[inner], np.uint8(CUT)), np.uint8(DOCUMENT))
    return Chunks(
        starts=np.concatenate([[0], inner + parted]),
        ends=ends,
        after=after,
        paragraph_ends=np.flatnonzero((after == PARAGRAPH) | (after == DOCUMENT)),
        settled=settled,
        sentences=sentences,
    )


def sentences_in(data: bytes, start: int, end: int) -> list[int]:
    """Return the starts in bytes of all sentences but the first of paragraph data[start:end]."""
    text = data[start:end].decode("utf-8", "surrogatepass")
    places, before = [], 0
    for first in sentence_starts(text):
        start += len(text[before:first].encode("utf-8", "surrogatepass"))
        before = first
        places.append(start)
    return places


def _settled(data: bytes, text: NDArray[np.uint8], stops: Integers) -> tuple[Integers, Integers]:
    """Return the paragraphs with CJK stops, and the starts of sentences in them."""
    if not len(stops):
        return stops, stops
    bounds = np.flatnonzero((text == PARAGRAPH) | (text == DOCUMENT))
    settled = np.unique(np.searchsorted(bounds, stops))
    starts = np.concatenate([[0], bounds + 1])[settled].tolist()
    ends = np.append(bounds, len(text))[settled].tolist()
    first = [start for a, b in zip(starts, ends, strict=True) for start in sentences_in(data, a, b)]
    return settled, np.array(first, np.int64)


def _cut_between(parts: NDArray[np.bool_], places: Integers) -> NDArray[np.bool_]:
    """Mark the positions to split at: none next to a blank, which is a boundary already."""
    cut = np.zeros(len(parts) + 1, np.bool_)
    cut[places] = True
    cut[0] = False
    cut[1:] &= ~parts
    return cut[:-1] & ~parts


def _cjk(text: NDArray[np.uint8]) -> tuple[Integers, Integers, NDArray[np.uint8]]:
    """Return the positions of characters from U+3000 up, their sizes in bytes, and their kinds."""
    places = np.flatnonzero(text >= _FIRST_LEAD)
    padded = np.append(text, np.zeros(3, np.uint8))
    first, second, third, fourth = (padded[places + i].astype(np.int32) for i in range(4))
    long = first >= 0xF0
    code = (first & 0x0F) << 12 | (second & 0x3F) << 6 | third & 0x3F
    code = np.where(long, (code << 6 | fourth & 0x3F) & 0x1FFFFF, code)
    return places, 3 + long.astype(np.int64), _seam_kinds()[code]


@cache
def _seam_kinds() -> NDArray[np.uint8]:
    """Return the kind of each code point: ideograph, stop or other."""
    kinds = np.zeros(0x200000, np.uint8)
    for first, last in CJK_RANGES:
        for code in range(first, last + 1):
            # an unassigned one is removed like a control character
            kinds[code] = _IDEOGRAPH * (unicodedata.category(chr(code)) != "Cn")
    kinds[[ord(stop) for stop in CJK_STOPS]] = _STOP
    return kinds


STOP: Final = 0b0000111
FOLLOWER: Final = 0b0111000
FOLLOWER_SHIFT: Final = 3
CAPITAL: Final = 0b1000000
CAPITAL_SHIFT: Final = 6

_OPENS = 0b0000001  # trait of a word: punctuation that opens a sentence
_BLANK, _LETTER, _MARK, _TAIL, _HARD = 0, 1, 2, 4, 8  # kinds of bytes
_QUOTES = tuple(quote.encode()[2] for quote in "–—‘’“”…")  # E2 80, and one of these
_STOPS_AND_CLOSES = tuple({character.encode()[-1] for character in ".!?…\"'”’)]"})
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
    for place in np.flatnonzero(_closing()[last]).tolist():
        stops[place] = stop_of(chunks[place].decode())
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


def sentence_ends(data: bytes, chunks: Chunks, traits: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return whether each chunk (chunks,) ends a sentence, from the chunks' traits."""
    last = np.zeros(len(traits), np.bool_)
    last[chunks.paragraph_ends] = True
    last[np.searchsorted(chunks.starts, chunks.sentences) - 1] = True
    places = np.flatnonzero(((traits & STOP) != Stop.NONE) & (chunks.after == BLANK))
    places = places[~np.isin(_paragraphs(chunks, places), chunks.settled)]
    followers = (traits & FOLLOWER) >> FOLLOWER_SHIFT
    stops = traits[places] & STOP
    closed = (followers[places + 1] == Follower.CLOSER) & (chunks.after[places + 1] == BLANK)
    stops[closed & (stops == Stop.PRONOUN)] = Stop.NEVER
    ends = places + closed
    small = _in_small_paragraphs(chunks, traits, places, followers[ends + 1])
    ending = ENDS[stops, followers[ends + 1], 0, small]
    ordinal = (stops == Stop.ORDINAL) | (stops == Stop.PRONOUN)
    last[ends[ending & ~ordinal]] = True
    at = np.flatnonzero(ending & ordinal)
    for place, end in zip(places[at].tolist(), ends[at].tolist(), strict=True):
        # a first word of a sentence is only a number, which depends on the previous chunks
        last[end] = place > 0 and not last[place - 1]
    cut_off = (chunks.after[places - 1] == CUT) & (places > 0) | (chunks.after[ends + 1] == CUT)
    for paragraph in np.unique(_paragraphs(chunks, places[cut_off])).tolist():
        _settle(data, chunks, paragraph, last)
    return last


def _paragraphs(chunks: Chunks, places: Integers) -> Integers:
    return np.searchsorted(chunks.paragraph_ends, places)


def _in_small_paragraphs(
    chunks: Chunks, traits: NDArray[np.uint8], places: Integers, followers: NDArray[np.uint8]
) -> Integers:
    """Return 1 for positions before a small letter in paragraphs without capitals, else 0."""
    small = np.zeros(len(places), np.int64)
    before = np.flatnonzero((followers == Follower.SMALL) | (followers == Follower.SMALL_STARTER))
    if len(before):
        starts = np.concatenate([[0], chunks.paragraph_ends[:-1] + 1])
        capitals = np.bitwise_or.reduceat(traits, starts) & CAPITAL
        small[before] = capitals[_paragraphs(chunks, places[before])] == 0
    return small


def _settle(data: bytes, chunks: Chunks, paragraph: int, last: NDArray[np.bool_]) -> None:
    """Find a paragraph's sentences from its text: words next to stops span several chunks."""
    end = int(chunks.paragraph_ends[paragraph])
    start = int(chunks.paragraph_ends[paragraph - 1]) + 1 if paragraph else 0
    last[start:end] = False
    sentences = sentences_in(data, int(chunks.starts[start]), int(chunks.ends[end]))
    last[np.searchsorted(chunks.starts, sentences) - 1] = True
