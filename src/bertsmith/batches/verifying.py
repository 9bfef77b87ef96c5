"""Whether a store is, byte for byte, what was written, before any time is spent on training."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from bertsmith.batches.store import HELD_OUT, FileRecord, TokenStore, check_file, file_hash
from bertsmith.errors import StoreError
from bertsmith.log import progress, say

Seen = dict[str, list[int]]
"""Size and time of change of files by path."""


def verify_store(
    store: TokenStore, known: Mapping[str, list[int]], seconds: float | None = None
) -> Seen:
    """Hash every file of a store and of the held-out one in it: half a second a GB in memory.

    Files whose size and time of change are `known` have been hashed before and are passed over.
    After so many `seconds` the other files are taken as they are, which is said: their sizes alone
    are right then. Returns what is known now. Raises `StoreError` that names the file that was
    altered.
    """
    seen: Seen = {}
    left = []
    for folder, record in _files(store):
        check_file(folder, record, verify=False)
        path = folder / record.name
        if known.get(str(path)) == _state(path):
            seen[str(path)] = _state(path)
        else:
            left.append((path, record))
    total = sum(record.bytes for _, record in left)
    began = time.monotonic()
    with progress("checking the store", total, "bytes") as bar:
        for number, (path, record) in enumerate(left):
            if seconds is not None and time.monotonic() - began > seconds:
                say(
                    f"{len(left) - number} of {len(left)} files of the store were not checked byte "
                    f"by byte: the first ones took {seconds:.0f} s of the minutes given"
                )
                break
            state = _state(path)
            if file_hash(path, bar.advance) != record.sha256:
                raise StoreError("is damaged: it is not what was written", where=path)
            seen[str(path)] = state
    return seen


def _files(store: TokenStore) -> Iterator[tuple[Path, FileRecord]]:
    for record in (*store.index.files, *store.index.beside):
        yield store.folder, record
    held_out = store.held_out()
    if held_out is not None:
        for record in held_out.index.files:
            yield store.folder / HELD_OUT, record


def _state(path: Path) -> list[int]:
    state = path.stat()
    return [state.st_size, state.st_mtime_ns]
