"""Messages between the process that speaks HTTP and its workers."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Literal, NamedTuple, Protocol

from bertsmith.core.files import FileState

Kind = Literal[
    "classes",
    "multi-label",
    "regression",
    "tags",
    "spans",
    "choices",
    "ranking",
    "fill-mask",
    "next-sentence",
    "vectors",
    "logits",
    "token-vectors",
    "tokens",
]
"""Kinds of questions to a model; the last three are for looking inside, no answers."""

Lane = Literal["small", "large", "any"]
"""The requests that a worker answers: those that a batch holds, larger ones, or both."""

MASK = "[MASK]"
"""A mask as clients may write it, whatever the vocabulary calls it."""

Rendering = Literal[
    "values",
    "answers",
    "embeddings",
    "base64 embeddings",
    "unit vectors",
    "vectors",
    "token vectors",
    "tokens",
    "text tokens",
]
"""The forms in which a worker writes the answers of a request as JSON (`models.rendering`).

The first one is none: the answers stay values, for those who look into them."""

Problem = Literal["too_long", "invalid", "failed", "expired"]
_LENGTH = 4


# named tuples, of which there may be a thousand in a request, are made several times as fast as
# dataclasses
class Input(NamedTuple):
    """A text to answer for, with what belongs to it.

    `second` is the second text of a pair, or the context of a question.
    """

    text: str
    second: str | None = None
    choices: tuple[str, ...] | None = None
    truncate: bool = False
    top: int | None = None
    """The number of the likeliest answers that are wanted; None for all."""
    conformal: float | None = None
    """The share of texts whose prediction set shall hold the right answer; None for no sets."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Texts to answer for, as columns; what belongs to all of them is said once.

    So nothing is made for each of a thousand texts by the process that takes requests.
    """

    texts: Sequence[str]
    seconds: Sequence[str | None] | None = None
    """The second text of each; None where none has one."""
    choices: Sequence[tuple[str, ...]] | None = None
    truncate: bool = False
    top: int | None = None
    conformal: float | None = None
    owners: Sequence[int] | None = None
    """The number of the input of the request that each belongs to, where one has several texts."""
    rendering: Rendering = "values"
    """The form in which the answers are wanted."""
    start: int = 0
    """The number of the first of them in the request."""
    width: int | None = None
    """The number of features of a vector that are kept, from the first one on; None for all."""

    def __len__(self) -> int:
        return len(self.texts)

    def __reduce__(self) -> tuple[type[Inputs], tuple[Any, ...]]:
        # dataclasses look up all fields for each object that is pickled, of which there are many
        return Inputs, (
            self.texts, self.seconds, self.choices, self.truncate, self.top, self.conformal,
            self.owners, self.rendering, self.start, self.width,
        )  # fmt: skip

    def __iter__(self) -> Iterator[Input]:
        columns = (self.texts, self.seconds or repeat(None), self.choices or repeat(None))
        for text, second, choices in zip(*columns, strict=False):
            yield Input(text, second, choices, self.truncate, self.top, self.conformal)

    def part(self, begin: int, end: int) -> Inputs:
        """Return those from one number up to another."""
        return Inputs(
            self.texts[begin:end],
            self.seconds and self.seconds[begin:end],
            self.choices and self.choices[begin:end],
            self.truncate,
            self.top,
            self.conformal,
            # only where errors are reported, which is not where they are computed
            None,
            self.rendering,
            self.start + begin,
            self.width,
        )

    def owner(self, number: int) -> int:
        """Return the number of the input of the request that one belongs to."""
        return number if self.owners is None else self.owners[number]

    def longest(self) -> list[int]:
        """Return the characters of the longest text of each."""
        lengths = list(map(len, self.texts))
        if self.seconds is not None:
            lengths = [
                max(one, len(more or "")) for one, more in zip(lengths, self.seconds, strict=True)
            ]
        if self.choices is not None:
            lengths = [
                max([one, *map(len, more)]) for one, more in zip(lengths, self.choices, strict=True)
            ]
        return lengths

    def sizes(self) -> list[int]:
        """Return the bytes of the texts of each, as a model reads them."""
        sizes = _sizes(self.texts)
        if self.seconds is not None:
            sizes = [
                one + _bytes(more or "") for one, more in zip(sizes, self.seconds, strict=True)
            ]
        if self.choices is not None:
            # each option is read with the text
            sizes = [
                one * len(more) + sum(map(_bytes, more))
                for one, more in zip(sizes, self.choices, strict=True)
            ]
        return sizes


def _sizes(texts: Sequence[str]) -> list[int]:
    """Return the bytes of texts; a query that stands before each of its texts is measured once."""
    sizes: list[int] = []
    before, size = None, 0
    for text in texts:
        if text is not before:
            before, size = text, _bytes(text)
        sizes.append(size)
    return sizes


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """The properties of an opened model that clients may ask for."""

    name: str
    kind: Kind
    """The kind that is answered by default."""
    can: tuple[Kind, ...]
    labels: tuple[str, ...]
    max_input_length: int
    """Tokens of a text that it reads at most."""
    precision: str
    backend: str
    family: str
    width: int
    """Numbers of a vector; 0 where it gives none."""
    pairs: bool
    """True if it was trained on pairs of texts."""
    mask: str | None = None
    """The mask token of a model that fills masks."""
    token_width: int = 0
    """Numbers of the vector of a token; 0 where it gives none."""
    files: tuple[tuple[str, FileState], ...] = ()
    """The version of its folder (`weights.versions`), by which another model in it is noticed."""


@dataclass(frozen=True, slots=True)
class Started:
    """A worker runs; its process has a number."""

    pid: int


@dataclass(frozen=True, slots=True)
class LogText:
    """Text for standard error."""

    text: str


@dataclass(frozen=True, slots=True)
class Opened:
    """All models of a process are open."""

    models: tuple[ModelFacts, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A model cannot be opened, and why: the line that the user reads."""

    message: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Texts to be answered for together: parts of requests, each (number, inputs, deadline).

    An urgent batch overtakes those that are not.
    """

    model: int
    task: Kind
    entries: tuple[tuple[int, Inputs, float], ...]
    number: int = 0
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class Cancel:
    """Numbers of parts of requests that nobody wants to be computed any more."""

    numbers: tuple[int, ...]


class Outcome(NamedTuple):
    """The answer to a text, or what is wrong with it.

    Vectors are the bytes of their float32 numbers.
    """

    number: int
    """The number of the text in its batch."""
    answer: Any = None
    problem: Problem | None = None
    message: str = ""
    tokens: int = 0
    """Tokens that were read, or of a text that is too long, all it has."""
    truncated: bool = False


class Outcomes(NamedTuple):
    """The outcomes of the texts of a part of a request, as columns."""

    answers: Sequence[Any] | bytes
    """The answer to each text, or JSON of all, separated by commas; none where one failed."""
    tokens: Sequence[int]
    """Tokens that were read of each text."""
    truncated: tuple[int, ...] = ()
    """The numbers of the texts, in the part, of which not all was read."""
    problems: tuple[tuple[int, Problem, str], ...] = ()
    """The numbers of the texts, in the part, that have no answer, and why."""


@dataclass(frozen=True, slots=True)
class Done:
    """The outcomes of the parts of a batch, in its order; the seconds that it was computed.

    Where there are `more`, those of the next parts of the batch follow.
    """

    outcomes: tuple[Outcomes, ...]
    seconds: float
    number: int
    more: bool = False


def framed(message: object) -> bytes:
    """Return a message as bytes with their number before them."""
    data = pickle.dumps(message, protocol=5)
    return len(data).to_bytes(_LENGTH, "little") + data


class Readable(Protocol):
    """A stream of bytes."""

    def read(self, size: int, /) -> bytes | None:
        """Return at most `size` bytes, none at the end."""
        ...


def read_frame(stream: Readable) -> Any:  # noqa: ANN401
    """Return the next message of a stream; raises `EOFError` at its end."""
    size = int.from_bytes(_exactly(stream, _LENGTH), "little")
    return pickle.loads(_exactly(stream, size))


def _exactly(stream: Readable, size: int) -> bytes:
    data = b""
    # a stream without a buffer may return fewer bytes than requested
    while len(data) < size:
        more = stream.read(size - len(data))
        if not more:
            raise EOFError
        data += more
    return data


async def read_message(stream: asyncio.StreamReader) -> Any:  # noqa: ANN401
    """Return the next message of a stream; raises `asyncio.IncompleteReadError` at its end."""
    size = int.from_bytes(await stream.readexactly(_LENGTH), "little")
    return pickle.loads(await stream.readexactly(size))
