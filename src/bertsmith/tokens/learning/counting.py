"""Counts of a corpus's words and characters, the alphabet they suggest, and a vocabulary's fit.

BERT's uncased models decompose every character (NFD) and drop the combining marks. In English this
turns café into cafe. In Hindi it removes vowels, in Japanese the voicing of kana, in Vietnamese the
tones, and Korean syllables are split into their letters: other words, or none. So accents are kept
where dropping them would change such words.

The fit of a vocabulary is defined once for all kinds and all commands: pieces per word are the
tokens of a text, without special tokens, divided by the words separated by white space, as in
`len(tokenizer.tokenize(text)) / len(text.split())` with `transformers`."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Final, Literal, TypeVar

import numpy as np

from bertsmith.core.errors import VocabularyError
from bertsmith.core.normal_forms import normalize
from bertsmith.text.corpus.documents import TextSize, size_of
from bertsmith.text.white_space import tidy
from bertsmith.tokens.basic import BasicRules, code_ranges, ideographs
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import MAX_PIECES
from bertsmith.tokens.wordpiece import MAX_WORD_LENGTH

COVERAGE: Final = 0.9995
"""Default share of a text's characters to keep."""

_MANY_LOST = 0.001
_UNASSIGNED = f"for private use or not in Unicode {unicodedata.unidata_version}"
_OTHER_KINDS = "--kind unigram and --kind byte-bpe read them"
_CHEAP = 16  # rarer characters are kept too, up to one in 16 entries


@dataclass(frozen=True, slots=True, kw_only=True)
class Alphabet:
    """The characters of a text that are kept."""

    kept: frozenset[str]
    left_out: int
    """Number of distinct characters that are not."""
    share: float
    """Share of the text's characters that are kept, 0 to 1."""
    entries: int
    """Number of vocabulary entries that the characters take."""
    too_long: float = 0.0
    """Share of the text's characters in words of over 100, none of which WordPiece knows."""
    dropped: float = 0.0
    """Share of the text's characters that the rules of BERT drop: see `dropped_characters`."""

    def warning(self, unknown: str) -> str:
        """Return a line about characters that WordPiece does not read, "" if they are few."""
        lines = []
        if self.dropped >= _MANY_LOST:
            lines.append(
                f"warning: {100 * self.dropped:.2f} % of the characters are {_UNASSIGNED}, and "
                f"WordPiece drops them without a trace, as in BERT; {_OTHER_KINDS}"
            )
        if self.too_long >= _MANY_LOST:
            lines.append(
                f"warning: {100 * self.too_long:.2f} % of the characters are in words of more than "
                f"{MAX_WORD_LENGTH}, which become {unknown} as a whole; --kind unigram reads them, "
                "or put blanks between words"
            )
        return "\n".join(lines)

    def describe(self, unknown: str) -> str:
        """Return a line about the characters that are kept and left out."""
        if not self.left_out:
            return f"alphabet: all {len(self.kept):,} kinds of characters in the text"
        noun = "kind of character" if self.left_out == 1 else "kinds of characters"
        return (
            f"alphabet: {len(self.kept):,} kinds of characters, "
            f"{100 * self.share:.3f} % of the text; {self.left_out:,} rarer {noun} left out "
            f"({100 * (1 - self.share):.3f} %), which become {unknown}"
        )


def check_size(size: int, held: int, *, advised: int = 100) -> None:
    """Raise `VocabularyError` unless there is room for more than `held` pieces, and not too much.

    `advised` is the least size that the remedy names.
    """
    if not held < size <= MAX_PIECES:
        raise VocabularyError(
            f"a vocabulary of {size} pieces", remedy=f"choose a size of {advised} to {MAX_PIECES}"
        )


def check_coverage(coverage: float | None) -> None:
    """Raise `VocabularyError` unless the coverage is None or in (0, 1]."""
    if coverage is not None and not 0 < coverage <= 1:
        raise VocabularyError(
            f"a character coverage of {coverage}",
            remedy=f"choose a share above 0, at most 1, such as {COVERAGE}",
        )


