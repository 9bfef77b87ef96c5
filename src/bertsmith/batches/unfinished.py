"""A store in the making, from which an interrupted preparation goes on.

    STORE.partial/
      journal.jsonl   what the store is made from and how far it has come
      digests/        the texts that have been seen
      store/          what will be STORE
      lock            held by the process at work

Files may hold more than the journal counts: that is cut off before anything is added.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from bertsmith.batches.journal import Journal, Progress, Source
from bertsmith.disk import disk_error, flush_to_disk, made_folder, refused_by_disk, writing
from bertsmith.errors import DiskError, StoreError
from bertsmith.log import say

COMMIT_GROUPS = 64  # between two lines of the journal; each is a megabyte of text or more
_LINES = 64  # or so much of the work as this many lines would make, so that the journal stays small
_JOURNAL, _LOCK, _DIGESTS, _STORE = "journal.jsonl", "lock", "digests", "store"


class UnfinishedStore:
    """The folder of a store in the making, owned by this process."""

    def __init__(self, out: Path, *, total: int) -> None:
        self.folder = partial_folder(out)
        self.progress: Progress | None = None
        """What to go on from, if anything."""
        self.begun = False
        """Whether what is in the folder is this store's."""
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
        """Find out what there is to go on from; without a source, nothing will be kept."""
        path = self.folder / _JOURNAL
        if fresh:
            path.unlink(missing_ok=True)
        journal = Journal(path)
        if source is not None:
            journal.go_on(source)
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
        """Give the finished store its name."""
        self._wait()
        for path in (*self.store.rglob("*"), self.store):
            flush_to_disk(path)
        self.store.rename(self._out)
        flush_to_disk(self._out.resolve().parent)
        self.discard()

    def keep(self) -> bool:
        """Save what was reached, if the disk takes it; whether there is anything to go on from."""
        with suppress(OSError):
            if self._since:
                self._save()
            self._wait()
        # an interruption may have come between the start of saving and the note that it goes on
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
        """How much of the corpus the journal counts, for people."""
        progress = self._journal.progress if self._journal else None
        read = progress.position.read if progress else 0
        return f"{100 * min(1.0, read / max(1, self._total)):.0f} %"

    def _save(self) -> None:
        """Have the journal say how far the store has come, while work goes on."""
        self._wait()
        self._since = 0
        if self._journal is not None and self._reached is not None:
            self._saving = self._thread.submit(self._record, self._journal, *self._reached)

    def _record(self, journal: Journal, progress: Progress, files: Sequence[Path]) -> None:
        for path in files:
            flush_to_disk(path)
        journal.note(progress)

    def _wait(self) -> None:
        if self._saving is not None:
            saving, self._saving = self._saving, None
            saving.result()


def partial_folder(out: Path) -> Path:
    """Where a store is while it is being made."""
    return out.with_name(out.name + ".partial")


@contextmanager
def unfinished_store(
    out: Path, source: Source | None, *, total: int, fresh: bool = False
) -> Iterator[UnfinishedStore]:
    """A store to be made at `out`, where there must be nothing, or to be gone on with.

    When the block ends well the store takes its name. Otherwise it is kept to go on from, and the
    error says so; without a `source`, or when nothing was done, nothing is left. `total` is the
    size of the corpus. Raises `StoreError` when it is taken, or another source's; `DiskError`.
    """
    if out.exists():
        raise StoreError("exists already", where=out, remedy="delete it or choose another --out")
    work = UnfinishedStore(out, total=total)
    with made_folder(out.parent), _owned(work.folder, out):
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
            raise _told(error, work, out, kept=kept) from error.__cause__
        finally:
            work.close()


def _told(error: BaseException, work: UnfinishedStore, out: Path, *, kept: bool) -> BaseException:
    """The error as a user should see it: with what is kept, and how to go on."""
    refusal = error.__cause__ if isinstance(error, DiskError) else error
    if isinstance(refusal, OSError) and refused_by_disk(refusal):
        go_on = f"give the same command again: it goes on at {work.share()}"
        told = disk_error(refusal, out, then=go_on if kept else "")
        told.__cause__ = refusal
        return told
    if kept:
        done = f"{work.share()} is done and kept in {work.folder}"
        if isinstance(error, KeyboardInterrupt):
            what = str(error) or "interrupted"
            error.args = (f"{what}; {done}: give the same command again to go on",)
        else:
            say(f"{done}: the same command will go on from there")
    return error


@contextmanager
def _owned(folder: Path, out: Path) -> Iterator[None]:
    """The folder, made if need be, for this process alone; without anything kept it goes again."""
    with writing(out):
        folder.mkdir(exist_ok=True)
        foreign = {path.name for path in folder.iterdir()} - {_JOURNAL, _LOCK, _DIGESTS, _STORE}
        if foreign:
            raise StoreError(
                f"holds {min(foreign)} and is no unfinished store",
                where=folder,
                remedy="move it away, or choose another --out",
            )
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # an owner that has just gone may have taken the folder with it
            mine = os.path.samestat(os.stat(folder / _LOCK), os.fstat(lock))
        except (BlockingIOError, FileNotFoundError):
            mine = False
        if not mine:
            raise StoreError(
                "is being prepared by another process",
                where=out,
                remedy="wait for it, or choose another --out",
            )
        yield
    finally:
        os.close(lock)
