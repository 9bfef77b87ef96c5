"""The alphabet of a vocabulary: which characters to keep, and whether to strip accents.

BERT's uncased models decompose every character (NFD) and drop the combining marks. In English this
turns café into cafe. In Hindi it removes vowels, in Japanese the voicing of kana, in Vietnamese the
tones, and Korean syllables are split into their letters: other words, or none.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bertsmith.core.errors import VocabularyError
from bertsmith.tokens.basic import BasicRules

COVERAGE: Final = 0.9995
"""Default share of a text's characters to keep."""

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


def alphabet_of(counts: Mapping[str, int], kept: frozenset[str], *, entries: int) -> Alphabet:
    """Return the alphabet of a text's characters, which takes `entries` entries."""
    total = sum(counts.values())
    known = sum(counts.get(character, 0) for character in kept)
    return Alphabet(
        kept=kept,
        left_out=len(counts.keys() - kept),
        share=known / total if total else 1.0,
        entries=entries,
    )


def refuse_small(size: int, least: int) -> VocabularyError:
    """Return the error for a vocabulary whose size cannot hold its alphabet of `least` entries."""
    return VocabularyError(
        f"{size:,} pieces cannot hold the special tokens and the text's alphabet, {least:,}",
        remedy=f"choose a size of at least {2 * least}, or a smaller --character-coverage",
    )


_DIACRITIC_SCRIPTS: Final = frozenset(["Latin", "Greek", "Cyrillic", "Combining"])
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

    def describe(self) -> str:
        """Return a line about the decision and its reason."""
        scripts = f" ({', '.join(self.scripts)})" if self.scripts else ""
        share = f"{100 * self.changed:.2f} % of the letters{scripts}"
        if self.strip:
            why = "as asked for, which changes" if self.asked else "as BERT's uncased models do:"
            ending = "" if self.asked else " have one" if self.changed else " have any"
            return f"accents: stripped, {why} {share if self.changed else 'none'}{ending}"
        why = "as asked for" if self.asked else f"stripping would change {share}"
        return f"accents: kept (strip_accents is false), {why}"


def decide_accents(
    characters: Mapping[str, int], *, lowercase: bool, asked: bool | None = None
) -> AccentDecision:
    """Decide whether to strip the accents of a text, from the counts of its characters.

    They are stripped if the text is lower-cased, as in BERT's uncased models, and hardly any of its
    letters would change: under 0.5 % in the Latin, Greek and Cyrillic scripts, and under 0.1 % in
    all others. `asked` takes precedence.
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
    return AccentDecision(
        strip=(lowercase and rare) if asked is None else asked,
        asked=asked is not None,
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
    """Return the script of a letter, the first word of its Unicode name."""
    return unicodedata.name(character, "unnamed").split()[0].title()
