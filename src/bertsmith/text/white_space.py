"""White space as it is in texts that were read, and the scripts that have none between words."""

from __future__ import annotations

import re
from typing import Final

# Thai, Lao, Tibetan, Burmese, Khmer, Tai scripts, Javanese, kana, Han
UNSPACED: Final = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\ua980-\ua9df\uaa60-\uaa7f"
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d"
    "\U00020000-\U0003134f]+"
)
"""Runs of characters of scripts without blanks between words."""


_MARK: Final = "\ufeff"
_CONTROLS: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[\x40-~]"  # colours, movements of the cursor
    r"|\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)"  # titles, links
    r"|[PX^_][^\x1b]{0,4096}\x1b\\"
    r"|[#%()*+][0-~]|[78=>Mc\\\[\]PX^_]|)"
)
"""A control sequence of a terminal (ECMA-48), or a lone escape."""


def tidy(text: str) -> str:
    """Return the text with single spaces as white space, without what no text has.

    That is NULs, lone surrogates, the byte order marks of files that were joined, and the control
    sequences of terminals.
    """
    if text.isprintable() and "  " not in text and text[:1] != " " != text[-1:]:
        return text  # the space is the only printable white space; many times faster than splitting
    if "\x1b" in text:
        text = _CONTROLS.sub("", text)
    return without_surrogates(" ".join(text.replace("\0", "").replace(_MARK, "").split()))


def without_surrogates(text: str) -> str:
    """Return the text with a question mark for each lone surrogate: positions stay the same.

    A text without any is returned itself: copies of a long context fill the memory.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        # JSON can hold half of a surrogate pair, which cannot be encoded
        return text.encode("utf-8", "replace").decode()
    return text


def tidy_places(text: str) -> list[int]:
    """Return the offset of each tidy character in the text; of a space, that of its run's first."""
    places: list[int] = []
    after_word = False
    after_control = 0
    for offset, letter in enumerate(text):
        if letter == "\x1b" and offset >= after_control:
            control = _CONTROLS.match(text, offset)
            assert control is not None
            after_control = control.end()
        if offset < after_control or letter in ("\0", _MARK):
            continue
        if not letter.isspace() or after_word:
            places.append(offset)
        after_word = not letter.isspace()
    if places and text[places[-1]].isspace():
        places.pop()
    return places
