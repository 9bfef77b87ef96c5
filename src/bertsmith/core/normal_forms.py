"""Normal forms of Unicode (Standard Annex 15), in time that grows with the text alone."""

from __future__ import annotations

import re
import unicodedata
from functools import partial
from itertools import chain, groupby
from typing import Literal

# what is neither letter, digit nor blank, all combining marks among it; no writing has so many
_LONG_RUN = re.compile(r"[^\w\s]{1000,}")


def normalize(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
    """Return a text in a normal form, as `unicodedata.normalize` does.

    That sorts the marks of a letter by insertion: of 40,000 it takes 2.4 s, of 64,000 6.
    """
    if not text.isascii() and _LONG_RUN.search(text):
        text = _LONG_RUN.sub(partial(_ordered, "NFKD" if "K" in form else "NFD"), text)
    return unicodedata.normalize(form, text)


def _ordered(form: Literal["NFD", "NFKD"], run: re.Match[str]) -> str:
    """Return the decomposed characters of a run, marks in canonical order (Unicode, D108)."""
    parts = (part for character in run[0] for part in unicodedata.normalize(form, character))
    groups = groupby(parts, lambda part: unicodedata.combining(part) > 0)
    return "".join(
        chain.from_iterable(
            sorted(group, key=unicodedata.combining) if marks else group for marks, group in groups
        )
    )
