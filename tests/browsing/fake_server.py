"""A server that gives the page of the package, and answers that a test has laid down."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from starlette.applications import Starlette
from starlette.testclient import TestClient

from bertsmith.serving.http.page import page_routes
from quiet_server import QuietServer

KINDS = {
    "reviews": ["classes"], "topics": ["multi-label"], "stars": ["regression"], "names": ["tags"],
    "reader": ["spans"], "choosing": ["choices"], "search": ["ranking"],
    "pretrained": ["fill-mask", "next-sentence", "vectors"],
}  # fmt: skip


@dataclass(frozen=True)
class Laid:
    """An answer laid down: status, body and headers beside the usual ones."""

    status: int
    body: Any
    headers: dict[str, str] = field(default_factory=dict)


HANG_UP = Laid(0, None)


@dataclass
class Fake:
    """What is told of models, what is answered to the next question, and what was asked."""

    models: list[dict[str, Any]]
    info: Laid | None = None
    answer: Laid = Laid(200, {})
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    # answers wait for this
    open: threading.Event = field(default_factory=threading.Event)
    address: str = ""

    def answers(self, *answers: object, **more: object) -> None:
        """Lay down the answers to the next question."""
        body = {"model": "m", "task": "t", "answers": answers, "milliseconds": 12.34, "tokens": 9}
        self.answer = Laid(200, body | more)

    def refuses(self, status: int, message: str, **headers: str) -> None:
        """Lay down an error."""
        error = {"message": message, "type": "invalid_request_error", "code": None, "param": None}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answer = Laid(status, {"error": error}, named)


def models() -> list[dict[str, Any]]:
    """Return what /info says of a model of every kind."""
    return [
        {
            "name": name, "kind": can[0], "can": can, "labels": ["bad", "good"],
            "max_input_length": 512, "precision": "fp32", "backend": "torch",
            "pairs": name == "stars",
        }
        for name, can in KINDS.items()
    ]  # fmt: skip


@contextmanager
def serving(fake: Fake) -> Iterator[Fake]:
    """The fake on a port of its own."""
    pages = TestClient(Starlette(routes=page_routes()))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            path = self.path.removeprefix("/some/where")
            if path == "/info":
                self._send(fake.info or Laid(200, {"models": fake.models}))
            else:
                found = pages.get(path)
                self._bytes(found.status_code, dict(found.headers), found.content)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            fake.asked.append(body)
            fake.keys.append(self.headers["Authorization"])
            answer = fake.answer
            fake.open.wait()
            if answer is HANG_UP:
                self.close_connection = True
            else:
                self._send(answer)

        def _send(self, laid: Laid) -> None:
            headers = {"Content-Type": "application/json"} | laid.headers
            self._bytes(laid.status, headers, json.dumps(laid.body).encode())

        def _bytes(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                if name.lower() != "content-length":
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = QuietServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    fake.open.set()
    fake.address = f"http://127.0.0.1:{server.server_port}/"
    try:
        yield fake
    finally:
        fake.open.set()
        server.shutdown()
        server.server_close()
        thread.join()
