from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bertsmith.batches.randomness import below, bits, permuted, stream, uniform

MASK = 2**64 - 1


def splitmix64(state: int, count: int) -> list[int]:
    """SplitMix64 as published, one number after another, in Python's own integers."""
    numbers = []
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        numbers.append(z ^ (z >> 31))
    return numbers


@pytest.mark.parametrize("key", [0, 1234567, 2**64 - 1])
def test_a_stream_is_splitmix64(key: int) -> None:
    assert bits(np.uint64(key), np.arange(9)).tolist() == splitmix64(key, 9)


def test_known_answer() -> None:
    # the published test vector for a generator started at 1234567
    assert splitmix64(1234567, 2) == [6457827717110365317, 3203168211198807973]


def test_streams_differ_by_every_part() -> None:
    keys = {int(stream(*parts)) for parts in [(0,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (0, 0, 1)]}
    assert len(keys) == 6
    assert stream(3, 1, 4) == stream(3, 1, 4)


def test_uniform_and_below_are_uniform() -> None:
    numbers = uniform(stream(5), np.arange(200_000))
    assert stats.kstest(numbers, "uniform").pvalue > 0.001
    counts = np.bincount(below(7, stream(6), np.arange(70_000)), minlength=7)
    assert len(counts) == 7
    assert stats.chisquare(counts).pvalue > 0.001


@given(size=st.integers(1, 3000), key=st.integers(0, MASK))
def test_permuted_is_a_permutation(size: int, key: int) -> None:
    sent = permuted(np.arange(size), size, np.uint64(key))
    assert sorted(sent.tolist()) == list(range(size))


def test_permuted_mixes_and_reads_in_any_order() -> None:
    size = 100_003
    sent = permuted(np.arange(size), size, stream(1))
    assert abs(np.corrcoef(np.arange(size), sent)[0, 1]) < 0.01
    some = np.array([77, 3, size - 1])
    assert permuted(some, size, stream(1)).tolist() == sent[some].tolist()
    assert (permuted(np.arange(size), size, stream(2)) == sent).mean() < 0.001
