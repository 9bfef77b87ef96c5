"""Counting of a corpus's words in bounded memory, and observation of the learning."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from typing import TypeVar

from bertsmith.tokens.basic import CJK_RANGES, BasicRules
from bertsmith.tokens.learning.alphabet import AccentDecision, Alphabet
from bertsmith.tokens.wordpiece import LONGEST_WORD

_Item = TypeVar("_Item")
_STEP = 1000


class LearningObserver:
    """Observer of the progress and decisions of learning. The base class does nothing."""

    def phase(self, name: str, total: float | None, unit: str = "") -> None:
        """Begin a phase of `total` steps, None if unknown."""

    def advance(self, amount: float = 1) -> None:
        """Advance the current phase."""

    def decided(self, accents: AccentDecision) -> None:
        """Receive the decision about accents."""

    def covered(self, alphabet: Alphabet) -> None:
        """Receive the characters that are kept."""

    def each(self, items: Collection[_Item]) -> Iterator[_Item]:
        """Yield items, advancing by one step each."""
        for number, item in enumerate(items, 1):
            yield item
            if number % _STEP == 0:
                self.advance(_STEP)


SILENT = LearningObserver()


_MOST_CHUNKS = 2_000_000
_PART = 10_000


class BoundedCounter:
    """A `Counter` in `counts` of at most two million entries, which drops the rarest.

    So rare entries are undercounted. The characters of dropped entries are counted in `forgotten`:
    a text without blanks consists of rare chunks.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.forgotten: Counter[str] = Counter()

    def add(self, chunks: Iterable[str]) -> None:
        """Count some chunks of text."""
        self.counts.update(chunks)
        lowest = 1
        while len(self.counts) > _MOST_CHUNKS:
            for rare in range(lowest // 2 + 1, lowest + 1):
                every = "".join(chunk for chunk, n in self.counts.items() if n == rare)
                for character, number in Counter(every).items():
                    self.forgotten[character] += rare * number
            self.counts = Counter({chunk: n for chunk, n in self.counts.items() if n > lowest})
            lowest *= 2

    def characters(self) -> Counter[str]:
        """Return the count of each character, including dropped chunks."""
        characters = characters_of(self.counts)
        characters.update(self.forgotten)
        return characters


class WordCounter:
    """Counts the words of a stream of texts in bounded memory.

    It counts chunks between blanks first, so the rules run once for each distinct one. With
    `ideographs` each of these is a chunk, as a text of them has few blanks.
    """

    def __init__(self, *, ideographs: bool = True) -> None:
        self._ideographs = ideographs
        self._stretches = BoundedCounter()

    def add(self, text: str) -> None:
        """Count the words of a text."""
        if self._ideographs and not text.isascii():
            self._stretches.add(_stretches().findall(text))
        else:
            self._stretches.add(text.split())

    @property
    def stretches(self) -> Mapping[str, int]:
        """Return the count of each chunk between blanks."""
        return self._stretches.counts

    def characters(self) -> Counter[str]:
        """Return the count of each character, before normalisation."""
        return self._stretches.characters()

    def forgotten(self) -> Counter[str]:
        """Return the character counts of dropped chunks."""
        return self._stretches.forgotten

    def words(self, rules: BasicRules, observer: LearningObserver = SILENT) -> Counter[str]:
        """Return the count of each word of up to 100 characters, in order of first occurrence."""
        words: Counter[str] = Counter()
        observer.phase("splitting words", len(self.stretches))
        for stretch, number in observer.each(self.stretches.items()):
            for word in rules.words(stretch):
                if len(word) <= LONGEST_WORD:
                    words[word] += number
        return words


def count_words(texts: Iterable[str], rules: BasicRules) -> Counter[str]:
    """Return the count of each word, in order of first occurrence; see `WordCounter`."""
    counter = WordCounter(ideographs=rules.space_cjk)
    for text in texts:
        counter.add(text)
    return counter.words(rules)


def characters_of(chunks: Mapping[str, int]) -> Counter[str]:
    """Return the count of each character in chunks with counts."""
    characters: Counter[str] = Counter()
    for chunk, number in chunks.items():
        for character in chunk:
            characters[character] += number
    return characters


@cache
def _stretches() -> re.Pattern[str]:
    """Return a pattern of single ideographs, and of other runs between blanks.

    Unassigned code points are removed by the rules and separate nothing.
    """
    assigned = "".join(
        chr(code)
        for first, last in CJK_RANGES
        for code in range(first, last + 1)
        if unicodedata.category(chr(code)) != "Cn"
    )
    ideograph = "".join(f"{run[0]}-{run[-1]}" for run in _runs(assigned))
    return re.compile(rf"[{ideograph}]|[^\s{ideograph}]+")


def _runs(characters: str) -> Iterator[str]:
    """Yield runs of characters with consecutive code points."""
    start = 0
    for place in range(1, len(characters) + 1):
        if place == len(characters) or ord(characters[place]) != ord(characters[place - 1]) + 1:
            yield characters[start:place]
            start = place


def repeated(words: Mapping[str, int], observer: LearningObserver = SILENT) -> Iterator[str]:
    """Yield each word as often as it was counted: the compiled trainers take text, not counts.

    The trainer's next phase, merging pairs, cannot be observed from outside.
    """
    observer.phase("counting pairs", sum(words.values()), "words")
    for word, number in words.items():
        for done in range(0, number, _PART):
            part = min(_PART, number - done)
            yield f"{word} " * part
            observer.advance(part)
    observer.phase("joining pairs", None)
