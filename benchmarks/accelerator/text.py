"""Text for both sides: novels, or the documentation of this machine's Python."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bertsmith.recipes.demo.recipe import as_documents, read_documentation
from bertsmith.store.preparing import prepare_store
from bertsmith.store.store import INDEX, TokenStore
from bertsmith.text.corpus.documents import Document
from bertsmith.text.corpus.files import Corpus
from bertsmith.tokens.learning.wordpiece import learn_wordpiece
from bertsmith.tokens.tokenizer import Tokenizer

LENGTH = 128
_PIECES = 16_000
_HELD_OUT = 0.03


@dataclass(frozen=True)
class Text:
    """A store with its held-out documents, its tokenizer, and a vocabulary file for the rival."""

    store: TokenStore
    held_out: TokenStore
    tokenizer: Tokenizer
    vocabulary: Path


def text_for(data: Path | None, out: Path) -> Text:
    """Read or make the store in a folder."""
    folder, vocabulary = out / "store", out / "vocabulary"
    if not (folder / INDEX).exists():
        documents: Iterable[Document]
        if data is None:
            documents = as_documents(read_documentation())
            paragraphs = (text for document in documents for text in document.paragraphs)
            tokenizer = learn_wordpiece(paragraphs, size=_PIECES)
        else:
            documents = Corpus(sorted((data / "text" / "novels").glob("*.txt")))
            tokenizer = Tokenizer.load(data / "vocab" / "bert-base-uncased-vocab.txt")
        tokenizer.save(vocabulary)
        prepare_store(documents, tokenizer, folder, held_out=_HELD_OUT)
    store = TokenStore(folder)
    held_out = store.held_out()
    assert held_out is not None
    return Text(store, held_out, store.tokenizer(), vocabulary / "vocab.txt")


def blocks(store: TokenStore, tokenizer: Tokenizer) -> Tensor:
    """Full blocks (blocks, LENGTH) as run_mlm.py groups them; the rest is dropped."""
    pieces: list[np.ndarray] = []
    for start, end in pairwise(store.document_starts().tolist()):
        pieces += [
            np.array([tokenizer.cls_id]), store.read(start, end), np.array([tokenizer.sep_id])
        ]  # fmt: skip
    ids = torch.from_numpy(np.concatenate(pieces).astype(np.int64))
    return ids[: len(ids) // LENGTH * LENGTH].view(-1, LENGTH)
