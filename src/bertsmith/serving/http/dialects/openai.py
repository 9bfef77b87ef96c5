"""OpenAI's endpoints: /v1/embeddings, and those of /v1/models in the application."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from bertsmith.serving.http.dialects.service import Endpoint, Rendered, Service, wanted_width
from bertsmith.serving.http.schema import EmbeddingsRequest
from bertsmith.serving.messages import Inputs, ModelFacts, Rendering


async def embeddings(service: Service, body: EmbeddingsRequest) -> Response:
    """Return vectors of length 1, as numbers or as their bytes in base64."""
    chosen = service.choose(body.model, "vectors")
    width = wanted_width(body.dimensions, chosen.facts.width)
    texts = [body.input] if isinstance(body.input, str) else body.input
    rendering: Rendering = "base64 embeddings" if body.encoding_format == "base64" else "embeddings"
    inputs = Inputs(texts, truncate=body.truncate, rendering=rendering, width=width)
    answers = await service.ask(chosen, inputs)
    count = answers.tokens
    return await service.reply_in_pieces(
        {
            "object": "list",
            "data": Rendered(answers.rendered),
            "model": chosen.facts.name,
            "usage": {"prompt_tokens": count, "total_tokens": count},
        },
        answers.truncated,
    )


def listed(models: tuple[ModelFacts, ...]) -> dict[str, Any]:
    """Return the models as OpenAI's /v1/models has them."""
    return {"object": "list", "data": [described(facts) for facts in models]}


def described(facts: ModelFacts) -> dict[str, Any]:
    """Return a model as OpenAI's /v1/models/{model} has it."""
    return {"id": facts.name, "object": "model", "created": 0, "owned_by": "bertsmith"}


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
