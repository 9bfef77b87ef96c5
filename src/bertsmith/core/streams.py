"""Random numbers as a pure function of (purpose, seed, epoch, index): nothing to carry or restore.

A stream is named by a `Purpose` and some numbers, and `stream` hashes the name into a key. The n-th
number of a stream is SplitMix64 (Steele, Lea & Flood 2014) started at the key and read at n, so any
number of any stream is had at once and in any order:

    key = stream(Purpose.MASKS, seed, epoch)
    bits(key, np.arange(8, 16))     # the same eight numbers whatever was drawn before

Streams of different names are independent. What is drawn of a stream may serve as keys in turn.
Other generators take the key as their seed: ``default_rng(int(key))``.
"""

from __future__ import annotations

import heapq
from enum import Enum, unique
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


@unique
class Purpose(Enum):
    """All purposes of random numbers in the program: a member each, so that no two share a stream.

    Below each stands what is drawn, and the numbers that its streams have besides. Results, and
    runs that go on, depend on a member's value: it is written out, never changed, and never given
    to another purpose, not even after its own is gone.
    """

    # sequences for pre-training
    SEQUENCE_ORDER = 1
    """Order of an epoch's sequences: seed, epoch."""
    CUTS = 2
    """Shift of the cuts of each document into windows: seed, epoch."""
    SHORT_SEQUENCES = 3
    """Sequences that end early, and where: seed, epoch."""
    PAIRS = 4
    """Places where windows are split into two segments, and their exchange: seed, epoch."""
    RANDOM_DOCUMENT = 5
    """Document of a random next sentence, and the place in it: seed, epoch, index."""
    COPY_ORDER = 6
    """Order of an epoch's sequences where copies of the text take turns: seed, epoch."""
    MASKS = 7
    """Tokens that are predicted, and what stands in their place: seed, epoch."""
    REPLACEMENTS = 9
    """Tokens that a generator puts in the place of those predicted: seed, epoch."""
    MINHASH = 8
    """Hash functions that find near duplicates."""

    # weights
    WEIGHTS = 20
    """Weights that a new model, or a new head, starts from: seed."""
    REINITIALISED_LAYERS = 21
    """Weights of top layers that are replaced before fine-tuning: seed."""
    NEIGHBOUR_ROWS = 22
    """Directions of the token table that starts from counts of neighbours: seed."""
    POSITION_FREQUENCIES = 23
    """Frequencies of the positions that go with it."""

    GENERATOR_WEIGHTS = 24
    """Weights that the generator of an ELECTRA starts from: seed."""
    PROJECTION = 25
    """Projection of a student's hidden states to its teacher's width: seed."""
    TEACHER_ROWS = 26
    """Directions of the token table that starts from a teacher's: seed."""

    # training
    DROPOUT = 30
    """Values that are dropped: seed, step, batch of the step."""
    EXAMPLE_ORDER = 31
    """Order of an epoch's examples in fine-tuning: seed, epoch."""
    DEV_SPLIT = 32
    """Examples held out to measure with: seed, stratum."""
    GRID_ORDER = 33
    """Order in which a grid's settings are tried: seed."""
    LEARNING_CURVE = 34
    """Examples that the points of a learning curve are trained on: seed."""
    AUGMENTATION = 35
    """Words that are replaced in copies of texts, and by what: seed, copy, row."""

    # baselines
    FROZEN_ROWS = 40
    """Examples that models on frozen vectors learn from."""
    LAYER_MIX = 41
    """Weights of the linear model that learns a mix of frozen layers."""
    TFIDF_ROWS = 42
    """Examples that TF-IDF learns from where all would take too long."""
    FOLDS = 43
    """Folds of cross-validation."""
    FOLD_ROWS = 44
    """Examples that cross-validation uses where all would take too long."""
    FROZEN_WORDS = 45
    """Words that models on frozen vectors learn from: seed."""
    WORD_ORDER = 46
    """Order in which a mix of frozen layers learns from words: seed, epoch."""

    # measuring
    BOOTSTRAP = 50
    """Examples drawn again, with replacement, for an interval: seed."""
    AGREEMENT = 51
    """Token ids that two models are compared on."""
    PEAK_PRODUCTS = 52
    """Matrices whose product measures the machine."""
    VOCABULARY_SAMPLE = 53
    """Paragraphs that show how well a vocabulary fits."""
    INSPECTED_TEXTS = 54
    """Texts of a corpus of which the costly figures are computed."""
    INSPECTED_MASKS = 55
    """Tokens that are masked to find the gradient of the loss by attention: number of the text."""
    CONTROL_TASK = 56
    """Outputs of a control task: hash of the word."""
    PROBE_WEIGHTS = 57
    """Weights that a probe starts from, and the order of what it learns from: layer."""
    PROBE_SPLIT = 58
    """Sentences on which probes are measured."""
    COMPARED_WORDS = 59
    """Words whose vectors two models are compared by."""

    EXPORT_CHECK = 67
    """Token ids that an exported model is compared on."""

    # demo
    DEMO_MODULES = 60
    """Modules whose text is for measuring."""
    DEMO_TEXTS = 61
    """Docstrings of a package: class number."""
    DEMO_QUERIES = 62
    """Docstrings to search for."""
    DEMO_SENTENCES = 63
    """Order in which sentences are tried for a missing word."""
    DEMO_PLACES = 64
    """Places beside the true one of a missing word: number of the sentence."""

    # words in context
    CONTEXT_USES = 65
    """Uses of a word that are looked at: number of the use."""
    CONTEXT_WORDS = 66
    """Words of the corpus that any two are compared of."""

    # inference
    CONTINUATION = 70
    """Tokens that a left-to-right model continues a text with: seed, number of the text."""
    WRITING = 71
    """Tokens that a model writes, and the order of their places: seed, number of the text."""
    DELETION = 72
    """Words that are deleted at random beside those of an attribution: seed, number of the text."""
    CALIBRATED_ANSWERS = 73
    """Answers that are right as often as their probabilities say."""


