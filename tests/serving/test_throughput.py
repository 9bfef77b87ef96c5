"""Estimates: what a body holds at least, by those that were read."""

from __future__ import annotations

import pytest

from bertsmith.serving.dispatch.throughput import BodyTokens, ModelPace


def test_the_least_tokens_of_a_body_are_those_of_bodies_of_about_its_size() -> None:
    found = BodyTokens()
    assert found.least(100) is None
    found.learn(100, 25)
    found.learn(120, 18)
    found.learn(200, 100)
    assert [found.least(size) for size in (60, 100, 110, 140, 200, 300)] == [
        None, 15, 16, 70, 100, None,
    ]  # fmt: skip


def test_the_tokens_of_texts_are_learned_from_as_many_bytes_whatever_their_lengths() -> None:
    found, other = ModelPace(), ModelPace()
    for _ in range(1000):
        found.learn(2, 1, 3, 0.001)
    assert found.tokens_per_byte < 0.35
    # texts of another language
    for _ in range(10):
        found.learn(8000, 6400, 6402, 0.05)
        other.learn(8000, 6400, 6402, 0.05)
    assert found.tokens_per_byte == pytest.approx(0.8, rel=0.03)
    assert other.tokens_per_byte == pytest.approx(0.8, rel=0.03)


def test_an_odd_body_is_forgotten() -> None:
    found = BodyTokens()
    found.learn(100, 1)
    found.learn(100, 25)
    assert found.least(100) == 1
    for _ in range(5000):
        found.learn(100, 25)
    assert found.least(100) == 24
