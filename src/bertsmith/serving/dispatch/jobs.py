"""Requests under way: the texts of each, and the batches of them that workers have."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from bertsmith.serving.dispatch.queue import Entry
from bertsmith.serving.dispatch.workers import Link
from bertsmith.serving.messages import Inputs, Kind, Lane, Outcome
from bertsmith.serving.refusals import Refusal

Group = tuple[int, Kind]


@dataclass(slots=True, eq=False)
class Job:
    """The texts of one request."""

    outcomes: list[Outcome | None]
    remaining: int
    done: asyncio.Future[None]
    entries: list[Entry[Group, Part]] = field(default_factory=list)

    def end(self, start: int, outcomes: Sequence[Outcome]) -> None:
        """Take the outcomes of texts from one number on."""
        self.outcomes[start : start + len(outcomes)] = outcomes
        self.remaining -= len(outcomes)
        if not self.remaining and not self.done.done():
            self.done.set_result(None)

    def fail(self, refusal: Refusal) -> None:
        """Give the whole request up."""
        if not self.done.done():
            self.done.set_exception(refusal)


@dataclass(slots=True, eq=False)
class Part:
    """Some texts of a request, from the number `start` on, which are computed together."""

    job: Job
    start: int
    inputs: Inputs
    number: int = 0
    worker: Worker | None = None


@dataclass(slots=True, eq=False)
class SentBatch:
    """A batch that a worker has."""

    parts: list[Part]
    model: int
    tokens: int
    large: bool
    """True if it is of large requests."""
    long: bool
    """True if its text takes long."""


@dataclass(slots=True, eq=False)
class Worker:
    """A worker and the batches that it has, by their numbers."""

    link: Link
    lane: Lane = "any"
    opened: bool = False
    batches: dict[int, SentBatch] = field(default_factory=dict)
    since: float = 0.0
    """The time when it finished a batch last, or was sent one while it had none."""

    def takes(self, *, large: bool) -> bool:
        """Return whether it answers large requests, or small ones."""
        return self.lane in ("any", "large" if large else "small")

    def of_flow(self, *, large: bool) -> list[SentBatch]:
        """Return its batches of large requests, or those of small ones."""
        return [batch for batch in self.batches.values() if batch.large == large]

    @property
    def load(self) -> tuple[int, bool, float]:
        """The order in which workers get small requests: by what these would wait for."""
        ahead = sum(batch.tokens for batch in self.of_flow(large=False))
        return ahead, bool(self.batches), self.since

    @property
    def tokens(self) -> int:
        """Tokens of its batches."""
        return sum(batch.tokens for batch in self.batches.values())

    @property
    def long(self) -> bool:
        """Return whether it computes a text that takes long."""
        return any(batch.long for batch in self.batches.values())
