"""Processes of a server beside the one that speaks HTTP: how they are started, and their names."""

from __future__ import annotations

import ctypes
import json
import os
import platform
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
# numbers of Linux' sched_setattr and sched_getattr
_ATTRIBUTE_CALLS = {"x86_64": (314, 315), "aarch64": (274, 275), "riscv64": (274, 275)}
_SCHED_OTHER = 0
SHORT_SLICE, LONG_SLICE = 0.1, 20.0
"""Milliseconds: of threads that should get a core at once, and of those they may interrupt."""


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


class _Attributes(ctypes.Structure):
    """The attributes of scheduling of a thread, `struct sched_attr` of Linux."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


def set_slice(milliseconds: float) -> None:
    """Set the slices in which this thread, and all that it starts from now on, has a core.

    Its share of the cores remains the same. Since Linux 6.12, a thread with short slices that wakes
    up interrupts one with longer slices at once; else the latter may keep the core until the next
    tick, 4 ms at 250 ticks a second. Older systems ignore the setting. A thread whose policy is not
    the default one is left alone, since somebody has chosen that policy.
    """
    calls = _ATTRIBUTE_CALLS.get(platform.machine())
    if sys.platform != "linux" or calls is None:
        return
    set_attributes, get_attributes = calls
    library, own = ctypes.CDLL(None), _Attributes()
    failed = library.syscall(get_attributes, 0, ctypes.byref(own), ctypes.sizeof(own), 0)
    if not failed and own.policy == _SCHED_OTHER:
        own.runtime = int(milliseconds * 1e6)
        library.syscall(set_attributes, 0, ctypes.byref(own), 0)
