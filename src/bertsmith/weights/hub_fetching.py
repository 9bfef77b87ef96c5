"""Bringing files of one commit into the hub's cache: going on where it broke off, and checked.

A client of today goes on by itself, as long as it runs, and keeps nothing of a file that it could
not finish. Older ones leave a part behind, from which the next attempt goes on.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from bertsmith.errors import HubError
from bertsmith.log import Bar
from bertsmith.weights.hub_client import HubUnreachable, hub_api, talking

_BLOCK = 4 << 20
_LOOK_EVERY = 0.2  # seconds


class RemoteFile(NamedTuple):
    """What the hub tells of a file: its hash is SHA-256 if it is `large`, else that of git."""

    name: str
    size: int
    hash: str
    large: bool

    @classmethod
    def of(cls, told: Any) -> RemoteFile:  # noqa: ANN401
        """From the client's listing."""
        if told.lfs is not None:
            return cls(str(told.rfilename), int(told.lfs.size), str(told.lfs.sha256), True)
        return cls(str(told.rfilename), int(told.size), str(told.blob_id), False)


def fetch(what: str, repository: str, commit: str, files: Sequence[RemoteFile], bar: Bar) -> None:
    """Bring all files into the cache; raises `HubError` about `what`, or `DiskError`."""
    done = 0
    for file in files:
        path = _fetched(what, repository, commit, file, bar, done)
        if _hash_of(path, file) != file.hash:
            path.resolve().unlink()
            path.unlink()
            raise HubError(
                f"{file.name} is not what the hub tells of it: it was damaged on its way",
                where=what,
                remedy="give the same command again",
            )
        done += file.size
        bar.move_to(done)


def _fetched(
    what: str, repository: str, commit: str, file: RemoteFile, bar: Bar, done: int
) -> Path:
    """One file, in as many attempts as bring it further."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    folder = repo_folder_name(repo_id=repository, repo_type="model")
    blobs = Path(constants.HF_HUB_CACHE, folder, "blobs")
    part = blobs / f"{file.hash}.incomplete"
    if _unfinished(blobs, file) > file.size:
        part.unlink(missing_ok=True)
    while True:
        before = _unfinished(blobs, file)
        try:
            with talking(what), _watched(blobs, file, bar, done):
                return Path(hub_api().hf_hub_download(repository, file.name, revision=commit))
        except HubUnreachable as broken:
            if _unfinished(blobs, file) > before:
                continue
            if before:
                raise HubError(
                    f"the download of {file.name} was interrupted",
                    where=what,
                    remedy="give the same command again",
                ) from broken
            raise


@contextmanager
def _watched(blobs: Path, file: RemoteFile, bar: Bar, done: int) -> Iterator[None]:
    """Move a bar as an unfinished file grows: no hook of the client's is in all its versions."""
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_EVERY):
            bar.move_to(done + _unfinished(blobs, file))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _unfinished(blobs: Path, file: RemoteFile) -> int:
    """Return the bytes of a file that is being fetched; clients of today add chance to its name."""
    sizes = [0]
    with suppress(OSError):
        for part in blobs.glob(f"{file.hash}*.incomplete"):
            with suppress(OSError):
                sizes.append(part.stat().st_size)
    return max(sizes)


def _hash_of(path: Path, file: RemoteFile) -> str:
    digest = hashlib.sha256()
    if not file.large:
        digest = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
    with path.open("rb") as opened:
        while block := opened.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
