"""What a survey says of a store, against counts made by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import entropy

from bertsmith.batches import DataPosition
from bertsmith.batches.config import SampleConfig, Text
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.recipes.pretrain.preflight import coverage
from bertsmith.store import preparing, writing
from bertsmith.store import survey as surveying
from bertsmith.store.preparing import prepare_store
from bertsmith.store.store import TokenStore
from bertsmith.store.survey import Likeness, passages, survey
from bertsmith.text.corpus.documents import Document
from bertsmith.tokens.tokenizer import Tokenizer
from bounds import metric
from invented import invented_documents


def stored(documents: list[Document], tokenizer: Tokenizer, folder: Path) -> TokenStore:
    prepare_store(documents, tokenizer, folder, held_out=0.0)
    return TokenStore(folder)


def shingles(ids: np.ndarray) -> set[tuple[int, ...]]:
    return {tuple(ids[i : i + 5].tolist()) for i in range(len(ids) - 4)}


@pytest.fixture(scope="module", params=[writing.SHARD_BYTES, 40_000])
def repeating(
    request: pytest.FixtureRequest,
    tokenizer: Tokenizer,
    tmp_path_factory: pytest.TempPathFactory,
) -> TokenStore:
    """A store in which some sentences come again, of one shard or several."""
    documents = invented_documents(200)
    some = [paragraph.split(".")[0] + "." for d in documents[:40] for paragraph in d.paragraphs]
    documents += [
        Document(source="", line=1, paragraphs=(s, f"Bado {n % 9} kifo."))
        for n, s in enumerate(some)
    ]
    with pytest.MonkeyPatch.context() as patch:
        limited = partial(writing.StoreWriter, shard_bytes=request.param)
        patch.setattr(preparing, "StoreWriter", limited)
        store = stored(documents, tokenizer, tmp_path_factory.mktemp("repeating") / "store")
    assert (len(store.index.shards) > 1) == (request.param == 40_000)
    return store


@pytest.mark.parametrize("passage", [65_536, 3_000])
def test_a_survey_counts_what_is_there(
    repeating: TokenStore, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, passage: int
) -> None:
    store = repeating
    monkeypatch.setattr(surveying, "_PASSAGE", passage)
    seen = survey(store, tokenizer.size)
    edges = list(pairwise(store.sentences.tolist()))
    sentences = [store.read(a, b).tobytes() for a, b in edges if b - a >= 8]
    counts = Counter(sentences)
    assert (seen.sentences, seen.tokens, seen.whole) == (len(sentences), store.tokens, True)
    assert seen.repeated_sentences == sum(counts[s] > 1 for s in sentences) / len(sentences)
    assert 0 < seen.repeated_sentences < 1
    most = max(counts.values())
    assert seen.commonest_count == most
    assert counts[seen.commonest_sentence.astype(store.index.type).tobytes()] == most
    assert seen.commonest_share == most * len(seen.commonest_sentence) / store.tokens
    tokens = np.concatenate([store.read(a, b) for a, b in edges])
    assert seen.counts.tolist() == np.bincount(tokens, minlength=tokenizer.size).tolist()
    # in nats a token
    assert seen.unigram_entropy == metric(entropy(np.bincount(tokens)))
    lengths = np.diff(store.document_starts())
    assert seen.documents == (lengths >= 20).sum()


def test_of_a_large_store_some_is_looked_at(
    store: TokenStore, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = survey(store, tokenizer.size)
    monkeypatch.setattr(surveying, "_PASSAGE", 1_000)
    seen = survey(store, tokenizer.size, 20_000)
    assert not seen.whole
    assert 15_000 < seen.tokens <= 21_000
    assert seen.unigram_entropy == pytest.approx(whole.unigram_entropy, abs=0.05)
    begins = [passage.begin for passage in passages(store, 20_000)]
    assert begins[0] == 0
    assert begins[-1] > 0.97 * store.tokens - 1_000
    assert np.diff(begins).min() >= 1_000


def test_little_of_a_store_is_one_passage(store: TokenStore, tokenizer: Tokenizer) -> None:
    seen = survey(store, tokenizer.size, 100)
    assert not seen.whole
    assert 0 < seen.tokens <= 65_536


def test_likeness_is_that_of_jaccard(tokenizer: Tokenizer, tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    documents = [d for d in invented_documents(120, seed=2) if len(d.paragraphs) > 5][:50]
    # of each document's copy a share of the paragraphs is exchanged, more and more of them
    changed = []
    for number, document in enumerate(documents):
        paragraphs = list(document.paragraphs)
        for place in random.permutation(len(paragraphs))[: number * len(paragraphs) // 50]:
            paragraphs[place] = invented_documents(1, seed=1000 + 60 * number + int(place))[
                0
            ].paragraphs[0]
        changed.append(replace(document, paragraphs=(*paragraphs, "Bado kifo.")))
    store = stored(documents + changed, tokenizer, tmp_path / "store")
    starts = store.document_starts()
    texts = [shingles(store.read(*edge)) for edge in pairwise(starts.tolist())]
    alike = [len(a & b) / len(a | b) for a, b in zip(texts[:50], texts[50:], strict=True)]
    likeness = Likeness(store)
    likeness.add(starts[:-1])
    share, (begin, length) = likeness.near_duplicates()
    certain, possible = (sum(item > limit for item in alike) for limit in (0.75, 0.3))
    assert certain / 50 <= share <= possible / 50
    assert 5 < certain < possible < 45
    assert begin in starts
    assert length == 40


def test_a_short_near_duplicate_is_shown_as_far_as_it_goes(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    (first, *others) = [d.paragraphs[0] for d in invented_documents(9) if len(d.paragraphs) > 1]
    ids = tokenizer.encode([first])[0][:24].tolist()
    short = tokenizer.decode(ids)
    texts = [(short,), (f"{short} bado",), *((other, "Bado kifo.") for other in others)]
    documents = [Document(source="", line=1, paragraphs=text) for text in texts]
    seen = survey(stored(documents, tokenizer, tmp_path / "store"), tokenizer.size)
    assert seen.near_duplicates == pytest.approx(2 / seen.documents)
    assert seen.near_duplicate.tolist() == tokenizer.encode([short])[0].tolist()


def test_documents_of_one_sentence_are_counted(tokenizer: Tokenizer, tmp_path: Path) -> None:
    lines = ["Bado kifo.", "Muna lepo.", "Rona beki."]
    counts = [1, 2, 3, 1, 2]
    documents = [
        Document(source="", line=1, paragraphs=(*lines[: count - 1], "vede " * n + lines[2]))
        for n, count in enumerate(counts)
    ]
    seen = survey(stored(documents, tokenizer, tmp_path / "store"), tokenizer.size)
    assert seen.single_sentence_documents == 2 / 5


@pytest.mark.parametrize("text", ["within_documents", "across_documents", "sentence_order"])
def test_windows_leave_nothing_out(store: TokenStore, text: Text) -> None:
    assert coverage(store, SampleConfig(max_length=41, text=text), seed=3).hidden == 0.0


def test_what_short_sequences_leave_out_is_measured(
    store: TokenStore, tokenizer: Tokenizer
) -> None:
    config = SampleConfig(
        max_length=41, tokens_per_batch=900, text="within_documents", short_sequences=0.4
    )
    batches = PretrainingBatches(store, tokenizer, config, seed=3)
    shown, place = 0, DataPosition()
    while place.epoch == 0:
        batch, place = batches.next_batch(place)
        shown += batch.tokens - 2 * batch.sequences
    left_out = 1 - shown / store.tokens
    assert 0.1 < left_out < 0.3
    assert coverage(store, config, seed=3).hidden == pytest.approx(left_out, abs=0.01)


def test_sequences_without_a_label_are_counted(store: TokenStore, tokenizer: Tokenizer) -> None:
    config = SampleConfig(max_length=23, tokens_per_batch=900)
    batches = PretrainingBatches(store, tokenizer, config, seed=3)
    labels, place = 0, DataPosition()
    while place.epoch == 0:
        batch, place = batches.next_batch(place)
        labels += len(batch.targets["next_sentence"])
    found = coverage(store, config, seed=3)
    assert found.unlabelled == pytest.approx(1 - labels / batches.sequences)
    assert 0 < found.hidden < 0.2
    assert 0.3 < found.torn < 0.9
