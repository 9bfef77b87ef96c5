"""A small corpus of invented words, and a store of it."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import numpy as np
import pytest

from bertsmith.store.preparing import prepare_store
from bertsmith.store.store import TokenStore
from bertsmith.text.corpus.documents import Document
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer

SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]


def invented_documents(number: int, seed: int = 0) -> list[Document]:
    """Documents of 1 to 60 sentences of 3 to 12 words of 1 to 3 syllables."""
    made, inventing = _inventions(seed)
    made += islice(inventing, max(0, number - len(made)))
    return made[:number]


@functools.cache
def _inventions(seed: int) -> tuple[list[Document], Iterator[Document]]:
    """The documents of a seed that some test has asked for, and all that follow."""
    return [], _invent(np.random.default_rng(seed))


def _invent(random: np.random.Generator) -> Iterator[Document]:
    for number in count(1):
        sentences = []
        for _ in range(random.integers(1, 61)):
            lengths = random.integers(1, 4, random.integers(3, 13)).tolist()
            syllables = iter(random.integers(0, len(SYLLABLES), sum(lengths)).tolist())
            words = [
                "".join([SYLLABLES[n] for n in islice(syllables, length)]) for length in lengths
            ]
            sentences.append(" ".join(words).capitalize() + ".")
        paragraphs = tuple(
            " ".join(sentences[start : start + 5]) for start in range(0, len(sentences), 5)
        )
        yield Document(source="invented", line=number, paragraphs=paragraphs)


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    """A vocabulary of syllables."""
    return syllable_tokenizer()


def syllable_tokenizer() -> Tokenizer:
    """A vocabulary of syllables, whole and going on."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *SYLLABLES]
    return Tokenizer([*pieces, *(f"##{s}" for s in SYLLABLES)], BasicRules(lowercase=True))


@pytest.fixture(scope="session")
def store(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    """A store of 300 invented documents, about 110,000 tokens, one for all folders of tests."""
    if not _stores:
        folder = tmp_path_factory.mktemp("corpus") / "store"
        prepare_store(invented_documents(300), tokenizer, folder, held_out=0.1)
        _stores.append(TokenStore(folder))
    return _stores[0]


_stores: list[TokenStore] = []


@pytest.fixture
def some_documents() -> list[Document]:
    """Sixty invented documents."""
    return invented_documents(60, seed=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a test may write a store."""
    return tmp_path / "store"
