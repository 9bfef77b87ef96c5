"""More requests than can be answered, on a machine whose speed varies: simulated in its own time.

Nothing waits in it: the clock of the event loop is moved on to what happens next.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from bisect import bisect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from types import SimpleNamespace

import pytest

pytest.importorskip("starlette")
pytest.importorskip("orjson")

from bertsmith.serving.config import LimitsConfig
from bertsmith.serving.dispatch import gateway
from bertsmith.serving.dispatch.gateway import Gateway
from bertsmith.serving.dispatch.throughput import ServerPace
from bertsmith.serving.dispatch.workers import Listener
from bertsmith.serving.messages import Batch, Cancel, Done, Inputs, Lane, Opened, Outcomes
from bertsmith.serving.refusals import DeadlineExceeded, Overloaded
from serving_inline import facts

TOKENS = 200
TEXT = "x" * 660
BUDGET = 2.0
Speed = Callable[[float], float]
"""The tokens per second that the machine computes at a time."""


class Selector(selectors.SelectSelector):
    """Waits for nothing, and moves a clock on instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += timeout or 0.0
        return super().select(0)


class Loop(asyncio.SelectorEventLoop):
    """An event loop with a time of its own."""

    def __init__(self) -> None:
        self.selector = Selector()
        super().__init__(self.selector)

    def time(self) -> float:
        return self.selector.now


@contextmanager
def simulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loop]:
    """An event loop whose time is also that of the gateway."""
    loop = Loop()
    monkeypatch.setattr(gateway, "time", SimpleNamespace(monotonic=loop.time))
    yield loop
    loop.close()


class SimulatedWorker:
    """A worker that has half of a machine whose speed varies."""

    def __init__(self, listener: Listener, loop: Loop, speed: Speed) -> None:
        self._listener, self._loop, self._speed = listener, loop, speed
        self._batches: list[Batch] = []
        self._busy = False
        loop.call_soon(listener.on_message, self, Opened((facts(max_input_length=512),)))

    def send(self, message: Batch | Cancel) -> None:
        if isinstance(message, Batch):
            self._batches.append(message)
            self._next()

    def kill(self) -> None:
        """Nothing has to be ended."""

    def _next(self) -> None:
        if self._batches and not self._busy:
            self._busy = True
            batch = self._batches.pop(0)
            begin = end = self._loop.time()
            left = float(TOKENS * sum(len(inputs) for _, inputs, _ in batch.entries))
            while left > 0:
                left -= self._speed(end) / 2 * 0.001
                end += 0.001
            self._loop.call_at(end, self._end, batch, end - begin)

    def _end(self, batch: Batch, seconds: float) -> None:
        self._busy = False
        self._next()
        outcomes = tuple(
            Outcomes([None] * len(inputs), [TOKENS] * len(inputs)) for _, inputs, _ in batch.entries
        )
        self._listener.on_message(self, Done(outcomes, seconds, batch.number))


