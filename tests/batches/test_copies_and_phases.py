"""Static masks, and phases of sequence length."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from bertsmith.batches import DataPosition
from bertsmith.batches.config import Phase, SampleConfig, Text
from bertsmith.batches.pretraining import PhasedBatches, PretrainingBatches
from bertsmith.core.errors import ConfigError
from bertsmith.store.store import TokenStore
from bertsmith.tokens.tokenizer import Tokenizer

Sequence = tuple[tuple[int, ...], tuple[int, ...], int | None]


def sequences_of(batches: PretrainingBatches, epoch: int, text: Text) -> list[Sequence]:
    """Masked ids, segments and label of every sequence of an epoch, in its order."""
    batch = batches.samples(np.arange(batches.sequences), epoch)
    target = batch.targets.get(text)
    labels = (
        dict(zip(target.positions.tolist(), target.labels.tolist(), strict=True)) if target else {}
    )
    parts = zip(batch.ids.split(batch.lengths), batch.segments.split(batch.lengths), strict=True)
    return [
        (tuple(ids.tolist()), tuple(segments.tolist()), labels.get(number))
        for number, (ids, segments) in enumerate(parts)
    ]


@pytest.mark.parametrize("text", ["next_sentence", "sentence_order", "across_documents"])
def test_an_epoch_repeats_the_copy_whose_turn_it_is_in_another_order(
    store: TokenStore, tokenizer: Tokenizer, text: Text
) -> None:
    config = SampleConfig(max_length=64, text=text, copies=3)
    batches = PretrainingBatches(store, tokenizer, config, seed=8)
    epochs = [sequences_of(batches, epoch, text) for epoch in (0, 1, 3, 6)]
    first, other, third, sixth = epochs
    assert Counter(first) == Counter(third) == Counter(sixth)
    for a, b in ((first, third), (first, sixth), (third, sixth)):
        assert sum(x == y for x, y in zip(a, b, strict=True)) < 0.02 * len(a)
    assert len(set(first) & set(other)) < 0.02 * len(first)


def test_without_copies_no_epoch_comes_again(store: TokenStore, tokenizer: Tokenizer) -> None:
    config = SampleConfig(max_length=64)
    batches = PretrainingBatches(store, tokenizer, config, seed=8)
    seen = [set(sequences_of(batches, epoch, "next_sentence")) for epoch in (0, 1, 10)]
    assert max(len(a & b) for a, b in zip(seen, seen[1:] + seen[:1], strict=True)) < 0.02 * len(
        seen[0]
    )


def phased(store: TokenStore, tokenizer: Tokenizer, *phases: Phase) -> PhasedBatches:
    config = SampleConfig(max_length=90, tokens_per_batch=2000)
    return PhasedBatches(store, tokenizer, config, phases, seed=5)


def test_a_run_goes_through_its_phases(store: TokenStore, tokenizer: Tokenizer) -> None:
    batches = phased(
        store,
        tokenizer,
        Phase(share=0.25, max_length=20),
        Phase(share=0.5, max_length=40, tokens_per_batch=1000),
    )
    steps, place, seen, places = 40, DataPosition(), [], []
    for step in range(steps):
        place = batches.enter(place, step / steps)
        places.append(place)
        following = batches.after(place)
        batch, place = batches.next_batch(place)
        assert following == place
        seen.append((max(batch.lengths), batch.tokens))
    for part, longest, budget in (
        (seen[:10], 20, 2000), (seen[10:30], 40, 1000), (seen[30:], 90, 2000),
    ):  # fmt: skip
        assert all(0.9 * longest < length <= longest for length, _ in part)
        assert all(0.9 * budget < tokens <= budget for _, tokens in part)
    # each phase begins an epoch of its own, with cuts, pairs and masks not used before
    assert [(p.phase, p.epoch) for p in (places[0], places[10], places[30])] == [
        (0, 0), (1, 1), (2, 2),
    ]  # fmt: skip
    assert [places[n].index for n in (0, 10, 30)] == [0, 0, 0]
    assert all(a.index < b.index for a, b in pairwise(places[10:30]))


def test_a_resumed_run_needs_its_place_and_progress_only(
    store: TokenStore, tokenizer: Tokenizer
) -> None:
    phase = Phase(share=0.5, max_length=20)
    place, after = DataPosition(), []
    for step in range(12):
        batches = phased(store, tokenizer, phase)
        place = batches.enter(DataPosition.from_dict(place.to_dict()), step / 12)
        batch, place = batches.next_batch(place)
        after.append(batch.ids)
    batches, place = phased(store, tokenizer, phase), DataPosition()
    for step in range(12):
        place = batches.enter(place, step / 12)
        batch, place = batches.next_batch(place)
        assert torch.equal(batch.ids, after[step])


def test_a_phase_is_entered_once_and_may_be_left_out(
    store: TokenStore, tokenizer: Tokenizer
) -> None:
    batches = phased(
        store, tokenizer, Phase(share=0.25, max_length=20), Phase(share=0.5, max_length=40)
    )
    place = DataPosition(phase=1, epoch=4, index=17)
    assert batches.enter(place, 0.0) == place
    assert batches.enter(place, 0.74) == place
    assert batches.enter(place, 0.75) == DataPosition(phase=2, epoch=5)
    assert batches.enter(DataPosition(epoch=3), 0.9) == DataPosition(phase=2, epoch=3)
    alone = phased(store, tokenizer)
    assert alone.enter(DataPosition(epoch=2, index=5), 0.99) == DataPosition(epoch=2, index=5)
    end = DataPosition(phase=2, epoch=7, index=batches.parts[2].sequences - 1)
    assert batches.next_batch(end)[1] == DataPosition(phase=2, epoch=8)


@pytest.mark.parametrize(
    ("phases", "told"),
    [
        ([{"share": 0.6, "max_length": 20}, {"share": 0.4, "max_length": 40}], "leave nothing"),
        ([{"share": 0.1, "max_length": 20}] * 10, "leave nothing"),
        ([{"share": 0.5, "max_length": 91}], "a phase has sequences of 91 tokens, more than"),
        ([{"share": 0.0, "max_length": 20}], "a phase's share is 0.0"),
        (
            [{"share": 0.5, "max_length": 4}],
            "a phase has sequences of 4 tokens; give it at least 8",
        ),
        (
            [{"share": 0.5, "max_length": 40, "tokens_per_batch": 30}],
            "a phase's batch of 30 tokens holds no sequence of 40",
        ),
    ],
)
def test_impossible_phases_are_refused(
    store: TokenStore, tokenizer: Tokenizer, phases: list[dict[str, Any]], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        phased(store, tokenizer, *(Phase.from_dict(phase) for phase in phases))
