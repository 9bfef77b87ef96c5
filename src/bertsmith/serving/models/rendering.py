"""Answers as bytes of JSON, written by the worker that computes them.

To write a thousand vectors takes longer than all else that is done for their request outside of the
model. So a request names its `Rendering`, one for each form that an item of an answer has in some
dialect, and the process that speaks HTTP only joins what the workers have written.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from bertsmith.core.log import say
from bertsmith.core.printable import rounded
from bertsmith.serving.messages import Batch, Done, Inputs, Outcome, Outcomes, Rendering

# of the outcomes of a batch that go in one message, so that no message holds up its reader
_MESSAGE_BYTES = 2**18

Render = Callable[[Sequence[Outcome], int], bytes]
"""Writes the answers of a part, whose first text has a number in the request."""


def outcomes_of(batch: Batch, outcomes: Sequence[Outcome]) -> list[Outcomes]:
    """Return the outcomes of each part of a batch, given those of each text."""
    results, begin = [], 0
    for _, inputs, _ in batch.entries:
        results.append(_outcomes_of(inputs, outcomes[begin : begin + len(inputs)]))
        begin += len(inputs)
    assert begin == len(outcomes), "there are outcomes of other texts"
    return results


def _outcomes_of(inputs: Inputs, outcomes: Sequence[Outcome]) -> Outcomes:
    tokens = [0 if outcome.problem else outcome.tokens for outcome in outcomes]
    truncated = tuple(number for number, outcome in enumerate(outcomes) if outcome.truncated)
    problems = tuple(
        (number, outcome.problem, outcome.message)
        for number, outcome in enumerate(outcomes)
        if outcome.problem is not None
    )
    answers: bytes | list[Any] = b""
    if not problems and inputs.rendering != "values":
        try:
            if inputs.width is not None:
                outcomes = [_narrowed(outcome, inputs.width) for outcome in outcomes]
            answers = _RENDER[inputs.rendering](outcomes, inputs.start)
        except Exception as error:
            # its message may quote a text
            say(f"answers cannot be written as JSON: {type(error).__name__}")
            problems = ((0, "failed", "the answer cannot be computed"),)
    elif not problems:
        answers = [outcome.answer for outcome in outcomes]
    return Outcomes(answers, tokens, truncated, problems)


def _narrowed(outcome: Outcome, width: int) -> Outcome:
    """Return the outcome with the first features of its vector, which is bytes of float32."""
    return outcome._replace(answer=outcome.answer[: width * np.dtype(np.float32).itemsize])


def messages_of(number: int, outcomes: Sequence[Outcomes], seconds: float) -> Iterator[Done]:
    """Yield the messages by which a worker sends the outcomes of a batch, none of them large."""
    begin = size = 0
    for end, each in enumerate(outcomes):
        if end > begin and size + len(each.answers) > _MESSAGE_BYTES:
            yield Done(tuple(outcomes[begin:end]), 0.0, number, more=True)
            begin, size = end, 0
        size += len(each.answers)
    yield Done(tuple(outcomes[begin:]), seconds, number)


# of each form


def vectors_of(answers: Sequence[bytes]) -> NDArray[np.float32]:
    """Return vectors, (texts, width), given the bytes of each."""
    return np.frombuffer(b"".join(answers), np.float32).reshape(len(answers), -1)


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return vectors (..., width) of length 1 with the same directions."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    result: NDArray[np.float32] = vectors / np.maximum(length, np.float32(1e-12))
    return result


def dumped(content: object) -> bytes:
    """Return JSON, in which numbers that are none are null."""
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)


def _items(content: object) -> bytes:
    """Return the items of a list as JSON, without the brackets around them."""
    return dumped(content)[1:-1]


def _vectors(outcomes: Sequence[Outcome]) -> NDArray[np.float32]:
    return vectors_of([outcome.answer for outcome in outcomes])


def _answers(outcomes: Sequence[Outcome], start: int) -> bytes:
    """Write items of /answer."""
    del start
    if isinstance(outcomes[0].answer, bytes):
        answers: list[Any] = [{"vector": vector} for vector in _vectors(outcomes)]
    else:
        answers = [outcome.answer for outcome in outcomes]
        if "value" in answers[0]:
            answers = [{"value": rounded(answer["value"])} for answer in answers]
    return _items(
        [
            {**answer, "truncated": outcome.truncated}
            for answer, outcome in zip(answers, outcomes, strict=True)
        ]
    )


def _embeddings(outcomes: Sequence[Outcome], start: int) -> bytes:
    """Write items of /v1/embeddings, vectors of length 1 as numbers."""
    return _embedding_items(unit(_vectors(outcomes)), outcomes, start)


def _base64(outcomes: Sequence[Outcome], start: int) -> bytes:
    """Write items of /v1/embeddings, vectors of length 1 as the base64 of their bytes."""
    vectors = unit(_vectors(outcomes))
    texts = [base64.b64encode(vector.tobytes()).decode() for vector in vectors]
    return _embedding_items(texts, outcomes, start)


def _embedding_items(
    embeddings: Sequence[str] | NDArray[np.float32], outcomes: Sequence[Outcome], start: int
) -> bytes:
    items = []
    for index, (embedding, outcome) in enumerate(zip(embeddings, outcomes, strict=True), start):
        mark = {"truncated": True} if outcome.truncated else {}
        items.append({"object": "embedding", "index": index, "embedding": embedding, **mark})
    return _items(items)


def _token_vectors(outcomes: Sequence[Outcome], start: int) -> bytes:
    """Write lists of a vector of each token."""
    del start
    # the width of a model's last layer, which the vectors of texts may not have
    return _items(
        [
            np.frombuffer(outcome.answer, np.float32).reshape(outcome.tokens, -1)
            for outcome in outcomes
        ]
    )


def _tokens(outcomes: Sequence[Outcome], *, specials: bool) -> bytes:
    """Write lists of tokens, as /tokenize has them with special ones."""
    return _items(
        [[_token(row) for row in outcome.answer if specials or not row[2]] for outcome in outcomes]
    )


def _token(row: tuple[Any, ...]) -> dict[str, Any]:
    number, text, special, start, end = row
    return {"id": number, "text": text, "special": special, "start": start, "stop": end}


_RENDER: dict[Rendering, Render] = {
    "answers": _answers,
    "embeddings": _embeddings,
    "base64 embeddings": _base64,
    "unit vectors": lambda outcomes, start: _items(unit(_vectors(outcomes))),
    "vectors": lambda outcomes, start: _items(_vectors(outcomes)),
    "token vectors": _token_vectors,
    "tokens": lambda outcomes, start: _tokens(outcomes, specials=True),
    "text tokens": lambda outcomes, start: _tokens(outcomes, specials=False),
}
