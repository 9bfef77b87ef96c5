from __future__ import annotations

import ast
import itertools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import bertsmith
from bertsmith.core.streams import (
    Purpose,
    bits,
    permutation,
    permuted,
    random_integers,
    random_subset,
    stream,
    uniform,
)

MASK = 2**64 - 1
KEY = stream(Purpose.MASKS, 5)


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


@pytest.mark.parametrize("parts", [(), (0,), (7,), (3, 0, 5)])
def test_a_key_hashes_purpose_and_count_and_then_each_number(parts: tuple[int, ...]) -> None:
    # runs that go on depend on it
    key = splitmix64(7, len(parts) + 1)[-1]
    for part in parts:
        key = splitmix64(key, part + 1)[-1]
    assert int(stream(Purpose.MASKS, *parts)) == key


def test_no_two_names_share_a_key() -> None:
    values = (0, 1, 20, 2**63, MASK)
    names = [
        (purpose, parts)
        for purpose in Purpose
        for count in range(4)
        for parts in itertools.product(values, repeat=count)
    ]
    assert len({int(stream(purpose, *parts)) for purpose, parts in names}) == len(names)


def test_the_order_of_an_epoch_has_no_number_of_the_cuts_of_another() -> None:
    # when a purpose was a number among the others, the order of epoch 1, (seed, 1, 0), was the
    # stream of the cuts of epoch 0, (seed, 1) and then 0
    orders = [stream(Purpose.SEQUENCE_ORDER, 9, epoch) for epoch in range(20)]
    cuts = [stream(Purpose.CUTS, 9, epoch) for epoch in range(20)]
    drawn = bits(np.array(orders + cuts)[:, None], np.arange(1000))
    assert len(np.unique(drawn)) == drawn.size


def test_numbers_wrap_at_64_bits() -> None:
    assert stream(Purpose.MASKS, -1) == stream(Purpose.MASKS, MASK)
    assert stream(Purpose.MASKS, 2**64 + 3) == stream(Purpose.MASKS, 3)


def test_every_key_is_a_seed_for_other_generators() -> None:
    for key in (np.uint64(0), np.uint64(2**63), np.uint64(MASK)):
        np.random.default_rng(int(key))
        torch.Generator().manual_seed(int(key))


def test_uniform_and_below_are_uniform() -> None:
    numbers = uniform(KEY, np.arange(200_000))
    assert stats.kstest(numbers, "uniform").pvalue > 0.001
    counts = np.bincount(
        random_integers(7, stream(Purpose.MASKS, 6), np.arange(70_000)), minlength=7
    )
    assert len(counts) == 7
    assert stats.chisquare(counts).pvalue > 0.001


@given(size=st.integers(1, 3000), key=st.integers(0, MASK))
def test_permuted_is_a_permutation(size: int, key: int) -> None:
    sent = permuted(np.arange(size), size, np.uint64(key))
    assert sorted(sent.tolist()) == list(range(size))


def test_permuted_mixes_and_reads_in_any_order() -> None:
    size = 100_003
    sent = permuted(np.arange(size), size, KEY)
    assert abs(np.corrcoef(np.arange(size), sent)[0, 1]) < 0.01
    some = np.array([77, 3, size - 1])
    assert permuted(some, size, KEY).tolist() == sent[some].tolist()
    assert (permuted(np.arange(size), size, stream(Purpose.MASKS, 6)) == sent).mean() < 0.001


SEEDING = ("default_rng", "manual_seed", "Random", "RandomState", "seed")


def nodes(*words: str) -> Iterator[tuple[str, ast.AST]]:
    """The syntax of the program's modules that have one of some words, but the one under test."""
    root = Path(bertsmith.__file__).parent
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path.name != "randomness.py" and any(word in text for word in words):
            for node in ast.walk(ast.parse(text)):
                yield path.relative_to(root).as_posix(), node


def test_each_purpose_is_that_of_one_module() -> None:
    users = defaultdict[str, set[str]](set)
    for name, node in nodes("Purpose."):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "Purpose":
            users[node.attr].add(name)
    assert set(users) == {purpose.name for purpose in Purpose}
    assert {name: found for name, found in users.items() if len(found) > 1} == {}


def test_generators_are_seeded_by_streams() -> None:
    seeded = 0
    for name, node in nodes(*(f".{word}(" for word in SEEDING)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in SEEDING:
            seeded += 1
            (seed,) = node.args
            assert ast.unparse(seed).startswith("int(stream(Purpose."), (name, node.lineno)
    assert seeded


def test_a_random_subset_is_the_beginning_of_a_permutation_in_order() -> None:
    assert random_subset(100, 7, KEY).tolist() == sorted(permutation(100, KEY)[:7].tolist())
    assert random_subset(5, 7, KEY).tolist() == random_subset(5, 5, KEY).tolist() == [*range(5)]
