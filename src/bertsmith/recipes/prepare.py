"""Encoding a corpus into a token store."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from bertsmith.core.errors import ConfigError
from bertsmith.core.log import progress, say, short_number
from bertsmith.core.printable import counted
from bertsmith.hub.models import model_folder
from bertsmith.recipes.corpora import CorpusReading
from bertsmith.store.preparing import prepare_corpus
from bertsmith.store.store import HELD_OUT, StoreIndex, TokenStore
from bertsmith.tokens.tokenizer import Tokenizer


def prepare(
    corpus: str | Path | Sequence[str | Path],
    *,
    vocab: str | Path,
    out: str | Path,
    workers: int | None = None,
    held_out: float = 0.05,
    reading: CorpusReading = CorpusReading(),  # noqa: B008 (frozen)
    fresh: bool = False,
) -> TokenStore:
    """Encode a corpus with a vocabulary into a new store, with 5 % of its documents held out.

    An interrupted call leaves `out`.partial, from which the same call resumes; with `fresh` it
    starts anew.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"workers is {workers}", remedy="it must be at least 1")
    if not 0 <= held_out < 1:
        raise ConfigError(f"held_out is {held_out}", remedy="it must be in [0, 1)")
    out = Path(out)
    tokenizer = Tokenizer.load(model_folder(vocab, "vocabulary"))
    opened = reading.open([corpus] if isinstance(corpus, str | Path) else corpus)
    with progress("encoding", opened.total_bytes, "B") as bar:
        index = prepare_corpus(
            opened,
            tokenizer,
            out,
            held_out=held_out,
            workers=workers or len(os.sched_getaffinity(0)),
            fresh=fresh,
            moved=lambda position: bar.move_to(position.read),
        )
    store = TokenStore(out)
    say(describe(store, tokenizer.vocabulary[tokenizer.unknown_id]))
    single = index.documents == 1
    if single:
        say("the corpus is one document: next-sentence prediction needs at least two")
    pairs = " --samples.text within_documents" if single else ""
    say(f"next: bertsmith pretrain {out} --out run --minutes 30{pairs}")
    return store


def describe(store: TokenStore, unknown_name: str) -> str:
    """Return one line on a store, including the share of unknown tokens."""
    index = store.index
    held_out = TokenStore(store.folder / HELD_OUT).index if store.held_out() else None
    every: list[StoreIndex] = [index, *([held_out] if held_out else [])]
    documents = sum(part.documents for part in every)
    tokens = sum(part.tokens for part in every)
    unknown = sum(part.unknown for part in every)
    return (
        f"corpus: {counted(documents, 'document')}, "
        f"{counted(sum(part.sentences for part in every), 'sentence')}, "
        f"{short_number(sum(part.text.words for part in every))} words, "
        f"{short_number(tokens)} tokens ({100 * unknown / tokens:.2f} % {unknown_name}); "
        f"{index.duplicates:,} duplicates left out; "
        f"{counted(held_out.documents if held_out else 0, 'document')} held out"
    )
