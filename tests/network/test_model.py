"""Models: what they start from, what their configs refuse, what their heads read."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from bertsmith.core.errors import ConfigError
from bertsmith.network.batch import Batch, pack
from bertsmith.network.config import HEADS, Conformal, EncoderConfig, ModelConfig
from bertsmith.network.encoded import Encoded
from bertsmith.network.encoder import sinusoidal_table
from bertsmith.network.model import Model, build_model, start_positions_as_sinusoids
from bounds import close_gradients, close_in_kernels, close_when_regrouped
from families import MODELS

ENCODER = EncoderConfig(
    vocabulary=499, hidden=64, layers=3, heads=4, feed_forward=37, longest=23, dropout=0.0
)
CONFIG = ModelConfig(
    encoder=ENCODER, masked_lm=True, next_sentence=True, predicts="class", labels=("a", "b", "c")
)


def batch(*lengths: int) -> Batch:
    generator = np.random.default_rng(1)
    ids = [generator.integers(0, 499, length) for length in lengths]
    return pack(ids, [id_ % 2 for id_ in ids])


@torch.no_grad()
@pytest.mark.parametrize(
    ("deviation", "norm"), [(0.02, "after"), (0.05, "after"), (0.05, "before")]
)
def test_weights_start_from_a_truncated_normal(
    deviation: float, norm: Literal["after", "before"]
) -> None:
    encoder = dataclasses.replace(ENCODER, initial_std=deviation, norm=norm)
    model = build_model(dataclasses.replace(CONFIG, encoder=encoder), seed=1)
    seen = 0
    for name, parameter in model.named_parameters():
        added = name.endswith(("attention.output.weight", "feed_forward.down.weight"))
        # Shoeybi et al. 2019, section 4: the sums of 3 layers are 6
        std = deviation / 6**0.5 if norm == "before" and added else deviation
        if name.endswith("norm.weight"):
            assert (parameter == 1).all(), name
        elif parameter.dim() == 1:
            assert (parameter == 0).all(), name
        else:
            assert parameter.abs().max() <= 2 * std * (1 + 1e-6), name
            if parameter.numel() > 2000:
                # the deviation of a normal cut at two deviations is 0.8796 of its own
                assert float(parameter.std()) == pytest.approx(0.8796 * std, rel=0.05), name
                assert float(parameter.mean()) == pytest.approx(0, abs=0.05 * std), name
                seen += 1
    assert seen == 3 * 6 + 1 + 2


def test_weights_may_start_from_zero() -> None:
    encoder = dataclasses.replace(ENCODER, initial_std=0.0)
    model = build_model(dataclasses.replace(CONFIG, encoder=encoder), seed=1)
    assert not any(parameter.any() for parameter in model.parameters() if parameter.dim() > 1)


def test_the_seed_decides_the_weights_and_nothing_else() -> None:
    torch.manual_seed(1)
    first = build_model(CONFIG, seed=1).state_dict()
    torch.manual_seed(2)
    before = torch.get_rng_state()
    again = build_model(CONFIG, seed=1).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    other = build_model(CONFIG, seed=2).state_dict()
    for name, tensor in first.items():
        assert torch.equal(tensor, again[name])
        drawn = tensor.dim() > 1
        assert torch.equal(tensor, other[name]) != drawn, name


def test_sinusoidal_positions_are_filled_and_learned_ones_can_start_so() -> None:
    fixed = build_model(
        ModelConfig(encoder=dataclasses.replace(ENCODER, positions="sinusoidal")), seed=1
    )
    table = sinusoidal_table(23, 64)
    assert torch.equal(fixed.get_buffer("encoder.embeddings.positions.weight"), table)
    learned = build_model(CONFIG, seed=1)
    start_positions_as_sinusoids(learned, 0.02)
    weight = learned.get_parameter("encoder.embeddings.positions.weight")
    assert torch.equal(weight, table * 0.02)
    assert weight.requires_grad
    start_positions_as_sinusoids(fixed, 0.02)
    assert torch.equal(fixed.get_buffer("encoder.embeddings.positions.weight"), table)


def test_shapes_of_all_that_a_model_gives() -> None:
    model, packed = build_model(CONFIG, seed=1).eval(), batch(13, 7, 1, 19)
    encoded = model.encoder(packed)
    assert encoded.last.shape == (40, 64)
    assert model.pooled(encoded, packed).shape == (4, 64)
    assert model.next_sentence(encoded, packed).shape == (4, 2)
    assert model.classify(encoded, packed).shape == (4, 3)
    assert model.masked_lm(encoded.last[[0, 5, 39]]).shape == (3, 499)
    assert model.device == torch.device("cpu")


def test_the_masked_lm_head_is_tied_to_the_table() -> None:
    model = build_model(CONFIG, seed=1)
    model.masked_lm(torch.randn(5, 64)).sum().backward()
    gradient = model.encoder.embeddings.tokens.weight.grad
    assert gradient is not None
    assert (gradient != 0).any(dim=1).all()
    assert not [name for name in model.state_dict() if "decoder" in name]


def test_the_pooler_reads_the_first_token() -> None:
    model, packed = build_model(CONFIG, seed=1), batch(13, 7)
    hidden = torch.randn(20, 64)
    encoded = Encoded(last=hidden)
    before = model.pooled(encoded, packed)
    hidden[1:13] += 1
    hidden[14:] += 1
    assert torch.equal(model.pooled(encoded, packed), before)
    hidden[13] += 1
    assert (model.pooled(encoded, packed) != before).any(dim=1).tolist() == [False, True]


def test_order_matters_unless_there_are_no_positions() -> None:
    for positions, matters in (("learned", True), ("sinusoidal", True), ("none", False)):
        encoder = EncoderConfig.from_dict(ENCODER.to_dict() | {"positions": positions})
        model = build_model(ModelConfig(encoder=encoder), seed=1).eval()
        ids = np.array([3, 1, 4, 15, 9])
        kinds = np.zeros(5, np.int64)
        with torch.no_grad():
            there = model.encoder(pack([ids], [kinds])).last
            back = model.encoder(pack([ids[::-1].copy()], [kinds])).last.flip(0)
        assert (float((there - back).abs().max()) > 1e-3) == matters


@pytest.mark.parametrize("name", ["dropout", "attention_dropout"])
def test_dropout_acts_in_training_only(name: str) -> None:
    encoder = dataclasses.replace(ENCODER, attention_dropout=0.0).override(**{name: 0.5})
    model, packed = build_model(ModelConfig(encoder=encoder), seed=1), batch(13, 7)
    torch.manual_seed(1)
    first, second = model.train().encoder(packed).last, model.encoder(packed).last
    assert not torch.equal(first, second)
    model.eval()
    assert torch.equal(model.encoder(packed).last, model.encoder(packed).last)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"vocabulary": 0}, "vocabulary is 0; it must be at least 1"),
        ({"hidden": -4}, "hidden is -4"),
        ({"layers": 0}, "layers is 0"),
        ({"heads": 5}, r"hidden \(64\) is not a multiple of heads \(5\)"),
        ({"feed_forward": 0}, "feed_forward is 0"),
        ({"longest": 0}, "longest is 0"),
        ({"segments": -1}, "segments is -1"),
        ({"dropout": 1.0}, r"dropout is 1.0; it must be in \[0, 1\)"),
        ({"attention_dropout": -0.1}, "attention_dropout is -0.1"),
        ({"positions": "relative"}, "positions is 'relative'; it must be one of learned"),
        ({"activation": "relu"}, "activation is 'relu'"),
        ({"hidden": 64.0}, "hidden is 64.0; it must be a whole number"),
        ({"width": 5}, "unknown setting 'width'"),
    ],
)
def test_impossible_encoders_are_refused(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        EncoderConfig.from_dict(ENCODER.to_dict() | change)


@pytest.mark.parametrize(
    "change", [{"next_sentence": True}, {"predicts": "class", "labels": ("a", "b")}]
)
def test_heads_that_read_the_pooler_need_it(change: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="need the pooler"):
        ModelConfig(encoder=ENCODER, pooler=False, **change)


def test_a_label_stands_once() -> None:
    with pytest.raises(ConfigError, match="twice in a, b, a"):
        ModelConfig(encoder=ENCODER, predicts="class", labels=("a", "b", "a"))


def test_a_config_comes_back_from_json() -> None:
    assert ModelConfig.from_dict(CONFIG.to_dict()) == CONFIG


def test_parts_that_are_not_asked_for_are_not_there() -> None:
    model = Model(ModelConfig(encoder=ENCODER, pooler=False))
    assert model.pooler is None
    assert not model.heads
    assert {name.partition(".")[0] for name in model.state_dict()} == {"encoder"}


@pytest.mark.parametrize("causal", [False, True])
def test_the_last_layer_can_work_where_it_is_read_only(causal: bool) -> None:
    encoder = dataclasses.replace(ENCODER, causal=causal, attention_dropout=0.0, initial_std=0.2)
    packed = batch(13, 2, 7, 19, 5)
    read = torch.tensor([0, 4, 12, 13, 15, 20, 22, 40, 41, 45])
    weights = torch.randn(len(read), 64, generator=torch.Generator().manual_seed(3))
    results, gradients = [], []
    for places in (None, read):
        model = build_model(ModelConfig(encoder=encoder), seed=1).train()
        encoded = model.encoder(packed, selected=places)
        assert encoded.last.shape == (46 if places is None else 10, 64)
        (encoded.rows(read) * weights).sum().backward()
        results.append(encoded.rows(read).detach())
        gradients.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    close_when_regrouped(results[1], results[0])
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        close_gradients(gradients[1][name], gradient, name)
    with torch.no_grad():
        found = (
            build_model(ModelConfig(encoder=encoder), seed=1).eval().encoder(packed, selected=read)
        )
    close_when_regrouped(found.last, results[0])
    assert torch.equal(found.rows(read[[7, 2]]), found.last[[7, 2]])


@pytest.mark.parametrize("name", list(MODELS))
def test_any_model_can_have_another_head(name: str) -> None:
    config = MODELS[name]
    if config.predicts == "span":
        config = dataclasses.replace(config, no_answer=1.5)
    if config.predicts in ("class", "choice"):
        conformal = Conformal(examples=9, coverages=(0.5, 0.9), thresholds=(0.7, 0.2))
        config = dataclasses.replace(config, min_confidence=0.5, conformal=conformal)
    for predicts, head in HEADS.items():
        labels = ("a", "b") if head in ("classify", "tag") else ()
        made = config.with_head(predicts, labels)
        assert (made.predicts, made.labels, made.encoder) == (predicts, labels, config.encoder)
        assert (made.no_answer, made.min_confidence, made.conformal) == (None, None, None)
        assert not made.masked_lm


@pytest.mark.parametrize("name", ["albert-masked_lm", "modernbert-class"])
def test_gradients_of_norms_are_added_up_in_float32(name: str) -> None:
    """In autocast, where values are bf16 and the weights are not."""
    modules = build_model(MODELS[name], seed=1).named_modules()
    norms = {where: part for where, part in modules if isinstance(part, nn.LayerNorm)}
    assert len(norms) > 3
    for where, norm in norms.items():
        (width,) = norm.normalized_shape
        values = torch.randn(4000, width, generator=torch.Generator().manual_seed(1)).bfloat16()
        with torch.autocast("cpu", torch.bfloat16):
            normed = norm(values)
        # of one sign for all values
        found = torch.autograd.grad((normed + normed.abs()).sum(), list(norm.parameters()))
        exact = F.layer_norm(values.double(), (width,), eps=norm.eps)
        expected = (exact + exact.abs()).sum(0), (1 + exact.sign()).sum(0)
        for mine, other in zip(found, expected, strict=norm.bias is not None):
            close_in_kernels(mine, other, "bf16", where)
