"""Servers in processes of their own: started, watched through /proc, stopped for a while, ended."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
# how many times as long as a look at memory the pause after it is, at least
_PAUSES = 100
_START = 180.0


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Memory(NamedTuple):
    """Resident bytes of all processes, of the first one, and of all without the pages of files."""

    whole: int
    first: int
    private: int
    """Of files' pages other programs may have a part."""


class Server:
    """A server and all processes that it started."""

    def __init__(
        self,
        name: str,
        command: list[str],
        port: int,
        ready: str,
        log: Path,
        folder: Path | None = None,
        cores: set[int] | None = None,
    ) -> None:
        """Start a command, in a folder, on some cores; this Python finds what is found here."""
        self.name, self.port, self.log = name, port, log
        self._ready = f"http://127.0.0.1:{port}{ready}"
        self._stream: IO[bytes] = log.open("wb")
        environment = {
            name: value for name, value in os.environ.items() if name not in {"OMP_NUM_THREADS"}
        }
        own = {
            "HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "ORT_DISABLE_TELEMETRY": "1",
            "HF_HOME": str(log.parent / "hub"),
        }  # fmt: skip
        environment.pop("PYTHONPATH", None)
        if command[0] == sys.executable:
            own["PYTHONPATH"] = os.pathsep.join(item for item in sys.path if item)
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self._stream, stderr=subprocess.STDOUT,
            env=environment | own, cwd=folder,
        )  # fmt: skip
        if cores is not None:
            # before it has counted them, or started anything
            os.sched_setaffinity(self.process.pid, cores)

    def wait(self) -> float:
        """Wait until it answers, and return the seconds; raises `SystemExit` where it ends."""
        began = time.perf_counter()
        while time.perf_counter() - began < _START:
            if self.process.poll() is not None:
                break
            with suppress(OSError), urllib.request.urlopen(self._ready, timeout=5) as answer:
                if answer.status == 200:
                    return time.perf_counter() - began
            time.sleep(0.05)
        words = self.log.read_text("utf-8", "replace")[-2000:]
        self.close()
        raise SystemExit(f"{self.name} did not start:\n{words}")

    def processes(self) -> list[int]:
        """Return the ids of its processes, its own first."""
        children: dict[int, list[int]] = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit() and (found := _stat(int(entry))) is not None:
                children.setdefault(int(found[1]), []).append(int(entry))
        tree = [self.process.pid]
        for item in tree:
            tree += children.get(item, [])
        return tree

    def workers(self) -> list[int]:
        """Return those of its processes that compute: they have torch."""
        return [process for process in self.processes() if "libtorch_cpu" in _maps(process)]

    def seconds(self) -> dict[str, float]:
        """Return the processor seconds so far of what computes, and of the rest."""
        workers = set(self.workers())
        found = {"workers": 0.0, "http": 0.0}
        for process in self.processes():
            if (stat := _stat(process)) is not None:
                spent = (int(stat[11]) + int(stat[12])) / _TICKS
                found["workers" if process in workers else "http"] += spent
        return found

    def memory(self) -> Memory:
        """Return its resident bytes, those that its processes share counted once.

        The system walks through all pages for it, which takes a large process some milliseconds.
        """
        sizes = {process: _resident(process) for process in self.processes()}
        whole, private = (sum(size[kind] for size in sizes.values()) for kind in range(2))
        return Memory(whole, sizes.get(self.process.pid, (0, 0))[0], private)

    def metrics(self) -> dict[str, float]:
        """Return what /metrics says, by name and labels."""
        address = f"http://127.0.0.1:{self.port}/metrics"
        with urllib.request.urlopen(address, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Stop all its processes for a while: some servers compute while nobody asks."""
        tree = self.processes()
        for item in tree:
            os.kill(item, signal.SIGSTOP)
        try:
            yield
        finally:
            for item in reversed(tree):
                os.kill(item, signal.SIGCONT)

    def close(self) -> int:
        """End it and return its exit status."""
        self.process.terminate()
        try:
            status = self.process.wait(60)
        except subprocess.TimeoutExpired:
            for process in reversed(self.processes()):
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            status = self.process.wait()
        self._stream.close()
        return status


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the state on; None where it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(") ")[2].split()
    except OSError:
        return None


def _resident(pid: int) -> tuple[int, int]:
    """Return the proportional set size of a process, and what of it is no file's; 0 at its end."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text("utf-8").splitlines()
    except OSError:
        return 0, 0
    sizes = {name: 1024 * int(size) for name, size, *_ in map(str.split, lines[1:])}
    return sizes["Pss:"], sizes["Pss_Anon:"] + sizes["Pss_Shmem:"]


def _maps(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text("utf-8", "replace")
    except OSError:
        return ""


@dataclass
class Watch:
    """Memory of a server, looked at every so often until the watch ends.

    A look takes 60 ms of a processor for 400 MB: pauses are a hundred times as long at least.
    """

    server: Server
    every: float = 0.5
    found: list[tuple[float, Memory]] = field(default_factory=list)
    """Seconds, and the memory then."""

    def __enter__(self) -> Watch:
        self._end = threading.Event()
        self._began = time.perf_counter()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        pause = self.every
        while not self._end.wait(pause):
            before = time.perf_counter()
            self.found.append((before - self._began, self.server.memory()))
            pause = max(self.every, _PAUSES * (time.perf_counter() - before))

    @property
    def peak(self) -> int:
        """The most bytes that were seen."""
        return max((found.whole for _, found in self.found), default=self.server.memory().whole)


class LoadProcess:
    """A load that runs in a process of its own."""

    def __init__(self, file: Path, load: dict[str, Any]) -> None:
        file.write_text(json.dumps(load), "utf-8")
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(item for item in sys.path if item)
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "loading.client", str(file)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
        )  # fmt: skip
        assert self._process.stdout is not None
        # everything is read and prepared by now
        self._process.stdout.readline()

    @property
    def running(self) -> bool:
        """Return whether it has not ended yet."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End the load before its time."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"stop\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        """Return the figures when it has ended."""
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        self._process.stdin.close()
        self._process.wait()
        return found
