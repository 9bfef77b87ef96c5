"""Encoding a corpus into a token store."""

from __future__ import annotations

import os

from bertsmith.core.log import progress, say, short_number
from bertsmith.core.printable import counted
from bertsmith.hub.models import model_folder
from bertsmith.recipes.config import PrepareConfig
from bertsmith.recipes.corpora import open_corpus
from bertsmith.store.preparing import prepare_corpus
from bertsmith.store.store import HELD_OUT, StoreIndex, TokenStore
from bertsmith.tokens.tokenizer import Tokenizer


def prepare(config: PrepareConfig) -> TokenStore:
    """Encode a corpus with a vocabulary into a new store, with some of its documents held out.

    An interrupted call leaves `out`.partial, from which the same call resumes; with `fresh` it
    starts anew.
    """
    out = config.out
    tokenizer = Tokenizer.load(model_folder(config.vocab, "vocabulary"))
    opened = open_corpus(config.text)
    with progress("encoding", opened.total_bytes, "B") as bar:
        index = prepare_corpus(
            opened,
            tokenizer,
            out,
            held_out=config.held_out,
            workers=config.workers or len(os.sched_getaffinity(0)),
            fresh=config.fresh,
            moved=lambda position: bar.move_to(position.read),
        )
    store = TokenStore(out)
    say(describe(store, tokenizer.vocabulary[tokenizer.unknown_id]))
    single = index.documents == 1
    if single:
        say("the corpus is one document: next-sentence prediction needs at least two")
    pairs = " --sequences within_documents" if single else ""
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
