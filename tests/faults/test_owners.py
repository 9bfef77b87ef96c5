"""Two processes and one run folder: the second leaves at once and says who is there."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bertsmith.core import ownership
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
    assert "its last heartbeat was 20 s ago; wait for it" in str(refused.value)
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


def test_those_who_share_a_folder_may_take_over_its_lock(tmp_path: Path) -> None:
    """Like all other files of the run: a group that may write, by the umask, may write it too."""
    umask = os.umask(0o002)
    try:
        with RunFolder(tmp_path).owned():
            assert (tmp_path / ".lock").stat().st_mode & 0o777 == 0o664
    finally:
        os.umask(umask)


def test_an_owner_shows_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them, another machine takes the folder of a run that goes on."""
    shown, alive = set[int](), threading.Event()

    def show(handle: int) -> None:
        shown.add(os.fstat(handle).st_ino)
        alive.set()

    monkeypatch.setattr(ownership, "_BEAT", 0.001)
    monkeypatch.setattr(os, "utime", show)
    with RunFolder(tmp_path).owned():
        assert alive.wait(60)
        assert shown == {(tmp_path / ".lock").stat().st_ino}


def test_the_lock_of_an_owner_that_has_just_gone_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third process has a new one of that name, and both would own the folder."""
    lock, flock = tmp_path / ".lock", fcntl.flock

    def gone(handle: int, kind: int) -> None:
        lock.unlink()
        flock(handle, kind)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", gone)
        with pytest.raises(RunFolderError, match="is in use by"), RunFolder(tmp_path).owned():
            pass
    with RunFolder(tmp_path).owned():
        lock.unlink()
        lock.write_text("another one's", encoding="utf-8")
    assert lock.read_text(encoding="utf-8") == "another one's"


def test_one_owner_at_a_time_on_a_disk_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_locks(handle: int, kind: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", without_locks)
    with (
        RunFolder(tmp_path).owned(),
        pytest.raises(RunFolderError, match=f"is in use by process {os.getpid()} on"),
        RunFolder(tmp_path).owned(),
    ):
        pass
    with owner(tmp_path) as process:
        process.kill()
        process.wait()
    with RunFolder(tmp_path).owned():
        assert f"was left by process {process.pid}" in " ".join(capsys.readouterr().err.split())


def test_who_owns_nothing_any_more_shows_no_sign_of_life(tmp_path: Path) -> None:
    """Its file is closed, and the number may be that of another file."""
    before = threading.active_count()
    with ownership.owned(tmp_path / "lock", of=tmp_path):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before


@pytest.mark.parametrize("step", ["start", "join"])
def test_an_interruption_at_the_lock_leaves_no_file(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first Ctrl-C may come when a lock was just taken, the second when it is given back."""
    plain = getattr(threading.Thread, step)

    def interrupted(thread: threading.Thread) -> None:
        plain(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, step, interrupted)
    with (
        pytest.raises(KeyboardInterrupt),
        ownership.owned(tmp_path / ".o.lock", of=tmp_path / "o"),
    ):
        pass
    assert list(tmp_path.iterdir()) == []
