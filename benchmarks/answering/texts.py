"""Texts to turn into vectors: of mixed length, and of a number of tokens."""

from __future__ import annotations

import os
import random
from pathlib import Path

from tokenizers import Tokenizer

INVENTED = "INVENTED"


def mixed(count: int, vocabulary: list[str]) -> tuple[list[str], str]:
    """Return texts from a few words to some hundreds, and where they are from."""
    draw = random.Random(8)
    folder = os.environ.get("BERTSMITH_DATA")
    found: set[str] = set()
    if folder is not None:
        data = Path(folder)
        for path, column in (("sms-spam/SMSSpamCollection", 1), ("glue/RTE/dev.tsv", 1)):
            if (data / path).is_file():
                lines = (data / path).read_text("utf-8").splitlines()
                found |= {line.split("\t")[column].strip() for line in lines if "\t" in line}
        for novel in sorted((data / "text" / "novels").glob("*.txt"))[:20]:
            parts = novel.read_text("utf-8").split("\n\n")
            found |= {" ".join(part.split()) for part in parts[200:260]}
    texts = sorted(text for text in found if 12 <= len(text) <= 2500)
    if len(texts) >= count:
        return draw.sample(texts, count), "SMS, RTE and novels"
    words = _words(vocabulary)
    # about the lengths of the real ones: a median of 20 words, a few of several hundred
    sizes = [min(400, max(2, round(draw.lognormvariate(3.0, 0.8)))) for _ in range(count)]
    return [" ".join(draw.choices(words, k=size)) for size in sizes], "invented"


def of_length(tokens: int, count: int, tokenizer: Tokenizer) -> list[str]:
    """Return texts of exactly so many tokens, special ones included."""
    draw = random.Random(tokens)
    words = _words(sorted(tokenizer.get_vocab()))
    texts = [" ".join(draw.choices(words, k=tokens - 2)) for _ in range(count)]
    assert all(len(tokenizer.encode(text).ids) == tokens for text in texts)
    return texts


def _words(vocabulary: list[str]) -> list[str]:
    """Return words that are one token each."""
    return sorted(
        item for item in vocabulary if item.isascii() and item.isalpha() and len(item) > 3
    )
