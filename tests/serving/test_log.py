"""The log of a server whose reader stalls, on real pipes that nobody reads."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

import pytest

from bertsmith.core.log import say
from bertsmith.serving.log import MAX_KEPT_LINES, BufferedLog, buffered_log

# characters of a pipe
PIPE = 64 * 1024
# more lines of 4,000 characters than fit into a pipe, the buffer, and what is just being written
LINES = 2 * (PIPE + 2 * MAX_KEPT_LINES) // 4000
_LOST = re.compile(
    rf"([\d,]+) lines? of process {os.getpid()} could not be written here and (is|are) lost"
)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end waits for the thread that writes, however busy the machine is."""
    monkeypatch.setattr("bertsmith.serving.log._MAX_PAUSES", 1_000_000)


@pytest.fixture
def pipe() -> Iterator[tuple[TextIO, TextIO]]:
    """The two ends of a pipe."""
    reading, writing = os.pipe()
    with ExitStack() as stack:
        reader = stack.enter_context(open(reading, encoding="utf-8"))
        writer = stack.enter_context(open(writing, "w", encoding="utf-8"))
        yield reader, writer


def line(number: int) -> str:
    return f"{number:06d} {'x' * 3990}"


def lost(text: str) -> int:
    """The number of lines that a line of the log says are missing; 0 for another line."""
    found = _LOST.match(text)
    return int(found[1]) if found else 0


def test_lines_for_a_reader_who_stalls_are_dropped_and_counted(
    pipe: tuple[TextIO, TextIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe
    monkeypatch.setattr(sys, "stderr", writer)
    with buffered_log():
        # nobody reads: a stream that blocks would never come to the end of this
        for number in range(LINES):
            say(line(number))
        read = dropped = 0
        # each line is there, or counted where it is missing
        while read + dropped < LINES:
            text = reader.readline()
            dropped += lost(text)
            if not lost(text):
                assert text == line(read + dropped) + "\n"
                read += 1
        assert read > 0
        assert dropped > 0
        say("and on")
        assert reader.readline() == "and on\n"
    assert sys.stderr is writer


def test_what_was_said_is_written_at_the_end(pipe: tuple[TextIO, TextIO]) -> None:
    reader, writer = pipe
    log = BufferedLog(writer)
    # as much as is kept, which is more than fits into the pipe
    texts = [line(number) + "\n" for number in range(MAX_KEPT_LINES // 4000)]
    found: list[str] = []
    reading = threading.Thread(target=lambda: found.extend(reader))
    reading.start()
    for text in texts * 3:
        log.write(text)
        assert log.drain()
    log.end()
    writer.close()
    reading.join()
    assert found == texts * 3


def test_lines_that_cannot_be_written_are_counted(tmp_path: Path) -> None:
    """A pipe without a reader refuses lines; they are counted once there is a reader again."""
    place = tmp_path / "log"
    os.mkfifo(place)
    first = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
    with open(place, "w", encoding="utf-8") as writer:
        os.close(first)
        log = BufferedLog(writer)
        for number in range(3):
            log.write(line(number) + "\n")
            assert log.drain()
        with open(os.open(place, os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8") as reader:
            log.write("and on\n")
            assert log.drain()
            assert lost(reader.readline()) == 3
            assert reader.readline() == "and on\n"
        log.end()
