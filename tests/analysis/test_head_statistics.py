"""Statistics of heads against float64 formulas over transformers' own attention weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import jensenshannon
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
)

from bertsmith.analysis.heads.attention import scan
from bertsmith.analysis.heads.distances import classical_map, head_distances
from bertsmith.analysis.heads.gradients import attention_gradients, masked
from bertsmith.analysis.heads.statistics import HeadStatistics, HeadSums, TokenRoles, layer_sums
from bertsmith.analysis.inspection import Item, inspect_attention
from bertsmith.batches.examples import EncodedExamples, evaluation_batches
from bertsmith.batches.truncation import encode_pair
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.families.family import FamilyName
from bertsmith.network.model import Model, build_model
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.weights.folder import save_model
from bounds import check, close_to_transformers
from families import MODELS, TOKENIZERS
from parity.comparing import varied

TOKENIZER = Tokenizer(
    (*SPECIALS, ",", ".", "...", *(f"word{n}" for n in range(91))), BasicRules(lowercase=True)
)
# a pair twice, and single texts; of all lengths that make blocks uneven
SIZES = ((5, None), (1, None), (7, 4), (17, None), (3, 6), (2, None))
Weights = list[NDArray[np.float64]]


def examples(tokenizer: Tokenizer = TOKENIZER) -> EncodedExamples:
    random = np.random.default_rng(2)
    ids, segments = [], []
    for first, second in SIZES:
        one, two = (
            None if size is None else random.integers(4, 99, size).astype(np.int32)
            for size in (first, second)
        )
        assert one is not None
        own, kinds = encode_pair(tokenizer, one, two, longest=23)
        ids.append(own)
        segments.append(kinds)
    return EncodedExamples.of(ids, segments)


def theirs(folder: Path, encoded: EncodedExamples, *, segments: bool) -> list[Weights]:
    """The weights (heads, n, n) of each layer of each text, one text at a time."""
    model: Any = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    found = []
    for ids, kinds in zip(encoded.ids, encoded.segments, strict=True):
        given = {"input_ids": torch.from_numpy(ids.astype(np.int64))[None]}
        if segments:
            given["token_type_ids"] = torch.from_numpy(kinds.astype(np.int64))[None]
        with torch.no_grad():
            out = model(**given, output_attentions=True)
        found.append([attention[0].double().numpy() for attention in out.attentions])
    return found


def formulas(ids: NDArray[Any], weights: Weights) -> dict[str, NDArray[np.float64]]:
    """Sums over the queries of one text, (layers, heads), as the paper words them."""
    w = np.stack(weights)
    n = len(ids)
    sep, cls = ids == TOKENIZER.sep_id, ids == TOKENIZER.cls_id
    words = [TOKENIZER.vocabulary[number] for number in ids]
    mark = np.array([word in (",", ".", "...") for word in words])
    apart = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    entropy = -np.sum(np.where(w > 0, w * np.log(np.where(w > 0, w, 1)), 0), -1)
    inner = ~(sep | cls)
    ends = np.flatnonzero(sep)
    pair = len(ends) > 1
    first = inner & pair & (np.arange(n) < ends[0])
    second = inner & pair & (np.arange(n) > ends[0])
    return {
        "self": np.trace(w, axis1=-2, axis2=-1),
        "next": np.trace(w[..., :-1, 1:], axis1=-2, axis2=-1),
        "previous": np.trace(w[..., 1:, :-1], axis1=-2, axis2=-1),
        "cls": w[..., cls].sum((-2, -1)),
        "sep": w[..., sep].sum((-2, -1)),
        "punctuation": w[..., mark].sum((-2, -1)),
        "distance": (w * apart).sum((-2, -1)),
        "entropy": entropy.sum(-1),
        "cls_entropy": entropy[..., cls].sum(-1),
        "sep_to_sep": w[..., sep, :][..., sep].sum((-2, -1)),
        "words_to_sep": w[..., inner, :][..., sep].sum((-2, -1)),
        "first_to_second": w[..., first, :][..., second].sum((-2, -1)),
        "second_to_first": w[..., second, :][..., first].sum((-2, -1)),
        "tokens": np.array([n, cls.sum(), sep.sum(), inner.sum(), first.sum(), second.sum()]),
    }


_QUERIES = {
    "cls_entropy": 1, "sep_to_sep": 2, "words_to_sep": 3, "first_to_second": 4,
    "second_to_first": 5,
}  # fmt: skip


def counted(model: Model, encoded: EncodedExamples) -> HeadStatistics:
    statistics = HeadStatistics(model.config.encoder, TOKENIZER)
    for scanned in scan(model, encoded):
        roles = statistics.block(scanned.batch, scanned.block)
        for layer in scanned.layers:
            statistics.add(layer, scanned.batch, scanned.block, roles)
    return statistics


@pytest.fixture(params=["bert", "modernbert"])
def family(request: pytest.FixtureRequest) -> FamilyName:
    name: FamilyName = request.param
    return name


def test_statistics_are_the_formulas(
    family: FamilyName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # several blocks a batch
    monkeypatch.setattr("bertsmith.analysis.heads.attention._ENTRIES", 4 * 3 * 14**2)
    model = varied(build_model(MODELS[f"{family}-none"], seed=1))
    save_model(tmp_path / "model", model, TOKENIZER)
    encoded = examples()
    weights = theirs(tmp_path / "model", encoded, segments=family == "bert")
    texts = [formulas(ids, own) for ids, own in zip(encoded.ids, weights, strict=True)]
    statistics = counted(model, encoded)
    found = statistics.sums.statistics()
    queries = np.sum([text.pop("tokens") for text in texts], axis=0)
    assert found.keys() == texts[0].keys()
    for name, values in found.items():
        expected = np.sum([text[name] for text in texts], axis=0) / queries[_QUERIES.get(name, 0)]
        close_to_transformers(values, expected, name)
    frequent = statistics.frequent_tokens(200)
    total = np.concatenate(encoded.ids)
    assert sum(token.count for token in frequent) == len(total)
    assert frequent[0].token == "[SEP]"
    assert frequent[0].count == len(SIZES) + 2
    close_to_transformers(frequent[0].attention, found["sep"])
    # all attention goes to some token
    whole = sum(token.attention for token in frequent)
    check(whole, np.ones_like(whole), 1e-6)


def test_statistics_of_each_text_are_those_of_it_alone() -> None:
    model = varied(build_model(MODELS["bert-none"], seed=1))
    encoded, config = examples(), model.config.encoder
    sums = HeadSums(config.layers, config.heads, (len(encoded),))
    roles = TokenRoles(TOKENIZER)
    for scanned in scan(model, encoded):
        own = roles.of_block(scanned.batch, scanned.block)
        sums.tokens[scanned.units] += own.sum(1).double().numpy()
        for layer in scanned.layers:
            for name, value in layer_sums(layer, own)._asdict().items():
                getattr(sums, name)[scanned.units, layer.layer - 1] += value.double().numpy()
    together = sums.statistics()
    for number in range(len(encoded)):
        one = EncodedExamples.of([encoded.ids[number]], [encoded.segments[number]])
        alone = counted(model, one).sums.statistics()
        for name, values in alone.items():
            there = ~np.isnan(values)
            assert (there == ~np.isnan(together[name][number])).all()
            check(together[name][number][there], values[there], 1e-5) if there.any() else None
    # a single text has no second one, and only pairs give attention to it
    assert np.isnan(together["first_to_second"][0]).all()
    assert (together["first_to_second"][2] > 0).all()


def test_distances_are_those_of_scipy() -> None:
    random = np.random.default_rng(1)
    texts = [random.dirichlet(np.full(n, 0.2), (5, n)) for n in (3, 8)]
    found = head_distances(torch.from_numpy(text) for text in texts)
    expected = np.zeros((5, 5))
    for text in texts:
        for i in range(5):
            for j in range(5):
                expected[i, j] += (jensenshannon(text[i], text[j], axis=-1) ** 2).sum()
    check(found, np.sqrt(expected / 11), 1e-9)


def test_the_map_of_points_in_a_plane_is_exact() -> None:
    points = np.random.default_rng(3).normal(size=(7, 2))
    apart = np.linalg.norm(points[:, None] - points, axis=-1)
    found, share = classical_map(apart)
    check(np.linalg.norm(found[:, None] - found, axis=-1), apart, 1e-9)
    assert share == pytest.approx(1)
    # of a space of more dimensions some is lost
    solid = np.random.default_rng(3).normal(size=(9, 5))
    assert 0.3 < classical_map(np.linalg.norm(solid[:, None] - solid, axis=-1))[1] < 0.95


def test_two_separators_between_texts_belong_to_neither(tmp_path: Path) -> None:
    """As RoBERTa has them: the second text begins behind the second one."""
    model, tokenizer = varied(build_model(MODELS["roberta-none"], seed=1)), TOKENIZERS["roberta"]
    save_model(tmp_path / "model", model, tokenizer)
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    own = np.array([cls, 7, 8, 9, sep, sep, 10, 11, sep], np.int32)
    kinds = np.zeros(9, np.int8)
    encoded = EncodedExamples.of([own], [kinds])
    (layers,) = theirs(tmp_path / "model", encoded, segments=False)
    w = np.stack(layers)
    statistics = HeadStatistics(model.config.encoder, tokenizer)
    for scanned in scan(model, encoded):
        roles = statistics.block(scanned.batch, scanned.block)
        for layer in scanned.layers:
            statistics.add(layer, scanned.batch, scanned.block, roles)
    found = statistics.sums.statistics()
    close_to_transformers(found["first_to_second"], w[..., 1:4, 6:8].sum((-2, -1)) / 3)
    close_to_transformers(found["second_to_first"], w[..., 6:8, 1:4].sum((-2, -1)) / 2)


def test_gradients_are_those_of_transformers(tmp_path: Path) -> None:
    model = varied(build_model(MODELS["bert-masked_lm"], seed=1))
    save_model(tmp_path / "model", model, TOKENIZER)
    other: Any = AutoModelForMaskedLM.from_pretrained(
        tmp_path / "model", attn_implementation="eager"
    ).eval()
    encoded = examples()
    found = attention_gradients(model, TOKENIZER, encoded)
    assert found is not None
    assert "masked-LM" in found.loss
    sums: dict[str, Any] = {"sep": 0.0, "cls": 0.0, "all": 0.0}
    pairs = dict.fromkeys(sums, 0)
    for units, batch in evaluation_batches(encoded):
        hidden, places = masked(batch, TOKENIZER, units.tolist())
        begins = batch.offsets.tolist()
        for number, length in enumerate(batch.lengths):
            own = slice(begins[number], begins[number] + length)
            ids = batch.ids[own]
            at = places[(places >= own.start) & (places < own.stop)] - own.start
            assert len(at)
            assert (hidden.ids[own][at] == TOKENIZER.mask_id).all()
            wanted = torch.full_like(ids, -100)
            wanted[at] = ids[at]
            out = other(
                input_ids=hidden.ids[own][None], token_type_ids=batch.segments[own][None],
                labels=wanted[None], output_attentions=True,
            )  # fmt: skip
            gradients = torch.stack(torch.autograd.grad(out.loss, out.attentions))[:, 0]
            size = gradients.abs().double().numpy()
            for name, keys in (
                ("sep", ids == TOKENIZER.sep_id),
                ("cls", ids == TOKENIZER.cls_id),
                ("all", ids >= 0),
            ):
                sums[name] = sums[name] + size[..., keys.numpy()].sum((-2, -1))
                pairs[name] += length * int(keys.sum())
    for name, total in sums.items():
        expected = total / pairs[name]
        assert expected.max() > 0
        check(found.of(name) / expected.max(), expected / expected.max(), 1e-5, name)


def test_gradients_want_a_head_that_gives_a_loss(tmp_path: Path) -> None:
    encoder = EncoderConfig(vocabulary=99, hidden=24, layers=2, heads=3, feed_forward=31)
    bare = build_model(ModelConfig(encoder=encoder), seed=1).eval()
    assert attention_gradients(bare, TOKENIZER, examples()) is None
    labels = ("news", "spam", "ham")
    classifier = ModelConfig(encoder=encoder, predicts="class", labels=labels)
    model = varied(build_model(classifier, seed=1)).eval()
    found = attention_gradients(model, TOKENIZER, examples())
    assert found is not None
    save_model(tmp_path / "model", model, TOKENIZER)
    other: Any = AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "model", attn_implementation="eager"
    ).eval()
    total, pairs = np.zeros((2, 3)), 0
    for ids, kinds in zip(examples().ids, examples().segments, strict=True):
        one, segments = (torch.from_numpy(row.astype(np.int64))[None] for row in (ids, kinds))
        out = other(input_ids=one, token_type_ids=segments, output_attentions=True)
        # of the class that is predicted, whatever else is read with the text
        loss = -out.logits.log_softmax(-1).max()
        gradients = torch.stack(torch.autograd.grad(loss, out.attentions))[:, 0]
        total += gradients.abs().double().numpy().sum((-2, -1))
        pairs += len(ids) ** 2
    expected = total / pairs
    check(found.of("all") / expected.max(), expected / expected.max(), 1e-5)


def test_an_inspection_does_not_depend_on_how_texts_are_grouped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = varied(build_model(MODELS["bert-none"], seed=1))
    encoded = examples()
    items = [
        Item(ids=ids, segments=segments, line=line)
        for line, (ids, segments) in enumerate(zip(encoded.ids, encoded.segments, strict=True), 1)
    ]
    whole = inspect_attention(model, TOKENIZER, iter(items), sample=4, frequent=3)
    monkeypatch.setattr("bertsmith.analysis.inspection._TEXTS", 2)
    parts = inspect_attention(model, TOKENIZER, iter(items), sample=4, frequent=3)
    assert (whole.texts, whole.tokens) == (parts.texts, parts.tokens) == (6, sum(encoded.lengths))
    for name, values in whole.statistics.items():
        check(parts.statistics[name], values, 1e-6, name)
    assert [item.line for item in whole.sample] == [item.line for item in parts.sample]
    assert len(whole.sample) == 4
    check(whole.distances, parts.distances, 1e-5)
