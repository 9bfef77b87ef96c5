"""The bodies of requests, as pydantic checks them at the edge; answers go out as they are made."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from difflib import get_close_matches
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from bertsmith.core.printable import printable
from bertsmith.serving.refusals import EmptyList, InvalidRequest, PayloadTooLarge

B = TypeVar("B", bound="RequestBody")

_MAX_CHOICES = 100
_MAX_TOP = 100
_MAX_FIELDS = 100
# of a body in which a key that is there twice is named, which takes long
_MAX_NAMED_BYTES = 2**16
_FIELD = re.compile(r"(?!str$)[a-z_]+|\d+")
_LISTS = ("inputs", "input", "texts", "sentences", "documents")

Text = str
Texts = Annotated[list[Text], Field(fail_fast=True, min_length=1)]
Choices = Annotated[list[Text], Field(fail_fast=True, max_length=_MAX_CHOICES)]
Task = Literal[
    "classes", "multi-label", "regression", "tags", "spans", "choices", "ranking", "fill-mask",
    "next-sentence", "vectors",
]  # fmt: skip


class RequestBody(BaseModel):
    """The body of a request; what it does not know is ignored, as other servers do."""

    model_config = ConfigDict(strict=True, extra="ignore")
    form: ClassVar[str] = ""
    """An example of the least that it has."""


class StrictBody(RequestBody):
    """A body in which everything has to be known."""

    model_config = ConfigDict(strict=True, extra="forbid")


# our own


class TextInput(StrictBody):
    """A text, or a pair of texts, or with choices a question."""

    form = '{"inputs": [{"text": "a text", "text_pair": "the other of a pair, or nothing"}]}'
    text: Text
    text_pair: Text | None = None
    choices: Choices | None = None


class QuestionInput(StrictBody):
    """A question about a context, perhaps with choices."""

    form = '{"inputs": [{"question": "a question", "context": "a text"}]}'
    question: Text
    context: Text
    choices: Choices | None = None


class RankingInput(StrictBody):
    """A query and the texts to rank by relevance to it."""

    form = '{"inputs": [{"query": "a query", "texts": ["a text"]}]}'
    query: Text
    texts: Texts


class AnswerRequest(StrictBody):
    """The body of /answer."""

    form = '{"inputs": ["a text"]}'
    model: str | None = None
    task: Task | None = None
    inputs: Annotated[
        list[Text | TextInput | QuestionInput | RankingInput], Field(fail_fast=True, min_length=1)
    ]
    truncate: bool = False
    top: Annotated[int, Field(ge=1, le=_MAX_TOP)] = 5
    conformal: Annotated[float, Field(ge=0.5, le=0.999)] | None = None


# OpenAI's


class EmbeddingsRequest(RequestBody):
    """The body of /v1/embeddings."""

    form = '{"input": ["a text"]}'
    input: Text | Texts
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    user: str | None = None
    truncate: bool = False

    @field_validator("input", mode="before")
    @classmethod
    def _is_text(cls, value: Any) -> Any:  # noqa: ANN401
        """Raise `InvalidRequest` for token ids, of one text or of several."""
        first = value[0] if isinstance(value, list) and value else None
        if isinstance(first, int) or (
            isinstance(first, list) and first and isinstance(first[0], int)
        ):
            raise InvalidRequest(
                "input: token ids are not read, since they are of another model's vocabulary; "
                f"write {cls.form}",
                parameter="input",
            )
        return value


# Cohere's and Jina's


class DocumentInput(RequestBody):
    """A document; what else is in it is not read."""

    text: Text


class RankDocumentsRequest(RequestBody):
    """The body of /v1/rerank."""

    form = '{"query": "a query", "documents": ["a text"]}'
    query: Text
    documents: Annotated[list[Text | DocumentInput], Field(fail_fast=True, min_length=1)]
    model: str | None = None
    top_n: Annotated[int, Field(ge=1)] | None = None
    return_documents: bool = False
    truncate: bool = False


# those of text-embeddings-inference


Direction = Literal["left", "right", "Left", "Right"]


class EmbedRequest(RequestBody):
    """The body of /embed and /embed_all."""

    form = '{"inputs": ["a text"]}'
    inputs: Text | Texts
    normalize: bool = True
    truncate: bool | None = False
    truncation_direction: Direction = "right"
    prompt_name: str | None = None
    dimensions: int | None = None
    model: str | None = None


Sequence = Annotated[list[Text], Field(fail_fast=True, min_length=1, max_length=2)]


class PredictRequest(RequestBody):
    """The body of /predict: a text, a pair, or several of them."""

    form = '{"inputs": "a text"}, or of several {"inputs": [["a text"], ["one", "of a pair"]]}'
    inputs: Text | Annotated[list[Text | Sequence], Field(fail_fast=True, min_length=1)]
    raw_scores: bool = False
    truncate: bool | None = False
    truncation_direction: Direction = "right"
    model: str | None = None


class RerankRequest(RequestBody):
    """The body of /rerank."""

    form = '{"query": "a query", "texts": ["a text"]}'
    query: Text
    texts: Texts
    raw_scores: bool = False
    return_text: bool = False
    truncate: bool | None = False
    truncation_direction: Direction = "right"
    model: str | None = None


class SimilarityInputs(RequestBody):
    """A sentence, and those that it is compared with."""

    source_sentence: Text
    sentences: Texts


class SimilarityParameters(RequestBody):
    """The settings of /similarity."""

    truncate: bool | None = False
    truncation_direction: Direction = "right"
    prompt_name: str | None = None


class SimilarityRequest(RequestBody):
    """The body of /similarity."""

    form = '{"inputs": {"source_sentence": "a text", "sentences": ["a text"]}}'
    inputs: SimilarityInputs
    parameters: SimilarityParameters | None = None
    model: str | None = None


class TokenizeRequest(RequestBody):
    """The body of /tokenize."""

    form = '{"inputs": ["a text"]}'
    inputs: Text | Texts
    add_special_tokens: bool = True
    prompt_name: str | None = None
    model: str | None = None


def parsed(body: bytes, kind: type[B], max_inputs: int) -> B:
    """Return the body of a request as a kind of it; `max_inputs` inputs may be in it.

    Raises `InvalidRequest` for what is no JSON, or not of that kind, and `PayloadTooLarge`.
    """
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest(f"the body is not JSON: {printable(error.msg)}") from None
    if not isinstance(content, dict):
        raise InvalidRequest(f"the body is not a JSON object; write {kind.form}")
    _check_counts(content, max_inputs)
    if issubclass(kind, StrictBody):
        _check_fields(content, kind)
    if _has_key_twice(body, content):
        raise _twice(body)
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise _malformed(error, kind, content) from None


def _check_counts(content: Mapping[str, Any], max_inputs: int) -> None:
    """Raise `PayloadTooLarge` for lists of too many inputs, before each is looked at."""
    # the inputs of /similarity are an object; what else may lie in each other has no end
    inner = content.get("inputs")
    for holder in (content, inner) if isinstance(inner, dict) else (content,):
        for name in _LISTS:
            value = holder.get(name)
            if not isinstance(value, list):
                continue
            # a ranking has a list of its own in each item
            count = len(value) if len(value) > max_inputs else sum(map(_texts_in, value))
            if count > max_inputs:
                raise PayloadTooLarge(
                    f"{name} has {count:,} items, and at most {max_inputs:,} are allowed"
                )


def _texts_in(item: Any) -> int:  # noqa: ANN401
    """Return the number of texts that an item of a list asks for."""
    texts = item.get("texts") if isinstance(item, dict) else None
    return len(texts) if isinstance(texts, list) else 1


def _check_fields(content: Mapping[str, Any], kind: type[RequestBody]) -> None:
    """Raise `InvalidRequest` for objects of so many fields that each would be an error."""
    inputs = content.get("inputs")
    items = inputs if isinstance(inputs, list) else ()
    for item in (content, *items):
        if isinstance(item, dict) and len(item) > _MAX_FIELDS:
            raise InvalidRequest(f"an object has {len(item):,} fields; write {kind.form}")


def _has_key_twice(body: bytes, content: Mapping[str, Any]) -> bool:
    """Return whether an object of the body has a key twice, of which the last one was parsed.

    Each key has a colon, and the others are in strings: there is one too many. A text that spells
    its colons as escapes can hide a key; no body is refused without one.
    """
    colons = body.count(b":")
    if colons == len(content):
        return False
    # writes no deeper lists than 254
    with suppress(orjson.JSONEncodeError):
        return colons > orjson.dumps(content).count(b":")
    waiting: list[Any] = [content]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            colons -= value.count(":")
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            colons -= len(value)
            waiting += value
            waiting += value.values()
    return colons > 0


def _twice(body: bytes) -> InvalidRequest:
    """Return the refusal of a body that has a key twice."""
    results: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        counts = Counter(name for name, _ in pairs)
        results.extend(name for name, count in counts.items() if count > 1)

    # deeper lists than Python reads leave the name unknown
    with suppress(RecursionError):
        if len(body) <= _MAX_NAMED_BYTES:
            json.loads(body, object_pairs_hook=look)
    # a name that is no field's may be a text
    name = next(filter(_FIELD.fullmatch, results), None)
    return InvalidRequest(f"{'a key' if name is None else repr(name)} occurs twice", parameter=name)


_SAID = {
    "missing": "is missing",
    "extra_forbidden": "there is no such field",
    "model_type": "Input should be an object",
    "too_short": "the list is empty",
}
_MAX_NAMES = 20
_NAME = re.compile(r"[\w-]{1,40}", re.ASCII)


def _malformed(
    error: ValidationError, kind: type[RequestBody], content: Mapping[str, Any]
) -> InvalidRequest:
    """Return what is wrong, without the texts, and what the body may look like."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    form = _intended_form(errors[0]["loc"], content) or kind
    # of the forms that were tried, the one that was meant, or that of which most is right
    tried = [item for item in errors if form.__name__ in item["loc"]] or errors
    first = max(tried, key=lambda item: _depth(item, content))
    missing = first["type"] == "missing"
    names, holder = _locate(first["loc"], content, missing=missing)
    # a name that is no field's may be a text
    path = ".".join(str(name) for name in names if _NAME.fullmatch(str(name)))
    message = printable(_SAID.get(first["type"], first["msg"].replace(" after validation", "")))
    message = f"{path}: {message}" if path else message
    right = wrong = str(names[-1]) if names else ""
    if missing:
        known = _fields(form, names)
        wrong = _close(right, [name for name in holder if name not in known])
    elif first["type"] == "extra_forbidden":
        right = _close(wrong, (form if len(names) > 1 else kind).model_fields)
    if right and wrong and right != wrong:
        message += f"; did you mean {right!r} instead of {wrong!r}?"
    refusal = EmptyList if first["type"] == "too_short" else InvalidRequest
    return refusal(f"{message}; write {form.form}", parameter=path or None)


