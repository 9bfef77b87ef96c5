"""The service behind all dialects: choice of the model, its answers, marks of truncated texts."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from bertsmith.core.printable import printable
from bertsmith.serving.config import LimitsConfig
from bertsmith.serving.dispatch.gateway import Gateway
from bertsmith.serving.dispatch.jobs import Answers
from bertsmith.serving.http.schema import RequestBody
from bertsmith.serving.messages import Inputs, Kind, ModelFacts
from bertsmith.serving.models.rendering import dumped
from bertsmith.serving.refusals import InvalidRequest, ModelNotFound, PayloadTooLarge, Unavailable

_MAX_MARKS = 1000
_MAX_NUMBERS = 2**24
# items of a list that are written at once: less than a millisecond's, where they are vectors
_PIECE = 32
# of a response, which are sent at once
_MESSAGE_BYTES = 2**16
# an object of JSON takes as much memory
OBJECT = 64
"""The size of an item of an answer that is an object, as numbers."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A model and the request to it."""

    index: int
    facts: ModelFacts
    kind: Kind


@dataclass(frozen=True, kw_only=True)
class Service:
    """The models behind the endpoints."""

    gateway: Gateway
    limits: LimitsConfig
    body: int = 0
    """The bytes of the body of the request that is answered."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a large answer is built or a piece of it written: requests that are treated alike
    end together, and in a round of the event loop a piece of one of them is enough."""

    def choose(self, name: str | None, *kinds: Kind) -> Chosen:
        """Return the model of a name, or the first one that does one of `kinds`.

        Without `kinds`, whatever it is for. Raises `ModelNotFound`, `InvalidRequest` and
        `Unavailable`.
        """
        models = self.gateway.models
        if not models:
            raise Unavailable("the models are being opened")
        able = [
            Chosen(index, facts, kind)
            for index, facts in enumerate(models)
            for kind in (kinds or facts.can[:1])
            if _supports(facts, kind)
        ]
        if name is not None:
            if name not in (facts.name for facts in models):
                known = ", ".join(facts.name for facts in models)
                raise ModelNotFound(
                    f"there is no model '{printable(name)}'; the models are: {known}"
                )
            able = [chosen for chosen in able if chosen.facts.name == name]
        if not able:
            message = f"no model answers with {' or '.join(kinds)}"
            if name is not None:
                message = f"the model '{printable(name)}' does not answer with {' or '.join(kinds)}"
            raise InvalidRequest(message, parameter="model")
        return able[0]

    def check_size(self, items: int, numbers: int) -> None:
        """Raise `PayloadTooLarge` for an answer of too many numbers: items times numbers each.

        A short request may ask for an answer that does not fit into memory.
        """
        if items * numbers > _MAX_NUMBERS:
            raise PayloadTooLarge(
                f"the answer would have about {items:,} items, and at most "
                f"{_MAX_NUMBERS // numbers:,} are allowed; ask for fewer"
            )

    async def ask(self, chosen: Chosen, inputs: Inputs) -> Answers:
        """Return the answers to inputs, in their order; raises `Refusal`."""
        max_inputs = self.limits.max_inputs
        if len(inputs) > max_inputs:
            raise PayloadTooLarge(
                f"the request has {len(inputs):,} inputs, and at most {max_inputs:,} are allowed"
            )
        sizes, bound = inputs.longest(), self.limits.max_characters
        if max(sizes) > bound:
            number = next(number for number, size in enumerate(sizes) if size > bound)
            raise PayloadTooLarge(
                f"input {inputs.owner(number)} has {sizes[number]:,} characters, and {bound:,} are "
                "read"
            )
        answers = await self.gateway.ask(chosen.index, chosen.kind, inputs, body=self.body)
        if len(inputs) > _PIECE:
            async with self.lock:
                await asyncio.sleep(0)
        return answers

    async def reply_in_pieces(self, content: object, truncated: Sequence[int] = ()) -> Response:
        """Return a response of JSON, with the numbers of inputs that were truncated in a header.

        Between the pieces of a long list other requests proceed.
        """
        headers = {"x-truncated": ",".join(map(str, truncated[:_MAX_MARKS]))} if truncated else {}
        return JSONPieces(await self._pieces(content), headers)

    async def _pieces(self, content: object) -> list[bytes]:
        """Return JSON in pieces; of what workers have written, these are theirs."""
        if isinstance(content, dict):
            pieces = []
            for key in content:
                pieces += [b",", dumped(key) + b":", *await self._pieces(content[key])]
            return [b"{", *pieces[1:], b"}"]
        if isinstance(content, Rendered):
            items = (item for part in content.parts for item in (b",", part))
            return [b"[", *islice(items, 1, None), b"]"]
        if not isinstance(content, list | np.ndarray) or len(content) <= _PIECE:
            return [dumped(content)]
        pieces = []
        for begin in range(0, len(content), _PIECE):
            async with self.lock:
                pieces += [b",", dumped(content[begin : begin + _PIECE])[1:-1]]
                await asyncio.sleep(0)
        return [b"[", *pieces[1:], b"]"]


def _supports(facts: ModelFacts, kind: Kind) -> bool:
    return (
        kind in facts.can or kind == "tokens" or (kind == "token-vectors" and facts.token_width > 0)
    )


def wanted_width(dimensions: int | None, width: int) -> int | None:
    """Return the features of a vector that a request wants, None for all; `InvalidRequest`."""
    if dimensions is not None and not 1 <= dimensions <= width:
        raise InvalidRequest(
            f"dimensions is {dimensions}, and the vectors have {width}", parameter="dimensions"
        )
    return None if dimensions == width else dimensions


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A path that takes a body of a kind."""

    path: str
    summary: str
    body: type[RequestBody]
    run: Callable[[Service, Any], Awaitable[Response]]
    answer: Any
    """An example of the answer, for the description."""


def reply(content: object) -> Response:
    """Return a response of JSON."""
    return Response(dumped(content), media_type="application/json")


@dataclass(frozen=True, slots=True)
class Rendered:
    """A list whose items workers have written as JSON: all parts of it, none of them empty."""

    parts: Sequence[bytes]


class JSONPieces(Response):
    """A response of JSON that is sent in pieces, and never in memory twice."""

    media_type = "application/json"

    def __init__(self, pieces: Sequence[bytes], headers: Mapping[str, str]) -> None:
        length = str(sum(map(len, pieces)))
        super().__init__(headers={**headers, "content-length": length})
        self._pieces = deque(pieces)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        start = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **start})
        while self._pieces:
            body = self._next()
            more = bool(self._pieces)
            await send({"type": "http.response.body", "body": body, "more_body": more})

    def _next(self) -> bytes:
        """Take pieces that are sent at once."""
        taken, size = list[bytes](), 0
        while self._pieces and (not taken or size + len(self._pieces[0]) <= _MESSAGE_BYTES):
            taken.append(self._pieces.popleft())
            size += len(taken[-1])
        return b"".join(taken)
