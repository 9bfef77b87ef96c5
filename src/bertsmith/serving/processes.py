"""Processes of a server beside the one that speaks HTTP: how they are started, and their names."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys

from bertsmith.core.signals import STOPPING

_PROGRAM = """
import ctypes, importlib, json, os, signal, socket, sys
if sys.platform.startswith("linux"):
    # else it would notice that its parent is gone only after all imports
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[3]):
    sys.exit()
sys.path[:] = json.loads(sys.argv[4])
importlib.import_module(sys.argv[1]).main(socket.socket(fileno=int(sys.argv[2])))
"""
_SET_NAME, _SET_CHILD_SUBREAPER = 15, 36


def start_process(module: str, connection: socket.socket, threads: int) -> subprocess.Popen[bytes]:
    """Start a process that runs a module's `main` with a connection, and ends with this one.

    `threads` are those of its products.
    """
    # inherited: Ctrl-C is handled by the process that speaks HTTP, which lets the others finish
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        return subprocess.Popen(
            [
                *(sys.executable, "-c", _PROGRAM, module, str(connection.fileno())),
                *(str(os.getpid()), json.dumps(sys.path)),
            ],
            pass_fds=(connection.fileno(),),
            stdin=subprocess.DEVNULL,
            # OpenBLAS, which numpy alone uses, starts threads when it is loaded
            env=os.environ | {"OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1"},
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def name_process(name: str) -> None:
    """Set the name of this process that ps and top show, of at most 15 bytes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_NAME, name.encode(), 0, 0, 0)


def adopt_orphans() -> None:
    """Become the parent of the processes of a child that dies, which would be init's otherwise."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
