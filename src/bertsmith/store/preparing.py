"""Documents become a token store: by several processes, in constant memory, in a fixed order.

The store depends on the documents and the vocabulary only. Sections of the corpus are read here and
turned into documents, sentences and ids by whichever process is free; what comes back is written in
the order of the corpus, and what has been written need not be done again after an interruption.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain, compress
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bertsmith.core import VERSION
from bertsmith.core.errors import StoreError, UserError
from bertsmith.core.log import say
from bertsmith.core.pool import ProcessPool, process_pool, runs_script
from bertsmith.core.printable import counted
from bertsmith.store.duplicates import DIGEST_BYTES, Digests, SeenTexts
from bertsmith.store.store import HELD_OUT, INDEX, VOCABULARY, StoreIndex
from bertsmith.store.unfinished import (
    Progress,
    Source,
    SourceFile,
    UnfinishedStore,
    check_place,
    unfinished_store,
)
from bertsmith.store.writing import EncodedDocuments, StoreWriter, WriterState
from bertsmith.text.corpus.documents import Document, TextSize, size_of
from bertsmith.text.corpus.files import Corpus
from bertsmith.text.corpus.sections import (
    SECTION_BYTES,
    DocumentSection,
    Position,
    Section,
    in_parts,
    length_of,
)
from bertsmith.tokens.bulk.documents import DocumentEncoder
from bertsmith.tokens.tokenizer import Tokenizer

Group = Sequence[Section]


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedGroup:
    """The documents of some sections, all different, in the order of the corpus.

    `digests` (documents, 2) identify their texts; `ids` (tokens,) end to end; `sentences`
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
        """Return the `chosen` (documents,) among them that have sentences."""
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
        """Return the documents of a group that differ, encoded."""
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
        texts_given = list(texts.values())
        encoded = self._encoder.encode(texts_given)
        return EncodedGroup(
            digests=as_digests(texts),
            ids=encoded.ids.astype(self._type, copy=False),
            sentences=encoded.sentences,
            documents=self._of_each(texts_given, encoded.documents),
            sizes=sizes,
            repeated=repeated,
        )

    def _of_each(self, given: list[bytes], sentences: NDArray[np.integer]) -> NDArray[np.integer]:
        """Return the sentences of each document given, from those of the ones that have any."""
        if len(sentences) == len(given):
            return sentences
        every = np.zeros(len(given), np.int64)
        # rare enough to find out by encoding them once more
        every[[len(self._encoder.encode([text]).ids) > 0 for text in given]] = sentences
        return every


class Pending(Protocol):
    """A group that is being encoded."""

    def result(self) -> EncodedGroup:
        """Return the group, once it is encoded."""
        ...


class Encoder(Protocol):
    """An encoder of groups: at once, in other processes or on other machines."""

    def submit(self, group: Group) -> Pending:
        """Have a group encoded."""
        ...


@contextmanager
def encoders(tokenizer: Tokenizer, workers: int) -> Iterator[Encoder]:
    """Yield an encoder of groups: in this process, or in several others."""
    if workers <= 1:
        yield _LocalEncoding(GroupEncoder(tokenizer))
        return
    with process_pool(workers, _start_worker, tokenizer) as pool:
        if pool is None:
            yield _LocalEncoding(GroupEncoder(tokenizer))
            return
        try:
            yield _PoolEncoding(pool)
        except BrokenProcessPool as error:
            remedy = "give fewer --workers"
            if runs_script():
                # it is imported by each new process, which would call this once more
                remedy += ", or call it below if __name__ == '__main__' in your script"
            raise StoreError(
                "one of the processes that encode has ended, perhaps because memory ran out",
                remedy=remedy,
            ) from error


class _LocalEncoding:
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


class _PoolEncoding:
    """Encodes in the processes of a pool."""

    def __init__(self, pool: ProcessPool) -> None:
        self._pool = pool

    def submit(self, group: Group) -> Future[EncodedGroup]:
        return self._pool.submit(_encode_in_worker, group)


_of_worker: list[GroupEncoder] = []


def _start_worker(tokenizer: Tokenizer) -> None:
    _of_worker.append(GroupEncoder(tokenizer))


