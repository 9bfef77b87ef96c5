"""The service behind all dialects: choice of the model, its answers, marks of truncated texts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from starlette.responses import Response

from bertsmith.core.printable import printable, rounded
from bertsmith.serving.config import LimitsConfig
from bertsmith.serving.dispatch.gateway import Gateway
from bertsmith.serving.http.schema import RequestBody
from bertsmith.serving.messages import Inputs, Kind, ModelFacts, Outcome
from bertsmith.serving.refusals import InvalidRequest, ModelNotFound, PayloadTooLarge, Unavailable

_MAX_MARKS = 1000
_MAX_NUMBERS = 2**24
# items of a list that are written at once: less than a millisecond's, where they are vectors
_PIECE = 32
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
                    f"there is no model {printable(name)!r}; the models are: {known}"
                )
            able = [chosen for chosen in able if chosen.facts.name == name]
        if not able:
            message = f"no model answers with {' or '.join(kinds)}"
            if name is not None:
                message = f"the model {printable(name)!r} does not answer with {' or '.join(kinds)}"
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

    async def ask(self, chosen: Chosen, inputs: Inputs) -> list[Outcome]:
        """Return the outcomes for inputs, in their order; raises `Refusal`."""
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
        outcomes = await self.gateway.ask(chosen.index, chosen.kind, inputs, body=self.body)
        if len(outcomes) > _PIECE:
            async with self.lock:
                await asyncio.sleep(0)
        return outcomes

    async def reply_in_pieces(self, content: object, outcomes: Sequence[Outcome] = ()) -> Response:
        """Return a response of JSON, with the numbers of inputs that were truncated in a header.

        Between the pieces of a long list other requests proceed.
        """
        data = await self._dumped_in_pieces(content)
        cut = [str(number) for number, outcome in enumerate(outcomes) if outcome.truncated]
        headers = {"x-truncated": ",".join(cut[:_MAX_MARKS])} if cut else {}
        return Response(data, media_type="application/json", headers=headers)

    async def _dumped_in_pieces(self, content: object) -> bytes:
        if isinstance(content, dict):
            pairs = [
                _dumped(key) + b":" + await self._dumped_in_pieces(content[key]) for key in content
            ]
            return b"{" + b",".join(pairs) + b"}"
        if not isinstance(content, list | np.ndarray) or len(content) <= _PIECE:
            return _dumped(content)
        pieces = []
        for begin in range(0, len(content), _PIECE):
            async with self.lock:
                pieces.append(_dumped(content[begin : begin + _PIECE])[1:-1])
                await asyncio.sleep(0)
        return b"[" + b",".join(pieces) + b"]"


def _supports(facts: ModelFacts, kind: Kind) -> bool:
    return (
        kind in facts.can or kind == "tokens" or (kind == "token-vectors" and facts.token_width > 0)
    )


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
    return Response(_dumped(content), media_type="application/json")


def _dumped(content: object) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)


def shown(score: float | None) -> float | None:
    """Return a score with the figures that `predict` writes."""
    return None if score is None else rounded(score)


def vector(outcome: Outcome) -> NDArray[np.float32]:
    """Return the numbers of a vector, (width,)."""
    return np.frombuffer(outcome.answer, np.float32)


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return vectors (..., width) of length 1 with the same directions."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    result: NDArray[np.float32] = vectors / np.maximum(length, np.float32(1e-12))
    return result


def tokens(outcomes: Sequence[Outcome]) -> int:
    """Return the tokens that were read."""
    return sum(outcome.tokens for outcome in outcomes)
