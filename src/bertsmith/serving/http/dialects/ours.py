"""Our own endpoint: /answer, for every kind of model, with characters of the text as sent."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
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
from bertsmith.serving.messages import MASK, Inputs, Kind, Outcome
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
    texts, seconds, choices = _columns(body.inputs, chosen.kind)
    sizes = [len(item.texts) for item in body.inputs if isinstance(item, RankingInput)]
    inputs = Inputs(
        texts, seconds, choices, truncate=body.truncate, top=body.top, conformal=body.conformal,
        owners=[number for number, size in enumerate(sizes) for _ in range(size)] or None,
    )  # fmt: skip
    if chosen.kind == "fill-mask":
        mask = chosen.facts.mask or MASK
        masks = sum(text.count(MASK) + text.count(mask) for text in texts)
        service.check_size(masks * body.top, OBJECT)
    outcomes = await service.ask(chosen, inputs)
    marked: Sequence[Outcome] = outcomes
    if chosen.kind == "ranking":
        groups = list(_grouped(outcomes, sizes))
        answers = [
            {"scores": [shown(item.answer["score"]) for item in group], "truncated": _cut(group)}
            for group in groups
        ]
        # one of each, a truncated one if there is one
        marked = [max(group, key=lambda outcome: outcome.truncated) for group in groups]
    else:
        answers = [_answer(chosen.kind, outcome) for outcome in outcomes]
    return await service.reply_in_pieces(
        {
            "model": chosen.facts.name,
            "task": chosen.kind,
            "answers": answers,
            "milliseconds": round(1000 * (time.perf_counter() - started), 3),
            "tokens": tokens(outcomes),
        },
        marked,
    )


Columns = tuple[list[str], list[str | None] | None, list[tuple[str, ...]] | None]


def _columns(items: Sequence[Item], kind: Kind) -> Columns:
    """Return the texts of a request, their second texts, and their choices, if they have any.

    An item of a ranking has several texts. Raises `InvalidRequest`.
    """
    alone = kind not in ("ranking", "spans", "choices")
    texts = [item for item in items if isinstance(item, str)]
    if alone and len(texts) == len(items):
        return texts, None, None
    texts = []
    seconds: list[str | None] = []
    choices: list[tuple[str, ...]] = []
    for number, item in enumerate(items):
        match item:
            case RankingInput() if kind == "ranking":
                texts += [item.query] * len(item.texts)
                seconds += item.texts
            case QuestionInput() if kind == "spans":
                texts.append(item.question)
                seconds.append(item.context)
            case TextInput(choices=list() as options, text_pair=None) if kind == "choices":
                texts.append(item.text)
                choices.append(tuple(options))
            case TextInput(choices=None) if alone:
                texts.append(item.text)
                seconds.append(item.text_pair)
            case str() if alone:
                texts.append(item)
                seconds.append(None)
            case _:
                message = f"input {number} is not of the form {_FORMS[kind]}"
                raise InvalidRequest(message, parameter="inputs")
    return texts, seconds or None, choices or None


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


def _grouped(outcomes: Sequence[Outcome], sizes: Sequence[int]) -> Iterator[Sequence[Outcome]]:
    """Yield the outcomes in consecutive groups of these sizes."""
    begin = 0
    for size in sizes:
        yield outcomes[begin : begin + size]
        begin += size


def _cut(outcomes: Sequence[Outcome]) -> bool:
    return any(outcome.truncated for outcome in outcomes)


def _answer(kind: Kind, outcome: Outcome) -> dict[str, Any]:
    """Return the answer to one input."""
    if kind == "vectors":
        return {"vector": vector(outcome), "truncated": outcome.truncated}
    if kind == "regression":
        return {"value": shown(outcome.answer["value"]), "truncated": outcome.truncated}
    return {**outcome.answer, "truncated": outcome.truncated}


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
