"""Encoding of documents into sentences of ids, by the fastest method for a vocabulary.

For WordPiece a text is cut where no word can continue, and sentence ends follow from traits of the
chunks between the cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bertsmith.text.corpus.sentences import CJK_STOPS, ENDS, Follower, Stop, sentence_starts
from bertsmith.tokens.basic import BasicRules, ideographs
from bertsmith.tokens.bulk.chunks import (
    CAPITAL,
    FOLLOWER,
    FOLLOWER_SHIFT,
    STOP,
    ChunkEncoder,
    ChunkTable,
    Encoded,
    Integers,
)
from bertsmith.tokens.tokenizer import Tokenizer, kind_of
from bertsmith.tokens.vocabulary import Pieces, TextEncoder
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
    are chunk indices. `decided` are the paragraphs with CJK stops, whose sentences, except for each
    first one, begin at the bytes `sentences`.
    """

    starts: Integers
    ends: Integers
    after: NDArray[np.uint8]
    paragraph_ends: Integers
    decided: Integers
    sentences: Integers


def cut_at_seams(data: bytes, *, ideographs: bool) -> Chunks:
    """Split documents (ended by zero bytes) of paragraphs (by line feeds) of words (by blanks).

    With `ideographs` each CJK ideograph is a separate chunk, as in the rules.
    """
    text = np.frombuffer(data, np.uint8)
    parts = (text == BLANK) | (text == PARAGRAPH) | (text == DOCUMENT)
    decided = sentences = np.zeros(0, np.int64)
    is_end = parts
    if len(text) and text.max() >= _FIRST_LEAD:
        places, sizes, kinds = _cjk(text)
        decided, sentences = _split_at_stops(data, text, places[kinds == _STOP])
        cuts = [sentences]
        if ideographs:
            result = kinds == _IDEOGRAPH
            cuts += [places[result], places[result] + sizes[result]]
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
        decided=decided,
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


def _split_at_stops(
    data: bytes, text: NDArray[np.uint8], stops: Integers
) -> tuple[Integers, Integers]:
    """Return the paragraphs with CJK stops, and the starts of sentences in them."""
    if not len(stops):
        return stops, stops
    bounds = np.flatnonzero((text == PARAGRAPH) | (text == DOCUMENT))
    decided = np.unique(np.searchsorted(bounds, stops))
    starts = np.concatenate([[0], bounds + 1])[decided].tolist()
    ends = np.append(bounds, len(text))[decided].tolist()
    first = [start for a, b in zip(starts, ends, strict=True) for start in sentences_in(data, a, b)]
    return decided, np.array(first, np.int64)


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
    kinds[ideographs()] = _IDEOGRAPH
    kinds[[ord(stop) for stop in CJK_STOPS]] = _STOP
    return kinds


