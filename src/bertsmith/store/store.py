"""The token store: a corpus as token ids on disk, read by memory map.

store.json               counts, type, the vocabulary's fingerprint, SHA-256 of every other file and
                         of what it holds itself
tokens-00000.bin ...     ids end to end, little-endian uint16 or uint32, at most 1 GiB a shard;
                         a document never crosses a shard
sentences.bin            int64 token offsets of sentences, (sentences + 1,)
documents.bin            int64 sentence numbers where documents begin, (documents + 1,)
vocabulary/              the tokenizer's files
held-out/                a store of the documents kept for evaluation, if any
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.config import Config
from bertsmith.core.errors import ConfigError, StoreError
from bertsmith.core.files import file_hash, names_a_file_inside, other_version, read_json, text_hash
from bertsmith.core.log import progress, say
from bertsmith.core.printable import counted
from bertsmith.text.corpus.documents import TextSize
from bertsmith.tokens.tokenizer import Tokenizer

FORMAT = 2
INDEX = "store.json"
HELD_OUT = "held-out"
VOCABULARY = "vocabulary"
_OWN_HASH = "sha256"
_MAX_INDEX_BYTES = 64 * 2**20


@dataclass(frozen=True, kw_only=True)
class FileRecord(Config):
    """A file of the store as it was written."""

    name: str
    """File name inside the store's folder."""
    bytes: int
    """Its size."""
    sha256: str
    """Its hash."""


@dataclass(frozen=True, kw_only=True)
class StoreIndex(Config):
    """The content of `store.json`."""

    format: int
    """Version of the layout."""
    type: str
    """Type of the ids, uint16 or uint32."""
    tokens: int
    """Number of token ids."""
    sentences: int
    """Number of sentences."""
    documents: int
    """Number of documents."""
    text: TextSize
    """The text's words, split at spaces, and characters."""
    unknown: int
    """Tokens that are [UNK]."""
    duplicates: int
    """Documents left out because the same text had come before."""
    fingerprint: str
    """The vocabulary's fingerprint."""
    shards: tuple[int, ...]
    """Tokens in each shard."""
    files: tuple[FileRecord, ...]
    """Every data file."""
    beside: tuple[FileRecord, ...] = ()
    """Every other file: the vocabulary's, and of the held-out store all but its data."""


# tokens counted at once
_COUNTED = 2**24


class TokenStore:
    """A store opened for reading; nothing but the offsets' pages in use is held in memory."""

    def __init__(self, folder: Path, *, verify: bool = False) -> None:
        """Open a store; `StoreError` if it is none, damaged, or (with `verify`) altered."""
        self.folder = folder
        self.index = _read_index(folder)
        for record in self.index.files:
            check_file(folder, record, verify=verify)
        kind = np.dtype(self.index.type).newbyteorder("<")
        self._shards = [
            _open(folder / f"tokens-{number:05}.bin", kind, tokens)
            for number, tokens in enumerate(self.index.shards)
        ]
        self._shard_starts = np.concatenate([[0], np.cumsum(self.index.shards)]).astype(np.int64)
        int64 = np.dtype("<i8")
        self.sentences = _open(folder / "sentences.bin", int64, self.index.sentences + 1)
        """Token offsets of sentences, (sentences + 1,)."""
        self.documents = _open(folder / "documents.bin", int64, self.index.documents + 1)
        """Sentence numbers where documents begin, (documents + 1,)."""
        self._check_offsets()

    def __repr__(self) -> str:
        index = self.index
        counts = (
            counted(index.documents, "document"),
            counted(index.sentences, "sentence"),
            counted(index.tokens, "token"),
        )
        return f"<TokenStore {str(self.folder)!r}: {', '.join(counts)}>"

    def __reduce__(self) -> tuple[type[TokenStore], tuple[Path]]:
        # another process maps the files itself, in place of being sent their contents
        return TokenStore, (self.folder,)

    @property
    def tokens(self) -> int:
        """Number of token ids."""
        return self.index.tokens

    def document_starts(self) -> NDArray[np.int64]:
        """Return token offsets of documents, (documents + 1,)."""
        return np.asarray(self.sentences[self.documents])

    def read(self, start: int, end: int) -> NDArray[np.integer]:
        """Return the ids of tokens start to end, which must lie in one document."""
        shard = int(np.searchsorted(self._shard_starts, start, side="right")) - 1
        origin = int(self._shard_starts[shard])
        return self._shards[shard][start - origin : end - origin]

    def counts(self, vocabulary: int) -> NDArray[np.int64]:
        """Return the count of each token, (vocabulary,): about a second for each 500 M."""
        counts = np.zeros(vocabulary, np.int64)
        for shard in self._shards:
            for begin in range(0, len(shard), _COUNTED):
                counts += np.bincount(shard[begin : begin + _COUNTED], minlength=vocabulary)
        return counts

    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer the store was made with; `StoreError` if it was exchanged since."""
        tokenizer = Tokenizer.load(self.folder / VOCABULARY)
        if tokenizer.fingerprint != self.index.fingerprint:
            raise StoreError(
                "the vocabulary beside the store is not the one the store was made with",
                where=self.folder / VOCABULARY,
            )
        return tokenizer

    def held_out(self) -> TokenStore | None:
        """Return the store of held-out documents, or None."""
        folder = self.folder / HELD_OUT
        return TokenStore(folder) if folder.is_dir() else None

    def _check_offsets(self) -> None:
        for name, offsets, count in (
            ("sentences.bin", self.sentences, self.index.tokens),
            ("documents.bin", self.documents, self.index.sentences),
        ):
            if (offsets[0], offsets[-1]) != (0, count):
                raise StoreError("offsets and counts disagree", where=self.folder / name)


def _read_index(folder: Path) -> StoreIndex:
    path = folder / INDEX
    if not path.is_file():
        raise StoreError(
            f"holds no {INDEX}, so it is not a token store",
            where=folder,
            remedy="make one with `bertsmith prepare CORPUS --vocab DIR --out STORE`",
        )
    content = read_json(path, StoreError, largest=_MAX_INDEX_BYTES)
    if version := other_version(content.get("format"), FORMAT):
        raise StoreError(f"is the index of a store that {version} prepared", where=path)
    content.pop(_OWN_HASH, None)
    try:
        index = StoreIndex.from_dict(content, where=path)
    except ConfigError as error:
        raise StoreError(error.problem, where=error.where, line=error.line) from error
    if index.type not in ("uint16", "uint32") or path.read_bytes() != _rendered(index):
        raise StoreError("was altered", where=path)
    return index


def check_file(folder: Path, record: FileRecord, *, verify: bool) -> None:
    """Check a file's size, and with `verify` its hash; raises `StoreError`."""
    path = folder / record.name
    # the folder's own path may well lead upwards: it is the user's
    if not names_a_file_inside(record.name):
        raise StoreError(f"names a file outside itself: {record.name!r}", where=folder)
    if not path.is_file() or path.stat().st_size != record.bytes:
        raise StoreError("is missing or has another size than when it was written", where=path)
    if verify and file_hash(path) != record.sha256:
        raise StoreError("was altered", where=path)


