"""Sentence order, text that crosses documents, and reading from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import chisquare, kstest, uniform
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import cross_val_score

from bertsmith.batches import DataPosition
from bertsmith.batches.config import SampleConfig, Text
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.batches.segments import EXCHANGED, IS_RANDOM, Segments, Windows
from bertsmith.core.errors import ConfigError
from bertsmith.network.batch import Batch
from bertsmith.store.preparing import prepare_store
from bertsmith.store.store import StoreIndex, TokenStore
from bertsmith.text.corpus.documents import Document, TextSize
from bertsmith.tokens.tokenizer import Tokenizer


def batches_of(store: TokenStore, tokenizer: Tokenizer, **settings: Any) -> PretrainingBatches:  # noqa: ANN401
    config = SampleConfig(max_length=96, tokens_per_batch=4096).override(**settings)
    return PretrainingBatches(store, tokenizer, config, seed=11)


def epoch_of(batches: PretrainingBatches, epoch: int = 0) -> Batch:
    return batches.samples(np.arange(batches.sequences), epoch)


def originals(batch: Batch) -> torch.Tensor:
    """The ids before masking."""
    if "masked_lm" not in batch.targets:
        return batch.ids
    target = batch.targets["masked_lm"]
    return batch.ids.index_put((target.positions,), target.labels)


def test_exchanged_sentences_are_consecutive_text_the_other_way_round(
    store: TokenStore, tokenizer: Tokenizer
) -> None:
    batch = epoch_of(batches_of(store, tokenizer, text="sentence_order"))
    assert list(batch.targets) == ["masked_lm", "sentence_order"]
    target = batch.targets["sentence_order"]
    labels = dict(zip(target.positions.tolist(), target.labels.tolist(), strict=True))
    text = " ".join(map(str, store.read(0, store.tokens).tolist())) + " "
    sentences = store.sentences.tolist()
    begins = {tuple(store.read(at, min(at + 4, store.tokens)).tolist()) for at in sentences[:-1]}
    full_stop = tokenizer.encode(["."])[0].tolist()
    whole, tokens = originals(batch), 0
    for number, (start, end) in enumerate(pairwise(batch.offsets.tolist())):
        ids, segments = whole[start:end], batch.segments[start:end]
        first, second = ids[segments == 0][1:-1], ids[segments == 1][:-1]
        tokens += len(first) + len(second)
        label = labels.get(number)
        assert (label is None) == (not len(second))
        if label is None:
            continue
        for part in (first, second):
            assert part[-1:].tolist() == full_stop
            if len(part) >= 4:
                assert tuple(part[:4].tolist()) in begins
        ordered = (second, first) if label == EXCHANGED else (first, second)
        assert " ".join(map(str, torch.cat(ordered).tolist())) + " " in text
    assert tokens == store.tokens
    # sentences here are of 19 tokens, windows of 70
    assert len(labels) > 0.75 * batch.sequences


class Places(TokenStore):
    """A store of documents whose sentences have given lengths; every token is its own position."""

    def __init__(self, documents: Sequence[Sequence[int]]) -> None:
        lengths = [length for document in documents for length in document]
        self.sentences = np.concatenate([[0], np.cumsum(lengths)])
        self.documents = np.concatenate([[0], np.cumsum([len(document) for document in documents])])
        self.index = StoreIndex(
            format=0, type="uint32", tokens=sum(lengths), sentences=len(lengths),
            documents=len(documents), text=TextSize(words=0, characters=0), unknown=0,
            duplicates=0, fingerprint="", shards=(), files=(),
        )  # fmt: skip

    def read(self, start: int, end: int) -> NDArray[np.integer]:
        return np.arange(start, end)


def places_segments(
    store: TokenStore, text: Text, longest: int, seed: int = 0, short: float = 0.0
) -> Segments:
    continues = np.zeros(store.tokens, bool)
    return Segments(store, text, longest, continues, seed, short, specials=3)


def long_documents() -> Places:
    """2,500 documents of 1 to 60 sentences of 7 to 30 tokens."""
    random = np.random.default_rng(1)
    counts = random.integers(1, 61, 2500)
    lengths = random.integers(2, 10, (3, counts.sum())).sum(0) + 1
    return Places([part.tolist() for part in np.split(lengths, np.cumsum(counts)[:-1])])


@pytest.mark.parametrize("longest", [48, 128])
def test_sentence_order_is_even_and_lengths_do_not_give_it_away(longest: int) -> None:
    segments = places_segments(long_documents(), "sentence_order", longest, seed=12)
    index = np.arange(segments.count)
    windows = segments.cut(index, 0)
    rows, labels = [], []
    for sample in segments.read(index, 0, windows):
        if sample.label is not None:
            first, second = (len(part) for part in sample.parts)
            rows.append((first, second, first + second, first - second))
            labels.append(sample.label)
    assert len(labels) > 10_000
    assert abs(np.mean(labels) - 0.5) <= 1.5 / np.sqrt(len(labels))
    trees = HistGradientBoostingClassifier(max_iter=40, random_state=0)
    # three deviations of fair coins
    assert cross_val_score(trees, rows, labels, cv=4).mean() < 0.5 + 1.5 / np.sqrt(len(labels))


def test_random_sentences_are_any_of_any_other_document() -> None:
    """Beside a window of its own document, a second text is drawn from all of the others."""
    store = Places([*[[5] * 7] * 10, [5] * 2000, *[[5] * 7] * 4])
    starts, drawn = store.document_starts(), dict[tuple[int, int], NDArray[np.int64]]()
    for seed, epoch in ((1, 0), (2, 0), *((1, epoch) for epoch in range(1, 8))):
        segments = places_segments(store, "next_sentence", 43, seed)
        index = np.arange(segments.count // 2 * 2)
        cuts = segments.cut(index, epoch)
        alone = (cuts.documents == 10) & (cuts.documents[index ^ 1] == 10)
        begins = drawn[seed, epoch] = np.full(len(index), -1)
        for number, sample in enumerate(segments.read(index, epoch, cuts)):
            if alone[number] and sample.label == IS_RANDOM:
                begins[number] = sample.parts[1][0]
        # with the purpose of the stream, seed and epoch are all that differs
        for other in drawn.values():
            both = (begins >= 0) & (other >= 0) & (begins is not other)
            assert (begins == other)[both].sum() < 10
    all_drawn = np.concatenate(list(drawn.values()))
    all_drawn = all_drawn[all_drawn >= 0]
    assert len(all_drawn) > 900
    document = np.searchsorted(starts, all_drawn, side="right") - 1
    sentence, inside = np.divmod(all_drawn - starts[document], 5)
    assert not inside.any()
    assert 10 not in document
    # which of the sentences does not depend on which of the documents
    kinds = 7 * (document - (document > 10)) + sentence
    assert chisquare(np.bincount(kinds, minlength=14 * 7)).pvalue > 0.01


@pytest.mark.parametrize("text", ["next_sentence", "sentence_order"])
def test_pairs_are_cut_at_any_share_from_a_tenth_on(text: Text) -> None:
    """Every token is a sentence, so that each cut is where it was drawn."""
    segments = places_segments(Places([[1] * 9000] * 2), text, 203)
    index = np.arange(segments.count)
    shares, labels = list[float](), list[int | None]()
    for epoch in range(4):
        cuts = segments.cut(index, epoch)
        for number, sample in enumerate(segments.read(index, epoch, cuts)):
            start, end = int(cuts.starts[number]), int(cuts.ends[number])
            first, second = sample.parts
            labels.append(sample.label)
            split = int(second[0] if first[0] == start else first[0])
            if sample.label == IS_RANDOM and text == "next_sentence":
                split = start + len(first)
                assert first.tolist() == [*range(start, split)]
                # the other document, or what is left of it
                assert (second[0] < 9000) == (start >= 9000)
                left = 9000 - int(second[0]) % 9000
                assert second.tolist() == [*range(second[0], second[0] + min(end - split, left))]
            else:
                parts = sorted((first.tolist(), second.tolist()))
                assert parts == [[*range(start, split)], [*range(split, end)]]
            assert start < split < end
            if end - start > 100:
                shares.append((split - start) / (end - start))
    # neighbours in the order of an epoch are cut alike where they may swap
    apart = shares[::2] if text == "next_sentence" else shares
    assert kstest(apart, uniform(0.1, 0.8).cdf).pvalue > 0.01
    assert 0.4 < np.mean(np.array(labels) == 1) < 0.6


@pytest.mark.parametrize("across", [False, True])
def test_windows_of_short_documents_are_neither_empty_nor_too_long(across: bool) -> None:
    random = np.random.default_rng(3)
    for longest in (1, 3, 40):
        store = Places([[length] for length in random.integers(1, longest + 1, 900).tolist()])
        for budget in (5, 8, 13, 32, 64):
            windows = Windows(store, budget, np.zeros(store.tokens, bool), seed=2, across=across)
            for epoch in range(3):
                cuts = windows.cut(np.arange(windows.count), epoch)
                assert (cuts.starts < cuts.ends).all()
                assert (cuts.lengths <= budget).all()
                assert (cuts.starts[1:] == cuts.ends[:-1]).all()
                assert (cuts.starts[0], cuts.ends[-1]) == (0, store.tokens)


def test_every_stream_has_the_seed_and_the_epoch() -> None:
    """Order, cuts, pairs and early ends are others with another seed, and in another epoch."""
    store, every_token = long_documents(), Places([[1] * 60_000])
    index, numbers = np.arange(2000), np.arange(1000)
    of_one = Windows(every_token, 58, np.zeros(60_000, bool), 0).cut(numbers, 0)

    def drawn(seed: int, epoch: int) -> dict[str, NDArray[Any]]:
        plain, some = (
            places_segments(store, "next_sentence", 61, seed, short) for short in (0.0, 0.3)
        )
        cuts, ended = (segments.cut(index, epoch) for segments in (plain, some))
        exchanged = places_segments(every_token, "sentence_order", 61, seed)
        windows = Windows(store, 58, np.zeros(store.tokens, bool), seed)
        return {
            "order": cuts.documents,
            "cuts": windows.cut(index, epoch).starts,
            "early": ended.ends < cuts.ends,
            "pairs": np.array([item.label == IS_RANDOM for item in plain.read(index, epoch, cuts)]),
            "exchange": np.array([item.label for item in exchanged.read(numbers, epoch, of_one)]),
        }

    first = drawn(1, 0)
    # documents begin where they do, and of two sets of 0.3 the share that is alike is 0.58
    expected = {"order": 0.0, "cuts": 0.15, "early": 0.58, "pairs": 0.5, "exchange": 0.5}
    for other in (drawn(2, 0), drawn(1, 1)):
        for name, share in expected.items():
            assert np.mean(first[name] == other[name]) == pytest.approx(share, abs=0.07), name


def test_sentence_order_needs_one_document_only(
    some_documents: list[Document], tokenizer: Tokenizer, folder: Path
) -> None:
    prepare_store(some_documents[3:4], tokenizer, folder, held_out=0.0)
    batches = batches_of(TokenStore(folder), tokenizer, text="sentence_order", max_length=40)
    assert len(batches.next_batch(DataPosition())[0].targets["sentence_order"])


def test_text_across_documents_is_all_text_with_separators_between(
    store: TokenStore, tokenizer: Tokenizer
) -> None:
    batches = batches_of(store, tokenizer, text="across_documents")
    batch = epoch_of(batches, 2)
    assert list(batch.targets) == ["masked_lm"]
    assert max(batch.lengths) <= 96
    assert batch.segments.sum() == 0
    documents = [
        store.read(*edges).tolist() for edges in pairwise(store.document_starts().tolist())
    ]
    found: dict[tuple[int, ...], int] = {}
    for part in originals(batch).split(batch.lengths):
        ids = part.tolist()
        assert ids[0] == tokenizer.cls_id
        assert ids[-1] == tokenizer.sep_id
        assert tokenizer.cls_id not in ids[1:]
        pieces: list[list[int]] = [[]]
        for number in ids[1:-1]:
            if number == tokenizer.sep_id:
                pieces.append([])
            else:
                pieces[-1].append(number)
        assert all(pieces)
        # whole documents stand between the first and the last piece, one after another
        for before, after in pairwise(pieces):
            pair = (*before[-9:], -1, *after[:9])
            found[pair] = found.get(pair, 0) + 1
        assert all(piece in documents for piece in pieces[1:-1])
    joints = {(*a[-9:], -1, *b[:9]) for a, b in pairwise(documents)}
    inside = [pair for pair in found if len(pair) == 19]
    assert len(inside) > 0.6 * len(joints)
    assert set(inside) <= joints
    counted = np.bincount(originals(batch), minlength=tokenizer.size)
    wanted = np.bincount(store.read(0, store.tokens), minlength=tokenizer.size)
    counted[[tokenizer.cls_id, tokenizer.sep_id]] = 0
    assert (counted == wanted).all()
    # sequences are fuller than those that stop at the end of a document
    within = batches_of(store, tokenizer, text="within_documents")
    assert batches.sequences < 0.9 * within.sequences


@pytest.mark.parametrize("text", ["within_documents", "across_documents"])
def test_left_to_right_predicts_every_token_of_the_text(
    store: TokenStore, tokenizer: Tokenizer, text: str
) -> None:
    batch = epoch_of(batches_of(store, tokenizer, text=text, left_to_right=True))
    assert list(batch.targets) == ["left_to_right"]
    target = batch.targets["left_to_right"]
    assert torch.equal(batch.ids[target.positions + 1], target.labels)
    assert not torch.isin(target.positions + 1, batch.starts).any()
    assert len(target.positions.unique()) == len(target)
    found = np.bincount(target.labels, minlength=tokenizer.size)
    wanted = np.bincount(store.read(0, store.tokens), minlength=tokenizer.size)
    wanted[sorted(tokenizer.special_ids)] = 0
    assert (found == wanted).all()
    assert tokenizer.mask_id not in batch.ids


def test_a_batch_of_any_kind_fits_its_budget_and_the_place_seeks(
    store: TokenStore, tokenizer: Tokenizer
) -> None:
    for settings in (
        {"text": "sentence_order"},
        {"text": "across_documents"},
        {"text": "within_documents", "left_to_right": True, "copies": 3},
        {"copies": 2},
    ):
        batches = batches_of(store, tokenizer, **settings)
        place, taken = DataPosition(), []
        while place.epoch < 1:
            batch, after = batches.next_batch(place)
            assert batch.tokens <= 4096
            if after.epoch == place.epoch:
                assert batch.tokens > 0.9 * 4096
                assert after.index == place.index + batch.sequences
            taken.append((place, batch))
            place = after
        assert place == DataPosition(epoch=1)
        assert sum(batch.sequences for _, batch in taken) == batches.sequences
        for begun, batch in taken[::-9]:
            again = batches_of(store, tokenizer, **settings).next_batch(begun)[0]
            assert torch.equal(again.ids, batch.ids)
            assert again.targets.keys() == batch.targets.keys()
            for name, target in batch.targets.items():
                assert torch.equal(again.targets[name].labels, target.labels)


@pytest.mark.parametrize("text", ["next_sentence", "sentence_order"])
def test_left_to_right_has_no_second_objective(text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        SampleConfig.from_dict({"left_to_right": True, "text": text})


@pytest.mark.parametrize(
    "text", ["next_sentence", "sentence_order", "within_documents", "across_documents"]
)
def test_a_share_of_the_sequences_is_shorter(
    store: TokenStore, tokenizer: Tokenizer, text: str
) -> None:
    plain, some = (
        batches_of(store, tokenizer, text=text, short_sequences=short, tokens_per_batch=2048)
        for short in (0.0, 0.3)
    )
    assert plain.sequences == some.sequences
    every = np.arange(plain.sequences)
    before, after = (item.samples(every, 0).offsets.diff() for item in (plain, some))
    shorter = after < before
    # a few windows hold one sentence, and a random segment may be short in either
    assert 0.2 < float(shorter.float().mean()) < 0.35
    # as far as lengths are free, they are spread
    assert (after[shorter] / before[shorter]).quantile(0.25) < 0.45
    assert (after[shorter] / before[shorter]).quantile(0.75) > 0.55
    same = some.samples(every, 0)
    assert torch.equal(same.ids, some.samples(every, 0).ids)
    # batches keep to their budget, and hold what `samples` gives
    batch, place = some.next_batch(DataPosition())
    assert batch.tokens <= 2048
    assert torch.equal(batch.ids, same.ids[: batch.tokens])
    assert place.index == batch.sequences
    # whatever is cut off, what is left is text that stands in the store
    assert int(after.min()) > 2
    if text != "next_sentence":
        assert int(after.sum()) < int(before.sum())


def test_short_is_a_share() -> None:
    for wrong in (-0.1, 1.0):
        with pytest.raises(ConfigError, match="--short-sequences is"):
            SampleConfig(short_sequences=wrong)
