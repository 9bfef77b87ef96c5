from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from unittest.mock import Mock

import pytest

from bertsmith.core.pool import process_pool

PROGRAM = """
import os
from bertsmith.core.pool import process_pool
with process_pool(1) as pool:
    print(pool.submit(os.getppid).result() == os.getpid(), __file__)
"""


def test_a_program_from_standard_input_has_a_pool() -> None:
    """Its processes ended at once, looking for a file `<stdin>`."""
    done = subprocess.run(
        [sys.executable, "-"], input=PROGRAM, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("True <stdin>\n", "")


def test_there_is_no_pool_without_semaphores(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in containers without /dev/shm."""

    refused = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    monkeypatch.setattr("_multiprocessing.SemLock", Mock(side_effect=refused))
    with process_pool(2) as pool:
        assert pool is None
    said = capsys.readouterr().err
    assert "one process does it all" in said
    assert "No such file or directory" in said
    # no fault of /dev/shm
    refused.errno = errno.EMFILE
    with pytest.raises(OSError, match="No such file"), process_pool(2):
        pass


def _interrupted_while_the_pool_is_left() -> multiprocessing.process.BaseProcess:
    """Return a process of the pool, which computes for a moment yet."""
    main = threading.main_thread().ident
    assert main is not None
    with suppress(KeyboardInterrupt), process_pool(1) as pool:
        assert pool is not None
        computing = pool.submit(time.sleep, 0.5)
        while not computing.running():
            time.sleep(0.01)
        (process,) = multiprocessing.active_children()
        threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT)).start()
    return process


def test_an_interruption_waits_for_the_end_of_the_processes() -> None:
    """Else Python would take the thread that ends them for ended, and wait for them for ever."""
    assert not _interrupted_while_the_pool_is_left().is_alive()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is that of Linux")
def test_a_hang_up_leaves_the_process_that_tracks_semaphores() -> None:
    """It goes to the whole group; Python would say at the end that this process has died."""
    lines = """
import signal
from multiprocessing import resource_tracker
from pathlib import Path
from bertsmith.core.pool import process_pool
with process_pool(1):
    status = Path(f"/proc/{resource_tracker._resource_tracker._pid}/status").read_text()
    (blocked,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigBlk"))
print(int(blocked, 16) >> signal.SIGHUP - 1 & 1)
"""
    done = subprocess.run(
        [sys.executable, "-"], input=lines, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("1\n", "")
