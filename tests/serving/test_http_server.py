"""granian as it is embedded: what only a real socket shows."""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from typing import Any

import pytest

pytest.importorskip("granian")

from bertsmith.serving.config import LimitsConfig
from bertsmith.serving.http.http_server import BACKLOG, HttpServer
from bertsmith.serving.http.limits import Message, Receive, Scope, Send

# where a listening socket's backlog stands in Linux' struct tcp_info: tcpi_sacked
_TCP_INFO, _SACKED = 11, 28


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
