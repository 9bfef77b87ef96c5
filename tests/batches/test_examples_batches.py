from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from bertsmith.batches import DataPosition
from bertsmith.batches.examples import (
    EncodedExamples,
    ExampleBatches,
    encode_examples,
    evaluation_batches,
    pack_examples,
)
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer

WORDS = ("red", "green", "blue", "cold", "warm")


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    specials = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    return Tokenizer((*specials, *WORDS), BasicRules(lowercase=True))


@pytest.fixture(scope="module")
def examples(tokenizer: Tokenizer) -> EncodedExamples:
    """37 texts of 1 to 9 words; the label is the number of words."""
    counts = np.random.default_rng(1).integers(1, 10, 37).astype(np.int64)
    texts = [" ".join(WORDS[i % 5] for i in range(count)) for count in counts]
    return encode_examples(tokenizer, texts, longest=64).labelled("classify", counts)


def test_texts_and_pairs_are_encoded_and_what_is_cut_is_marked(tokenizer: Tokenizer) -> None:
    found = encode_examples(
        tokenizer, ["red green", "blue", "cold " * 9], [None, "warm red", "blue"], longest=8
    )
    assert found.ids[0].tolist() == [2, 5, 6, 3]
    assert found.ids[1].tolist() == [2, 7, 3, 9, 5, 3]
    assert found.segments[1].tolist() == [0, 0, 0, 1, 1, 1]
    assert found.ids[2].tolist() == [2, 8, 8, 8, 8, 3, 7, 3]
    assert found.cut.tolist() == [False, False, True]
    assert found.lengths.tolist() == [4, 6, 8]


def test_a_batch_carries_ids_and_labels_of_the_same_examples(examples: EncodedExamples) -> None:
    batch = pack_examples(examples, np.array([7, 3, 30]))
    assert batch.lengths == tuple(len(examples.ids[i]) for i in (7, 3, 30))
    assert (batch.targets["classify"].labels + 2).tolist() == list(batch.lengths)
    assert batch.targets["classify"].positions.tolist() == [0, 1, 2]
    unlabelled = replace(examples, labels=None)
    assert not pack_examples(unlabelled, np.array([1])).targets


def test_every_epoch_shows_every_example_once_in_an_order_of_its_own(
    examples: EncodedExamples,
) -> None:
    source = ExampleBatches(examples, units_per_batch=8, seed=3)
    orders: list[list[int]] = []
    place = DataPosition()
    for epoch in range(3):
        order: list[int] = []
        sizes: list[int] = []
        while place.epoch == epoch:
            indices = source.units(place)
            batch, place = source.next_batch(place)
            assert batch.lengths == tuple(len(examples.ids[i]) for i in indices)
            order += indices.tolist()
            sizes.append(batch.sequences)
        assert sizes == [8, 8, 8, 8, 5]
        assert sorted(order) == list(range(37))
        orders.append(order)
    assert orders[0] != orders[1] != orders[2]


def test_the_order_depends_on_seed_epoch_and_index_only(examples: EncodedExamples) -> None:
    place = DataPosition(epoch=4, index=16)
    again = [
        ExampleBatches(examples, units_per_batch=8, seed=seed).units(place).tolist()
        for seed in (3, 3, 4)
    ]
    assert again[0] == again[1] != again[2]


def test_evaluation_batches_keep_to_the_budget_the_longest_first(
    examples: EncodedExamples,
) -> None:
    seen: list[int] = []
    for indices, batch in evaluation_batches(examples, tokens_per_batch=40):
        assert batch.tokens <= 40
        assert batch.lengths == tuple(len(examples.ids[i]) for i in indices)
        seen += indices.tolist()
    assert sorted(seen) == list(range(37))
    lengths = [len(examples.ids[i]) for i in seen]
    assert lengths == sorted(lengths, reverse=True)
    # a budget below one example's length still gives every example
    assert [len(i) for i, _ in evaluation_batches(examples, tokens_per_batch=2)] == [1] * 37
