"""One word across its uses: neighbours, clusters, a map, and how much context changes it.

Self-similarity is the mean cosine between two uses of a word, anisotropy that between any two words
of the corpus: what the first has above the second is the word's own (Ethayarajh 2019, section 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.analysis.heads.distances import with_fixed_signs
from bertsmith.analysis.layers.states import (
    States,
    unit_vectors,
    word_states,
    words_with_states,
)
from bertsmith.core.streams import Purpose, Sample, random_subset, stream
from bertsmith.network.model import Model
from bertsmith.tokens.tokenizer import Tokenizer

MAX_USES = 150
_MAX_CLUSTERS = 5
_NEIGHBOURS = 3
LEAST_USES = _NEIGHBOURS + 1
"""Number of uses of a word from which on they are compared."""
_ANY_WORDS = 1000

Vectors = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WordUse:
    """A word of a text: its place among the words."""

    words: tuple[str, ...]
    place: int
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WordFigures:
    """A word across its uses.

    `layer` is where clusters, neighbours and map are from: that with the best clusters.
    `clusters` (uses,) are numbered by size; `silhouette` is how well they are apart, from -1 to 1.
    `neighbours` (uses, some) are the uses most alike. `points` (uses, 2) keep `map_share` of the
    variance. `self_similarity` is by layer from the embeddings on.
    """

    word: str
    uses: Sequence[WordUse]
    layer: int
    clusters: NDArray[np.int64]
    silhouette: float
    neighbours: NDArray[np.int64]
    points: Vectors
    map_share: float
    self_similarity: NDArray[np.float64]


class WordUseCollector:
    """The texts that pass by: some of them, and the uses of some words, in constant memory."""

    def __init__(self, words: Sequence[str], texts: int) -> None:
        self._uses: dict[str, Sample[WordUse]] = {
            word: Sample(MAX_USES, Purpose.CONTEXT_USES) for word in words
        }
        self._texts: Sample[tuple[str, ...]] = Sample(texts)

    def add(self, words: tuple[str, ...], line: int) -> None:
        """Take a text; of a word that it has several times, the first."""
        self._texts.add(words)
        if self._uses:
            folded = [word.casefold() for word in words]
            for word, uses in self._uses.items():
                if word.casefold() in folded:
                    uses.add(WordUse(words, folded.index(word.casefold()), line))

    @property
    def texts(self) -> list[tuple[str, ...]]:
        """A sample of the texts."""
        return self._texts.items

    def uses(self, word: str) -> list[WordUse]:
        """Return a sample of the uses of a word."""
        return self._uses[word].items


def describe_uses(
    model: Model, tokenizer: Tokenizer, word: str, uses: Sequence[WordUse]
) -> WordFigures | None:
    """Return the figures of the uses of a word; None with fewer than `LEAST_USES`."""
    states = word_states(model, tokenizer, [use.words for use in uses])
    read = [
        (use, use_states)
        for use, use_states in zip(uses, states, strict=True)
        if use_states is not None and words_with_states(use_states)[use.place]
    ]
    if len(read) < LEAST_USES:
        return None
    vectors = np.stack([use_states[:, use.place] for use, use_states in read], 1).astype(np.float64)
    unit = unit_vectors(vectors)
    cosines = np.clip(unit @ unit.transpose(0, 2, 1), -1, 1)
    layers = range(1, len(vectors))
    results = [(*_clusters(cosines[layer]), layer) for layer in layers]
    clusters, silhouette, layer = max(results, key=lambda result: result[1])
    alike = cosines[layer] - 2 * np.eye(len(read))
    points, share = _plane(unit[layer])
    upper = np.triu_indices(len(read), 1)
    return WordFigures(
        word=word,
        uses=[use for use, _ in read],
        layer=layer,
        clusters=clusters,
        silhouette=silhouette,
        neighbours=np.argsort(-alike, axis=1, kind="stable")[:, :_NEIGHBOURS],
        points=points,
        map_share=share,
        self_similarity=cosines[:, upper[0], upper[1]].mean(1),
    )


def anisotropy(
    model: Model, tokenizer: Tokenizer, texts: Sequence[Sequence[str]]
) -> NDArray[np.float64] | None:
    """Return the mean cosine between two words of a sample by layer; None without two words."""
    states = [
        word_state[:, words_with_states(word_state)]
        for word_state in word_states(model, tokenizer, texts)
        if word_state is not None
    ]
    count = sum(state.shape[1] for state in states)
    if count < 2:
        return None
    chosen = random_subset(count, _ANY_WORDS, stream(Purpose.CONTEXT_WORDS))
    return mean_cosines(np.concatenate(states, 1)[:, chosen])


def mean_cosines(vectors: States) -> NDArray[np.float64]:
    """Return the mean cosine of two different vectors, (layers,) of (layers, words, hidden)."""
    unit = unit_vectors(vectors.astype(np.float64))
    count = unit.shape[1]
    all_products = (unit.sum(1) ** 2).sum(-1)
    own_products = (unit**2).sum((1, 2))
    return np.asarray(
        np.clip((all_products - own_products) / (count * (count - 1)), -1, 1), np.float64
    )


def _clusters(cosines: Vectors) -> tuple[NDArray[np.int64], float]:
    """Return the number of clusters with the best silhouette, the largest cluster first."""
    # importing it sets variables of the environment
    from sklearn.cluster import AgglomerativeClustering
    from sklearn.metrics import silhouette_score

    distances = np.clip(1 - cosines, 0, None)
    np.fill_diagonal(distances, 0)
    best: tuple[NDArray[np.int64], float] = (np.zeros(len(distances), np.int64), -1.0)
    for count in range(2, min(_MAX_CLUSTERS, len(distances) - 1) + 1):
        model = AgglomerativeClustering(n_clusters=count, metric="precomputed", linkage="average")
        labels = model.fit_predict(distances)
        score = float(silhouette_score(distances, labels, metric="precomputed"))
        if score > best[1]:
            best = (labels, score)
    sizes = np.bincount(best[0])
    rank = np.empty(len(sizes), np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    return rank[best[0]], best[1]


def _plane(vectors: Vectors) -> tuple[Vectors, float]:
    """Return the two principal components, and the share of variance that they keep."""
    centred = vectors - vectors.mean(0)
    directions, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    points = with_fixed_signs(directions[:, :2] * sizes[:2])
    total = float((sizes**2).sum())
    return points, float((sizes[:2] ** 2).sum() / total) if total else 1.0