def _encode_in_worker(group: Group) -> EncodedGroup:
    return _of_worker[0](group)


GROUP_BYTES = SECTION_BYTES
_AHEAD = 4  # groups in flight for each process, so that none waits and memory stays bounded

Moved = Callable[[Position], None]
"""A function that is called with the position that the store has reached."""


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
    with (
        unfinished_store(out, None, total=1) as work,
        _StoreBuilder(work, tokenizer, held_out) as builder,
    ):
        builder.run(_as_sections(documents), workers)
        return builder.finish(_nothing(out, builder.held_out))


def prepare_corpus(
    corpus: Corpus,
    tokenizer: Tokenizer,
    out: Path,
    *,
    held_out: float = 0.05,
    workers: int = 1,
    encoder: Encoder | None = None,
    fresh: bool = False,
    moved: Moved = lambda position: None,
) -> StoreIndex:
    """Encode a corpus as `prepare_store` does, or resume where that was interrupted.

    What is done stays in a folder beside `out`, named `out`.partial, from which the same call
    resumes; `fresh` begins anew. `workers` is the number of processes of an `encoder`. Of a corpus
    of pipes nothing is kept. Raises `StoreError` when that folder belongs to another corpus or
    vocabulary or was begun with other settings.
    """
    source = _source(corpus, tokenizer, held_out) if corpus.lasting else None
    with unfinished_store(out, source, total=corpus.total_bytes, fresh=fresh) as work:
        start = work.progress.position if work.progress else Position()
        if work.progress:
            say(f"resuming {work.folder}: {work.share()} is done")
            moved(start)
        with _StoreBuilder(work, tokenizer, held_out) as builder:
            builder.run(corpus.sections(start), workers, encoder, moved)
            nothing = _nothing(out, builder.held_out)
            return builder.finish(nothing if builder.documents else corpus.without_text())


def check_preparing(
    corpus: Corpus, tokenizer: Tokenizer, out: Path, *, held_out: float, fresh: bool
) -> None:
    """Raise the `StoreError` of `prepare_corpus` for what is at `out`; nothing is written."""
    source = _source(corpus, tokenizer, held_out) if corpus.lasting else None
    check_place(out, source, fresh=fresh)


def held_out_documents(documents: Iterable[Document], share: float) -> list[bool]:
    """Return of each document whether a store made with `held_out=share` keeps it apart."""
    digests = as_digests(text_digest(document_text(document)) for document in documents)
    return list(map(bool, _is_held_out(digests, share)))


def _is_held_out(digests: Digests, share: float) -> NDArray[np.bool_]:
    limit = np.uint64(min(round(share * 2**64), 2**64 - 1))
    return np.asarray(digests[:, 0] < limit)


def _nothing(out: Path, held_out: int) -> StoreError:
    """Return the error for a store without text to train on, beside documents held out."""
    problem, remedy = "no text to train on was left", "give more text"
    if held_out:
        problem += f" beside {counted(held_out, 'document')} held out"
        remedy += ", or a smaller --held-out"
    return StoreError(problem, where=out, remedy=remedy)


def _source(corpus: Corpus, tokenizer: Tokenizer, held_out: float) -> Source:
    return Source(
        version=VERSION,
        vocabulary=tokenizer.fingerprint,
        held_out=float(held_out),
        text_column=corpus.text_column,
        header=corpus.header,
        layout=corpus.layout,
        encoding=corpus.encoding,
        text_files=corpus.text_files,
        markup_files=corpus.markup_files,
        files=tuple(
            SourceFile(path=str(file.resolve()), size=state.size, changed=state.changed)
            for file, state in zip(corpus.files, corpus.states, strict=True)
        ),
    )


def _as_sections(documents: Iterable[Document]) -> Iterator[Section]:
    """Yield documents in sections of a million characters or a little more."""
    for part, size, _ in in_parts(documents, length_of, GROUP_BYTES):
        yield DocumentSection(given=part, size=size, end=Position())


