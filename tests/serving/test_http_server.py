"""granian as it is embedded: what only a real socket shows."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

pytest.importorskip("granian")
pytest.importorskip("starlette")
pytest.importorskip("orjson")

from bertsmith.serving.config import LimitsConfig
from bertsmith.serving.http.http_server import BACKLOG, HttpServer
from bertsmith.serving.http.limits import App, Message, Receive, Scope, Send
from serving_inline import running

# where a listening socket's backlog stands in Linux' struct tcp_info: tcpi_sacked
_TCP_INFO, _SACKED = 11, 28
_CLOSE = b"Connection: close\r\n\r\n"


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    start: Message = {"type": "http.response.start", "status": 200, "headers": []}
    await send(start)
    await send({"type": "http.response.body", "body": b"hello"})


def backlog(listener: socket.socket) -> int:
    info = listener.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 64)
    (found,) = struct.unpack_from("I", info, _SACKED)
    return int(found)


@pytest.mark.skipif(sys.platform != "linux", reason="struct tcp_info is that of Linux")
def test_many_clients_may_connect_at_once() -> None:
    """granian listens on the socket anew: with its usual backlog of 0 clients wait for minutes."""

    async def run() -> tuple[int, bytes]:
        listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
        listener.setblocking(False)
        before = backlog(listener)
        assert before > 100
        watched, port = listener.dup(), listener.getsockname()[1]
        server = HttpServer(hello, listener, LimitsConfig())
        serving = asyncio.create_task(server.run())
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        said = await reader.read()
        writer.close()
        found = backlog(watched) - before
        server.end()
        await serving
        watched.close()
        return found, said

    answer: Any = asyncio.run(run())
    assert answer[0] == 0
    assert answer[1].endswith(b"hello")


@asynccontextmanager
async def listening(app: App) -> AsyncIterator[int]:
    """The port of a server of an application."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    listener.setblocking(False)
    port = listener.getsockname()[1]
    server = HttpServer(app, listener, LimitsConfig())
    serving = asyncio.create_task(server.run())
    try:
        yield port
    finally:
        server.end()
        await serving


async def answer_to(port: int, request: bytes) -> bytes:
    """All that a server says to the bytes of a request that asks to close the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


HOSTS = {
    b"GET /ready HTTP/1.0\r\n": 200,
    b"GET /ready HTTP/1.0\r\nHost: localhost\r\n": 200,
    b"GET /ready HTTP/1.0\r\nHost: evil.example\r\n": 421,
    b"GET /ready HTTP/1.0\r\nOrigin: http://evil.example\r\n": 421,
    b"GET /ready HTTP/1.1\r\n": 421,
    b"GET /ready HTTP/1.1\r\nHost:\r\n": 421,
    b"GET /ready HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n": 421,
    b"GET /ready HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n": 421,
}


def test_a_request_names_one_host_that_is_served_and_an_old_one_none() -> None:
    """The probes of load balancers, as HAProxy's `option httpchk GET /ready`, name none."""

    async def run() -> dict[bytes, int]:
        async with running() as rig, listening(rig.app) as port:
            return {
                request: int((await answer_to(port, request + _CLOSE)).split()[1])
                for request in HOSTS
            }

    assert asyncio.run(run()) == HOSTS


_POST = b"POST /answer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
_CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"


_MALFORMED = (b"zz\r\n{}\r\n0\r\n\r\n", b"2\r\n{}\r\nxx\r\n", b"2\r\n{}abc", b"f" * 21 + b"\r\n")


def test_malformed_chunks_are_a_bad_request_and_close_the_connection() -> None:
    """RFC 9112, sections 6.3 and 8."""

    async def run() -> list[bytes]:
        async with running() as rig, listening(rig.app) as port:
            return [await answer_to(port, _POST + _CHUNKED + body) for body in _MALFORMED]

    for answer in asyncio.run(run()):
        assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"the body is incomplete" in answer
