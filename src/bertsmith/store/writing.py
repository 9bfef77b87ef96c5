"""Writing a token store, document by document, and resuming an unfinished one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.config import Config
from bertsmith.core.errors import StoreError
from bertsmith.core.files import HashedFile
from bertsmith.store.store import FORMAT, FileRecord, StoreIndex, dump_index
from bertsmith.text.corpus.documents import TextSize

SHARD_BYTES = 1 << 30
BEGIN_ANEW = "start anew with --fresh"
_OFFSET_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedDocuments:
    """Some documents as token ids, in the order of the corpus.

    `ids` (tokens,) end to end; `sentences` (sentences,) lengths in tokens; `documents` (documents,)
    numbers of sentences; `text` is the size of them all, `unknown` how many ids are [UNK].
    """

    ids: NDArray[np.integer]
    sentences: NDArray[np.integer]
    documents: NDArray[np.integer]
    text: TextSize
    unknown: int


@dataclass(frozen=True, kw_only=True)
class WriterState(Config):
    """The extent of a store written so far; what its files hold beyond that does not count."""

    tokens: int = 0
    """Ids written."""
    sentences: int = 0
    """Sentences written."""
    documents: int = 0
    """Documents written."""
    text: TextSize = field(default_factory=TextSize)
    """The size of their text."""
    unknown: int = 0
    """Ids that are [UNK]."""
    shards: tuple[int, ...] = ()
    """Ids in each shard."""
    closed: tuple[FileRecord, ...] = ()
    """The shards that are full; the last one may not be."""


class StoreWriter:
    """Appends encoded documents to a folder in constant memory; `finish` writes the index.

    With a `state` it resumes from there, and raises `StoreError` when the files hold less.
    """

    def __init__(
        self,
        folder: Path,
        *,
        vocabulary: int,
        shard_bytes: int = SHARD_BYTES,
        state: WriterState | None = None,
    ) -> None:
        self._state = state = state or WriterState()
        self.folder = folder
        self.type = np.dtype(np.uint16 if vocabulary <= 2**16 else np.uint32).newbyteorder("<")
        self._shard_limit = shard_bytes // self.type.itemsize
        self._shards = list(state.shards)
        self._closed = list(state.closed)
        folder.mkdir(parents=True, exist_ok=True)
        self._tokens: HashedFile | None = None
        with ExitStack() as opened:
            if len(self._closed) < len(self._shards):
                self._tokens = self._shard(len(self._closed), self._shards[-1])
                opened.callback(self._tokens.abandon)
            self._sentences = _offsets_file(folder / "sentences.bin", state.sentences)
            opened.callback(self._sentences.abandon)
            self._documents = _offsets_file(folder / "documents.bin", state.documents)
            opened.pop_all()
        for path in folder.glob("tokens-*.bin"):
            if int(path.stem.removeprefix("tokens-")) >= len(self._shards):
                path.unlink()

    @property
    def state(self) -> WriterState:
        """The extent written so far."""
        return replace(self._state, shards=tuple(self._shards), closed=tuple(self._closed))

    @property
    def open_files(self) -> tuple[Path, ...]:
        """The files that are being written."""
        files = (self._tokens, self._sentences, self._documents)
        return tuple(file.path for file in files if file is not None)

    def append(self, encoded: EncodedDocuments) -> None:
        """Write some documents at the end of the store; empty ones must have been left out."""
        if not len(encoded.documents):
            return
        sentence_ends = np.cumsum(encoded.sentences, dtype=np.int64)
        document_ends = np.cumsum(encoded.documents, dtype=np.int64)
        self._write(encoded.ids.astype(self.type, copy=False), sentence_ends[document_ends - 1])
        before = self._state
        self._sentences.write(_offsets(before.tokens + sentence_ends))
        self._documents.write(_offsets(before.sentences + document_ends))
        self._state = replace(
            before,
            tokens=before.tokens + len(encoded.ids),
            sentences=before.sentences + len(encoded.sentences),
            documents=before.documents + len(encoded.documents),
            text=before.text + encoded.text,
            unknown=before.unknown + encoded.unknown,
        )

    def finish(self, *, fingerprint: str, duplicates: int) -> StoreIndex:
        """Close the files and write the index."""
        self._close_shard()
        state = self.state
        index = StoreIndex(
            format=FORMAT,
            type=self.type.name,
            tokens=state.tokens,
            sentences=state.sentences,
            documents=state.documents,
            text=state.text,
            unknown=state.unknown,
            duplicates=duplicates,
            fingerprint=fingerprint,
            shards=state.shards,
            files=(*state.closed, _closed(self._sentences), _closed(self._documents)),
        )
        dump_index(self.folder, index)
        return index

    def abandon(self) -> None:
        """Close the files of a store that will not be finished now."""
        for file in (self._tokens, self._sentences, self._documents):
            if file is not None:
                file.abandon()

    def _write(self, ids: NDArray[np.integer], ends: NDArray[np.int64]) -> None:
        """Write whole documents, which end at `ends` (documents,), into shards with room."""
        start = 0
        while start < len(ids):
            if self._tokens is None:
                self._shards.append(0)
                self._tokens = self._shard(len(self._shards) - 1, 0)
            limit = start + self._shard_limit - self._shards[-1]
            fitting = int(np.searchsorted(ends, limit, side="right"))
            end = int(ends[fitting - 1]) if fitting else 0
            if end <= start and self._shards[-1]:
                self._close_shard()
                continue
            if end <= start:  # a document of more than a shard has one to itself
                end = int(ends[np.searchsorted(ends, start, side="right")])
            self._tokens.write(ids[start:end].tobytes())
            self._shards[-1] += end - start
            start = end

    def _shard(self, number: int, tokens: int) -> HashedFile:
        path = self.folder / f"tokens-{number:05}.bin"
        return _hashed_file(path, tokens * self.type.itemsize)

    def _close_shard(self) -> None:
        if self._tokens is not None:
            self._closed.append(_closed(self._tokens))
            self._tokens = None


def _closed(file: HashedFile) -> FileRecord:
    return FileRecord(name=file.path.name, **file.close()._asdict())


def _hashed_file(path: Path, size: int) -> HashedFile:
    """Return a file to append to; what it holds after `size` bytes is cut off."""
    if size and path.stat().st_size < size:
        raise StoreError("is shorter than it was", where=path, remedy=BEGIN_ANEW)
    return HashedFile(path, size)


def _offsets_file(path: Path, count: int) -> HashedFile:
    """Return a file of offsets after a number of entries; the one before the first is 0."""
    file = _hashed_file(path, (count + 1) * _OFFSET_BYTES if count else 0)
    if not count:
        try:
            file.write(_offsets([0]))
        except OSError:
            file.abandon()
            raise
    return file


def _offsets(values: Sequence[int] | NDArray[np.int64]) -> bytes:
    return np.asarray(values, "<i8").tobytes()
