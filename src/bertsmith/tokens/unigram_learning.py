"""A vocabulary for the likeliest cutting learned from a stream of texts (Kudo 2018, section 3.2).

Deterministic, unlike the compiled trainers: their sums depend on the order of a hash table.
"""

from __future__ import annotations

import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from heapq import nlargest
from itertools import groupby, islice

import numpy as np
from numpy.typing import NDArray

from bertsmith.errors import VocabularyError
from bertsmith.tokens.counting import BoundedCounter
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.unigram import SPACE
from bertsmith.tokens.unigram_lattice import Lattice, Numbers, frequent_substrings
from bertsmith.tokens.unigram_rules import UnigramRules, lowered, normalised, tidied
from bertsmith.tokens.vocabulary import MOST_PIECES, UNIGRAM_SPECIALS

_MOST_WORDS = 100_000
_LONGEST_RUN = 24  # products of probabilities over more could vanish
_LARGEST_ALPHABET = 1000
_SEEDS = 10  # times the size
_ROUNDS = 2  # of estimation before pieces are taken out
_KEPT = 0.75  # of the pieces, each time
_SPARE = 1.1
_LEAST_EXPECTED = 0.5


def learn_unigram(
    texts: Iterable[str],
    *,
    size: int = 30_000,
    lowercase: bool = True,
    keep_accents: bool = False,
    min_frequency: int = 2,
) -> Tokenizer:
    """Learn `size` pieces, of them 5 special tokens and the text's characters.

    `texts` is read once, in bounded memory, and learned from the commonest words. Begins with ten
    times as many stretches of text as are wanted, each met `min_frequency` times, estimates their
    probabilities, and takes out those that are missed least. Characters beyond the most frequent
    (a sixteenth of `size`, 256 to 1,000) are unknown. Raises `VocabularyError` when there is no
    text or `size` cannot hold the characters.
    """
    if not len(UNIGRAM_SPECIALS) < size <= MOST_PIECES:
        raise VocabularyError(
            f"a vocabulary of {size} pieces", remedy=f"choose a size of 100 to {MOST_PIECES}"
        )
    rules = UnigramRules(scores=(), lowercase=lowercase, keep_accents=keep_accents)
    runs = _count_runs(texts, rules)
    if not runs:
        raise VocabularyError(
            "there is no text to learn a vocabulary from", remedy="give a corpus with some words"
        )
    characters = _characters(runs, min(max(size // 16, 256), _LARGEST_ALPHABET))
    known = {run: number for run, number in runs.items() if characters.issuperset(run)}
    wanted = size - len(UNIGRAM_SPECIALS)
    if len(characters) > wanted:
        raise VocabularyError(
            f"{size} pieces cannot hold the special tokens and the text's alphabet",
            remedy=f"choose a size of at least {2 * (len(UNIGRAM_SPECIALS) + len(characters))}",
        )
    common = nlargest(_MOST_WORDS, known.items(), key=lambda item: (item[1], item[0]))
    pieces, scores = _learned(dict(common), characters, wanted, min_frequency)
    names = (*UNIGRAM_SPECIALS, *pieces)
    every = array("f", [0.0] * len(UNIGRAM_SPECIALS) + scores)
    return Tokenizer(
        names,
        UnigramRules(scores=tuple(every), lowercase=lowercase, keep_accents=keep_accents),
    )


def _count_runs(texts: Iterable[str], rules: UnigramRules) -> Counter[str]:
    """How often each run of letters, digits or marks occurs, the first of a word marked."""
    counter = BoundedCounter()
    for text in texts:
        counter.add(text.split())
    runs: Counter[str] = Counter()
    for chunk, number in counter.counts.items():
        given = lowered(chunk) if rules.lowercase else chunk
        made = normalised(rules, (), tidied(rules, given), prefix=True)
        for run in _runs(made.text):
            # SentencePiece ends a piece at a zero
            if len(run) <= _LONGEST_RUN and "\0" not in run:
                runs[run] += number
    return runs


def _runs(text: str) -> Iterator[str]:
    """Letters with their marks, digits, and what else there is: no piece holds two of these."""
    space = ""
    for kind, letters in groupby(text, _kind):
        run = "".join(letters)
        yield from (space + run,) if kind != SPACE else ()
        space = SPACE if kind == SPACE else ""


@cache
def _kind(character: str) -> str:
    if character == SPACE:
        return SPACE
    kind = unicodedata.category(character)[0]
    return {"M": "L"}.get(kind, kind) if kind in "LMN" else "other"


def _characters(runs: Counter[str], limit: int) -> set[str]:
    counts: Counter[str] = Counter()
    for run, number in runs.items():
        for character in run:
            counts[character] += number
    counts[SPACE] = sum(counts.values())  # whatever the text, a blank can be told
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return {character for character, _ in islice(ranked, limit)}


def _learned(
    runs: dict[str, int], characters: set[str], wanted: int, min_frequency: int
) -> tuple[list[str], list[float]]:
    """Pieces and the logarithms of their probabilities, the likeliest first."""
    words = [SPACE, *runs]  # the mark by itself is a piece in any case
    found = frequent_substrings(
        words, [1, *runs.values()], rarest=min_frequency, most=_SEEDS * wanted
    )
    sizes = np.diff(found.begins)
    lattice = Lattice(found, found.begins[:-1], sizes)
    lengths = np.fromiter(map(len, found.pieces), np.int64, len(found.pieces))
    others = Lattice(found, found.first, lengths)
    others.without_whole()
    single = lengths == 1
    weights = np.array([1, *runs.values()], np.float64)
    alive = np.ones(len(found.pieces), np.bool_)
    expected = found.counts
    while True:
        for _ in range(_ROUNDS):
            expected = lattice.expected(_shares(expected, alive), weights)
            gone = alive & ~single & (expected < _LEAST_EXPECTED)
            alive &= ~gone
            lattice.without(gone)
            others.without(gone)
        count = int(alive.sum())
        if count <= max(_SPARE * wanted, wanted + 1):
            break
        scores = _scores(expected, alive)
        missed = expected * (scores - others.best(scores))
        missed[~alive], missed[single] = -np.inf, np.inf
        kept = max(int(_SPARE * wanted), int(_KEPT * count))
        gone = alive.copy()
        gone[np.argsort(-missed, kind="stable")[:kept]] = False
        alive &= ~gone
        lattice.without(gone)
        others.without(gone)
    scores = _scores(expected, alive)
    worth = np.where(single, np.inf, np.where(alive, scores, -np.inf))
    chosen = np.argsort(-worth, kind="stable")[: min(wanted, int(alive.sum()))]
    ranked = sorted(chosen.tolist(), key=lambda n: (-scores[n], found.pieces[n]))
    assert characters >= {found.pieces[n] for n in np.flatnonzero(single).tolist()}
    return [found.pieces[n] for n in ranked], [float(scores[n]) for n in ranked]


def _shares(expected: Numbers, alive: NDArray[np.bool_]) -> Numbers:
    return np.where(alive, np.exp(_scores(expected, alive)), 0.0)


def _scores(expected: Numbers, alive: NDArray[np.bool_]) -> Numbers:
    """Logarithms of probabilities that favour few pieces (variational Bayes, Liang et al. 2007)."""
    from scipy.special import digamma

    counts = np.maximum(expected, _LEAST_EXPECTED)
    scores: Numbers = digamma(counts) - digamma(counts[alive].sum())
    return scores
