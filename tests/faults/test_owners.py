"""Two processes and one run folder: the second leaves at once and says who is there."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bertsmith.core.errors import RunFolderError
from bertsmith.training.run_folder import RunFolder
from faults.shell import Shell

HOLD = """
import sys
from pathlib import Path
from bertsmith.training.run_folder import RunFolder
with RunFolder(Path(sys.argv[1])).owned():
    print("mine", flush=True)
    sys.stdin.read()
"""


@contextmanager
def owner(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that owns a run folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "mine\n"
    try:
        yield process
    finally:
        process.communicate()


def test_the_second_names_the_first(shell: Shell) -> None:
    command = "pretrain {store} --out run --model tiny --steps 1 --tokens-per-batch 320"
    with owner(Path("run")) as process:
        line = shell.refused(command)
        assert line.startswith(
            f"bertsmith: run: is in use by process {process.pid} on {platform.node()} since 20"
        )
        assert line.endswith("; wait for it, stop it, or choose another --out")
    assert shell.run(command)[0] == 0


def test_a_lock_that_was_left_is_taken_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    with owner(folder) as process:
        process.kill()
        process.wait()
        assert (folder / ".lock").exists()
        with RunFolder(folder).owned():
            found = json.loads((folder / ".lock").read_text(encoding="utf-8"))
            assert found["pid"] == os.getpid()
        told = " ".join(capsys.readouterr().err.split())
        assert f"was left by process {process.pid} on {platform.node()} since 20" in told
        assert told.endswith("; taken over")
    assert not (folder / ".lock").exists()


def left(folder: Path, **changes: str) -> None:
    """A lock of which the kernel knows nothing any more."""
    with RunFolder(folder).owned():
        lock = json.loads((folder / ".lock").read_text(encoding="utf-8"))
    folder.mkdir(exist_ok=True)
    (folder / ".lock").write_text(json.dumps(lock | changes), encoding="utf-8")


@pytest.mark.parametrize(
    "changes",
    [{"boot": "an earlier one"}, {"host": "another container of this machine"}],
)
def test_what_this_machine_can_know_to_be_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, str]
) -> None:
    left(tmp_path, **changes)
    with RunFolder(tmp_path).owned():
        pass
    assert "taken over" in capsys.readouterr().err


def test_an_owner_elsewhere_is_gone_when_it_has_shown_no_sign_of_life(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    left(tmp_path, host="elsewhere", boot="another")
    lock = tmp_path / ".lock"
    before, utime = lock.stat(), os.utime

    def on_its_clock(path: Path | int, times: tuple[float, float] | None = None) -> None:
        """The disk's own clock stands still."""
        utime(path, times or (before.st_atime, before.st_mtime))

    monkeypatch.setattr(os, "utime", on_its_clock)
    os.utime(lock, (before.st_atime, before.st_mtime - 20))
    shown = lock.stat().st_mtime_ns
    with pytest.raises(RunFolderError) as refused, RunFolder(tmp_path).owned():
        pass
    assert "is in use by process" in str(refused.value)
    assert "on elsewhere since 20" in str(refused.value)
    assert "its last sign of life was 20 s ago; wait for it" in str(refused.value)
    assert lock.stat().st_mtime_ns == pytest.approx(shown, abs=1e6)  # asking is no sign of life
    os.utime(lock, (before.st_atime, before.st_mtime - 61))
    with RunFolder(tmp_path).owned():
        pass
    assert "was left by process" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', "\0" * 99])
def test_a_lock_that_says_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / ".lock").write_text(content, encoding="utf-8")
    with RunFolder(tmp_path).owned():
        pass
    assert not (tmp_path / ".lock").exists()