def _fields(form: type[BaseModel], names: Iterable[int | str]) -> Collection[str]:
    """Return the names of the fields beside the last of some names."""
    for name in names:
        field = form.model_fields.get(str(name))
        if field is not None and isinstance(field.annotation, type):
            form = field.annotation if issubclass(field.annotation, BaseModel) else form
    return form.model_fields


def _intended_form(
    loc: tuple[int | str, ...], content: Mapping[str, Any]
) -> type[RequestBody] | None:
    """Return the form of an input that shares most names with one that has none of them all."""
    given = content[loc[0]][loc[1]] if loc[0] == "inputs" and loc[2:3] == ("str",) else None
    if isinstance(given, list):
        return TextInput
    if not isinstance(given, dict):
        return None

    def shared(form: type[RequestBody]) -> int:
        return sum(bool(_close(item, form.model_fields)) for item in islice(given, _MAX_NAMES))

    forms: tuple[type[RequestBody], ...] = (TextInput, QuestionInput, RankingInput)
    return max(forms, key=shared)


def _depth(error: Mapping[str, Any], content: Mapping[str, Any]) -> int:
    """Return the depth to which a body is valid before an error, if known."""
    names, _ = _locate(error["loc"], content, missing=error["type"] == "missing")
    return 2 * len(names) + int(error["type"] in ("too_short", "too_long"))


def _locate(
    loc: tuple[int | str, ...],
    content: Any,  # noqa: ANN401
    *,
    missing: bool,
) -> tuple[list[int | str], Any]:
    """Return the names of the place of a mistake, and the value that holds the last of them.

    Between them stand those of types that were tried.
    """
    names: list[int | str] = []
    holder = content
    for last in loc:
        inside = isinstance(content, list) and isinstance(last, int)
        if inside or (isinstance(content, dict) and last in content):
            names.append(last)
            holder, content = content, content[last]
    return ([*names, *loc[-1:]], content) if missing else (names, holder)


def _close(name: str, others: Iterable[str]) -> str:
    """Return the one of others that is nearly a name, "" without one."""
    if not _NAME.fullmatch(name):
        return ""
    others = filter(_NAME.fullmatch, islice(others, _MAX_NAMES))
    return next(iter(get_close_matches(name, others, n=1)), "")
