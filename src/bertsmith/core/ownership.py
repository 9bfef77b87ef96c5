"""One owner at a time: a lock that names who holds it.

The kernel's lock on a file is the truth on one machine: it is gone as soon as its owner is, however
that ended. A file that was not deleted then is no more than a trace, and is taken over. Whether a
disk that several machines share passes locks on, nobody can know; so an owner shows a sign of life
now and then, by the time of the file, and one on another machine counts as gone only when it has
shown none for a while.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import platform
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from bertsmith.core.config import Config
from bertsmith.core.errors import ConfigError, DiskError, OutputTaken, RunFolderError, UserError
from bertsmith.core.files import (
    canonical,
    created_folder,
    flush_all,
    flush_to_disk,
    parse_json,
    replaced_file,
    writing,
)
from bertsmith.core.log import say

try:
    import fcntl
except ImportError as lacking:
    raise ConfigError(
        "this system has no locks of files (fcntl), by which outputs have one owner",
        remedy="use Linux, on Windows the subsystem for Linux (WSL)",
    ) from lacking

_BEAT = 15.0
_GONE = 4 * _BEAT
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
# a link could lead to another file, which would be overwritten
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, kw_only=True)
class Owner(Config):
    """A process that owns something."""

    host: str
    """Name of its machine."""
    pid: int
    """Its number there."""
    since: str
    """Time at which it became the owner."""
    boot: str
    """Identifier of this boot of that machine, where there is one."""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


@contextmanager
def owned(lock: Path, *, of: Path, error: type[UserError] = RunFolderError) -> Iterator[None]:
    """Hold a lock file, which is deleted afterwards; `of` is what it is the lock of.

    Raises `error`, which names the owner, when another process holds it; `DiskError`.
    """
    # a user knows nothing of a lock that could not be made
    with writing(lock if os.path.lexists(lock) else of):
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | _NO_LINK, 0o666)
    try:
        earlier_owner = _read(handle)
        has_locks = _try_lock(handle)
        if has_locks is False or not _is_named(handle, lock):
            raise _in_use(of, error, earlier_owner or _read(handle))
        _check_stale(handle, of, error, earlier_owner, locked=bool(has_locks))
        ended = threading.Event()
        beating = threading.Thread(target=_heartbeat, args=(handle, ended), daemon=True)
        try:
            with suppress(OSError):  # the lock holds all the same where a full disk takes no name
                os.ftruncate(handle, 0)
                os.pwrite(handle, (json.dumps(_this_process().to_dict()) + "\n").encode(), 0)
            beating.start()
            yield
        finally:
            ended.set()
            try:
                if beating.is_alive():
                    beating.join()
            finally:
                # after a second interruption too; a disk that can only be read by now keeps it: it
                # is no more than a trace then
                with suppress(OSError):
                    if _is_named(handle, lock):
                        lock.unlink()
    finally:
        os.close(handle)


def _try_lock(handle: int) -> bool | None:
    """Return whether the kernel gives this process the lock, None on a disk without locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        return None
    return True


def _is_named(handle: int, lock: Path) -> bool:
    """Return whether an open lock file still has its name.

    An owner that has just gone took the file with it, and another may have a new one.
    """
    with suppress(FileNotFoundError):
        return os.path.samestat(lock.stat(), os.fstat(handle))
    return False


def _check_stale(
    handle: int, of: Path, error: type[UserError], owner: Owner | None, *, locked: bool
) -> None:
    """Report an owner that has left its lock; refuse if it may be alive.

    Where the kernel has `locked` the file for this process, no owner on this machine is alive.
    """
    if owner is None:
        return
    this_process = _this_process()
    elsewhere = owner.boot != this_process.boot and owner.host != this_process.host
    if elsewhere or not (locked or _has_ended(owner, this_process)):
        shown = os.fstat(handle).st_mtime
        os.utime(handle)  # the disk's own clock, not that of either machine
        silent = os.fstat(handle).st_mtime - shown
        if silent < _GONE:
            os.utime(handle, (shown, shown))
            remark = f"its last heartbeat was {silent:.0f} s ago; "
            raise _in_use(of, error, owner, remark)
    say(f"{of}: was left by {owner}; taken over")


def _has_ended(owner: Owner, this_process: Owner) -> bool:
    """Return whether a process of this machine is known to have ended, without its lock."""
    if owner.boot != this_process.boot:
        return True
    try:
        # of another container, it has a number that is not seen here
        if owner.host == this_process.host:
            os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        # another user's, or no number of a process
        pass
    return False


def _in_use(of: Path, error: type[UserError], owner: Owner | None, remark: str = "") -> UserError:
    return error(
        f"is in use by {owner or 'another process'}",
        where=of,
        remedy=f"{remark}wait for it, stop it, or choose another --out",
    )


