"""Writing a folder so that a reader finds the whole of it or none of it."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from bertsmith.disk import disk_error, flush_to_disk, made_folder
from bertsmith.errors import DiskError, ModelFolderError


@contextmanager
def replaced_folder(folder: Path, replaceable: Collection[str]) -> Iterator[Path]:
    """An empty folder to fill; it takes the name asked for once all that is in it is on the disk.

    A folder that already has the name is replaced if it holds nothing but `replaceable` files,
    `ModelFolderError` otherwise. Whatever fails, `DiskError` included, leaves it as it was.
    """
    final = folder.resolve()
    _check_replaceable(final, replaceable)
    fresh = final.with_name(f".{final.name}.saving")
    try:
        with made_folder(final.parent), _removed(fresh):
            fresh.mkdir()
            yield fresh
            for path in (*fresh.iterdir(), fresh):
                flush_to_disk(path)
            _exchange(fresh, final)
            flush_to_disk(final.parent)
    except (OSError, DiskError) as error:
        refusal = error.__cause__ if isinstance(error, DiskError) else error
        assert isinstance(refusal, OSError)
        raise disk_error(refusal, folder) from refusal


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


@contextmanager
def _removed(folder: Path) -> Iterator[None]:
    """Without what an earlier attempt left in a folder's place, and leaving nothing there."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
