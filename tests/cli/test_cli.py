"""The shell around the verbs: exit statuses, one-line complaints, and help for every verb."""

from __future__ import annotations

import dataclasses
import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch

from bertsmith import __version__
from bertsmith.cli.command import Command
from bertsmith.cli.commands import COMMANDS
from bertsmith.cli.main import main
from bertsmith.core import processors
from bertsmith.core.config import POSITIONAL, Config
from bertsmith.core.errors import CorpusError
from bertsmith.core.options import options_of
from bertsmith.core.processors import THREAD_SETTINGS
from bertsmith.network.torch_state import threads_of_torch
from verbs import command_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Doing(Config):
    """What to do."""

    problem: str = dataclasses.field(metadata=POSITIONAL)
    """how it ends"""
    place: Path | None = None
    """where"""


def do(doing: Doing) -> None:  # noqa: PLR0912
    """Do something that ends in a certain way."""
    match doing.problem:
        case "print":
            print("done")
        case "mistake":
            raise CorpusError("no text in it", where="a.txt", line=3, remedy="add some")
        case "interrupt":
            raise KeyboardInterrupt
        case "interrupt training":
            raise KeyboardInterrupt("stopped at step 7; go on with: bertsmith pretrain --out run")
        case "interrupt in vain":
            try:
                raise KeyboardInterrupt
            finally:
                raise RuntimeError("trying to pop from empty mode stack")
        case "memory":
            raise MemoryError
        case "torch memory":
            torch.empty(10**15)
        case "numpy memory":
            np.empty(10**15)
        case "GPU memory":
            # what torch raises where there is a GPU
            raise torch.OutOfMemoryError(
                "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of ..."
            )
        case "threads":
            try:
                # what Python raises
                raise RuntimeError("can't start new thread")
            finally:
                raise RuntimeError("cannot join thread before it is started")
        case "processes":
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        case "library":
            # what Python raises where the memory for it is refused
            raise ImportError("libtorch_cpu.so: failed to map segment from shared object")
        case "temporary folder" | "folder of matplotlib":
            with (
                patch("tempfile._candidate_tempdir_list", lambda: ["/nowhere", "/proc"]),
                patch("tempfile.tempdir", None),
            ):
                try:
                    tempfile.gettempdir()
                except OSError as error:
                    if doing.problem == "temporary folder":
                        raise
                    raise OSError("Matplotlib requires access to a writable cache") from error
        case "bug":
            raise ZeroDivisionError
        case "missing":
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", "b.txt")
        case _:
            number = getattr(errno, doing.problem)
            raise OSError(number, os.strerror(number), "run/model")


FAKES = {"do it": command_of(Doing, do, ("print",))}


def run(*arguments: str) -> int:
    return main(arguments, FAKES)


def test_a_verb_of_two_words_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("do", "it", "print") == 0
    assert capsys.readouterr() == ("done\n", "")


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        ("do it mistake", 2, "bertsmith: a.txt:3: no text in it; add some\n"),
        ("do it", 2, "bertsmith: missing: PROBLEM; see: bertsmith do it --help\n"),
        ("do", 2, "bertsmith: there is no verb 'do'; the verbs are: do it\n"),
        ("paint", 2, "bertsmith: there is no verb 'paint'; the verbs are: do it\n"),
        ("doit print", 2, "bertsmith: there is no verb 'doit'; did you mean do it?\n"),
        ("--hlep", 2, "bertsmith: there is no verb '--hlep'; did you mean --help?\n"),
        ("do it print --hlep", 2, "bertsmith: there is no option --hlep; did you mean --help?\n"),
        ("do is print", 2, "bertsmith: there is no verb 'do'; the verbs are: do it\n"),
        ("do it interrupt", 130, "bertsmith: interrupted\n"),
        ("do it interrupt_in_vain", 130, "bertsmith: interrupted\n"),
    ],
)
def test_mistakes_end_in_one_line(
    arguments: str, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*(part.replace("_", " ") for part in arguments.split())) == status
    assert capsys.readouterr() == ("", line)


