"""The endpoints of Hugging Face's text-embeddings-inference.

Beyond theirs a body may name one of several `model`s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from starlette.responses import Response

from bertsmith.core.printable import rounded
from bertsmith.serving.http.dialects.service import (
    OBJECT,
    Chosen,
    Endpoint,
    Rendered,
    Service,
    wanted_width,
)
from bertsmith.serving.http.schema import (
    EmbedRequest,
    PredictRequest,
    RerankRequest,
    SimilarityParameters,
    SimilarityRequest,
    TokenizeRequest,
)
from bertsmith.serving.messages import Inputs, Kind, ModelFacts, Rendering
from bertsmith.serving.models.rendering import unit, vectors_of
from bertsmith.serving.refusals import InvalidRequest

RANKERS: tuple[Kind, ...] = ("ranking", "regression")
"""The kinds of models that judge relevance."""


async def embed(service: Service, body: EmbedRequest) -> Response:
    """Return a vector of each text."""
    chosen = service.choose(body.model, "vectors")
    rendering: Rendering = "unit vectors" if body.normalize else "vectors"
    texts = replace(
        _texts(body, rendering), width=wanted_width(body.dimensions, chosen.facts.width)
    )
    answers = await service.ask(chosen, texts)
    return await service.reply_in_pieces(Rendered(answers.rendered), answers.truncated)


async def embed_all(service: Service, body: EmbedRequest) -> Response:
    """Return a vector of each token of each text, special ones included."""
    chosen = service.choose(body.model, "token-vectors")
    width, longest = chosen.facts.token_width, chosen.facts.max_input_length
    if body.dimensions not in (None, width):
        raise InvalidRequest(f"dimensions is {body.dimensions}, not {width}")
    texts = _texts(body, "token vectors")
    most = sum(min(size + 2, longest) for size in texts.sizes())
    service.check_size(most, width)
    answers = await service.ask(chosen, texts)
    return await service.reply_in_pieces(Rendered(answers.rendered), answers.truncated)


def _texts(body: EmbedRequest, rendering: Rendering) -> Inputs:
    """Return the texts of a request for vectors; raises `InvalidRequest`."""
    _check_prompt(body.prompt_name)
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    return Inputs(texts, truncate=_truncate(body), rendering=rendering)


def _truncate(body: EmbedRequest | PredictRequest | RerankRequest | SimilarityParameters) -> bool:
    """Return whether texts are truncated; raises `InvalidRequest` for their other end."""
    if body.truncate and body.truncation_direction.lower() == "left":
        raise InvalidRequest(
            "texts can only be truncated at their end", parameter="truncation_direction"
        )
    return bool(body.truncate)


def _check_prompt(name: str | None) -> None:
    """Raise `InvalidRequest` for the name of a prompt."""
    if name is not None:
        raise InvalidRequest("a request cannot choose a prompt", parameter="prompt_name")


async def predict(service: Service, body: PredictRequest) -> Response:
    """Return the labels of each text or pair with their scores, the likeliest first."""
    chosen = service.choose(body.model, "classes", "multi-label", "regression", "ranking")
    given = body.inputs
    # as there: a list of texts is one input, of a text or a pair, only where it is the whole
    alone = isinstance(given, str) or (len(given) <= 2 and all(isinstance(x, str) for x in given))
    rows: Sequence[Any] = [given] if alone else given
    service.check_size(len(rows) * max(len(chosen.facts.labels), 1), OBJECT)
    answers = await service.ask(_choose_output(chosen, body), _pairs(rows, _truncate(body)))
    results = [_scored(chosen.facts, answer) for answer in answers.values]
    if not body.raw_scores:
        results = [
            [{**item, "score": rounded(item["score"])} for item in scores] for scores in results
        ]
    return await service.reply_in_pieces(results[0] if alone else results, answers.truncated)


def _pairs(rows: Sequence[str | list[str]], truncate: bool) -> Inputs:
    """Return texts and pairs, which are lists."""
    firsts = [row if isinstance(row, str) else row[0] for row in rows]
    seconds = [row[1] if isinstance(row, list) and len(row) > 1 else None for row in rows]
    return Inputs(firsts, seconds, truncate=truncate)


def _choose_output(chosen: Chosen, body: PredictRequest | RerankRequest) -> Chosen:
    """Return the choice, of raw outputs of the head where a request wants them."""
    return replace(chosen, kind="logits") if body.raw_scores else chosen


def _scored(facts: ModelFacts, answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the scores of all labels, the highest first; a lone number is as computed."""
    labels = facts.labels or ("LABEL_0",)
    if "scores" in answer:
        return [{"score": score["score"], "label": score["label"]} for score in answer["scores"]]
    if "logits" in answer:
        pairs = zip(answer["logits"], labels, strict=True)
        results = [{"score": score, "label": label} for score, label in pairs]
        return sorted(results, key=lambda result: -result["score"])
    return [{"score": answer["value" if "value" in answer else "score"], "label": labels[0]}]


