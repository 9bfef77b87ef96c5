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
from contextlib import suppress

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
_SCHED_OTHER, _SCHED_BATCH = 0, 3
SHORT_SLICE, MIDDLE_SLICE, LONG_SLICE = 0.1, 1.0, 20.0
"""Milliseconds: of threads that should get a core at once, and of those they may interrupt: workers
for small requests, which interrupt those for large ones."""


def start_process(module: str, connection: socket.socket, threads: int) -> subprocess.Popen[bytes]:
    """Start a process that runs a module's `main` with a connection, and ends with this one.

    `threads` are those of its products.
    """
    # inherited: Ctrl-C is handled by the process that speaks HTTP, which lets the others finish
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    try:
        return subprocess.Popen(
            [
                # a file in the working folder is no module of ours, whatever its name
                *(sys.executable, "-P", "-c", _PROGRAM, module, str(connection.fileno())),
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
    own = _attributes(0)
    if own is not None and own.policy == _SCHED_OTHER:
        own.runtime = int(milliseconds * 1e6)
        _set_attributes(0, own)


def has_default_policy() -> bool:
    """Return whether this thread is scheduled as all are by default; false without Linux' /proc."""
    tasks = sys.platform == "linux" and os.path.isdir("/proc/self/task")
    return tasks and os.sched_getscheduler(0) == _SCHED_OTHER


def use_default_policy(process: int) -> None:
    """Let a process that has just been started be scheduled as all are by default.

    It has inherited the policy of the thread that started it.
    """
    # it may have ended, and the system may not allow it
    with suppress(OSError):
        os.sched_setscheduler(process, _SCHED_OTHER, os.sched_param(0))


def batch_wakeups(wanted: bool) -> None:
    """Let all threads of this process interrupt no other one when they wake up, or do so again.

    Where all cores are busy they wait for the next tick then (`SCHED_BATCH`), and find together
    what would have woken them one by one. Their share of the cores remains, and so do their slices
    where these could be set. Linux alone.
    """
    before, policy = (_SCHED_OTHER, _SCHED_BATCH) if wanted else (_SCHED_BATCH, _SCHED_OTHER)
    for thread in map(int, os.listdir("/proc/self/task")):
        # it may end meanwhile, and the system may not allow it
        with suppress(OSError):
            if os.sched_getscheduler(thread) != before:
                continue
            attributes = _attributes(thread)
            if attributes is not None:
                attributes.policy = policy
                if _set_attributes(thread, attributes):
                    continue
            os.sched_setscheduler(thread, policy, os.sched_param(0))


def _attributes(thread: int) -> _Attributes | None:
    """Return how a thread is scheduled, 0 the calling one; None where the system does not say."""
    calls = _ATTRIBUTE_CALLS.get(platform.machine())
    if sys.platform != "linux" or calls is None:
        return None
    found = _Attributes()
    size = ctypes.sizeof(found)
    failed = ctypes.CDLL(None).syscall(calls[1], thread, ctypes.byref(found), size, 0)
    return None if failed else found


def _set_attributes(thread: int, attributes: _Attributes) -> bool:
    """Set how a thread is scheduled; return whether the system allows it."""
    call, _ = _ATTRIBUTE_CALLS[platform.machine()]
    return not ctypes.CDLL(None).syscall(call, thread, ctypes.byref(attributes), 0)
