"""The novels as token ids: the same documents for both sides, five whole novels held out."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bertsmith.store.preparing import prepare_store
from bertsmith.store.store import INDEX, TokenStore
from bertsmith.text.corpus.files import Corpus
from bertsmith.tokens.tokenizer import Tokenizer

LENGTH = 128
"""Tokens a block, the rival's max_seq_length, and a sequence of ours at most."""
_HELD_OUT_EVERY = 19


@dataclass(frozen=True)
class Novels:
    """Token stores of the novels to learn from and of those held out, and their vocabulary."""

    learn: TokenStore
    held_out: TokenStore
    tokenizer: Tokenizer


def novels(data: Path, out: Path) -> Novels:
    """Read or make the stores; one novel in nineteen, whole, is held out.

    The vocabulary is bert-base-uncased's, which users of either side start from.
    """
    files = sorted((data / "text" / "novels").glob("*.txt"))
    held_out = files[_HELD_OUT_EVERY // 2 :: _HELD_OUT_EVERY]
    parts = {"learn": [file for file in files if file not in held_out], "held-out": held_out}
    tokenizer = Tokenizer.load(data / "vocab" / "bert-base-uncased-vocab.txt")
    for name, chosen in parts.items():
        if not (out / name / INDEX).exists():
            prepare_store(Corpus(chosen), tokenizer, out / name, held_out=0.0)
    return Novels(TokenStore(out / "learn"), TokenStore(out / "held-out"), tokenizer)


def blocks(store: TokenStore, tokenizer: Tokenizer) -> Tensor:
    """Full blocks (blocks, LENGTH) as run_mlm's `group_texts` makes them; the rest is dropped.

    Each document, [CLS] before and [SEP] after it, follows the one before.
    """
    starts = store.document_starts().tolist()
    pieces: list[np.ndarray] = []
    for start, end in pairwise(starts):
        pieces += [
            np.array([tokenizer.cls_id]), store.read(start, end), np.array([tokenizer.sep_id])
        ]  # fmt: skip
    ids = torch.from_numpy(np.concatenate(pieces).astype(np.int64))
    return ids[: len(ids) // LENGTH * LENGTH].view(-1, LENGTH)
