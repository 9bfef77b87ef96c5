"""Estimates: what a body holds at least, by those that were read."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest

from bertsmith.serving.dispatch.jobs import Job, Part, SentBatch
from bertsmith.serving.dispatch.throughput import BodyTokens, ModelPace
from bertsmith.serving.messages import Inputs, Outcomes


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


def test_the_tokens_of_texts_are_learned_from_those_that_were_read_whole() -> None:
    """Of a text that was truncated fewer tokens are read than it has."""
    with closing(asyncio.new_event_loop()) as loop:
        part = Part(Job(loop.create_future()), 0, Inputs(["four", "sixsix"]), 10)
    sent = SentBatch(parts=[part], model=0, task="classes", tokens=9, large=False, long=False)
    sent.learn(part, Outcomes(b"", [5, 7], truncated=(0,)))
    assert (sent.computed, sent.read_bytes, sent.read_tokens) == (12, 6, 5)
    sent.learn(part, Outcomes([], [5, 0], problems=((1, "failed", "of no use"),)))
    assert (sent.computed, sent.read_bytes, sent.read_tokens) == (17, 10, 8)
    sent.learn(part, Outcomes(b"", [5, 7]))
    assert (sent.computed, sent.read_bytes, sent.read_tokens) == (29, 20, 16)
