"""The verbs that make text ready for training: each is a function that calls one recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from bertsmith.text.layout import Layout
from bertsmith.tokens.vocabulary import KindName


def learn_vocabulary(
    corpus: list[str],
    *,
    out: Path,
    size: int = 30_000,
    kind: KindName = "wordpiece",
    cased: bool = False,
    strip_accents: Literal["auto", "yes", "no"] = "auto",
    character_coverage: float | None = None,
    text_column: str = "text",
    header: Literal["auto", "yes", "no"] = "auto",
    layout: Layout = "auto",
    encoding: str = "auto",
    text_files: str | None = None,
) -> None:
    """Learn a vocabulary from your text.

    Args:
        corpus: files, folders or globs of .txt, .md, .rst, .log, .html, .xml, .jsonl, .parquet,
            .csv or .tsv, or source code, also .gz or .zst
        out: folder for the vocabulary
        size: entries, special tokens included
        kind: wordpiece as BERT's and DistilBERT's; byte-bpe as RoBERTa's, which spells everything
            and knows no unknown words; unigram as ALBERT's (SentencePiece), the likeliest cutting
        cased: keep capitals and accents; byte-bpe always does
        strip_accents: drop the combining marks of letters, which makes café cafe; auto does so for
            an uncased vocabulary unless it would change the script, as in Hindi, Arabic or Japanese
        character_coverage: share of the text's characters to know, the most frequent first; if not
            given 0.9995, and rarer ones too that fit into a sixteenth of the size
        text_column: column of the text in .jsonl, .parquet and .csv: a name or, in .csv and .tsv, a
            position from 0
        header: whether the first line of a .csv or .tsv names its columns; auto looks at its first
            lines
        layout: what lines and blank lines mean in .txt
        encoding: of the files, such as latin-1, cp1252 or gb18030; auto is UTF-8, what a byte order
            mark says, or a guess that is said
        text_files: patterns with commas between them, such as '*.py,*.tex', of files that are read
            as plain text
    """
    from bertsmith.recipes.corpora import CorpusReading
    from bertsmith.recipes.vocabulary import VocabularySettings
    from bertsmith.recipes.vocabulary import learn_vocabulary as recipe

    settings = VocabularySettings(
        size=size,
        kind=kind,
        cased=cased,
        strip_accents=strip_accents,
        character_coverage=character_coverage,
    )
    reading = CorpusReading(
        text_column=text_column,
        header=header,
        layout=layout,
        encoding=encoding,
        text_files=tuple(text_files.split(",")) if text_files else (),
    )
    recipe(corpus, out=out, settings=settings, reading=reading)


def extend_vocabulary(
    model: Path,
    corpus: list[str],
    *,
    add: int,
    out: Path,
    text_column: str = "text",
    header: Literal["auto", "yes", "no"] = "auto",
    layout: Layout = "auto",
    encoding: str = "auto",
    text_files: str | None = None,
) -> None:
    """Add to a model's vocabulary the pieces that save most on your text.

    New pieces start as the mean of those they replace; pretrain --from trains them.

    Args:
        model: folder of a model, or hub:owner/name
        corpus: files, folders or globs of .txt, .md, .rst, .log, .html, .xml, .jsonl, .parquet,
            .csv or .tsv, or source code, also .gz or .zst
        add: pieces to add
        out: folder for the model with the larger vocabulary
        text_column: column of the text in .jsonl, .parquet and .csv: a name or, in .csv and .tsv, a
            position from 0
        header: whether the first line of a .csv or .tsv names its columns; auto looks at its first
            lines
        layout: what lines and blank lines mean in .txt
        encoding: of the files, such as latin-1, cp1252 or gb18030; auto is UTF-8, what a byte order
            mark says, or a guess that is said
        text_files: patterns with commas between them, such as '*.py,*.tex', of files that are read
            as plain text
    """
    from bertsmith.recipes.corpora import CorpusReading
    from bertsmith.recipes.extend import extend as recipe

    reading = CorpusReading(
        text_column=text_column,
        header=header,
        layout=layout,
        encoding=encoding,
        text_files=tuple(text_files.split(",")) if text_files else (),
    )
    recipe(model, corpus, add=add, out=out, reading=reading)


def prepare(
    corpus: list[str],
    *,
    vocab: Path,
    out: Path,
    workers: int | None = None,
    held_out: float = 0.05,
    text_column: str = "text",
    header: Literal["auto", "yes", "no"] = "auto",
    layout: Layout = "auto",
    encoding: str = "auto",
    text_files: str | None = None,
    fresh: bool = False,
    dry_run: bool = False,
) -> None:
    """Turn your text into a store of token ids, which pre-training reads.

    Memory stays the same whatever the size of the text, and the store whatever the number of
    workers. After an interruption, or when the disk was full, the same command goes on with what is
    in STORE.partial.

    Args:
        corpus: files, folders or globs of .txt, .md, .rst, .log, .html, .xml, .jsonl, .parquet,
            .csv or .tsv, or source code, also .gz or .zst
        vocab: folder made by vocab learn, or a model folder, or hub:owner/name
        out: folder for the store
        workers: processes that encode; one a core where none is given
        held_out: share of the documents to measure with, never trained on
        text_column: column of the text in .jsonl, .parquet and .csv: a name or, in .csv and .tsv, a
            position from 0
        header: whether the first line of a .csv or .tsv names its columns; auto looks at its first
            lines
        layout: what lines and blank lines mean in .txt
        encoding: of the files, such as latin-1, cp1252 or gb18030; auto is UTF-8, what a byte order
            mark says, or a guess that is said
        text_files: patterns with commas between them, such as '*.py,*.tex', of files that are read
            as plain text
        fresh: begin anew, whatever an interrupted preparation has left in STORE.partial
        dry_run: show the files, how they are read, and the first documents with their tokens, and
            stop
    """
    from bertsmith.recipes.corpora import CorpusReading
    from bertsmith.recipes.corpus_preview import dry_run as show
    from bertsmith.recipes.prepare import prepare as recipe

    reading = CorpusReading(
        text_column=text_column,
        header=header,
        layout=layout,
        encoding=encoding,
        text_files=tuple(text_files.split(",")) if text_files else (),
    )
    if dry_run:
        show(reading.open(corpus), vocab)
        return
    recipe(
        corpus,
        vocab=vocab,
        out=out,
        workers=workers,
        held_out=held_out,
        reading=reading,
        fresh=fresh,
    )
