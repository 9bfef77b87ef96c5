from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest

from bertsmith.batches.truncation import fitted, window_of, window_starts
from bertsmith.network.config import Fit
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer((*SPECIALS, *(f"w{n}" for n in range(60))), BasicRules(lowercase=True))


def inner(tokenizer: Tokenizer, fit: Fit, first: int, second: int | None = None) -> list[list[int]]:
    """What is kept of texts of so many tokens, 100 and up and 200 and up, in 13 tokens."""
    one = np.arange(100, 100 + first)
    two = None if second is None else np.arange(200, 200 + second)
    found = fitted(tokenizer, one, two, longest=13, fit=fit)
    assert found.long == (first + (second or 0) > 13 - (2 if second is None else 3))
    assert all(len(ids) <= 13 for ids, _ in found.sequences)
    return [[token for token in ids.tolist() if token >= 100] for ids, _ in found.sequences]


def test_a_text_is_kept_by_its_head_its_tail_or_both(tokenizer: Tokenizer) -> None:
    assert inner(tokenizer, "head", 20) == [list(range(100, 111))]
    assert inner(tokenizer, "tail", 20) == [list(range(109, 120))]
    assert inner(tokenizer, "head+tail", 20) == [[100, 101, *range(111, 120)]]
    for fit in ("head", "tail", "head+tail", "windows"):
        assert inner(tokenizer, fit, 11) == [list(range(100, 111))]
    ((ids, _),) = fitted(tokenizer, np.arange(900), None, longest=512, fit="head+tail").sequences
    assert np.count_nonzero(ids[1:-1] < 500) == 510 // 4


def test_windows_hold_every_token_and_lose_none(tokenizer: Tokenizer) -> None:
    found = inner(tokenizer, "windows", 40)
    # neighbours share a quarter of a window, the last two as much as is left
    assert found == [list(range(first, first + 11)) for first in (100, 109, 118, 127, 129)]
    assert not fitted(tokenizer, np.arange(40), None, longest=13, fit="windows").cut


def test_of_a_pair_the_longer_text_is_in_windows_beside_the_other(tokenizer: Tokenizer) -> None:
    found = inner(tokenizer, "windows", 3, 30)
    assert all(window[:3] == [100, 101, 102] for window in found)
    assert [window[3:] for window in found] == [
        list(range(first, first + 7)) for first in (200, 206, 212, 218, 223)
    ]
    # cut is the other text, where it does not fit beside any window
    for first, second, cut in ((30, 20, True), (20, 30, True), (3, 30, False), (30, 3, False)):
        both = fitted(tokenizer, np.arange(first), np.arange(second), longest=13, fit="windows")
        assert (both.long, both.cut) == (True, cut)


@pytest.mark.parametrize(
    ("length", "room", "overlap"), [(1, 5, 2), (5, 5, 2), (23, 5, 2), (9, 4, 0)]
)
def test_windows_cover_a_text_and_the_last_is_full(length: int, room: int, overlap: int) -> None:
    starts = window_starts(length, room, overlap)
    covered = {place for start in starts for place in range(start, min(start + room, length))}
    assert covered == set(range(length))
    assert starts[-1] == max(length - room, 0)
    assert all(b - a <= room - overlap for a, b in pairwise(starts))


def test_each_token_is_read_where_its_nearer_side_is_longest() -> None:
    assert window_of(50, 20, 10)[0] == [0, 10, 20, 30]
    # in windows of 19 some tokens are as far from the edge of both: the earlier one counts
    for width, overlap in ((20, 10), (19, 9), (19, 40), (1, 0)):
        starts, chosen = window_of(50, width, overlap)
        for token, window in enumerate(chosen.tolist()):
            sides = [
                min(token - start, start + width - 1 - token)
                if start <= token < start + width
                else -1
                for start in starts
            ]
            assert window == sides.index(max(sides))
    assert window_of(3, 20, 10)[1].tolist() == [0, 0, 0]
    assert window_of(0, 20, 10)[1].tolist() == []


def test_the_windows_of_a_document_of_any_length_take_little_memory() -> None:
    length, room, overlap = 200_000, 300, 100
    tracemalloc.start()
    try:
        starts, chosen = window_of(length, room, overlap)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # a table of windows and tokens would have 200 million cells
    assert peak < 20e6
    # Devlin et al.'s own rule (_check_is_max_context of run_squad.py), asked of some tokens
    for token in range(0, length, 4999):
        best, which = -1.0, -1
        for window, start in enumerate(starts):
            if start <= token < start + room:
                score = min(token - start, start + room - 1 - token) + 0.01 * room
                if score > best:
                    best, which = score, window
        assert chosen[token] == which
