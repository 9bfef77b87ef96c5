"""The options of the server."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from bertsmith.core.config import INLINE, POSITIONAL, Config, check_least, check_range
from bertsmith.core.errors import ConfigError
from bertsmith.core.printable import counted, model_name
from bertsmith.engine.config import EngineConfig

_MAX_PORT = 65_535
_MAX_WORKERS = 1024
# a name, perhaps with a port, or an address of IPv6
_HOST = re.compile(r"\*|[\w.-]+(:\d+)?|\[?[0-9a-f:.]+\]?(:\d+)?", re.ASCII | re.IGNORECASE)
# as browsers write it, without the usual port
_ORIGIN = re.compile(
    r"(?!http:.*:80$|https:.*:443$)[a-z][a-z0-9+.-]*://([a-z0-9_.-]+|\[[0-9a-f:.]+\])(:\d+)?"
)


@dataclass(frozen=True, kw_only=True)
class LimitsConfig(Config):
    """Limits on what clients may ask."""

    max_body: int = 4_000_000
    """Maximum size of a request's body in bytes."""
    max_inputs: int = 1024
    """Maximum number of inputs in a request."""
    max_characters: int = 200_000
    """Maximum number of characters in a text."""
    max_tokens: int = 16_384
    """Maximum number of tokens in a text that is read in windows, for example by a model for tags
    or spans; other models have the limit with which they were made."""
    queue_tokens: int = 200_000
    """Maximum number of tokens that wait in the queue; further requests are refused with status
    429."""
    queue_seconds: float | None = None
    """Maximum time in seconds that a request waits in the queue, estimated from the speed of the
    last minute; further requests are refused with status 429. By default half of --deadline."""
    deadline: float = 30.0
    """Seconds after which a request fails with status 504."""
    body_deadline: float = 10.0
    """Seconds within which the body of a request must arrive."""
    header_deadline: float = 20.0
    """Seconds within which the headers of a request must arrive, also on a connection that is kept
    open."""
    connections: int = 2048
    """Maximum number of simultaneous connections, limited by the open files that the system allows;
    further ones wait to be accepted."""

    def __post_init__(self) -> None:
        check_least(
            self,
            {
                "max_body": 1, "max_inputs": 1, "max_characters": 1, "max_tokens": 8,
                "queue_tokens": 8, "connections": 1,
            },
        )  # fmt: skip
        seconds = ["queue_seconds", "deadline", "body_deadline", "header_deadline"]
        check_range(self, seconds, "(0, 86400]")

    @property
    def longest_wait(self) -> float:
        """The seconds that a request may wait in the queue."""
        return self.deadline / 2 if self.queue_seconds is None else self.queue_seconds


@dataclass(frozen=True, kw_only=True)
class ServeConfig(Config):
    """The options of serving models over HTTP."""

    models: tuple[str, ...] = field(metadata=POSITIONAL)
    """Model folders, or hub:owner/name; a request that names no model goes to the first one."""
    name: tuple[str, ...] = ()
    """Names of the models in requests, in the same order, separated by commas or each after a
    --name of its own; by default the names of their folders."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for every network of this machine."""
    port: int = 8080
    """Port to listen on; 0 for any free one."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names to which requests may be addressed, in addition to localhost and --host; * for
    all."""
    allowed_origins: tuple[str, ...] = ()
    """Origins, such as https://app.example, of web pages whose scripts may send requests and read
    the answers (CORS)."""
    api_keys: Path | None = None
    """File of keys, one a line; requests must have the header Authorization: Bearer KEY."""
    workers: int | None = None
    """Number of processes for large requests, and again for small ones; by default 2, or 1 on a
    single core. On a GPU, and on systems other than Linux, each process computes both kinds; on a
    GPU there is 1 by default."""
    device: str = "auto"
    """cpu, cuda or cuda:1; auto uses a GPU if there is one."""
    engine: EngineConfig = field(default=EngineConfig(), metadata=INLINE)
    """The computation."""
    limits: LimitsConfig = field(default=LimitsConfig(), metadata=INLINE)
    """The limits."""
    drain_delay: float = 0.0
    """Seconds after SIGTERM during which requests are still accepted while /ready already answers
    503, so that a load balancer notices."""
    check: bool = False
    """Load the models, let each answer one example, print a table, and end."""

    def __post_init__(self) -> None:
        if not self.models:
            raise ConfigError("missing: MODELS", remedy="name a model folder")
        if self.name and len(self.name) != len(self.models):
            raise ConfigError(
                f"--name has {counted(len(self.name), 'name')} for "
                f"{counted(len(self.models), 'model')}",
                remedy="give one for each model: --name one,other",
            )
        if not 0 <= self.port <= _MAX_PORT:
            raise ConfigError(f"--port is {self.port}", remedy="it must be in [0, 65535]")
        for host in self.allowed_hosts:
            if not _HOST.fullmatch(host):
                raise ConfigError(
                    f"--allowed-hosts contains {host!r}",
                    remedy="write a name as models.example, without https:// and path, or * alone",
                )
        for origin in self.allowed_origins:
            if not _ORIGIN.fullmatch(origin):
                raise ConfigError(
                    f"--allowed-origins contains {origin!r}",
                    remedy="write each as browsers do: https://app.example, in small letters, "
                    "without path, with a port if it is not the usual one",
                )
        check_range(self, ["workers"], f"[1, {_MAX_WORKERS}]")
        check_range(self, ["drain_delay"], "[0, 86400]")
        names = self.names
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f"two models are called {twice!r}", remedy="name them with --name")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the models in requests."""
        return self.name or tuple(map(model_name, self.models))
