"""Our own endpoint: /answer, for every kind of model, with characters of the text as sent."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import chain, islice
from typing import Any

from starlette.responses import Response

from bertsmith.core.printable import rounded
from bertsmith.serving.dispatch.jobs import Answers
from bertsmith.serving.http.dialects.service import OBJECT, Endpoint, Rendered, Service
from bertsmith.serving.http.schema import AnswerRequest, QuestionInput, RankingInput, TextInput
from bertsmith.serving.messages import MASK, Inputs, Kind
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
        rendering="values" if chosen.kind == "ranking" else "answers",
    )  # fmt: skip
    if chosen.kind == "fill-mask":
        marks = {MASK, chosen.facts.mask or MASK}
        read = (text or "" for text in chain(texts, seconds or ()))
        masks = sum(text.count(mark) for text in read for mark in marks)
        service.check_size(masks * body.top, OBJECT)
    answers = await service.ask(chosen, inputs)
    content: object = Rendered(answers.rendered)
    truncated = answers.truncated
    if chosen.kind == "ranking":
        content, truncated = _ranked(answers, sizes)
    return await service.reply_in_pieces(
        {
            "model": chosen.facts.name,
            "task": chosen.kind,
            "answers": content,
            "milliseconds": round(1000 * (time.perf_counter() - started), 3),
            "tokens": answers.tokens,
        },
        truncated,
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
            case QuestionInput(choices=None) if kind == "spans":
                texts.append(item.question)
                seconds.append(item.context)
            case QuestionInput(choices=list() as options) if kind == "choices":
                texts.append(item.question)
                seconds.append(item.context)
                choices.append(tuple(options))
            case TextInput(choices=list() as options, text_pair=None) if kind == "choices":
                texts.append(item.text)
                seconds.append(None)
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
    "choices": '{"text": ..., "choices": [...]}, or {"question": ..., "context": ..., '
    '"choices": [...]}',
    "classes": _PAIR,
    "multi-label": _PAIR,
    "regression": _PAIR,
    "tags": "of a text",
    "fill-mask": "of a text",
    "next-sentence": '{"text": ..., "text_pair": ...}',
    "vectors": _PAIR,
}


def _ranked(answers: Answers, sizes: Sequence[int]) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the scores of each ranking, of these numbers of texts, and which are truncated."""
    scores, cut = iter(answers.values), set(answers.truncated)
    results, begin = [], 0
    for size in sizes:
        shares = [rounded(item["score"]) for item in islice(scores, size)]
        truncated = not cut.isdisjoint(range(begin, begin + size))
        results.append({"scores": shares, "truncated": truncated})
        begin += size
    return results, [number for number, item in enumerate(results) if item["truncated"]]


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