def choose_characters(
    counts: Mapping[str, int], coverage: float | None, *, size: int
) -> frozenset[str]:
    """Choose the most frequent characters that make up a share `coverage` of the text.

    With None the share is 0.9995, and rarer characters are chosen too up to a sixteenth of `size`,
    the entries of the vocabulary: in a script of few characters all of them are cheap.
    """
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    wanted = (COVERAGE if coverage is None else coverage) * sum(counts.values())
    number = total = 0
    for _, count in ranked:
        if total >= wanted:
            break
        total += count
        number += 1
    if coverage is None:
        number = max(number, size // _CHEAP)
    return frozenset(character for character, _ in ranked[:number])


def dropped_characters(characters: Mapping[str, int]) -> int:
    """Return how many characters the rules of BERT drop like control characters: unassigned ones.

    They are for private use or in no script of the running Python's version of Unicode.
    """
    unassigned = (char for char in characters if unicodedata.category(char) in ("Co", "Cn"))
    return sum(characters[char] for char in unassigned)


def alphabet_of(
    counts: Mapping[str, int],
    kept: frozenset[str],
    *,
    entries: int,
    too_long: int = 0,
    dropped: int = 0,
) -> Alphabet:
    """Return the alphabet of a text's characters, which takes `entries` entries.

    `too_long` and `dropped` are the numbers of characters that are not counted, in words that are
    too long and by the rules.
    """
    total = sum(counts.values())
    every = total + too_long + dropped
    known = sum(counts.get(character, 0) for character in kept)
    return Alphabet(
        kept=kept,
        left_out=len(counts.keys() - kept),
        share=known / total if total else 1.0,
        entries=entries,
        too_long=too_long / every if too_long else 0.0,
        dropped=dropped / every if dropped else 0.0,
    )


def refuse_small(size: int, least: int) -> VocabularyError:
    """Return the error for a vocabulary whose size cannot hold its alphabet of `least` entries."""
    return VocabularyError(
        f"{size:,} pieces cannot hold the special tokens and the text's alphabet, {least:,}",
        remedy=f"choose a size of at least {2 * least}, or a smaller --character-coverage",
    )


def refuse_empty(*, too_long: int = 0, dropped: int = 0) -> VocabularyError:
    """Return the error for a text without words, `too_long` or `dropped` characters apart."""
    if too_long:
        return VocabularyError(
            f"all words have more than {MAX_WORD_LENGTH} characters, and WordPiece knows none",
            remedy="choose --kind unigram, or put blanks between words",
        )
    if dropped:
        return VocabularyError(
            f"all characters are {_UNASSIGNED}, and WordPiece drops them", remedy=_OTHER_KINDS
        )
    return VocabularyError(
        "there is no text to learn a vocabulary from", remedy="give a corpus with some words"
    )


_MARKS: Final = "combining marks"
_OTHER_SCRIPTS: Final = {"Combining": _MARKS, "Cjk": "Han"}
"""Letters whose names do not begin with that of their script."""
_DIACRITIC_SCRIPTS: Final = frozenset(["Latin", "Greek", "Cyrillic", _MARKS])
"""Scripts in which marks are rare, in names and loanwords; in others they belong to the script."""
_SELECTORS: Final = frozenset(map(chr, range(0xFE00, 0xFE10)))
"""Variation selectors, which determine how an emoji is drawn."""
_RARE_DIACRITICS = 0.005
_RARE_MARKS = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class AccentDecision:
    """The decision whether accents are stripped, and the figures behind it."""

    strip: bool
    asked: bool
    """True if an option decided, and not the text."""
    changed: float
    """Share of the letters and marks that stripping changes, 0 to 1."""
    scripts: tuple[str, ...]
    """Scripts that most of these belong to."""
    dotless: float = 0.0
    """Share of the letters that are the dotless i of Turkish or a capital i with its dot, 0 to 1,
    if the text is lower-cased."""

    def describe(self) -> str:
        """Return a line about the decision and its reason."""
        scripts = f" ({', '.join(self.scripts)})" if self.scripts else ""
        share = f"{100 * self.changed:.2f} % of the letters{scripts}"
        if self.strip:
            reason = "as requested, which changes" if self.asked else "as BERT's uncased models do:"
            ending = "" if self.asked else " have one" if self.changed else " has one"
            return f"accents: stripped, {reason} {share if self.changed else 'no letter'}{ending}"
        reason = "as requested" if self.asked else f"stripping would change {share}"
        return f"accents: kept (strip_accents is false), {reason}"

    def warning(self) -> str:
        """Return a line about letters that lower-casing spoils, "" without any."""
        if self.dotless < _RARE_MARKS:
            return ""
        return (
            f"warning: {100 * self.dotless:.2f} % of the letters are ı or İ, as in Turkish, where "
            "lower-casing makes I an i, and of İ an i with a second dot; --cased keeps them apart"
        )


def decide_accents(
    characters: Mapping[str, int], *, lowercase: bool, requested: bool | None = None
) -> AccentDecision:
    """Decide whether to strip the accents of a text, from the counts of its characters.

    They are stripped if the text is lower-cased, as in BERT's uncased models, and hardly any of its
    letters would change: under 0.5 % in the Latin, Greek and Cyrillic scripts, and under 0.1 % in
    all others. `requested` takes precedence.
    """
    letters = 0
    changed: Counter[str] = Counter()
    for character, number in characters.items():
        if unicodedata.category(character)[0] in "LM" and character not in _SELECTORS:
            letters += number
            if _changes(character):
                changed[_script(character)] += number
    diacritics = sum(changed[script] for script in _DIACRITIC_SCRIPTS)
    marks = changed.total() - diacritics
    rare = diacritics <= _RARE_DIACRITICS * letters and marks <= _RARE_MARKS * letters
    dotless = characters.get("ı", 0) + characters.get("İ", 0)
    return AccentDecision(
        strip=(lowercase and rare) if requested is None else requested,
        asked=requested is not None,
        dotless=dotless / letters if lowercase and letters else 0.0,
        changed=changed.total() / letters if letters else 0.0,
        scripts=tuple(
            script for script, number in changed.most_common(3) if 10 * number > changed.total()
        ),
    )


def _changes(character: str) -> bool:
    """Return whether stripping changes a character."""
    stripped, kept = (
        BasicRules(lowercase=True, strip_accents=strip).words(character) for strip in (True, False)
    )
    return stripped != kept


def _script(character: str) -> str:
    """Return the script of a letter, by the first word of its Unicode name."""
    first = unicodedata.name(character, "unnamed").split()[0].title()
    return _OTHER_SCRIPTS.get(first, first)


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

    def forgotten(self, share: float) -> None:
        """Receive the share of the text in rare words that were not counted, 0 to 1."""

    def each(self, items: Collection[_Item]) -> Iterator[_Item]:
        """Yield items, advancing by one step each."""
        for number, item in enumerate(items, 1):
            yield item
            if number % _STEP == 0:
                self.advance(_STEP)


SILENT = LearningObserver()


_MAX_CHUNKS = 2_000_000
MAX_LETTERS: Final = 20_000_000
"""Letters of all distinct chunks: the compiled trainers take some 130 bytes for each."""
_PART = 10_000


class BoundedCounter:
    """A `Counter` in `counts` of bounded size, which drops the rarest entries.

    At most two million entries, of at most `letters` letters in all, by the `size` of each. So rare
    entries are undercounted. The characters of dropped entries are counted in `forgotten`: a text
    without blanks consists of rare chunks.
    """

    def __init__(self, *, letters: int | None = None, size: Callable[[str], int] = len) -> None:
        self.counts: Counter[str] = Counter()
        self.forgotten: Counter[str] = Counter()
        self._most = MAX_LETTERS if letters is None else letters
        self._size = size
        self._letters = 0
        # how many of the first entries have more than this number, so that none is looked at twice
        self._more_frequent: dict[int, int] = {}

    def add(self, chunks: Iterable[str]) -> None:
        """Count some chunks of text."""
        known = len(self.counts)
        self.counts.update(chunks)
        self._letters += sum(map(self._size, self._newest(len(self.counts) - known)))
        lowest = 1
        while len(self.counts) > _MAX_CHUNKS or self._letters > self._most:
            self._forget(lowest)
            lowest *= 2

    def _forget(self, lowest: int) -> None:
        """Drop the entries that were counted up to `lowest` times."""
        newest = self._newest(len(self.counts) - self._more_frequent.get(lowest, 0))
        rare = [chunk for chunk in newest if self.counts[chunk] <= lowest]
        rare.reverse()
        for number in range(lowest // 2 + 1, lowest + 1):
            every = "".join(chunk for chunk in rare if self.counts[chunk] == number)
            for character, times in Counter(every).items():
                self.forgotten[character] += number * times
        for chunk in rare:
            self.counts.pop(chunk)
        self._letters -= sum(map(self._size, rare))
        for level in (lowest, *(each for each in self._more_frequent if each < lowest)):
            self._more_frequent[level] = len(self.counts)

    def _newest(self, number: int) -> Iterator[str]:
        """Yield the latest entries, the last one first."""
        return islice(reversed(self.counts), number)

    def characters(self) -> Counter[str]:
        """Return the count of each character, including dropped chunks."""
        characters = characters_of(self.counts)
        characters.update(self.forgotten)
        return characters

    def forgotten_share(self) -> float:
        """Return the share of the characters that were in dropped chunks, 0 to 1."""
        lost = self.forgotten.total()
        kept = sum(number * len(chunk) for chunk, number in self.counts.items())
        return lost / (lost + kept) if lost else 0.0


class WordCounter:
    """Counts the words of a stream of texts in bounded memory.

    It counts chunks between blanks first, so the rules run once for each distinct one. With
    `ideographs` each of these is a chunk, as a text of them has few blanks.
    """

    def __init__(self, *, ideographs: bool = True) -> None:
        self._ideographs = ideographs
        self._stretches = BoundedCounter()
        self.too_long = 0
        """Number of characters in words of over 100, once `words` have been split."""

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
        """Return the count of each character, composed (NFC) as in the rules, but not lower-cased.

        So the same text counts alike whichever way its letters are written.
        """
        characters = characters_of(self.stretches, form="NFC")
        characters.update(self.forgotten())
        return characters

    def forgotten(self) -> Counter[str]:
        """Return the character counts of dropped chunks."""
        return self._stretches.forgotten

    def forgotten_share(self) -> float:
        """Return the share of the characters that were in dropped chunks, 0 to 1."""
        return self._stretches.forgotten_share()

    def words(self, rules: BasicRules, observer: LearningObserver = SILENT) -> Counter[str]:
        """Return the count of each word of up to 100 characters, in order of first occurrence."""
        words: Counter[str] = Counter()
        self.too_long = 0
        observer.phase("splitting words", len(self.stretches))
        for stretch, number in observer.each(self.stretches.items()):
            for word in rules.words(stretch):
                if len(word) <= MAX_WORD_LENGTH:
                    words[word] += number
                else:
                    self.too_long += number * len(word)
        return words


def characters_of(chunks: Mapping[str, int], form: Literal["NFC"] | None = None) -> Counter[str]:
    """Return the count of each character in chunks with counts, in a normal form of Unicode."""
    characters: Counter[str] = Counter()
    for chunk, number in chunks.items():
        for character in chunk if form is None else normalize(form, chunk):
            characters[character] += number
    return characters


@cache
def _stretches() -> re.Pattern[str]:
    """Return a pattern of single ideographs, and of other runs between blanks."""
    ideograph = code_ranges(ideographs())
    return re.compile(rf"[{ideograph}]|[^\s{ideograph}]+")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyFit:
    """Counts over a text: its size, its number of pieces, and how many of them are [UNK]."""

    size: TextSize
    pieces: int
    unknown: int

    @property
    def pieces_per_unit(self) -> float:
        """Pieces per word, or per character; 0.0 if there is no text."""
        return self.pieces / self.size.units if self.size.units else 0.0

    @property
    def unknown_share(self) -> float:
        """Share of the pieces that are [UNK], 0 to 1."""
        return self.unknown / self.pieces if self.pieces else 0.0

    def describe(self, digits: int = 2) -> str:
        """Return the ratio with its unit: ``1.37 pieces per word``."""
        return f"{self.pieces_per_unit:.{digits}f} pieces per {self.size.unit}"


def measure_fit(tokenizer: Tokenizer, texts: Iterable[str]) -> VocabularyFit:
    """Encode a stream of texts and count; literal special tokens count as plain text."""
    return _fit(tokenizer, ((tidy(text), 1) for text in texts))


def measure_words(tokenizer: Tokenizer, words: Mapping[str, int]) -> VocabularyFit:
    """Measure how well a WordPiece vocabulary fits words between blanks with counts."""
    assert tokenizer.kind == "wordpiece", "with other kinds a word depends on what is before it"
    return _fit(tokenizer, words.items())


def _fit(tokenizer: Tokenizer, texts: Iterable[tuple[str, int]]) -> VocabularyFit:
    size, pieces, unknown = TextSize(), 0, 0
    for text, number in texts:
        (ids,) = tokenizer.encode([text], specials_in_text=False)
        size += size_of(text) * number
        pieces += number * len(ids)
        unknown += number * int(np.count_nonzero(ids == tokenizer.unknown_id))
    return VocabularyFit(size=size, pieces=pieces, unknown=unknown)
