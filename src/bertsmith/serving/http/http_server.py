"""granian, embedded: it serves an application on a socket that listens already."""

from __future__ import annotations

import logging
import socket
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.net import SocketHolder  # type: ignore[attr-defined]
from granian.server.embed import Server

from bertsmith.serving.config import LimitsConfig
from bertsmith.serving.http.limits import App

_MAX_HEADER_BYTES = 64 * 1024
BACKLOG = 2048
"""Connections that wait to be accepted, at most."""


class HttpServer(Server):
    """An HTTP/1.1 server in the running event loop."""

    def __init__(self, app: App, listener: socket.socket, limits: LimitsConfig) -> None:
        super().__init__(
            app,
            interface=Interfaces.ASGINL,
            http=HTTPModes.http1,
            websockets=False,
            backpressure=limits.connections,
            http1_settings=HTTP1Settings(
                header_read_timeout=int(1000 * limits.header_deadline),
                max_buffer_size=_MAX_HEADER_BYTES,
            ),
            log_enabled=False,
        )
        self._listener = listener

    def _init_shared_socket(self) -> None:
        # its own socket could be shared with a second server on the same port unnoticed
        holder: Any = SocketHolder
        self._ssp = None
        # granian closes it from now on
        self._shd: Any = holder(self._listener.detach(), False, BACKLOG)

    async def run(self) -> None:
        """Serve until `end` is called."""
        # granian warns that embedding is experimental, whatever its settings of logs are
        logging.getLogger("_granian").setLevel(logging.CRITICAL)
        await self.serve()

    def end(self) -> None:
        """Stop serving."""
        self.signal_handler_interrupt()  # type: ignore[no-untyped-call]
