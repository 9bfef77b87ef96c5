"""Clients of a server, all in one process: cheap connections that are kept open.

`python -m loading.client FILE`, where FILE is a JSON object of `Load`'s fields. Every answer is
compared with the expected one as it arrives. Prints a JSON object: counts by status, latencies,
what was wrong, and the processor time that all this took. A line "stop" on standard input ends the
load early.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from loading.comparing import wrong
from loading.questions import Question, body_of, read_questions

# seconds in which what is under way may still be answered when the load ends
_GRACE = 90.0
_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is asked: in a closed loop by `clients`, or at a `rate`."""

    port: int
    questions: str
    seconds: float
    clients: int
    rate: float | None = None
    """Requests a second, in an open loop; None for a closed one."""
    path: str = "/answer"
    dialect: str = "answer"
    precision: str = "fp32"
    hang_up: float = 0.0
    """Share of the clients that hang up before they have their answer, again and again."""
    seed: int = 0
    requests: int | None = None
    """Requests after which the load ends; None for as many as fit into the time."""


class HungUp(Exception):
    """The server closed the connection before there was a whole answer."""


class Connection(asyncio.Protocol):
    """A connection that sends a request and waits for its answer."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._expected = -1
        self._answer: asyncio.Future[tuple[int, bytes, bytes]] | None = None
        self._transport: asyncio.Transport | None = None
        self.closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits."""
        self.closed = True
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(HungUp())

    def data_received(self, data: bytes) -> None:
        """Gather an answer, and give it to whoever waits when it is whole."""
        self._data += data
        if self._expected < 0:
            end = self._data.find(b"\r\n\r\n")
            if end < 0:
                return
            self._expected = end + 4 + _length(bytes(self._data[:end]))
        if len(self._data) >= self._expected and self._answer is not None:
            end = self._data.find(b"\r\n\r\n")
            head, body = bytes(self._data[:end]), bytes(self._data[end + 4 : self._expected])
            del self._data[: self._expected]
            self._expected = -1
            if not self._answer.done():
                self._answer.set_result((int(head[9:12]), head, body))

    async def ask(self, request: bytes) -> tuple[int, bytes, bytes]:
        """Return status, head and body of an answer; raises `HungUp`."""
        if self.closed or self._transport is None:
            raise HungUp
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        """Close the connection at once, as a client does that went away."""
        self.closed = True
        if self._transport is not None:
            self._transport.abort()


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise AssertionError(head)


@dataclass
class Tally:
    """What came back."""

    statuses: Counter[str] = field(default_factory=Counter)
    latencies: dict[str, list[float]] = field(default_factory=dict)
    wrong: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)
    tokens: int = 0
    sent: int = 0
    finished: list[float] = field(default_factory=list)

    def count(self, status: str, seconds: float) -> None:
        """Count an answer."""
        self.statuses[status] += 1
        self.latencies.setdefault(status, []).append(seconds)


