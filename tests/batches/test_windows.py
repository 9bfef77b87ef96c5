from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from bertsmith.batches.segments import Windows
from bertsmith.store.store import TokenStore
from bertsmith.tokens.tokenizer import Tokenizer


@pytest.mark.parametrize("budget", [13, 61, 125])
@pytest.mark.parametrize("epoch", [0, 7])
def test_windows_cover_every_token_once(
    store: TokenStore, tokenizer: Tokenizer, budget: int, epoch: int
) -> None:
    windows = Windows(store, budget, tokenizer.continues, seed=3)
    cuts = windows.cut(np.arange(windows.count), epoch)
    assert cuts.starts[0] == 0
    assert cuts.ends[-1] == store.tokens
    assert (cuts.starts[1:] == cuts.ends[:-1]).all()
    assert (cuts.ends - cuts.starts <= budget).all()
    starts = store.document_starts()
    assert (cuts.starts >= starts[cuts.documents]).all()
    assert (cuts.ends <= starts[cuts.documents + 1]).all()


def test_windows_are_nearly_full_and_begin_well(store: TokenStore, tokenizer: Tokenizer) -> None:
    windows = Windows(store, 61, tokenizer.continues, seed=3)
    cuts = windows.cut(np.arange(windows.count), 0)
    lengths = cuts.ends - cuts.starts
    assert (lengths > 0).all()
    # documents here hold 8 windows, two of them shorter by the random shift
    assert np.median(lengths) > 0.85 * 61
    at_sentence = np.isin(cuts.starts, store.sentences)
    at_word = ~tokenizer.continues[[store.read(s, s + 1)[0] for s in cuts.starts.tolist()]]
    assert at_sentence.mean() > 0.35
    assert at_word.mean() > 0.95


def test_another_epoch_cuts_elsewhere(store: TokenStore, tokenizer: Tokenizer) -> None:
    windows = Windows(store, 61, tokenizer.continues, seed=3)
    every = np.arange(windows.count)
    first, second, again = (windows.cut(every, epoch).starts for epoch in (0, 1, 0))
    assert (first == again).all()
    inner = ~np.isin(first, store.document_starts())
    assert (first == second)[inner].mean() < 0.2


def test_windows_are_found_in_any_order(store: TokenStore, tokenizer: Tokenizer) -> None:
    windows = Windows(store, 61, tokenizer.continues, seed=3)
    every = windows.cut(np.arange(windows.count), 2)
    some = np.array([windows.count - 1, 0, 5])
    assert windows.cut(some, 2).starts.tolist() == every.starts[some].tolist()
    assert windows.cut(some, 2).ends.tolist() == every.ends[some].tolist()


@pytest.mark.parametrize("budget", [6, 13, 61, 3000])
@pytest.mark.parametrize("epoch", [0, 7])
def test_windows_across_documents_cover_every_token_once(
    store: TokenStore, tokenizer: Tokenizer, budget: int, epoch: int
) -> None:
    windows = Windows(store, budget, tokenizer.continues, seed=3, across=True)
    cuts = windows.cut(np.arange(windows.count), epoch)
    assert cuts.starts[0] == 0
    assert cuts.ends[-1] == store.tokens
    assert (cuts.starts[1:] == cuts.ends[:-1]).all()
    assert (cuts.starts < cuts.ends).all()
    assert (cuts.lengths <= budget).all()
    # nothing but the first and the last one is short
    assert cuts.lengths[1:-1].min() > 0.5 * budget
    starts = store.document_starts()
    assert (starts[cuts.documents] <= cuts.starts).all()
    assert (cuts.starts < starts[cuts.documents + 1]).all()
    joints = np.searchsorted(starts, cuts.ends) - np.searchsorted(starts, cuts.starts, "right")
    assert (cuts.joints == joints).all()
    # all that cross documents, and some of the many that do not
    crossing = np.flatnonzero(joints)
    assert len(crossing) > 0
    for number in {*crossing.tolist(), *range(0, windows.count, 9)}:
        start, end = int(cuts.starts[number]), int(cuts.ends[number])
        parts = windows.by_document(start, end)
        edges = [start, *starts[(start < starts) & (starts < end)].tolist(), end]
        assert parts == list(pairwise(edges))
        assert len(np.concatenate([store.read(*part) for part in parts])) == end - start


def test_tiny_windows_are_never_empty(store: TokenStore, tokenizer: Tokenizer) -> None:
    for budget in (5, 6, 7, 13, 20):
        for across in (False, True):
            windows = Windows(store, budget, tokenizer.continues, seed=3, across=across)
            cuts = windows.cut(np.arange(min(windows.count, 2000)), 0)
            assert (cuts.starts < cuts.ends).all()
            assert (cuts.lengths <= budget).all()


def test_a_store_shorter_than_a_window_is_one(store: TokenStore, tokenizer: Tokenizer) -> None:
    windows = Windows(store, 10**6, tokenizer.continues, seed=3, across=True)
    assert windows.count == 1
    cuts = windows.cut(np.array([0]), 5)
    assert cuts.ends.tolist() == [store.tokens]
    assert cuts.joints.tolist() == [store.index.documents - 1]
