"""A corpus: documents out of files, folders and globs, in a fixed order and constant memory."""

from __future__ import annotations

import glob
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import chain, islice
from pathlib import Path

from bertsmith.core.errors import CorpusError
from bertsmith.text.corpus.documents import Document
from bertsmith.text.corpus.layout import SAMPLE_CHARACTERS, Layout, measure_start
from bertsmith.text.corpus.markup import MARKUP, documents_of_markup
from bertsmith.text.corpus.sections import (
    Position,
    Section,
    document_sections,
    plain_sections,
    row_sections,
)
from bertsmith.text.encodings import AUTO, Guesses, check_encoding
from bertsmith.text.headers import HeaderOption
from bertsmith.text.opening import COMPRESSED, TextFile, kind_of
from bertsmith.text.tables import TABLES, Table

TEXTS = (".txt", ".md", ".markdown", ".rst", ".log")
_CODE = (
    ".py .pyi .ipy .c .h .cc .cpp .cxx .hpp .hh .cs .java .kt .scala .js .mjs .ts .jsx .tsx .go "
    ".rs .rb .php .pl .pm .lua .r .jl .swift .m .mm .f .f90 .hs .ml .clj .ex .erl .sh .bash "
    ".zsh .ps1 .sql .tex .css .vue .dart .zig .nim .asm .s .lisp .el .vb .pas "
)
SOURCE_CODE = tuple(_CODE.split())
"""Read as text where they are named; in a folder, where ``text_files`` asks for them."""
_HEAD_BYTES = 4 * SAMPLE_CHARACTERS  # as many as those characters can take
_KINDS = (
    "a corpus is .txt, .md, .rst, .log, .html, .xml, .jsonl, .parquet, .csv, .tsv or source code, "
    "each also .gz or .zst; --text-files '*.ext' reads other files as text"
)


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
    out, `skipped` counts the others) and globs; a file met twice is read once. Files with a name of
    `text_files` (patterns as in a shell) are plain text, whatever their extension. Of HTML and XML
    the text is read without its tags. Of a table, a row is a document, its text stands in
    `text_column` (a name or, of a CSV or TSV, a position from 0; `header` says whether its first
    line has names) and its line ends separate paragraphs. `layout` says what lines and blank lines
    of plain text mean: see `bertsmith.text.corpus.layout`. `encoding` is that of all files, or of
    each as it is found to be. A document of more than 4 million characters
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
        text_files: Sequence[str] = (),
    ) -> None:
        check_encoding(encoding)
        if not paths:
            raise CorpusError("no corpus was given", remedy=f"name files or folders: {_KINDS}")
        found: dict[Path, Path] = {}
        self.text_files = tuple(text_files)
        self.skipped: Counter[str] = Counter()
        for file in (file for path in paths for file in self._found(path)):
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
        guesses = Guesses(first_at_once=True)
        for number, file in enumerate(self.files[start.file :], start.file):
            here = start if number == start.file else Position(file=number)
            self._check_unchanged(number)
            if kind_of(file) != ".parquet":
                TextFile(file, CorpusError, self.encoding).examine(guesses)
            yield from self._of_file(file, here)
            self._check_unchanged(number)
            self._current = None
            self._done += self.states[number].size
        guesses.tell()

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
        if self._is_plain(path):
            with closing(TextFile(path, CorpusError, self.encoding).blocks()) as blocks:
                head = next(blocks, b"")[:_HEAD_BYTES]
            layout = measure_start(head, self._layout_for(path)).layout
            return f"layout {layout}" + " (as found)" * (self.layout == "auto")
        if kind in MARKUP:
            return "text without tags"
        return Table(path, CorpusError, encoding=self.encoding).described(
            self.text_column, self.header
        )

    def _of_file(self, path: Path, start: Position) -> Iterator[Section]:
        kind = kind_of(path)
        if self._is_plain(path):
            return self._plain(path, start)
        return self._markup(path, start) if kind in MARKUP else self._rows(path, start)

    def _layout_for(self, path: Path) -> Layout:
        # lines of code are no wrapped paragraphs
        code = self.layout == "auto" and kind_of(path) in SOURCE_CODE
        return "prose" if code else self.layout

    def _is_plain(self, path: Path) -> bool:
        return self._asked_for(path) or kind_of(path) in (*TEXTS, *SOURCE_CODE)

    def _asked_for(self, path: Path) -> bool:
        """Return whether the file is one that is to be read as text, whatever its kind."""
        names = (path.name, path.stem) if path.suffix.lower() in COMPRESSED else (path.name,)
        return any(fnmatch(name, each) for name in names for each in self.text_files)

    def _markup(self, path: Path, start: Position) -> Iterator[Section]:
        file = self._current = TextFile(path, CorpusError, self.encoding)
        found = documents_of_markup(file, file.texts(), records=kind_of(path) == ".xml")
        yield from document_sections(file, islice(found, start.offset, None), start, self._done)

    def _plain(self, path: Path, start: Position) -> Iterator[Section]:
        file = self._current = TextFile(path, CorpusError, self.encoding)
        blocks = file.blocks()
        head = b""
        while len(head) < _HEAD_BYTES and (block := next(blocks, b"")):
            head += block
        shape = measure_start(head, self._layout_for(path))
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

    def _found(self, path: str | Path) -> list[Path]:
        """The files that one argument stands for, in a fixed order."""
        if not str(path).strip():
            raise CorpusError("an empty path", remedy="name a file or a folder; . is this one")
        place = Path(path)
        skipped: Counter[str] = Counter()
        try:
            if place.is_dir():
                found = self._walk(place, skipped)
            elif place.exists():
                found = [place]
                self._check_kind(place)
            elif glob.has_magic(str(path)):
                matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True))
                found = [each for each in matches if each.is_file() and self._readable(each)]
                skipped.update(
                    _kind_shown(each) for each in matches if each.is_file() and each not in found
                )
                for folder in filter(Path.is_dir, matches):
                    found += self._walk(folder, skipped)
            else:
                raise CorpusError("does not exist", where=place, remedy="check the path")
        except (OSError, ValueError) as error:
            if isinstance(error, CorpusError):
                raise
            raise CorpusError(f"cannot be read: {error}", where=str(path)) from error
        if not found:
            holds = f", but {shown_kinds(skipped)}" if skipped else ""
            remedy = _as_text(skipped) or _KINDS
            raise CorpusError(f"no file with text in it{holds}", where=place, remedy=remedy)
        self.skipped += skipped
        return found

    def _check_kind(self, path: Path) -> None:
        if not self._readable(path):
            kind = kind_of(path)
            remedy = (
                f"{_KINDS.partition(';')[0]}; --text-files '{f'*{kind}' if kind else path.name}'"
            )
            raise CorpusError(
                "is of an unknown kind", where=path, remedy=f"{remedy} reads it as text"
            )

    def _walk(self, folder: Path, skipped: Counter[str]) -> list[Path]:
        """The readable files below a folder; of the others, `skipped` counts the kinds."""
        found: list[Path] = []
        for parent, folders, files in os.walk(folder):
            skipped["hidden"] += sum(name.startswith(".") for name in (*folders, *files))
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for path in (Path(parent, name) for name in sorted(files) if name[0] != "."):
                code = kind_of(path) in (*SOURCE_CODE, ".json") and not self._asked_for(path)
                if path.is_file() and self._readable(path) and not code:
                    found.append(path)
                else:
                    skipped[_kind_shown(path)] += 1
        return found

    def _readable(self, path: Path) -> bool:
        return self._is_plain(path) or kind_of(path) in (*MARKUP, *TABLES)


def _kind_shown(path: Path) -> str:
    return kind_of(path)[:20] or "without extension"


def shown_kinds(skipped: Counter[str]) -> str:
    """The kinds of some files with their numbers, the commonest first."""
    common = [(kind, count) for kind, count in skipped.most_common() if count]
    parts = [f"{count:,} {kind}" for kind, count in common[:6]]
    rest = sum(count for _, count in common[6:])
    return ", ".join(parts + ([f"{rest:,} others"] if rest else []))


def _as_text(skipped: Counter[str]) -> str:
    """How to read the commonest kind of files that were skipped, where they may be text."""
    kinds = [kind for kind, _ in skipped.most_common() if kind.startswith(".")]
    return f"if they are text: --text-files '*{kinds[0]}'" if kinds else ""