def bits(key: Bits | np.uint64, counter: NDArray[np.integer] | int) -> Bits:
    """Return 64 random bits for each key and counter, broadcast against each other."""
    with np.errstate(over="ignore"):
        mixed = np.asarray(key) + (np.asarray(counter).astype(np.uint64) + np.uint64(1)) * _STEP
        mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
        mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def stream(purpose: Purpose, *parts: int) -> np.uint64:
    """Return the key of the stream with a purpose and numbers, such as a seed and an epoch.

    Purpose and count of the numbers are hashed before the numbers, one after the other: names that
    differ in anything have the same key by a chance of 2^-64 only, and never where they differ in
    the last number alone. Numbers are taken modulo 2^64.
    """
    key = bits(np.uint64(purpose.value), len(parts))
    for part in parts:
        key = bits(key, part % 2**64)
    return np.uint64(key[()])


def uniform(key: Bits | np.uint64, counter: NDArray[np.integer] | int) -> NDArray[np.float64]:
    """Return uniform numbers in [0, 1) with 53 bits."""
    return np.asarray((bits(key, counter) >> np.uint64(11)) * 2.0**-53)


def random_integers(
    limit: NDArray[np.integer] | int, key: Bits | np.uint64, counter: NDArray[np.integer] | int
) -> NDArray[np.int64]:
    """Return integers in [0, limit); biased by less than limit / 2^64."""
    numbers = bits(key, counter) % np.asarray(limit).astype(np.uint64)
    return np.asarray(numbers, np.int64)


def permutation(size: int, key: np.uint64) -> NDArray[np.int64]:
    """Return range(size) in a random order, (size,)."""
    return permuted(np.arange(size), size, key)


def random_subset(size: int, count: int, key: np.uint64) -> NDArray[np.int64]:
    """Return `count` random numbers of range(size), ascending; all if there are no more."""
    return np.sort(permutation(size, key)[:count]) if count < size else np.arange(size)


def permuted(position: NDArray[np.integer], size: int, key: np.uint64) -> NDArray[np.int64]:
    """Return the images of positions under a random permutation of range(size), never stored.

    A Feistel network over the next even number of bits (Luby & Rackoff 1988), walked on until it
    lands below `size`; O(1) a position, whatever the size.
    """
    half = np.uint64(max(1, (max(size - 1, 1).bit_length() + 1) // 2))
    mask = (np.uint64(1) << half) - np.uint64(1)
    rounds = bits(key, np.arange(6))
    value = np.array(position, np.uint64)
    outside = np.ones(value.shape, bool)
    while outside.any():
        high, low = value[outside] >> half, value[outside] & mask
        for round_key in rounds:
            high, low = low, high ^ (bits(round_key, low) & mask)
        value[outside] = (high << half) | low
        outside = value >= size
    return value.astype(np.int64)


T = TypeVar("T")


class Sample(Generic[T]):
    """A sample of `size` items of a series of unknown length, each as likely as any other.

    It has those with the smallest random numbers, and the number of an item decides its own: the
    same series gives the same sample, in constant memory.
    """

    def __init__(self, size: int, purpose: Purpose = Purpose.INSPECTED_TEXTS) -> None:
        self._size, self._purpose = size, purpose
        self._heap: list[tuple[int, int, T]] = []
        self._count = 0

    def add(self, item: T) -> None:
        """Take the next item of the series, or not."""
        number, self._count = self._count, self._count + 1
        if not self._size:
            return
        key = (-int(stream(self._purpose, number)), number, item)
        if len(self._heap) < self._size:
            heapq.heappush(self._heap, key)
        elif key[0] > self._heap[0][0]:
            heapq.heapreplace(self._heap, key)

    @property
    def items(self) -> list[T]:
        """The items taken, in the order of the series."""
        return [item for _, _, item in sorted(self._heap, key=lambda entry: entry[1])]
