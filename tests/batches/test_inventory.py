"""Batches of tokens that are no text: all they need is an inventory."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from bertsmith.batches import DataPosition
from bertsmith.batches.config import SampleConfig, Text
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.batches.truncation import encode_pair
from bertsmith.core.errors import ConfigError
from bertsmith.network.batch import Batch
from bertsmith.store.store import TokenStore
from bertsmith.store.writing import EncodedDocuments, StoreWriter
from bertsmith.text.corpus.documents import TextSize
from bertsmith.tokens.vocabulary import TokenInventory

# codes 3 to 40; 0 to 2 are padding, unknown and mask; nothing begins or ends a sequence
CODES = TokenInventory(
    size=41,
    pad_id=0,
    unknown_id=1,
    mask_id=2,
    special_ids=frozenset((0, 1, 2)),
    ordinary_ids=np.arange(3, 41),
    continues=np.zeros(41, bool),
    fingerprint="codes",
)
DOCUMENTS = [np.random.default_rng(n).integers(3, 41, 50 + 7 * n) for n in range(9)]


@pytest.fixture(scope="module")
def codes(tmp_path_factory: pytest.TempPathFactory) -> TokenStore:
    """A store of the documents, each in sentences of ten codes."""
    folder = tmp_path_factory.mktemp("codes") / "store"
    writer = StoreWriter(folder, vocabulary=CODES.size)
    parts = [[len(part) for part in np.split(ids, range(10, len(ids), 10))] for ids in DOCUMENTS]
    writer.append(
        EncodedDocuments(
            ids=np.concatenate(DOCUMENTS),
            sentences=np.concatenate(parts),
            documents=np.array(list(map(len, parts))),
            text=TextSize(),
            unknown=0,
        )
    )
    writer.finish(fingerprint=CODES.fingerprint, duplicates=0)
    return TokenStore(folder)


def batch_of(
    store: TokenStore,
    inventory: TokenInventory = CODES,
    *,
    text: Text = "within_documents",
    left_to_right: bool = False,
) -> Batch:
    config = SampleConfig(
        max_length=32, tokens_per_batch=4096, text=text, left_to_right=left_to_right
    )
    batch, _ = PretrainingBatches(store, inventory, config, seed=3).next_batch(DataPosition())
    return batch


def test_sequences_of_codes_have_no_special_tokens_but_masks(codes: TokenStore) -> None:
    batch = batch_of(codes)
    ids = batch.ids.numpy()
    assert set(ids[ids < 3]) == {CODES.mask_id}
    target = batch.targets["masked_lm"]
    restored = ids.copy()
    restored[target.positions.numpy()] = target.labels.numpy()
    every = [tuple(ids) for ids in DOCUMENTS]
    for start, end in pairwise(batch.offsets.tolist()):
        sequence = tuple(restored[start:end])
        assert any(
            sequence == document[at : at + len(sequence)]
            for document in every
            for at in range(len(document))
        )
    assert max(batch.lengths) <= 32


def test_codes_are_read_from_left_to_right_without_a_mask(codes: TokenStore) -> None:
    without = replace(CODES, mask_id=None)
    batch = batch_of(codes, without, left_to_right=True)
    target = batch.targets["left_to_right"]
    assert torch.equal(batch.ids[target.positions + 1].long(), target.labels)
    # each code but the first of its sequence, which another sequence knows nothing of
    ends = batch.offsets[1:] - 1
    assert not torch.isin(target.positions, ends).any()
    assert len(target) == batch.tokens - batch.sequences
    with pytest.raises(ConfigError, match="no mask"):
        batch_of(codes, without)


@pytest.mark.parametrize("text", ["next_sentence", "sentence_order", "across_documents"])
def test_what_needs_a_separator_is_refused_without_one(codes: TokenStore, text: Text) -> None:
    with pytest.raises(ConfigError, match="no separator"):
        batch_of(codes, text=text)


def test_a_pair_has_the_special_tokens_that_there_are() -> None:
    first, second = np.array([7, 8]), np.array([9])
    ids, segments = encode_pair(replace(CODES, cls_id=1), first, second, longest=9)
    assert ids.tolist() == [1, 7, 8, 9]
    assert segments.tolist() == [0, 0, 0, 1]
    ids, segments = encode_pair(replace(CODES, sep_id=0), first, second, longest=9)
    assert ids.tolist() == [7, 8, 0, 9, 0]
    assert segments.tolist() == [0, 0, 0, 1, 1]
