"""Writing to the disk: what it refuses is told in one line, and nothing half-written stays."""

from __future__ import annotations

import errno
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from bertsmith.errors import DiskError

_ELSEWHERE = "write elsewhere with --out"
_PERMISSION = "get permission"
_CURES = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room in your quota",
    errno.EFBIG: "allow larger files (ulimit -f)",
    errno.EROFS: "make the file system writable",
    errno.EACCES: _PERMISSION,
    errno.EPERM: _PERMISSION,
    errno.EEXIST: "",
    errno.ENOTEMPTY: "",
    errno.ELOOP: "",
    errno.ESTALE: "",
    errno.EMFILE: "allow more open files (ulimit -n)",
    errno.ENFILE: "close other programs: the machine has too many open files",
    errno.ENOTDIR: "",
    errno.EISDIR: "",
    errno.ENAMETOOLONG: "",
    errno.EIO: "",
}


def user_cache() -> Path | None:
    """Return the folder for what is safe to lose, which may not exist; None without a home.

    The environment variable BERTSMITH_CACHE names another one than the user's own.
    """
    if named := os.environ.get("BERTSMITH_CACHE"):
        return Path(named)
    with suppress(RuntimeError):
        match platform.system():
            case "Darwin":
                place = Path.home() / "Library" / "Caches"
            case "Windows":
                place = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
            case _:
                place = Path(os.environ.get("XDG_CACHE_HOME", ""))
                # what is relative is to be ignored (XDG Base Directory Specification)
                place = place if place.is_absolute() else Path.home() / ".cache"
        return place / "bertsmith"
    return None


def refused_by_disk(error: OSError) -> bool:
    """Whether it is the disk or its owner that refuses, rather than a mistake of ours."""
    return error.errno in _CURES


def was_deleted(error: OSError, where: str | Path) -> bool:
    """Return whether something in the folder of `where` was deleted while it was needed.

    A file that is missing anywhere else is a mistake of ours: it should have been looked for.
    """
    if error.errno != errno.ENOENT or error.filename is None:
        return False
    home = Path(os.path.realpath(where)).parent
    return Path(os.path.realpath(os.fsdecode(error.filename))).is_relative_to(home)


def disk_error(error: OSError, where: str | Path | None, *, then: str = "") -> DiskError:
    """What the disk refused, in one line; `then` says what to do once that is mended."""
    if error.errno == errno.ENOENT:
        what = "is gone: it was deleted while it was needed"
        remedy = then or "give the same command again"
        return DiskError(what, where=error.filename or where, remedy=remedy)
    cure = _CURES.get(error.errno or 0, "")
    if then:
        remedy = f"{cure or 'mend that'}, then {then}"
    else:
        remedy = f"{cure}, or {_ELSEWHERE}" if cure else _ELSEWHERE
    what = f"cannot be written: {error.strerror or error}"
    return DiskError(what, where=where, remedy=remedy)


@contextmanager
def writing(where: str | Path, *, then: str = "") -> Iterator[None]:
    """Turn what the disk refuses into a `DiskError` that names `where`."""
    try:
        yield
    except BrokenPipeError:
        raise
    except (OSError, DiskError) as error:
        refusal = error.__cause__ if isinstance(error, DiskError) else error
        if not isinstance(refusal, OSError):
            raise
        if not refused_by_disk(refusal) and not was_deleted(refusal, where):
            raise
        raise disk_error(refusal, where, then=then) from refusal


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """A folder to write in, made with all above it; of those made, the empty ones go again."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for path in missing:
            with suppress(OSError):
                path.rmdir()


def write_whole(file: FileIO, data: bytes | memoryview) -> None:
    """Write all of some bytes to an unbuffered file, which may take them bit by bit."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def flush_to_disk(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
