"""Standard input, output and error that are closed, full or abandoned by their reader."""

from __future__ import annotations

import io
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bertsmith.cli.main import main
from bertsmith.core.errors import ExampleError
from bertsmith.recipes.predict import texts

SOURCE = Path(__file__).parents[2] / "src"
SCRIPT = """
import os, sys, warnings
from dataclasses import dataclass, field
from pathlib import Path
from bertsmith.cli.main import main
from bertsmith.cli.command import Command, Verb
from bertsmith.core.config import POSITIONAL, Config
from bertsmith.core.log import Table, console, progress, progress_of_several, say
from bertsmith.core.output import print_json, print_line, print_table

@dataclass(frozen=True, kw_only=True)
class TrainConfig(Config):
    bug: bool = False

@dataclass(frozen=True, kw_only=True)
class AnswerConfig(Config):
    kind: str = field(metadata=POSITIONAL)

def train(config) -> None:
    '''Show progress, and write a file in the end.'''
    for number in range(50):
        say("a line " * 40)
    with progress("reading", 10, "B") as bar:
        bar.note("x")
        bar.advance()
    with progress_of_several("two", 2) as bars:
        bars.move_to("one", 0.5)
    console.print(Table("a", "b"))
    warnings.warn("something", stacklevel=1)
    os.write(os.open("data", os.O_CREAT | os.O_WRONLY), b"data")
    assert not config.bug
    Path("done").write_text("done")

def answer(config) -> None:
    '''Print an answer.'''
    kind = config.kind
    if kind == "line":
        print_line("an answer")
    elif kind == "json":
        print_json({"an": "answer"})
    elif kind == "table":
        table = Table("a", "b")
        table.add_row("c", "d")
        print_table(table)
    else:
        sys.stdin.buffer.read()

commands = {
    "train": Command(lambda: Verb(TrainConfig, lambda: train), ("",)),
    "answer": Command(lambda: Verb(AnswerConfig, lambda: answer), ("",)),
}
sys.exit(main(None, commands))
"""


def run(arguments: str, place: Path, redirection: str = "") -> subprocess.CompletedProcess[str]:
    """A command in a shell, with its streams redirected."""
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "NAMED": SCRIPT}
    return subprocess.run(
        ["bash", "-c", f'"{sys.executable}" -c "$NAMED" {arguments} {redirection}'],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@contextmanager
def abandoned() -> Iterator[int]:
    """A pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    yield writing
    os.close(writing)


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full", "<&-", ">&-", "<&- >&- 2>&-"])
def test_a_run_needs_no_stream(redirection: str, tmp_path: Path) -> None:
    done = run("train", tmp_path, redirection)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "done").read_text() == "done"
    # a file that takes the place of a closed stream would be written to
    assert (tmp_path / "data").read_text() == "data"


class Endless(io.RawIOBase):
    """A line that does not end."""

    taken = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        buffer[:] = b"a" * len(buffer)
        self.taken += len(buffer)
        return len(buffer)


@pytest.mark.parametrize(("encoding", "unit"), [("auto", "bytes"), ("utf-16-le", "characters")])
def test_a_line_without_an_end(encoding: str, unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Endless()
    monkeypatch.setattr(texts, "MAX_LINE_LENGTH", 100_000)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(endless)))
    with pytest.raises(ExampleError, match=f"standard input:1: a line of over 100,000 {unit}; "):
        next(texts.standard_input(encoding))
    assert endless.taken < 500_000


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device")
def test_settings_without_an_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "s", "--out", "r", "--minutes", "1", "--config", "/dev/zero"]) == 2
    assert capsys.readouterr().err.startswith("bertsmith: /dev/zero: is over 1 MiB; ")


@pytest.mark.parametrize("arguments", ["train", "train --bug", "nonsense"])
def test_nobody_has_to_watch_a_run(arguments: str, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    with abandoned() as pipe:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *arguments.split()],
            cwd=tmp_path,
            env=environment,
            stderr=pipe,
            check=False,
        )
    assert done.returncode == {"train": 0, "train --bug": 1, "nonsense": 2}[arguments]
    assert (tmp_path / "done").exists() == (arguments == "train")


@pytest.mark.parametrize("kind", ["answer line", "answer json", "answer table", "--help"])
@pytest.mark.parametrize(
    ("redirection", "said"),
    [(">&-", "is closed"), (">/dev/full", "cannot be written: No space left on device")],
)
def test_answers_that_cannot_be_written_are_an_error(
    kind: str, redirection: str, said: str, tmp_path: Path
) -> None:
    done = run(kind, tmp_path, redirection)
    assert done.returncode == 2
    assert done.stderr.startswith(f"bertsmith: standard output: {said}; ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("kind", ["answer line", "answer table", "--help", "answer --help"])
def test_who_reads_answers_may_leave(kind: str, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    with abandoned() as pipe:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, *kind.split()],
            cwd=tmp_path,
            env=environment,
            stdout=pipe,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_bug_says_where_it_belongs_and_controls_no_terminal(tmp_path: Path) -> None:
    script = SCRIPT.replace("assert not config.bug", r"raise RuntimeError('\x1b[2J\u202e')")
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", script, "train"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "\x1b" not in done.stderr
    *_, error, last = done.stderr.splitlines()
    assert "Traceback (most recent call last):" in done.stderr
    assert error == r"RuntimeError: \x1b[2J\u202e"
    assert last.startswith("bertsmith: this is a bug in bertsmith itself: please report it")


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)]
)
@pytest.mark.parametrize("deaf", [False, True])
def test_requests_to_end(number: signal.Signals, status: int, deaf: bool, tmp_path: Path) -> None:
    script = SCRIPT.replace("assert not config.bug", f"os.kill(os.getpid(), {number:d})")
    # tests that run in the background are deaf to Ctrl-C
    hear = "" if number != signal.SIGINT else "signal.default_int_handler"
    handler = "signal.SIG_IGN" if deaf else hear
    before = f"import signal; signal.signal({number:d}, {handler}); " if handler else ""
    done = subprocess.run(
        [sys.executable, "-c", before + script.strip(), "train"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (0 if deaf else status), done.stderr
    assert (tmp_path / "done").exists() == deaf


def test_bars_on_a_terminal_and_one_that_hangs_up(tmp_path: Path) -> None:
    script = SCRIPT.replace('progress("reading"', r'progress("[/red]\x1b]0;x\x07"').replace(
        'bar.note("x")', r'bar.note("[link=x]\x1b]0;y\x07"); say("\x1b]0;z\x07\nFORGED")'
    )
    environment = os.environ | {"PYTHONPATH": str(SOURCE), "TERM": "xterm"}
    for hangs_up in (False, True):
        watched, terminal = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-c", script, "train"],
            cwd=tmp_path,
            env=environment,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        shown = b""
        while not hangs_up:
            try:
                shown += os.read(watched, 65536)
            except OSError:
                break
        os.close(watched)
        assert process.wait() == 0
        assert hangs_up or rb"\x1b]0;x\x07" in shown
        assert hangs_up or rb"\x1b]0;z\x07\nFORGED" in shown
        assert b"\x1b]0;" not in shown
