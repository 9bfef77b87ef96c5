"""A survey of a token store, in so far as it decides whether pre-training on it is worth the time.

A small store is looked at whole. Of a large one passages at even distances are read, twenty
million tokens of them or less, so that a look takes seconds whatever the size; the survey says how
much it saw.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.log import progress
from bertsmith.core.streams import Purpose, bits, stream
from bertsmith.store.store import TokenStore

Numbers = NDArray[np.int64]

_SHINGLE, _BANDS, _ROWS = 5, 8, 3
_ALIKE = 0.5
_MAX_LENGTH, _MIN_LENGTH = 5_000, 20
_SHOWN = 40


class Likeness:
    """Gathers documents of a store; `near_duplicates` estimates how many are alike."""

    def __init__(self, store: TokenStore) -> None:
        self._store = store
        self._ends = store.document_starts()
        self._keys = bits(stream(Purpose.MINHASH), np.arange(_BANDS * _ROWS))
        self._signatures: list[NDArray[np.uint32]] = []
        self._begins: list[Numbers] = []

    @property
    def documents(self) -> int:
        """Documents looked at; those of under 20 tokens are left out."""
        return sum(map(len, self._begins))

    def add(self, begins: Numbers) -> None:
        """Look at the documents that begin at these tokens, neighbours in one file, in order."""
        begins = np.unique(begins)  # a document may be empty
        ends = self._ends[np.searchsorted(self._ends, begins, side="right")]
        ends = np.minimum(ends, begins + _MAX_LENGTH)
        begins, ends = (part[ends - begins >= _MIN_LENGTH] for part in (begins, ends))
        if len(begins):
            origin = int(begins[0])
            ids = self._store.read(origin, int(ends.max())).astype(np.int64)
            self._signatures.append(self._signed(ids, begins - origin, ends - origin))
            self._begins.append(begins)

    def near_duplicates(self) -> tuple[float, tuple[int, int]]:
        """Return the share of near duplicates, and (token, length) of the beginning of one."""
        if not self._begins:
            return 0.0, (0, 0)
        signatures, begins = np.concatenate(self._signatures), np.concatenate(self._begins)
        twins = np.zeros(len(begins), np.int64)
        for band in np.split(signatures, _BANDS, axis=1):
            keys = bits(bits(band[:, 0].astype(np.uint64), band[:, 1]), band[:, 2])
            _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
            other = first[inverse]
            same = (signatures == signatures[other]).mean(1) >= _ALIKE
            same &= other != np.arange(len(begins))
            twins += same
            np.add.at(twins, other[same], 1)
        commonest = int(twins.argmax())
        if not twins[commonest]:
            return 0.0, (0, 0)
        start = int(begins[commonest])
        end = int(self._ends[np.searchsorted(self._ends, start, side="right")])
        return float(np.mean(twins > 0)), (start, min(_SHOWN, end - start))

    def _signed(self, ids: Numbers, begins: Numbers, ends: Numbers) -> NDArray[np.uint32]:
        """Return the least hashes of the documents' shingles, (documents, keys)."""
        shingles = np.zeros(len(ids) - _SHINGLE + 1, np.uint64)
        for index in range(_SHINGLE):
            shingles = bits(shingles, ids[index : index + len(shingles)])
        edges = np.stack([begins, ends - _SHINGLE + 1], axis=1).ravel()
        shingles = np.append(shingles, np.uint64(0))
        # a product with an odd number changes the order of numbers that are random already
        hashes = [
            np.minimum.reduceat(shingles * (key | np.uint64(1)), edges)[::2] for key in self._keys
        ]
        return (np.stack(hashes, axis=1) >> np.uint64(32)).astype(np.uint32)


MAX_TOKENS = 20_000_000
_PASSAGE = 65_536
# shorter sentences repeat by nature: headings, "Returns:", "Yes."
_MIN_SENTENCE_LENGTH = 8


@dataclass(frozen=True, kw_only=True)
class Survey:
    """Shares are of what was looked at; entropy is in nats a token."""

    tokens: int
    """Tokens looked at."""
    sentences: int
    """Sentences of 8 tokens and more among them."""
    documents: int
    """Documents of 20 tokens and more that begin among them."""
    whole: bool
    """True if this is the whole store."""
    repeated_sentences: float
    """Share of these sentences that stand elsewhere too, word for word."""
    commonest_sentence: Numbers
    """The ids of the sentence repeated most."""
    commonest_count: int
    """Number of its occurrences."""
    commonest_share: float
    """Its share of the tokens."""
    near_duplicates: float
    """Share of these documents that share most of their text with another one."""
    near_duplicate: Numbers
    """Beginning of one with as many like it as any; empty without any."""
    single_sentence_documents: float
    """Share of all documents of the store with one sentence, which make no next-sentence pair."""
    counts: Numbers
    """Occurrences of each piece of the vocabulary, (vocabulary,)."""
    unigram_entropy: float
    """Loss of a model that knows only the frequencies of tokens."""


