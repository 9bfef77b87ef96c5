"""The verbs that make text ready for training: each is a function that calls one recipe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from bertsmith.cli.command import Short, Verb
from bertsmith.core.config import Config
from bertsmith.tokens.vocabulary import KindName

if TYPE_CHECKING:
    from bertsmith.recipes.corpora import CorpusReading


def learn_vocabulary(
    corpus: list[str],
    *,
    out: Path,
    size: int = 30_000,
    kind: KindName = "wordpiece",
    cased: bool = False,
    strip_accents: Literal["auto", "yes", "no"] = "auto",
    character_coverage: float | None = None,
    specials: Literal["albert", "xlm-roberta"] = "albert",
    settings: Config | None = None,
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
        specials: special tokens and rules of a unigram vocabulary: albert, or xlm-roberta, which
            keeps capitals and accents
    """
    from bertsmith.recipes.vocabulary import VocabularySettings
    from bertsmith.recipes.vocabulary import learn_vocabulary as recipe

    wanted = VocabularySettings(
        size=size,
        kind=kind,
        cased=cased,
        strip_accents=strip_accents,
        character_coverage=character_coverage,
        specials=specials,
    )
    recipe(corpus, out=out, settings=wanted, reading=_reading(settings))


def extend_vocabulary(
    model: Path,
    corpus: list[str],
    *,
    add: int,
    out: Path,
    settings: Config | None = None,
) -> None:
    """Add to a model's vocabulary the pieces that save most on your text.

    New pieces start as the mean of those they replace; pretrain --from trains them.

    Args:
        model: folder of a model, or hub:owner/name
        corpus: files, folders or globs of .txt, .md, .rst, .log, .html, .xml, .jsonl, .parquet,
            .csv or .tsv, or source code, also .gz or .zst
        add: pieces to add
        out: folder for the model with the larger vocabulary
    """
    from bertsmith.recipes.extend import extend as recipe

    recipe(model, corpus, add=add, out=out, reading=_reading(settings))


def prepare(
    corpus: list[str],
    *,
    vocab: Path,
    out: Path,
    workers: int | None = None,
    held_out: float = 0.05,
    fresh: bool = False,
    dry_run: bool = False,
    settings: Config | None = None,
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
        fresh: begin anew, whatever an interrupted preparation has left in STORE.partial
        dry_run: show the files, how they are read, and the first documents with their tokens, and
            stop
    """
    from bertsmith.recipes.corpora import dry_run as show
    from bertsmith.recipes.prepare import prepare as recipe

    reading = _reading(settings)
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


def _reading(settings: Config | None) -> CorpusReading:
    """Return how the files of the corpus are read."""
    from bertsmith.recipes.corpora import CorpusReading

    reading = settings or CorpusReading()
    assert isinstance(reading, CorpusReading)
    return reading


def _corpus_settings() -> type[Config]:
    from bertsmith.recipes.corpora import CorpusReading

    return CorpusReading


_CORPUS_OPTIONS = {
    "--text-column": Short(setting="text_column"),
    "--header": Short(setting="header"),
    "--layout": Short(setting="layout"),
    "--encoding": Short(setting="encoding"),
    "--text-files": Short(setting="text_files", several=True),
}

DATA_VERBS = {
    "vocab learn": Verb(
        function=learn_vocabulary,
        settings=_corpus_settings,
        short=_CORPUS_OPTIONS,
        examples=("books/ --out vocab", "'news/*.jsonl.gz' --out vocab --size 8000 --cased"),
    ),
    "vocab extend": Verb(
        function=extend_vocabulary,
        settings=_corpus_settings,
        short=_CORPUS_OPTIONS,
        examples=("model notes/ --add 1000 --out extended",),
    ),
    "prepare": Verb(
        function=prepare,
        settings=_corpus_settings,
        short=_CORPUS_OPTIONS,
        examples=("books/ --vocab vocab --out store", "web.parquet --vocab vocab --out store"),
    ),
}