def sentence_ends(data: bytes, chunks: Chunks, traits: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Return whether each chunk (chunks,) ends a sentence, from the chunks' traits."""
    last = np.zeros(len(traits), np.bool_)
    last[chunks.paragraph_ends] = True
    last[np.searchsorted(chunks.starts, chunks.sentences) - 1] = True
    places = np.flatnonzero(((traits & STOP) != Stop.NONE) & (chunks.after == BLANK))
    places = places[~np.isin(_paragraphs(chunks, places), chunks.decided)]
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
    for position, end in zip(places[at].tolist(), ends[at].tolist(), strict=True):
        # a first word of a sentence is only a number, which depends on the previous chunks
        last[end] = position > 0 and not last[position - 1]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedText:
    """The token ids of some documents, without empty ones.

    `ids` (tokens,) are concatenated; `sentences` (sentences,) are lengths in tokens, all above 0;
    `documents` (documents,) are numbers of sentences, all above 0; `words` is the number of words
    separated by blanks and sentence ends, `unknown` that of unknown tokens.
    """

    ids: NDArray[np.int32]
    sentences: Integers
    documents: Integers
    words: int
    unknown: int


class WordPieceDocuments:
    """Splits documents into sentences and encodes them with WordPiece."""

    def __init__(self, vocabulary: Pieces, rules: BasicRules, unknown_id: int) -> None:
        self._unknown = unknown_id
        self._ideographs = rules.space_cjk
        pieces = WordPiece(vocabulary, unknown_id)
        self._table = ChunkTable(ChunkEncoder(rules, pieces))

    def encode(self, documents: Sequence[bytes]) -> EncodedText:
        """Encode documents; see `DocumentEncoder.encode`."""
        data = b"\0".join(documents)
        if data.count(b"\0") >= max(1, len(documents)):
            data = b"\0".join(document.replace(b"\0", b"") for document in documents)
        chunks = cut_at_seams(data, ideographs=self._ideographs)
        encoded = self._table.encode(data, chunks.starts, chunks.ends)
        return self._counted(chunks, encoded, sentence_ends(data, chunks, encoded.traits))

    def _counted(self, chunks: Chunks, encoded: Encoded, last: NDArray[np.bool_]) -> EncodedText:
        ends = np.flatnonzero(last)
        sentences = np.diff(np.cumsum(encoded.counts)[ends], prepend=0)
        document_ends = np.flatnonzero(chunks.after == DOCUMENT)
        whole = np.cumsum(sentences > 0)[np.searchsorted(ends, document_ends)]
        documents = np.diff(whole, prepend=0)
        words = chunks.ends > chunks.starts
        words[1:] &= (chunks.after[:-1] != CUT) | last[:-1]
        if not documents.all():  # words of documents without ids do not count
            every = np.diff(np.cumsum(words)[document_ends], prepend=0)
            number = int(every[documents > 0].sum())
        else:
            number = int(np.count_nonzero(words))
        return EncodedText(
            ids=encoded.ids,
            sentences=sentences[sentences > 0],
            documents=documents[documents > 0],
            words=number,
            unknown=int(np.count_nonzero(encoded.ids == self._unknown)),
        )


class DocumentEncoder:
    """Splits documents into sentences (`split_sentences`) and encodes them (`Tokenizer.encode`).

    Literal special tokens are text. A sentence inside a paragraph is encoded in its context, with
    the blank before it: for kinds that encode blanks, it is not the beginning of a text. The cache
    of words is kept between calls, and bounded.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        vocabulary, rules, unknown = tokenizer.vocabulary, tokenizer.rules, tokenizer.unknown_id
        self._encoder = (
            WordPieceDocuments(vocabulary, rules, unknown)
            if isinstance(rules, BasicRules) and rules.added is None
            else _BySentence(kind_of(rules).encoder(vocabulary, rules, unknown), unknown)
        )

    def encode(self, documents: Sequence[bytes]) -> EncodedText:
        """Encode documents, each of them paragraphs in UTF-8 separated by line feeds.

        Paragraphs are those of `bertsmith.text.corpus.documents.Document`: single spaces between
        words and no other white space.
        """
        return self._encoder.encode(documents)


class _BySentence:
    """Encodes sentence by sentence, with the word cache of a text encoder."""

    def __init__(self, encoder: TextEncoder, unknown_id: int) -> None:
        self._encoder = encoder
        self._unknown = unknown_id

    def encode(self, documents: Sequence[bytes]) -> EncodedText:
        ids: list[int] = []
        lengths: list[int] = []
        sentences: list[int] = []
        words = 0
        for document in documents:
            text = document.replace(b"\0", b"").decode("utf-8", "surrogatepass")
            before = len(lengths)
            for paragraph in text.split("\n"):
                self._add(paragraph, ids, lengths)
            if len(lengths) > before:
                sentences.append(len(lengths) - before)
                words += len(text.split())
        array = np.array(ids, np.int32)
        return EncodedText(
            ids=array,
            sentences=np.array(lengths, np.int64),
            documents=np.array(sentences, np.int64),
            words=words,
            unknown=int(np.count_nonzero(array == self._unknown)),
        )

    def _add(self, paragraph: str, ids: list[int], lengths: list[int]) -> None:
        starts = [0]
        for start in sentence_starts(paragraph):
            starts.append(start - (paragraph[start - 1] == " "))
        for start, end in zip(starts, [*starts[1:], len(paragraph)], strict=True):
            done = len(ids)
            for part in self._encoder.ids(
                paragraph[start:end], specials_in_text=False, inside=start > 0
            ):
                ids.extend(part)
            if len(ids) > done:
                lengths.append(len(ids) - done)
