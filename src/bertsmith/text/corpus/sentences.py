"""Rule-based sentence splitting: stops and the words before and after them.

The rules depend on two words, the one that a stop closes and the one after it: `Stop` and
`Follower` are their classes, `ENDS` is the decision. They can be applied to a paragraph, as here,
or to many at once whose words are already classified, as in `bertsmith.tokens.bulk.documents`.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray


def words(text: str) -> frozenset[str]:
    """Return the set of words of a text."""
    return frozenset(text.split())


TITLES = words("""
    mr mrs ms mx messrs mme mlle dr prof st ste rev revd hon pres gov sen rep gen col capt cpt lt
    sgt cpl maj adm cmdr supt insp fr sr mt ft vs cf eg ie viz ca approx resp incl esp
""")
"""Words after which a full stop never ends a sentence."""

NUMBERED = words("""
    no nos fig figs eq eqs sec secs ch chap art vol vols p pp ed eds tab ref refs ver pt
    jan feb mar apr jun jul aug sep sept oct nov dec
""")
"""Words after which a full stop before a number does not end a sentence."""

AMBIGUOUS = words("etc inc ltd co corp bros jr al dept est univ assn ave blvd rd op")
"""Words after which a full stop ends a sentence only before one of `STARTERS`."""

STARTERS = words("""
    the a an this that these those he she it we they you i his her its our their my your there here
    in on at for from by with but and or so if when while as after before since then thus however
    although because what who which where why how no not yes one some many most all
""")
"""Words that begin sentences and are hardly ever names."""

# Hebrew verses, Armenian, Arabic and Urdu, Syriac, N'Ko, Indic, Tibetan, Burmese, Ethiopic,
# Mongolian, Khmer, Santali, Javanese and Meetei
SPACED_STOPS: Final = ".!?…‼⁇⁈⁉׃։؞؟۔܀߹।॥།༎။።፧፨᠃។៕᱾᱿꧈꧉꯫"
"""Stops that end a sentence with white space after them."""

CJK_STOPS: Final = "。！？｡．"
"""Stops that end a sentence with or without white space after them; ．not in a number or name."""

CLOSES: Final = frozenset("\"'“”‘’«»‹›)]」』）】\u200e\u200f\u061c")
"""Marks that may follow the stop of a sentence: closing quotes, the opening ones of other languages
among them, brackets, and what tells terminals the direction of writing."""

OPENINGS: Final = frozenset("\"'“‘«‹»›„‚„([{¿¡*_`–—•-\u200e\u200f\u061c")
"""Characters that may precede the first word of a sentence."""

# in Greek a semicolon asks
_GREEK = "(?<=[\u0370-\u03ff\u1f00-\u1fff])[;\u037e]"
# from the first stop of a run on: where that ends no sentence the others end none either, and each
# would look at all after it
_SPACED = rf"(?P<stop>(?<![{SPACED_STOPS}])[{SPACED_STOPS}]++|{_GREEK})"
_CLOSE = rf"[{re.escape(''.join(sorted(CLOSES)))}]*(?:\[\d+\])*"
_NAME = r"[\dA-Za-zＡ-Ｚａ-ｚ]"
# a stop with closing quotes, brackets and footnote marks, then white space; CJK stops need no
# white space
_STOP = re.compile(
    rf"(?=[{SPACED_STOPS};\u037e{CJK_STOPS}])(?:"
    rf"{_SPACED}(?P<close>{_CLOSE}(?: (?:\"|''|[”»›)\]]))?) "
    rf"|(?<![{CJK_STOPS}]{{2}})(?:[。！？｡]|．(?<!{_NAME}．)(?!{_NAME}))++[」』”’）】]*+ ?(?=\S))"
)
_LAST_STOP = re.compile(rf"{_SPACED}(?P<close>{_CLOSE})\Z")
_STOPS = frozenset(SPACED_STOPS) - {"."}

# a word of one sign, which is no initial: Han, kana, Hangul
_SYLLABLE = re.compile("[\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]")
_START = re.compile(f"[{re.escape(''.join(sorted(OPENINGS)))}]*(?P<word>\\w*)")
_SYMBOLS = frozenset("$€£#@&<%+")

CLOSERS: Final = frozenset(['"', "''", "”", "»", "›", ")", "]"])
"""Marks that close a sentence although a space separates them from the stop."""


class Stop(IntEnum):
    """The class of a word with its closing marks, as the possible end of a sentence."""

    NONE = 0
    """No stop."""
    FIRM = 1
    """Ends a sentence before any word that can begin the next."""
    ORDINAL = 2
    """As FIRM, but as the first word of its sentence it numbers a list item or heading."""
    PRONOUN = 3
    """``I.``: as ORDINAL; with closing quotes or brackets after the full stop it is an initial."""
    NUMBERED = 4
    """``No.``, ``Fig.``: ends a sentence unless a number follows."""
    AMBIGUOUS = 5
    """``etc.``, ``U.S.``: ends a sentence only before `STARTERS`."""
    NEVER = 6
    """Titles and initials: never ends a sentence."""


class Follower(IntEnum):
    """The class of a word with its opening marks, as the possible first word of a sentence."""

    NONE = 0
    """Cannot begin a sentence."""
    CLOSER = 1
    """Cannot begin a sentence, and belongs to the stop before it."""
    SMALL = 2
    """Lower case: begins a sentence only in a paragraph without capitals."""
    SMALL_STARTER = 3
    """As SMALL, and one of `STARTERS`."""
    STARTER = 4
    """One of `STARTERS`."""
    DECIMAL = 5
    """A number."""
    OTHER = 6


def _decide(stop: Stop, follower: Follower, *, first: bool, small: bool) -> bool:
    if stop in (Stop.NONE, Stop.NEVER) or follower <= Follower.CLOSER:
        return False
    if follower in (Follower.SMALL, Follower.SMALL_STARTER) and not small:
        return False
    if stop in (Stop.ORDINAL, Stop.PRONOUN):
        return not first
    if stop is Stop.NUMBERED:
        return follower is not Follower.DECIMAL
    if stop is Stop.AMBIGUOUS:
        return follower in (Follower.STARTER, Follower.SMALL_STARTER)
    return True


ENDS: Final[NDArray[np.bool_]] = np.array(
    [
        [
            [
                [_decide(stop, word, first=first, small=small) for small in (False, True)]
                for first in (False, True)
            ]
            for word in Follower
        ]
        for stop in Stop
    ]
)
"""The decision table [stop, follower, first, small]: True if a sentence ends there; `first`: the
stop's word is the first of its sentence; `small`: the paragraph has no capitals."""


