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

from bertsmith.tokens.basic import BasicRules

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
