from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from bertsmith.recipes.pretrain import starting
from bertsmith.recipes.pretrain.starting import count_neighbours
from bertsmith.store.store import TokenStore
from bertsmith.tokens.tokenizer import Tokenizer


def text(store: TokenStore) -> list[int]:
    starts = store.document_starts().tolist()
    parts = [store.read(a, b).tolist() for a, b in pairwise(starts)]
    return [token for part in parts for token in part]


def test_counts_are_those_of_the_text(store: TokenStore, tokenizer: Tokenizer) -> None:
    ids = text(store)
    found = count_neighbours(store, tokenizer.size, contexts=20, distances=(-1, 3))
    assert Counter(dict(enumerate(found.tokens.tolist()))) == Counter(ids) | Counter(
        dict.fromkeys(range(tokenizer.size), 0)
    )
    commonest = [token for token, _ in Counter(ids).most_common(20)]
    assert sorted(found.tokens[found.contexts].tolist()) == sorted(
        Counter(ids)[token] for token in commonest
    )
    before = Counter(zip(ids[1:], ids, strict=False))
    third = Counter(zip(ids, ids[3:], strict=False))
    for column, context in enumerate(found.contexts.tolist()):
        for token in range(tokenizer.size):
            assert found.near[-1][token, column] == before[token, context]
            assert found.near[3][token, column] == third[token, context]


def test_of_a_large_store_stretches_are_read(
    store: TokenStore, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = count_neighbours(store, tokenizer.size, contexts=20, distances=(1,))
    monkeypatch.setattr(starting, "_TOKENS", 20_000)
    monkeypatch.setattr(starting, "_STRETCH", 1_000)
    part = count_neighbours(store, tokenizer.size, contexts=20, distances=(1,))
    assert part.tokens.sum() == 20_000 < whole.tokens.sum()
    share = part.tokens.sum() / whole.tokens.sum()
    often = whole.tokens > 500
    assert np.allclose(part.tokens[often], share * whole.tokens[often], rtol=0.5)
