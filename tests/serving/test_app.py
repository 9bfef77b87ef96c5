"""The application with workers that are functions: limits, refusals, faults, the end."""

from __future__ import annotations

import asyncio
import json
import time
from asyncio import Task
from collections.abc import Callable, Coroutine, Mapping, MutableMapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import httpx
import numpy as np
import orjson
import pytest

pytest.importorskip("starlette")
pytest.importorskip("orjson")

from pydantic import ValidationError
from starlette.responses import Response

from bertsmith.core.errors import ConfigError, UserError
from bertsmith.core.files import FileState
from bertsmith.serving.config import LimitsConfig, ServeConfig
from bertsmith.serving.dispatch import gateway
from bertsmith.serving.dispatch.workers import Link, Listener
from bertsmith.serving.http import schema
from bertsmith.serving.http.dialects import service
from bertsmith.serving.http.dialects.service import Rendered, Service, reply
from bertsmith.serving.http.limits import Hosts, Keys, Limits, ResponseSender
from bertsmith.serving.messages import (
    Batch,
    Cancel,
    Done,
    Kind,
    Lane,
    Outcome,
    Problem,
    Refused,
)
from bertsmith.serving.models.served import ServedModel
from bertsmith.serving.models.worker import Computing
from bertsmith.serving.refusals import InvalidRequest, MisdirectedRequest, Unauthorized
from serving_inline import Rig, facts, running, texts_of

ASKED = {"inputs": ["abc"]}
SECRET = "a text that nobody else may read"


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


async def until(condition: Callable[[], object]) -> None:
    """Let other tasks go on until something holds."""
    while not condition():
        await asyncio.sleep(0)


def error_of(response: httpx.Response) -> str:
    content = response.json()["error"]
    return str(content if isinstance(content, str) else content["message"])


# what is asked


def test_answers_come_in_the_order_of_the_inputs() -> None:
    async def test() -> None:
        async with running(workers=2) as rig:
            texts = [letter * (1 + n % 7) for n, letter in enumerate("abcdefghij" * 5)]
            asked = [rig.post("/answer", {"inputs": texts[n : n + 9]}) for n in range(40)]
            for number, response in enumerate(await asyncio.gather(*asked)):
                labels = [item["label"] for item in response.json()["answers"]]
                assert labels == texts[number : number + 9]

    run(test)


