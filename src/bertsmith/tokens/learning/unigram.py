"""Learning of a unigram vocabulary from a stream of texts (Kudo 2018, section 3.2).

Deterministic, unlike the compiled trainers: their sums depend on the order of a hash table. The
same on every chip, too: see `elementary`.
"""

from __future__ import annotations

import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from heapq import nlargest
from itertools import groupby
from math import ceil, log
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from bertsmith.tokens.folder.xlm import arranged
from bertsmith.tokens.learning.counting import (
    MAX_LETTERS,
    SILENT,
    BoundedCounter,
    LearningObserver,
    alphabet_of,
    characters_of,
    check_coverage,
    check_size,
    choose_characters,
    decide_accents,
    refuse_empty,
    refuse_small,
)
from bertsmith.tokens.learning.elementary import digamma, exp
from bertsmith.tokens.normalisation import (
    SPACE,
    PlainRules,
    UnigramRules,
    compiled,
    lowered,
    normalised,
    tidied,
)
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import UNIGRAM_SPECIALS

Integers = NDArray[np.int64]
Numbers = NDArray[np.float64]

MAX_PIECE_LENGTH = 16
BLANKS = {chr(n): " " for n in range(0x3001) if chr(n).isspace() and chr(n) != " "}
"""White space that becomes a blank, for programs that would not split at it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Substrings:
    """The frequent substrings of some words: `pieces` by number, with their counts.

    `at` (lengths, positions): the number of the substring of each length at each position of the
    concatenated words, -1 for none; row 0 is of length 1. `begins` (words + 1,) are the words'
    first positions, and the end; `first` (pieces,) is a position of each piece.
    """

    pieces: list[str]
    counts: Numbers
    at: NDArray[np.int32]
    begins: Integers
    first: Integers


def frequent_substrings(
    words: Sequence[str], counts: Sequence[int], *, rarest: int, max_count: int
) -> Substrings:
    """Return all single characters, and the longer substrings that cover most of the text.

    These occur `rarest` times; of them the `max_count` with the largest product of length and
    count are returned.
    """
    text = "".join(words)
    sizes = np.fromiter(map(len, words), np.int64, len(words))
    begins = np.concatenate([[0], np.cumsum(sizes)])
    remaining = np.repeat(begins[1:], sizes) - np.arange(len(text))
    weights = np.repeat(np.asarray(counts, np.float64), sizes)
    _, codes = np.unique(np.frombuffer(text.encode("utf-32-le"), np.uint32), return_inverse=True)
    at = np.full((MAX_PIECE_LENGTH, len(text)), -1, np.int32)
    all_counts: list[Numbers] = []
    all_first: list[Integers] = []
    places, keys, known = np.arange(len(text)), codes.astype(np.int64), 0
    for length in range(1, MAX_PIECE_LENGTH + 1):
        _, first, numbers = np.unique(keys, return_index=True, return_inverse=True)
        totals = np.bincount(numbers, weights[places]).astype(np.float64, copy=False)
        frequent = totals >= (rarest if length > 1 else 0)
        renumbered = np.where(frequent, np.cumsum(frequent) - 1 + known, -1)[numbers]
        at[length - 1, places] = renumbered
        all_counts.append(totals[frequent])
        all_first.append(places[first[frequent]])
        known += int(frequent.sum())
        going_on = (renumbered >= 0) & (remaining[places] > length)
        places = places[going_on]
        keys = renumbered[going_on] * (int(codes.max()) + 1) + codes[places + length]
        if not len(places):
            break
    lengths = np.repeat(np.arange(1, len(all_first) + 1), list(map(len, all_first)))
    first, totals = np.concatenate(all_first), np.concatenate(all_counts)
    order = np.lexsort((first, -lengths * totals, lengths > 1))
    chosen = order[: int((lengths == 1).sum()) + max_count]
    numbers = np.full(len(first) + 1, -1, np.int32)
    numbers[chosen] = np.arange(len(chosen))
    return Substrings(
        pieces=[text[first[n] : first[n] + lengths[n]] for n in chosen.tolist()],
        counts=totals[chosen],
        at=numbers[at].astype(np.int32, copy=False),
        begins=begins,
        first=first[chosen],
    )


class Lattice:
    """The segmentation lattice of some substrings of the words, for forward and backward passes."""

    def __init__(self, result: Substrings, starts: Integers, sizes: Integers) -> None:
        """The substrings begin at `starts` in the words and have `sizes` characters."""
        nodes = np.concatenate([[0], np.cumsum(sizes + 1)])
        inside = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        places = np.repeat(starts, sizes) + inside
        remaining = np.repeat(sizes, sizes) - inside
        rows: list[tuple[NDArray[np.int32], ...]] = []
        for length in range(1, min(MAX_PIECE_LENGTH, int(sizes.max(initial=0))) + 1):
            pieces = result.at[length - 1, places]
            valid = (pieces >= 0) & (remaining >= length)
            node = (np.repeat(nodes[:-1], sizes) + inside)[valid]
            rows.append(
                tuple(
                    part.astype(np.int32)
                    for part in (
                        node,
                        node + length,
                        inside[valid],
                        inside[valid] + length,
                        pieces[valid],
                    )
                )
            )
        parts = [np.concatenate(part) for part in zip(*rows, strict=True)]
        self.nodes = int(nodes[-1])
        self.first, self.last = nodes[:-1], nodes[1:] - 1
        self.start, self.end, self._from, self._to, self.piece = parts
        self.owner = np.repeat(np.arange(len(sizes)), sizes + 1)

    def without(self, removed: NDArray[np.bool_]) -> None:
        """Remove the edges of the pieces (pieces,) that are gone."""
        self._select(~removed[self.piece])

    def without_whole(self) -> None:
        """Remove the edges that span all of substring i with piece i."""
        self._select(self.piece != self.owner[self.start])

    def _select(self, kept: NDArray[np.bool_]) -> None:
        for name in ("start", "end", "_from", "_to", "piece"):
            setattr(self, name, getattr(self, name)[kept])

    def expected(self, shares: Numbers, weights: Numbers) -> Numbers:
        """Return the expected count of each piece, over all segmentations of all substrings."""
        chance = shares[self.piece]
        forward, backward = np.zeros(self.nodes), np.zeros(self.nodes)
        forward[self.first] = backward[self.last] = 1
        for edges in _levels(self._to):
            step = forward[self.start[edges]] * chance[edges]
            np.add.at(forward, self.end[edges], step)
        for edges in reversed(_levels(self._from)):
            step = backward[self.end[edges]] * chance[edges]
            np.add.at(backward, self.start[edges], step)
        chances = (weights / forward[self.last])[self.owner[self.start]]
        chances = chances * forward[self.start] * chance * backward[self.end]
        return np.bincount(self.piece, chances, len(shares)).astype(np.float64, copy=False)

    def best(self, scores: Numbers) -> Numbers:
        """Return the score of the best segmentation of each substring."""
        sums = np.full(self.nodes, -np.inf)
        sums[self.first] = 0
        for edges in _levels(self._to):
            step = sums[self.start[edges]] + scores[self.piece[edges]]
            np.maximum.at(sums, self.end[edges], step)
        best_sums: Numbers = sums[self.last]
        return best_sums


def _levels(positions: NDArray[np.int32]) -> list[Integers]:
    """Return the edges of each position within a word, in order."""
    order = np.argsort(positions, kind="stable")
    bounds = np.flatnonzero(np.diff(positions[order])) + 1
    return np.split(order, bounds)


_MAX_WORDS = 100_000
_MANY = 10
_MAX_RUN_LENGTH = 24  # products of probabilities over more could underflow
_SEEDS = 10  # times the size
_ROUNDS = 2  # of estimation before pieces are removed
_KEPT = 0.75  # of the pieces, each time
_SPARE = 1.1
_MIN_EXPECTED = 0.5


def learn_unigram(
    texts: Iterable[str],
    *,
    size: int = 30_000,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    character_coverage: float | None = None,
    min_frequency: int = 2,
    plain: bool = False,
    observer: LearningObserver = SILENT,
) -> Tokenizer:
    """Learn `size` pieces, including 5 special tokens and the text's characters.

    `texts` is read once, in bounded memory, and the most common words are used. Learning begins
    with ten times as many substrings as needed, each occurring `min_frequency` times, estimates
    their probabilities, and removes those with the smallest loss of likelihood. `strip_accents` is
    decided from the text unless given: see `decide_accents`. The most frequent characters that make
    up a share `character_coverage` of the text are kept (see `choose_characters`); others are
    unknown. A `plain` vocabulary is XLM-RoBERTa's: cased, with all accents, without ALBERT's rules.
    Raises `VocabularyError` if there is no text or `size` cannot hold the characters.
    """
    check_size(size, len(UNIGRAM_SPECIALS))
    check_coverage(character_coverage)
    # no trainer takes more of them than fits
    counter = BoundedCounter(letters=_MANY * MAX_LETTERS)
    for text in texts:
        counter.add(text.split())
    requested = False if plain else strip_accents
    accents = decide_accents(
        counter.characters(), lowercase=lowercase and not plain, requested=requested
    )
    rules = UnigramRules(scores=(), lowercase=lowercase, keep_accents=not accents.strip)
    if plain:
        rules = PlainRules(scores=(), charsmap=compiled(BLANKS))
    runs = _count_runs(counter.counts, rules, observer)
    if not runs:
        raise refuse_empty()
    observer.decided(accents)
    observer.forgotten(counter.forgotten_share())
    counts = characters_of(runs)
    # the characters of dropped chunks, as they are after the rules
    counts.update(characters_of(_count_runs(counter.forgotten, rules, SILENT)))
    del counts[SPACE]
    chosen = choose_characters(counts, character_coverage, size=size)
    characters = chosen | {SPACE}
    wanted = size - len(UNIGRAM_SPECIALS)
    if len(characters) > wanted:
        raise refuse_small(size, len(UNIGRAM_SPECIALS) + len(characters))
    observer.covered(alphabet_of(counts, chosen, entries=len(characters)))
    common = _commonest(runs, characters)
    # a character that is in none of these is a piece nevertheless
    seen = {SPACE, *"".join(common)}
    common |= {character: counts[character] for character in sorted(characters - seen)}
    pieces, scores = _learned(common, characters, wanted, min_frequency, observer)
    if plain:
        arranged_pieces, arrangement = arranged(pieces, array("f", scores))
        return Tokenizer(arranged_pieces, replace(rules, scores=arrangement.scores))
    names = (*UNIGRAM_SPECIALS, *pieces)
    every = array("f", [0.0] * len(UNIGRAM_SPECIALS) + scores)
    return Tokenizer(names, replace(rules, scores=tuple(every)))


def _count_runs(
    stretches: Mapping[str, int], rules: UnigramRules, observer: LearningObserver
) -> Counter[str]:
    """Return the count of each run of letters, digits or marks, the first of a word marked.

    Long runs, such as sentences without blanks, are split.
    """
    runs: Counter[str] = Counter()
    observer.phase("splitting words", len(stretches))
    for stretch, number in observer.each(stretches.items()):
        lowered_run = lowered(stretch) if rules.lowercase else stretch
        made = normalised(rules, {}, tidied(rules, lowered_run), prefix=True)
        for run in _runs(made.text):
            # SentencePiece ends a piece at a zero character
            if "\0" not in run:
                for start in range(0, len(run), _MAX_RUN_LENGTH):
                    runs[run[start : start + _MAX_RUN_LENGTH]] += number
    return runs


def _commonest(runs: Counter[str], characters: frozenset[str]) -> dict[str, int]:
    """Return the most common runs without unknown characters, to learn from.

    Ties are broken by a hash, which favours no letters.
    """
    known = ((run, number) for run, number in runs.items() if characters.issuperset(run))
    return dict(nlargest(_MAX_WORDS, known, key=_importance))


def _importance(item: tuple[str, int]) -> tuple[int, int, str]:
    run, number = item
    return number, crc32(run.encode("utf-8", "surrogatepass")), run


def _runs(text: str) -> Iterator[str]:
    """Yield runs of letters with marks, of digits, and of others: no piece mixes them."""
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
    """Return pieces and the logarithms of their probabilities, the most probable first."""
    words = [SPACE, *runs]  # the mark itself is always a piece
    result = frequent_substrings(
        words, [1, *runs.values()], rarest=min_frequency, max_count=_SEEDS * wanted
    )
    sizes = np.diff(result.begins)
    lattice = Lattice(result, result.begins[:-1], sizes)
    lengths = np.fromiter(map(len, result.pieces), np.int64, len(result.pieces))
    others = Lattice(result, result.first, lengths)
    others.without_whole()
    single = lengths == 1
    weights = np.array([1, *runs.values()], np.float64)
    alive = np.ones(len(result.pieces), np.bool_)
    expected = result.counts
    observer.phase("estimating pieces", _rounds(len(result.pieces), wanted), "rounds")
    while True:
        for _ in range(_ROUNDS):
            observer.advance()
            expected = lattice.expected(_shares(expected, alive), weights)
            removed = alive & ~single & (expected < _MIN_EXPECTED)
            alive &= ~removed
            lattice.without(removed)
            others.without(removed)
        count = int(alive.sum())
        if count <= max(_SPARE * wanted, wanted + 1):
            break
        scores = _scores(expected, alive)
        missed = expected * (scores - others.best(scores))
        missed[~alive], missed[single] = -np.inf, np.inf
        kept = max(int(_SPARE * wanted), int(_KEPT * count))
        removed = alive.copy()
        removed[np.argsort(-missed, kind="stable")[:kept]] = False
        alive &= ~removed
        lattice.without(removed)
        others.without(removed)
    # as saved: what differs by rounding alone is equal
    scores = _scores(expected, alive).astype(np.float32)
    worth = np.where(single, np.inf, np.where(alive, scores, -np.inf))
    chosen = np.argsort(-worth, kind="stable")[: min(wanted, int(alive.sum()))]
    ranked = sorted(chosen.tolist(), key=lambda n: (-scores[n], result.pieces[n]))
    assert characters >= {result.pieces[n] for n in np.flatnonzero(single).tolist()}
    return [result.pieces[n] for n in ranked], [float(scores[n]) for n in ranked]


def _rounds(count: int, wanted: int) -> int:
    """Return the maximum number of estimation rounds until `count` pieces are nearly `wanted`."""
    fewer = log(max(count, 1) / (_SPARE * wanted)) / -log(_KEPT)
    return _ROUNDS * (1 + max(0, ceil(fewer)))


def _shares(expected: Numbers, alive: NDArray[np.bool_]) -> Numbers:
    shares = np.zeros(len(expected))
    shares[alive] = exp(_scores(expected, alive)[alive])
    return shares


def _scores(expected: Numbers, alive: NDArray[np.bool_]) -> Numbers:
    """Return log-probabilities that favour few pieces (variational Bayes, Liang et al. 2007).

    Pieces that are not alive have none.
    """
    counts = np.maximum(expected[alive], _MIN_EXPECTED)
    total = np.cumsum(counts)[-1:]  # in order, where sum() may add up in any
    scores = np.zeros(len(expected))
    scores[alive] = digamma(counts) - digamma(total)
    return scores