def _open(path: Path, kind: np.dtype[np.generic], count: int) -> NDArray[np.integer]:
    if not path.is_file() or path.stat().st_size != count * kind.itemsize:
        raise StoreError(f"should hold {count} numbers of {kind.itemsize} bytes", where=path)
    if not count:
        return np.zeros(0, kind)  # an empty file cannot be mapped
    return np.memmap(path, kind, mode="r")


def dump_index(folder: Path, index: StoreIndex) -> None:
    """Write `store.json`, when all other files of the store are there."""
    data = {INDEX, *(record.name for record in index.files)}
    if (folder / HELD_OUT / INDEX).exists():
        held_out = _read_index(folder / HELD_OUT)
        data |= {f"{HELD_OUT}/{record.name}" for record in held_out.files}
    beside = (path for path in sorted(folder.rglob("*")) if path.is_file())
    records = tuple(
        FileRecord(name=name, bytes=path.stat().st_size, sha256=file_hash(path))
        for path in beside
        if (name := path.relative_to(folder).as_posix()) not in data
    )
    (folder / INDEX).write_bytes(_rendered(replace(index, beside=records)))


def _rendered(index: StoreIndex) -> bytes:
    """Return the bytes of `store.json`, which begin with the hash of all others."""
    text = json.dumps(index.to_dict(), indent=1)
    return text.replace("{", f'{{\n "{_OWN_HASH}": "{text_hash(text)}",', 1).encode() + b"\n"


Seen = dict[str, list[int]]
"""Size and time of change of files by path."""


def verify_store(
    store: TokenStore, known: Mapping[str, list[int]], seconds: float | None = None
) -> Seen:
    """Hash every file of a store and of the held-out one in it: half a second a GB in memory.

    Files whose size and time of change are `known` have been hashed before and are passed over.
    After `seconds` the other files are taken as they are, with a message: only their sizes have
    been compared then. Returns what is known now. Raises `StoreError` that names the file that was
    altered.
    """
    seen: Seen = {}
    unverified = []
    for folder, record in _files(store):
        check_file(folder, record, verify=False)
        path = folder / record.name
        if known.get(str(path)) == _state(path):
            seen[str(path)] = _state(path)
        else:
            unverified.append((path, record))
    total = sum(record.bytes for _, record in unverified)
    started = time.monotonic()
    with progress("checking the store", total, "bytes") as bar:
        for number, (path, record) in enumerate(unverified):
            if seconds is not None and time.monotonic() - started > seconds:
                say(
                    f"{len(unverified) - number} of {counted(len(unverified), 'file')} of the "
                    f"store were not checked byte by byte: the first ones took {seconds:.0f} s of "
                    "the minutes given"
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
