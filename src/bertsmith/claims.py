"""An output is written by one process at a time, and what a killed one left of it is swept.

    .NAME.lock            held by the process that writes the file or folder NAME beside it
    .NAME.partial-PID     what it has written so far
    .NAME.staging-PID     what it needs meanwhile

Whoever holds the lock knows that nobody else is writing NAME: other processes' unfinished files are
then left from ones that were killed.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal

from bertsmith.disk import flush_to_disk, made_folder, writing
from bertsmith.errors import DiskError, OutputTaken
from bertsmith.ownership import owned

Purpose = Literal["partial", "staging"]

_held: set[Path] = set()


@contextmanager
def claimed(out: Path, *, shown: Path | None = None) -> Iterator[None]:
    """Hold the right to write a file or folder, whose parent must be there.

    What processes that were killed have left of it is deleted first. A process that holds it
    already goes on holding it. Raises `OutputTaken`, which names `shown` where that is given, when
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


def unfinished(out: Path, purpose: Purpose = "partial") -> Path:
    """Return the name under which this process makes what will be `out`."""
    final = _final(out)
    return final.with_name(f".{final.name}.{purpose}-{os.getpid()}")


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """An empty folder to fill; it takes the name asked for once all of it is on the disk.

    The name must be free, or that of an empty folder. Whatever fails leaves nothing. Raises
    `OutputTaken` when another process is writing it; what the disk refuses is a `DiskError`.
    """
    final = folder.resolve()
    fresh = unfinished(final)
    with writing(folder), made_folder(final.parent), claimed(final, shown=folder):
        try:
            fresh.mkdir()
            yield fresh
            for path in (*fresh.rglob("*"), fresh):
                flush_to_disk(path)
            fresh.rename(final)
            flush_to_disk(final.parent)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


@contextmanager
def staging_folder(out: Path) -> Iterator[Path]:
    """An empty folder beside an output that this process has claimed, deleted in the end."""
    folder = unfinished(out, "staging")
    with writing(out):
        folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _final(out: Path) -> Path:
    """The output by one name, whatever path leads to its folder."""
    return out.parent.resolve() / (out.name or out.resolve().name)


def _check_lock(lock: Path) -> None:
    """Raise `DiskError` where what has the lock's name is no lock, but a user's."""
    with suppress(FileNotFoundError), writing(lock):
        if lock.is_symlink() or not lock.is_file():
            if not os.path.lexists(lock):
                return
        else:
            with lock.open("rb") as file:
                begin = file.read(8)
            if begin in (b"", b'{"host":'):
                return
        raise DiskError("is no lock of bertsmith", where=lock, remedy="move it away")


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
