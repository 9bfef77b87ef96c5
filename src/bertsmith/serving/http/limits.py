"""Limits of clients: a layer of ASGI around the application.

Headers have their deadline in granian; here are those of bodies and of responses, whose size is
bounded too, for each request and for all together. A body that is compressed is refused. Requests
must be addressed to a known host, so that a page of another site cannot reach a server on this
machine by a name of its own (DNS rebinding), come from no page of a site that is not allowed, and
bear a key where there are keys.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from starlette.middleware.cors import CORSMiddleware

from bertsmith.core.errors import ConfigError
from bertsmith.core.printable import printable
from bertsmith.serving.config import LimitsConfig, ServeConfig
from bertsmith.serving.refusals import (
    InvalidRequest,
    MisdirectedRequest,
    Overloaded,
    PayloadTooLarge,
    Refusal,
    RequestTimeout,
    Unauthorized,
    UnsupportedMediaType,
)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Refuse = Callable[[Scope, Refusal], App]
Watch = Callable[[str, int, float], None]

OPEN_PATHS = ("/", "/health", "/ready")
"""Paths that need no key."""
_BODIES_AT_ONCE = 64
# times the size that is allowed; of a body that is larger, the rest is not received
_DROPPED_BODIES = 16
# as granian calls it, which gives requests that name no host an empty one
_HTTP_1_0 = "1"
_MAX_KEY_FILE_BYTES = 2**20
# statuses of refusals that are said once the body has come; 429 has to be said at once
_AFTER_BODY = frozenset({400, 401, 404, 405, 413, 415, 421})
_PIECE = 2**16
# of a body; those of a network hold a thousand bytes and more
_MAX_PIECES = 16_384


class Hosts:
    """The names that requests may be addressed to; addresses of IP are none, and always known."""

    def __init__(self, config: ServeConfig) -> None:
        local = ("localhost", "127.0.0.1", "[::1]")
        own_host = f"[{config.host}]" if ":" in config.host else config.host
        self._origins = config.allowed_origins
        self._allowed = {name.lower() for name in config.allowed_hosts}
        self._names = {name.lower() for name in (*local, own_host, *config.allowed_hosts)}

    def check(self, host: str) -> None:
        """Raise `MisdirectedRequest` for a host that is not known."""
        named = name = host.lower()
        if not name.endswith("]"):
            head, colon, port = name.rpartition(":")
            name = head if colon and port.isdecimal() else name
        # one that is allowed with a port is so at this port alone, as its pages are
        if not ({"*", name, named} & self._names or _is_address(name)):
            raise MisdirectedRequest(
                f"the host '{printable(name, 60)}' is not served here; "
                "--allowed-hosts would name it"
            )

    def check_origin(self, origin: str, host: str) -> None:
        """Raise `MisdirectedRequest` for a page that is neither ours nor of an allowed site."""
        site = origin.partition("://")[2].lower()
        if site == host.lower() or origin in self._origins:
            return
        if not {"*", site, site.partition(":")[0]} & self._allowed:
            # a page that was opened as a file has no name
            remedy = "; --allowed-origins would name it" if site else ", or of none"
            raise MisdirectedRequest(f"the request comes from a page of another site{remedy}")


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


class Keys:
    """The keys that requests may bear; without any, all requests are allowed."""

    def __init__(self, keys: Collection[str]) -> None:
        self._digests = [_digest(key.encode()) for key in keys]

    @classmethod
    def load(cls, path: Path | None) -> Keys:
        """Read a file of keys, one a line; raises `ConfigError`."""
        if path is None:
            return cls(())
        remedy = "write one key a line"
        try:
            with path.open("rb") as file:
                content = file.read(_MAX_KEY_FILE_BYTES + 1)
            lines = [line.strip() for line in content.decode("ascii").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "is not ASCII text"
            raise ConfigError(f"--api-keys cannot be read: {reason}", where=path) from error
        if len(content) > _MAX_KEY_FILE_BYTES:
            # the last key would be a part of one
            raise ConfigError("is over 1 MiB", where=path, remedy=remedy)
        for number, line in enumerate(lines, 1):
            if len(line.split()) > 1:
                # its words would each be a key, and those of a comment are easily guessed
                problem = "a key contains a space"
                raise ConfigError(
                    problem, where=path, line=number, remedy=f"{remedy}, and no comments"
                )
        if not any(lines):
            raise ConfigError("holds no key", where=path, remedy=remedy)
        return cls([line for line in lines if line])

    def check(self, header: bytes) -> None:
        """Raise `Unauthorized` for a header without a valid key, in the same time for any."""
        if not self._digests:
            return
        scheme, _, key = header.partition(b" ")
        given, valid = _digest(key.strip()), False
        for digest in self._digests:
            valid |= hmac.compare_digest(given, digest)
        if not (valid and scheme.lower() == b"bearer"):
            raise Unauthorized("a valid key is needed: Authorization: Bearer KEY")


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class Bodies:
    """The bytes of bodies that are being received, of all requests together."""

    def __init__(self, limits: LimitsConfig) -> None:
        self._limits = limits
        self._held = 0

    def receiver(self, receive: Receive, headers: Mapping[bytes, bytes]) -> Body:
        """Return a body that is about to be received."""
        return Body(self, self._limits, receive, headers)

    def add(self, size: int) -> None:
        """Count bytes that are held from now on; raises `Overloaded`."""
        if self._held + size > _BODIES_AT_ONCE * self._limits.max_body:
            raise Overloaded("too many large requests are being received", retry_after=1)
        self._held += size

    def release(self, size: int) -> None:
        """Count bytes that are no longer held."""
        self._held -= size


class Body:
    """The body of one request: `receive` takes the place of that of ASGI.

    It is whole with the last byte that was declared: granian says that nothing follows in a message
    of its own, which costs a round of its threads.
    """

    def __init__(
        self, bodies: Bodies, limits: LimitsConfig, receive: Receive, headers: Mapping[bytes, bytes]
    ) -> None:
        self._bodies, self._receive, self._limits = bodies, receive, limits
        self.declared = _declared(headers)
        """Its bytes, where the client says so."""
        # unless the client waits to be asked for it
        self._comes = b"expect" not in headers and (
            bool(self.declared) or b"transfer-encoding" in headers
        )
        self._end = time.monotonic() + limits.body_deadline
        self._held = self._received = self._pieces = 0
        self._whole = False

    def check_declared(self) -> None:
        """Raise `PayloadTooLarge` for a declared length that is too large."""
        self._check_size(self.declared or 0)

    async def receive(self) -> Message:
        """Return the next message; raises `Refusal` for a body that is too large or too slow."""
        if self._whole:
            return await self._receive()
        try:
            async with asyncio.timeout(self._end - time.monotonic()):
                message = await self._next()
        except TimeoutError:
            raise RequestTimeout(
                f"the body did not arrive within {self._limits.body_deadline:g} seconds"
            ) from None
        if message["type"] == "http.request":
            if self._pieces > _MAX_PIECES:
                raise PayloadTooLarge("the body comes in too many pieces")
            self._check_size(self._received)
            self._bodies.add(self._received - self._held)
            self._held = self._received
            if self._whole:
                message["more_body"] = False
        return message

    async def _next(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._pieces += 1
            self._received += len(message.get("body", b""))
            ended = not message.get("more_body", False)
            self._whole = ended or self._received == self.declared
        return message

    def _check_size(self, size: int) -> None:
        if size > self._limits.max_body:
            raise PayloadTooLarge(f"the body has more than {self._limits.max_body:,} bytes")

    async def drop(self) -> None:
        """Receive the rest and keep none of it, since many clients read nothing while they send.

        Of a body that is many times too large, or too slow, the rest is left where it is.
        """
        bound = _DROPPED_BODIES * self._limits.max_body
        if self._whole or not (self._comes or self._pieces) or (self.declared or 0) > bound:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._end - time.monotonic()):
                while not self._whole and self._received < bound and self._pieces < _MAX_PIECES:
                    if (await self._next())["type"] != "http.request":
                        return

    def close(self) -> None:
        """Hold no bytes any more."""
        self._bodies.release(self._held)
        self._held = 0


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """The functions of the application that the layer calls."""

    refuse: Refuse
    """Makes an application that says why a request is refused."""
    watch: Watch
    """Takes the path, the status and the seconds of each request."""
    leaving: Callable[[], bool]
    """Returns whether the server is about to end, so that connections should not be kept."""
    check_room: Callable[[int], None]
    """Raises `Overloaded` for a request whose bytes do not fit."""


class Limits:
    """The layer of ASGI."""

    def __init__(self, app: App, config: ServeConfig, keys: Keys, hooks: Hooks) -> None:
        self._app, self._hooks = app, hooks
        self._entry: App = self._serve
        if config.allowed_origins:
            # all else is behind it: preflights bear no key, and pages read refusals too
            self._entry = CORSMiddleware(
                self._serve,
                allow_origins=config.allowed_origins,
                allow_methods=("GET", "POST"),
                allow_headers=("*",),
                # browsers may ask it of a page that reaches a server on its visitor's machine
                allow_private_network=True,
                expose_headers=("retry-after", "x-truncated"),
            )
        self._hosts, self._keys = Hosts(config), keys
        self._bodies = Bodies(config.limits)
        self._seconds = config.limits.body_deadline
        self._most = config.limits.connections
        self._active = 0
        self._latest = 0.0
        self.overloaded = 0
        """The requests refused so far because too much waited."""

    def quiet(self, seconds: float) -> bool:
        """Return whether there is no request, and was none in the last seconds."""
        return not self._active and time.monotonic() - self._latest >= seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        assert scope["type"] == "http"
        await self._entry(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        self._active += 1
        sending = ResponseSender(send, self._seconds, close=self._hooks.leaving)
        body: Body | None = None
        try:
            if self._active > self._most and scope["method"] == "POST":
                # clients that ask, hang up and ask again are otherwise all that is served
                raise Overloaded("too many requests are in progress", retry_after=1)
            headers: dict[bytes, bytes] = dict(scope["headers"])
            body = sending.body = self._bodies.receiver(receive, headers)
            self._check(scope, headers)
            body.check_declared()
            if body.declared:
                await self._check_room(body.declared, body)
            await self._app(scope, body.receive, sending.send)
        except Refusal as refusal:
            if sending.status is None:
                await self._hooks.refuse(scope, refusal)(scope, receive, sending.send)
        finally:
            if body is not None:
                body.close()
            self._active -= 1
            self.overloaded += sending.status == Overloaded.status
            self._latest = time.monotonic()
            self._hooks.watch(scope["path"], sending.status or 0, time.perf_counter() - started)

    async def _check_room(self, declared: int, body: Body) -> None:
        """Raise `Overloaded` where there is no room; the body is read, so that others follow."""
        try:
            self._hooks.check_room(declared)
        except Overloaded:
            while (message := await body.receive())["type"] == "http.request":
                if not message.get("more_body", False):
                    break
            raise

    def _check(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        path, host = scope["path"], headers.get(b"host", b"")
        if len(headers) < len(scope["headers"]) and _count(scope, b"host") > 1:
            # a proxy may have looked at another one of them
            raise MisdirectedRequest("the request names more than one host")
        # the probes of a load balancer may name none, as HTTP/1.0 allows; browsers always do
        if host or scope["http_version"] != _HTTP_1_0:
            self._hosts.check(host.decode("latin-1"))
        origin = headers.get(b"origin")
        if origin is not None:
            self._hosts.check_origin(origin.decode("latin-1"), host.decode("latin-1"))
        if path not in OPEN_PATHS and not path.startswith("/page/"):
            self._keys.check(headers.get(b"authorization", b""))
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise UnsupportedMediaType("the body is compressed; send it as it is")


def _count(scope: Scope, name: bytes) -> int:
    """Return how often a request has a header."""
    return sum(header == name for header, _ in scope["headers"])


def _declared(headers: Mapping[bytes, bytes]) -> int | None:
    length = headers.get(b"content-length")
    if length is None or b"transfer-encoding" in headers:
        # a body in chunks ends with the last one, whatever its length is said to be
        return None
    if not length.isdigit():
        raise InvalidRequest("Content-Length is not a number")
    return int(length)


class ResponseSender:
    """The response to one request: in pieces, so that a client that does not read is noticed."""

    def __init__(self, send: Send, seconds: float, *, close: Callable[[], bool]) -> None:
        """Ask the client to close the connection where `close` returns true."""
        self._send, self._seconds, self._close = send, seconds, close
        self.status: int | None = None
        self.body: Body | None = None
        """The body of the request, of which the rest is received before the request is refused."""
        self._in_pieces = False

    async def send(self, message: Message) -> None:
        """Send a message."""
        if message["type"] == "http.response.start":
            self.status = int(message["status"])
            if self.body is not None and self.status in _AFTER_BODY:
                await self.body.drop()
            if self._close():
                others = (item for item in message["headers"] if item[0] != b"connection")
                message = {**message, "headers": [*others, (b"connection", b"close")]}
        body, more = message.get("body", b""), message.get("more_body", False)
        self._in_pieces = self._in_pieces or more or len(body) > _PIECE
        if not self._in_pieces:
            await self._send(message)
            return
        for begin in range(0, max(len(body), 1), _PIECE):
            last = begin + _PIECE >= len(body)
            piece = {
                "type": "http.response.body",
                "body": body[begin : begin + _PIECE],
                "more_body": not last or more,
            }
            # cancelled, the connection is closed
            async with asyncio.timeout(self._seconds):
                await self._send(piece)
