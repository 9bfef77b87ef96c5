"""The characters that a vocabulary knows: the most frequent, until they cover enough of a text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from bertsmith.errors import VocabularyError

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
