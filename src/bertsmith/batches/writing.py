"""Writing a token store, document by document."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.store import FORMAT, FileRecord, StoreIndex, dump_index

SHARD_BYTES = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedDocuments:
    """Some documents as token ids, in the order of the corpus.

    `ids` (tokens,) end to end; `sentences` (sentences,) lengths in tokens; `documents` (documents,)
    numbers of sentences; `words` and `unknown` are counts over all of them.
    """

    ids: NDArray[np.integer]
    sentences: NDArray[np.int64]
    documents: NDArray[np.int64]
    words: int
    unknown: int


@dataclass
class _HashedFile:
    """A file that is hashed while it is written."""

    path: Path
    size: int = 0
    _digest: hashlib._Hash = field(default_factory=hashlib.sha256)
    _file: IO[bytes] | None = None

    def write(self, data: bytes) -> None:
        if self._file is None:
            self._file = self.path.open("wb")
        self._file.write(data)
        self._digest.update(data)
        self.size += len(data)

    def close(self) -> FileRecord:
        if self._file is None:
            self._file = self.path.open("wb")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return FileRecord(name=self.path.name, bytes=self.size, sha256=self._digest.hexdigest())

    def abandon(self) -> None:
        if self._file is not None:
            # closing writes what is left, which a full disk refuses once more
            with suppress(OSError):
                self._file.close()


class StoreWriter:
    """Appends encoded documents to a folder in constant memory; `finish` writes the index."""

    def __init__(self, folder: Path, *, vocabulary: int, shard_bytes: int = SHARD_BYTES) -> None:
        self.folder = folder
        self.type = np.dtype(np.uint16 if vocabulary <= 2**16 else np.uint32).newbyteorder("<")
        self.tokens = self.sentences = self.documents = self.words = self.unknown = 0
        self._shard_limit = shard_bytes // self.type.itemsize
        self._shards: list[int] = []
        self._records: list[FileRecord] = []
        folder.mkdir(parents=True, exist_ok=True)
        self._tokens: _HashedFile | None = None
        self._sentences = _HashedFile(folder / "sentences.bin")
        self._documents = _HashedFile(folder / "documents.bin")
        self._sentences.write(_offsets([0]))
        self._documents.write(_offsets([0]))

    def append(self, encoded: EncodedDocuments) -> None:
        """Write some documents at the end of the store; empty ones must have been left out."""
        sentence_ends = np.cumsum(encoded.sentences)
        document_ends = np.cumsum(encoded.documents)
        token_ends = sentence_ends[document_ends - 1]
        ids, start = encoded.ids.astype(self.type), 0
        for end in token_ends.tolist():
            self._write_document(ids[start:end])
            start = end
        self._sentences.write(_offsets(self.tokens + sentence_ends))
        self._documents.write(_offsets(self.sentences + document_ends))
        self.tokens += len(ids)
        self.sentences += len(encoded.sentences)
        self.documents += len(encoded.documents)
        self.words += encoded.words
        self.unknown += encoded.unknown

    def finish(self, *, fingerprint: str, duplicates: int) -> StoreIndex:
        """Close the files and write the index."""
        self._close_shard()
        self._records += [self._sentences.close(), self._documents.close()]
        index = StoreIndex(
            format=FORMAT,
            type=self.type.name,
            tokens=self.tokens,
            sentences=self.sentences,
            documents=self.documents,
            words=self.words,
            unknown=self.unknown,
            duplicates=duplicates,
            fingerprint=fingerprint,
            shards=tuple(self._shards),
            files=tuple(self._records),
        )
        dump_index(self.folder, index)
        return index

    def abandon(self) -> None:
        """Close the files of a store that will not be finished."""
        for file in (self._tokens, self._sentences, self._documents):
            if file is not None:
                file.abandon()

    def _write_document(self, ids: NDArray[np.integer]) -> None:
        if self._shards and self._shards[-1] + len(ids) > self._shard_limit:
            self._close_shard()
        if self._tokens is None:
            self._tokens = _HashedFile(self.folder / f"tokens-{len(self._shards):05}.bin")
            self._shards.append(0)
        self._tokens.write(ids.tobytes())
        self._shards[-1] += len(ids)

    def _close_shard(self) -> None:
        if self._tokens is not None:
            self._records.append(self._tokens.close())
            self._tokens = None


def _offsets(values: Sequence[int] | NDArray[np.int64]) -> bytes:
    return np.asarray(values, "<i8").tobytes()
