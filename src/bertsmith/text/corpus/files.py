"""A corpus: the documents of files, folders and globs, in a fixed order and constant memory."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from fnmatch import fnmatch
from itertools import chain, islice, takewhile
from pathlib import Path

from bertsmith.core.errors import CorpusError
from bertsmith.core.files import FileState, unreadable
from bertsmith.core.log import say
from bertsmith.core.printable import counted
from bertsmith.text.config import AUTO, HeaderOption, Layout, check_encoding
from bertsmith.text.corpus.documents import SAMPLE_CHARACTERS, Document, measure_start
from bertsmith.text.corpus.markup import MARKUP, PAGES, documents_of_markup, is_markup
from bertsmith.text.corpus.sections import (
    Position,
    Section,
    document_sections,
    plain_sections,
    row_sections,
)
from bertsmith.text.corpus.unread import first_bytes, is_output, outputs_among, remedy_for
from bertsmith.text.encodings import Guesses
from bertsmith.text.opening import COMPRESSED, TEXTS, TextFile, foreign, kind_of
from bertsmith.text.tables import TABLES, Table

_LOG = ".log"
_CODE = (
    ".py .pyi .ipy .c .h .cc .cpp .cxx .hpp .hh .cs .java .kt .scala .js .mjs .ts .jsx .tsx .go "
    ".rs .rb .php .pl .pm .lua .r .jl .swift .m .mm .f .f90 .hs .ml .clj .ex .erl .sh .bash "
    ".zsh .ps1 .sql .tex .css .vue .dart .zig .nim .asm .s .lisp .el .vb .pas "
)
SOURCE_CODE = tuple(_CODE.split())
"""Extensions read as text if a file is named; in a folder, only if ``text_files`` matches."""
_FOLDER_LINK, _BROKEN_LINK, _SPECIAL = "link to a folder", "broken link", "pipe or device"
_OUTPUT = "folder of a store, vocabulary, model or run"
_PLURALS = {
    _FOLDER_LINK: "links to folders", _BROKEN_LINK: "broken links", _SPECIAL: "pipes or devices",
    _OUTPUT: "folders of stores, vocabularies, models or runs",
}  # fmt: skip
_WIKI = b"<mediawiki "
_HEAD_BYTES = 4 * SAMPLE_CHARACTERS  # the most bytes that many characters can take
_KINDS = (
    "a corpus is .txt, .md, .rst, .log, .html, .xml, .jsonl, .parquet, .csv, .tsv or source code, "
    "each also .gz or .zst; --text-files '*.ext' reads other files as text"
)


class Corpus:
    """The documents of files in the order given, of a folder in the order of the file names.

    `states` are the states of the files when it was opened, `layouts` the layouts of the plain text
    read so far, by the number of the file; `skipped` counts the files that are not read. A document
    of more than 4 million characters (bytes, in a .txt) is split into several. Iterating raises
    `CorpusError` if a file cannot be read or changes after the corpus was opened, if it is none of
    text, or if all are without text.
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
        markup_files: Sequence[str] = (),
    ) -> None:
        """`paths` are files, folders (searched recursively) and globs; a file is read once.

        Of a folder the files of known extensions are read; hidden files, links to folders, and the
        folders of stores, vocabularies, models and runs are left out. HTML and XML, and a .txt that
        begins as such, are read without their tags. Files that match `text_files` (shell patterns)
        are plain text, and those that match `markup_files` HTML or XML, whatever their extension.
        `layout` is the meaning of lines and blank lines in plain text: see
        `bertsmith.text.corpus.documents`. In a table a row is a document: its text is in
        `text_column` (a name or, in a CSV or TSV, a position from 0; `header` says whether the
        first line holds names), and its line ends separate paragraphs. `encoding` applies to all
        files, "auto" detects that of each. Raises `CorpusError` if there are no files.
        """
        check_encoding(encoding)
        if not paths:
            raise CorpusError("no corpus was given", remedy=f"name files or folders: {_KINDS}")
        files: dict[Path, Path] = {}
        self.text_files = tuple(text_files)
        self.markup_files = tuple(markup_files)
        self.skipped: Counter[str] = Counter()
        self._skipped_examples: dict[str, Path] = {}
        self._several = len(paths) > 1
        for file in (file for path in paths for file in self._files_of(path)):
            files.setdefault(file.resolve(), file)
        if not files:
            raise self._without_files(Path(paths[0]), self.skipped)
        self.files = tuple(files.values())
        self.states = tuple(FileState.of(file) for file in self.files)
        self.total_bytes = sum(state.size for state in self.states)
        self.text_column = text_column
        self.header: HeaderOption = header
        self.layout: Layout = layout
        self.encoding = encoding
        self.layouts: dict[int, Layout] = {}
        self._done = 0
        self._current: TextFile | Table | None = None

    @property
    def bytes_read(self) -> int:
        """Number of the `total_bytes` that the latest iteration has read so far."""
        return self._done + (self._current.bytes_read if self._current else 0)

    @property
    def lasting(self) -> bool:
        """Return whether all files can be read again, unlike pipes."""
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
        """Return the error for a corpus without documents."""
        return CorpusError(
            "the corpus holds no text" if len(self.files) > 1 else "holds no text",
            where=self.files[0],
            remedy="give files with text in them",
        )

    def sections(self, start: Position | None = None) -> Iterator[Section]:
        """Yield the sections of the corpus from a position on, by default all.

        Compressed files and tables are read again from their beginning.
        """
        start = start or Position()
        self._done = sum(state.size for state in self.states[: start.file])
        guesses = Guesses(first_at_once=True)
        for number, file in enumerate(self.files[start.file :], start.file):
            begin = start if number == start.file else Position(file=number)
            self._check_unchanged(number)
            if kind_of(file) != ".parquet":
                TextFile(file, CorpusError, self.encoding).examine(guesses)
            yield from self._of_file(file, begin)
            self._check_unchanged(number)
            self._current = None
            self._done += self.states[number].size
        guesses.print()

    def _check_unchanged(self, number: int) -> None:
        """Raise `CorpusError` if a file has changed since the corpus was opened.

        Its text would be a mixture of old and new. Pipes have no state to check.
        """
        file, before = self.files[number], self.states[number]
        if not before.regular:
            return
        try:
            now = FileState.of(file)
        except OSError as error:
            raise unreadable(CorpusError, error, file) from error
        if now != before:
            sizes = f": {before.size:,} bytes before, {now.size:,} now"
            raise CorpusError(
                f"changed while it was read{sizes if now.size != before.size else ''}",
                where=file,
                remedy="run the command again when nothing writes to the file, or read a copy",
            )

    def layout_of(self, path: Path) -> str:
        """Return a short description of how a file is read: its layout, or its text column."""
        if self._is_plain(path) and self._is_misnamed(path):
            return "text without tags (as found)"
        if self._is_plain(path):
            return f"layout {self._measured(path)}" + " (as found)" * (self.layout == "auto")
        if self._is_markup(path):
            return "text without tags"
        return Table(path, CorpusError, encoding=self.encoding).described(
            self.text_column, self.header
        )

    def examine(self, max_files: int) -> None:
        """Examine the start of `max_files` files, spread evenly; fill `layouts` of plain text.

        Raises `CorpusError` for one that is not in its encoding or has no column of texts.
        """
        guesses = Guesses(first_at_once=True)
        for number in range(0, len(self.files), -(-len(self.files) // max_files)):
            file = self.files[number]
            if kind_of(file) != ".parquet":
                TextFile(file, CorpusError, self.encoding).examine(guesses)
            if self._is_plain(file) and not self._is_misnamed(file):
                self.layouts[number] = self._measured(file)
            else:
                self.layout_of(file)
        guesses.print()

    def _measured(self, path: Path) -> Layout:
        """Return the layout that the beginning of a file of plain text shows."""
        file = TextFile(path, CorpusError, self.encoding)
        with closing(file.blocks()) as blocks:
            head = next(blocks, b"")[:_HEAD_BYTES]
        # what is not UTF-8 is an error, but for a character that the sample cuts
        file.decoded(head[: head.rfind(b"\n") + 1], 1)
        return measure_start(head, self._layout_for(path)).layout

    def _of_file(self, path: Path, start: Position) -> Iterator[Section]:
        plain = self._is_plain(path)
        if self._is_markup(path) or (plain and self._is_misnamed(path)):
            return self._markup(path, start)
        return self._plain(path, start) if plain else self._rows(path, start)

    def _layout_for(self, path: Path) -> Layout:
        # lines of code and of logs are not wrapped paragraphs
        apart = self.layout == "auto" and kind_of(path) in (*SOURCE_CODE, _LOG)
        return "prose" if apart else self.layout

    def _is_plain(self, path: Path) -> bool:
        if _matches(path, self.text_files):
            return True
        return kind_of(path) in (*TEXTS, *SOURCE_CODE) and not _matches(path, self.markup_files)

    def _is_markup(self, path: Path) -> bool:
        """Return whether a file is HTML or XML by its name."""
        named = kind_of(path) in MARKUP and not _matches(path, self.text_files)
        return named or _matches(path, self.markup_files)

    def _is_misnamed(self, path: Path) -> bool:
        """Return whether a .txt is HTML or XML.

        Pipes are not examined, since they cannot be read twice. Raises `CorpusError` for what is
        no text at all.
        """
        if kind_of(path) not in TEXTS or self._is_stated(path) or not path.is_file():
            return False
        head = first_bytes(path)
        if problem := foreign(path, head):
            what, remedy = problem
            raise CorpusError(f"is {what}, not text", where=path, remedy=remedy)
        return kind_of(path) == ".txt" and is_markup(head)

    def _is_stated(self, path: Path) -> bool:
        """Return whether the file matches a pattern that says how it is read."""
        return _matches(path, (*self.text_files, *self.markup_files))

    def _markup(self, path: Path, start: Position) -> Iterator[Section]:
        file = self._current = TextFile(path, CorpusError, self.encoding)
        if path.is_file() and _WIKI in first_bytes(path):
            say(f"{path}: markup of MediaWiki stays in its text; WikiExtractor takes it out")
        documents = documents_of_markup(file, file.texts(), records=kind_of(path) not in PAGES)
        yield from document_sections(file, islice(documents, start.offset, None), start, self._done)

    def _plain(self, path: Path, start: Position) -> Iterator[Section]:
        file = self._current = TextFile(path, CorpusError, self.encoding)
        blocks = file.blocks()
        head = b""
        while len(head) < _HEAD_BYTES and (block := next(blocks, b"")):
            head += block
        shape = measure_start(head, self._layout_for(path))
        self.layouts[start.file] = shape.layout
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

    def _files_of(self, path: str | Path) -> list[Path]:
        """Return the files of one argument, in a fixed order."""
        if not str(path).strip():
            raise CorpusError("an empty path", remedy="name a file or a folder, or . for this one")
        location = Path(path)
        skipped: Counter[str] = Counter()
        try:
            if location.exists() and not location.is_dir():
                files = [location]
                self._check_kind(location)
            else:
                files = self._files_in(path, skipped)
        except OSError as error:
            raise unreadable(CorpusError, error, error.filename or path) from error
        except ValueError as error:
            if isinstance(error, CorpusError):
                raise
            raise CorpusError(f"cannot be read: {error}", where=str(path)) from error
        # a shell names all that is in the working folder for a *
        if not files and not (skipped[_OUTPUT] and self._several):
            raise self._without_files(location, skipped)
        self.skipped += skipped
        return files

    def _without_files(self, location: Path, skipped: Counter[str]) -> CorpusError:
        """Return the error for a path without files that are read."""
        holds = f", but {shown_kinds(skipped)}" if skipped.total() else ""
        usual = "name the files in it that are text" if skipped[_OUTPUT] else _KINDS
        remedy = next((f"{kind}: {what}" for kind, what in self._remedies(skipped)), usual)
        return CorpusError(f"no file with text in it{holds}", where=location, remedy=remedy)

    def _files_in(self, path: str | Path, skipped: Counter[str]) -> list[Path]:
        """Return the readable files of a folder or glob; count the others in `skipped`."""
        if Path(path).is_dir():
            return self._walk(Path(path), skipped)
        if not glob.has_magic(str(path)):
            remedy = "check the path"
            if str(path) == "-":
                remedy = "a corpus is read from files: write what a pipe gives to a .txt"
            raise CorpusError("does not exist", where=path, remedy=remedy)
        _check_listed(Path(path).parts)
        matches = sorted(Path(match) for match in glob.glob(str(path), recursive=True))
        files: list[Path] = []
        named = takewhile(lambda part: not glob.has_magic(part), Path(path).parts)
        # few folders may hold millions of files
        folders = {match.parent for match in matches}
        outputs = outputs_among(folders, Path(*named))
        left_out = outputs | {each for each in folders if not outputs.isdisjoint(each.parents)}
        skipped[_OUTPUT] += len(outputs)
        matches = [each for each in matches if left_out.isdisjoint((each, each.parent))]
        for file in filter(Path.is_file, matches):
            if self._readable(file):
                files.append(file)
            else:
                self._skip(file, skipped)
        for folder in filter(Path.is_dir, matches):
            files += self._walk(folder, skipped)
        return files

    def _check_kind(self, path: Path) -> None:
        if not self._readable(path):
            remedy = remedy_for(path) or _KINDS
            if path.is_fifo():
                remedy = "it is a pipe: write what it gives to a .txt"
            raise CorpusError("is of an unknown kind", where=path, remedy=remedy)

    def remedies(self) -> Iterator[tuple[str, str]]:
        """Yield the kinds of skipped files that hold text, the most frequent first, and the remedy.

        See `remedy_for`; the first file of a kind stands for all.
        """
        return self._remedies(self.skipped)

    def _remedies(self, skipped: Counter[str]) -> Iterator[tuple[str, str]]:
        for kind, count in skipped.most_common():
            if kind == _FOLDER_LINK and count:
                yield kind, "it is not entered: name the folder that it points to"
            example = self._skipped_examples.get(kind)
            if example is not None and (remedy := remedy_for(example)):
                yield kind, remedy

    def _skip(self, path: Path, skipped: Counter[str]) -> None:
        """Count a file that is not read."""
        kind = _kind_shown(path)
        skipped[kind] += 1
        if path.is_file():
            self._skipped_examples.setdefault(kind, path)

    def _walk(self, folder: Path, skipped: Counter[str]) -> list[Path]:
        """Return the readable files below a folder; count the others in `skipped` by extension."""
        readable: list[Path] = []
        for parent, folders, files in os.walk(folder, onerror=_refuse):
            if is_output({*folders, *files}):
                skipped[_OUTPUT] += 1
                folders.clear()
                continue
            skipped["hidden"] += sum(name.startswith(".") for name in (*folders, *files))
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            # nor are they entered: what a link points to may be above it
            skipped[_FOLDER_LINK] += sum(Path(parent, name).is_symlink() for name in folders)
            for path in (Path(parent, name) for name in sorted(files) if name[0] != "."):
                code = kind_of(path) in (*SOURCE_CODE, ".json") and not self._is_stated(path)
                if path.is_file() and self._readable(path) and not code:
                    readable.append(path)
                else:
                    self._skip(path, skipped)
        return readable

    def _readable(self, path: Path) -> bool:
        return self._is_plain(path) or self._is_markup(path) or kind_of(path) in TABLES


def _matches(path: Path, patterns: Sequence[str]) -> bool:
    """Return whether the name of a file, with its compression or without, matches a pattern."""
    names = (path.name, path.stem) if path.suffix.lower() in COMPRESSED else (path.name,)
    return any(fnmatch(name, pattern) for name in names for pattern in patterns)


def _check_listed(pattern: Sequence[str]) -> None:
    """List the folders that a glob lists, which passes over those that refuse it."""
    for number in (number for number, part in enumerate(pattern) if glob.has_magic(part)):
        # with a / at its end it matches folders alone
        for folder in glob.glob(str(Path(*pattern[:number], "")) + os.sep, recursive=True):
            os.scandir(Path(folder)).close()


def _refuse(error: OSError) -> None:
    """Raise the error of a folder that cannot be listed: its files would be left out unseen."""
    raise error


def _kind_shown(path: Path) -> str:
    if path.is_symlink() and not path.exists():
        return _BROKEN_LINK
    if not path.is_file():
        return _SPECIAL
    return kind_of(path)[:20] or "without extension"


def shown_kinds(skipped: Counter[str]) -> str:
    """Return the extensions of skipped files with their counts, the most frequent first."""
    common = [(kind, count) for kind, count in skipped.most_common() if count]
    parts = [counted(count, kind, _PLURALS.get(kind, kind)) for kind, count in common[:6]]
    rest = sum(count for _, count in common[6:])
    return ", ".join(parts + ([f"{rest:,} others"] if rest else []))
