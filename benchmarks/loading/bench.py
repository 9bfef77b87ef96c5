"""What the scenarios of the benchmark share: files, figures, loads, our server."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loading.questions import Question
from loading.servers import LoadProcess, Server, free_port

MB = 1e6


@dataclass
class Bench:
    """What the parts share: options, files, the server's cores, and figures so far."""

    options: argparse.Namespace
    folder: Path
    folders: dict[str, Path]
    bulk: dict[str, float]
    questions: list[Question]
    cores: set[int]
    figures: dict[str, Any] = field(default_factory=dict)
    rows: list[tuple[str, str, str]] = field(default_factory=list)
    loads: int = 0

    @property
    def share_of_clients(self) -> float:
        """The share of the processor time of clients that is taken from the server's cores."""
        return 0.0 if self.options.server_cores else 1.0

    @property
    def file(self) -> Path:
        """The file of all questions."""
        return self.folder / "questions.pickle"

    def tell(self, part: str, what: str, figure: str) -> None:
        """Add a line to the table, and show it."""
        self.rows.append((part, what, figure))
        print(f"{part:9} {what}: {figure}", flush=True)

    def load(self, server: Server, **more: Any) -> LoadProcess:  # noqa: ANN401
        """Start a load on a server."""
        self.loads += 1
        usual = {
            "port": server.port, "questions": str(self.file), "precision": self.options.precision,
            "clients": self.options.clients, "seconds": self.options.seconds, "seed": self.loads,
        }  # fmt: skip
        return LoadProcess(self.folder / f"load-{self.loads}.json", usual | more)


@contextmanager
def our_server(bench: Bench, port: int | None = None, /, **more: str) -> Iterator[Server]:
    """Our server with all models, at a port that is free if none is given."""
    port = port or free_port()
    options = {"--port": str(port), "--precision": bench.options.precision} | more
    if bench.options.workers:
        options["--workers"] = str(bench.options.workers)
    command = [
        sys.executable, "-m", "bertsmith", "serve", *map(str, bench.folders.values()),
        "--name", ",".join(bench.folders), *(item for pair in options.items() for item in pair),
    ]  # fmt: skip
    server = Server("ours", command, port, "/ready", bench.folder / "ours.log", cores=bench.cores)
    try:
        bench.figures.setdefault("start", round(server.wait(), 2))
        yield server
    finally:
        server.close()


def outcome(bench: Bench, part: str, found: dict[str, Any]) -> None:
    """Tell what all loads tell."""
    statuses = ", ".join(f"{name}: {item:,}" for name, item in sorted(found["statuses"].items()))
    lost = found["statuses"].get("lost", 0) + found["unanswered"]
    failed = sum(value for name, value in found["statuses"].items() if name[:1] == "5")
    wrong = sum(found["wrong"].values())
    bench.tell(part, "statuses", statuses)
    bench.tell(part, "wrong, lost, 5xx", f"{wrong}, {lost}, {failed}")
    if "200" in found["latency"]:
        latency = found["latency"]["200"]
        bench.tell(part, "p50, p99 of answers", f"{latency['p50']:.3f} s, {latency['p99']:.3f} s")
    for item in found["examples"]:
        bench.tell(part, "example", item)
