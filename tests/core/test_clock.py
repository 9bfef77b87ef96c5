from __future__ import annotations

import subprocess
import sys
import time

from bertsmith.core.clock import Clock, command_from, command_start


def test_seconds_of_all_sittings() -> None:
    times = iter([5.5, 10.0, 15.0, 18.0])
    clock = Clock(4.0, lambda: next(times))
    assert clock.startup == 1.5
    assert clock.elapsed == 6
    clock.resume(100.0)
    assert clock.elapsed == 111
    assert clock.elapsed == 114


def test_a_command_begins_when_its_process_does() -> None:
    """Before Python has read anything: `sleep` runs in the process that becomes Python."""
    code = "import time, bertsmith.core.clock as c; print(time.monotonic() - c.process_start())"
    shell = f"sleep 0.3; exec {sys.executable} -c '{code}'"
    began = time.monotonic()
    told = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True)
    assert 0.25 < float(told.stdout) <= time.monotonic() - began + 0.05


def test_a_command_within_another_process_begins_when_it_is_given() -> None:
    began = time.monotonic()
    assert began <= command_start() <= time.monotonic()
    with command_from(5.0):
        assert command_start() == 5
