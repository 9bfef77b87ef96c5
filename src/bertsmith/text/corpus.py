"""A corpus: documents out of files, folders and globs, in a fixed order and constant memory."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from bertsmith.errors import CorpusError
from bertsmith.text.documents import Document
from bertsmith.text.encodings import AUTO, check_encoding
from bertsmith.text.headers import HeaderOption
from bertsmith.text.layout import SAMPLE_CHARACTERS, Layout, measure_start
from bertsmith.text.opening import TextFile, kind_of
from bertsmith.text.sections import Position, Section, plain_sections, row_sections
from bertsmith.text.tables import TABLES, Table

TEXTS = (".txt",)
_HEAD_BYTES = 4 * SAMPLE_CHARACTERS  # as many as those characters can take
_KINDS = "a corpus is .txt, .jsonl, .parquet, .csv or .tsv, each also .gz or .zst"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """The size and the time of change of a file, which differ when it was written to."""

    size: int
    changed: int
    """When it was last changed, in nanoseconds."""
    regular: bool
    """Whether it is a file and not, say, a pipe."""

    @classmethod
    def of(cls, path: Path) -> FileState:
        """Return the present state of a file. Raises `OSError`."""
        found = path.stat()
        regular = stat.S_ISREG(found.st_mode)
        return cls(size=found.st_size, changed=found.st_mtime_ns, regular=regular)


class Corpus:
    """The documents of some files, in the order given; of a folder, in the order of their names.

    `paths` are files, folders (searched to the bottom for the known extensions, hidden ones left
    out) and globs; a file met twice is read once. Of a table, a row is a document, its text stands
    in `text_column` (a name or, of a CSV or TSV, a position from 0; `header` says whether its first
    line has names) and its line ends separate paragraphs. `layout` says what lines and blank lines
    of .txt files mean: see `bertsmith.text.layout`. `encoding` is that of all files, or of each as
    it is found to be. A document of more than 4 million characters
    (bytes, of a .txt) comes in parts, each a document. Raises `CorpusError` when nothing is found
    or, while iterating, when a file cannot be read, when it changes after the corpus was opened, or
    when all are without text. `states` are the files as they were then.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        *,
        text_column: str = "text",
        header: HeaderOption = "auto",
        layout: Layout = "auto",
        encoding: str = AUTO,
    ) -> None:
        check_encoding(encoding)
        if not paths:
            raise CorpusError("no corpus was given", remedy=f"name files or folders: {_KINDS}")
        found: dict[Path, Path] = {}
        for file in (file for path in paths for file in _files(path)):
            found.setdefault(file.resolve(), file)
        self.files = tuple(found.values())
        self.states = tuple(FileState.of(file) for file in self.files)
        self.total_bytes = sum(state.size for state in self.states)
        self.text_column = text_column
        self.header: HeaderOption = header
        self.layout: Layout = layout
        self.encoding = encoding
        self._done = 0
        self._current: TextFile | Table | None = None

    @property
    def bytes_read(self) -> int:
        """Bytes of `total_bytes` that the latest iteration has read so far."""
        return self._done + (self._current.bytes_read if self._current else 0)

    @property
    def lasting(self) -> bool:
        """Whether all files are there to be read again, as pipes are not."""
        return all(state.regular for state in self.states)

    def __iter__(self) -> Iterator[Document]:
        empty = True
        for section in self.sections():
            for document in section.documents():
                empty = False
                yield document
        if empty:
            raise self.without_text()

    def without_text(self) -> CorpusError:
        """What to raise when no section has a document."""
        return CorpusError(
            "the corpus holds no text" if len(self.files) > 1 else "holds no text",
            where=self.files[0],
            remedy="give files with text in them",
        )

    def sections(self, start: Position | None = None) -> Iterator[Section]:
        """The corpus from a position on, or all of it, in pieces to be made documents of.

        Of compressed files and of tables, what lies before the position is read once more.
        """
        start = start or Position()
        self._done = sum(state.size for state in self.states[: start.file])
        for number, file in enumerate(self.files[start.file :], start.file):
            here = start if number == start.file else Position(file=number)
            self._check_unchanged(number)
            yield from self._plain(file, here) if kind_of(file) in TEXTS else self._rows(file, here)
            self._check_unchanged(number)
            self._current = None
            self._done += self.states[number].size

    def _check_unchanged(self, number: int) -> None:
        """Raise `CorpusError` if a file is not as it was when the corpus was opened.

        What was read of it would be neither the old text nor the new. Pipes have no state to check.
        """
        file, before = self.files[number], self.states[number]
        if not before.regular:
            return
        try:
            now = FileState.of(file)
        except OSError as error:
            raise CorpusError(
                f"cannot be read: {error.strerror}", where=file, remedy="check the path"
            ) from error
        if now != before:
            sizes = f": {before.size:,} bytes before, {now.size:,} now"
            raise CorpusError(
                f"changed while it was read{sizes if now.size != before.size else ''}",
                where=file,
                remedy="run the command again when nothing writes to it, or read a copy of it",
            )

    def layout_of(self, path: Path) -> str:
        """Return how one of its files is read, in a few words: its layout, or the text's column."""
        kind = kind_of(path)
        if kind in TEXTS:
            blocks = TextFile(path, CorpusError).blocks()
            layout = measure_start(next(blocks, b"")[:_HEAD_BYTES], self.layout).layout
            return f"layout {layout}" + " (as found)" * (self.layout == "auto")
        return Table(path, CorpusError).described(self.text_column, self.header)

    def _plain(self, path: Path, start: Position) -> Iterator[Section]:
        file = self._current = TextFile(path, CorpusError, self.encoding)
        blocks = file.blocks()
        head = b""
        while len(head) < _HEAD_BYTES and (block := next(blocks, b"")):
            head += block
        shape = measure_start(head, self.layout)
        if start.offset:
            blocks.close()
            rest: Iterable[bytes] = file.blocks(start.offset)
        else:
            rest = chain([head], blocks)
        yield from plain_sections(file, rest, shape, start, self._done)

    def _rows(self, path: Path, start: Position) -> Iterator[Section]:
        table = self._current = Table(path, CorpusError, encoding=self.encoding)
        rows = islice(table.texts(self.text_column, self.header), start.offset, None)
        yield from row_sections(table, rows, start, self._done)


def _files(path: str | Path) -> list[Path]:
    """The files that one argument stands for, in a fixed order."""
    place = Path(path)
    try:
        if place.is_dir():
            found = _walk(place)
        elif place.exists():
            if not _readable(place):
                raise CorpusError("is of an unknown kind", where=place, remedy=_KINDS)
            return [place]
        elif glob.has_magic(str(path)):
            matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True))
            folders = [file for match in matches if match.is_dir() for file in _walk(match)]
            found = [match for match in matches if match.is_file() and _readable(match)] + folders
        else:
            raise CorpusError("does not exist", where=place, remedy="check the path")
    except (OSError, ValueError) as error:
        if isinstance(error, CorpusError):
            raise
        raise CorpusError(f"cannot be read: {error}", where=str(path)) from error
    if not found:
        raise CorpusError("no file with text in it", where=place, remedy=_KINDS)
    return found


def _walk(folder: Path) -> list[Path]:
    found: list[Path] = []
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths = (Path(parent, name) for name in sorted(files) if not name.startswith("."))
        found += [path for path in paths if path.is_file() and _readable(path)]
    return found


def _readable(path: Path) -> bool:
    return kind_of(path) in (*TEXTS, *TABLES)
