"""Text of strangers made fit for a terminal, a log or a page.

Labels, file names, pieces of a vocabulary, names of tensors and the errors of libraries that quote
them hold whatever their author put there: escape sequences that a terminal obeys, line breaks that
forge a line of ours, bidirectional controls that reverse what is read, invisible letters. Such
a string passes through `printable` on its way out; pages take it through `html` or `markdown`.

What writes to a terminal or a page applies them itself (`log`, `errors`, the report and the model
card), so that no caller can forget it. JSON stays exact: its own escapes do the same.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import unicodedata
from bisect import bisect_right
from html import escape
from pathlib import Path

MAX_LENGTH = 200
"""Characters shown of one string."""
_SMALL = 0.1
# nearer to 1, six decimals would make shares equal that differ
_NEAR_ONE = 1e-3

# more would run over the lines above and below; no orthography stacks as many
_MAX_MARKS = 6
# nothing is drawn for these although Unicode counts them as letters, marks or symbols
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0d"
    "\uffa0\U000e0100-\U000e01ef]"
)
# Persian and the scripts of India spell with joiners, emoji are put together with them
_JOINERS = "\u200c\u200d"
# parts the words of Khmer, Thai and Burmese
_NO_WIDTH_SPACE = "\u200b"
_FIRST_JOINED = "\u0590"
# one after a letter chooses its form: of Han in names of Japan, of Mongolian in most words
_VARIED = re.compile(
    "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003fffd]"
    "[\ufe00-\ufe0d\U000e0100-\U000e01ef]"
    "|[\u1820-\u18aa][\u180b-\u180f]"
)
# Hebrew and Arabic put these marks beside punctuation; after a letter of theirs they can move no
# more than the letter does
_DIRECTIONS = "\u200e\u200f\u061c"
_RIGHT_TO_LEFT = ("R", "AL")
# bytes of a file name that are no UTF-8, as Python reads them
_FIRST_BYTE, _LAST_BYTE = 0xDC80, 0xDCFF
# between $' and ' a shell reads these as they are
_PLAIN_BYTES = re.compile(r"[!-&(-\[\]-~]")
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|&~$#!@:]|(?<=[Ww]{3})\.)")


def counted(count: float, noun: str, nouns: str = "") -> str:
    """Return a count with its noun: ``1 text``, ``2,000 texts``; `nouns` where -s is no plural."""
    number = f"{count:,}" if isinstance(count, int) else f"{count:g}"
    return f"{number} {noun if count == 1 else nouns or f'{noun}s'}"


def count_with_verb(part: int, total: int, noun: str) -> str:
    """Return a part of a count as a subject with its verb: ``1 of 4 texts was``."""
    return f"{part:,} of {counted(total, noun)} {'was' if part == 1 else 'were'}"


def rounded(number: float) -> float:
    """Return a number of an answer: six decimals, or six significant figures of small ones.

    Of a share just below 1 the distance to 1 has six significant figures.
    """
    rest = 1 - number
    if 0 < rest < _NEAR_ONE:
        return round(number, 5 - math.floor(math.log10(rest)))
    shown = round(number, 6) if abs(number) >= _SMALL else float(f"{number:.6g}")
    return shown + 0.0


def to_millionths(number: float) -> float:
    """Return a number to six decimals, where a small negative one is zero without a sign."""
    return round(number, 6) + 0.0


def printable(text: object, longest: int = MAX_LENGTH) -> str:
    """Return a string as one line that can be printed, of at most `longest` characters.

    Controls, line breaks, invisible and unassigned characters, bidirectional controls and lone
    surrogates become escapes (``\\x1b``, ``\\u202e``), as do combining marks beyond six in a row;
    joiners, direction marks and variation selectors stay where scripts are written with them. A
    string that is longer ends in an ellipsis. The result is its own printable form.
    """
    full_text = str(text)
    shown = full_text[: longest + 1]
    if not (shown.isascii() and shown.isprintable()):
        shown = _escaped(shown)
    return shown if len(shown) <= longest else f"{shown[: longest - 1]}…"


def display_width(text: str) -> int:
    """Return the columns of a terminal that a line takes."""
    if text.isascii():
        return len(text)
    # importing it takes a while
    from rich.cells import cell_len

    return cell_len(text)


def fitted(text: object, most: int) -> str:
    """Return a string as one line that can be printed, of at most `most` columns of a terminal."""
    # marks take no column of their own
    shown = printable(text, 4 * most)
    if display_width(shown) <= most:
        return shown
    lengths = range(len(shown) + 1)
    # less the ellipsis; a sign may be wider than its characters
    after = bisect_right(lengths, most - 1, key=lambda length: display_width(shown[:length]))
    return f"{shown[: after - 1]}…"


def padded(text: str, least: int) -> str:
    """Return a line with spaces behind it, up to a number of columns of a terminal."""
    return text + " " * (least - display_width(text))


def printable_lines(text: str, longest: int = MAX_LENGTH) -> str:
    """Return a text of several lines, each of them printable."""
    return "\n".join(printable(line, longest) for line in text.split("\n"))


def shell_word(path: object) -> str:
    """Return a path as a shell has to be given it, for a command that is shown.

    It is quoted as `shell_quoted` does it; if the first character is a dash, it is written so that
    shells read the same path.
    """
    text = str(path)
    return shell_quoted(f"./{text}" if text.startswith("-") else text)


def shell_quoted(text: str) -> str:
    """Return a text as a shell has to be given it, for a command that is shown.

    It is quoted where it has to be; where quotes are not enough, as with a line break, it is
    written so that shells read the same text.
    """
    if text == " ".join(text.split()) == printable(text, len(text) + 1):
        return shlex.quote(text)
    plain = (chr(byte) if _PLAIN_BYTES.match(chr(byte)) else f"\\x{byte:02x}"
             for byte in os.fsencode(text))  # fmt: skip
    return f"$'{''.join(plain)}'"


def html(text: object, longest: int = MAX_LENGTH) -> str:
    """Return a string for a page or an attribute of HTML: printable, its markup escaped."""
    return escape(printable(text, longest))


def markdown(text: object, longest: int = MAX_LENGTH) -> str:
    """Return a string for running text or a table of Markdown, read as plain text there.

    Escapes what begins emphasis, code, links, mentions, tables, formulas and HTML.
    """
    shown = _MARKDOWN.sub(r"\\\1", printable(text, longest))
    # where a line begins these make lists, rulers and headings of the line above
    shown = re.sub(r"^(\s*)([-+=])", r"\1\\\2", shown)
    return re.sub(r"^(\s*\d+)([.)])(?=\s|$)", r"\1\\\2", shown)


def json_text(content: object) -> str:
    """Return a value as one line of JSON with letters as they are, and escapes for what is none.

    It is exactly the value, whatever its length; JSON's own escapes are those of control
    characters below 32 alone. Raises `ValueError` for a number that is none.
    """
    line = json.dumps(content, ensure_ascii=False, allow_nan=False, default=str)
    if line.isprintable():
        return line
    return "".join(
        letter if _is_plain(letter) or letter in _JOINERS else _json_escape(letter)
        for letter in line
    )


def _json_escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else json.dumps(character)[1:-1]


def _escaped(text: str) -> str:
    """Return a string with escapes for what is not to be printed."""
    shown: list[str] = []
    marks = 0
    right_to_left = False
    for position, character in enumerate(text):
        if character in _DIRECTIONS and right_to_left:
            shown.append(character)
            continue
        right_to_left |= character.isalpha() and _is_right_to_left(character)
        if character in _JOINERS or character == _NO_WIDTH_SPACE:
            following = text[position + 1 : position + 2]
            flood = marks >= _MAX_MARKS and _is_mark(following)
            if not flood and _takes_joiners(following) and _takes_joiners("".join(shown[-1:])):
                shown.append(character)
                continue
        visible = _is_plain(character) and not _INVISIBLE.match(character)
        if not visible and _VARIED.fullmatch("".join(shown[-1:]) + character):
            shown.append(character)
            continue
        marks = marks + 1 if _is_mark(character) else 0
        if visible and marks <= _MAX_MARKS:
            shown.append(character)
        else:
            shown.append(_escape(character))
    return "".join(shown)


def _is_plain(character: str) -> bool:
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _is_right_to_left(character: str) -> bool:
    return unicodedata.bidirectional(character) in _RIGHT_TO_LEFT


def _is_mark(character: str) -> bool:
    return character != "" and unicodedata.category(character) in ("Mn", "Me")


def _takes_joiners(neighbour: str) -> bool:
    """Return whether a joiner has a meaning beside a character; not beside an escape or none."""
    return (
        len(neighbour) == 1
        and neighbour >= _FIRST_JOINED
        and neighbour.isprintable()
        and not _INVISIBLE.match(neighbour)
    )


def _escape(character: str) -> str:
    code = ord(character)
    if _FIRST_BYTE <= code <= _LAST_BYTE:
        return f"\\x{code - 0xDC00:02x}"
    return ascii(character)[1:-1]


def model_name(model: str | Path) -> str:
    """Return the name of a folder, of its run's where it is called "model", or of a repository."""
    if str(model).startswith("hub:"):
        return str(model).removeprefix("hub:").partition("@")[0]
    # a link is called by its own name
    path = Path(os.path.abspath(model))
    return path.parent.name if path.name == "model" and path.parent.name else path.name
