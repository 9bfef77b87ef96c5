"""The endpoints of Hugging Face's text-embeddings-inference.

Beyond theirs a body may name one of several `model`s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from starlette.responses import Response

from bertsmith.serving.http.dialects.service import (
    OBJECT,
    Chosen,
    Endpoint,
    Service,
    shown,
    unit,
    vector,
)
from bertsmith.serving.http.schema import (
    EmbedRequest,
    PredictRequest,
    RerankRequest,
    SimilarityRequest,
    TokenizeRequest,
)
from bertsmith.serving.messages import Inputs, ModelFacts, Outcome
from bertsmith.serving.refusals import InvalidRequest


async def embed(service: Service, asked: EmbedRequest) -> Response:
    """Return a vector of each text."""
    chosen = service.choose(asked.model, "vectors")
    outcomes = await service.ask(chosen, _texts(asked, chosen.facts.width))
    vectors = np.stack([vector(outcome) for outcome in outcomes])
    return await service.reply_in_pieces(unit(vectors) if asked.normalize else vectors, outcomes)


async def embed_all(service: Service, asked: EmbedRequest) -> Response:
    """Return a vector of each token of each text, special ones included."""
    chosen = service.choose(asked.model, "token-vectors")
    width, longest = chosen.facts.token_width, chosen.facts.max_input_length
    texts = _texts(asked, width)
    most = sum(min(size + 2, longest) for size in texts.sizes())
    service.check_size(most, width)
    outcomes = await service.ask(chosen, texts)
    # the width of a model's last layer, which the vectors of texts may not have
    rows = [vector(outcome).reshape(outcome.tokens, -1) for outcome in outcomes]
    return await service.reply_in_pieces(rows, outcomes)


def _texts(asked: EmbedRequest, width: int) -> Inputs:
    """Return the texts of a request for vectors of a width; raises `InvalidRequest`."""
    if asked.dimensions not in (None, width):
        raise InvalidRequest(f"dimensions is {asked.dimensions}, not {width}")
    if asked.prompt_name is not None:
        raise InvalidRequest("prompts are not chosen by request", parameter="prompt_name")
    if asked.truncate and asked.truncation_direction.lower() == "left":
        raise InvalidRequest("texts are truncated at their end", parameter="truncation_direction")
    texts = [asked.inputs] if isinstance(asked.inputs, str) else asked.inputs
    return Inputs(texts, truncate=bool(asked.truncate))


async def predict(service: Service, asked: PredictRequest) -> Response:
    """Return the labels of each text or pair with their scores, the likeliest first."""
    chosen = service.choose(asked.model, "classes", "multi-label", "regression", "ranking")
    given = asked.inputs
    # as there: a list of texts is one input, of a text or a pair, only where it is the whole
    alone = isinstance(given, str) or (len(given) <= 2 and all(isinstance(x, str) for x in given))
    rows = [given] if alone else given
    service.check_size(len(rows) * max(len(chosen.facts.labels), 1), OBJECT)
    outcomes = await service.ask(_asked_for(chosen, asked), _pairs(rows, bool(asked.truncate)))
    found = [_scored(chosen.facts, outcome) for outcome in outcomes]
    if not asked.raw_scores:
        found = [[{**each, "score": shown(each["score"])} for each in own] for own in found]
    return await service.reply_in_pieces(found[0] if alone else found, outcomes)


def _pairs(rows: Sequence[str | list[str]], truncate: bool) -> Inputs:
    """Return texts and pairs, which are lists."""
    firsts = [row if isinstance(row, str) else row[0] for row in rows]
    seconds = [row[1] if isinstance(row, list) and len(row) > 1 else None for row in rows]
    return Inputs(firsts, seconds, truncate=truncate)


def _asked_for(chosen: Chosen, asked: PredictRequest | RerankRequest) -> Chosen:
    """Return what is asked of a model: the outputs of its head as they are, or its answer."""
    return replace(chosen, kind="logits") if asked.raw_scores else chosen


def _scored(facts: ModelFacts, outcome: Outcome) -> list[dict[str, Any]]:
    """Return the scores of all labels, the highest first; a lone number is as computed."""
    answer, labels = outcome.answer, facts.labels or ("LABEL_0",)
    if "scores" in answer:
        return [{"score": each["score"], "label": each["label"]} for each in answer["scores"]]
    if "logits" in answer:
        pairs = zip(answer["logits"], labels, strict=True)
        found = [{"score": score, "label": label} for score, label in pairs]
        return sorted(found, key=lambda each: -_number(each["score"]))
    return [{"score": answer["value" if "value" in answer else "score"], "label": labels[0]}]


async def rerank(service: Service, asked: RerankRequest) -> Response:
    """Return the texts by their relevance to a query, the most relevant first."""
    chosen = service.choose(asked.model, "ranking", "regression")
    inputs = Inputs([asked.query] * len(asked.texts), asked.texts, truncate=bool(asked.truncate))
    outcomes = await service.ask(_asked_for(chosen, asked), inputs)
    scores = [_scored(chosen.facts, outcome)[0]["score"] for outcome in outcomes]
    order = sorted(range(len(scores)), key=lambda place: -_number(scores[place]))
    if not asked.raw_scores:
        scores = [shown(score) for score in scores]
    found: list[dict[str, Any]] = [{"index": place, "score": scores[place]} for place in order]
    if asked.return_text:
        found = [{**each, "text": asked.texts[each["index"]]} for each in found]
    return await service.reply_in_pieces(found, outcomes)


def _number(score: float | None) -> float:
    return -math.inf if score is None else score


async def similarity(service: Service, asked: SimilarityRequest) -> Response:
    """Return the cosine of a sentence with each of several others."""
    chosen = service.choose(asked.model, "vectors")
    truncate = bool(asked.parameters and asked.parameters.truncate)
    texts = [asked.inputs.source_sentence, *asked.inputs.sentences]
    outcomes = await service.ask(chosen, Inputs(texts, truncate=truncate))
    source, *others = unit(np.stack([vector(outcome) for outcome in outcomes]))
    # rounding takes that of equal texts beyond 1
    cosines = np.clip(np.stack(others) @ source, -1, 1)
    return await service.reply_in_pieces(cosines, outcomes)


async def tokenize(service: Service, asked: TokenizeRequest) -> Response:
    """Return the tokens of each text with their characters."""
    chosen = service.choose(asked.model, "tokens")
    texts = [asked.inputs] if isinstance(asked.inputs, str) else asked.inputs
    service.check_size(sum(map(len, texts)), OBJECT)
    outcomes = await service.ask(chosen, Inputs(texts))
    return await service.reply_in_pieces(
        [_tokens(outcome.answer, asked.add_special_tokens) for outcome in outcomes]
    )


def _tokens(rows: Sequence[tuple[Any, ...]], specials: bool) -> list[dict[str, Any]]:
    return [
        {"id": number, "text": piece, "special": special, "start": start, "stop": end}
        for number, piece, special, start, end in rows
        if specials or start is not None
    ]


ENDPOINTS = (
    Endpoint(
        path="/embed",
        summary="Vectors of texts",
        body=EmbedRequest,
        run=embed,
        answer=[[0.6, -0.8]],
    ),
    Endpoint(
        path="/embed_all",
        summary="Vectors of all tokens of texts",
        body=EmbedRequest,
        run=embed_all,
        answer=[[[0.6, -0.8], [0.1, 0.2]]],
    ),
    Endpoint(
        path="/predict",
        summary="Labels of texts or pairs with their scores",
        body=PredictRequest,
        run=predict,
        answer=[{"score": 0.9, "label": "ham"}],
    ),
    Endpoint(
        path="/rerank",
        summary="Texts by their relevance to a query",
        body=RerankRequest,
        run=rerank,
        answer=[{"index": 1, "score": 0.9}],
    ),
    Endpoint(
        path="/similarity",
        summary="Cosines of a sentence with others",
        body=SimilarityRequest,
        run=similarity,
        answer=[0.7],
    ),
    Endpoint(
        path="/tokenize",
        summary="Tokens of texts",
        body=TokenizeRequest,
        run=tokenize,
        answer=[[{"id": 101, "text": "[CLS]", "special": True, "start": None, "stop": None}]],
    ),
)


def info(models: tuple[ModelFacts, ...], first: dict[str, Any]) -> dict[str, Any]:
    """Return what /info says: of the first model as there, and of all of them."""
    facts = models[0]
    names = {str(number): label for number, label in enumerate(facts.labels)}
    labels = {"id2label": names, "label2id": {label: int(key) for key, label in names.items()}}
    types: dict[str, dict[str, Any]] = {
        "vectors": {"embedding": {"pooling": "own"}},
        "ranking": {"reranker": labels},
    }
    return {
        "model_id": facts.name,
        "model_sha": None,
        "model_dtype": facts.precision,
        "model_type": types.get(facts.kind, {"classifier": labels}),
        "max_input_length": facts.max_input_length,
        **first,
        "models": [
            {
                "name": each.name,
                "kind": each.kind,
                "can": each.can,
                "labels": each.labels,
                "max_input_length": each.max_input_length,
                "precision": each.precision,
                "backend": each.backend,
                "family": each.family,
                "width": each.width,
                "pairs": each.pairs,
                "mask": each.mask,
            }
            for each in models
        ],
    }
