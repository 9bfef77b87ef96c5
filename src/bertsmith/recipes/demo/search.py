"""The demo's search: find a docstring's body by its first line, by meaning and by words.

BM25 counts words that query and text share (Robertson and Zaragoza 2009, section 3). The model
gives every text a vector: the mean over its tokens of a layer's hidden states, rare tokens weighing
more, without the direction common to all texts (Arora et al. 2017). The model has not been trained
to match first lines with bodies. The third method adds up both ranks (Cormack et al. 2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.log import console, say, table_of
from bertsmith.core.printable import printable
from bertsmith.core.streams import Purpose, permutation, stream
from bertsmith.engine.config import FeatureConfig
from bertsmith.engine.features import features
from bertsmith.network.model import Model
from bertsmith.recipes.demo.package_task import dev_modules
from bertsmith.text.corpus.documentation import ModuleText
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer

QUERIES, TEXTS = 300, 1500
BM25, VECTORS, BOTH = "BM25 (words)", "the model's vectors", "both ranks together"
HEADER = ("first %", "among ten %", "mean reciprocal rank %")
SHOWN = 3

_K1, _B = 1.2, 0.75
# of the sum of ranks (Cormack et al. 2009), and of the weight of a token (Arora et al. 2017)
_RANK, _WEIGHT = 60, 1e-3
_MIN_LENGTH, _MAX_LENGTH = 60, 600
_MIN_WORDS = 4
_SHOWN_CHARACTERS = 100

Ranks = NDArray[np.int64]
Scores = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Search:
    """First lines as queries, and the texts to search: text i is the answer to query i."""

    queries: list[str]
    texts: list[str]


@dataclass(frozen=True, kw_only=True)
class SearchOutcome:
    """The rank, from 1, of the right text of each query for each method, and what was found."""

    search: Search
    ranks: dict[str, Ranks]
    top_texts: dict[str, list[int]]
    """Number of the top text for the first queries, by method."""

    def rows(self) -> list[tuple[str, ...]]:
        """Return one row per method: share first, among ten, mean reciprocal rank, in per cent."""
        return [
            (name, *(f"{100 * figure:.1f}" for figure in figures.values()))
            for name, figures in self.to_dict().items()
        ]

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return the figures as plain JSON values."""
        return {
            name: {
                "first": float((ranks == 1).mean()),
                "among_ten": float((ranks <= 10).mean()),
                "mean_reciprocal_rank": float((1 / ranks).mean()),
            }
            for name, ranks in self.ranks.items()
        }

    def conclusion(self) -> str:
        """Return whether the vectors beat chance, and whether they beat the words in common."""
        words, vectors = (float((1 / self.ranks[name]).mean()) for name in (BM25, VECTORS))
        # by chance, every rank is equally probable
        by_chance = 1 / np.arange(1, len(self.search.texts) + 1)
        luck = by_chance.mean() + 2 * by_chance.std() / len(self.search.queries) ** 0.5
        shared = "the words that a line and its text have in common"
        if vectors <= luck:
            return f"the vectors find no more than chance would; {shared} are the hint"
        if vectors < words:
            return (
                "the vectors know a little of what texts are about, though nothing was trained for "
                f"it; {shared} are the better hint"
            )
        return f"the vectors know what texts are about, and more of it than {shared} tell"


def make_search(modules: list[ModuleText]) -> Search:
    """Make a search from docstrings of held-out modules: first line and body of each."""
    pairs: dict[str, str] = {}
    for module, is_dev in zip(modules, dev_modules(len(modules)), strict=True):
        if not is_dev:
            continue
        for line, *rest in module.docstrings:
            body = rest[0] if rest else ""
            if (
                _is_first_line(line)
                and _MIN_LENGTH <= len(body) <= _MAX_LENGTH
                and not _is_code(body)
            ):
                pairs.setdefault(line, body)
    # two docstrings with the same body are indistinguishable
    unique = {body: line for line, body in pairs.items()}
    examples = [(line, body) for body, line in unique.items()]
    order = permutation(len(examples), stream(Purpose.DEMO_QUERIES))
    chosen = [examples[index] for index in order[:TEXTS].tolist()]
    return Search(
        queries=[line for line, _ in chosen[:QUERIES]], texts=[body for _, body in chosen]
    )


def _is_first_line(line: str) -> bool:
    words = line.split()
    return _MIN_WORDS <= len(words) <= 15 and line[0].isupper() and line.endswith(".")


def _is_code(text: str) -> bool:
    return text.startswith((":", "-", ">>>", "*", "=", "..")) or text.count("=") > 3


