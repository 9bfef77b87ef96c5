"""The application: every path, what refusals look like in each dialect, and the page to try it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from bertsmith.core import VERSION
from bertsmith.core.log import say
from bertsmith.serving.config import ServeConfig
from bertsmith.serving.dispatch.gateway import Gateway
from bertsmith.serving.http.dialects import cohere, inference, openai, ours
from bertsmith.serving.http.dialects.service import Endpoint, Service, reply
from bertsmith.serving.http.limits import Hooks, Keys, Limits, Receive
from bertsmith.serving.http.metrics import CONTENT_TYPE, Metrics
from bertsmith.serving.http.openapi import described
from bertsmith.serving.http.page import page_routes
from bertsmith.serving.http.schema import parsed
from bertsmith.serving.refusals import (
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    Overloaded,
    Refusal,
    Unavailable,
)

ENDPOINTS: tuple[Endpoint, ...] = (
    *ours.ENDPOINTS, *openai.ENDPOINTS, *cohere.ENDPOINTS, *inference.ENDPOINTS
)  # fmt: skip
_INFERENCE = frozenset(
    (*(endpoint.path for endpoint in inference.ENDPOINTS), "/info", "/health", "/ready")
)
_CLIENT_CLOSED = 499
# bytes: of a hundred short texts and more, which take half a millisecond
_LARGE_BODY = 2048


def make_app(gateway: Gateway, config: ServeConfig, keys: Keys | None = None) -> Limits:
    """Return the application that answers requests by a gateway."""
    service, lock = Service(gateway=gateway, limits=config.limits), asyncio.Lock()
    fixed = _fixed(service, config)
    paths = [*(endpoint.path for endpoint in ENDPOINTS), *fixed, "/", "/metrics", "/openapi.json"]
    metrics = Metrics(gateway, paths)
    document = described(ENDPOINTS)

    async def show_metrics(request: Request) -> Response:
        return Response(metrics.text(), media_type=CONTENT_TYPE)

    async def show_document(request: Request) -> Response:
        return reply(document)

    routes = [
        *(
            Route(endpoint.path, _handler_of(service, endpoint, lock), methods=["POST"])
            for endpoint in ENDPOINTS
        ),
        *(Route(path, show, methods=["GET"]) for path, show in fixed.items()),
        Route("/metrics", show_metrics, methods=["GET"]),
        Route("/openapi.json", show_document, methods=["GET"]),
        *page_routes(),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={
            Refusal: _handle_refusal,
            HTTPException: _handle_http,
            Exception: _handle_fault,
        },
    )
    app.router.redirect_slashes = False
    hooks = Hooks(
        refuse=lambda scope, refusal: refusal_response(scope["path"], refusal),
        watch=metrics.count,
        leaving=lambda: gateway.leaving,
        check_room=gateway.check_room,
    )
    return Limits(app, config, keys or Keys(()), hooks)


def _fixed(
    service: Service, config: ServeConfig
) -> dict[str, Callable[[Request], Awaitable[Response]]]:
    """Return the paths that describe the server."""
    gateway = service.gateway

    async def info(request: Request) -> Response:
        if not gateway.models:
            raise Unavailable("the models are being opened")
        limits = config.limits
        about = {
            "max_concurrent_requests": limits.connections,
            "max_batch_tokens": limits.queue_tokens,
            "max_batch_requests": None,
            "max_client_batch_size": limits.max_inputs,
            "auto_truncate": False,
            "tokenization_workers": gateway.size,
            "version": VERSION,
        }
        return reply(inference.info(gateway.models, about))

    async def models(request: Request) -> Response:
        return reply(openai.listed(gateway.models))

    async def model(request: Request) -> Response:
        return reply(openai.described(service.choose(request.path_params["model"]).facts))

    async def health(request: Request) -> Response:
        return reply({"status": "alive"})

    async def ready(request: Request) -> Response:
        if not gateway.ready:
            raise Unavailable(
                "the server is about to end" if gateway.leaving else "no model is open"
            )
        return reply({"status": "ready"})

    return {
        "/info": info,
        "/v1/models": models,
        # names may have slashes, which clients send as they are or as %2F
        "/v1/models/{model:path}": model,
        "/health": health,
        "/ready": ready,
    }


def _handler_of(
    service: Service, endpoint: Endpoint, lock: asyncio.Lock
) -> Callable[[Request], Awaitable[Response]]:
    """Return the function of starlette for an endpoint.

    Large bodies are read one after the other, and then as long is left for small ones.
    """

    async def answer(body: bytes) -> Response:
        # others that came with it were queued since its headers were checked; nothing more is until
        # it is queued itself
        service.gateway.check_room(len(body))
        request_body = parsed(body, endpoint.body, service.limits.max_inputs)
        return await endpoint.run(replace(service, body=len(body)), request_body)

    async def run(request: Request) -> Response:
        try:
            body = await request.body()
        except ClientDisconnect:
            # granian says the same of a body with malformed chunks, whose client is still there
            problem = "the body is incomplete: it ended early, or its chunks are malformed"
            raise InvalidRequest(problem) from None
        if len(body) < _LARGE_BODY:
            result = await _while_connected(request.receive, asyncio.create_task(answer(body)))
        else:
            async with lock:
                started, work = time.perf_counter(), asyncio.create_task(answer(body))
                try:
                    await asyncio.sleep(0)
                    # its texts are queued; meanwhile others had to wait
                    await asyncio.sleep(time.perf_counter() - started)
                except asyncio.CancelledError:
                    work.cancel()
                    raise
            result = await _while_connected(request.receive, work)
        return Response(status_code=_CLIENT_CLOSED) if result is None else result

    return run


async def _while_connected(receive: Receive, task: asyncio.Task[Response]) -> Response | None:
    """Return the result of a task; when the client hangs up, cancel it and return None."""
    disconnected = asyncio.ensure_future(_wait_for_disconnect(receive))
    try:
        await asyncio.wait((task, disconnected), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for future in (task, disconnected):
            future.cancel()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


# refusals


def refusal_response(path: str, refusal: Refusal) -> Response:
    """Return the response for a refusal, in the dialect of a path."""
    headers: dict[str, str] = {}
    if isinstance(refusal, Overloaded):
        headers["retry-after"] = str(refusal.retry_after)
    if isinstance(refusal, Unavailable):
        headers["retry-after"] = "1"
    if refusal.status in (408, 413):
        # the rest of the body is not read
        headers["connection"] = "close"
    if refusal.status == 401:
        headers["www-authenticate"] = "Bearer"
    status, content = refusal.status, _openai_error(refusal)
    if path in _INFERENCE:
        status = _INFERENCE_STATUS.get(refusal.code, status)
        kind = _INFERENCE_TYPES.get(refusal.code, "validation")
        content = {"error": refusal.message, "error_type": kind}
    return Response(orjson.dumps(content), status, headers, "application/json")


_INFERENCE_TYPES = {
    "overloaded": "overloaded",
    "internal_error": "backend",
    "unavailable": "unhealthy",
    "deadline_exceeded": "backend",
    "empty_list": "empty",
}
_INFERENCE_STATUS = {"context_length_exceeded": 422, "invalid_request": 422, "internal_error": 424}


def _openai_error(refusal: Refusal) -> Mapping[str, Any]:
    kind = "invalid_request_error" if refusal.status < 429 else refusal.code
    return {
        "error": {
            "message": refusal.message,
            "type": kind,
            "code": refusal.code,
            "param": refusal.parameter,
        }
    }


async def _handle_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return refusal_response(request.url.path, error)


async def _handle_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        refusal: Refusal = MethodNotAllowed(f"this path accepts {allowed}")
        response = refusal_response(request.url.path, refusal)
        response.headers["allow"] = allowed
        return response
    return refusal_response(request.url.path, NotFound("there is nothing at this path"))


async def _handle_fault(request: Request, error: Exception) -> Response:
    # the message of an error may quote a text
    say(f"fault: {type(error).__name__} at {request.url.path}")
    return refusal_response(request.url.path, InternalError("the answer cannot be computed"))
