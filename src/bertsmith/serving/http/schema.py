"""The bodies of requests, as pydantic checks them at the edge; answers go out as they are made."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bertsmith.core.printable import printable
from bertsmith.serving.messages import Kind
from bertsmith.serving.refusals import InvalidRequest, PayloadTooLarge

B = TypeVar("B", bound="Asked")

_MOST_CHOICES = 100
_MOST_TOP = 100
_FIELD = re.compile(r"(?!str$)[a-z_]+|\d+")
_LISTS = ("inputs", "input", "texts", "sentences")

Text = str
Texts = Annotated[list[Text], Field(fail_fast=True, min_length=1)]
Task = Literal[
    "classes", "multi-label", "regression", "tags", "spans", "choices", "ranking", "fill-mask",
    "next-sentence", "vectors",
]  # fmt: skip


class Asked(BaseModel):
    """The body of a request; what it does not know is ignored, as other servers do."""

    model_config = ConfigDict(strict=True, extra="ignore")


class Strict(Asked):
    """A body in which everything has to be known."""

    model_config = ConfigDict(strict=True, extra="forbid")


# our own


class TextInput(Strict):
    """A text, or a pair of texts, or with choices a question."""

    text: Text
    text_pair: Text | None = None
    choices: Annotated[list[Text], Field(fail_fast=True, max_length=_MOST_CHOICES)] | None = None


class QuestionInput(Strict):
    """A question about a context."""

    question: Text
    context: Text


class RankingInput(Strict):
    """A query and the texts whose relevance to it is asked."""

    query: Text
    texts: Texts


class AnswerRequest(Strict):
    """The body of /answer."""

    model: str | None = None
    task: Task | None = None
    inputs: Annotated[
        list[Text | TextInput | QuestionInput | RankingInput], Field(fail_fast=True, min_length=1)
    ]
    truncate: bool = False
    top: Annotated[int, Field(ge=1, le=_MOST_TOP)] = 5
    conformal: Annotated[float, Field(ge=0.5, le=0.999)] | None = None


# OpenAI's


class EmbeddingsRequest(Asked):
    """The body of /v1/embeddings."""

    input: Text | Texts
    model: str | None = None
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: str | None = None
    truncate: bool = False


# those of text-embeddings-inference


class EmbedRequest(Asked):
    """The body of /embed and /embed_all."""

    inputs: Text | Texts
    normalize: bool = True
    truncate: bool | None = False
    truncation_direction: Literal["left", "right", "Left", "Right"] = "right"
    prompt_name: str | None = None
    dimensions: int | None = None
    model: str | None = None


Sequence = Annotated[list[Text], Field(fail_fast=True, min_length=1, max_length=2)]


class PredictRequest(Asked):
    """The body of /predict: a text, a pair, or several of them."""

    inputs: Text | Annotated[list[Text | Sequence], Field(fail_fast=True, min_length=1)]
    raw_scores: bool = False
    truncate: bool | None = False
    model: str | None = None


class RerankRequest(Asked):
    """The body of /rerank."""

    query: Text
    texts: Texts
    raw_scores: bool = False
    return_text: bool = False
    truncate: bool | None = False
    model: str | None = None


class SimilarityInputs(Asked):
    """A sentence, and those that it is compared with."""

    source_sentence: Text
    sentences: Texts


class SimilarityParameters(Asked):
    """The settings of /similarity."""

    truncate: bool | None = False


class SimilarityRequest(Asked):
    """The body of /similarity."""

    inputs: SimilarityInputs
    parameters: SimilarityParameters | None = None
    model: str | None = None


class TokenizeRequest(Asked):
    """The body of /tokenize."""

    inputs: Text | Texts
    add_special_tokens: bool = True
    model: str | None = None


def parsed(body: bytes, kind: type[B], most: int) -> B:
    """Return the body of a request as a kind of it; `most` inputs may be in it.

    Raises `InvalidRequest` for what is no JSON, or not of that kind, and `PayloadTooLarge`.
    """
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the body is no JSON: {printable(error.msg)}") from None
    if not isinstance(content, Mapping):
        raise InvalidRequest("the body is no JSON object")
    _check_counts(content, most)
    if _has_key_twice(body, content):
        raise _twice(body)
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise _malformed(error) from None


def _check_counts(content: Mapping[str, Any], most: int) -> None:
    """Raise `PayloadTooLarge` for lists of too many inputs, before each is looked at."""
    for name in _LISTS:
        value = content.get(name)
        if isinstance(value, Mapping):
            _check_counts(value, most)
        elif isinstance(value, list) and len(value) > most:
            raise PayloadTooLarge(f"{name} has {len(value):,} items, and {most:,} are allowed")


def _has_key_twice(body: bytes, content: Mapping[str, Any]) -> bool:
    """Return whether an object of the body has a key twice, of which the last one was parsed.

    Each key has a colon, and the others are in strings: there is one too many. A text that spells
    its colons as escapes can hide a key; no body is refused without one.
    """
    colons = body.count(b":")
    if colons == len(content):
        return False
    waiting: list[Any] = [content]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            colons -= each.count(":")
        elif isinstance(each, list):
            waiting += each
        elif isinstance(each, dict):
            colons -= len(each)
            waiting += each
            waiting += each.values()
    return colons > 0


def _twice(body: bytes) -> InvalidRequest:
    """Return what is wrong with a body that has a key twice."""
    found: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        counts = Counter(name for name, _ in pairs)
        found.extend(name for name, count in counts.items() if count > 1)

    # deeper lists than Python reads leave the name unknown
    with suppress(RecursionError):
        json.loads(body, object_pairs_hook=look)
    # a name that is no field's may be a text
    name = next(filter(_FIELD.fullmatch, found), None)
    return InvalidRequest(
        f"{'a key' if name is None else repr(name)} is there twice", parameter=name
    )


def _malformed(error: ValidationError) -> InvalidRequest:
    """Return what is wrong, without the texts."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    # between the names of fields stand those of types that were tried
    place = ".".join(str(each) for each in first["loc"] if _FIELD.fullmatch(str(each)))
    message = f"{printable(place)}: {printable(first['msg'])}" if place else printable(first["msg"])
    return InvalidRequest(message, parameter=printable(place) or None)


KINDS: tuple[Kind, ...] = Task.__args__  # type: ignore[attr-defined]