class Flood:
    """Clients that ask whether they are answered or not."""

    def __init__(self, loop: Loop, speed: Speed) -> None:
        self._loop, self._speed = loop, speed
        self.seconds: list[float] = []
        self.refused = 0

    async def run(self, rate: float, lasts: float) -> float:
        """Ask so many times a second; return the share of what could be computed that was."""

        def start(listener: Listener, lane: Lane) -> SimulatedWorker:
            del lane
            return SimulatedWorker(listener, self._loop, self._speed)

        limits = LimitsConfig(queue_seconds=BUDGET)
        self._gateway = Gateway(limits, start, 2, ("small", "large"))
        self._gateway.start()
        await self._gateway.opened
        draw, asked = random.Random(7), set[asyncio.Task[None]]()
        while self._loop.time() < lasts:
            await asyncio.sleep(draw.expovariate(rate))
            task = asyncio.create_task(self._ask())
            asked.add(task)
            task.add_done_callback(asked.discard)
        possible = sum(self._speed(step / 100) / 100 for step in range(int(100 * lasts)))
        share = self._gateway.counts.tokens / possible
        await asyncio.gather(*asked)
        self._gateway.stop()
        return share

    async def _ask(self) -> None:
        began = self._loop.time()
        try:
            await self._gateway.ask(0, "classes", Inputs([TEXT]))
        except Overloaded:
            self.refused += 1
            assert self._loop.time() == began
        else:
            self.seconds.append(self._loop.time() - began)

    @property
    def p99(self) -> float:
        return sorted(self.seconds)[len(self.seconds) * 99 // 100]


def steps(lowest: float, highest: float, shortest: float, longest: float) -> Speed:
    """A speed that stays for some seconds and is another one then."""
    draw = random.Random(3)
    times = list(accumulate(draw.uniform(shortest, longest) for _ in range(400)))
    speeds = [draw.uniform(lowest, highest) for _ in range(401)]
    return lambda now: speeds[bisect(times, now)]


def steady(now: float) -> float:
    """The speed of a machine that does nothing else."""
    del now
    return 7000.0


# speeds, and the most that p99 may be, in budgets
MACHINES: dict[str, tuple[Speed, float]] = {
    "steady": (steady, 1.1),
    "by half within seconds": (steps(4000, 9500, 1, 8), 1.5),
    "slow from time to time": (lambda now: 4000.0 if now % 20 < 3 else 8000.0, 1.4),
    "half as fast from some time on": (lambda now: 8000.0 if now < 25 else 4000.0, 2.0),
}


@pytest.mark.parametrize("name", MACHINES)
def test_what_is_accepted_is_answered_in_time_and_no_speed_is_wasted(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    speed, most = MACHINES[name]
    with simulated(monkeypatch) as loop:
        flood = Flood(loop, speed)
        share = loop.run_until_complete(flood.run(rate=3 * 7000 / TOKENS, lasts=50.0))
    assert flood.refused > 2000
    assert flood.p99 < most * BUDGET
    assert share > 0.97


def test_the_pace_is_that_of_slow_times() -> None:
    pace, now = ServerPace(), 0.0
    # until there was a full batch others count, where few tokens take long
    for _ in range(500):
        pace.learn(5, 0.005, now, full=False)
    assert pace.seconds == pytest.approx(0.001, rel=0.01)
    for seconds in (*[0.05] * 800, *[0.1] * 200, *[0.05] * 800):
        now += seconds / 2
        pace.learn(1000, seconds, now, full=True)
        pace.learn(5, 0.005, now, full=False)
    # a quarter of these were half as fast
    assert pace.seconds == pytest.approx(0.0001)
    for _ in range(3000):
        now += 0.025
        pace.learn(1000, 0.05, now, full=True)
    assert pace.seconds == pytest.approx(0.00005)
    # slower than ever, at once
    for _ in range(10):
        now += 0.1
        pace.learn(1000, 0.2, now, full=True)
    assert pace.seconds == pytest.approx(0.0002)


class DyingWorker:
    """A worker that ends at once, as where its model cannot be opened."""

    def __init__(self, listener: Listener, loop: Loop) -> None:
        loop.call_soon(listener.on_exit, self)

    def send(self, message: Batch | Cancel) -> None:
        """Do nothing."""

    def kill(self) -> None:
        """It has ended."""


def test_models_that_could_not_be_opened_for_long_are_opened_at_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pause before the thousandth attempt exceeded all floats, and there was no further one."""

    async def run(loop: Loop) -> None:
        links: list[SimulatedWorker | DyingWorker] = []

        def start(listener: Listener, lane: Lane) -> SimulatedWorker | DyingWorker:
            del lane
            away = 0 < loop.time() < 5500
            link = DyingWorker(listener, loop) if away else SimulatedWorker(listener, loop, steady)
            links.append(link)
            return link

        server = Gateway(LimitsConfig(), start, 1)
        server.start()
        await server.opened
        await asyncio.sleep(1)
        server.on_exit(links[0])
        await asyncio.sleep(5400)
        assert not server.ready
        await asyncio.sleep(200)
        assert server.ready
        assert len((await server.ask(0, "classes", Inputs([TEXT]))).values) == 1
        server.stop()
        # it was neither given up nor tried all the time
        assert 1024 < len(links) < 5500

    with simulated(monkeypatch) as loop:
        loop.run_until_complete(run(loop))
    capsys.readouterr()


class StuckWorker:
    """A worker that takes batches and never answers."""

    def __init__(self, listener: Listener, loop: Loop, ended: list[float]) -> None:
        self._loop, self._ended = loop, ended
        loop.call_soon(listener.on_message, self, Opened((facts(max_input_length=512),)))

    def send(self, message: Batch | Cancel) -> None:
        """Do nothing."""

    def kill(self) -> None:
        self._ended.append(self._loop.time())


def test_a_worker_that_never_answers_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[float] = []

    async def run(loop: Loop) -> None:
        def start(listener: Listener, lane: Lane) -> StuckWorker:
            del lane
            return StuckWorker(listener, loop, ended)

        server = Gateway(LimitsConfig(deadline=10), start, 1)
        server.start()
        await server.opened
        # it has nothing to do
        await asyncio.sleep(200)
        with pytest.raises(DeadlineExceeded):
            await server.ask(0, "classes", Inputs([TEXT]))
        assert loop.time() == pytest.approx(210, abs=1)
        assert not ended
        await asyncio.sleep(200)
        server.stop()

    with simulated(monkeypatch) as loop:
        loop.run_until_complete(run(loop))
    # it might have been slow until then
    assert 220 < ended[0] < 260
