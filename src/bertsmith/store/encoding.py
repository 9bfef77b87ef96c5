"""Sections of a corpus become token ids, in whichever process has time for them."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, compress
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.errors import StoreError
from bertsmith.core.signals import STOPPING
from bertsmith.store.duplicates import DIGEST_BYTES, Digests
from bertsmith.store.writing import EncodedDocuments
from bertsmith.text.corpus.documents import Document, TextSize, size_of
from bertsmith.text.corpus.sections import Section
from bertsmith.tokens.bulk.documents import DocumentEncoder
from bertsmith.tokens.tokenizer import Tokenizer

Group = Sequence[Section]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedGroup:
    """The documents of some sections, all different, in the order of the corpus.

    `digests` (documents, 2) tell their texts apart; `ids` (tokens,) end to end; `sentences`
    (sentences,) lengths in tokens; `documents` (documents,) numbers of sentences, 0 where nothing
    could be encoded; `sizes` (documents,) of their texts. `repeated` counts those left out because
    the same text stood before in these sections.
    """

    digests: Digests
    ids: NDArray[np.integer]
    sentences: NDArray[np.integer]
    documents: NDArray[np.integer]
    sizes: Sequence[TextSize]
    repeated: int

    def part(self, chosen: NDArray[np.bool_], unknown_id: int) -> EncodedDocuments:
        """The `chosen` (documents,) among them that have sentences."""
        chosen = chosen & (self.documents > 0)
        if chosen.all():
            ids, sentences = self.ids, self.sentences
        else:
            of_sentences = np.repeat(chosen, self.documents)
            ids = self.ids[np.repeat(of_sentences, self.sentences)]
            sentences = self.sentences[of_sentences]
        return EncodedDocuments(
            ids=ids,
            sentences=sentences,
            documents=self.documents[chosen],
            text=sum(compress(self.sizes, chosen.tolist()), TextSize()),
            unknown=int(np.count_nonzero(ids == unknown_id)),
        )


def document_text(document: Document) -> bytes:
    """Return the text of a document as it is compared and encoded, a paragraph a line."""
    return "\n".join(document.paragraphs).encode()


def text_digest(text: bytes) -> bytes:
    """Return the 128 bits by which a document's text is known."""
    return hashlib.blake2b(text, digest_size=DIGEST_BYTES).digest()


def as_digests(digests: Iterable[bytes]) -> Digests:
    """Return digests as numbers, (documents, 2)."""
    return np.frombuffer(b"".join(digests), ">u8").reshape(-1, 2).astype(np.uint64)


class GroupEncoder:
    """Reads the documents of sections, splits them into sentences and encodes them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._encoder = DocumentEncoder(tokenizer)
        self._type = np.dtype(np.uint16 if tokenizer.size <= 2**16 else np.uint32)

    def __call__(self, group: Group) -> EncodedGroup:
        """The documents of a group that differ, encoded."""
        texts: dict[bytes, bytes] = {}
        sizes: list[TextSize] = []
        repeated = 0
        for document in chain.from_iterable(section.documents() for section in group):
            text = document_text(document)
            digest = text_digest(text)
            if digest in texts:
                repeated += 1
                continue
            texts[digest] = text
            sizes.append(sum(map(size_of, document.paragraphs), TextSize()))
        given = list(texts.values())
        encoded = self._encoder.encode(given)
        return EncodedGroup(
            digests=as_digests(texts),
            ids=encoded.ids.astype(self._type, copy=False),
            sentences=encoded.sentences,
            documents=self._of_each(given, encoded.documents),
            sizes=sizes,
            repeated=repeated,
        )

    def _of_each(self, given: list[bytes], sentences: NDArray[np.integer]) -> NDArray[np.integer]:
        """The sentences of each document given, from those of the ones that have any."""
        if len(sentences) == len(given):
            return sentences
        every = np.zeros(len(given), np.int64)
        # rare enough to find out by encoding them once more
        every[[len(self._encoder.encode([text]).ids) > 0 for text in given]] = sentences
        return every


class Encoder(Protocol):
    """What encodes groups, sooner or later."""

    def submit(self, group: Group) -> Future[EncodedGroup]:
        """Have a group encoded."""
        ...


@contextmanager
def encoders(tokenizer: Tokenizer, workers: int) -> Iterator[Encoder]:
    """Something that encodes groups: this process, or several others."""
    if workers <= 1:
        yield _Here(GroupEncoder(tokenizer))
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

    def __init__(self, encode: Callable[[Group], EncodedGroup]) -> None:
        self._encode = encode

    def submit(self, group: Group) -> Future[EncodedGroup]:
        future: Future[EncodedGroup] = Future()
        try:
            future.set_result(self._encode(group))
        except Exception as error:
            future.set_exception(error)
        return future


class _There:
    """Encodes in the processes of a pool."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def submit(self, group: Group) -> Future[EncodedGroup]:
        # the processes start here and inherit this: Ctrl-C and a terminal that hangs up reach all
        # of them, and are for the parent to answer; the pool itself ends them by SIGTERM
        before = signal.pthread_sigmask(signal.SIG_BLOCK, set(STOPPING) - {signal.SIGTERM})
        try:
            return self._pool.submit(_encode_in_worker, group)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


_of_worker: list[GroupEncoder] = []


def _start_worker(tokenizer: Tokenizer) -> None:
    _of_worker.append(GroupEncoder(tokenizer))
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Else the processes would wait forever for work from a parent that was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode_in_worker(group: Group) -> EncodedGroup:
    return _of_worker[0](group)
