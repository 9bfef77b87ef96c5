"""The command `bertsmith serve` in a process of its own."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"


class Started:
    """A server that runs: its address, and what it has said so far."""

    def __init__(self, process: subprocess.Popen[str], *, stalls: bool = False) -> None:
        """Wait until it is ready; where the reader `stalls`, what it says then is not read."""
        self.process = process
        self.said: list[str] = []
        assert process.stderr is not None
        self.url = ""
        for line in process.stderr:
            self.said.append(line)
            if found := re.search(r"listening at (http://\S+);", line):
                self.url = found[1]
            if line.startswith("ready:"):
                break
        else:
            raise AssertionError("".join(self.said))
        self._reader = threading.Thread(target=self._read, daemon=True)
        if not stalls:
            self._reader.start()

    @property
    def port(self) -> int:
        """The port that it listens at."""
        return int(self.url.rpartition(":")[2])

    def workers(self) -> list[int]:
        """The processes that compute."""
        return [number for number in self._others() if _name(number) == "bs-worker"]

    def fork_server(self) -> int | None:
        """The process that holds the models; None while there is none."""
        return next((other for other in self._others() if _name(other) == "bs-models"), None)

    def _others(self) -> list[int]:
        """The children of the server, and theirs."""
        children = _children(self.process.pid)
        return children + [item for child in children for item in _children(child)]

    def end(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end; return its exit status."""
        self.process.send_signal(number)
        status = self.process.wait()
        if self._reader.ident is not None:
            self._reader.join()
        return status

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.said += self.process.stderr


def _children(number: int) -> list[int]:
    try:
        text = Path(f"/proc/{number}/task/{number}/children").read_text()
    except OSError:
        # it has just ended
        return []
    return list(map(int, text.split()))


def _name(number: int) -> str:
    try:
        return Path(f"/proc/{number}/comm").read_text().strip()
    except OSError:
        return ""


@contextmanager
def started(
    *arguments: str | Path, limits: str = "", patches: Path | None = None, stalls: bool = False
) -> Iterator[Started]:
    """A server on a free port, below limits that a shell sets: "ulimit -Sn 64".

    `patches` is a folder whose sitecustomize.py is run first in each of its processes; for `stalls`
    see `Started`.
    """
    shell = ["sh", "-c", f'{limits}\nexec "$@"', "sh"] if limits else []
    command = [
        *shell,
        sys.executable,
        "-m",
        "bertsmith",
        "serve",
        *map(str, arguments),
        "--port",
        "0",
    ]
    path = os.pathsep.join(map(str, [*([] if patches is None else [patches]), SOURCE]))
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    try:
        yield Started(process, stalls=stalls)
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def slice_of(thread: int = 0) -> float | None:
    """The milliseconds of a thread's slices; None before Linux 6.12, which knows none."""
    number = {"x86_64": 315, "aarch64": 275}.get(platform.machine())
    if sys.platform != "linux" or number is None:
        return None
    found = ctypes.create_string_buffer(48)
    if ctypes.CDLL(None).syscall(number, thread, found, 48, 0):
        return None
    # behind size, policy, flags, niceness and priority
    (nanoseconds,) = struct.unpack_from("<Q", found, 24)
    return nanoseconds / 1e6 or None
