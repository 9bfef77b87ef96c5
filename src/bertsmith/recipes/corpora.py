"""How the files of a corpus are read, by every recipe that reads one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bertsmith.config import Config
from bertsmith.log import say
from bertsmith.text.corpus import Corpus, shown_kinds
from bertsmith.text.encodings import AUTO, check_encoding
from bertsmith.text.headers import HeaderOption
from bertsmith.text.layout import Layout


@dataclass(frozen=True, kw_only=True)
class CorpusReading(Config):
    """Where the text of a corpus stands in its files, and how it is written there."""

    text_column: str = "text"
    """Column of the text in tables: a name or, in a CSV or TSV, a position from 0."""
    header: HeaderOption = "auto"
    """Whether the first line of a CSV or TSV names its columns; auto looks at its first lines."""
    layout: Layout = "auto"
    """What lines and blank lines mean in plain text."""
    encoding: str = AUTO
    """Encoding of the files by name; auto finds it out, file by file."""
    text_files: tuple[str, ...] = ()
    """Patterns of names, such as *.py, of files that are read as plain text."""

    def __post_init__(self) -> None:
        check_encoding(self.encoding)

    def open(self, paths: Sequence[str | Path]) -> Corpus:
        """Return the corpus of some files, folders and globs, and say what is left out of folders.

        Raises `CorpusError`.
        """
        corpus = Corpus(
            paths,
            text_column=self.text_column,
            header=self.header,
            layout=self.layout,
            encoding=self.encoding,
            text_files=self.text_files,
        )
        if corpus.skipped.total():
            files = "file" if len(corpus.files) == 1 else "files"
            say(
                f"corpus: {len(corpus.files):,} {files}; skipped: {shown_kinds(corpus.skipped)} "
                "(--text-files '*.ext' reads others as text)"
            )
        return corpus
