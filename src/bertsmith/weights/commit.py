"""Writing a folder so that a reader finds the whole of it or none of it."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from bertsmith.claims import claimed, unfinished
from bertsmith.disk import flush_to_disk, made_folder, writing
from bertsmith.errors import ModelFolderError


@contextmanager
def replaced_folder(folder: Path, replaceable: Collection[str]) -> Iterator[Path]:
    """An empty folder to fill; it takes the name asked for once all that is in it is on the disk.

    A folder that already has the name is replaced if it holds nothing but `replaceable` files,
    `ModelFolderError` otherwise, `OutputTaken` if another process is writing it. Whatever fails,
    `DiskError` included, leaves it as it was.
    """
    final, fresh = folder.resolve(), unfinished(folder.resolve())
    with writing(folder), made_folder(final.parent), claimed(final, shown=folder):
        _check_replaceable(final, replaceable)
        try:
            fresh.mkdir()
            yield fresh
            for path in (*fresh.iterdir(), fresh):
                flush_to_disk(path)
            _exchange(fresh, final)
            flush_to_disk(final.parent)
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
