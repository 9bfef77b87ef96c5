"""A store in preparation, from which an interrupted run resumes.

    STORE.partial/
      journal.jsonl   what the store is made from and how far it has come
      digests/        the texts that have been seen
      store/          what will be STORE
      lock            held by the process at work

Files may hold more than the journal counts: that is cut off before anything is added.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from bertsmith.core.config import Config
from bertsmith.core.errors import ConfigError, DiskError, StoreError
from bertsmith.core.files import (
    commit,
    created_folder,
    disk_error,
    flush_to_disk,
    name_is_taken,
    refused_by_disk,
    sync,
    write_all,
    writing,
)
from bertsmith.core.log import say
from bertsmith.core.ownership import owned
from bertsmith.store.writing import WriterState
from bertsmith.text.corpus.sections import Position


@dataclass(frozen=True, kw_only=True)
class SourceFile(Config):
    """A file as it was when reading began."""

    path: str
    """Its path."""
    size: int
    """Its bytes."""
    changed: int
    """Time of its last change, in nanoseconds."""


@dataclass(frozen=True, kw_only=True)
class Source(Config):
    """The source of a store; another source would make another store."""

    version: str
    """Version of the program."""
    vocabulary: str
    """Fingerprint of the vocabulary."""
    held_out: float
    """Share of the documents that is held out."""
    text_column: str
    """Column of the text in tables."""
    header: str
    """Treatment of the first lines of tables: headers or not, or auto."""
    layout: str
    """Layout of plain text."""
    encoding: str
    """Encoding of the files, or auto."""
    text_files: tuple[str, ...]
    """Patterns of names of files that are read as plain text."""
    markup_files: tuple[str, ...]
    """Patterns of names of files that are read as HTML or XML."""
    files: tuple[SourceFile, ...]
    """The files of the corpus."""


@dataclass(frozen=True, kw_only=True)
class Progress(Config):
    """The progress of a store in the making."""

    position: Position
    """Position in the corpus to read on from."""
    train: WriterState
    """Progress of the documents to train on."""
    held_out: WriterState
    """Progress of the held-out documents."""
    digests: int
    """Different texts seen."""
    duplicates: int
    """Documents left out."""


@dataclass(frozen=True, kw_only=True)
class _Line(Config):
    source: Source | None = None
    progress: Progress | None = None


class Journal:
    """The journal of an unfinished store, which begins with a source."""

    def __init__(self, path: Path) -> None:
        """Read the file; `StoreError` where another version wrote it."""
        self._path = path
        self._lines: list[_Line] = []
        self._ends: list[int] = []
        for line in path.read_bytes().splitlines(keepends=True) if path.exists() else []:
            total, _, text = line.partition(b" ")
            if not text.endswith(b"\n") or total != b"%08x" % zlib.crc32(text[:-1]):
                break
            try:
                self._lines.append(_Line.from_dict(json.loads(text)))
            except ConfigError:
                raise self.refusal("was begun by another version of bertsmith") from None
            self._ends.append(self._size + len(line))

    @property
    def progress(self) -> Progress | None:
        """The last progress noted."""
        noted = (line.progress for line in reversed(self._lines) if line.progress is not None)
        return next(noted, None)

    def resume(self, source: Source) -> None:
        """Resume from the last progress whose files are all unchanged, or start again.

        Files that had not been reached may have changed. Raises `StoreError` when there is progress
        but with other settings, or with files that all have changed.
        """
        before = [line.source for line in self._lines if line.source is not None]
        if not any(line.progress for line in self._lines):
            self._forget(0)
        elif before[-1] != source:
            self._forget(self._matching_size(before[-1], source))
        if not self._lines or before[-1] != source:
            self._append(_Line(source=source))

    def check(self, source: Source) -> None:
        """Raise the `StoreError` that `resume` would; nothing is written."""
        before = [line.source for line in self._lines if line.source is not None]
        if any(line.progress for line in self._lines) and before[-1] != source:
            self._matching_size(before[-1], source)

    def note(self, progress: Progress) -> None:
        """Add a line; all that it counts must be on the disk."""
        self._append(_Line(progress=progress))

    def refusal(self, problem: str) -> StoreError:
        """Return an error that says why the store cannot be resumed, and what to do."""
        return StoreError(
            f"an unfinished store that {problem}",
            where=self._path.parent,
            remedy="start anew with --fresh, or continue with the same corpus and options",
        )

    @property
    def _size(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _matching_size(self, before: Source, source: Source) -> int:
        """Return the number of lines still valid for a changed source."""
        for name, title in (
            ("version", "version of bertsmith"),
            ("vocabulary", "vocabulary"),
            ("held_out", "--held-out"),
            ("text_column", "--text-column"),
            ("header", "--header"),
            ("layout", "--layout"),
            ("encoding", "--encoding"),
            ("text_files", "--text-files"),
            ("markup_files", "--markup-files"),
        ):
            if getattr(before, name) != getattr(source, name):
                raise self.refusal(f"was begun with another {title}")
        pairs = zip(before.files, source.files, strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        good = 0
        for number, line in enumerate(self._lines, 1):
            if line.progress is not None and line.progress.position.file < same:
                good = number
        if not good:
            raise self.refusal("was begun with other text, or this has changed since")
        return good

    def _forget(self, good: int) -> None:
        """Drop all lines but the first."""
        del self._lines[good:], self._ends[good:]

    def _append(self, line: _Line) -> None:
        text = json.dumps(line.to_dict()).encode()
        data = b"%08x %s\n" % (zlib.crc32(text), text)
        new = not self._path.exists()
        with self._path.open("wb" if new else "r+b", buffering=0) as file:
            # what is no good goes; half a line would hide those that follow
            file.truncate(self._size)
            file.seek(self._size)
            write_all(file, data)
            sync(file.fileno())
        if new:
            flush_to_disk(self._path.parent)
        self._ends.append(self._size + len(data))
        self._lines.append(line)


COMMIT_GROUPS = 64  # between two lines of the journal; each is a megabyte of text or more
_LINES = 64  # or so much of the work as this many lines would make, so that the journal stays small
_JOURNAL, _LOCK, _DIGESTS, _STORE = "journal.jsonl", "lock", "digests", "store"


class UnfinishedStore:
    """The folder of a store in the making, owned by this process."""

    def __init__(self, out: Path, *, total: int) -> None:
        self.folder = partial_folder(out)
        self.progress: Progress | None = None
        """Progress to resume from, if any."""
        self.begun = False
        """True if the folder's contents are this store's."""
        self._out = out
        self._total = total
        self._journal: Journal | None = None
        self._reached: tuple[Progress, Sequence[Path]] | None = None
        self._groups = self._since = 0
        self._saving: Future[None] | None = None
        self._thread = ThreadPoolExecutor(1)

    @property
    def store(self) -> Path:
        """The folder that will be the store."""
        return self.folder / _STORE

    @property
    def digests(self) -> Path:
        """The folder for the texts that have been seen."""
        return self.folder / _DIGESTS

    def begin(self, source: Source | None, *, fresh: bool) -> None:
        """Find the progress to resume from; without a source, nothing will be kept."""
        path = self.folder / _JOURNAL
        if fresh:
            path.unlink(missing_ok=True)
        journal = Journal(path)
        if source is not None:
            journal.resume(source)
            self.progress, self._journal = journal.progress, journal
        elif journal.progress is not None:
            raise journal.refusal("was begun with other text")
        self.begun = True
        if self.progress is None:
            for folder in (self.store, self.digests):
                shutil.rmtree(folder, ignore_errors=True)
        self.store.mkdir(exist_ok=True)

    def reached(self, progress: Progress, files: Sequence[Path]) -> None:
        """Note how far the store has come, in the journal now and then; `files` are still open."""
        self._reached = progress, files
        self._since += 1
        self._groups += 1
        if self._since >= max(COMMIT_GROUPS, self._groups // _LINES):
            self._save()

    def finish(self) -> None:
        """Rename the finished store to its name."""
        self._wait()
        commit({self.store: self._out})
        self.discard()

    def keep(self) -> bool:
        """Save the progress, if the disk takes it; return whether there is any to resume from."""
        with suppress(OSError):
            if self._since:
                self._save()
            self._wait()
        # an interruption may have come between the start of saving and the note of it
        self.close()
        return self._journal is not None and self._journal.progress is not None

    def discard(self) -> None:
        """Remove everything."""
        self._journal, self._since = None, 0
        shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        """End the thread that saves."""
        self._thread.shutdown()

    def share(self) -> str:
        """Return the share of the corpus that the journal covers, for people."""
        progress = self._journal.progress if self._journal else None
        read = progress.position.read if progress else 0
        return f"{100 * min(1.0, read / max(1, self._total)):.0f} %"

    def _save(self) -> None:
        """Write the progress of the store to the journal, while work continues."""
        self._wait()
        self._since = 0
        if self._journal is not None and self._reached is not None:
            self._saving = self._thread.submit(self._record, self._journal, *self._reached)

    def _record(self, journal: Journal, progress: Progress, files: Sequence[Path]) -> None:
        # the names of new files and folders too
        top = self.folder.parent
        folders = {each for path in files for each in path.parents if each.is_relative_to(top)}
        for path in (*files, *sorted(folders, reverse=True)):
            flush_to_disk(path)
        journal.note(progress)

    def _wait(self) -> None:
        if self._saving is not None:
            saving, self._saving = self._saving, None
            saving.result()


def partial_folder(out: Path) -> Path:
    """Return the folder of a store in the making."""
    return out.with_name(out.name + ".partial")


def check_place(out: Path, source: Source | None, *, fresh: bool = False) -> None:
    """Raise the `StoreError` that `unfinished_store` would for what is there; nothing is written.

    Another process that is at work there is not noticed.
    """
    _check_free(out)
    if fresh:
        return
    journal = Journal(partial_folder(out) / _JOURNAL)
    if source is not None:
        journal.check(source)
    elif journal.progress is not None:
        raise journal.refusal("was begun with other text")


def _check_free(out: Path) -> None:
    # what a link leads to may lie on another disk, to which nothing can be moved
    if name_is_taken(out) or out.is_symlink():
        raise StoreError("exists already", where=out, remedy="delete it or choose another --out")


@contextmanager
def unfinished_store(
    out: Path, source: Source | None, *, total: int, fresh: bool = False
) -> Iterator[UnfinishedStore]:
    """Yield a store to be made at `out`, where there must be nothing, or to be resumed.

    When the block ends well the store takes its name. Otherwise it is kept to go on from, and the
    error says so; without a `source`, or when nothing was done, nothing is left. `total` is the
    size of the corpus. Raises `StoreError` when it is taken, or another source's; `DiskError`.
    """
    _check_free(out)
    work = UnfinishedStore(out, total=total)
    with created_folder(out.parent), _owned(work.folder, out):
        try:
            with writing(out):
                work.begin(source, fresh=fresh)
            yield work
            work.finish()
        except BaseException as error:
            if isinstance(error, StoreError) and not work.begun:
                raise
            kept = work.keep()
            if not kept:
                work.discard()
            raise _with_resume_hint(error, work, out, is_kept=kept) from error.__cause__
        finally:
            work.close()


def _with_resume_hint(
    error: BaseException, work: UnfinishedStore, out: Path, *, is_kept: bool
) -> BaseException:
    """Return the error as a user should see it: with what is kept, and how to continue."""
    refusal = error.__cause__ if isinstance(error, DiskError) else error
    if isinstance(refusal, OSError) and refused_by_disk(refusal):
        hint = f"give the same command again: it resumes at {work.share()}"
        error_to_raise = disk_error(refusal, out, then=hint if is_kept else "")
        error_to_raise.__cause__ = refusal
        return error_to_raise
    if is_kept:
        done = f"{work.share()} is done and kept in {work.folder}"
        if isinstance(error, KeyboardInterrupt):
            problem = str(error) or "interrupted"
            error.args = (f"{problem}; {done}: give the same command again to resume",)
        else:
            say(f"{done}: the same command resumes from there")
    return error


@contextmanager
def _owned(folder: Path, out: Path) -> Iterator[None]:
    """Yield the folder for this process alone, created if needed, removed if nothing is kept."""
    with writing(out):
        folder.mkdir(exist_ok=True)
        foreign = {path.name for path in folder.iterdir()} - {_JOURNAL, _LOCK, _DIGESTS, _STORE}
        if foreign:
            raise StoreError(
                f"holds {min(foreign)} and is not an unfinished store",
                where=folder,
                remedy="move it away, or choose another --out",
            )
    with owned(folder / _LOCK, of=out, error=StoreError):
        yield
