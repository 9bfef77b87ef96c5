"""A server in the process of the test: the whole application, with workers that are functions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from bertsmith.engine.config import EngineConfig
from bertsmith.serving.config import LimitsConfig, ServeConfig
from bertsmith.serving.dispatch.gateway import Gateway
from bertsmith.serving.dispatch.workers import Link, Listener
from bertsmith.serving.http.app import make_app
from bertsmith.serving.http.limits import App, Keys
from bertsmith.serving.messages import (
    Batch,
    Cancel,
    Input,
    Lane,
    ModelFacts,
    Opened,
    Outcome,
)
from bertsmith.serving.models.rendering import messages_of, outcomes_of
from bertsmith.serving.models.served import open_models
from bertsmith.serving.models.worker import Computing

Compute = Callable[[Batch], tuple[Outcome, ...]]


def facts(name: str = "one", **changes: object) -> ModelFacts:
    """A model that nobody has trained."""
    known: dict[str, Any] = {
        "name": name, "kind": "classes", "can": ("classes",), "labels": ("no", "yes"),
        "max_input_length": 64, "precision": "fp32", "backend": "none",
        "family": "bert", "width": 0, "pairs": False,
    }  # fmt: skip
    return ModelFacts(**(known | changes))


def texts_of(batch: Batch) -> list[Input]:
    """The texts of a batch."""
    return [each for _, inputs, _ in batch.entries for each in inputs]


def lengths(batch: Batch) -> tuple[Outcome, ...]:
    """Answer each text with its length, as a label."""
    return tuple(
        Outcome(
            number,
            answer={"label": asked.text, "score": len(asked.text), "scores": []},
            tokens=len(asked.text),
        )
        for number, asked in enumerate(texts_of(batch))
    )


class Inline(Link):
    """A worker that computes in the event loop, when it is told to where it is `held`."""

    def __init__(
        self, listener: Listener, models: Sequence[ModelFacts], compute: Compute, lane: Lane
    ) -> None:
        self._listener, self._compute = listener, compute
        self.lane = lane
        self.held = False
        self.seconds = 0.001
        self.batches: list[Batch] = []
        self.cancelled: set[int] = set()
        self.ended = False
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(listener.on_message, self, Opened(tuple(models)))

    def send(self, message: Batch | Cancel) -> None:
        """Take a message."""
        if isinstance(message, Cancel):
            self.cancelled |= set(message.numbers)
            return
        self.batches.append(message)
        if not self.held:
            self._loop.call_soon(self.release)

    def release(self) -> None:
        """Compute the oldest batch."""
        if self.batches and not self.ended:
            batch = self.batches.pop(0)
            outcomes = outcomes_of(batch, self._compute(batch))
            for message in messages_of(batch.number, outcomes, self.seconds):
                self._listener.on_message(self, message)

    def kill(self) -> None:
        """End as a process that was killed."""
        if not self.ended:
            self.ended = True
            self._loop.call_soon(self._listener.on_exit, self)


class Rig:
    """A running application with its parts at hand."""

    def __init__(self, app: App, gateway: Gateway, links: list[Inline]) -> None:
        self.app, self.gateway, self.links = app, gateway, links
        transport = httpx.ASGITransport(app)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://localhost")

    async def post(self, path: str, content: object, **headers: str) -> httpx.Response:
        """Send JSON."""
        return await self.client.post(path, json=content, headers=headers)

    async def raw(
        self, path: str, pieces: Sequence[bytes], headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """Send the bytes of a body, piece by piece."""

        async def body() -> AsyncIterator[bytes]:
            for piece in pieces:
                yield piece

        return await self.client.post(path, content=body(), headers=headers)


@asynccontextmanager
async def running(
    models: Sequence[ModelFacts] = (facts(),),
    compute: Compute = lengths,
    *,
    workers: int = 1,
    lanes: tuple[Lane, ...] = ("any",),
    keys: Sequence[str] = (),
    hosts: tuple[str, ...] = (),
    origins: tuple[str, ...] = (),
    limits: LimitsConfig | None = None,
    **bounds: float,
) -> AsyncIterator[Rig]:
    """A server of models that a function computes."""
    config = ServeConfig(
        models=tuple(model.name for model in models),
        limits=limits or LimitsConfig.from_dict(dict(bounds)),
        allowed_hosts=hosts,
        allowed_origins=origins,
    )
    links: list[Inline] = []

    def start(listener: Listener, lane: Lane) -> Inline:
        links.append(Inline(listener, models, compute, lane))
        return links[-1]

    gateway = Gateway(config.limits, start, workers, lanes)
    gateway.start()
    await gateway.opened
    rig = Rig(make_app(gateway, config, Keys(keys)), gateway, links)
    async with rig.client:
        yield rig
    gateway.stop()


@asynccontextmanager
async def serving(*folders: Path, **bounds: float) -> AsyncIterator[Rig]:
    """A server of model folders, in fp32."""
    config = ServeConfig(
        models=tuple(map(str, folders)),
        engine=EngineConfig(precision="fp32"),
        device="cpu",
        limits=LimitsConfig.from_dict(dict(bounds)),
    )
    models = open_models(config, threads=1)
    computing = Computing(models, _unsent)
    facts_of = [model.facts for model in models]
    async with running(facts_of, computing.answer, limits=config.limits) as rig:
        yield rig


def _unsent(message: object) -> None:
    raise AssertionError("answers are returned")
