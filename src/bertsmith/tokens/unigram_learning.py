"""A vocabulary for the likeliest cutting learned from a stream of texts (Kudo 2018, section 3.2).

Deterministic, unlike the compiled trainers: their sums depend on the order of a hash table.
"""

from __future__ import annotations

import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from heapq import nlargest
from itertools import groupby
from math import ceil, log
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from bertsmith.errors import VocabularyError
from bertsmith.tokens.accents import decide_accents
from bertsmith.tokens.alphabet import alphabet_of, check_coverage, choose_characters, refuse_small
from bertsmith.tokens.counting import BoundedCounter, characters_of
from bertsmith.tokens.observing import SILENT, LearningObserver
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.unigram import SPACE
from bertsmith.tokens.unigram_lattice import Lattice, Numbers, frequent_substrings
from bertsmith.tokens.unigram_rules import UnigramRules, lowered, normalised, tidied
from bertsmith.tokens.vocabulary import MOST_PIECES, UNIGRAM_SPECIALS

_MOST_WORDS = 100_000
_LONGEST_RUN = 24  # products of probabilities over more could vanish
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
    strip_accents: bool | None = None,
    character_coverage: float | None = None,
    min_frequency: int = 2,
    observer: LearningObserver = SILENT,
) -> Tokenizer:
    """Learn `size` pieces, of them 5 special tokens and the text's characters.

    `texts` is read once, in bounded memory, and learned from the commonest words. Begins with ten
    times as many stretches of text as are wanted, each met `min_frequency` times, estimates their
    probabilities, and takes out those that are missed least. `strip_accents` is decided from the
    text unless given: see `decide_accents`. The most frequent characters that make up a share
    `character_coverage` of the text are kept (see `choose_characters`); others are unknown. Raises
    `VocabularyError` when there is no text or `size` cannot hold the characters.
    """
    if not len(UNIGRAM_SPECIALS) < size <= MOST_PIECES:
        raise VocabularyError(
            f"a vocabulary of {size} pieces", remedy=f"choose a size of 100 to {MOST_PIECES}"
        )
    check_coverage(character_coverage)
    counter = BoundedCounter()
    for text in texts:
        counter.add(text.split())
    accents = decide_accents(counter.characters(), lowercase=lowercase, asked=strip_accents)
    rules = UnigramRules(scores=(), lowercase=lowercase, keep_accents=not accents.strip)
    runs = _count_runs(counter.counts, rules, observer)
    if not runs:
        raise VocabularyError(
            "there is no text to learn a vocabulary from", remedy="give a corpus with some words"
        )
    observer.decided(accents)
    counts = _character_counts(runs, counter.forgotten, rules)
    chosen = choose_characters(counts, character_coverage, size=size)
    characters = chosen | {SPACE}
    wanted = size - len(UNIGRAM_SPECIALS)
    if len(characters) > wanted:
        raise refuse_small(size, len(UNIGRAM_SPECIALS) + len(characters))
    observer.covered(alphabet_of(counts, chosen, entries=len(characters)))
    common = _commonest(runs, characters)
    # a character that is in none of these is a piece all the same
    met = {SPACE, *"".join(common)}
    common |= {each: counts[each] for each in sorted(characters - met)}
    pieces, scores = _learned(common, characters, wanted, min_frequency, observer)
    names = (*UNIGRAM_SPECIALS, *pieces)
    every = array("f", [0.0] * len(UNIGRAM_SPECIALS) + scores)
    return Tokenizer(names, replace(rules, scores=tuple(every)))


def _count_runs(
    stretches: Mapping[str, int], rules: UnigramRules, observer: LearningObserver
) -> Counter[str]:
    """How often each run of letters, digits or marks occurs, the first of a word marked.

    Longer runs, such as sentences without blanks, come in parts.
    """
    runs: Counter[str] = Counter()
    observer.phase("splitting words", len(stretches))
    for stretch, number in observer.each(stretches.items()):
        given = lowered(stretch) if rules.lowercase else stretch
        made = normalised(rules, (), tidied(rules, given), prefix=True)
        for run in _runs(made.text):
            # SentencePiece ends a piece at a zero
            if "\0" not in run:
                for start in range(0, len(run), _LONGEST_RUN):
                    runs[run[start : start + _LONGEST_RUN]] += number
    return runs


def _character_counts(
    runs: Counter[str], forgotten: Mapping[str, int], rules: UnigramRules
) -> Counter[str]:
    """How often each character occurs, in stretches that are no longer counted too; no blanks."""
    counts = characters_of(runs)
    del counts[SPACE]
    for character, number in forgotten.items():
        for each in tidied(rules, lowered(character) if rules.lowercase else character):
            counts[each] += number
    return counts


def _commonest(runs: Counter[str], characters: frozenset[str]) -> dict[str, int]:
    """The runs to learn from: all that are known, or the commonest.

    Of those that are equally common, a choice that favours no letters.
    """
    known = ((run, number) for run, number in runs.items() if characters.issuperset(run))
    return dict(nlargest(_MOST_WORDS, known, key=_importance))


def _importance(item: tuple[str, int]) -> tuple[int, int, str]:
    run, number = item
    return number, crc32(run.encode("utf-8", "surrogatepass")), run


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


def _learned(
    runs: dict[str, int],
    characters: frozenset[str],
    wanted: int,
    min_frequency: int,
    observer: LearningObserver,
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
    observer.phase("estimating pieces", _rounds(len(found.pieces), wanted), "rounds")
    while True:
        for _ in range(_ROUNDS):
            observer.advance()
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


def _rounds(count: int, wanted: int) -> int:
    """The most rounds of estimation until so many pieces are nearly as many as wanted."""
    fewer = log(max(count, 1) / (_SPARE * wanted)) / -log(_KEPT)
    return _ROUNDS * (1 + max(0, ceil(fewer)))


def _shares(expected: Numbers, alive: NDArray[np.bool_]) -> Numbers:
    return np.where(alive, np.exp(_scores(expected, alive)), 0.0)


def _scores(expected: Numbers, alive: NDArray[np.bool_]) -> Numbers:
    """Logarithms of probabilities that favour few pieces (variational Bayes, Liang et al. 2007)."""
    from scipy.special import digamma

    counts = np.maximum(expected, _LEAST_EXPECTED)
    scores: Numbers = digamma(counts) - digamma(counts[alive].sum())
    return scores