def search_both_ways(search: Search, model: Model, tokenizer: Tokenizer) -> SearchOutcome:
    """Rank all texts for each query, by words, by vectors, and by both."""
    words = bm25_scores(search.queries, search.texts)
    meaning = vector_scores(search, model, tokenizer)
    both = _fused(words, meaning)
    scores = {BM25: words, VECTORS: meaning, BOTH: both}
    return SearchOutcome(
        search=search,
        ranks={name: _ranks_of_right(ranking) for name, ranking in scores.items()},
        top_texts={name: ranking[:SHOWN].argmax(1).tolist() for name, ranking in scores.items()},
    )


def print_search(outcome: SearchOutcome) -> None:
    """Print the score of each method, and its results for a query or two."""
    search = outcome.search
    say(
        f"7. search: which of {len(search.texts):,} docstrings has this first line? "
        f"{len(search.queries)} first lines; nothing was trained for it"
    )
    console.print(table_of(("", *HEADER), outcome.rows()))
    for number, query in enumerate(search.queries[:SHOWN]):
        say(f"{query}")
        for name in (BM25, VECTORS):
            chosen = outcome.top_texts[name][number]
            mark = "right" if chosen == number else "wrong"
            say(f"  {name}, {mark}: {printable(search.texts[chosen], _SHOWN_CHARACTERS)}")
    say(outcome.conclusion())


def bm25_scores(queries: Sequence[str], texts: Sequence[str]) -> Scores:
    """Return BM25 of every text for every query, (queries, texts)."""
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(token_pattern=r"(?u)\b\w+\b")
    counts = counter.fit_transform(texts).tocsc().astype(np.float64)
    lengths = np.asarray(counts.sum(1)).ravel()
    containing = counts.getnnz(axis=0)
    rarity = np.log(1 + (len(texts) - containing + 0.5) / (containing + 0.5))
    norms = _K1 * (1 - _B + _B * lengths / lengths.mean())
    weighed = counts.copy()
    weighed.data = counts.data * (_K1 + 1) / (counts.data + norms[counts.indices])
    query_weights = (counter.transform(queries) > 0).multiply(rarity)
    scores: Scores = (query_weights @ weighed.T).toarray()
    return scores


def vector_scores(search: Search, model: Model, tokenizer: Tokenizer) -> Scores:
    """Return the cosine of the vectors of every text and query, (queries, texts)."""
    tokens = [tokenizer.encode([text])[0] for text in search.texts]
    counts = np.bincount(np.concatenate(tokens), minlength=tokenizer.size)
    weights = _WEIGHT / (_WEIGHT + counts / counts.sum())
    sides = [_vectors(texts, model, tokenizer, weights) for texts in (search.queries, search.texts)]
    # the component common to all texts does not distinguish them
    together = np.concatenate(sides)
    center = together.mean(0)
    _, _, directions = np.linalg.svd(together - center, full_matrices=False)
    bare = [side - center - ((side - center) @ directions[:1].T) @ directions[:1] for side in sides]
    queries, texts = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in bare)
    scores: Scores = queries @ texts.T
    return scores


def _vectors(
    texts: Sequence[str], model: Model, tokenizer: Tokenizer, weights: NDArray[np.float64]
) -> Scores:
    """Return the weighted mean of each text's token vectors, (texts, hidden)."""
    rows = (
        Example(text=text, text_pair=None, label=None, source="demo", line=line)
        for line, text in enumerate(texts, 1)
    )
    config = FeatureConfig(layer="last", pool="token")
    vectors = []
    for item in features(model, tokenizer, rows, config):
        # special tokens have no characters
        token_vectors = item.vectors[item.spans[:, 1] > 0].astype(np.float64)
        share = weights[tokenizer.encode([item.example.text])[0][: len(token_vectors)]][:, None]
        vectors.append((token_vectors * share).sum(0) / share.sum())
    return np.stack(vectors)


def _fused(*scores: Scores) -> Scores:
    """Return the sum over methods of the reciprocal of each text's rank, plus a constant."""
    total: Scores = np.zeros_like(scores[0])
    for ranking in scores:
        ranks = (-ranking).argsort(1, kind="stable").argsort(1, kind="stable") + 1
        total += 1 / (_RANK + ranks)
    return total


def _ranks_of_right(scores: Scores) -> Ranks:
    """Return the rank from 1 of text i for query i; of equal scores the right one comes last."""
    right = scores[np.arange(len(scores)), np.arange(len(scores))][:, None]
    ranks: Ranks = (scores >= right).sum(1)
    return ranks
