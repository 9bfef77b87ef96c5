"""Sequences of token ids that both sides train on: real text where there is some, else invented."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS

VOCABULARY = 30_522
_LINES = 8_000


@dataclass(frozen=True)
class Sequences:
    """Sequences with [CLS] and [SEP], end to end: `ids` (tokens,), `offsets` (sequences + 1,)."""

    name: str
    ids: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, number: int) -> NDArray[np.int64]:
        return self.ids[self.offsets[number] : self.offsets[number + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each, (sequences,)."""
        return np.diff(self.offsets)


def tokenizer_for(data: Path | None, folder: Path) -> Tokenizer:
    """BERT's own vocabulary, or one of invented words and as large; its files go into `folder`."""
    if data is not None:
        tokenizer = Tokenizer.load(data / "vocab" / "bert-base-uncased-vocab.txt")
    else:
        words = [f"w{number}" for number in range(VOCABULARY - len(SPECIALS))]
        tokenizer = Tokenizer([*SPECIALS, *words], BasicRules(lowercase=True))
    assert tokenizer.size == VOCABULARY
    tokenizer.save(folder)
    return tokenizer


def filled(data: Path | None, tokenizer: Tokenizer, longest: int) -> Sequences:
    """Text in which every sequence has `longest` tokens."""
    texts = list(_texts(data, "novels"))
    pieces = np.concatenate(tokenizer.encode(texts, specials_in_text=False)).astype(np.int64)
    rows = pieces[: len(pieces) // (longest - 2) * (longest - 2)].reshape(-1, longest - 2)
    ids = np.pad(rows, ((0, 0), (1, 1)))
    ids[:, 0], ids[:, -1] = tokenizer.cls_id, tokenizer.sep_id
    return Sequences(f"filled to {longest}", ids.ravel(), np.arange(len(ids) + 1) * longest)


def as_it_comes(data: Path | None, tokenizer: Tokenizer, longest: int, name: str) -> Sequences:
    """A sequence a line, cut to `longest` tokens."""
    encoded = tokenizer.encode(list(_texts(data, name)), specials_in_text=False)
    inner = [encoding[: longest - 2] for encoding in encoded if len(encoding)]
    ids = [np.r_[tokenizer.cls_id, item, tokenizer.sep_id] for item in inner]
    offsets = np.cumsum([0, *(len(id_) for id_ in ids)])
    return Sequences(name, np.concatenate(ids).astype(np.int64), offsets)


def text_names(data: Path | None) -> tuple[str, ...]:
    """The texts there are to take as they come."""
    return ("invented",) if data is None else ("novels", "rt-polarity", "sms-spam")


def _texts(data: Path | None, name: str) -> Iterator[str]:
    if data is None:
        yield from _invented()
        return
    files = {
        "novels": sorted((data / "text" / "novels").glob("*.txt")),
        "rt-polarity": sorted((data / "rt-polarity").glob("rt-polarity.*")),
        "sms-spam": [data / "sms-spam" / "SMSSpamCollection"],
    }[name]
    share = -(-_LINES // len(files))
    for path in files:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        kept = [line.split("\t")[-1] for line in lines if line.strip()]
        yield from kept[:share]


def _invented() -> Iterator[str]:
    """Lines whose lengths spread as those of novels do, of words by Zipf's law."""
    random = np.random.default_rng(0)
    lengths = np.exp(random.normal(3.3, 1.1, _LINES)).astype(int) + 1
    for length in lengths.tolist():
        words = np.minimum(random.zipf(1.3, length), VOCABULARY - len(SPECIALS)) - 1
        yield " ".join(f"w{number}" for number in words)
