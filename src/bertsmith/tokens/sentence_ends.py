"""Which chunks of a text end a sentence: the rules of `bertsmith.text.sentences`, all at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bertsmith.text.sentences import ENDS, Follower, Stop
from bertsmith.tokens.chunks import Integers
from bertsmith.tokens.encoding import CAPITAL, FOLLOWER, FOLLOWER_SHIFT, STOP
from bertsmith.tokens.seams import BLANK, CUT, Chunks, sentences_in


def sentence_ends(data: bytes, chunks: Chunks, traits: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Whether each chunk (chunks,) is the last of a sentence, from the chunks' traits."""
    last = np.zeros(len(traits), np.bool_)
    last[chunks.paragraph_ends] = True
    last[np.searchsorted(chunks.starts, chunks.sentences) - 1] = True
    places = np.flatnonzero(((traits & STOP) != Stop.NONE) & (chunks.after == BLANK))
    places = places[~np.isin(_paragraphs(chunks, places), chunks.settled)]
    followers = (traits & FOLLOWER) >> FOLLOWER_SHIFT
    stops = traits[places] & STOP
    closed = (followers[places + 1] == Follower.CLOSER) & (chunks.after[places + 1] == BLANK)
    stops[closed & (stops == Stop.PRONOUN)] = Stop.NEVER
    ends = places + closed
    small = _in_small_paragraphs(chunks, traits, places, followers[ends + 1])
    ending = ENDS[stops, followers[ends + 1], 0, small]
    ordinal = (stops == Stop.ORDINAL) | (stops == Stop.PRONOUN)
    last[ends[ending & ~ordinal]] = True
    at = np.flatnonzero(ending & ordinal)
    for place, end in zip(places[at].tolist(), ends[at].tolist(), strict=True):
        # the first word of a sentence is a number only, and that depends on those before it
        last[end] = place > 0 and not last[place - 1]
    cut_off = (chunks.after[places - 1] == CUT) & (places > 0) | (chunks.after[ends + 1] == CUT)
    for paragraph in np.unique(_paragraphs(chunks, places[cut_off])).tolist():
        _settle(data, chunks, paragraph, last)
    return last


def _paragraphs(chunks: Chunks, places: Integers) -> Integers:
    return np.searchsorted(chunks.paragraph_ends, places)


def _in_small_paragraphs(
    chunks: Chunks, traits: NDArray[np.uint8], places: Integers, followers: NDArray[np.uint8]
) -> Integers:
    """1 for places before a small letter in paragraphs without capitals, for the others 0."""
    small = np.zeros(len(places), np.int64)
    before = np.flatnonzero((followers == Follower.SMALL) | (followers == Follower.SMALL_STARTER))
    if len(before):
        starts = np.concatenate([[0], chunks.paragraph_ends[:-1] + 1])
        capitals = np.bitwise_or.reduceat(traits, starts) & CAPITAL
        small[before] = capitals[_paragraphs(chunks, places[before])] == 0
    return small


def _settle(data: bytes, chunks: Chunks, paragraph: int, last: NDArray[np.bool_]) -> None:
    """Settle a paragraph by its text: words beside its stops are cut into several chunks."""
    end = int(chunks.paragraph_ends[paragraph])
    start = int(chunks.paragraph_ends[paragraph - 1]) + 1 if paragraph else 0
    last[start:end] = False
    sentences = sentences_in(data, int(chunks.starts[start]), int(chunks.ends[end]))
    last[np.searchsorted(chunks.starts, sentences) - 1] = True