@pytest.mark.parametrize("kind", ["ENOSPC", "EDQUOT", "EROFS", "EACCES", "ENOTDIR"])
def test_a_disk_that_refuses_is_no_bug(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("do", "it", kind) == 2
    reason = os.strerror(getattr(errno, kind))
    said = capsys.readouterr().err
    assert said.startswith(f"bertsmith: run/model: {reason}; ")
    assert said.count("\n") == 1
    # what was perhaps to be read cannot be written elsewhere
    assert ("--out" in said) == (kind in ("ENOSPC", "EDQUOT", "EROFS"))


def test_a_working_folder_that_was_deleted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The library of matrix products ended the process, and said that torch could not be loaded."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert run("do", "it", "print") == 2
    said = "bertsmith: the working folder: has been deleted; cd to another one\n"
    assert capsys.readouterr() == ("", said)
    assert run("--version") == 0


@pytest.mark.parametrize("kind", ["memory", "torch memory", "numpy memory", "GPU memory"])
def test_too_little_memory_is_no_bug(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("do", "it", kind) == 2
    said = capsys.readouterr().err
    of = "GPU memory for 20.00 GiB more" if kind == "GPU memory" else "memory"
    assert said.startswith(f"bertsmith: not enough {of}")
    assert "; keep fewer tokens in memory at once" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_too_many_processes_are_no_bug(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("do", "it", kind) == 2
    said = capsys.readouterr().err
    assert said.startswith("bertsmith: the system starts no more threads or processes; allow more")
    assert said.count("\n") == 1


def test_memory_that_is_too_little_for_a_library_is_no_bug(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("do", "it", "library") == 2
    said = capsys.readouterr().err
    assert said == (
        "bertsmith: a library cannot be loaded: libtorch_cpu.so: failed to map segment from "
        "shared object; allow more memory (ulimit -v), or install bertsmith on a disk that is "
        "mounted without noexec\n"
    )


@pytest.mark.parametrize("kind", ["temporary folder", "folder of matplotlib"])
def test_a_system_without_a_temporary_folder_is_no_bug(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Torch's compiler asks for one, in a container that can only be read too."""
    assert run("do", "it", kind) == 2
    said = capsys.readouterr().err
    assert said == (
        "bertsmith: temporary files can be written to none of '/nowhere', '/proc'; make room in "
        "one of them, or set TMPDIR to a folder that can be written\n"
    )


def test_who_interrupts_training_is_told_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("do", "it", "interrupt training") == 130
    said = capsys.readouterr().err
    assert said == "bertsmith: stopped at step 7; go on with: bertsmith pretrain --out run\n"


def test_a_run_that_goes_on_takes_no_settings(capsys: pytest.CaptureFixture[str]) -> None:
    for options in (["--minutes", "3"], ["--steps", "9"], ["--seed", "4"]):
        assert main(["pretrain", "--out", "run", *options]) == 2
        assert "a resumed run keeps its settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "error"), [("bug", ZeroDivisionError), ("missing", FileNotFoundError)]
)
def test_bugs_are_not_hidden(kind: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        run("do", "it", kind)


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    assert "do it  Do something" in capsys.readouterr().out
    assert run("--version") == 0
    assert capsys.readouterr().out == f"bertsmith {__version__}\n"
    assert run() == 2
    output, complaint = capsys.readouterr()
    assert output == ""
    assert "usage:" in complaint


@pytest.mark.parametrize("arguments", ["help do it", "help do", "do --help", "do -h"])
def test_help_is_found_by_other_ways(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main(arguments.split(), {**FAKES, "paint": FAKES["do it"]})
    except SystemExit as end:
        status = end.code  # type: ignore[assignment]
    shown = capsys.readouterr().out
    assert status == 0
    assert ("PROBLEM" in shown) == (arguments == "help do it")
    assert "bertsmith do it" in shown
    assert "bertsmith paint" not in shown


@pytest.mark.parametrize("name", COMMANDS)
def test_every_verb_explains_all_its_arguments(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*name.split(), "--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    verb = COMMANDS[name]
    if isinstance(verb, Command):
        for option in options_of(verb.config).values():
            assert f"\n  {option.shown}" in shown
            assert option.explanation, option
            if option.positional:
                # also where a group beside those of the verb has it
                assert [line.split()[:1] for line in shown.split("\n")].count([option.shown]) == 1
    # an argument without an explanation has nothing behind it, neither here nor on the next line
    lines = shown[shown.index("options:") :].splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("  --"):
            assert "  " in line.strip() or following.startswith(" " * 20), line
    assert f"examples:\n  bertsmith {name}" in shown


HELP = """
import sys
from bertsmith.cli.main import main
for arguments in (["--help"], ["finetune", "--help"]):
    try:
        main(arguments)
    except SystemExit:
        pass
"""


def test_help_is_the_same_where_python_leaves_docstrings_out() -> None:
    shown = [
        subprocess.run([sys.executable, *options, "-c", HELP], capture_output=True, check=True)
        for options in ([], ["-OO"])
    ]
    assert shown[0].stdout == shown[1].stdout


def test_a_reader_that_leaves_is_no_error() -> None:
    script = "import sys; from bertsmith.cli.main import main; sys.exit(main(['--help']))"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", script],
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
        text=True,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


WITHOUT_SEMAPHORES = """
import _multiprocessing, errno, os, sys

def refuse(*arguments, **options):
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))

_multiprocessing.SemLock = refuse

from bertsmith.cli import main

def run(arguments, commands, *, program):
    import joblib

    return 0

main._run = run
sys.exit(main.main())
"""


def test_a_system_without_semaphores_needs_no_warning_of_scikit_learn() -> None:
    # it is joblib that warns, which scikit-learn imports
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SEMAPHORES], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("setting", "threads"), [("", 1), ("2", 2)])
def test_torch_has_no_more_threads_than_a_container_has_processors(
    setting: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch asks for the processors of the machine; a number that the user has set is kept."""
    used: list[int] = []

    def work(doing: Doing) -> None:
        used.append(torch.get_num_threads())

    monkeypatch.setattr(processors, "processor_quota", lambda: 0.5)
    for name in THREAD_SETTINGS:
        monkeypatch.setenv(name, setting)
    monkeypatch.setattr(sys, "argv", ["bertsmith", "work", "now"])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    commands = {"work": command_of(Doing, work, ())}
    with threads_of_torch(2):
        assert main(commands=commands) == 0
    assert used == [threads]