async def rerank(service: Service, body: RerankRequest) -> Response:
    """Return the texts by their relevance to a query, the most relevant first."""
    chosen = service.choose(body.model, *RANKERS)
    inputs = Inputs([body.query] * len(body.texts), body.texts, truncate=_truncate(body))
    answers = await service.ask(_choose_output(chosen, body), inputs)
    results = by_relevance(chosen.facts, answers.values, raw=body.raw_scores)
    if body.return_text:
        results = [{**result, "text": body.texts[result["index"]]} for result in results]
    return await service.reply_in_pieces(results, answers.truncated)


def by_relevance(
    facts: ModelFacts, answers: Sequence[Any], *, raw: bool = False
) -> list[dict[str, Any]]:
    """Return the numbers of texts with their scores, the most relevant first."""
    scores = [_scored(facts, answer)[0]["score"] for answer in answers]
    order = sorted(range(len(scores)), key=lambda index: -scores[index])
    return [
        {"index": index, "score": scores[index] if raw else rounded(scores[index])}
        for index in order
    ]


async def similarity(service: Service, body: SimilarityRequest) -> Response:
    """Return the cosine of a sentence with each of several others."""
    chosen = service.choose(body.model, "vectors")
    settings = body.parameters or SimilarityParameters()
    _check_prompt(settings.prompt_name)
    texts = [body.inputs.source_sentence, *body.inputs.sentences]
    answers = await service.ask(chosen, Inputs(texts, truncate=_truncate(settings)))
    source, *others = unit(vectors_of(answers.values))
    # rounding takes that of equal texts beyond 1
    cosines = np.clip(np.stack(others) @ source, -1, 1)
    return await service.reply_in_pieces(cosines, answers.truncated)


async def tokenize(service: Service, body: TokenizeRequest) -> Response:
    """Return the tokens of each text with their characters."""
    chosen = service.choose(body.model, "tokens")
    _check_prompt(body.prompt_name)
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    service.check_size(sum(map(len, texts)), OBJECT)
    rendering: Rendering = "tokens" if body.add_special_tokens else "text tokens"
    answers = await service.ask(chosen, Inputs(texts, rendering=rendering))
    return await service.reply_in_pieces(Rendered(answers.rendered))


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
    """Return the content of /info: the first model as there, and all models."""
    facts = models[0]
    names = {str(number): label for number, label in enumerate(facts.labels)}
    labels = {"id2label": names, "label2id": {label: int(key) for key, label in names.items()}}
    kind: dict[str, Any] = {"classifier": labels}
    if "vectors" in facts.can:
        # whatever else it does, which there is no word for
        kind = {"embedding": {"pooling": "own"}}
    elif facts.kind == "ranking":
        kind = {"reranker": labels}
    return {
        "model_id": facts.name,
        "model_sha": None,
        "model_dtype": facts.precision,
        "model_type": kind,
        "max_input_length": facts.max_input_length,
        **first,
        "models": [
            {
                "name": model.name,
                "kind": model.kind,
                "can": model.can,
                "labels": model.labels,
                "max_input_length": model.max_input_length,
                "precision": model.precision,
                "backend": model.backend,
                "family": model.family,
                "width": model.width,
                "pairs": model.pairs,
                "mask": model.mask,
            }
            for model in models
        ],
    }