BAD_BODIES: dict[str, bytes] = {
    "empty": b"",
    "no JSON": b"hello",
    "a list": b"[1]",
    "NaN": b'{"inputs": [NaN]}',
    "a lone surrogate": rb'{"inputs": ["\ud800"]}',
    "bytes that are no UTF-8": b'{"inputs": ["\xff"]}',
    "100,000 lists": b'{"inputs": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "100,000 objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "1,000 objects in each other": b'{"inputs":' * 1000 + b"1" + b"}" * 1000,
    "a number": b'{"inputs": [1e999]}',
    "no inputs": b'{"inputs": []}',
    "nothing asked": b"{}",
    "a key we do not know": b'{"inputs": ["a"], "sudo": true}',
    "another type": b'{"inputs": ["a"], "top": "5"}',
    "a negative number": b'{"inputs": ["a"], "top": -1}',
    "another task": b'{"inputs": ["a"], "task": "rm"}',
    "a form of another task": b'{"inputs": [{"query": "a", "texts": ["b"]}]}',
    "a key twice": b'{"inputs": ["a"], "inputs": ["b"]}',
    "a key twice within": b'{"inputs": [{"text": "a:b", "text" : "c"}]}',
    "a key twice, deep": b'{"inputs": ["a"], "a": ' + b"[" * 1_000 + b"]" * 1_000 + b', "a": 1}',
    "a byte order mark": b'\xef\xbb\xbf{"inputs": ["a"]}',
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_what_is_no_request_is_told(name: str) -> None:
    async def test() -> None:
        async with running() as rig:
            response = await rig.raw("/answer", [BAD_BODIES[name]])
            assert response.status_code == 400, response.text
            assert error_of(response)
            assert (await rig.post("/answer", ASKED)).status_code == 200

    run(test)


NEARLY: dict[str, tuple[str, Any, str]] = {
    "another name": (
        "/answer", {"input": ["a"]},
        "inputs: is missing; did you mean 'inputs' instead of 'input'?; write "
        "{\"inputs\": [\"a text\"]}",
    ),
    "one text": ("/answer", {"inputs": "a"}, 'write {"inputs": ["a text"]}'),
    "a list": ("/answer", ["a"], 'the body is not a JSON object; write {"inputs": ["a text"]}'),
    "a name of a text": (
        "/answer", {"inputs": ["a", {"txt": "a"}]},
        "inputs.1.text: is missing; did you mean 'text' instead of 'txt'?; write {\"inputs\": "
        '[{"text": "a text", "text_pair": ',
    ),
    "a name of a question": (
        "/answer", {"inputs": [{"question": "a", "contexts": "b"}]},
        "inputs.0.context: is missing; did you mean 'context' instead of 'contexts'?",
    ),
    "one name too many": (
        "/answer", {"inputs": ["a"], "truncated": True},
        "truncated: there is no such field; did you mean 'truncate' instead of 'truncated'?",
    ),
    "a number": ("/answer", {"inputs": [7]}, "inputs.0: Input should be a valid string; write "),
    "a pair as a list": (
        "/answer", {"inputs": ["a", ["b", "c"]]},
        'inputs.1: Input should be an object; write {"inputs": [{"text": "a text", "text_pair": ',
    ),
    "a number among texts": ("/v1/embeddings", {"input": ["a", 7]}, "input.1: Input should be a"),
    "token ids": ("/v1/embeddings", {"input": [15339, 1917]}, "input: token ids are not read, "),
    "token ids of texts": ("/v1/embeddings", {"input": [[15339], [7]]}, "input: token ids are not"),
    "no texts": ("/embed", {"inputs": []}, "inputs: the list is empty; write "),
    "another task": ("/rerank", {"query": "a", "texts": ["b"], "model": "one"}, "not answer with"),
    "texts": ("/embed", {"texts": ["a"]}, 'inputs: is missing; write {"inputs": ["a text"]}'),
    "inputs": ("/v1/embeddings", {"inputs": "a"}, "did you mean 'input' instead of 'inputs'?"),
    "a text to rank": (
        "/rerank", {"query": "a", "text": ["b"]},
        "texts: is missing; did you mean 'texts' instead of 'text'?; write {\"query\": \"a query\"",
    ),
    "texts to rank": (
        "/v1/rerank", {"query": "a", "document": ["b"]},
        "documents: is missing; did you mean 'documents' instead of 'document'?; write ",
    ),
    "no documents": ("/v1/rerank", {"query": "a", "documents": []}, "documents: the list is empty"),
    "a document without text": (
        "/v1/rerank", {"query": "a", "documents": [{"title": "b"}]},
        "documents.0.text: is missing; write {\"query\": \"a query\", \"documents\": ",
    ),
    "none of the best": (
        "/v1/rerank", {"query": "a", "documents": ["b"], "top_n": 0}, "top_n: Input should be ",
    ),
    "a sentence": (
        "/similarity", {"inputs": {"source_sentence": "a", "sentence": ["b"]}},
        "inputs.sentences: is missing; did you mean 'sentences' instead of 'sentence'?",
    ),
    # a name that is right is meant as it is
    "no sentences": (
        "/similarity", {"inputs": {"source_sentence": "a"}}, "inputs.sentences: is missing; write ",
    ),
    "half a pair": (
        "/answer", {"inputs": [{"text_pair": "a"}]}, "inputs.0.text: is missing; write ",
    ),
    "three texts": (
        "/predict", {"inputs": [["a", "b", "c"]]}, "inputs.0: List should have at most 2 items, ",
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/embed", {"inputs": []}),
        ("/embed_all", {"inputs": []}),
        ("/predict", {"inputs": []}),
        ("/rerank", {"query": "a", "texts": []}),
        ("/similarity", {"inputs": {"source_sentence": "a", "sentences": []}}),
        ("/tokenize", {"inputs": []}),
    ],
)
def test_an_empty_list_has_the_status_of_text_embeddings_inference(
    path: str, body: dict[str, Any]
) -> None:
    async def test() -> None:
        async with running() as rig:
            response = await rig.post(path, body)
            assert (response.status_code, response.json()["error_type"]) == (400, "empty")

    run(test)


@pytest.mark.parametrize("name", NEARLY)
def test_a_body_of_nearly_the_right_form_is_told_that(name: str) -> None:
    path, body, said = NEARLY[name]

    async def test() -> None:
        async with running() as rig:
            assert said in error_of(await rig.post(path, body))
            secret = await rig.post("/answer", {"inputs": ["a"], SECRET: {"text": 1}})
            assert "there is no such field" in error_of(secret)
            assert SECRET not in secret.text

    run(test)


def test_a_key_that_is_there_twice_is_named_and_colons_in_texts_are_none() -> None:
    twice = [
        (b'{"inputs": ["a"], "inputs": ["b"]}', "'inputs' occurs twice"),
        (b'{"inputs": ["a:b:c"], "model": "a", "model": "b"}', "'model' occurs twice"),
        (b'{"inputs": ["a"], "inp\\u0075ts": ["b"]}', "'inputs' occurs twice"),
        (b'{"secret text": 1, "secret text": 2, "inputs": ["a"]}', "a key occurs twice"),
    ]  # fmt: skip
    once = [
        b'{"inputs" : ["a: b", "::", "\\u003a:"]}',
        b'{"inputs": ["a", "\\":\\"x\\": 1,"], "top":3}',
        b'{"inputs": ["{\\"a\\": 1, \\"a\\": 2}"], "task" :null}',
    ]

    async def test() -> None:
        async with running() as rig:
            for body, message in twice:
                response = await rig.raw("/answer", [body])
                assert response.status_code == 400
                assert message in error_of(response)
                assert "secret" not in response.text
            for body in once:
                response = await rig.raw("/answer", [body])
                assert response.status_code == 200, response.text
            # those of the other dialects, which ignore keys that they do not know
            ignored = b'{"inputs": "a:", "other": {"a:": [1, {"b": ":"}], "c": 2}}'
            assert (await rig.raw("/predict", [ignored])).status_code == 200
            response = await rig.raw("/predict", [ignored.replace(b'"c"', b'"a:"')])
            assert response.status_code == 422

    run(test)


@pytest.mark.parametrize("path", ["/answer", "/rerank", "/v1/rerank", "/v1/embeddings"])
def test_a_million_inputs_are_too_many(path: str) -> None:
    keys = {"/rerank": "texts", "/v1/rerank": "documents", "/v1/embeddings": "input"}
    key = keys.get(path, "inputs")

    async def test() -> None:
        async with running(max_body=10_000_000) as rig:
            response = await rig.post(path, {key: ["a"] * 1_000_000, "query": "a"})
            assert response.status_code == 413
            assert "1,000,000 items, and at most 1,024 are allowed" in error_of(response)

    run(test)


def test_the_texts_of_rankings_are_counted_before_they_are_looked_at() -> None:
    async def test() -> None:
        async with running(max_body=10_000_000) as rig:
            # where they were looked at, what follows would be found first
            inputs = [{"query": "a", "texts": ["b"] * 1_000_000}, 7]
            response = await rig.post("/answer", {"inputs": inputs})
            assert response.status_code == 413
            assert "inputs has 1,000,001 items, and at most 1,024 are" in error_of(response)

    run(test)


MANY_FIELDS: dict[str, Any] = {f"field{number}": 1 for number in range(150_000)}


@pytest.mark.parametrize("body", [{"inputs": [MANY_FIELDS]}, MANY_FIELDS], ids=["inside", "whole"])
def test_fields_of_no_form_are_not_each_an_error(
    body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    told = schema._malformed

    def counted(
        error: ValidationError, kind: type[schema.RequestBody], content: Mapping[str, Any]
    ) -> InvalidRequest:
        counts.append(error.error_count())
        return told(error, kind, content)

    # seconds in which nobody else is answered
    monkeypatch.setattr(schema, "_malformed", counted)

    async def test() -> None:
        async with running() as rig:
            response = await rig.post("/answer", body)
            assert response.status_code == 400
            assert (
                error_of(response) == 'an object has 150,000 fields; write {"inputs": ["a text"]}'
            )
            few = await rig.post("/answer", {"inputs": ["a"], "more": 1, "most": 2})
            assert "more: there is no such field" in error_of(few)

    run(test)
    assert counts == [2]


def test_a_key_that_is_there_twice_is_found_but_not_sought_in_a_large_body() -> None:
    many = b"".join(b'{"a": 1, "b": ":"}, ' for _ in range(10_000))

    async def test() -> None:
        async with running() as rig:
            body = b'{"inputs": ["a"], "foo": [%s{"secret": 1, "secret": 2}]}'
            small = await rig.raw("/predict", [body % b""])
            large = await rig.raw("/predict", [body % many])
            assert (small.status_code, large.status_code) == (422, 422)
            assert error_of(small) == "'secret' occurs twice"
            assert error_of(large) == "a key occurs twice"
            # no key is there twice
            body = b'{"inputs": ["a"], "foo": [%s{"secret": 1, "other": 2}]}'
            assert (await rig.raw("/predict", [body % many])).status_code == 200

    run(test)


@pytest.mark.parametrize(
    ("can", "kind"),
    [
        (("vectors",), "embedding"),
        (("fill-mask", "next-sentence", "vectors"), "embedding"),
        (("ranking",), "reranker"),
        (("classes",), "classifier"),
    ],
)
def test_a_model_that_gives_vectors_is_one_for_embeddings(can: tuple[Kind, ...], kind: str) -> None:
    async def test() -> None:
        async with running((facts(kind=can[0], can=can),)) as rig:
            assert [*(await rig.client.get("/info")).json()["model_type"]] == [kind]

    run(test)


SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "/embed": ("vectors", {"inputs": "a"}),
    "/embed_all": ("token-vectors", {"inputs": "a"}),
    "/predict": ("classes", {"inputs": "a"}),
    "/rerank": ("ranking", {"query": "a", "texts": ["b"]}),
    "/similarity": ("vectors", {"inputs": {"source_sentence": "a", "sentences": ["b"]}}),
    "/tokenize": ("tokens", {"inputs": "a"}),
}


@pytest.mark.parametrize("path", SETTINGS)
def test_settings_that_are_not_supported_are_refused_and_not_ignored(path: str) -> None:
    kind, body = SETTINGS[path]
    model = facts(kind=kind, can=(kind,), width=2, token_width=2)
    settings: dict[str, dict[str, Any]] = {
        "truncation_direction": {"truncate": True, "truncation_direction": "left"},
        "prompt_name": {"prompt_name": "query"},
    }
    if path == "/tokenize":
        del settings["truncation_direction"]
    if path in ("/predict", "/rerank"):
        # those have none there either
        del settings["prompt_name"]

    async def test() -> None:
        async with running((model,)) as rig:
            for more in settings.values():
                asked = body | ({"parameters": more} if path == "/similarity" else more)
                response = await rig.post(path, asked)
                assert response.status_code == 422, (more, response.text)
                assert response.json()["error_type"] == "validation"

    run(test)


def test_texts_are_quoted_in_no_error_and_no_log(capfd: pytest.CaptureFixture[str]) -> None:
    def broken(batch: Batch) -> tuple[Outcome, ...]:
        return tuple(
            Outcome(number, problem="failed", message="the answer cannot be computed")
            for number, _ in enumerate(texts_of(batch))
        )

    async def test() -> None:
        async with running(compute=broken) as rig:
            bodies = [
                {"inputs": [SECRET]},
                {"inputs": [[SECRET]]},
                {"inputs": [SECRET], "top": SECRET},
            ]
            for body in bodies:
                response = await rig.post("/answer", body)
                assert response.status_code in (400, 500)
                assert SECRET not in response.text

    run(test)
    assert SECRET not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("problem", "status", "code", "other_status", "other_type"),
    [
        ("too_long", 400, "context_length_exceeded", 422, "validation"),
        ("invalid", 400, "invalid_request", 422, "validation"),
        ("failed", 500, "internal_error", 424, "backend"),
        ("expired", 504, "deadline_exceeded", 504, "backend"),
    ],
)
def test_a_text_without_an_answer_is_refused_by_what_is_wrong(
    problem: Problem, status: int, code: str, other_status: int, other_type: str
) -> None:
    def compute(batch: Batch) -> tuple[Outcome, ...]:
        return tuple(
            Outcome(number, problem=problem, message="it is so")
            if number
            else Outcome(number, answer={"label": "a"})
            for number, _ in enumerate(texts_of(batch))
        )

    async def test() -> None:
        async with running(compute=compute) as rig:
            ours = await rig.post("/answer", {"inputs": ["a", "b"]})
            assert (ours.status_code, ours.json()["error"]["code"]) == (status, code)
            theirs = await rig.post("/predict", {"inputs": [["a"], ["b"]]})
            assert theirs.status_code == other_status
            assert theirs.json()["error_type"] == other_type

    run(test)


# limits


def test_a_body_is_bounded_whether_its_size_is_told_or_not() -> None:
    async def test() -> None:
        async with running(max_body=20_000, body_deadline=600) as rig:
            told = await rig.raw("/answer", [b"{}"], {"content-length": "20001"})
            untold = await rig.raw("/answer", [b"x" * 15_000, b"x" * 15_000])
            for response in (told, untold):
                assert (response.status_code, response.headers["connection"]) == (413, "close")
            whole = b'{"inputs": ["a"]}'.ljust(20_000)
            assert (await rig.raw("/answer", [whole])).status_code == 200
            pieces = await rig.raw("/answer", [b"x"] * 17_000)
            assert pieces.status_code == 413
            compressed = await rig.raw("/answer", [b"{}"], {"content-encoding": "gzip"})
            assert compressed.status_code == 415
            assert (await rig.post("/answer", ASKED)).status_code == 200

    run(test)


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_that_is_too_large_is_received_before_it_is_refused(*, declared: bool) -> None:
    """Clients of JavaScript read no answer while they send; one that never ends is cut off."""

    async def refused(rig: Rig, length: int) -> tuple[int, int]:
        received = 0

        async def receive() -> dict[str, Any]:
            nonlocal received
            received += 10_000
            return {"type": "http.request", "body": b" " * 10_000, "more_body": received < length}

        headers = {"content-length": str(length)} if declared else {}
        start, _ = await called(rig, receive, headers)
        assert dict(start["headers"])[b"connection"] == b"close"
        return start["status"], received

    async def test() -> None:
        async with running(max_body=20_000, body_deadline=600) as rig:
            assert await refused(rig, 200_000) == (413, 200_000)
            status, received = await refused(rig, 10**9)
            assert (status, received < 10**6) == (413, True)

    run(test)


UNREAD: dict[int, tuple[dict[str, str], dict[str, str]]] = {
    401: ({"authorization": "Bearer wrong"}, {}),
    404: ({}, {"path": "/nothing"}),
    405: ({}, {"path": "/info"}),
    415: ({"content-encoding": "gzip"}, {}),
    421: ({"host": "elsewhere.example"}, {}),
}


@pytest.mark.parametrize("status", UNREAD)
@pytest.mark.parametrize("length", [{"content-length": "50000"}, {"transfer-encoding": "chunked"}])
def test_a_body_is_received_before_its_request_is_refused(
    status: int, length: dict[str, str]
) -> None:
    """Else clients that send before they read say "broken pipe" where a key is wrong."""
    headers, changes = UNREAD[status]
    received = 0

    async def receive() -> dict[str, Any]:
        nonlocal received
        received += 10_000
        return {"type": "http.request", "body": b" " * 10_000, "more_body": received < 50_000}

    async def test() -> None:
        async with running(keys=["right"], body_deadline=600) as rig:
            asked = {"authorization": "Bearer right", **length, **headers}
            start, _ = await called(rig, receive, asked, **changes)
            assert (start["status"], received) == (status, 50_000)

    run(test)


def test_a_body_that_waits_to_be_asked_for_is_refused_before_it_is_sent() -> None:
    async def test() -> None:
        async def never() -> dict[str, Any]:
            await asyncio.Event().wait()
            return {}

        headers = {"content-length": "200000", "expect": "100-continue"}
        async with running(max_body=20_000, body_deadline=600) as rig:
            start, _ = await called(rig, never, headers)
            assert start["status"] == 413

    run(test)


async def called(
    rig: Rig,
    receive: Callable[[], Coroutine[Any, Any, dict[str, Any]]],
    headers: Mapping[str, str] = MappingProxyType({}),
    **changes: str,
) -> list[dict[str, Any]]:
    """Call the application as a server of ASGI does, with changes to the scope."""
    sent: list[dict[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(dict(message))

    await rig.app(scope_of({"host": "localhost", **headers}, **changes), receive, send)
    return sent


def scope_of(headers: Mapping[str, str], **changes: str) -> dict[str, Any]:
    """The scope of a request with these headers, with changes."""
    return {
        "type": "http", "method": "POST", "path": "/answer", "raw_path": b"/answer",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "query_string": b"", "root_path": "",
        "scheme": "http", "http_version": "1.1", "server": ("localhost", 80),
        "client": ("127.0.0.1", 9), "asgi": {"version": "3.0"}, **changes,
    }  # fmt: skip


def test_a_body_that_trickles_is_given_up() -> None:
    async def test() -> None:
        async def trickle() -> dict[str, Any]:
            await asyncio.sleep(0.002)
            return {"type": "http.request", "body": b" ", "more_body": True}

        async with running(body_deadline=0.05) as rig:
            start, _ = await called(rig, trickle)
            assert start["status"] == 408
            # the rest of the body would be taken for another request
            assert (b"connection", b"close") in start["headers"]

    run(test)


@pytest.mark.parametrize(("more", "status"), [({}, 200), ({"transfer-encoding": "chunked"}, 408)])
def test_a_body_is_whole_with_the_last_byte_that_was_declared(
    more: dict[str, str], status: int
) -> None:
    """The length of chunks is not what is declared."""
    body = json.dumps(ASKED).encode()
    pieces = [body[:5], body[5:]]

    async def receive() -> dict[str, Any]:
        if not pieces:
            # nothing follows, and nobody hangs up
            await asyncio.Event().wait()
        return {"type": "http.request", "body": pieces.pop(0), "more_body": True}

    async def test() -> None:
        async with running(body_deadline=0.05) as rig:
            headers = {"content-length": str(len(body)), **more}
            start, _ = await called(rig, receive, headers)
            assert start["status"] == status

    run(test)


def test_a_client_that_does_not_read_its_answer_is_given_up() -> None:
    bodies = [json.dumps({"inputs": ["x" * 150_000]}).encode()]
    sent: list[int] = []

    async def receive() -> dict[str, Any]:
        if not bodies:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": bodies.pop(), "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(len(message.get("body", b"")))
        if sum(sent) > 100_000:
            await asyncio.Event().wait()

    async def test() -> None:
        async with running(body_deadline=0.05, deadline=3600) as rig:
            answered = asyncio.ensure_future(
                rig.app(scope_of({"host": "localhost"}), receive, send)
            )
            done, _ = await asyncio.wait([answered], timeout=60)
            assert done
            with pytest.raises(TimeoutError):
                answered.result()
            # in pieces, of which one alone is on its way
            assert 0 < sum(sent) < 150_000
            assert (await rig.post("/answer", ASKED)).status_code == 200

    run(test)


@pytest.mark.parametrize("size", [0, 1, 2**16, 2**16 + 1, 2**17])
def test_a_response_of_any_size_ends(size: int) -> None:
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def test() -> None:
        sender = ResponseSender(send, 1.0, close=lambda: False)
        await Response(b"x" * size)({"type": "http"}, cast("Any", None), sender.send)
        assert sender.status == 200

    run(test)
    _, *bodies = sent
    assert b"".join(message["body"] for message in bodies) == b"x" * size
    more = [message.get("more_body", False) for message in bodies]
    assert more == [True] * (len(bodies) - 1) + [False]


def test_bodies_take_memory_only_while_they_are_received() -> None:
    body = json.dumps({"inputs": ["a" * 900]}).encode()

    async def test() -> None:
        def once() -> Callable[[], Coroutine[Any, Any, dict[str, Any]]]:
            """A client that sends a part of its body, and nothing more."""
            pieces = [body[:900]]

            async def receive() -> dict[str, Any]:
                if not pieces:
                    await asyncio.Event().wait()
                return {"type": "http.request", "body": pieces.pop(), "more_body": True}

            return receive

        async with running(max_body=1000, max_characters=1000) as rig:
            for _ in range(75):
                assert (await rig.raw("/answer", [body])).status_code == 200
            waiting = [asyncio.create_task(called(rig, once())) for _ in range(75)]
            await until(lambda: any(map(Task.done, waiting)))
            refused = next(task for task in waiting if task.done()).result()
            assert refused[0]["status"] == 429
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            assert (await rig.raw("/answer", [body])).status_code == 200

    run(test)


def test_what_nobody_waits_for_is_not_computed() -> None:
    async def test() -> None:
        async with running() as rig:
            link, gone = rig.links[0], asyncio.Event()
            link.held = True
            bodies = [json.dumps(ASKED).encode()]

            async def hang_up() -> dict[str, Any]:
                if bodies:
                    return {"type": "http.request", "body": bodies.pop(), "more_body": False}
                await gone.wait()
                return {"type": "http.disconnect"}

            waiting = asyncio.create_task(called(rig, hang_up))
            await until(lambda: link.batches)
            (numbers,) = [[number for number, _, _ in link.batches[0].entries]]
            gone.set()
            await waiting
            assert link.cancelled == set(numbers)
            assert rig.gateway.waiting == 0

    run(test)


def test_past_its_deadline_a_request_gets_504_and_is_not_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # on a clock that stands still nothing is late before a worker has it, however busy the machine
    monkeypatch.setattr(gateway, "time", SimpleNamespace(monotonic=lambda: 0.0))

    async def test() -> None:
        async with running(deadline=0.05) as rig:
            link = rig.links[0]
            link.held = True
            for path, status in (("/answer", 504), ("/predict", 504)):
                response = await rig.post(path, {"inputs": ["abc"] if path == "/answer" else "abc"})
                assert response.status_code == status
            assert len(link.cancelled) == 2
            assert not len(rig.gateway.queue)

    run(test)


def test_above_the_bound_requests_are_refused_at_once() -> None:
    async def test() -> None:
        async with running(queue_tokens=100) as rig:
            link = rig.links[0]
            link.held = True
            text = {"inputs": ["x" * 130]}
            accepted = [asyncio.create_task(rig.post("/answer", text)) for _ in range(4)]
            await until(lambda: len(rig.gateway.queue) == 2)
            refused = await rig.post("/answer", text)
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
            other = await rig.post("/predict", {"inputs": "x" * 130})
            assert (other.status_code, other.json()["error_type"]) == (429, "overloaded")
            # what is like it is not even read, as long as there is no room
            unread = await rig.post("/answer", {"wrong": ["x" * 160]})
            assert unread.status_code == 429
            too_large = await rig.post("/answer", {"inputs": ["x" * 130] * 3})
            assert too_large.status_code == 413
            link.held = False
            link.release()
            link.release()
            for response in await asyncio.gather(*accepted):
                assert response.status_code == 200
            assert (await rig.post("/answer", {"wrong": ["x" * 160]})).status_code == 400

    run(test)


def test_those_that_come_together_are_not_read_where_the_first_fills_the_queue() -> None:
    """The headers of all are there before any text is queued."""

    async def test() -> None:
        async with running(queue_tokens=100) as rig:
            text = {"inputs": ["x" * 130]}
            assert (await rig.post("/answer", text)).status_code == 200
            link = rig.links[0]
            link.held = True
            asked = [asyncio.create_task(rig.post("/answer", text)) for _ in range(3)]
            await until(lambda: len(rig.gateway.queue) == 1)
            asked.append(asyncio.create_task(rig.post("/answer", text)))
            unread = [rig.post("/answer", {"wrong": ["x" * 160]}) for _ in range(3)]
            assert {each.status_code for each in await asyncio.gather(*unread)} == {429}
            link.held = False
            while not all(item.done() for item in asked):
                link.release()
                await asyncio.sleep(0)
            assert {(await each).status_code for each in asked} == {200}

    run(test)


def test_bodies_of_any_size_that_was_read_are_refused_unread() -> None:
    sizes = (60, 130, 250, 500, 1_000, 2_000)

    async def test() -> None:
        async with running((facts(max_input_length=8000),), queue_tokens=4_000) as rig:
            for size in sizes:
                response = await rig.post("/answer", {"inputs": ["x" * size]})
                assert response.status_code == 200
            link = rig.links[0]
            link.held = True
            # small ones fill what is left
            many = [asyncio.create_task(rig.post("/answer", {"inputs": ["x" * size]}))
                    for size in [60] * 200 + [1] * 50]  # fmt: skip
            await until(lambda: rig.gateway.waiting + sum(map(Task.done, many)) == len(many))
            assert any(map(Task.done, many[:200]))
            for size in sizes:
                assert (await rig.post("/answer", {"wrong": ["x" * size]})).status_code == 429
            link.held = False
            while not all(item.done() for item in many):
                link.release()
                await asyncio.sleep(0)
            for size in sizes:
                assert (await rig.post("/answer", {"wrong": ["x" * size]})).status_code == 400

    run(test)


def test_what_fits_is_not_refused_by_the_size_of_its_body() -> None:
    # of this body one byte is text
    sparse = {"inputs": "x", "other": "x" * 140}

    async def test() -> None:
        async with running(queue_tokens=120) as rig:
            assert (await rig.post("/predict", sparse)).status_code == 200
            link = rig.links[0]
            link.held = True
            dense = {"inputs": ["x" * 130]}
            asked = [asyncio.create_task(rig.post("/answer", dense)) for _ in range(4)]
            await until(lambda: len(rig.gateway.queue) == 2)
            for _ in range(3):
                assert (await rig.post("/answer", dense)).status_code == 429
                asked.append(asyncio.create_task(rig.post("/predict", sparse)))
                await until(lambda: rig.gateway.waiting == len(asked) or asked[-1].done())
            link.held = False
            while not all(request.done() for request in asked):
                link.release()
                await asyncio.sleep(0)
            assert {(await request).status_code for request in asked} == {200}

    run(test)


def test_of_long_texts_what_the_model_reads_is_counted_and_what_encoding_costs() -> None:
    """The model reads 64 tokens, or 64 of each option; 200 may wait."""
    models = (facts(can=("classes", "choices")),)

    def options(count: int) -> dict[str, object]:
        return {"task": "choices", "inputs": [{"text": "x" * 400, "choices": ["y" * 400] * count}]}

    async def test() -> None:
        async with running(models, queue_tokens=200) as rig:

            async def status(body: dict[str, object]) -> int:
                return (await rig.post("/answer", body)).status_code

            assert await status({"inputs": ["x" * 1500], "truncate": True}) == 200
            assert await status(options(2)) == 200
            # it would never fit, however often it is sent
            for _ in range(2):
                assert await status(options(4)) == 413
                assert await status({"inputs": ["x" * 20_000], "truncate": True}) == 413

    run(test)


def large(letter: str, texts: int) -> dict[str, object]:
    """A request of texts of about 100 tokens, more than a batch holds."""
    return {"inputs": [letter * 320] * texts}


def test_documents_that_fit_are_not_refused_after_many_queries_of_a_word() -> None:
    def answered(batch: Batch) -> tuple[Outcome, ...]:
        # a token for five letters, and two around the text
        return tuple(
            Outcome(number, answer={"label": "a"}, tokens=2 + len(asked.text) // 5)
            for number, asked in enumerate(texts_of(batch))
        )

    documents = {"inputs": ["word " * 90] * 1000}

    async def test() -> None:
        async with running((facts(max_input_length=512),), answered) as rig:
            for _ in range(60):
                assert (await rig.post("/answer", {"inputs": ["hello"]})).status_code == 200
            response = await rig.post("/answer", documents)
            assert response.status_code == 200, response.text

    run(test)


def test_a_small_request_overtakes_what_is_not_computed_yet() -> None:
    models = (facts(max_input_length=8000),)

    async def test() -> None:
        async with running(models) as rig:
            link = rig.links[0]
            link.held = True
            many = [asyncio.create_task(rig.post("/answer", large("x", 60))) for _ in range(3)]
            await until(lambda: len(link.batches) == 2 and rig.gateway.waiting == 3)
            small = asyncio.create_task(rig.post("/answer", ASKED))
            await until(lambda: len(link.batches) == 3)
            assert [batch.urgent for batch in link.batches] == [False, False, True]
            # as a worker does, which computes the first one already
            link.batches.insert(1, link.batches.pop())
            link.release()
            link.release()
            assert (await small).status_code == 200
            link.held = False
            while not all(item.done() for item in many):
                link.release()
                await asyncio.sleep(0)
            assert {(await item).status_code for item in many} == {200}

    run(test)


def test_small_requests_have_workers_of_their_own_that_compute_nothing_else() -> None:
    models = (facts(max_input_length=8000),)

    async def test() -> None:
        async with running(models, lanes=("small", "large")) as rig:
            own, others = rig.links
            assert (own.lane, others.lane) == ("small", "large")
            own.held = others.held = True
            first = asyncio.create_task(rig.post("/answer", ASKED))
            await until(lambda: own.batches or others.batches)
            # though the others have nothing to do
            assert not others.batches
            own.release()
            assert (await first).status_code == 200
            many = [asyncio.create_task(rig.post("/answer", large("x", 60))) for _ in range(3)]
            await until(lambda: len(others.batches) == 2 and rig.gateway.waiting == 3)
            assert not own.batches
            small = asyncio.create_task(rig.post("/answer", ASKED))
            await until(lambda: own.batches)
            own.release()
            assert (await small).status_code == 200
            assert len(others.batches) == 2
            # a dead worker's place is taken by one for the same requests
            others.kill()
            await until(lambda: len(rig.links) == 3 and rig.links[2].batches)
            assert rig.links[2].lane == "large"
            assert not own.batches
            statuses = {(await item).status_code for item in many}
            assert 503 in statuses
            assert statuses <= {200, 503}

    run(test)


def test_a_long_text_that_is_computed_holds_up_no_small_request() -> None:
    """Not even while further large requests wait for the only worker that computes such."""
    models = (facts(max_input_length=8000),)

    async def test() -> None:
        async with running(models, lanes=("small", "large")) as rig:
            _, others = rig.links
            others.held = True
            asked = [{"inputs": ["x" * 30_000]}, large("x", 60), large("x", 60)]
            many = [asyncio.create_task(rig.post("/answer", request)) for request in asked]
            await until(lambda: rig.gateway.waiting == 3)
            assert [len(batch.entries) for batch in others.batches] == [1]
            # more tokens than the long text has
            for _ in range(20):
                small = asyncio.create_task(rig.post("/answer", {"inputs": ["y" * 1900]}))
                for _ in range(200):
                    await asyncio.sleep(0)
                assert small.done()
            others.held = False
            others.release()
            assert {(await item).status_code for item in many} == {200}

    run(test)


def test_small_requests_are_not_refused_because_of_large_ones() -> None:
    models = (facts(max_input_length=8000),)

    async def test() -> None:
        async with running(models, queue_tokens=10_000) as rig:
            link = rig.links[0]
            link.held = True
            many = [asyncio.create_task(rig.post("/answer", large("x", 60))) for _ in range(5)]
            await until(lambda: any(item.done() for item in many))
            refused = next(item for item in many if item.done())
            assert (await refused).status_code == 429
            small = [asyncio.create_task(rig.post("/answer", {"inputs": ["x" * 3200]}))
                     for _ in range(4)]  # fmt: skip
            asked = [*many, *small]
            await until(lambda: rig.gateway.waiting + sum(map(Task.done, asked)) == len(asked))
            assert not any(item.done() for item in small)
            link.held = False
            while not all(request.done() for request in asked):
                link.release()
                await asyncio.sleep(0)
            assert {(await item).status_code for item in small} == {200}

    run(test)


def test_a_small_body_is_read_between_large_ones() -> None:
    models = (facts(max_input_length=8000),)

    async def test() -> None:
        async with running(models, queue_tokens=1_000_000) as rig:
            link = rig.links[0]
            link.held = True
            many = [asyncio.create_task(rig.post("/answer", large("x", 60))) for _ in range(50)]
            small = asyncio.create_task(rig.post("/answer", ASKED))
            await until(lambda: any(batch.urgent for batch in link.batches))
            assert rig.gateway.waiting < 25
            link.held = False
            while not all(item.done() for item in (*many, small)):
                link.release()
                await asyncio.sleep(0)
            assert {(await item).status_code for item in (*many, small)} == {200}

    run(test)


def test_urgent_batches_are_encoded_and_computed_first() -> None:
    done: list[int] = []

    def send(message: object) -> None:
        assert isinstance(message, Done)
        done.append(message.number)

    computing = Computing([Mock(spec=ServedModel)], send)
    for number, urgent in ((1, False), (2, False), (3, True), (4, True)):
        computing.receive(Batch(0, "classes", (), number, urgent))
    for _ in range(3):
        computing.encode_next()
    for _ in range(2):
        computing.compute_next()
    computing.receive(Batch(0, "classes", (), 5, True))
    for _ in range(2):
        computing.encode_next()
    for _ in range(3):
        computing.compute_next()
    assert done == [3, 4, 5, 1, 2]


def unasked() -> Service:
    """A service whose gateway has no worker."""
    limits = LimitsConfig()
    return Service(gateway=gateway.Gateway(limits, lambda *which: Silent(), 0), limits=limits)


async def sent(response: Response) -> list[bytes]:
    """The pieces in which the body of a response is sent."""
    messages: list[Any] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        messages.append(message)

    await response({"type": "http"}, cast("Any", None), send)
    pieces = [bytes(message["body"]) for message in messages[1:]]
    length = dict(messages[0]["headers"])[b"content-length"]
    assert int(length) == sum(map(len, pieces))
    assert [message.get("more_body", False) for message in messages[1:]] == [
        *[True] * (len(pieces) - 1), False,
    ]  # fmt: skip
    return pieces


def test_a_long_answer_is_written_in_pieces_between_which_others_go_on() -> None:
    numbers = np.arange(300, dtype=np.float32).reshape(100, 3)
    contents: list[object] = [
        {"answers": [{"vector": number} for number in numbers], "tokens": 7, "none": []},
        numbers,
        [],
        [{"a": None}] * 33,
        {"data": {"ä": [1.5] * 32}},
    ]

    async def test() -> None:
        answers = unasked()
        for content in contents:
            piecewise = asyncio.create_task(answers.reply_in_pieces(content))
            passes = 0
            while not piecewise.done():
                await asyncio.sleep(0)
                passes += 1
            assert await sent(await piecewise) == [reply(content).body]
            assert (passes > 3) == (content is numbers or content is contents[0])

    run(test)


def test_of_long_answers_a_piece_is_written_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    written = 0

    def counted(content: object) -> bytes:
        nonlocal written
        written += 1
        return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)

    monkeypatch.setattr(service, "dumped", counted)
    vectors = np.arange(600, dtype=np.float32).reshape(200, 3)

    async def test() -> None:
        answers = unasked()
        many = [asyncio.create_task(answers.reply_in_pieces(vectors)) for _ in range(20)]
        shorter = asyncio.create_task(answers.reply_in_pieces(vectors[:40]))
        while not all(item.done() for item in many):
            before = written
            await asyncio.sleep(0)
            assert written - before <= 1
            # it takes turns with the others, and does not wait for them
            assert shorter.done() or not any(item.done() for item in many)
        assert [await sent(await item) for item in many] == [[reply(vectors).body]] * 20

    run(test)
    assert written >= 20 * 200 / 32


def test_what_workers_have_written_is_sent_as_it_is_in_pieces_of_a_size() -> None:
    sizes = [1, 70_000, 20_000, 20_000, 30_000, 5]
    parts = [b"%d" % number * size for number, size in enumerate(sizes)]

    async def test() -> None:
        response = await unasked().reply_in_pieces({"a": 1, "b": Rendered(parts), "c": "d"})
        pieces = await sent(response)
        assert b"".join(pieces) == b'{"a":1,"b":[' + b",".join(parts) + b'],"c":"d"}'
        assert [len(piece) for piece in pieces] == [14, 70_000, 40_003, 30_016]
        nothing = await unasked().reply_in_pieces(Rendered([]))
        assert await sent(nothing) == [b"[]"]

    run(test)


def test_more_requests_at_once_than_connections_are_refused() -> None:
    # granian bounds connections, and forgets those whose clients hang up
    async def test() -> None:
        async with running(connections=2) as rig:
            link = rig.links[0]
            link.held = True
            asked = [asyncio.create_task(rig.post("/answer", {"inputs": ["a"]})) for _ in range(2)]
            await until(lambda: rig.gateway.waiting == 2)
            refused = await rig.post("/answer", {"inputs": ["a"]})
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert (await rig.client.get("/health")).status_code == 200
            app = cast("Limits", rig.app)
            assert not app.quiet(0.0)
            link.held = False
            link.release()
            link.release()
            for response in await asyncio.gather(*asked):
                assert response.status_code == 200
            assert app.quiet(0.0)
            assert not app.quiet(3600.0)
            assert app.overloaded == 1
            assert (await rig.post("/answer", {"inputs": ["a"]})).status_code == 200

    run(test)


def test_what_could_not_be_answered_in_time_is_refused_at_once() -> None:
    async def test() -> None:
        async with running(deadline=30) as rig:
            link = rig.links[0]
            link.seconds = 3.0  # for each text of 18 tokens
            text = {"inputs": ["x" * 54]}
            for _ in range(50):
                assert (await rig.post("/answer", text)).status_code == 200
            link.held = True
            asked = [asyncio.create_task(rig.post("/answer", text)) for _ in range(300)]
            await until(lambda: any(request.done() for request in asked))
            # the others are refused, or wait
            await until(lambda: rig.gateway.waiting + sum(map(Task.done, asked)) == len(asked))
            accepted = [request for request in asked if not request.done()]
            refused = next(request for request in asked if request.done()).result()
            assert refused.status_code == 429
            assert 15 < int(refused.headers["retry-after"]) < 25
            link.held = False
            while not all(item.done() for item in accepted):
                link.release()
                await asyncio.sleep(0)
            assert {item.result().status_code for item in accepted} == {200}

    run(test)


def test_a_large_request_that_is_computed_is_ahead_of_large_ones_alone() -> None:
    """Small ones need not wait for it; several workers compute what is ahead together."""
    retry_after: list[int] = []

    async def test(workers: int) -> None:
        models = (facts(max_input_length=8000),)
        async with running(models, workers=workers, queue_tokens=1_000_000) as rig:
            for link in rig.links:
                link.seconds = 3.0
            for _ in range(50):
                assert (await rig.post("/answer", {"inputs": ["x" * 54]})).status_code == 200
            for link in rig.links:
                link.held = True
            first = asyncio.create_task(rig.post("/answer", large("x", 60)))
            await until(lambda: all(link.batches for link in rig.links))
            refused = await rig.post("/answer", large("x", 60))
            assert refused.status_code == 429
            retry_after.append(int(refused.headers["retry-after"]))
            small = asyncio.create_task(rig.post("/answer", ASKED))
            await until(lambda: rig.gateway.waiting == 2 or small.done())
            assert not small.done()
            while not (first.done() and small.done()):
                for link in rig.links:
                    link.release()
                await asyncio.sleep(0)
            assert {(await task).status_code for task in (first, small)} == {200}

    run(lambda: test(1))
    run(lambda: test(2))
    assert retry_after[1] == pytest.approx(retry_after[0] / 2, rel=0.02)


def test_a_worker_is_kept_for_short_texts() -> None:
    models = (facts(max_input_length=8000),)

    async def test() -> None:
        async with running(models, workers=2) as rig:
            for link in rig.links:
                link.held = True
            long = [asyncio.create_task(rig.post("/answer", {"inputs": ["x" * 30_000]}))
                    for _ in range(5)]  # fmt: skip
            await until(lambda: len(rig.gateway.queue) == 4)
            short = asyncio.create_task(rig.post("/answer", ASKED))
            await until(lambda: all(link.batches for link in rig.links))
            busy, free = sorted(rig.links, key=lambda link: len(texts_of(link.batches[0])[0].text),
                                reverse=True)  # fmt: skip
            free.release()
            assert (await short).status_code == 200
            assert (len(busy.batches), len(rig.gateway.queue)) == (1, 4)
            more = []
            for number in range(6, 9):
                more.append(asyncio.create_task(rig.post("/answer", ASKED)))
                sent = (free.batches, busy.batches, rig.gateway.queue)
                await until(lambda: sum(len(each) for each in sent) == number)  # noqa: B023
            # behind a long text they would wait for longer than for another one to be free
            assert (len(free.batches), len(busy.batches), len(rig.gateway.queue)) == (2, 1, 5)
            for link in rig.links:
                link.held = False
            for link in (busy, free, free):
                link.release()
            assert {(await item).status_code for item in (*long, *more)} == {200}

    run(test)


TOO_LARGE: dict[str, dict[str, object]] = {
    "/answer": {"inputs": ["[MASK] " * 600] * 10, "task": "fill-mask", "top": 100},
    "/embed_all": {"inputs": ["word " * 50] * 1000},
    "/predict": {"inputs": ["word"] * 1000},
    "/tokenize": {"inputs": ["word " * 1000] * 100},
}


@pytest.mark.parametrize("path", TOO_LARGE)
def test_no_short_request_gets_an_answer_that_fills_the_memory(path: str) -> None:
    models = (
        facts("one", labels=tuple(map(str, range(1000)))),
        facts("two", kind="fill-mask", can=("fill-mask", "vectors"), width=4,
              token_width=1024, mask="<mask>"),
    )  # fmt: skip

    async def test() -> None:
        async with running(models) as rig:
            response = await rig.post(path, TOO_LARGE[path])
            assert response.status_code == 413
            assert "the answer would have about" in error_of(response)

    run(test)


@pytest.mark.parametrize("mask", ["[MASK]", "<mask>"])
@pytest.mark.parametrize("second", [False, True])
def test_masks_are_counted_once_in_either_text(mask: str, second: bool) -> None:
    """2**24 numbers are 262,144 candidates, and 2,621 masks of a hundred."""

    async def test() -> None:
        models = [facts(kind="fill-mask", can=("fill-mask",), mask=mask)]
        async with running(models) as rig:
            for masks, status in ((2621, 200), (2622, 413)):
                text = "[MASK] " * 2000 + f"{mask} " * (masks - 2000)
                asked = {"text": "a word", "text_pair": text} if second else text
                response = await rig.post("/answer", {"inputs": [asked], "top": 100})
                assert response.status_code == status

    run(test)


# who asks


def test_keys_are_needed_where_there_are_some() -> None:
    async def test() -> None:
        async with running(keys=["first-key", "second-key"]) as rig:
            for header in ("", "Bearer", "Bearer wrong", "Basic first-key", "Bearer first-key2"):
                response = await rig.post("/answer", ASKED, authorization=header)
                assert response.status_code == 401
                assert response.headers["www-authenticate"] == "Bearer"
                assert "key2" not in response.text
            for key in ("first-key", "second-key"):
                response = await rig.post("/answer", ASKED, authorization=f"bearer {key}")
                assert response.status_code == 200
            assert (await rig.client.get("/info")).status_code == 401
            assert (await rig.client.get("/metrics")).status_code == 401
            for path in ("/health", "/ready"):
                assert (await rig.client.get(path)).status_code == 200

    run(test)


def test_a_file_of_keys_has_to_hold_some(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    with pytest.raises(ConfigError, match="--api-keys cannot be read"):
        Keys.load(file)
    file.write_bytes(b"\n\n")
    with pytest.raises(ConfigError, match="holds no key"):
        Keys.load(file)
    file.write_bytes(b"one\n\n two \n")
    Keys.load(file).check(b"Bearer two")
    # a blank line is no key
    for header in (b"Bearer ", b"Bearer", b""):
        with pytest.raises(Unauthorized):
            Keys.load(file).check(header)


def test_words_of_a_comment_are_no_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes(b"first-key\n# key of Anna\n")
    with pytest.raises(ConfigError, match=r"keys:2: a key contains a space; .*no comments"):
        Keys.load(file)
    file.write_bytes(b"k" * (2**20 + 1))
    with pytest.raises(ConfigError, match="over 1 MiB"):
        Keys.load(file)


@pytest.mark.parametrize(
    ("host", "origin", "known"),
    [
        ("localhost", None, True),
        ("LOCALHOST:8080", None, True),
        ("127.0.0.1:8080", "http://127.0.0.1:8080", True),
        ("[::1]:8080", None, True),
        ("mine.example", None, True),
        ("10.1.2.3:80", None, True),
        ("port.example:8443", "https://port.example:8443", True),
        ("port.example:8444", None, False),
        ("port.example", None, False),
        ("localhost:8080", "http://port.example:8444", False),
        ("10.1.2.3.evil.example", None, False),
        ("evil.example", None, False),
        ("localhost.evil.example", None, False),
        ("", None, False),
        ("localhost:8080", "http://evil.example", False),
        ("localhost:8080", "null", False),
        ("localhost:8080", "https://mine.example", True),
        ("localhost:8080", "https://port.example:8443", True),
        ("localhost:8080", "https://mine.example:8443", True),
        ("localhost:8080", "http://localhost:3000", False),
    ],
)
def test_only_known_hosts_are_served(host: str, origin: str | None, known: bool) -> None:
    async def test() -> None:
        async with running(hosts=("mine.example", "Port.example:8443")) as rig:
            more = {} if origin is None else {"origin": origin}
            response = await rig.post("/answer", ASKED, host=host, **more)
            assert response.status_code == (200 if known else 421)

    run(test)


def test_pages_of_the_sites_that_are_allowed_may_ask_and_read() -> None:
    sites = ("https://app.example", "http://localhost:3000")

    async def test() -> None:
        async with running(keys=["key"], origins=sites) as rig:
            for site in (*sites, "https://evil.example", "https://app.example:8443", "null"):
                # as a browser asks before it sends a request
                asked = {
                    "origin": site,
                    "access-control-request-method": "POST",
                    "access-control-request-headers": "authorization,content-type",
                    "access-control-request-private-network": "true",
                }
                before = await rig.client.options("/answer", headers=asked)
                allowed = before.headers.get("access-control-allow-origin")
                response = await rig.post("/answer", ASKED, origin=site, authorization="Bearer key")
                refused = await rig.post("/answer", ASKED, origin=site)
                if site in sites:
                    assert (before.status_code, allowed) == (200, site)
                    told = before.headers["access-control-allow-headers"]
                    assert told == "authorization,content-type"
                    assert before.headers["access-control-allow-private-network"] == "true"
                    assert (response.status_code, refused.status_code) == (200, 401)
                    for each in (response, refused):
                        assert each.headers["access-control-allow-origin"] == site
                        assert "origin" in each.headers["vary"].lower()
                        assert "x-truncated" in each.headers["access-control-expose-headers"]
                        assert "access-control-allow-credentials" not in each.headers
                else:
                    assert (before.status_code, allowed) == (400, None)
                    assert (response.status_code, refused.status_code) == (421, 421)
                    assert "access-control-allow-origin" not in response.headers
            elsewhere = {"host": "evil.example", "authorization": "Bearer key"}
            response = await rig.post("/answer", ASKED, origin=sites[0], **elsewhere)
            assert response.status_code == 421
        async with running() as rig:
            before = await rig.client.options("/answer", headers=asked | {"origin": sites[0]})
            assert before.status_code == 421
            assert "--allowed-origins would name it" in error_of(before)
            # nothing names a page that was opened as a file
            before = await rig.client.options("/answer", headers=asked)
            assert "page of another site, or of none" in error_of(before)

    run(test)


@pytest.mark.parametrize(
    "origin",
    ["*", "app.example", "https://app.example/", "https://App.example", "https://app.example:443",
     "http://localhost:80", "https://*.example", "null", ""],
)  # fmt: skip
def test_a_site_that_no_browser_would_name_is_refused(origin: str) -> None:
    with pytest.raises(ConfigError, match="--allowed-origins contains"):
        ServeConfig(models=("one",), allowed_origins=(origin,))


def test_the_name_that_is_listened_on_is_known() -> None:
    hosts = Hosts(ServeConfig(models=("one",), host="Box.example"))
    hosts.check("box.example:8080")
    with pytest.raises(MisdirectedRequest):
        hosts.check("other.example:8080")


@pytest.mark.parametrize("path", ["/embed", "/answer"])
def test_other_ways_to_ask_are_refused_in_the_words_of_the_dialect(path: str) -> None:
    async def test() -> None:
        async with running() as rig:
            response = await rig.client.get(path)
            assert (response.status_code, response.headers["allow"]) == (405, "POST")
            assert error_of(response)
            nothing = await rig.client.get("/nothing/../../etc/passwd")
            assert (nothing.status_code, nothing.json()["error"]["code"]) == (404, "not_found")

    run(test)


# workers that die, the end


def test_a_dead_worker_is_replaced_and_its_requests_are_refused() -> None:
    async def test() -> None:
        async with running() as rig:
            link = rig.links[0]
            link.held = True
            waiting = asyncio.create_task(rig.post("/answer", ASKED))
            await until(lambda: link.batches)
            link.kill()
            assert (await waiting).status_code == 503
            await until(lambda: rig.gateway.ready)
            assert len(rig.links) == 2
            assert (await rig.post("/answer", ASKED)).status_code == 200
            assert "bertsmith_worker_restarts_total 1.0" in (await rig.client.get("/metrics")).text

    run(test)


@pytest.mark.parametrize("small", [False, True])
def test_a_worker_that_has_opened_another_model_answers_nothing(
    small: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As when a folder was replaced before the process that holds the models died.

    Requests of either size are answered as long as a worker has the model of the beginning.
    """

    async def test() -> None:
        before, now = (FileState(size=4, changed=at, regular=True) for at in (7, 8))
        models = [facts("first"), facts("second", files=(("config.json", before),))]
        async with running(models, lanes=("small", "large")) as rig:
            models[1] = facts("second", files=(("config.json", now),))
            rig.links[0 if small else 1].kill()
            await until(lambda: len(rig.links) == 3 and rig.links[2].ended)
            for text in ("a", "word " * 1000):
                response = await rig.post("/answer", {"inputs": [text], "truncate": True})
                assert response.status_code == 200
            rig.links[1 if small else 0].kill()
            await until(lambda: len(rig.links) == 4 and rig.links[3].ended)
            assert not rig.gateway.ready
            assert (await rig.post("/answer", ASKED)).status_code == 503

    run(test)
    assert capsys.readouterr().err.splitlines() == [
        "a worker has died and is replaced",
        "new workers are not used, since the folder of second has changed; start the server anew",
        "a worker has died and is replaced",
    ]


@pytest.mark.parametrize("started", [False, True])
def test_what_waits_for_a_worker_that_cannot_be_replaced_is_answered_by_others(
    started: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It waited until something else was asked, or until its deadline."""

    def start_none(listener: Listener, lane: Lane) -> Link:
        if not started:
            raise OSError(24, "Too many open files")
        dead = Mock()
        asyncio.get_running_loop().call_soon(listener.on_exit, dead)
        return cast("Link", dead)

    async def test() -> None:
        large = {"inputs": ["word " * 2000], "truncate": True}
        models = [facts(max_input_length=4096)]
        async with running(models, lanes=("small", "large"), deadline=20) as rig:
            link = next(each for each in rig.links if each.lane == "large")
            link.held = True
            asked = [asyncio.create_task(rig.post("/answer", large)) for _ in range(3)]
            await until(lambda: len(link.batches) == 2 and len(rig.gateway.queue) == 1)
            monkeypatch.setattr(rig.gateway, "_start", start_none)
            link.kill()
            codes = [(await each).status_code for each in asked]
            assert codes == [503, 503, 200]

    run(test)
    capsys.readouterr()


def test_without_a_worker_nothing_is_ready() -> None:
    async def test() -> None:
        async with running() as rig:
            rig.links[0].kill()
            await until(lambda: not rig.gateway.ready)
            assert (await rig.client.get("/ready")).status_code == 503
            assert (await rig.client.get("/health")).status_code == 200
            refused = await rig.post("/answer", ASKED)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            await until(lambda: rig.gateway.ready)

    run(test)


def test_at_the_end_what_was_asked_is_answered() -> None:
    async def test() -> None:
        async with running(queue_tokens=8) as rig:
            link = rig.links[0]
            rig.gateway.leave()
            assert (await rig.client.get("/ready")).status_code == 503
            response = await rig.post("/answer", ASKED)
            # else the client may ask once more on a connection that is being closed
            assert (response.status_code, response.headers["connection"]) == (200, "close")
            link.held = True
            waiting = [asyncio.create_task(rig.post("/answer", ASKED)) for _ in range(8)]
            await until(lambda: rig.gateway.waiting + sum(map(Task.done, waiting)) == 8)
            assert (await rig.post("/answer", ASKED)).status_code == 429
            draining = asyncio.create_task(rig.gateway.drain())
            await asyncio.sleep(0)
            # there is no room, and there will be none
            assert (await rig.post("/answer", ASKED)).status_code == 503
            assert not draining.done()
            link.held = False
            while not draining.done():
                link.release()
                await asyncio.sleep(0)
            assert {(await features).status_code for features in waiting} == {200, 429}

    run(test)


def test_what_waits_when_the_server_stops_is_refused() -> None:
    async def test() -> None:
        async with running() as rig:
            rig.links[0].held = True
            waiting = [asyncio.create_task(rig.post("/answer", ASKED)) for _ in range(3)]
            await until(lambda: rig.gateway.waiting == 3)
            rig.gateway.stop()
            for response in await asyncio.gather(*waiting):
                assert response.status_code == 503
                assert "shutting down" in response.text
            # nor is the worker replaced that was ended
            await asyncio.sleep(0)
            assert len(rig.links) == 1

    run(test)


# what is told


def test_figures_are_those_of_what_happened() -> None:
    """Of each status, of texts that wait or were lost, and of what was computed."""

    def read(text: str) -> dict[str, float]:
        lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name.removeprefix("bertsmith_"): float(value) for name, _, value in lines}

    async def test() -> None:
        async with running() as rig:
            link, began = rig.links[0], time.perf_counter()
            link.seconds = 0.25
            for inputs in (["abcd", "efg"], ["abcdef"], []):
                await rig.post("/answer", {"inputs": inputs})
            link.held = True
            # the worker has two batches of a request each, and two more requests wait
            text = {"inputs": ["abc", "abcde", "a"]}
            asked = []
            for count in (1, 2):
                asked.append(asyncio.create_task(rig.post("/answer", text)))
                await until(lambda count=count: len(link.batches) == count)  # type: ignore[misc]
            asked += [asyncio.create_task(rig.post("/answer", text)) for _ in range(2)]
            await until(lambda: rig.gateway.waiting_texts == 6)
            waiting = read((await rig.client.get("/metrics")).text)
            assert (waiting["queue_texts"], waiting["ready"]) == (6, 1)
            assert waiting["queue_tokens"] == rig.gateway.queue.tokens > 0
            link.kill()
            assert [(await task).status_code for task in asked] == [503, 503, 200, 200]
            rig.gateway.leave()
            told = read((await rig.client.get("/metrics")).text)
            elapsed = time.perf_counter() - began
        requests = {
            status: told[f'requests_total{{path="/answer",status="{status}"}}']
            for status in (200, 400, 503)
        }
        assert requests == {200: 4, 400: 1, 503: 2}
        assert told['request_seconds_count{path="/answer"}'] == 7
        assert 0 < told['request_seconds_sum{path="/answer"}'] < 7 * elapsed
        names = ("tokens", "batches", "lost_texts", "worker_restarts")
        assert [told[f"{name}_total"] for name in names] == [4 + 3 + 6 + 2 * (3 + 5 + 1), 3, 6, 1]
        assert told["compute_seconds_total"] == pytest.approx(0.25 + 0.25 + 0.001)
        assert (told["queue_texts"], told["queue_tokens"], told["ready"]) == (0, 0, 0)

    run(test)


def test_texts_whose_deadline_passes_while_they_wait_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(gateway, "time", SimpleNamespace(monotonic=lambda: now))

    async def test() -> None:
        nonlocal now
        async with running(deadline=60) as rig:
            link = rig.links[0]
            link.held = True
            first = [asyncio.create_task(rig.post("/answer", ASKED)) for _ in range(2)]
            await until(lambda: len(link.batches) == 2)
            text = {"inputs": ["abc", "abcde", "a"]}
            late = asyncio.create_task(rig.post("/answer", text))
            await until(lambda: rig.gateway.waiting_texts == 3)
            now = 61.0
            link.release()
            assert (await late).status_code == 504
            link.release()
            assert {(await task).status_code for task in first} == {200}
            figures = (await rig.client.get("/metrics")).text
            assert "bertsmith_expired_texts_total 3.0" in figures
            assert "bertsmith_queue_texts 0.0" in figures

    run(test)


def test_of_a_fault_no_text_is_logged(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def faulty(*asked: object, **body: int) -> None:
        raise RuntimeError(f"cannot answer {asked}")

    monkeypatch.setattr(gateway.Gateway, "ask", faulty)

    async def test() -> None:
        async with running() as rig:
            with pytest.raises(RuntimeError, match=SECRET):
                await rig.post("/answer", {"inputs": [SECRET]})

    run(test)
    assert capfd.readouterr().err == "fault: RuntimeError at /answer\n"


def test_the_openapi_document_and_the_figures_name_every_endpoint() -> None:
    async def test() -> None:
        async with running((facts("one", labels=("yes", "no")), facts("two"))) as rig:
            document = (await rig.client.get("/openapi.json")).json()
            text = json.dumps(document)
            for name in ("/answer", "/v1/embeddings", "/v1/rerank", "/embed", "/embed_all",
                         "/predict", "/rerank", "/similarity", "/tokenize"):  # fmt: skip
                schema = document["paths"][name]["post"]["requestBody"]["content"]
                reference = schema["application/json"]["schema"]["$ref"].rpartition("/")[2]
                assert reference in document["components"]["schemas"]
            references = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
            assert references == document["components"]["schemas"].keys()
            await rig.post("/answer", ASKED)
            await rig.client.get("/some-path-that-an-attacker-made-up")
            figures = (await rig.client.get("/metrics")).text
            assert 'bertsmith_requests_total{path="/answer",status="200"} 1.0' in figures
            assert "attacker" not in figures
            models = (await rig.client.get("/v1/models")).json()["data"]
            assert [model["id"] for model in models] == ["one", "two"]
            assert (await rig.client.get("/v1/models/two")).json() == models[1]
            absent = await rig.client.get("/v1/models/three%2Ffour")
            assert (absent.status_code, absent.json()["error"]["code"]) == (404, "model_not_found")
            assert "'three/four'" in absent.json()["error"]["message"]
            figures = (await rig.client.get("/metrics")).text
            for status in (200, 404):
                name = f'bertsmith_requests_total{{path="/v1/models/{{model}}",status="{status}"}}'
                assert f"{name} 1.0" in figures
            assert "three" not in figures
            assert document["paths"]["/v1/models/{model}"]["get"]["parameters"][0]["in"] == "path"
            info = (await rig.client.get("/info")).json()
            assert (info["model_id"], info["max_input_length"]) == ("one", 64)
            kinds = {"id2label": {"0": "yes", "1": "no"}, "label2id": {"yes": 0, "no": 1}}
            assert info["model_type"] == {"classifier": kinds}
            assert info["models"][0]["labels"] == ["yes", "no"]

    run(test)


class Silent:
    """A worker that does nothing."""

    def send(self, message: Batch | Cancel) -> None:
        """Do nothing."""

    def kill(self) -> None:
        """Do nothing."""


def test_why_models_cannot_be_opened_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Each of the workers says so, and ends; the server ends too, and no worker is replaced."""

    async def test() -> None:
        links: list[Silent] = []

        def start(listener: Listener, lane: Lane) -> Silent:
            links.append(Silent())
            return links[-1]

        server = gateway.Gateway(LimitsConfig(), start, 2)
        server.start()
        for link in links:
            server.on_message(link, Refused("a folder: no such folder"))
        for link in links[:]:
            server.on_exit(link)
        with pytest.raises(UserError, match="no such folder"):
            await server.opened
        server.stop()
        assert len(links) == 2

    run(test)
    assert capsys.readouterr().err == ""
