"""Similarity of layers and uses of words, against formulas and made-up vectors."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from sklearn.decomposition import PCA

from bertsmith.analysis.layers.context import WordUse, anisotropy, describe_uses, mean_cosines
from bertsmith.analysis.layers.similarity import compare_layers
from bertsmith.analysis.layers.states import word_states, words_with_states
from bertsmith.network.batch import pack
from bertsmith.network.encoded import Taps
from bertsmith.network.model import build_model
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bounds import check, close_when_regrouped
from families import MODELS
from parity.comparing import varied

TOKENIZER = Tokenizer(
    (*SPECIALS, "##s", *(f"word{n}" for n in range(93))), BasicRules(lowercase=True)
)
random = np.random.default_rng(6)
TEXTS = [
    tuple(f"word{n}{'' if n % 3 else 's'}" for n in random.integers(0, 93, size))
    for size in (3, 9, 5, 8, 1, 7)
]


def test_states_of_words_are_means_over_their_pieces() -> None:
    model = varied(build_model(MODELS["bert-none"], seed=2))
    found = word_states(model, TOKENIZER, [*TEXTS, ("word1",) * 40, ("word1", "\u200b")])
    *found, too_long, with_dropped = found
    assert too_long is None
    # without that word, and with the others
    assert with_dropped is not None
    assert words_with_states(with_dropped).tolist() == [True, False]
    (alone,) = word_states(model, TOKENIZER, [("word1",)])
    assert alone is not None
    close_when_regrouped(with_dropped[:, :1], torch.from_numpy(alone))
    for words, own in zip(TEXTS, found, strict=False):
        ids = TOKENIZER.encode([" ".join(words)])[0]
        whole = np.concatenate([[TOKENIZER.cls_id], ids, [TOKENIZER.sep_id]])
        with torch.no_grad():
            batch = pack([whole], [np.zeros_like(whole)])
            states = model.encoder(batch, taps=Taps(states=frozenset(range(4)))).states
        place, expected = 1, []
        for word in words:
            count = len(TOKENIZER.encode([word])[0])
            expected.append(
                torch.stack([states[n][place : place + count].mean(0) for n in range(4)])
            )
            place += count
        assert own is not None
        close_when_regrouped(own, torch.stack(expected, 1))


def test_layers_are_compared_as_the_papers_say() -> None:
    one = varied(build_model(MODELS["bert-none"], seed=2))
    other = varied(build_model(MODELS["distilbert-none"], seed=3))
    found = compare_layers((one, TOKENIZER), (other, TOKENIZER), TEXTS)
    assert found is not None
    assert found.words == sum(map(len, TEXTS))
    x, y = (
        np.concatenate([s for s in word_states(m, TOKENIZER, TEXTS) if s is not None], 1)
        for m in (one, other)
    )
    for i in range(4):
        for j in range(4):
            a, b = x[i] - x[i].mean(0), y[j] - y[j].mean(0)
            # Kornblith et al. 2019, section 3, by features
            top = np.linalg.norm(b.T @ a) ** 2
            cka = top / (np.linalg.norm(a.T @ a) * np.linalg.norm(b.T @ b))
            assert found.cka[i, j] == pytest.approx(cka, abs=1e-6)
            upper = np.triu_indices(len(a), 1)
            cosines = [
                (v @ v.T / np.outer(np.linalg.norm(v, axis=1), np.linalg.norm(v, axis=1)))[upper]
                for v in (x[i], y[j])
            ]
            assert found.rsa[i, j] == pytest.approx(spearmanr(*cosines).statistic, abs=1e-6)
    same = compare_layers((one, TOKENIZER), (one, TOKENIZER), TEXTS)
    assert same is not None
    check(np.diag(same.cka), np.ones(4), 1e-9)
    check(np.diag(same.rsa), np.ones(4), 1e-9)
    assert compare_layers((one, TOKENIZER), (other, TOKENIZER), [("word1",)]) is None


def test_texts_with_a_word_that_the_tokenizer_drops_are_read_without_it() -> None:
    model = varied(build_model(MODELS["bert-none"], seed=2))
    dropped = [(*words[:1], "\u200b", *words[1:]) for words in TEXTS]
    same = compare_layers((model, TOKENIZER), (model, TOKENIZER), TEXTS)
    without = compare_layers((model, TOKENIZER), (model, TOKENIZER), dropped)
    assert same is not None
    assert without is not None
    assert without.words == same.words
    check(without.cka, same.cka, 1e-6)
    cosines, expected = (anisotropy(model, TOKENIZER, texts) for texts in (dropped, TEXTS))
    assert cosines is not None
    assert expected is not None
    check(cosines, expected, 1e-6)
    uses = [WordUse(("\u200b", f"word{n}", "word1"), 2, n) for n in range(5)]
    found = describe_uses(model, TOKENIZER, "word1", uses)
    assert found is not None
    assert len(found.uses) == 5
    # the word itself is not read
    assert (
        describe_uses(model, TOKENIZER, "\u200b", [replace(use, place=0) for use in uses]) is None
    )


def test_cosines_of_any_two_words() -> None:
    vectors = np.random.default_rng(1).normal(size=(2, 7, 5)).astype(np.float32)
    unit = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    expected = [
        np.mean([a @ b for i, a in enumerate(u) for k, b in enumerate(u) if i != k]) for u in unit
    ]
    check(mean_cosines(vectors), expected, 1e-6)
    alike = np.repeat(np.random.default_rng(1).normal(size=(40, 1, 7)), 3, 1).astype(np.float32)
    assert 1 - 1e-12 < mean_cosines(alike).max() <= 1


def test_uses_in_two_contexts_are_two_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layer 1 tells the two contexts apart, layer 2 does not."""
    model = varied(build_model(MODELS["bert-none"], seed=2))
    draws, read = np.random.default_rng(3), list[NDArray[np.float64]]()
    uses = [WordUse(("word1", f"word{2 + n % 2}"), 0, n) for n in range(11)]

    def states(*_: object) -> list[NDArray[np.float32]]:
        found = draws.normal(0, 0.05, (11, 3, 2, 6)).astype(np.float32)
        for n in range(11):
            found[n, 1, 0, n % 2] += 1
            found[n, 2, 0, 3] += 1
        read.append(found[:, :, 0].astype(np.float64))
        return list(found)

    monkeypatch.setattr("bertsmith.analysis.layers.context.word_states", states)
    found = describe_uses(model, TOKENIZER, "word1", uses)
    assert found is not None
    assert found.layer == 1
    assert found.clusters.tolist() == [n % 2 for n in range(11)]
    assert found.silhouette > 0.8
    for use, others in enumerate(found.neighbours.tolist()):
        assert all(other % 2 == use % 2 and other != use for other in others)
    vectors = read[0] / np.linalg.norm(read[0], axis=-1, keepdims=True)
    components = PCA(n_components=2).fit(vectors[:, 1])
    assert found.map_share == pytest.approx(components.explained_variance_ratio_.sum())
    assert found.map_share > 0.8
    check(np.abs(found.points), np.abs(components.transform(vectors[:, 1])), 1e-6)
    pairs = list(combinations(range(11), 2))
    for layer, cosine in enumerate(found.self_similarity):
        own = vectors[:, layer]
        assert cosine == pytest.approx(np.mean([own[a] @ own[b] for a, b in pairs]))
    assert found.self_similarity[2] > 0.9 > found.self_similarity[1] > found.self_similarity[0]
    monkeypatch.undo()
    assert describe_uses(model, TOKENIZER, "word1", uses[:3]) is None


def test_anisotropy_is_by_layer() -> None:
    model = varied(build_model(MODELS["bert-none"], seed=2))
    found = anisotropy(model, TOKENIZER, TEXTS)
    assert found is not None
    assert found.shape == (4,)
    assert (np.abs(found) < 1).all()
    assert anisotropy(model, TOKENIZER, [("word1",)]) is None
