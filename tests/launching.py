"""Commands in several processes, as a user starts them with torchrun, or in the same way."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from forking import FORK_WORKERS, Forked

TESTS = Path(__file__).parent
STANDALONE = "--standalone --nproc-per-node 2"


class Launched:
    """A command that runs in two processes."""

    def __init__(self, process: subprocess.Popen[bytes], output: IO[bytes]) -> None:
        self.process = process
        self._output = output

    @property
    def output(self) -> str:
        """What it has said on standard error so far."""
        self._output.seek(0)
        return self._output.read().decode()

    def ended(self) -> str:
        """What it has said, when it has ended."""
        self.process.wait()
        return self.output


@contextmanager
def torchrun(*command: str, folder: Path, options: str = "") -> Iterator[Launched]:
    """A command in two processes, on a port that the system picks."""
    environment = {
        "PYTHONPATH": _path(),
        "OMP_NUM_THREADS": "1",
        # asked to end, it would kill processes that a busy machine keeps for half a minute
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "300",
    }
    run = ["torch.distributed.run", *(options or STANDALONE).split(), *command]
    with launched(subprocess.Popen, *run, folder=folder, environment=environment) as result:
        yield result


@contextmanager
def launched(
    started: type[subprocess.Popen[bytes]],
    *module: str,
    folder: Path,
    environment: Mapping[str, str],
) -> Iterator[Launched]:
    """A module that runs others, with its arguments, as a process of the type `started`."""
    with tempfile.TemporaryFile() as output:
        process = started(
            [sys.executable, "-m", *module],
            cwd=folder,
            env=os.environ | environment,
            stdout=subprocess.DEVNULL,
            stderr=output,
        )
        try:
            yield Launched(process, output)
        finally:
            # its processes have sessions of their own: only it can end them
            process.terminate()
            process.wait()


def ran(*command: str, folder: Path) -> str:
    """What a command in two processes says on standard error; it has to end well."""
    with torchrun(*command, folder=folder) as launched:
        told = launched.ended()
        assert launched.process.returncode == 0, told
    return told


def ran_in_forks(*command: str, folder: Path) -> str:
    """As `ran`, with processes that need not import torch, and with their store in this one."""
    # imports torch
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    common = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "PYTHONPATH": _path(),
        FORK_WORKERS: "1",
    }
    with tempfile.TemporaryFile() as output:
        ranks = [
            Forked[bytes](
                [sys.executable, *command],
                cwd=folder,
                env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=subprocess.DEVNULL,
                stderr=output,
            )
            for rank in range(2)
        ]
        try:
            statuses = [rank.wait() for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        output.seek(0)
        told = output.read().decode()
    assert statuses == [0, 0], told
    return told


def _path() -> str:
    paths = [str(TESTS.parent / "src"), str(TESTS), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(paths)


def ours(told: str) -> list[str]:
    """The lines with which bertsmith itself, not torchrun, ends."""
    return [line for line in told.splitlines() if line.startswith("bertsmith: ")]
