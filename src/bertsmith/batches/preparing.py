"""Documents become a token store: by several processes, in constant memory, in a fixed order.

The store depends on the documents and the vocabulary only: groups of documents are cut by their
number of characters, encoded by whichever process is free, and written in their order.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import shutil
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Protocol

import numpy as np

from bertsmith.batches.store import HELD_OUT, VOCABULARY, StoreIndex
from bertsmith.batches.writing import EncodedDocuments, StoreWriter
from bertsmith.disk import new_folder
from bertsmith.errors import StoreError
from bertsmith.text.documents import Document
from bertsmith.text.sentences import split_sentences
from bertsmith.tokens.tokenizer import Tokenizer

_GROUP_CHARACTERS = 1_000_000
_AHEAD = 4  # groups in hand for each process, so that none waits and memory stays bounded

Group = list[tuple[str, ...]]
"""Documents as their paragraphs."""


class _Encoder(Protocol):
    def submit(self, group: Group) -> Future[EncodedDocuments]: ...


def prepare_store(
    documents: Iterable[Document],
    tokenizer: Tokenizer,
    out: Path,
    *,
    held_out: float = 0.05,
    workers: int = 1,
) -> StoreIndex:
    """Encode documents into a new store at `out`; nothing is left behind if that fails.

    A document whose text came before is left out. About the share `held_out` of the documents,
    chosen by their text alone, goes to a store of its own inside, for evaluation. Raises
    `StoreError` when `out` exists or no text is left to train on.
    """
    if out.exists():
        raise StoreError("exists already", where=out, remedy="delete it or choose another --out")
    with new_folder(out) as partial, _writers(partial, tokenizer.size) as writers:
        sides = _Sides(held_out)
        with _encoders(tokenizer, workers) as encoder:
            for side, encoded in _encoded(sides.groups(documents), encoder, workers):
                if len(encoded.documents):
                    writers[side].append(encoded)
        tokenizer.save(partial / VOCABULARY)
        index = _finish(writers, tokenizer, sides.duplicates)
        if not index.tokens:
            raise StoreError("no text to train on was left", where=out, remedy="give more text")
    return index


@contextmanager
def _writers(folder: Path, vocabulary: int) -> Iterator[list[StoreWriter]]:
    """Writers of the two stores, training first; their files are closed whatever happens."""
    writers = [StoreWriter(place, vocabulary=vocabulary) for place in (folder, folder / HELD_OUT)]
    try:
        yield writers
    finally:
        for writer in writers:
            writer.abandon()


class _Sides:
    """Sends each new document to training (0) or held-out (1), in groups."""

    def __init__(self, held_out: float) -> None:
        self._limit = round(held_out * 2**64)
        self._seen: set[bytes] = set()
        self.duplicates = 0

    def groups(self, documents: Iterable[Document]) -> Iterator[tuple[int, Group]]:
        """Groups of new documents with their side, of a million characters or a little more."""
        groups: tuple[Group, Group] = ([], [])
        sizes = [0, 0]
        for document in documents:
            text = "\n".join(document.paragraphs).encode("utf-8", "surrogatepass")
            digest = hashlib.blake2b(text, digest_size=8).digest()
            if digest in self._seen:
                self.duplicates += 1
                continue
            self._seen.add(digest)
            side = int(int.from_bytes(digest) < self._limit)
            groups[side].append(document.paragraphs)
            sizes[side] += len(text)
            if sizes[side] >= _GROUP_CHARACTERS:
                yield side, groups[side].copy()
                groups[side].clear()
                sizes[side] = 0
        yield 0, groups[0]
        yield 1, groups[1]


def encode_documents(tokenizer: Tokenizer, group: Group) -> EncodedDocuments:
    """Split documents into sentences and encode them; those without a piece are left out."""
    ids, sentences, documents, words = [], [], [], 0
    for paragraphs in group:
        split = list(chain.from_iterable(map(split_sentences, paragraphs)))
        encoded = tokenizer.encode(split, specials_in_text=False)
        lengths = [len(sentence) for sentence in encoded if len(sentence)]
        if lengths:
            ids += encoded
            sentences += lengths
            documents.append(len(lengths))
            words += sum(len(sentence.split()) for sentence in split)
    all_ids = np.concatenate(ids) if ids else np.zeros(0, np.int32)
    return EncodedDocuments(
        ids=all_ids,
        sentences=np.array(sentences, np.int64),
        documents=np.array(documents, np.int64),
        words=words,
        unknown=int(np.count_nonzero(all_ids == tokenizer.unknown_id)),
    )


def _encoded(
    groups: Iterator[tuple[int, Group]], encoder: _Encoder, workers: int
) -> Iterator[tuple[int, EncodedDocuments]]:
    """Encoded groups in the order of the groups, with few in hand at a time."""
    waiting: deque[tuple[int, Future[EncodedDocuments]]] = deque()
    for side, group in groups:
        waiting.append((side, encoder.submit(group)))
        if len(waiting) > workers * _AHEAD:
            first, future = waiting.popleft()
            yield first, future.result()
    for side, future in waiting:
        yield side, future.result()


def _finish(writers: list[StoreWriter], tokenizer: Tokenizer, duplicates: int) -> StoreIndex:
    train, held_out = writers
    if held_out.tokens:
        held_out.finish(fingerprint=tokenizer.fingerprint, duplicates=0)
        tokenizer.save(held_out.folder / VOCABULARY)
    else:
        held_out.abandon()
        shutil.rmtree(held_out.folder)
    return train.finish(fingerprint=tokenizer.fingerprint, duplicates=duplicates)


@contextmanager
def _encoders(tokenizer: Tokenizer, workers: int) -> Iterator[_Encoder]:
    """Something that encodes groups: this process, or several others."""
    if workers <= 1:
        yield _Here(lambda group: encode_documents(tokenizer, group))
        return
    pool = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start_worker,
        initargs=(tokenizer,),
    )
    try:
        yield _There(pool)
    except BrokenProcessPool as error:
        raise StoreError(
            "one of the processes that encode was killed, perhaps for want of memory",
            remedy="give fewer --workers",
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class _Here:
    """Encodes in this process, at once."""

    def __init__(self, encode: Callable[[Group], EncodedDocuments]) -> None:
        self._encode = encode

    def submit(self, group: Group) -> Future[EncodedDocuments]:
        future: Future[EncodedDocuments] = Future()
        future.set_result(self._encode(group))
        return future


class _There:
    """Encodes in the processes of a pool."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def submit(self, group: Group) -> Future[EncodedDocuments]:
        # the processes start here and inherit this: Ctrl-C is for the parent to answer
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return self._pool.submit(_encode_in_worker, group)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


_worker_tokenizer: list[Tokenizer] = []


def _start_worker(tokenizer: Tokenizer) -> None:
    _worker_tokenizer.append(tokenizer)


def _encode_in_worker(group: Group) -> EncodedDocuments:
    return encode_documents(_worker_tokenizer[0], group)
