"""Writing a folder so that a reader finds the whole of it or none of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from bertsmith.errors import DiskError, ModelFolderError


@contextmanager
def new_folder(folder: Path, replaceable: Collection[str]) -> Iterator[Path]:
    """An empty folder to fill; it takes the name asked for once all that is in it is on the disk.

    A folder that already has the name is replaced if it holds nothing but `replaceable` files,
    `ModelFolderError` otherwise. Whatever fails, `DiskError` included, leaves it as it was.
    """
    folder = folder.resolve()
    _check_replaceable(folder, replaceable)
    fresh = folder.with_name(f".{folder.name}.saving")
    try:
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        yield fresh
        for path in fresh.iterdir():
            _flush(path)
        _flush(fresh)
        _exchange(fresh, folder)
        _flush(folder.parent)
    except OSError as error:
        what = error.strerror or str(error)
        raise DiskError(
            f"cannot be written: {what}", where=folder, remedy="make room or name another folder"
        ) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def set_aside(folder: Path) -> Path:
    """Where the predecessor of a folder is for the moment in which its successor moves in."""
    return folder.with_name(f".{folder.name}.replaced")


def _check_replaceable(folder: Path, replaceable: Collection[str]) -> None:
    if folder.exists() and not folder.is_dir():
        raise ModelFolderError("is a file", where=folder, remedy="name a folder")
    foreign = (
        sorted(
            path.name
            for path in folder.iterdir()
            if path.name not in replaceable or (path.is_dir() and not path.is_symlink())
        )
        if folder.is_dir()
        else []
    )
    if foreign:
        raise ModelFolderError(
            f"would be replaced, but holds {foreign[0]!r}, which is no part of a model",
            where=folder,
            remedy="name another folder",
        )


def _exchange(fresh: Path, folder: Path) -> None:
    aside = set_aside(folder)
    if folder.exists():
        shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)
    try:
        fresh.rename(folder)
    except BaseException:
        if aside.exists():
            aside.rename(folder)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