class Clients:
    """All clients of a load."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._questions = read_questions(Path(load.questions))
        self._requests = [_request(question, load) for question in self._questions]
        self._tally = Tally()
        self._stop = asyncio.Event()
        self._began = 0.0

    async def run(self) -> Tally:
        """Ask until the time is over, and wait for what is under way."""
        # the pauses of its collector would be counted as the server's
        gc.disable()
        self._began = time.perf_counter()
        listening = asyncio.create_task(self._listen())
        if self._load.rate is None:
            hanging = round(self._load.hang_up * self._load.clients)
            kinds: list[Callable[[random.Random], Coroutine[Any, Any, None]]] = [
                self._quitter if number < hanging else self._client
                for number in range(self._load.clients)
            ]
            tasks = [
                asyncio.create_task(kind(random.Random(self._load.seed * 100_003 + number)))
                for number, kind in enumerate(kinds)
            ]
        else:
            tasks = [asyncio.create_task(self._arrivals(self._load.rate))]
        try:
            async with asyncio.timeout(self._load.seconds + _GRACE):
                await asyncio.gather(*tasks)
        except TimeoutError:
            pass
        listening.cancel()
        return self._tally

    @property
    def _over(self) -> bool:
        asked, most = self._tally.sent, self._load.requests
        late = time.perf_counter() - self._began >= self._load.seconds
        return self._stop.is_set() or late or (most is not None and asked >= most)

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        if (await reader.readline()).strip() == b"stop":
            self._stop.set()

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(Connection, "127.0.0.1", self._load.port)
        return connection

    async def _client(self, draw: random.Random) -> None:
        """Ask one question after another."""
        connection: Connection | None = None
        while not self._over:
            if connection is None or connection.closed:
                connection = await self._connected()
                if connection is None:
                    continue
            wait = await self._ask(connection, draw.randrange(len(self._requests)))
            if wait:
                await asyncio.sleep(wait * draw.uniform(0.5, 1.0))
        if connection is not None:
            connection.close()

    async def _connected(self) -> Connection | None:
        """Return a connection; None, after a moment, where the server takes none."""
        try:
            return await self._connect()
        except OSError:
            self._tally.statuses["refused"] += 1
            await asyncio.sleep(0.1)
            return None

    async def _quitter(self, draw: random.Random) -> None:
        """Ask, and hang up before the answer is there."""
        while not self._over:
            connection = await self._connected()
            if connection is None:
                continue
            number = draw.randrange(len(self._requests))
            try:
                async with asyncio.timeout(draw.uniform(0.0, 0.1)):
                    await connection.ask(self._requests[number])
                self._tally.statuses["answered before hanging up"] += 1
            except (TimeoutError, HungUp):
                self._tally.statuses["hung up"] += 1
            connection.close()

    async def _arrivals(self, rate: float) -> None:
        """Ask at a rate, whatever comes back, on connections that are free."""
        draw = random.Random(self._load.seed)
        free: deque[Connection] = deque()
        under_way: set[asyncio.Task[None]] = set()
        due = self._began
        opened = 0

        async def one(connection: Connection | None, number: int) -> None:
            nonlocal opened
            if connection is None:
                connection = await self._connected()
            if connection is not None:
                await self._ask(connection, number)
            if connection is None or connection.closed:
                opened -= 1
            else:
                free.append(connection)

        while not self._over:
            due += draw.expovariate(rate)
            pause = due - time.perf_counter()
            # the clock of the loop is coarse: small pauses are made together
            if pause > 0.002:
                await asyncio.sleep(pause)
            elif len(under_way) % 64 == 0:
                await asyncio.sleep(0)
            while free and free[-1].closed:
                free.pop()
                opened -= 1
            connection = free.pop() if free else None
            if connection is None:
                if opened >= self._load.clients:
                    self._tally.statuses["not sent: no connection free"] += 1
                    await asyncio.sleep(0)
                    continue
                opened += 1
            task = asyncio.create_task(one(connection, draw.randrange(len(self._requests))))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        await asyncio.gather(*under_way)

    async def _ask(self, connection: Connection, number: int) -> float:
        """Ask a question, judge the answer, and return the seconds to wait before the next one."""
        began = time.perf_counter()
        self._tally.sent += 1
        try:
            status, head, body = await connection.ask(self._requests[number])
        except HungUp:
            self._tally.count("lost", time.perf_counter() - began)
            return 0.0
        ended = time.perf_counter()
        self._tally.count(str(status), ended - began)
        if b"\r\nconnection: close" in head.lower():
            connection.close()
        if status == 200:
            self._tally.finished.append(ended - self._began)
            tokens = self._judge(self._questions[number], body)
            if ended - self._began <= self._load.seconds:
                self._tally.tokens += tokens
        elif len(self._tally.examples) < _SHOWN and status != 429:
            self._tally.examples.append(f"{status}: {body[:200].decode(errors='replace')}")
        return _retry_after(head) if status in (429, 503) else 0.0

    def _judge(self, question: Question, body: bytes) -> int:
        """Compare an answer with the expected one, and return the tokens that were read."""
        found = orjson.loads(body)
        if self._load.dialect == "openai":
            answer = found["data"][0]["embedding"]
            tokens = found.get("usage", {}).get("prompt_tokens", 0)
        else:
            (answer,) = found["answers"]
            answer = answer["vector"] if question.kind == "vectors" else answer
            tokens = found["tokens"]
        problem = wrong(question.kind, question.expected, answer, self._load.precision)
        if problem is not None:
            self._tally.wrong[question.kind] += 1
            if len(self._tally.examples) < _SHOWN:
                self._tally.examples.append(f"{question.kind}: {problem}")
        return int(tokens)


def _request(question: Question, load: Load) -> bytes:
    body = body_of(question, load.dialect)
    return (
        f"POST {load.path} HTTP/1.1\r\nHost: 127.0.0.1:{load.port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def _retry_after(head: bytes) -> float:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"retry-after":
            return min(float(value), 1.0)
    return 0.1


def summary(tally: Tally, load: Load, seconds: float) -> dict[str, Any]:
    """Return the figures of a load."""
    times = os.times()
    shown = {
        status: dict(
            zip(
                ("p50", "p95", "p99", "max"),
                np.percentile(found, [50, 95, 99, 100]).round(5).tolist(),
                strict=True,
            )
        )
        for status, found in tally.latencies.items()
    }
    # answers that came while the load lasted: what came later would make the rate look lower
    during = sum(1 for moment in tally.finished if moment <= load.seconds)
    return {
        "seconds": min(seconds, load.seconds),
        "sent": tally.sent,
        "statuses": dict(tally.statuses),
        "unanswered": tally.sent - sum(len(latency) for latency in tally.latencies.values()),
        "latency": shown,
        "answers_per_second": during / min(seconds, load.seconds),
        # of servers that answer many at once, hardly one answer may come in time
        "answers_per_second_to_the_last": len(tally.finished) / max(tally.finished, default=1.0),
        "tokens_per_second": tally.tokens / min(seconds, load.seconds),
        "each_second": np.bincount(np.array(tally.finished, int)).tolist() if during else [],
        "wrong": dict(tally.wrong),
        "examples": tally.examples,
        "cpu": times.user + times.system,
    }


def main() -> None:
    """Run a load."""
    load = Load(**json.loads(Path(sys.argv[1]).read_text("utf-8")))

    async def run() -> dict[str, Any]:
        clients = Clients(load)
        before = os.times()
        began = time.perf_counter()
        print("began", flush=True)
        tally = await clients.run()
        found = summary(tally, load, time.perf_counter() - began)
        return found | {"cpu": found["cpu"] - before.user - before.system}

    print(json.dumps(asyncio.run(run())))


if __name__ == "__main__":
    main()