@dataclass(frozen=True, slots=True)
class Passage:
    """Whole sentences in a row: their token ids, where they begin, and which begin a document.

    `ids` (tokens,) are tokens `begin` and on of the store; `sentences` (sentences + 1,) and
    `documents` (documents,) are places among them.
    """

    begin: int
    ids: Numbers
    sentences: Numbers
    documents: Numbers


def survey(store: TokenStore, vocabulary: int, max_tokens: int = MAX_TOKENS) -> Survey:
    """Survey about `max_tokens` at most of a store with ids below `vocabulary`."""
    counts = np.zeros(vocabulary, np.int64)
    keys: list[NDArray[np.uint64]] = []
    places: list[Numbers] = []
    likeness = Likeness(store)
    with progress("surveying the text", min(max_tokens, store.tokens), "tokens") as bar:
        for passage in passages(store, max_tokens):
            counts += np.bincount(passage.ids, minlength=vocabulary)
            lengths = np.diff(passage.sentences)
            long_enough = lengths >= _MIN_SENTENCE_LENGTH
            keys.append(_sentence_keys(passage, lengths)[long_enough])
            starts = passage.begin + passage.sentences[:-1][long_enough]
            places.append(np.stack([starts, lengths[long_enough]]))
            likeness.add(passage.begin + passage.documents)
            bar.advance(len(passage.ids))
    repeated, position, count = _repeats(np.concatenate(keys), np.concatenate(places, axis=1))
    alike, example = likeness.near_duplicates()
    total = int(counts.sum())
    return Survey(
        tokens=total,
        sentences=sum(map(len, keys)),
        documents=likeness.documents,
        whole=store.tokens <= max_tokens,
        repeated_sentences=repeated,
        commonest_sentence=_read(store, *position),
        commonest_count=count,
        commonest_share=count * position[1] / max(total, 1) if count > 1 else 0.0,
        near_duplicates=alike,
        near_duplicate=_read(store, *example),
        single_sentence_documents=float(np.mean(np.diff(store.documents) == 1)),
        counts=counts,
        unigram_entropy=_entropy(counts),
    )


def passages(store: TokenStore, max_tokens: int = MAX_TOKENS) -> Iterator[Passage]:
    """Yield passages of about 65,536 tokens: all of the store, or some at even distances."""
    if store.tokens <= max_tokens:
        begins = np.arange(0, store.tokens, _PASSAGE)
        ends = np.append(begins[1:], store.tokens)
    else:
        last_begin = max(0, store.tokens - _PASSAGE)
        begins = np.linspace(0, last_begin, max(1, max_tokens // _PASSAGE)).astype(np.int64)
        ends = np.minimum(begins + _PASSAGE, store.tokens)
    first, last = (np.searchsorted(store.sentences, edges) for edges in (begins, ends))
    # what is read at once must not cross from one file to the next
    borders = np.searchsorted(store.sentences, np.cumsum(store.index.shards))
    for start, stop in zip(first.tolist(), last.tolist(), strict=True):
        inner = borders[(borders > start) & (borders < stop)].tolist()
        for a, b in zip([start, *inner], [*inner, stop], strict=True):
            if a < b:
                yield _passage(store, a, b)


def _passage(store: TokenStore, first: int, last: int) -> Passage:
    """Return the sentences from one number up to another."""
    sentences = np.asarray(store.sentences[first : last + 1], np.int64)
    begin, end = int(sentences[0]), int(sentences[-1])
    numbers = np.searchsorted(store.documents, [first, last])
    documents = np.asarray(store.documents[slice(*numbers)], np.int64)
    return Passage(
        begin=begin,
        ids=store.read(begin, end).astype(np.int64),
        sentences=sentences - begin,
        documents=sentences[documents - first] - begin,
    )


def _sentence_keys(passage: Passage, lengths: Numbers) -> NDArray[np.uint64]:
    """Return a hash of each sentence, (sentences,): a sum over its tokens at their places."""
    within = np.arange(len(passage.ids)) - np.repeat(passage.sentences[:-1], lengths)
    mixed = np.append(bits(within.astype(np.uint64) << np.uint64(32), passage.ids), np.uint64(0))
    return np.add.reduceat(mixed, passage.sentences[:-1])


def _repeats(keys: NDArray[np.uint64], places: Numbers) -> tuple[float, tuple[int, int], int]:
    """Return the share of keys that recur; place and length of the commonest; its count."""
    if not len(keys):
        return 0.0, (0, 0), 0
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    commonest = int(counts.argmax())
    start, length = places[:, first[commonest]].tolist()
    return float(counts[counts > 1].sum() / len(keys)), (start, length), int(counts[commonest])


def _read(store: TokenStore, start: int, length: int) -> Numbers:
    return store.read(start, start + length).astype(np.int64)


def _entropy(counts: Numbers) -> float:
    shares = counts[counts > 0] / max(counts.sum(), 1)
    return float(-(shares * np.log(shares)).sum())
