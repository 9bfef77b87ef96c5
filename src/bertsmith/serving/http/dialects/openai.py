"""OpenAI's endpoints: /v1/embeddings, and /v1/models in the application."""

from __future__ import annotations

import base64
from typing import Any

from starlette.responses import Response

from bertsmith.serving.http.dialects.service import (
    Endpoint,
    Service,
    tokens,
    unit,
    vector,
)
from bertsmith.serving.http.schema import EmbeddingsRequest
from bertsmith.serving.messages import Inputs, ModelFacts
from bertsmith.serving.refusals import InvalidRequest


async def embeddings(service: Service, body: EmbeddingsRequest) -> Response:
    """Return vectors of length 1, as numbers or as their bytes in base64."""
    chosen = service.choose(body.model, "vectors")
    if body.dimensions not in (None, chosen.facts.width):
        raise InvalidRequest(
            f"dimensions is {body.dimensions}, and the vectors have {chosen.facts.width}",
            parameter="dimensions",
        )
    texts = [body.input] if isinstance(body.input, str) else body.input
    outcomes = await service.ask(chosen, Inputs(texts, truncate=body.truncate))
    data: list[dict[str, Any]] = []
    for index, outcome in enumerate(outcomes):
        numbers = unit(vector(outcome))
        shown: object = numbers
        if body.encoding_format == "base64":
            shown = base64.b64encode(numbers.tobytes()).decode()
        mark = {"truncated": True} if outcome.truncated else {}
        data.append({"object": "embedding", "index": index, "embedding": shown, **mark})
    count = tokens(outcomes)
    return await service.reply_in_pieces(
        {
            "object": "list",
            "data": data,
            "model": chosen.facts.name,
            "usage": {"prompt_tokens": count, "total_tokens": count},
        },
        outcomes,
    )


def listed(models: tuple[ModelFacts, ...]) -> dict[str, Any]:
    """Return the models as OpenAI's /v1/models has them."""
    return {
        "object": "list",
        "data": [
            {"id": facts.name, "object": "model", "created": 0, "owned_by": "bertsmith"}
            for facts in models
        ],
    }


ENDPOINTS = (
    Endpoint(
        path="/v1/embeddings",
        summary="Vectors of texts, as OpenAI's endpoint gives them",
        body=EmbeddingsRequest,
        run=embeddings,
        answer={
            "object": "list",
            "data": [{"object": "embedding", "index": 0, "embedding": [0.6, -0.8]}],
            "model": "minilm",
            "usage": {"prompt_tokens": 5, "total_tokens": 5},
        },
    ),
)
