from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

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


def sequences(*lengths: int) -> list[tuple[NDArray[np.int32], NDArray[np.int8]]]:
    """Sequences of these lengths; what is in them tells their length."""
    return [(np.full(n, n, np.int32), np.full(n, n % 3, np.int8)) for n in lengths]


def test_windows_are_split_by_row_and_joined_again() -> None:
    """Three rows of 1, 3 and 2 windows, each window a unit with tokens to read."""
    positions = [np.arange(n) for n in (4, 2, 0, 1, 5, 3)]
    whole = EncodedExamples.windows(
        [sequences(11), sequences(12, 13, 14), sequences(15, 16)],
        ["a", "b", "c"],
        cut=[False, True, False],
        positions=positions,
    )
    assert whole.cut.tolist() == [False, True, True, True, False, False]
    assert whole.long.tolist() == [False, True, True, True, True, True]
    assert (len(whole), whole.texts, whole.long_texts, whole.cut_texts) == (6, 3, 2, 1)
    rows = list(whole.by_row())
    units = [slice(0, 1), slice(1, 4), slice(4, 6)]
    for row, own, name in zip(rows, units, "abc", strict=True):
        lengths = [11, 12, 13, 14, 15, 16][own]
        assert [ids.tolist() for ids in row.ids] == [[n] * n for n in lengths]
        assert [ids.tolist() for ids in row.segments] == [[n % 3] * n for n in lengths]
        assert row.starts.tolist() == [*range(len(lengths) + 1)]
        assert row.cut.tolist() == whole.cut[own].tolist()
        assert row.long.tolist() == whole.long[own].tolist()
        assert row.positions is not None
        assert [at.tolist() for at in row.positions] == [at.tolist() for at in positions[own]]
        assert (row.texts, row.sidecar) == (1, [name])
    some = EncodedExamples.joined([rows[2], rows[0], rows[1]])
    assert [len(ids) for ids in some.ids] == [15, 16, 11, 12, 13, 14]
    assert [segment[0] for segment in some.segments] == [0, 1, 2, 0, 1, 2]
    assert some.starts.tolist() == [*range(7)]
    assert some.cut.tolist() == [False] * 3 + [True] * 3
    assert some.long.tolist() == [True, True, False, True, True, True]
    assert some.positions is not None
    assert [len(at) for at in some.positions] == [5, 3, 4, 2, 0, 1]
    assert list(EncodedExamples.windows([], []).by_row()) == []
    assert EncodedExamples.windows([], []).texts == 0


def test_units_of_several_sequences_are_those_of_their_options(tokenizer: Tokenizer) -> None:
    """Rows of 2, 1 and 3 options: truncated and long where any of their options is."""
    texts = ["red", "red green blue cold warm", "cold", "blue", "red green", "blue"]
    encoded = encode_examples(tokenizer, texts, longest=6)
    grouped = replace(encoded, long=~encoded.cut).grouped([2, 1, 3])
    assert grouped.starts.tolist() == [0, 2, 3, 6]
    assert grouped.cut.tolist() == [True, False, False]
    assert grouped.long.tolist() == [True, True, True]
    assert grouped.lengths.tolist() == [3 + 6, 3, 3 + 4 + 3]
    assert (grouped.texts, grouped.cut_texts) == (3, 1)
    first, second, third = grouped.by_row()
    assert [len(ids) for ids in third.ids] == [3, 4, 3]
    assert third.starts.tolist() == [0, 3]
    assert (first.cut.tolist(), second.cut.tolist()) == ([True], [False])
    again = EncodedExamples.joined([third, first])
    assert again.starts.tolist() == [0, 3, 5]
    assert again.cut.tolist() == [False, True]
    # the target of a unit is at the first of its sequences, in the batch
    batch = pack_examples(grouped.labelled("choose", np.array([1, 0, 2])), np.array([2, 0, 1]))
    target = batch.targets["choose"]
    assert target.by_sequence
    assert target.positions.tolist() == [0, 3, 5]
    assert target.labels.tolist() == [2, 1, 0]


def test_labels_of_tokens_are_at_their_places_in_the_batch() -> None:
    whole = EncodedExamples.windows(
        [sequences(5), sequences(7, 6)], [None] * 2, positions=[np.array([1, 3]), np.array([2]),
        np.array([1, 4])],
    )  # fmt: skip
    labels = [np.array([10, 11]), np.array([20]), np.array([30, 31])]
    target = pack_examples(whole.labelled("tag", labels), np.array([2, 0])).targets["tag"]
    assert not target.by_sequence
    assert target.positions.tolist() == [1, 4, 6 + 1, 6 + 3]
    assert target.labels.tolist() == [30, 31, 10, 11]
