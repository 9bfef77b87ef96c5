"""Ctrl-C and a request to terminate: one line, nothing half-written, and no process left behind."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bertsmith.cli.main import main
from forking import Forked

COMMAND = (sys.executable, "-m", "bertsmith")
STARTING = (sys.executable, str(Path(__file__).with_name("starting.py")))
HELD = (sys.executable, str(Path(__file__).with_name("holding.py")))
# seconds after which something that has to happen never will, on a busy machine too
PATIENCE = 300
TEXT = "gabo dela kuri moti. " * 50


@contextmanager
def started(
    *arguments: str, place: Path, program: tuple[str, ...] = COMMAND
) -> Iterator[subprocess.Popen[str]]:
    """A command in a session of its own, as a terminal would start it."""
    # tests that run in the background are deaf to Ctrl-C, and so would be what they start
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = Forked[str](
        [*program, *arguments],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    signal.signal(signal.SIGINT, before)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_until(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    for _ in range(20 * PATIENCE):
        if happened():
            return
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
        assert process.poll() is None, process.stderr and process.stderr.read()
    raise AssertionError("nothing has happened for minutes")


def interrupted(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    """Exit status and standard error after a signal to the command and all its processes."""
    os.killpg(process.pid, number)
    # the pipe ends when the last of them has ended
    _, told = process.communicate(timeout=PATIENCE)
    return process.returncode, told


def test_pretraining_says_how_to_go_on_and_does(
    shared: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    log = tmp_path / "run" / "log.jsonl"
    settings = "--model tiny --steps 24 --log-every 1 --tokens-per-batch 320"
    command = f"pretrain {shared['store']} --out run {settings}"
    with started(*command.split(), place=tmp_path, program=(*HELD, "12")) as process:
        wait_until((tmp_path / "held-0").exists, process)
        status, told = interrupted(process, signal.SIGINT)
    assert status == 130
    line = told.splitlines()[-1]
    said, _, command = line.partition("; to resume: bertsmith ")
    # the step that was begun is finished
    assert said == "bertsmith: stopped after step 12, saved"
    monkeypatch.chdir(tmp_path)
    assert main(shlex.split(command)) == 0
    assert "resuming the run in run" in capsys.readouterr().err
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    steps = [line["step"] for line in lines if "rate" in line]
    assert sum("held_out_masked_lm_loss" in line for line in lines) == 10
    assert steps == list(range(1, 25))
    assert json.loads((tmp_path / "run/result.json").read_text())["state"]["step"] == 24
    assert (tmp_path / "run/model/model.safetensors").exists()


@pytest.mark.parametrize(
    ("verb", "workers"), [("vocab learn", None), ("prepare", 1), ("prepare", 2)]
)
@pytest.mark.parametrize(
    ("number", "status", "said"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_reading_a_corpus(
    shared: dict[str, str],
    tmp_path: Path,
    verb: str,
    workers: int | None,
    number: signal.Signals,
    status: int,
    said: str,
) -> None:
    os.mkfifo(tmp_path / "a.txt")  # a corpus that never ends
    arguments = [*verb.split(), "a.txt", "--out", "below/made", "--layout", "documents"]
    if workers:
        arguments += ["--vocab", shared["vocab"], "--workers", str(workers)]
    with started(*arguments, place=tmp_path) as process, (tmp_path / "a.txt").open("w") as corpus:
        # what has been taken is several groups by then: the processes that encode are starting
        for document in range(3000):
            corpus.write(f"{document} {TEXT}\n\n")
        corpus.flush()
        assert interrupted(process, number) == (status, f"bertsmith: {said}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("verb", ["prepare", "demo"])
def test_while_processes_are_started(shared: dict[str, str], tmp_path: Path, verb: str) -> None:
    (tmp_path / "a.txt").write_text(f"{TEXT}\n\n" * 3, encoding="utf-8")
    arguments = ["a.txt", "--vocab", shared["vocab"], "--workers", "2"] if verb == "prepare" else []
    with started(verb, *arguments, "--out", "made", place=tmp_path, program=STARTING) as process:
        _, told = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert told.splitlines()[-1] == "bertsmith: interrupted"
    assert "Traceback" not in told