def _this_process() -> Owner:
    boot = ""
    with suppress(OSError):
        boot = _BOOT.read_text(encoding="ascii").strip()
    since = datetime.now(UTC).isoformat(" ", "seconds")
    return Owner(host=platform.node(), pid=os.getpid(), since=since, boot=boot)


def _read(handle: int) -> Owner | None:
    """Return the content of a lock file, None if nothing in it can be read."""
    try:
        return Owner.from_dict(parse_json(os.pread(handle, 4096, 0)))
    except (OSError, ValueError, TypeError, AttributeError, ConfigError):
        return None


def _heartbeat(handle: int, ended: threading.Event) -> None:
    while not ended.wait(_BEAT):
        with suppress(OSError):
            os.utime(handle)


Purpose = Literal["partial", "staging"]

_held: set[Path] = set()


@contextmanager
def claimed(out: Path, *, shown: Path | None = None) -> Iterator[None]:
    """Hold the right to write a file or folder, whose parent must be there.

    What processes that were killed have left of it is deleted first. A process that holds it
    already keeps it. Raises `OutputTaken`, which names `shown` where that is given, when
    another one holds it; `DiskError`.
    """
    final = _final(out)
    if final in _held:
        yield
        return
    lock = final.with_name(f".{final.name}.lock")
    _check_lock(lock)
    with owned(lock, of=shown or out, error=OutputTaken):
        _held.add(final)
        try:
            _sweep(final)
            yield
        finally:
            _held.discard(final)


def temporary_path(out: Path, purpose: Purpose = "partial") -> Path:
    """Return the name under which this process makes what will be `out`."""
    final = _final(out)
    return final.with_name(f".{final.name}.{purpose}-{os.getpid()}")


@contextmanager
def claimed_output(out: Path) -> Iterator[None]:
    """Hold the right to write an output while it is worked for, not only while it is written.

    Its folder is made, and removed again if it stays empty. Raises `OutputTaken`, `DiskError`.
    """
    with created_folder(out.parent), claimed(out):
        yield


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a name to write a file under, which replaces `path` at the end.

    Raises `OutputTaken` when another process is writing it; `DiskError`.
    """
    with writing(path), claimed(path), replaced_file(path, temporary_path(path)) as part:
        yield part


@contextmanager
def new_folder(folder: Path, *, replaces: Callable[[Path], None] | None = None) -> Iterator[Path]:
    """Yield an empty folder to fill; it takes the final name once all of it is on the disk.

    The name must be free, or that of an empty folder, or of one to replace: `replaces` is called
    with it and raises an error if it must not be. A failure leaves the old folder as it was. Raises
    `OutputTaken` when another process is writing it; what the disk refuses is a `DiskError`.
    """
    final = canonical(folder)
    fresh = temporary_path(final)
    with writing(folder), created_folder(final.parent), claimed(final, shown=folder):
        if replaces is not None:
            replaces(final)
        try:
            fresh.mkdir()
            yield fresh
            flush_all(fresh)
            with _set_aside(final) if replaces is not None else nullcontext():
                fresh.rename(final)
            flush_to_disk(final.parent)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def aside_path(folder: Path) -> Path:
    """Return the place of a folder's predecessor while its successor moves in."""
    return folder.with_name(f".{folder.name}.replaced")


@contextmanager
def _set_aside(folder: Path) -> Iterator[None]:
    """Move a folder out of the way of its successor, and back if that fails."""
    aside = aside_path(folder)
    if folder.exists():
        shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)
    try:
        yield
    except BaseException:
        if aside.exists():
            aside.rename(folder)
        raise
    shutil.rmtree(aside, ignore_errors=True)


@contextmanager
def staging_folder(out: Path) -> Iterator[Path]:
    """Yield an empty folder beside an output that this process has claimed, deleted afterwards."""
    folder = temporary_path(out, "staging")
    with writing(out):
        folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _final(out: Path) -> Path:
    """Return the canonical path of an output, whatever path leads to its folder."""
    return canonical(out.parent) / (out.name or canonical(out).name)


def _check_lock(lock: Path) -> None:
    """Raise `DiskError` where what has the lock's name is no lock, but a user's."""
    if not os.path.lexists(lock):
        return
    with suppress(FileNotFoundError), writing(lock):
        if lock.is_symlink() or not lock.is_file():
            if not os.path.lexists(lock):
                return
        else:
            with lock.open("rb") as file:
                begin = file.read(8)
            if begin in (b"", b'{"host":'):
                return
        raise DiskError("is not a lock of bertsmith", where=lock, remedy="move it away")


def _sweep(final: Path) -> None:
    """Delete what other processes have left unfinished."""
    name = re.compile(rf"\.{re.escape(final.name)}\.(partial|staging)-\d+")
    for path in final.parent.glob(f".{glob.escape(final.name)}.*-*"):
        if not name.fullmatch(path.name):
            continue
        with suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
