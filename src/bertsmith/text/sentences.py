"""Sentence splitting by rule: stops, what may stand before them and what must follow."""

from __future__ import annotations

import re

from bertsmith.text.wordlists import AMBIGUOUS, NUMBERED, STARTERS, TITLES

# a stop with the quotes, brackets and footnote marks that close after it, then white space; CJK
# stops need no white space
_STOP = re.compile(
    r"(?P<stop>[.!?…؟।۔]+)"
    r"(?P<close>[\"'”’»)\]]*(?:\[\d+\])*(?: (?:\"|''|”|\)|\]))?) "
    r"|[。！？｡]+[」』”’）】]* ?(?=\S)"
)
_OPENING = re.compile(r"[\"'“‘«„(\[{¿¡*_`–—•-]*")
_FIRST_WORD = re.compile(r"\w+")


def split_sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph, their white space made single spaces.

    A sentence ends at a stop (``.``, ``!``, ``?``, an ellipsis, with closing quotes and brackets)
    before white space and a word that can begin a sentence: no small letter, unless the paragraph
    has no capitals at all. Titles, initials, abbreviations and numbers of lists do not end one.
    CJK stops end one with or without white space. Joining the sentences by spaces gives back the
    paragraph, but for the spaces added after CJK stops.
    """
    text = " ".join(paragraph.split())
    small = text.islower()
    sentences = []
    start = 0
    for match in _STOP.finditer(text):
        end = match.end()
        if match["stop"] is None or _ends(text, start, match, small=small):
            sentences.append(text[start:end].rstrip(" "))
            start = end
    if start < len(text):
        sentences.append(text[start:])
    return sentences


def _ends(text: str, start: int, match: re.Match[str], *, small: bool) -> bool:
    """Whether the sentence that began at `start` ends at this stop."""
    opened = _OPENING.match(text, match.end())
    after = opened.end() if opened else match.end()
    if after >= len(text):
        return False
    first = text[after]
    if first.islower() and not small:
        return False
    if not first.isalnum() and first not in "$€£#@&<%+":
        return False
    if match["stop"] != ".":
        return True
    return _stops(text, start, match, after)


def _stops(text: str, start: int, match: re.Match[str], after: int) -> bool:
    """Whether a single point is a stop, and no part of the word before it."""
    dot = match.start()
    before = text.rfind(" ", start, dot) + 1 or start
    word = text[before:dot].lstrip("\"'“‘«([")
    if not word:
        return True
    key = word.lower()
    if before == start and (len(word) == 1 or word.isdecimal() or not key.strip("ivxlc")):
        return False  # the number of a list item or heading
    if len(word) == 1 and word.isalpha():
        return word == "I" and not match["close"]
    if key in TITLES or key in ("e.g", "i.e"):
        return False
    if key in NUMBERED:
        return not text[after].isdecimal()
    if key in AMBIGUOUS or ("." in key and _is_dotted(key)):
        follower = _FIRST_WORD.match(text, after)
        return follower is not None and follower[0].lower() in STARTERS
    return True


def _is_dotted(word: str) -> bool:
    """Whether a word is letters with points between them: ``u.s``, ``p.m``, ``ph.d``."""
    return all(part.isalpha() and len(part) <= 2 for part in word.split("."))
