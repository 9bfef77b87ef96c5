from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import torch

import forking
from bertsmith.batches import DataPosition
from bertsmith.batches.config import Phase, SampleConfig
from bertsmith.batches.pretraining import PhasedBatches
from bertsmith.core.errors import StoreError, WorkerDied
from bertsmith.network.batch import Batch
from bertsmith.store.store import TokenStore
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.distribution import World
from bertsmith.training.loading import open_feed


@pytest.fixture
def batches(store: TokenStore, tokenizer: Tokenizer) -> PhasedBatches:
    config = SampleConfig(max_length=41, tokens_per_batch=300)
    return PhasedBatches(store, tokenizer, config, [Phase(share=0.5, max_length=24)], seed=3)


def same(one: Batch, other: Batch) -> bool:
    tensors = [
        [b.ids, b.segments, b.positions, b.offsets, *(t.labels for t in b.targets.values())]
        for b in (one, other)
    ]
    return one.lengths == other.lengths and all(map(torch.equal, *tensors))


def test_the_place_after_is_known_without_the_batch(batches: PhasedBatches) -> None:
    last = batches.parts[0].sequences - 1
    found = []
    for place in (
        DataPosition(),
        DataPosition(epoch=2, index=last),
        DataPosition(phase=1, index=5),
    ):
        after = place
        for _ in range(9):
            begin = after
            _, after = batches.next_batch(begin)
            found.append((begin, after))
    assert any(after.epoch > place.epoch for place, after in found)
    assert [batches.after(place) for place, _ in found] == [after for _, after in found]


def test_seeking_reads_no_more_than_going_on(
    batches: PhasedBatches, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, reads = TokenStore.read, [0]

    def counted(store: TokenStore, start: int, end: int) -> object:
        reads[0] += 1
        return read(store, start, end)

    monkeypatch.setattr(TokenStore, "read", counted)
    costs = []
    for place in (DataPosition(), DataPosition(epoch=50_000, index=1500)):
        reads[0] = 0
        batch, _ = batches.next_batch(place)
        costs.append(reads[0] / batch.sequences)
    assert 0 < costs[1] == pytest.approx(costs[0], rel=0.3)


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.faults), 2])
def test_the_same_batches_in_the_same_order(batches: PhasedBatches, workers: int) -> None:
    place = DataPosition(index=1600)
    with open_feed(batches, 0) as here, open_feed(batches, workers, ahead=2) as there:
        for step, count in enumerate([1, 4, 2, 3, 5, 1, 2, 80, 3]):
            entered = batches.enter(place, step / 10)  # from step 5 on in another phase
            ours, after = here.next_batches(entered, count)
            theirs, place = there.next_batches(entered, count)
            assert place == after
            assert all(map(same, ours, theirs))
            assert theirs[0].ids.is_contiguous()
            theirs[0].ids.add_(1)  # nobody else's memory
        assert place.epoch >= 1
        assert place.phase == 1


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.faults)])
def test_ranks_share_the_batches_of_one(batches: PhasedBatches, workers: int) -> None:
    place = start = DataPosition(index=1650)
    with open_feed(batches, 0) as alone:
        whole, after_all = alone.next_batches(start, 18)
    for rank in range(3):
        with open_feed(batches, workers, World(rank=rank, size=3)) as feed:
            first, place = feed.next_batches(start, 2)
            last, place = feed.next_batches(place, 4)
        assert place == after_all
        assert all(map(same, [*first, *last], whole[rank::3]))


def test_another_place_drops_what_was_drawn(batches: PhasedBatches) -> None:
    with open_feed(batches, 2, ahead=3) as feed:
        for place in (
            DataPosition(),
            DataPosition(index=900),
            DataPosition(epoch=3),
            DataPosition(index=900),
        ):
            (found,), after = feed.next_batches(place, 1)
            expected, expected_after = batches.next_batch(place)
            assert same(found, expected)
            assert after == expected_after


def test_what_goes_wrong_elsewhere_is_raised_here(
    batches: PhasedBatches, store: TokenStore, tmp_path: Path
) -> None:
    store.folder, folder = tmp_path / "nowhere", store.folder
    try:
        with pytest.raises(StoreError) as error, open_feed(batches, 2):
            pass
    finally:
        store.folder = folder
    assert "nowhere: holds no store.json" in str(error.value)
    assert str(error.value).count("make one with") == 1
    with open_feed(batches, 1) as feed, pytest.raises(RuntimeError, match=r"IndexError"):
        feed.next_batches(DataPosition(phase=7), 1)


def children() -> list[int]:
    # it stays, whichever test asks for it first
    forking.server()
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return [int(number) for number in path.read_text().split()] if path.exists() else []


def test_a_process_that_dies_is_told_and_none_is_left(batches: PhasedBatches) -> None:
    before = set(children())
    with open_feed(batches, 2) as feed, pytest.raises(WorkerDied) as died:  # noqa: PT012
        feed.next_batches(DataPosition(), 1)
        working = set(children()) - before
        if not working:
            pytest.skip("this system does not tell the children of a process")
        assert len(working) == 2
        for number in working:
            os.kill(number, signal.SIGTERM)  # is for the parent to answer
            os.kill(number, signal.SIGINT)
        _, place = feed.next_batches(DataPosition(index=500), 9)
        os.kill(max(working), signal.SIGKILL)
        for _ in range(50):
            _, place = feed.next_batches(place, 1)
    assert "has died (status -9)" in str(died.value)
    assert "fewer --workers: it continues" in str(died.value)
    assert set(children()) == before
