"""The endpoint /v1/rerank, as Cohere and Jina have it and their clients ask for it."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from bertsmith.serving.http.dialects.inference import RANKERS, by_relevance
from bertsmith.serving.http.dialects.service import Endpoint, Service
from bertsmith.serving.http.schema import RankDocumentsRequest
from bertsmith.serving.messages import Inputs


async def rerank(service: Service, body: RankDocumentsRequest) -> Response:
    """Return the `top_n` documents that are most relevant to a query, the most relevant first."""
    chosen = service.choose(body.model, *RANKERS)
    texts = [item if isinstance(item, str) else item.text for item in body.documents]
    answers = await service.ask(
        chosen, Inputs([body.query] * len(texts), texts, truncate=body.truncate)
    )
    results: list[dict[str, Any]] = []
    for result in by_relevance(chosen.facts, answers.values)[: body.top_n]:
        index = result["index"]
        document = {"document": {"text": texts[index]}} if body.return_documents else {}
        results.append({"index": index, "relevance_score": result["score"], **document})
    count = answers.tokens
    return await service.reply_in_pieces(
        {
            "model": chosen.facts.name,
            "results": results,
            "usage": {"prompt_tokens": count, "total_tokens": count},
        },
        answers.truncated,
    )


ENDPOINTS = (
    Endpoint(
        path="/v1/rerank",
        summary="Documents by their relevance to a query, as Cohere and Jina give them",
        body=RankDocumentsRequest,
        run=rerank,
        answer={
            "model": "relevance",
            "results": [{"index": 1, "relevance_score": 0.9}],
            "usage": {"prompt_tokens": 24, "total_tokens": 24},
        },
    ),
)
