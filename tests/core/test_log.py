"""Where nobody watches, a line comes now and then."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import re
import struct
import subprocess
import sys
import termios
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest

from bertsmith.core.log import (
    Bar,
    Bars,
    LogBar,
    console,
    progress,
    say,
    short_number,
    shown_on,
    table_of,
)


class Clock:
    """Goes on when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_line_every_half_minute(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    bar = LogBar("training", 1.0, "", clock)
    for step in range(10):
        clock.now += 10
        bar.note(f"step {step + 1}")
        bar.move_to(0.05 * (step + 1))
    assert capsys.readouterr().err.splitlines() == [
        "training: 15 % · 0:00:30 elapsed · 0:02:50 left · step 3",
        "training: 30 % · 0:01:00 elapsed · 0:02:20 left · step 6",
        "training: 45 % · 0:01:30 elapsed · 0:01:50 left · step 9",
    ]


def test_a_resumed_run_is_not_taken_for_a_fast_one(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    bar = LogBar("training", 1.0, "", clock)
    for done in (0.801, 0.802, 0.803):
        clock.now += 20
        bar.move_to(done)
    # a thousandth takes 20 seconds, and 198 are left
    told = capsys.readouterr().err
    assert told == "training: 80 % · 0:00:40 elapsed · 1:06:00 left\n"


def test_a_run_without_an_end_in_sight_is_told(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    bar = LogBar("training", 1.0, "", clock)
    for step in range(3):
        clock.now += 20
        bar.move_to(1e-15 * step)
    assert capsys.readouterr().err == "training: 0 % · 0:00:40 elapsed\n"


def test_what_is_counted_is_told(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    bar = LogBar("reading", None, "B", clock)
    for _ in range(4):
        clock.now += 11
        bar.advance(2_000_000)
    told = capsys.readouterr().err
    assert told == "reading: 6 MB, 182 kB/s · 0:00:33 elapsed\n"


def test_slow_things_are_told_by_the_minute(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    bar = LogBar("training probes", 16, "probes", clock)
    for _ in range(3):
        clock.now += 15
        bar.advance()
    told = capsys.readouterr().err
    assert told == (
        "training probes: 12 % · 2 probes, 4 probes/min · 0:00:30 elapsed · 0:03:30 left\n"
    )


def test_what_is_soon_done_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("reading", 10) as bar:
        bar.note("x")
        for _ in range(10):
            bar.advance()
    assert capsys.readouterr().err == ""


ON_A_TERMINAL = """
from bertsmith.core.log import progress
with progress("pre-training", 1.0) as bar:
    bar.move_to(0.5)
    bar.note("step 160 · 22k tokens/s · padding 0 % · MFU 26 % · masked LM 4.529 (24 %) · next 1")
"""


@pytest.mark.parametrize("columns", [50, 80])
def test_a_long_note_leaves_room_for_bar_and_time(columns: int) -> None:
    """On a terminal of 80 columns pre-training showed neither."""
    terminal, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with subprocess.Popen(
        [sys.executable, "-c", ON_A_TERMINAL], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=theirs, env=environment | {"TERM": "xterm", "PYTHONUTF8": "1"},
    ):  # fmt: skip
        os.close(theirs)
        written = b""
        # the terminal ends in an error when nobody writes to it any more
        with suppress(OSError):
            while part := os.read(terminal, 4096):
                written += part
    os.close(terminal)
    shown = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", written.decode())
    assert re.search(
        r"pre-training [━╸╺]{5,24} +\d:\d\d:\d\d left [-\d]:[-\d]{2}:[-\d]{2}\s", shown
    )
    assert re.search(r"^step 160 · 22k tokens/s · padding .*…\r?$", shown, re.MULTILINE)


def test_of_several_things_one_line_tells(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    bars = Bars(LogBar("3 trainings, 2 at once", 3, "", clock))
    for share in (0.25, 0.5):
        for name in ("seed 0", "seed 1"):
            bars.move_to(name, share, "loss 1")
        clock.now += 20
    bars.end("seed 0")
    bars.move_to("seed 2", 0.0)
    assert capsys.readouterr().err.splitlines() == [
        # one and a quarter of a training since the first share was told, and one and a half left
        "3 trainings, 2 at once: 50 % · 0:00:40 elapsed · 0:00:48 left · seed 1 50 %",
    ]


def test_lines_and_bars_can_be_shown_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    class Elsewhere:
        def __init__(self) -> None:
            self.shown: list[str] = []

        def say(self, line: str) -> None:
            self.shown.append(line)

        def bar(self, description: str, total: float | None, unit: str) -> Bar:
            self.shown.append(f"{description} of {total} {unit}")
            return LogBar(description, total, unit)

    elsewhere = Elsewhere()
    with shown_on(elsewhere):
        say("a line")
        with progress("reading", 10, "B") as bar:
            bar.advance()
    assert elsewhere.shown == ["a line", "reading of 10 B"]
    say("another")
    assert capsys.readouterr().err == "another\n"


NOTEBOOK = """
import builtins
class ZMQInteractiveShell: ...
builtins.get_ipython = ZMQInteractiveShell
from bertsmith.core.log import console, say, table_of
say("training: 15 %")
console.print(table_of(["seed"], [["7"]], lined=False))
"""


def test_lines_of_a_notebook_are_on_standard_error() -> None:
    """Each was an HTML output of its own, in which long lines do not wrap."""
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK], capture_output=True, text=True, check=True
    )
    assert done.stderr.split() == ["training:", "15", "%", "seed", "7"]
    assert done.stdout == ""


def test_nothing_is_shown_without_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a program without a console; a table was an error after the training it was about."""
    monkeypatch.setattr(sys, "stderr", None)
    say("training: 15 %")
    console.print(table_of(["seed"], [["7"]]))


def test_numbers_are_short() -> None:
    numbers = {950: "950", 12_345: "12.3k", 999_000: "999k", 4.56e6: "4.56M", 7.2e9: "7.2G"}
    assert {value: short_number(value) for value in numbers} == numbers


def test_short_numbers_are_those_that_they_stand_for() -> None:
    """Three figures at most before the unit, whatever is rounded up to it."""
    units = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
    grid = [
        sign * figures * 10.0**power
        for sign in (1, -1)
        for power in range(14)
        for figures in (1.0, 1.005, 5.0, 9.94, 9.95, 9.994, 9.995, 9.9949, 9.9951, 9.999999)
    ]
    for value in (0, *grid):
        found = re.fullmatch(r"(-?\d{1,3}(?:\.\d{1,2})?)([kMGT]?)", short_number(value))
        assert found, (value, short_number(value))
        shown = float(found[1]) * units[found[2]]
        # to a whole below a thousand, to three figures above
        assert abs(shown - value) <= max(0.5, 0.005 * abs(value)) * 1.0001, value
        assert len(re.sub(r"\D", "", found[1]).lstrip("0")) <= 3
    assert [short_number(value) for value in (999.6, 999_499, 999_500, 999_950, 999_999_999)] == [
        "1k", "999k", "1M", "1M", "1G",
    ]  # fmt: skip
    assert (short_number(-123_456), short_number(-999_999), short_number(3.2e15)) == (
        "-123k", "-1M", "3.2P",
    )  # fmt: skip


class Disk(io.RawIOBase):
    """A file on a disk that is full at first."""

    def __init__(self) -> None:
        self.full = True
        self.content = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.content += bytes(data)
        return len(bytes(data))


def test_lines_for_a_full_disk_are_lost_and_not_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    log = io.TextIOWrapper(io.BufferedWriter(disk), line_buffering=True)
    monkeypatch.setattr("sys.stderr", log)
    say("the first")
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(500):
        say(f"{number} " + "x" * 200)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # of 100,000 bytes
    assert after - before < 30_000
    assert disk.content == b""
    disk.full = False
    say("room again")
    say("and more")
    # what the buffer could hold, then what is said from now on: whole lines
    first, *others = disk.content.decode().splitlines()
    assert first == "the first"
    assert others[-2:] == ["room again", "and more"]
    assert {len(line) for line in others[:-2]} <= {202, 203, 204}


@pytest.mark.parametrize("columns", ["0", "1", "junk"])
def test_lines_are_shown_whatever_the_width_is_said_to_be(columns: str) -> None:
    """With COLUMNS=0 every line of a run was lost."""
    program = "from bertsmith.core.log import say; say('a line of result')"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"COLUMNS": columns},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "a line of result\n"
