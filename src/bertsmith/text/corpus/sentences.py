"""Sentence splitting by rule: stops, what may stand before them and what must follow.

The rules are about two words, the one that a stop closes and the one after it: `Stop` and
`Follower` name what matters of them, `ENDS` is the decision. So they can be applied to a paragraph,
as here, or to many at once whose words have been met before, as `bertsmith.tokens.documents` does.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray


def words(text: str) -> frozenset[str]:
    """The words of a text, as a set."""
    return frozenset(text.split())


TITLES = words("""
    mr mrs ms mx messrs mme mlle dr prof st ste rev revd hon pres gov sen rep gen col capt cpt lt
    sgt cpl maj adm cmdr supt insp fr sr mt ft vs cf eg ie viz ca approx resp incl esp
""")
"""A point after one of these never ends a sentence."""

NUMBERED = words("""
    no nos fig figs eq eqs sec secs ch chap art vol vols p pp ed eds tab ref refs ver pt
    jan feb mar apr jun jul aug sep sept oct nov dec
""")
"""A point after one of these and before a number ends no sentence."""

AMBIGUOUS = words("etc inc ltd co corp bros jr al dept est univ assn ave blvd rd op")
"""A point after one of these ends a sentence only before one of `STARTERS`."""

STARTERS = words("""
    the a an this that these those he she it we they you i his her its our their my your there here
    in on at for from by with but and or so if when while as after before since then thus however
    although because what who which where why how no not yes one some many most all
""")
"""Words that begin sentences, and are hardly ever names."""
"""Words of which one stands in nearly every English sentence."""


# a stop with the quotes, brackets and footnote marks that close after it, then white space; CJK
# stops need no white space
_SPACED_STOPS: Final = ".!?…؟۔।॥։።။។៕"  # Arabic, Urdu, Indic, Armenian, Ethiopic, Burmese, Khmer
_STOP = re.compile(
    rf"(?=[{_SPACED_STOPS}。！？｡])(?:"
    rf"(?P<stop>[{_SPACED_STOPS}]+)"
    r"(?P<close>[\"'”’»)\]]*(?:\[\d+\])*(?: (?:\"|''|”|\)|\]))?) "
    r"|[。！？｡]++[」』”’）】]*+ ?(?=\S))"
)
_LAST_STOP = re.compile(rf"(?P<stop>[{_SPACED_STOPS}]+)" r"(?P<close>[\"'”’»)\]]*(?:\[\d+\])*)\Z")
_STOPS = frozenset(_SPACED_STOPS) - {"."}
_CLOSES = frozenset("\"'”’»)]")
OPENINGS: Final = frozenset("\"'“‘«„([{¿¡*_`–—•-")
"""What may open before a sentence."""

_START = re.compile(f"[{re.escape(''.join(sorted(OPENINGS)))}]*(?P<word>\\w*)")
_SYMBOLS = frozenset("$€£#@&<%+")

CJK_STOPS: Final = "。！？｡"
"""Stops that end a sentence with or without white space."""

CLOSERS: Final = frozenset(['"', "''", "”", ")", "]"])
"""What closes a sentence although a space parts it from the stop."""


class Stop(IntEnum):
    """What a word with its closing marks says about the end of the sentence."""

    NONE = 0
    """There is no stop."""
    FIRM = 1
    """Ends one before any word that can begin the next."""
    ORDINAL = 2
    """The same, but as the first word of its sentence it numbers a list item or heading."""
    PRONOUN = 3
    """``I.``: the same; with quotes or brackets that close after the point it is an initial."""
    NUMBERED = 4
    """``No.``, ``Fig.``: ends one unless a number follows."""
    AMBIGUOUS = 5
    """``etc.``, ``U.S.``: ends one before words that begin sentences and are hardly ever names."""
    NEVER = 6
    """Titles and initials: ends none."""


class Follower(IntEnum):
    """What a word with its opening marks says about being the first of a sentence."""

    NONE = 0
    """Cannot be."""
    CLOSER = 1
    """Cannot be, and belongs to the stop before it."""
    SMALL = 2
    """Begins with a small letter: only in a paragraph that has no capitals."""
    SMALL_STARTER = 3
    """The same, and one of the words that begin sentences."""
    STARTER = 4
    """One of the words that begin sentences."""
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
"""[stop, follower, first, small]: whether a sentence ends there; `first`: the stop's word is the
first of its sentence; `small`: the paragraph has no capitals."""


def stop_of(word: str) -> Stop:
    """What a word between blanks says about the end of its sentence."""
    end = word[-1:]
    if end not in _CLOSES:
        if end == "." and word[:-1].isalpha():
            return _stop(word[:-1], end, closed=False)
        if end != ".":
            return Stop.FIRM if end in _STOPS else Stop.NONE
    match = _LAST_STOP.search(word)
    if match is None:
        return Stop.NONE
    return _stop(word[: match.start()], match["stop"], closed=bool(match["close"]))


def follower_of(word: str) -> Follower:
    """What a word between blanks says about being the first of a sentence."""
    return Follower.CLOSER if word in CLOSERS else _follower(word, 0)


def has_capital(text: str) -> bool:
    """Whether a text has a capital (or title-case) letter."""
    return not (text + "a").islower()


def split_sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph, their white space made single spaces.

    A sentence ends at a stop (``.``, ``!``, ``?``, an ellipsis, with closing quotes and brackets)
    before white space and a word that can begin a sentence: no small letter, unless the paragraph
    has no capitals at all. Titles, initials, abbreviations and numbers of lists do not end one.
    CJK stops end one with or without white space. A script without stops, such as Thai, has one
    sentence a paragraph. Joining the sentences by spaces gives back the
    paragraph, but for the spaces added after CJK stops.
    """
    text = " ".join(paragraph.split())
    starts = [0, *sentence_starts(text)]
    return [text[a:b].rstrip(" ") for a, b in zip(starts, [*starts[1:], None], strict=True) if text]


def sentence_starts(text: str) -> list[int]:
    """Where the sentences of a paragraph with single spaces begin, but for the first."""
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
    """The kind of a stop, from what stands between it and the blank before it."""
    word = before.lstrip("\"'“‘«([")
    if stop != "." or not word:
        return Stop.FIRM
    key = word.lower()
    if len(word) == 1 and word.isalpha():
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
    """The kind of the word that begins at `start`, with what opens before it."""
    match = _START.match(text, start)
    assert match is not None
    word = match["word"]
    if not word:
        return Follower.OTHER if text[match.end() : match.end() + 1] in _SYMBOLS else Follower.NONE
    if word[0].isdecimal():
        return Follower.DECIMAL
    starter = word.lower() in STARTERS
    if word[0].islower():
        return Follower.SMALL_STARTER if starter else Follower.SMALL
    return Follower.STARTER if starter else Follower.OTHER


def _is_dotted(word: str) -> bool:
    """Whether a word is letters with points between them: ``u.s``, ``p.m``, ``ph.d``."""
    return all(part.isalpha() and len(part) <= 2 for part in word.split("."))
