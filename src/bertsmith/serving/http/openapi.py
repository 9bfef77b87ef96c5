"""The OpenAPI document, from the table of endpoints and the schemas of their bodies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic.json_schema import models_json_schema

from bertsmith.core import VERSION
from bertsmith.serving.http.dialects.service import Endpoint

_REFERENCE = "#/components/schemas/{model}"
_STATUSES = {
    "400": "The request is malformed, or a text is too long",
    "401": "A key is needed",
    "404": "There is no such model",
    "405": "The method is not allowed",
    "408": "The body did not arrive in time",
    "413": "Too much at once",
    "415": "The body is compressed",
    "421": "The request is addressed to another host",
    "422": "The request is malformed, or a text is too long",
    "424": "The answer cannot be computed",
    "429": "The queue is full: see Retry-After",
    "500": "The answer cannot be computed",
    "503": "No model is open",
    "504": "Not answered before the deadline",
}
_ABOUT = {
    "/info": "The models",
    "/v1/models": "The models, as OpenAI lists them",
    "/v1/models/{model}": "A model, as OpenAI describes it",
    "/health": "The server is alive",
    "/ready": "Requests are answered",
    "/metrics": "Figures in Prometheus' format",
}
# of a path
_MODEL = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}


def described(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI document of some endpoints."""
    bodies = list(dict.fromkeys(endpoint.body for endpoint in endpoints))
    _, schemas = models_json_schema(
        [(body, "validation") for body in bodies], ref_template=_REFERENCE
    )
    paths: dict[str, Any] = {
        endpoint.path: {"post": _operation(endpoint)} for endpoint in endpoints
    }
    for path, about in _ABOUT.items():
        kind = "text/plain" if path == "/metrics" else "application/json"
        good = {"description": about, "content": {kind: {"schema": {}}}}
        operation: dict[str, Any] = {"summary": about, "responses": {"200": good, **_failures()}}
        if path.endswith("{model}"):
            operation["parameters"] = [_MODEL]
        paths[path] = {"get": operation}
    return {
        "openapi": "3.1.0",
        "info": {"title": "bertsmith", "version": VERSION},
        "paths": paths,
        "components": {
            "schemas": schemas.get("$defs", {}),
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    reference = {"$ref": _REFERENCE.format(model=endpoint.body.__name__)}
    return {
        "summary": endpoint.summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": reference}}},
        "responses": {
            "200": {
                "description": endpoint.summary,
                "content": {"application/json": {"schema": {}, "example": endpoint.answer}},
            },
            **_failures(),
        },
    }


def _failures() -> dict[str, Any]:
    content = {"application/json": {"schema": {"type": "object", "required": ["error"]}}}
    return {
        status: {"description": about, "content": content} for status, about in _STATUSES.items()
    }
