"""What a token store holds, as far as it decides whether pre-training on it is worth the time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.randomness import bits, permuted, stream
from bertsmith.batches.store import TokenStore

Numbers = NDArray[np.int64]

MOST_SENTENCES, MOST_DOCUMENTS, MOST_TOKENS = 200_000, 4_000, 4_000_000

# near duplicates: 8 bands of 3 hashes find 95 % of the pairs that share 70 % of their shingles
_SHINGLE, _BANDS, _ROWS = 5, 8, 3
_LONGEST_DOCUMENT = 5_000
# shorter sentences repeat by nature: headings, "Returns:", "Yes."
_SHORTEST_SENTENCE = 8


@dataclass(frozen=True, kw_only=True)
class Survey:
    """Shares are of what was looked at; entropy is in nats a token."""

    repeated_sentences: float
    """Share of the sentences of 8 tokens and more that stand elsewhere too, word for word."""
    commonest_sentence: Numbers
    """The ids of the sentence repeated most."""
    commonest_count: int
    """How often it was met."""
    near_duplicates: float
    """Share of the documents that share most of their text with another one."""
    single_sentence_documents: float
    """Share of the documents with one sentence, which make no next-sentence pair."""
    unigram_entropy: float
    """What a model pays that knows how frequent tokens are and nothing else."""


def survey(store: TokenStore, vocabulary: int) -> Survey:
    """Look at a sample of a store with ids below `vocabulary`; takes seconds, whatever its size."""
    repeated, commonest, count = _repeated_sentences(store)
    sentences = np.diff(store.documents)
    return Survey(
        repeated_sentences=repeated,
        commonest_sentence=commonest,
        commonest_count=count,
        near_duplicates=_near_duplicates(store),
        single_sentence_documents=float(np.mean(sentences == 1)),
        unigram_entropy=_unigram_entropy(store, vocabulary),
    )


def _spread(total: int, most: int, part: int) -> Numbers:
    """At most `most` of the numbers below `total`: runs of `part` at even distances."""
    if total <= most:
        return np.arange(total)
    starts = np.linspace(0, total - part, most // part).astype(np.int64)
    return (starts[:, None] + np.arange(part)).ravel()


def _repeated_sentences(store: TokenStore) -> tuple[float, Numbers, int]:
    # whole documents' worth of neighbours would find few repeats: take the sentences one by one
    chosen = _spread(store.index.sentences, MOST_SENTENCES, 1)
    starts, ends = np.asarray(store.sentences[chosen]), np.asarray(store.sentences[chosen + 1])
    long_enough = ends - starts >= _SHORTEST_SENTENCE
    ranges = list(zip(starts[long_enough].tolist(), ends[long_enough].tolist(), strict=True))
    counts = Counter(store.read(start, end).tobytes() for start, end in ranges)
    if not counts:
        return 0.0, np.zeros(0, np.int64), 0
    text, most = counts.most_common(1)[0]
    repeated = sum(count for count in counts.values() if count > 1)
    ids = np.frombuffer(text, store.read(*ranges[0]).dtype).astype(np.int64)
    return repeated / len(ranges), ids, most


def _near_duplicates(store: TokenStore) -> float:
    """By MinHash (Broder 1997) of runs of 5 tokens, bands of which must agree."""
    starts = store.document_starts()
    chosen = _spread(store.index.documents, MOST_DOCUMENTS, 1)
    keys = bits(stream(0), np.arange(_BANDS * _ROWS))
    bands: list[Counter[bytes]] = [Counter() for _ in range(_BANDS)]
    signatures = []
    for document in chosen.tolist():
        start = int(starts[document])
        end = min(int(starts[document + 1]), start + _LONGEST_DOCUMENT)
        if end - start < 4 * _SHINGLE:
            continue
        signature = _signature(store.read(start, end), keys)
        signatures.append(signature)
        for band, part in zip(bands, signature, strict=True):
            band[part] += 1
    twins = sum(
        any(band[part] > 1 for band, part in zip(bands, signature, strict=True))
        for signature in signatures
    )
    return twins / len(signatures) if signatures else 0.0


def _signature(ids: NDArray[np.integer], keys: NDArray[np.uint64]) -> list[bytes]:
    """The least hash of a document's shingles under each key, as bands of bytes."""
    shingles = np.zeros(len(ids) - _SHINGLE + 1, np.uint64)
    for place in range(_SHINGLE):
        shingles = bits(shingles, ids[place : place + len(shingles)].astype(np.int64))
    least = bits(keys[:, None], shingles[None].view(np.int64)).min(1)
    return [row.tobytes() for row in least.reshape(_BANDS, _ROWS)]


def _unigram_entropy(store: TokenStore, vocabulary: int) -> float:
    counts = np.zeros(vocabulary, np.int64)
    starts = store.document_starts()
    total = store.index.documents
    for turn in range(total):
        if counts.sum() >= MOST_TOKENS:
            break
        document = int(permuted(np.array([turn]), total, stream(1))[0])
        ids = store.read(int(starts[document]), int(starts[document + 1]))
        counts += np.bincount(ids, minlength=vocabulary)
    shares = counts[counts > 0] / max(counts.sum(), 1)
    return float(-(shares * np.log(shares)).sum())
