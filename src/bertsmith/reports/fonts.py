"""Fonts for letters of any script: that of matplotlib lacks most scripts of Asia."""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache

DEFAULT = "sans-serif"
# it has a box for every character, which is what a missing one looks like anyway
_BOXES = "last resort"
_REGULAR = (400, "normal", "regular", "book")


def fonts_for(texts: Iterable[str]) -> tuple[list[str], str]:
    """Return families of fonts that draw texts, matplotlib's own first, and what none of them has.

    The fonts installed are opened only as long as a letter is missing.
    """
    letters = {letter for text in texts for letter in text if _is_drawn(letter)}
    families, missing = _families_for(frozenset(letters - _letters(DEFAULT)))
    # marks last: alone they can hardly be read
    return families, "".join(sorted(missing, key=lambda letter: (_is_mark(letter), letter)))


# a machine may have thousands of fonts, and a page has many figures of the same words
@cache
def _families_for(letters: frozenset[str]) -> tuple[list[str], frozenset[str]]:
    families, missing = [DEFAULT], letters
    for family in _installed() if missing else ():
        if found := missing & _letters(family):
            families.append(family)
            missing -= found
        if not missing:
            break
    return families, missing


@contextmanager
def without_warnings_of_glyphs() -> Iterator[None]:
    """Keep matplotlib from a warning for each letter that it cannot draw."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from", UserWarning)
        yield


def _is_drawn(letter: str) -> bool:
    return not letter.isspace() and unicodedata.category(letter) != "Cf"


def _is_mark(letter: str) -> bool:
    return unicodedata.category(letter).startswith("M")


def _installed() -> list[str]:
    """Return the families installed, those without serifs first."""
    from matplotlib.font_manager import fontManager

    names = {
        font.name
        for font in fontManager.ttflist
        if font.style == "normal" and font.weight in _REGULAR
    }
    usable = [name for name in names if not name.lower().startswith(_BOXES)]
    return sorted(usable, key=lambda name: ("Sans" not in name, name))


def _letters(family: str) -> set[str]:
    """Return the characters that a family has; none if its file is damaged."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    try:
        font = get_font(findfont(FontProperties(family=[family])))
    except (OSError, RuntimeError):
        return set()
    return set(map(chr, font.get_charmap()))
