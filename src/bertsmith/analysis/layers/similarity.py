"""Similarity of the layers of two models on the same words.

    CKA   linear centred kernel alignment (Kornblith et al. 2019, section 3): 1 where one layer is a
          rotation and scaling of the other
    RSA   representational similarity analysis (Kriegeskorte et al. 2008): the rank correlation of
          the cosines between all pairs of words in one layer with those in the other

Both compare what vectors say about words, not the vectors: models of other widths, depths and
vocabularies can be compared. They are computed on a fixed number of words, so memory does not grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.analysis.layers.states import unit_vectors, word_states, words_with_states
from bertsmith.core.log import progress
from bertsmith.core.streams import Purpose, random_subset, stream
from bertsmith.evaluation.metrics import ranks
from bertsmith.network.model import Model
from bertsmith.tokens.tokenizer import Tokenizer

MAX_WORDS = 1000

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Similarity:
    """CKA and RSA of each layer of a model (rows) with each of another (columns).

    Both are (layers + 1, layers + 1), the embeddings first, computed over `words` words.
    """

    words: int
    cka: Matrix
    rsa: Matrix


def compare_layers(
    one: tuple[Model, Tokenizer], other: tuple[Model, Tokenizer], texts: Sequence[Sequence[str]]
) -> Similarity | None:
    """Compare two models on at most `MAX_WORDS` words of some texts; None without three words."""
    mine, theirs = word_states(*one, texts), word_states(*other, texts)
    pairs = []
    for a, b in zip(mine, theirs, strict=True):
        if a is not None and b is not None:
            shared = words_with_states(a) & words_with_states(b)
            pairs.append((a[:, shared], b[:, shared]))
    count = sum(a.shape[1] for a, _ in pairs)
    if count < 3:
        return None
    order = random_subset(count, MAX_WORDS, stream(Purpose.COMPARED_WORDS))
    first, second = (
        np.concatenate([pair[side] for pair in pairs], 1)[:, order].astype(np.float64)
        for side in (0, 1)
    )
    ranks: list[list[Matrix]] = []
    with progress("comparing layers", len(first) + len(second), "layers") as bar:
        cka = _between([_centred_gram(x) for x in first], [_centred_gram(x) for x in second])
        for side in (first, second):
            ranks.append([])
            for layer in side:
                ranks[-1].append(_pair_ranks(layer))
                bar.advance()
    return Similarity(words=len(order), cka=cka, rsa=_between(*ranks))


def _between(rows: Sequence[Matrix], columns: Sequence[Matrix]) -> Matrix:
    """Return the cosine of each two, taken as vectors."""

    def unit(values: Matrix) -> Matrix:
        return np.asarray(values / max(float(np.linalg.norm(values)), 1e-300))

    right = [unit(column) for column in columns]
    results = [[float((unit(row) * other).sum()) for other in right] for row in rows]
    return np.asarray(np.clip(results, -1, 1))


def _centred_gram(vectors: Matrix) -> Matrix:
    """Return the products of centred vectors, (words, words)."""
    centred = vectors - vectors.mean(0)
    return np.asarray(centred @ centred.T, np.float64)


def _pair_ranks(vectors: Matrix) -> Matrix:
    """Return the centred ranks of the cosines of all pairs of words, (pairs,)."""
    unit = unit_vectors(vectors)
    cosines = unit @ unit.T
    ranked = ranks(cosines[np.triu_indices(len(vectors), 1)])
    return np.asarray(ranked - ranked.mean())
