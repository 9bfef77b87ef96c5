"""Opening a corpus: its files and their layout, and a preview of its first documents."""

from __future__ import annotations

import shutil
from collections import Counter
from itertools import islice
from pathlib import Path

from bertsmith.core.log import say
from bertsmith.core.printable import counted, printable
from bertsmith.hub.models import model_folder
from bertsmith.recipes.config import CorpusConfig, PrepareConfig
from bertsmith.text.corpus.documents import Document
from bertsmith.text.corpus.files import Corpus, shown_kinds
from bertsmith.text.opening import kind_of
from bertsmith.tokens.tokenizer import Tokenizer


def open_corpus(config: CorpusConfig) -> Corpus:
    """Return the corpus of files, folders and globs, and print what is skipped in folders.

    Raises `CorpusError`.
    """
    corpus = Corpus(
        config.corpus,
        text_column=config.text_column,
        header=config.header,
        layout=config.layout,
        encoding=config.encoding,
        text_files=config.text_files,
    )
    if corpus.skipped.total():
        files = "file" if len(corpus.files) == 1 else "files"
        say(
            f"corpus: {len(corpus.files):,} {files}; skipped: {shown_kinds(corpus.skipped)} "
            "(--text-files '*.ext' reads others as text)"
        )
    return corpus


_DOCUMENTS = 2
_PARAGRAPHS = 2
_TOKENS = 12


def dry_run(config: PrepareConfig) -> Corpus:
    """Show what `prepare` would read and how the vocabulary tokenizes it, and write nothing."""
    corpus = open_corpus(config.text)
    tell_corpus(corpus, Tokenizer.load(model_folder(config.vocab, "vocabulary")))
    say("dry run: nothing was written")
    return corpus


def tell_corpus(corpus: Corpus, tokenizer: Tokenizer) -> None:
    """Print which files a corpus has and how they are read, and its first documents."""
    width = max(40, shutil.get_terminal_size().columns)
    say(_files(corpus))
    for path in _one_of_each_kind(corpus.files):
        say(f"{printable(path.name)}: {printable(corpus.layout_of(path), 600)}")
    for number, document in enumerate(islice(corpus, _DOCUMENTS), 1):
        for line in _document(number, document, tokenizer):
            say(printable(line, width))


def _files(corpus: Corpus) -> str:
    kinds = Counter(kind_of(path) or "without extension" for path in corpus.files)
    count = len(corpus.files)
    shown = ", ".join(f"{number:,} {kind}" for kind, number in kinds.most_common())
    size = corpus.total_bytes / 1e6
    return f"corpus: {counted(count, 'file')} ({shown}), {size:,.1f} MB on the disk"


def _one_of_each_kind(files: tuple[Path, ...]) -> list[Path]:
    """Return the first file of each kind."""
    first: dict[str, Path] = {}
    for path in files:
        first.setdefault(kind_of(path), path)
    return list(first.values())


def _document(number: int, document: Document, tokenizer: Tokenizer) -> list[str]:
    """Return the lines that show a document: where it begins, its paragraphs, its first tokens."""
    count = len(document.paragraphs)
    place = f"{Path(document.source).name}, line {document.line}"
    lines = [f"document {number} ({place}), {counted(count, 'paragraph')}:"]
    lines += [f"  {paragraph}" for paragraph in document.paragraphs[:_PARAGRAPHS]]
    ids = tokenizer.encode([document.paragraphs[0][:1000]])[0][:_TOKENS].tolist()
    lines.append(f"  pieces: {' '.join(tokenizer.shown(piece) for piece in ids)}")
    lines.append(f"  ids:    {' '.join(map(str, ids))}")
    return lines