def stop_of(word: str) -> Stop:
    """Return the class of a word between spaces as the end of a sentence."""
    end = word[-1:]
    if end not in CLOSES:
        if end == "." and word[:-1].isalpha():
            return _stop(word[:-1], end, closed=False)
        if end not in ".;\u037e":
            return Stop.FIRM if end in _STOPS else Stop.NONE
    match = _LAST_STOP.search(word)
    if match is None:
        return Stop.NONE
    return _stop(word[: match.start()], match["stop"], closed=bool(match["close"]))


def follower_of(word: str) -> Follower:
    """Return the class of a word between spaces as the first of a sentence."""
    return Follower.CLOSER if word in CLOSERS else _follower(word, 0)


def is_small(letter: str) -> bool:
    """Return whether a letter is lower-case in a script whose sentences begin with a capital."""
    # to Unicode Georgian's letters are small, but nothing begins with its capitals
    return letter.islower() and not "\u10d0" <= letter <= "\u10ff"


def has_capital(text: str) -> bool:
    """Return whether a text has an upper-case (or title-case) letter."""
    return not (text + "a").islower()


def split_sentences(paragraph: str) -> list[str]:
    """Split a paragraph into sentences, their white space made single spaces.

    A sentence ends at a stop (``.``, ``!``, ``?``, an ellipsis, with closing quotes and brackets)
    before white space and a word that can begin a sentence: not in lower case, unless the paragraph
    has no capitals at all. Titles, initials, abbreviations and list numbers do not end one. CJK
    stops end one with or without white space. A script without stops, such as Thai, has one
    sentence per paragraph. Joining the sentences with spaces restores the paragraph, except for
    spaces added after CJK stops.
    """
    text = " ".join(paragraph.split())
    starts = [0, *sentence_starts(text)]
    return [text[a:b].rstrip(" ") for a, b in zip(starts, [*starts[1:], None], strict=True) if text]


def sentence_starts(text: str) -> list[int]:
    """Return the offsets of the sentences of a paragraph with single spaces, but for the first."""
    small = int(not has_capital(text))
    starts: list[int] = []
    for match in _STOP.finditer(text):
        end = match.end()
        if match["stop"] is None:
            starts.append(end)
            continue
        dot = match.start()
        start = starts[-1] if starts else 0
        before = max(start, text.rfind(" ", start, dot) + 1)
        stop = _stop(text[before:dot], match["stop"], closed=bool(match["close"]))
        if ENDS[stop, _follower(text, end), int(before == start), small]:
            starts.append(end)
    return starts


def _stop(before: str, stop: str, *, closed: bool) -> Stop:
    """Return the class of a stop from the text between it and the space before it."""
    word = before.lstrip("\"'“‘«([")
    if stop != "." or not word:
        return Stop.FIRM
    key = word.lower()
    if len(word) == 1 and word.isalpha():
        if _SYLLABLE.match(word):
            return Stop.ORDINAL
        return Stop.PRONOUN if word == "I" and not closed else Stop.NEVER
    if key in TITLES or key in ("e.g", "i.e"):
        return Stop.NEVER
    if key in NUMBERED:
        return Stop.NUMBERED
    if key in AMBIGUOUS or ("." in key and _is_dotted(key)):
        return Stop.AMBIGUOUS
    if len(word) == 1 or word.isdecimal() or not key.strip("ivxlc"):
        return Stop.ORDINAL
    return Stop.FIRM


def _follower(text: str, start: int) -> Follower:
    """Return the class of the word at `start`, including its opening marks."""
    match = _START.match(text, start)
    assert match is not None
    word = match["word"]
    if not word:
        following = text[match.end() : match.end() + 1]
        # French has a space between a quotation and its marks
        alone = match[0].endswith("«") and following in ("", " ")
        return Follower.OTHER if following in _SYMBOLS or alone else Follower.NONE
    if word[0].isdecimal():
        return Follower.DECIMAL
    starter = word.lower() in STARTERS
    if is_small(word[0]):
        return Follower.SMALL_STARTER if starter else Follower.SMALL
    return Follower.STARTER if starter else Follower.OTHER


def _is_dotted(word: str) -> bool:
    """Return whether a word is letters with full stops between them: ``u.s``, ``p.m``, ``ph.d``."""
    return all(part.isalpha() and len(part) <= 2 for part in word.split("."))