class _StoreBuilder:
    """The two stores of an unfinished one, for training and held out, and the texts seen."""

    def __init__(self, work: UnfinishedStore, tokenizer: Tokenizer, held_out: float) -> None:
        self._work = work
        self._tokenizer = tokenizer
        self._share = held_out
        progress = work.progress
        self._duplicates = progress.duplicates if progress else 0
        places = (
            (work.store, progress.train if progress else WriterState()),
            (work.store / HELD_OUT, progress.held_out if progress else WriterState()),
        )
        with ExitStack() as opened:
            self._seen = SeenTexts(work.digests, count=progress.digests if progress else 0)
            opened.callback(self._seen.close)
            self._writers = []
            for folder, state in places:
                writer = StoreWriter(folder, vocabulary=tokenizer.size, state=state)
                opened.callback(writer.abandon)
                self._writers.append(writer)
            self._opened = opened.pop_all()

    def __enter__(self) -> _StoreBuilder:
        return self

    def __exit__(self, *error: object) -> None:
        self._opened.close()

    @property
    def documents(self) -> int:
        """Documents read, those left out included."""
        return self._seen.count + self._duplicates

    @property
    def held_out(self) -> int:
        """Documents held out so far."""
        return self._writers[1].state.documents

    def run(
        self,
        sections: Iterator[Section],
        workers: int,
        encoder: Encoder | None = None,
        moved: Moved = lambda position: None,
    ) -> None:
        """Have all sections encoded, and write what comes of them."""
        opened = encoders(self._tokenizer, workers) if encoder is None else nullcontext(encoder)
        with opened as encode:
            for position, encoded in _encoded(_groups(sections), encode, workers):
                self._append(encoded)
                files = [path for writer in self._writers for path in writer.open_files]
                self._work.reached(self._progress(position), [self._seen.log, *files])
                moved(position)

    def finish(self, nothing: UserError) -> StoreIndex:
        """Write the ends of the stores; raises `nothing` when there is no text to train on."""
        train, held_out = self._writers
        if not train.state.tokens:
            self._work.discard()
            raise nothing
        fingerprint = self._tokenizer.fingerprint
        for writer in self._writers:  # nothing of an end that was interrupted
            (writer.folder / INDEX).unlink(missing_ok=True)
            shutil.rmtree(writer.folder / VOCABULARY, ignore_errors=True)
        # the index of a store counts what lies beside it, so that comes last
        if held_out.state.tokens:
            self._tokenizer.save(held_out.folder / VOCABULARY)
            held_out.finish(fingerprint=fingerprint, duplicates=0)
        else:
            held_out.abandon()
            shutil.rmtree(held_out.folder)
        self._tokenizer.save(train.folder / VOCABULARY)
        return train.finish(fingerprint=fingerprint, duplicates=self._duplicates)

    def _append(self, group: EncodedGroup) -> None:
        """Write the documents that are new, each into the store that its text decides on."""
        new = self._seen.add(group.digests)
        self._duplicates += group.repeated + int(np.count_nonzero(~new))
        held_out = _is_held_out(group.digests, self._share)
        for writer, chosen in zip(self._writers, (new & ~held_out, new & held_out), strict=True):
            writer.append(group.part(chosen, self._tokenizer.unknown_id))

    def _progress(self, position: Position) -> Progress:
        train, held_out = self._writers
        return Progress(
            position=position,
            train=train.state,
            held_out=held_out.state,
            digests=self._seen.count,
            duplicates=self._duplicates,
        )


def _groups(sections: Iterator[Section]) -> Iterator[Group]:
    """Return sections in groups of a megabyte or more, as files may be small."""
    parts = in_parts(sections, lambda section: section.size, GROUP_BYTES)
    return (group for group, _, _ in parts)


def _encoded(
    groups: Iterator[Group], encoder: Encoder, workers: int
) -> Iterator[tuple[Position, EncodedGroup]]:
    """Yield encoded groups with their ends, in the order of the corpus, few in flight at a time."""
    waiting: deque[tuple[Position, Pending]] = deque()
    for group in groups:
        waiting.append((group[-1].end, encoder.submit(group)))
        if len(waiting) > workers * _AHEAD:
            position, future = waiting.popleft()
            yield position, future.result()
    while waiting:
        position, future = waiting.popleft()
        yield position, future.result()
