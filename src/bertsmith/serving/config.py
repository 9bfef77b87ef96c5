"""The options of the server."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from bertsmith.core.config import INLINE, POSITIONAL, Config, check_least, check_range
from bertsmith.core.errors import ConfigError
from bertsmith.core.printable import counted, model_name
from bertsmith.engine.config import EngineConfig

_MAX_PORT = 65_535


@dataclass(frozen=True, kw_only=True)
class LimitsConfig(Config):
    """Limits on what clients may ask."""

    max_body: int = 4_000_000
    """Bytes of a request's body."""
    max_inputs: int = 1024
    """Inputs of a request."""
    max_characters: int = 200_000
    """Characters of a text."""
    max_tokens: int = 16_384
    """Tokens of a text that is read in windows, by a model for tags or spans say; other models read
    as many as they were made for."""
    queue_tokens: int = 200_000
    """Tokens that may wait to be computed; requests beyond are refused with status 429."""
    deadline: float = 30.0
    """Seconds after which a request is given up with status 504."""
    body_deadline: float = 10.0
    """Seconds in which a request's body has to arrive."""
    header_deadline: float = 20.0
    """Seconds in which the headers of a request have to arrive, on a connection kept open too."""
    connections: int = 2048
    """Connections that are served at once, or as many as the system allows open files for; further
    ones wait to be accepted."""

    def __post_init__(self) -> None:
        check_least(
            self,
            {
                "max_body": 1, "max_inputs": 1, "max_characters": 1, "max_tokens": 8,
                "queue_tokens": 8, "connections": 1,
            },
        )  # fmt: skip
        check_range(self, ["deadline", "body_deadline", "header_deadline"], "(0, 86400]")


@dataclass(frozen=True, kw_only=True)
class ServeConfig(Config):
    """The options of serving models over HTTP."""

    models: tuple[str, ...] = field(metadata=POSITIONAL)
    """Model folders, or hub:owner/name; the first one is asked where a request names none."""
    name: tuple[str, ...] = ()
    """Names of the models in requests, in the same order, with commas between or each behind a
    --name of its own; those of their folders if not given."""
    host: str = "127.0.0.1"
    """Address to listen at; 0.0.0.0 for every network of this machine."""
    port: int = 8080
    """Port to listen at; 0 for a free one."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names that requests may be addressed to, beside localhost and --host; * for all."""
    api_keys: Path | None = None
    """File of keys, one a line: requests must have the header Authorization: Bearer KEY."""
    workers: int | None = None
    """Processes that compute large requests, and as many again for small ones; 2 if not given, or 1
    on a single core. On a GPU, and on systems other than Linux, each computes both, and on a GPU
    there is 1."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda or cuda:1."""
    engine: EngineConfig = field(default=EngineConfig(), metadata=INLINE)
    """The computation."""
    limits: LimitsConfig = field(default=LimitsConfig(), metadata=INLINE)
    """The limits."""
    drain_delay: float = 0.0
    """Seconds after SIGTERM in which requests are still accepted, while /ready says 503 already, so
    that a load balancer notices."""
    check: bool = False
    """Open the models, let each answer one example, print a table, and end."""

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
        check_least(self, {"workers": 1})
        check_range(self, ["drain_delay"], "[0, 86400]")
        names = self.names
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f"two models are called {twice!r}", remedy="name them with --name")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the models in requests."""
        return self.name or tuple(map(model_name, self.models))
