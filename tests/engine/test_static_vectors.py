"""Means of static vectors: those of each text alone, whatever is looked up at once."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from bertsmith.core.errors import ExampleError
from bertsmith.engine import static
from bertsmith.engine.static import StaticVectors
from bertsmith.network.pooling import Truncation, UnitLength
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer
from bounds import close_to_float64

WIDTH = 7


@pytest.fixture
def model(tokenizer: Tokenizer) -> StaticVectors:
    table = np.random.default_rng(3).normal(size=(tokenizer.size, WIDTH)).astype(np.float32)
    return StaticVectors(table=table, tokenizer=tokenizer)


def texts(model: StaticVectors, sizes: list[int]) -> list[NDArray[np.int64]]:
    chance = np.random.default_rng(5)
    return [chance.integers(0, len(model.table), size) for size in sizes]


@pytest.mark.parametrize("held", [1, 4 * WIDTH, 4 * WIDTH * 5, 4 * WIDTH * 11, 2**24])
def test_means_are_those_of_each_text(
    model: StaticVectors, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(static, "_HELD", held)
    pieces = texts(model, [0, 3, 5, 0, 23, 1, 11, 10, 2, 0])
    means = model.means(pieces)
    for ids, mean in zip(pieces, means, strict=True):
        expected = model.table[ids].astype(np.float64).mean(axis=0) if len(ids) else np.zeros(WIDTH)
        close_to_float64(mean, expected)
        assert np.array_equal(model.means([ids])[0], mean)


def test_as_many_pieces_are_read_as_the_limit_says_behind_the_prompt(
    model: StaticVectors, tokenizer: Tokenizer
) -> None:
    limited = replace(model, longest=5, prompt="word7 ", normalize=True)
    written = ["word1 word2", "word3 " * 9]
    asked = [Example(text=text, text_pair=None, label=None, source="", line=1) for text in written]
    for text, found in zip(written, limited.features(asked), strict=True):
        (ids,) = tokenizer.encode([f"word7 {text}"])
        mean = model.table[ids[:5]].astype(np.float64).mean(axis=0)
        close_to_float64(found.vectors, mean / np.linalg.norm(mean))
        assert (found.tokens, found.left_out) == (len(ids[:5]), len(ids[5:]))
    # no direction, and no division by its length
    assert np.array_equal(limited.means([np.zeros(0, np.int64)]), np.zeros((1, WIDTH)))


def test_every_layer_after_the_mean_is_applied_in_its_order(model: StaticVectors) -> None:
    layered = replace(model, after=(UnitLength(), Truncation(4)))
    assert (model.width, layered.width) == (WIDTH, 4)
    pieces = texts(model, [3, 0, 8])
    for ids, found in zip(pieces, layered.means(pieces), strict=True):
        mean = model.table[ids].astype(np.float64).mean(axis=0) if len(ids) else np.zeros(WIDTH)
        close_to_float64(found, mean[:4] / (np.linalg.norm(mean) or 1))


def test_a_pair_is_refused_by_its_line(model: StaticVectors) -> None:
    first, second = (
        Example(text="word1", text_pair=pair, label=None, source="rows.csv", line=line)
        for line, pair in ((3, None), (4, "word2"))
    )
    with pytest.raises(ExampleError, match=r"rows\.csv:4: is a pair of texts.*--text-column"):
        list(model.features([first, second]))


@pytest.mark.parametrize("sizes", [[300_000], [1000] * 300])
def test_vectors_of_all_pieces_are_never_held_at_once(
    model: StaticVectors, monkeypatch: pytest.MonkeyPatch, sizes: list[int]
) -> None:
    monkeypatch.setattr(static, "_HELD", 2**18)
    pieces = texts(model, sizes)
    tracemalloc.start()
    model.means(pieces)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # the vectors are 8.4 MB
    assert peak < 4_000_000
