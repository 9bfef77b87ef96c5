"""Decides from a text whether an uncased vocabulary strips accents.

BERT's uncased models decompose every character (NFD) and drop the combining marks. In English that
makes café cafe. In Hindi it takes vowels away, in Japanese the voicing of kana, in Vietnamese the
tones, and Korean syllables fall into their letters: other words, or none.
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
"""The share of a text's characters that are known, unless another is asked for."""

_CHEAP = 16  # rarer characters are known too when all take but this part of a vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class Alphabet:
    """The characters kept, of those of a text."""

    kept: frozenset[str]
    left_out: int
    """Kinds of characters that are not."""
    share: float
    """The share of the text's characters that is kept, 0 to 1."""
    entries: int
    """Entries of the vocabulary that the characters take."""

    def describe(self, unknown: str) -> str:
        """Return a line that says what is known of the text's characters, and what is not."""
        if not self.left_out:
            return f"alphabet: all {len(self.kept):,} kinds of characters in the text"
        noun = "kind of character" if self.left_out == 1 else "kinds of characters"
        return (
            f"alphabet: {len(self.kept):,} kinds of characters, "
            f"{100 * self.share:.3f} % of the text; {self.left_out:,} rarer {noun} left out "
            f"({100 * (1 - self.share):.3f} %), which become {unknown}"
        )


def check_coverage(coverage: float | None) -> None:
    """Raise `VocabularyError` for a share that is none."""
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
    """Return what is kept of the characters of a text, in so many entries."""
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
"""Scripts in which a few marks come with names and loans; elsewhere they are part of the script."""
_SELECTORS: Final = frozenset(map(chr, range(0xFE00, 0xFE10)))
"""Marks that say how an emoji is drawn."""
_RARE_DIACRITICS = 0.005
_RARE_MARKS = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class AccentDecision:
    """Whether accents are stripped, and the figures that it was decided by."""

    strip: bool
    asked: bool
    """Whether an option said so, and not the text."""
    changed: float
    """The share of the letters and marks that stripping changes, 0 to 1."""
    scripts: tuple[str, ...]
    """The scripts that most of these belong to."""

    def describe(self) -> str:
        """Return a line that says what was decided and why."""
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
    """Decide whether to strip the accents of a text, from how often its characters occur.

    They are stripped when the text is lower-cased, as in BERT's uncased models, and next to none of
    its letters would change: under 0.5 % in the Latin, Greek and Cyrillic scripts, and under 0.1 %
    in all others. What is `asked` for goes before.
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
    """Return whether stripping makes a character something else."""
    stripped, kept = (
        BasicRules(lowercase=True, strip_accents=strip).words(character) for strip in (True, False)
    )
    return stripped != kept


def _script(character: str) -> str:
    """Return the script of a letter, as the first word of its Unicode name says it."""
    return unicodedata.name(character, "unnamed").split()[0].title()
