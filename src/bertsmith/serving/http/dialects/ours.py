"""Our own endpoint: /answer, for every kind of model, with characters of the text as sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from starlette.responses import Response

from bertsmith.serving.http.dialects.service import (
    OBJECT,
    Endpoint,
    Service,
    shown,
    tokens,
    vector,
)
from bertsmith.serving.http.schema import AnswerRequest, QuestionInput, RankingInput, TextInput
from bertsmith.serving.messages import MASK, Input, Kind, Outcome
from bertsmith.serving.refusals import InvalidRequest

Item = str | TextInput | QuestionInput | RankingInput


async def answer(service: Service, body: AnswerRequest) -> Response:
    """Answer each input by what the model was made for, or by the task that is named."""
    started = time.perf_counter()
    kinds: tuple[Kind, ...] = () if body.task is None else (body.task,)
    chosen = service.choose(body.model, *kinds)
    if body.conformal is not None and chosen.kind not in ("classes", "choices"):
        message = f"conformal is for classes and choices, and the task is {chosen.kind}"
        raise InvalidRequest(message, parameter="conformal")
    inputs: list[Input] = []
    sizes: list[int] = []
    make = partial(Input, truncate=body.truncate, top=body.top, conformal=body.conformal)
    for number, item in enumerate(body.inputs):
        item_inputs = _inputs(item, chosen.kind, number, make)
        inputs += item_inputs
        sizes.append(len(item_inputs))
    if chosen.kind == "fill-mask":
        mask = chosen.facts.mask or MASK
        masks = sum(entry.text.count(MASK) + entry.text.count(mask) for entry in inputs)
        service.check_size(masks * body.top, OBJECT)
    outcomes = await service.ask(chosen, inputs)
    grouped: list[list[Outcome]] = []
    begin = 0
    for size in sizes:
        grouped.append(outcomes[begin : begin + size])
        begin += size
    return await service.reply_in_pieces(
        {
            "model": chosen.facts.name,
            "task": chosen.kind,
            "answers": [_answer(chosen.kind, item_inputs) for item_inputs in grouped],
            "milliseconds": round(1000 * (time.perf_counter() - started), 3),
            "tokens": tokens(outcomes),
        },
        outcomes,
    )


def _inputs(item: Item, kind: Kind, number: int, make: Callable[..., Input]) -> list[Input]:
    """Return what one input asks: several texts of a ranking."""
    match item:
        case RankingInput() if kind == "ranking":
            return [make(item.query, text) for text in item.texts]
        case QuestionInput() if kind == "spans":
            return [make(item.question, item.context)]
        case TextInput(choices=list() as choices) if kind == "choices":
            return [make(item.text, None, tuple(choices))]
        case TextInput(choices=None) if kind not in ("ranking", "spans", "choices"):
            return [make(item.text, item.text_pair)]
        case str() if kind not in ("ranking", "spans", "choices"):
            return [make(item)]
    raise InvalidRequest(f"input {number} is not of the form {_FORMS[kind]}", parameter="inputs")


_PAIR = 'a text, or {"text": ..., "text_pair": ...}'
_FORMS: dict[Kind, str] = {
    "ranking": '{"query": ..., "texts": [...]}',
    "spans": '{"question": ..., "context": ...}',
    "choices": '{"text": ..., "choices": [...]}',
    "classes": _PAIR,
    "multi-label": _PAIR,
    "regression": _PAIR,
    "tags": "of a text",
    "fill-mask": "of a text",
    "next-sentence": '{"text": ..., "text_pair": ...}',
    "vectors": _PAIR,
}


def _answer(kind: Kind, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the answer to one input."""
    truncated = any(outcome.truncated for outcome in outcomes)
    if kind == "ranking":
        scores = [shown(outcome.answer["score"]) for outcome in outcomes]
        return {"scores": scores, "truncated": truncated}
    (outcome,) = outcomes
    if kind == "regression":
        return {"value": shown(outcome.answer["value"]), "truncated": truncated}
    if kind == "vectors":
        return {"vector": vector(outcome), "truncated": truncated}
    return {**outcome.answer, "truncated": truncated}


ENDPOINTS = (
    Endpoint(
        path="/answer",
        summary="The answers of any model",
        body=AnswerRequest,
        run=answer,
        answer={
            "model": "spam",
            "task": "classes",
            "answers": [
                {
                    "label": "ham",
                    "score": 0.9,
                    "scores": [{"label": "ham", "score": 0.9}],
                    "truncated": False,
                }
            ],
            "milliseconds": 2.5,
            "tokens": 12,
        },
    ),
)
