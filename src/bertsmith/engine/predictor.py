"""A model made ready to answer: examples become requests, requests outputs, outputs answers.

A `Predictor` joins a model with an `Answering`, the protocol by which a task, the heads of
pre-training or features say how an example is encoded and what the outputs mean. Everything that
answers goes through it: `predict`, `evaluate`, `embed`, `glue` and the Python API.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from numpy.typing import NDArray

from bertsmith.batches.examples import EncodedExamples
from bertsmith.core.errors import NonFiniteOutputs
from bertsmith.core.printable import counted
from bertsmith.engine.answers import FORWARD, Forward
from bertsmith.network.model import Model
from bertsmith.network.torch_state import threads_of_torch
from bertsmith.text.examples.example import Example

ROWS = 2048
_CHARACTERS = 4_000_000
# rows that come one after another, as from a busy log, are kept no longer
_MAX_SECONDS = 1.0

E = TypeVar("E")
A_co = TypeVar("A_co", covariant=True)

Outputs = Sequence[Any] | NDArray[Any]
"""The outputs of a model, one for each unit or request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Generic[E]):
    """An example as token ids, in NumPy arrays, so that a queue can hold it.

    `encoded` are its own units, with the sidecar that decoding needs.

    `number` is that of the example in its stream, from 0: sampled answers depend on it.
    """

    example: E
    encoded: EncodedExamples
    number: int = 0

    @property
    def tokens(self) -> int:
        """The tokens that the model reads, special ones included."""
        return sum(map(len, self.encoded.ids))

    @property
    def long(self) -> bool:
        """Return whether the text exceeds the limit of a sequence."""
        return bool(self.encoded.long.any())


class Answering(Protocol[E, A_co]):
    """The encoding of examples and the meaning of a model's outputs."""

    def characters(self, example: E) -> int:
        """Return the length of an example's texts, so that few long ones are taken at once."""
        ...

    def encode(self, examples: Sequence[E]) -> EncodedExamples:
        """Encode examples as rows, with what decoding needs as sidecar; raises `ExampleError`."""
        ...

    def outputs(self, model: Model, requests: Sequence[Request[E]], forward: Forward) -> Outputs:
        """Return the model's outputs for each request."""
        ...

    def decode(self, request: Request[E], output: Any) -> A_co:  # noqa: ANN401
        """Return the answer to a request."""
        ...


@dataclass(frozen=True, kw_only=True)
class Predictor(Generic[E, A_co]):
    """A model with its answering; `threads` are those of torch while it runs, None for as set."""

    model: Model
    answering: Answering[E, A_co]
    forward: Forward = FORWARD
    threads: int | None = None

    def __repr__(self) -> str:
        encoder = self.model.config.encoder
        size = f"{counted(encoder.layers, 'layer')} of {encoder.hidden}"
        return f"<Predictor: {type(self.answering).__name__}, {size}>"

    def encode(self, examples: Sequence[E], first: int = 0) -> list[Request[E]]:
        """Encode examples, the one numbered `first` of their stream and those after it.

        Raises `ExampleError`.
        """
        return split_requests(examples, self.answering.encode(examples), first) if examples else []

    def run(self, requests: Sequence[Request[E]]) -> Outputs:
        """Return the outputs of the model for each request.

        Raises `NonFiniteOutputs` for the first for which they are not finite, by file and line.
        """
        if not requests:
            return []
        with threads_of_torch(self.threads):
            try:
                return self.answering.outputs(self.model, requests, self.forward)
            except NonFiniteOutputs:
                self._check_alone(requests)
                raise

    def _check_alone(self, requests: Sequence[Request[E]]) -> None:
        for request in requests:
            try:
                self.answering.outputs(self.model, [request], self.forward)
            except NonFiniteOutputs:
                example = request.example
                where, line = getattr(example, "source", None), getattr(example, "line", None)
                raise NonFiniteOutputs(where=where, line=line) from None

    def answer(self, requests: Sequence[Request[E]]) -> Iterator[A_co]:
        """Run requests together and yield their answers, in order."""
        return map(self.answering.decode, requests, self.run(requests))

    def __call__(self, examples: Iterable[E], *, rows: int = ROWS) -> Iterator[A_co]:
        """Yield the answers to a stream of examples, in order and in constant memory.

        At most `rows` examples are run together, fewer where their texts are long.
        """
        number = 0
        for window in windows(examples, rows, self.answering.characters):
            yield from self.answer(self.encode(window, number))
            number += len(window)


def split_requests(
    examples: Sequence[E], encoded: EncodedExamples, first: int = 0
) -> list[Request[E]]:
    """Return a request for each of some examples that were encoded together."""
    return [
        Request(example=example, encoded=units, number=number)
        for number, (example, units) in enumerate(
            zip(examples, encoded.by_row(), strict=True), first
        )
    ]


def join_requests(requests: Sequence[Request[Any]]) -> EncodedExamples:
    """Return the units of all requests, one after another."""
    return EncodedExamples.joined([request.encoded for request in requests])


def split_by_request(requests: Sequence[Request[Any]], units: Outputs) -> list[Outputs]:
    """Split the outputs of all units into those of each request."""
    results: list[Outputs] = []
    begin = 0
    for request in requests:
        end = begin + len(request.encoded)
        results.append(units[begin:end])
        begin = end
    return results


def windows(
    rows: Iterable[E],
    max_rows: int,
    characters: Callable[[E], int],
    waits: Callable[[], bool] | None = None,
) -> Iterator[list[E]]:
    """Yield lists of at most `max_rows` rows, fewer when their texts are very long.

    They end where the next row would be waited for, if `waits` says so; and, where it is given, a
    second after their first row at the latest.
    """
    window: list[E] = []
    length = 0
    latest = 0.0
    for row in rows:
        if waits and not window:
            latest = time.monotonic() + _MAX_SECONDS
        window.append(row)
        length += characters(row)
        full = len(window) >= max_rows or length >= _CHARACTERS
        if full or (waits and (waits() or time.monotonic() >= latest)):
            yield window
            window, length = [], 0
    if window:
        yield window


def text_length(example: Example) -> int:
    """Return the characters of a text or pair."""
    return len(example.text) + len(example.text_pair or "")
