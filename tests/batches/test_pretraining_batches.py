"""The masking and pairing of the paper, counted over a million tokens."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, groupby, islice, pairwise, product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import kstest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import cross_val_score

from bertsmith.batches import DataPosition
from bertsmith.batches.config import MaskingConfig, SampleConfig, Text
from bertsmith.batches.pretraining import Masking, PretrainingBatches
from bertsmith.batches.segments import IS_RANDOM
from bertsmith.core.errors import ConfigError, StoreError
from bertsmith.network.batch import Batch
from bertsmith.store.preparing import prepare_store
from bertsmith.store.store import TokenStore
from bertsmith.text.corpus.documents import Document
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS

MILLION = 1_000_000


def batches_of(
    store: TokenStore, tokenizer: Tokenizer, *, text: Text = "next_sentence", seed: int = 11
) -> PretrainingBatches:
    config = SampleConfig(max_length=96, tokens_per_batch=4096, text=text)
    return PretrainingBatches(store, tokenizer, config, seed=seed)


def stream_of(batches: PretrainingBatches, tokens: int) -> Iterator[Batch]:
    place, seen = DataPosition(), 0
    while seen < tokens:
        batch, place = batches.next_batch(place)
        seen += batch.tokens
        yield batch


@pytest.fixture(scope="module")
def million(store: TokenStore, tokenizer: Tokenizer) -> list[Batch]:
    return list(stream_of(batches_of(store, tokenizer), MILLION))


def originals(batch: Batch) -> torch.Tensor:
    """The ids before masking."""
    target = batch.targets["masked_lm"]
    return batch.ids.index_put((target.positions,), target.labels)


def test_masking_shares_over_a_million_tokens(million: list[Batch], tokenizer: Tokenizer) -> None:
    specials = torch.tensor(sorted(tokenizer.special_ids))
    ordinary = masked = as_mask = kept = changed = 0
    replacements = []
    for batch in million:
        target = batch.targets["masked_lm"]
        shown = batch.ids[target.positions]
        assert not torch.isin(target.labels, specials).any()
        ordinary += int((~torch.isin(originals(batch), specials)).sum())
        masked += len(target)
        is_mask, same = shown == tokenizer.mask_id, shown == target.labels
        as_mask += int(is_mask.sum())
        kept += int(same.sum())
        changed += int((~is_mask & ~same).sum())
        replacements.append(shown[~is_mask & ~same])
    assert ordinary >= 0.95 * MILLION
    assert abs(100 * masked / ordinary - 15) <= 0.1
    assert abs(100 * as_mask / masked - 80) <= 0.5
    # one random token in |vocabulary| is the token itself
    drawn_the_same = 10 / len(tokenizer.ordinary_ids)
    assert abs(100 * changed / masked - (10 - drawn_the_same)) <= 0.5
    assert abs(100 * kept / masked - (10 + drawn_the_same)) <= 0.5
    seen = torch.cat(replacements).unique()
    assert seen.tolist() == tokenizer.ordinary_ids.tolist()


def test_next_sentence_labels_over_a_million_tokens(million: list[Batch]) -> None:
    labels = torch.cat([batch.targets["next_sentence"].labels for batch in million])
    assert len(labels) > 10_000
    # 0.5 would be one deviation of 10,000 fair coins; both of a swapped pair share their coin
    assert abs(100 * labels.double().mean().item() - 50) <= 3 * 50 / np.sqrt(len(labels) / 2)


@pytest.mark.parametrize(
    ("pairs", "bound"), [(5_000, 2.1), pytest.param(40_000, 0.5, marks=pytest.mark.faults)]
)
def test_next_sentence_labels_of_many_epochs(
    store: TokenStore, tokenizer: Tokenizer, pairs: int, bound: float
) -> None:
    """Over fewer pairs within three deviations, as over a million tokens."""
    config = SampleConfig(max_length=32)
    batches = PretrainingBatches(store, tokenizer, config, seed=2)
    segments, index = batches._segments, np.arange(batches.sequences)
    labels: list[int] = []
    for epoch in count():
        samples = segments.read(index, epoch, segments.cut(index, epoch))
        of_epoch = [sample.label for sample in samples if sample.label is not None]
        if epoch == 0:
            whole = batches.samples(index, epoch).targets["next_sentence"].labels
            assert whole.tolist() == of_epoch
        labels += of_epoch
        if len(labels) >= pairs:
            break
    assert abs(100 * np.mean(labels) - 50) <= bound


def test_pairs_are_what_their_labels_say(store: TokenStore, tokenizer: Tokenizer) -> None:
    starts = store.document_starts().tolist()
    words = [" ".join(map(str, store.read(a, b).tolist())) for a, b in pairwise(starts)]

    def documents_with(ids: torch.Tensor) -> set[int]:
        text = " ".join(map(str, ids.tolist()))
        return {number for number, document in enumerate(words) if f" {text} " in f" {document} "}

    checked = {0: 0, 1: 0}
    for batch in stream_of(batches_of(store, tokenizer), 20_000):
        whole, target = originals(batch), batch.targets["next_sentence"]
        for at, label in zip(target.positions.tolist(), target.labels.tolist(), strict=True):
            start, end = batch.offsets[at : at + 2].tolist()
            ids, segments = whole[start:end], batch.segments[start:end]
            assert ids[0] == tokenizer.cls_id
            assert (ids == tokenizer.sep_id).sum() == 2
            assert ids[-1] == tokenizer.sep_id
            assert segments.diff().min() >= 0
            first, second = ids[segments == 0][1:-1], ids[segments == 1][:-1]
            joined = documents_with(torch.cat([first, second]))
            if label == IS_RANDOM:
                assert not joined
                if len(first) > 6 and len(second) > 6:
                    assert documents_with(first)
                    assert documents_with(second)
                    assert not documents_with(first) & documents_with(second)
            else:
                assert joined
            checked[label] += 1
        # replicas compute parts of a batch
        parts = [(part.sequences, part.targets["next_sentence"]) for part in batch.parts(3)]
        assert all(cut.positions.tolist()[-1] < sequences for sequences, cut in parts)
        assert torch.equal(torch.cat([cut.labels for _, cut in parts]), target.labels)
    assert min(checked.values()) > 80


def test_lengths_do_not_give_the_label_away(million: list[Batch]) -> None:
    rows, labels = [], []
    for batch in million:
        target = batch.targets["next_sentence"]
        second = torch.segment_reduce(
            batch.segments.double(), "sum", lengths=torch.tensor(batch.lengths)
        )
        total = torch.tensor(batch.lengths)
        rows.append(torch.stack([total - second, second, total], 1)[target.positions])
        labels.append(target.labels)
    features, truth = torch.cat(rows).numpy()[:8000], torch.cat(labels).numpy()[:8000]
    scores = cross_val_score(HistGradientBoostingClassifier(max_iter=40), features, truth, cv=4)
    assert scores.mean() < 0.56


def test_an_epoch_reads_nearly_all_text(store: TokenStore, tokenizer: Tokenizer) -> None:
    batches = batches_of(store, tokenizer, text="within_documents")
    batch = batches.samples(np.arange(batches.sequences), 0)
    assert batch.tokens == store.tokens + 2 * batches.sequences
    found = np.bincount(originals(batch), minlength=tokenizer.size)
    wanted = np.bincount(store.read(0, store.tokens), minlength=tokenizer.size)
    wanted[[tokenizer.cls_id, tokenizer.sep_id]] += batches.sequences
    assert (found == wanted).all()


def test_pairs_read_nearly_all_text_once(tmp_path: Path) -> None:
    """Neighbours swap their second texts, where both are of several sentences."""
    # every word stands once, and tells its document
    words, owners, documents = iter(f"w{n}" for n in range(9999)), list[int](), list[Document]()
    for number in range(151):
        # every third document has one sentence only
        sizes = [5] * (1 + number % 3 * 4)
        sentences = [" ".join(islice(words, size)).capitalize() + "." for size in sizes]
        documents.append(Document(source="m", line=number + 1, paragraphs=(" ".join(sentences),)))
        owners += [number] * sum(sizes)
    pieces = (*SPECIALS, ".", *(f"w{n}" for n in range(len(owners))))
    tokenizer = Tokenizer(pieces, BasicRules(lowercase=True))
    prepare_store(documents, tokenizer, tmp_path / "store", held_out=0.0)
    config = SampleConfig(max_length=40, tokens_per_batch=4096)
    batches = PretrainingBatches(TokenStore(tmp_path / "store"), tokenizer, config, seed=3)
    # the last one has no neighbour
    assert batches.sequences % 2 == 1
    first_word, once = len(SPECIALS) + 1, list[float]()
    for epoch in range(5):
        batch = batches.samples(np.arange(batches.sequences), epoch)
        whole, target = originals(batch) - first_word, batch.targets["next_sentence"]
        times = np.bincount(whole[whole >= 0], minlength=len(owners))
        once.append(float(np.mean(times == 1)))
        for at, label in zip(target.positions.tolist(), target.labels.tolist(), strict=True):
            start, end = batch.offsets[at : at + 2].tolist()
            ids, second = whole[start:end], batch.segments[start:end] == 1
            first, other = (
                {owners[word] for word in ids[part & (ids >= 0)].tolist()}
                for part in (~second, second)
            )
            assert len(first) == len(other) == 1
            assert (first != other) == (label == IS_RANDOM)
    # shuffled, the text of each second pair would be read twice or not at all
    assert np.mean(once) > 0.8


def test_masks_change_with_the_epoch_and_seed_only(store: TokenStore, tokenizer: Tokenizer) -> None:
    index = np.array([3, 17, 4])

    def sample(seed: int, epoch: int) -> Batch:
        return batches_of(store, tokenizer, seed=seed).samples(index, epoch)

    same, again = sample(1, 0), sample(1, 0)
    assert torch.equal(same.ids, again.ids)
    assert torch.equal(same.targets["masked_lm"].positions, again.targets["masked_lm"].positions)
    for other in (sample(1, 1), sample(2, 0)):
        assert not torch.equal(same.ids[: other.tokens], other.ids[: same.tokens])
    one = batches_of(store, tokenizer, seed=1).samples(index[1:2], 0)
    start, end = same.offsets[1:3].tolist()
    assert torch.equal(same.ids[start:end], one.ids)


def test_draws_of_a_generator_are_uniform_and_its_own(
    store: TokenStore, tokenizer: Tokenizer
) -> None:
    config = SampleConfig(max_length=96, text="within_documents", replaced_tokens=True)
    index = np.arange(200)

    def drawn(seed: int, epoch: int, some: NDArray[np.int64] = index) -> NDArray[np.float64]:
        batch = PretrainingBatches(store, tokenizer, config, seed).samples(some, epoch)
        assert len(batch.given["draws"]) == len(batch.targets["masked_lm"])
        return batch.given["draws"].numpy()

    first = drawn(1, 0)
    assert len(first) > 1500
    # uniform at the tokens that masking has drawn
    assert kstest(first, "uniform").pvalue > 0.01
    assert len(np.unique(first)) == len(first)
    assert np.array_equal(drawn(1, 0, index[7:]), first[-len(drawn(1, 0, index[7:])) :])
    for other in (drawn(2, 0), drawn(1, 1)):
        assert not np.isin(first, other).any()


def test_the_same_text_is_masked_elsewhere_with_another_epoch_or_seed(
    some_documents: list[Document], tokenizer: Tokenizer, folder: Path
) -> None:
    """One document that is one sequence, which comes at the same place of every epoch."""
    words = tuple(" ".join(document.paragraphs[0].split()[:3]) for document in some_documents[:7])
    document = Document(source="", line=1, paragraphs=(" ".join(words),))
    prepare_store([document], tokenizer, folder, held_out=0.0)
    masked = set[tuple[int, ...]]()
    texts = set[tuple[int, ...]]()
    for seed, epoch in product(range(4), range(4)):
        batches = batches_of(TokenStore(folder), tokenizer, text="within_documents", seed=seed)
        assert batches.sequences == 1
        batch = batches.samples(np.array([0]), epoch)
        texts.add(tuple(originals(batch).tolist()))
        masked.add(tuple(batch.targets["masked_lm"].positions.tolist()))
    assert len(texts) == 1
    assert len(masked) == 16


def test_a_batch_fits_its_budget_and_the_place_seeks(
    store: TokenStore, tokenizer: Tokenizer
) -> None:
    batches = batches_of(store, tokenizer)
    place, places, ids = DataPosition(), [], []
    while place.epoch < 2:
        batch, after = batches.next_batch(place)
        assert batch.tokens <= 4096
        assert max(batch.lengths) <= 96
        if after.epoch == place.epoch:
            assert batch.tokens > 0.9 * 4096
            assert after.index == place.index + batch.sequences
        places.append(place)
        ids.append(batch.ids)
        place = after
    for number in (7, 31, len(places) - 1):
        assert torch.equal(batches.next_batch(places[number])[0].ids, ids[number])


def test_one_document_cannot_be_paired(
    some_documents: list[Document], tokenizer: Tokenizer, folder: Path
) -> None:
    prepare_store(some_documents[:1], tokenizer, folder, held_out=0.0)
    with pytest.raises(StoreError, match="blank lines between documents"):
        batches_of(TokenStore(folder), tokenizer)
    alone = batches_of(TokenStore(folder), tokenizer, text="within_documents")
    assert alone.next_batch(DataPosition())[0].tokens


def runs_of(batch: Batch, tokenizer: Tokenizer) -> Iterator[tuple[list[bool], list[bool]]]:
    """For each sequence, without its specials: which tokens begin a word, which are predicted."""
    predicted = torch.zeros(batch.tokens, dtype=torch.bool)
    predicted[batch.targets["masked_lm"].positions] = True
    begins = torch.from_numpy(~tokenizer.continues)[originals(batch)]
    for start, end in pairwise(batch.offsets.tolist()):
        yield begins[start + 1 : end - 1].tolist(), predicted[start + 1 : end - 1].tolist()


@pytest.mark.parametrize("unit", ["word", "ngram", "span"])
def test_whole_words_and_spans(
    store: TokenStore, tokenizer: Tokenizer, unit: Literal["word", "ngram", "span"]
) -> None:
    config = SampleConfig(max_length=96, text="within_documents", masking=MaskingConfig(unit=unit))
    batches = PretrainingBatches(store, tokenizer, config, seed=4)
    ordinary = masked = as_mask = words = torn = 0
    lengths = []
    for batch in stream_of(batches, 200_000):
        target = batch.targets["masked_lm"]
        masked += len(target)
        as_mask += int((batch.ids[target.positions] == tokenizer.mask_id).sum())
        for begins, predicted in runs_of(batch, tokenizer):
            ordinary += len(predicted)
            words += sum(begins)
            # the first piece may continue a word that was cut at the window's start
            torn += sum(
                a != b
                for a, b, new in zip(predicted, predicted[1:], begins[1:], strict=False)
                if not new
            )
            at_words = [p for p, new in zip(predicted, begins, strict=True) if new]
            lengths += [len(list(run)) for taken, run in groupby(at_words) if taken]
    assert torn == 0
    assert abs(100 * masked / ordinary - 15) <= 0.3
    assert abs(100 * as_mask / masked - 80) <= 2
    # units fall beside each other by chance, and windows end within spans
    assert np.mean(lengths) == pytest.approx(
        {"word": 1.18, "ngram": 2.0, "span": 3.7}[unit], rel=0.1
    )


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("word", [1.0]),
        # Lan et al. 2019, section 4.1: p(n) in proportion to 1 / n, up to 3
        ("ngram", [6 / 11, 3 / 11, 2 / 11]),
        # Joshi et al. 2019, section 3.1: Geo(0.2) up to 10, 3.8 on average
        ("span", [0.2 * 0.8**n / (1 - 0.8**10) for n in range(10)]),
    ],
)
def test_units_have_the_published_lengths(
    tokenizer: Tokenizer, unit: Literal["word", "ngram", "span"], expected: list[float]
) -> None:
    random = np.random.default_rng(2)
    ids = np.flatnonzero(~tokenizer.continues)[5:][random.integers(0, 20, 400_000)]
    lengths = np.array([250_000, 150_000])
    config = MaskingConfig(unit=unit, probability=0.01)
    found = Masking(config, tokenizer)(ids, lengths, np.array([3, 4], np.uint64))
    assert abs(len(found.positions) - 4000) <= 20
    apart = np.flatnonzero(np.diff(found.positions) > 1)
    runs = np.diff(np.r_[-1, apart, len(found.positions) - 1])
    mean = float(np.dot(expected, np.arange(1, len(expected) + 1)))
    if unit == "span":
        assert mean == pytest.approx(3.8, abs=0.01)
    # one in a hundred units has another beside it
    assert runs.mean() == pytest.approx(mean, rel=0.07)
    share = np.bincount(runs, minlength=12)[1 : len(expected) + 1] / len(runs)
    assert share == pytest.approx(expected, abs=0.035)


@pytest.mark.parametrize("smoothing", [0.7, 1.5])
def test_rare_tokens_are_chosen_by_their_count(tokenizer: Tokenizer, smoothing: float) -> None:
    """Sanh et al. 2019, after Lample & Conneau 2019: in proportion to count ** -0.7."""
    common, rare = np.flatnonzero(~tokenizer.continues)[10:12]
    counts = np.ones(tokenizer.size, np.int64)
    counts[[common, rare]] = 900, 100
    ids = np.tile([common, rare], 200_000)
    config = MaskingConfig(probability=0.01, smoothing=smoothing)
    lengths, keys = np.array([250_000, 150_000]), np.array([3, 4], np.uint64)
    found = Masking(config, tokenizer, counts)(ids, lengths, keys)
    assert len(found.positions) == pytest.approx(4000, abs=2)
    times = np.bincount(found.labels, minlength=tokenizer.size)
    # so few are chosen that what is taken is hardly missed
    assert times[rare] / times[common] == pytest.approx(9**smoothing, rel=0.15)
    plain = Masking(config, tokenizer)(ids, lengths, keys)
    other = Masking(MaskingConfig(probability=0.01), tokenizer)(ids, lengths, keys)
    assert np.array_equal(plain.positions, other.positions)


def test_spans_end_where_text_does(tokenizer: Tokenizer) -> None:
    """No span crosses a separator, or from one sequence into the next."""
    ordinary = int(np.flatnonzero(~tokenizer.continues)[10])
    part = [tokenizer.cls_id, *[ordinary] * 3, tokenizer.sep_id, *[ordinary] * 2, tokenizer.sep_id]
    masking = Masking(MaskingConfig(unit="span", probability=0.5, span=50.0), tokenizer)
    begins = masking._unit_starts(
        np.full(10, ordinary), np.array([1, 2, 3, 5, 6, 9, 10, 11, 13, 14]),
        np.repeat([0, 1], 5), np.array([7, 8], np.uint64), np.array([1, 2, 3, 5, 6] * 2),
    )  # fmt: skip
    assert np.flatnonzero(begins).tolist()[:1] == [0]
    assert {3, 5, 8} <= set(np.flatnonzero(begins).tolist())
    ids = np.array(part * 2)
    found = masking(ids, np.array([8, 8]), np.array([7, 8], np.uint64))
    assert not set(found.positions.tolist()) & {0, 4, 7, 8, 12, 15}


@pytest.mark.parametrize(
    "wrong",
    [
        {"probability": 0.0},
        {"as_mask": 0.95},
        {"as_mask": float("nan")},
        {"as_random": -0.1},
        {"span": 0.5},
    ],
)
def test_impossible_masking_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        MaskingConfig(**wrong)
