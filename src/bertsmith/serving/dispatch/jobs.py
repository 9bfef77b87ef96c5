"""Requests under way: the parts of each, and the batches of them that workers have."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bertsmith.serving.dispatch.queue import Entry
from bertsmith.serving.dispatch.throughput import SPECIALS
from bertsmith.serving.dispatch.workers import Link
from bertsmith.serving.messages import Inputs, Kind, Lane, Outcomes, Problem
from bertsmith.serving.refusals import Refusal

Group = tuple[int, Kind]


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers to a request, of each of its parts."""

    parts: Sequence[Outcomes]

    @property
    def values(self) -> list[Any]:
        """The answer to each text, of a request whose answers were not rendered."""
        return [answer for part in self.parts for answer in part.answers]

    @property
    def rendered(self) -> list[bytes]:
        """JSON of all answers, separated by commas but for those where one of these ends."""
        return [part.answers for part in self.parts if isinstance(part.answers, bytes)]

    @property
    def tokens(self) -> int:
        """The tokens that were read."""
        return sum(sum(part.tokens) for part in self.parts)

    @property
    def truncated(self) -> list[int]:
        """The numbers of the texts of which not all was read."""
        results, start = list[int](), 0
        for part in self.parts:
            results += [start + number for number in part.truncated]
            start += len(part.tokens)
        return results

    @property
    def problem(self) -> tuple[int, Problem, str] | None:
        """The number of the first text that has no answer, and why; None if all have one."""
        start = 0
        for part in self.parts:
            if part.problems:
                number, problem, message = part.problems[0]
                return start + number, problem, message
            start += len(part.tokens)
        return None


@dataclass(slots=True, eq=False)
class Job:
    """A request: the outcomes of its parts so far, and how many are missing."""

    done: asyncio.Future[None]
    entries: list[Entry[Group, Part]] = field(default_factory=list)
    outcomes: list[Outcomes | None] = field(default_factory=list)
    remaining: int = 0

    def end(self, number: int, outcomes: Outcomes) -> None:
        """Take the outcomes of a part."""
        self.outcomes[number] = outcomes
        self.remaining -= 1
        if not self.remaining and not self.done.done():
            self.done.set_result(None)

    def fail(self, refusal: Refusal) -> None:
        """Refuse the whole request."""
        if not self.done.done():
            self.done.set_exception(refusal)


@dataclass(slots=True, eq=False)
class Part:
    """Some texts of a request, which are computed together; its number among the parts."""

    job: Job
    place: int
    inputs: Inputs
    size: int
    """The bytes of its texts."""
    number: int = 0
    """A number that no other part of any request has, once it is sent."""
    worker: Worker | None = None


@dataclass(slots=True, eq=False)
class SentBatch:
    """A batch that a worker has."""

    parts: list[Part]
    """Those whose outcomes have not come yet."""
    model: int
    task: Kind
    tokens: int
    large: bool
    """True if it is of large requests."""
    long: bool
    """True if its text takes long."""
    computed: int = 0
    """Tokens that were read so far."""
    read_tokens: int = 0
    """Those of texts that were read as a whole, without special ones."""
    read_bytes: int = 0
    """The bytes of these texts."""

    def learn(self, part: Part, outcomes: Outcomes) -> None:
        """Count what was read of a part."""
        self.computed += sum(outcomes.tokens)
        unread = {*outcomes.truncated, *(number for number, _, _ in outcomes.problems)}
        if not unread:
            self.read_bytes += part.size
            self.read_tokens += sum([max(tokens - SPECIALS, 0) for tokens in outcomes.tokens])
            return
        for number, (tokens, size) in enumerate(
            zip(outcomes.tokens, part.inputs.sizes(), strict=True)
        ):
            if number not in unread:
                self.read_bytes += size
                self.read_tokens += max(tokens - SPECIALS, 0)


@dataclass(slots=True, eq=False)
class Worker:
    """A worker and the batches that it has, by their numbers."""

    link: Link
    lane: Lane = "any"
    opened: bool = False
    unused: bool = False
    """True once it was ended because it has opened other models."""
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
