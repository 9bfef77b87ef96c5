"""The way from requests to workers and back: the queue, its batches, deadlines, dead workers.

It runs in one event loop and knows no HTTP. Requests are refused at once where more tokens wait
than may, or than can be computed in `queue_seconds`, with those that workers have already, even if
the machine is as slow as it was at times; most of them before they are read, by the tokens that
bodies of such a size had at least. A batch is as large as is computed in
`throughput.BATCH_SECONDS`, by what was measured so far; larger texts are computed alone, and never
by all workers at once.

A request that a batch holds is small. Small and large requests have workers of their own, as many
of one as of the other; the system prefers those for small requests and interrupts the others for
them. So a small request waits for no large one that is being computed. Where workers cannot share
the models, each answers both; batches of small requests then overtake those of large ones that are
not computed yet. A worker has at most two batches of either, one that it computes and one that it
encodes meanwhile.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bertsmith.core.errors import UserError, WorkerDied
from bertsmith.core.log import say
from bertsmith.serving.config import LimitsConfig
from bertsmith.serving.dispatch.jobs import Answers, Group, Job, Part, SentBatch, Worker
from bertsmith.serving.dispatch.queue import QueueFull, TakenBatch, TokenQueue, TooLarge
from bertsmith.serving.dispatch.throughput import SPECIALS, BodyTokens, ModelPace, ServerPace
from bertsmith.serving.dispatch.workers import MAX_PAUSE, Link, Listener, pause_after
from bertsmith.serving.messages import (
    Batch,
    Cancel,
    Done,
    Inputs,
    Kind,
    Lane,
    ModelFacts,
    Opened,
    Refused,
)
from bertsmith.serving.refusals import (
    ContextTooLong,
    DeadlineExceeded,
    InternalError,
    InvalidRequest,
    Overloaded,
    PayloadTooLarge,
    Unavailable,
)

_DEPTH = 2
# tokens that are encoded in the time in which one is computed, about
_ENCODED_FOR_ONE = 16
# of the texts that wait as one, in a request of many: less than any batch, so that it stays full
_PART_TOKENS, _PART_TEXTS = 128, 32
_OUT_OF_MEMORY = "it was killed, by the system perhaps, which was short of memory"
_TICK = 1.0


@dataclass
class Counts:
    """Counts of all that has happened so far, for the metrics."""

    tokens: int = 0
    batches: int = 0
    seconds: float = 0.0
    expired: int = 0
    lost: int = 0
    restarts: int = 0


Starter = Callable[[Listener, Lane], Link]
"""A function that starts a worker of a lane, whose messages a listener gets."""


class Gateway:
    """Answers requests by workers; `models` are known once the first worker has opened them.

    There are `count` workers of each lane.
    """

    def __init__(
        self, limits: LimitsConfig, start: Starter, count: int, lanes: tuple[Lane, ...] = ("any",)
    ) -> None:
        self.limits = limits
        self.models: tuple[ModelFacts, ...] = ()
        self.counts = Counts()
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.queue: TokenQueue[Group, Part] = TokenQueue(limits.queue_tokens)
        self._start, self._count, self._lanes = start, count, lanes
        self._workers: list[Worker] = []
        self._speeds: list[ModelPace] = []
        self._pace = ServerPace()
        self._body_tokens = BodyTokens()
        self._jobs: set[Job] = set()
        self._texts = 0
        self._idle = asyncio.Event()
        self._number = 0
        self._failures = 0
        self._reported: Sequence[ModelFacts] = ()
        self._leaving = self._refusing = self._stopped = False
        self._tick: asyncio.TimerHandle | None = None

    # life

    def start(self) -> None:
        """Start the workers."""
        for lane in self._lanes * self._count:
            self._workers.append(Worker(self._start(self, lane), lane))
        self._watch()

    @property
    def size(self) -> int:
        """The number of workers of each lane."""
        return self._count

    @property
    def ready(self) -> bool:
        """Return whether further requests should be sent here."""
        return not self._leaving and self._is_able

    @property
    def leaving(self) -> bool:
        """Return whether the server is about to end."""
        return self._leaving

    @property
    def waiting(self) -> int:
        """The number of requests that are being answered."""
        return len(self._jobs)

    @property
    def waiting_texts(self) -> int:
        """The number of texts in the queue."""
        return self._texts

    @property
    def _is_able(self) -> bool:
        return any(worker.opened for worker in self._workers)

    def leave(self) -> None:
        """Be no longer ready, while requests are still answered."""
        self._leaving = True

    async def drain(self) -> None:
        """Refuse further requests, and wait until those that are there are answered."""
        self._leaving = self._refusing = True
        self._idle.clear()
        if self._jobs:
            await self._idle.wait()

    def stop(self) -> None:
        """End the workers."""
        self._stopped = True
        if self._tick is not None:
            self._tick.cancel()
        for worker in self._workers:
            worker.link.kill()
        for job in list(self._jobs):
            job.fail(Unavailable("the server is shutting down"))

    # requests

    async def ask(self, model: int, task: Kind, inputs: Inputs, *, body: int = 0) -> Answers:
        """Return the answers to some inputs, in their order.

        `body` is the size of the request in bytes, from which others like it are refused unread. On
        cancellation, inputs that were not computed yet are dropped. Raises `Refusal`.
        """
        if self._refusing or not self._is_able:
            reason = "is shutting down" if self._refusing else "has no model open at the moment"
            raise Unavailable(f"the server {reason}")
        job = Job(asyncio.get_running_loop().create_future())
        self._add(job, model, task, inputs, body)
        self._jobs.add(job)
        try:
            self._dispatch()
            async with asyncio.timeout(self.limits.deadline):
                await job.done
        except DeadlineExceeded:
            self.counts.expired += self._cancel(job)
            raise
        except TimeoutError:
            self.counts.expired += self._cancel(job)
            raise DeadlineExceeded(
                f"not answered within {self.limits.deadline:g} seconds"
            ) from None
        finally:
            if job.remaining:
                self._cancel(job)
            # a cycle otherwise, since each part knows its request
            job.entries.clear()
            self._jobs.discard(job)
            if not self._jobs:
                self._idle.set()
        return _checked(Answers([each for each in job.outcomes if each is not None]), inputs)

    def _add(self, job: Job, model: int, task: Kind, inputs: Inputs, body: int) -> None:
        speed = self._speeds[model]
        sizes = inputs.sizes()
        guesses = self._guesses(model, inputs, sizes)
        total = sum(guesses)
        if body:
            self._body_tokens.learn(body, total)
        large = total > speed.budget
        seconds = self._seconds_to_wait(large)
        if seconds > self.limits.longest_wait:
            raise self._overloaded(large, seconds)
        contents = [
            (Part(job, place, inputs.part(begin, end), sum(sizes[begin:end])), tokens)
            for place, (begin, end, tokens) in enumerate(_parts(guesses))
        ]
        job.outcomes, job.remaining = [None] * len(contents), len(contents)
        deadline = time.monotonic() + self.limits.deadline
        try:
            job.entries = self.queue.add((model, task), contents, deadline=deadline, large=large)
        except QueueFull:
            raise self._overloaded(large, seconds) from None
        except TooLarge as error:
            raise PayloadTooLarge(
                f"the request has about {error.tokens:,} tokens, and at most "
                f"{error.max_tokens:,} may wait"
            ) from None
        self._texts += len(inputs)

    def _guesses(self, model: int, inputs: Inputs, sizes: Sequence[int]) -> list[int]:
        """Return about how many tokens each of some inputs, of these bytes, has for a model."""
        ratio, max_length = self._speeds[model].tokens_per_byte, self.models[model].max_input_length
        guesses = [SPECIALS + int(ratio * size) for size in sizes]
        if max(guesses) <= max_length:
            return guesses
        sequences = list(map(len, inputs.choices)) if inputs.choices else [1] * len(inputs)
        # what is not read of a text has to be encoded all the same
        return [
            max(min(guess, max_length * count), guess // _ENCODED_FOR_ONE)
            for guess, count in zip(guesses, sequences, strict=True)
        ]

    def check_room(self, size: int) -> None:
        """Raise `Overloaded` for a body whose estimated least tokens do not fit.

        Under load most requests are refused, and this costs a fraction of reading them. A body
        that may be a small request counts as one, which is refused less often; one that is too
        large even for an empty queue is refused after it was read, with its number of tokens.
        """
        tokens = self._body_tokens.least(size)
        if tokens is None or tokens > self.queue.max_tokens or self._refusing:
            return
        large = tokens > max(speed.budget for speed in self._speeds)
        seconds, longest = self._seconds_to_wait(large), self.limits.longest_wait
        if seconds > longest or not self.queue.has_room(tokens, large=large):
            raise self._overloaded(large, seconds)

    def _seconds_to_wait(self, large: bool) -> float:
        """Return the seconds in which what is ahead will be computed, at the pace of slow times."""
        tokens = self.queue.ahead(large=large) + sum(
            batch.tokens
            for worker in self._workers
            for batch in worker.batches.values()
            if large or not batch.large
        )
        return tokens * self._pace.seconds / self._count

    def _overloaded(self, large: bool, seconds: float) -> Overloaded:
        waiting = f"{self.queue.ahead(large=large):,} tokens wait already"
        return Overloaded(waiting, retry_after=max(1, math.ceil(seconds)))

    def _cancel(self, job: Job) -> int:
        """Drop what is left of a request; return how many of its texts were still waiting."""
        waiting, sent = 0, dict[int, tuple[Worker, list[int]]]()
        for entry in job.entries:
            part = entry.content
            if self.queue.cancel(entry):
                waiting += len(part.inputs)
            elif job.outcomes[part.place] is None and part.worker:
                sent.setdefault(id(part.worker), (part.worker, []))[1].append(part.number)
        for worker, numbers in sent.values():
            if worker in self._workers:
                worker.link.send(Cancel(tuple(numbers)))
        job.entries.clear()
        self._texts -= waiting
        return waiting

    # batches

    def _dispatch(self) -> None:
        """Hand batches to workers as long as something waits and one is free."""
        while len(self.queue):
            small, large = self._free_worker(large=False), self._free_worker(large=True)
            if large is None and small is None:
                return
            batch = self.queue.take(
                lambda group: self._speeds[group[0]].budget,
                time.monotonic(),
                longest=self._longest(),
                small=small is not None,
                large=large is not None,
            )
            for entry in batch.expired:
                self.counts.expired += len(entry.content.inputs)
                self._texts -= len(entry.content.inputs)
                entry.content.job.fail(DeadlineExceeded("the deadline passed before its turn"))
            worker = large if batch.large else small
            if not batch.batch or worker is None:
                return
            self._send(worker, batch)

    def _free_worker(self, *, large: bool) -> Worker | None:
        """Return the worker that a batch of large requests, or of small ones, is sent to."""
        free = [
            worker
            for worker in self._able(large=large)
            if len(worker.of_flow(large=large)) < _DEPTH and not worker.long
        ]
        if large:
            return min(free, key=lambda worker: worker.tokens, default=None)
        return min(free, key=lambda worker: worker.load, default=None)

    def _able(self, *, large: bool) -> list[Worker]:
        """Return the workers for large requests, or for small ones.

        All that there are where it has none and none can be had at the moment: their lane is slower
        than a worker of its own, and answers.
        """
        opened = [worker for worker in self._workers if worker.opened]
        own = [worker for worker in opened if worker.takes(large=large)]
        return own or (opened if self._failures else [])

    def _longest(self) -> float:
        """Return the tokens of the longest text of a large request that may be computed now.

        As long as others compute long texts, one worker is kept for short ones. It is 0 where none
        is left: requests that nobody can take for seconds hold up no small ones.
        """
        able = self._able(large=True)
        idle = sum(not worker.long for worker in able)
        if idle == 1 and len(able) > 1:
            return min(2 * speed.budget for speed in self._speeds)
        return math.inf if idle else 0.0

    def _send(self, worker: Worker, batch: TakenBatch[Group, Part]) -> None:
        model, task = batch.batch[0].group
        results = []
        for entry in batch.batch:
            self._number += 1
            entry.content.number, entry.content.worker = self._number, worker
            results.append((self._number, entry.content.inputs, entry.deadline))
            self._texts -= len(entry.content.inputs)
        longest = max(entry.tokens for entry in batch.batch)
        if not worker.batches:
            worker.since = time.monotonic()
        worker.batches[self._number] = SentBatch(
            parts=[entry.content for entry in batch.batch],
            model=model,
            task=task,
            tokens=batch.tokens,
            large=batch.large,
            long=longest > 2 * self._speeds[model].budget,
        )
        urgent = not batch.large
        worker.link.send(Batch(model, task, tuple(results), self._number, urgent))

    # workers

    def on_message(self, worker: Link, message: Opened | Refused | Done) -> None:
        """Take a message of a worker."""
        worker_state = self._of(worker)
        if worker_state is None:
            return
        match message:
            case Opened() if self.models and message.models != self.models:
                self._report_changed(message.models)
                worker_state.unused = True
                worker.kill()
            case Opened():
                worker_state.opened, self._failures = True, 0
                if not self.models:
                    self.models = message.models
                    self._speeds = [ModelPace() for _ in self.models]
                if not self.opened.done():
                    self.opened.set_result(None)
            case Refused():
                self._refused(message)
            case Done():
                self._done(worker_state, message)
        self._dispatch()

    def _report_changed(self, models: Sequence[ModelFacts]) -> None:
        """Report, once, models that are no longer those that the other workers answer with."""
        if models == self._reported:
            return
        self._reported = models
        changed = [
            now.name for now, before in zip(models, self.models, strict=True) if now != before
        ]
        say(
            f"new workers are not used, since the folder of {', '.join(changed)} has changed; "
            "start the server anew"
        )

    def _refused(self, message: Refused) -> None:
        if not self.opened.done():
            self.opened.set_exception(UserError(message.message))
            return
        # where none could, the server is about to end
        if self.opened.exception() is None:
            say(f"a worker cannot open the models again: {message.message}")

    def _done(self, worker: Worker, message: Done) -> None:
        sent = worker.batches[message.number]
        worker.since = time.monotonic()
        parts = sent.parts[: len(message.outcomes)]
        del sent.parts[: len(parts)]
        for part, outcomes in zip(parts, message.outcomes, strict=True):
            assert len(part.inputs) == len(outcomes.tokens), "a worker has answered for other texts"
            sent.learn(part, outcomes)
            part.job.end(part.place, outcomes)
        if message.more:
            return
        assert not sent.parts, "a worker has not answered for all texts"
        del worker.batches[message.number]
        # where both lanes compute, each of them has a part of the cores
        busy = sum(bool(other.batches) for other in self._workers) + (not worker.batches)
        seconds = message.seconds * min(1.0, self._count / busy)
        if sent.task != "tokens":
            # which no model computes: they would be taken for the pace of what it does
            self._learn(sent, seconds, worker.since)
        self.counts.tokens += sent.computed
        self.counts.batches += 1
        self.counts.seconds += message.seconds

    def _learn(self, sent: SentBatch, seconds: float, now: float) -> None:
        speed = self._speeds[sent.model]
        speed.learn(sent.read_bytes, sent.read_tokens, sent.computed, seconds)
        self._pace.learn(sent.computed, seconds, now, full=2 * sent.computed >= speed.budget)

    def on_exit(self, worker: Link) -> None:
        """Refuse the requests of a worker that has ended, and start another one."""
        worker_state = self._of(worker)
        if worker_state is None or self._stopped:
            return
        self._workers.remove(worker_state)
        for batch in worker_state.batches.values():
            for part in batch.parts:
                self.counts.lost += len(part.inputs)
                part.job.fail(Unavailable("the process that computed the answer has died"))
        if not self.opened.done():
            self.opened.set_exception(
                WorkerDied("the process that opens the models has died", remedy=_OUT_OF_MEMORY)
            )
            return
        # where the models cannot be opened, the server is about to end
        if self.opened.exception() is not None:
            return
        if not worker_state.unused:
            say("a worker has died and is replaced")
            self.counts.restarts += 1
        pause = 0.0 if worker_state.opened else pause_after(self._failures)
        if not worker_state.opened:
            self._count_failure()
        asyncio.get_running_loop().call_later(pause, self._replace, worker_state.lane)

    def _replace(self, lane: Lane) -> None:
        if self._stopped:
            return
        try:
            self._workers.append(Worker(self._start(self, lane), lane))
        except OSError as error:
            say(f"a worker cannot be started: {error.strerror}")
            self._count_failure()
            asyncio.get_running_loop().call_later(MAX_PAUSE, self._replace, lane)

    def _count_failure(self) -> None:
        self._failures += 1
        # workers of the other lane take what waits for one that cannot be had
        self._dispatch()

    def _of(self, link: Link) -> Worker | None:
        return next((worker for worker in self._workers if worker.link is link), None)

    def _watch(self) -> None:
        """End workers that have not answered for long: they would never do so."""
        now, max_silence = time.monotonic(), 2 * self.limits.deadline + 30
        for worker in self._workers:
            if worker.batches and now - worker.since > max_silence:
                say("a worker does not answer and is ended")
                worker.link.kill()
        if not self._stopped:
            self._tick = asyncio.get_running_loop().call_later(_TICK, self._watch)


def _parts(guesses: list[int]) -> Iterator[tuple[int, int, int]]:
    """Yield start, end and tokens of each part of a request, given the tokens of its texts."""
    start = tokens = 0
    for number, guess in enumerate(guesses):
        if number > start and (tokens + guess > _PART_TOKENS or number == start + _PART_TEXTS):
            yield start, number, tokens
            start = number
            tokens = 0
        tokens += guess
    yield start, len(guesses), tokens


def _checked(answers: Answers, inputs: Inputs) -> Answers:
    """Return answers; raises `Refusal` where a text has none, with the number of its input."""
    if (found := answers.problem) is None:
        return answers
    number, problem, message = found
    description = f"input {inputs.owner(number)}: " if len(inputs) > 1 else ""
    match problem:
        case "too_long":
            raise ContextTooLong(description + message)
        case "invalid":
            raise InvalidRequest(description + message)
        case "expired":
            raise DeadlineExceeded("the deadline passed before its turn")
        case "failed":
            raise InternalError(message)
