"""Padding rows to usual shapes: what is computed does not change."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bertsmith.network import shape_buckets
from bertsmith.network.batch import Batch, pack
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.encoded import Taps
from bertsmith.network.model import build_model
from bertsmith.network.shape_buckets import round_up
from bounds import close_gradients, close_when_regrouped

ENCODER = EncoderConfig(
    vocabulary=99, hidden=32, layers=3, heads=4, feed_forward=37, longest=23, dropout=0.0,
    attention_dropout=0.0, initial_std=0.3,
)  # fmt: skip


def batch(*lengths: int) -> Batch:
    generator = np.random.default_rng(1)
    ids = [generator.integers(0, 99, length) for length in lengths]
    return pack(ids, [id_ % 2 for id_ in ids])


@pytest.mark.parametrize("partial", [False, True])
def test_padding_changes_nothing(partial: bool) -> None:
    packed = batch(*([23, 19, 7] * 28))
    read = torch.arange(0, packed.tokens, 2)
    assert (packed.tokens, len(read)) == (1372, 686)
    weights = torch.randn(len(read), 32, generator=torch.Generator().manual_seed(3))
    found = []
    for padded in (False, True):
        model = build_model(ModelConfig(encoder=ENCODER), seed=1).train()
        at = read if partial else None
        if padded:
            encoded = shape_buckets.encode(model.encoder, packed, selected=at)
            assert len(encoded.last) == (688 if partial else 1372)
        else:
            encoded = model.encoder(packed, selected=at)
        (encoded.rows(read) * weights).sum().backward()
        gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        found.append((encoded.rows(read).detach(), gradients))
    (plain, expected), (last, gradients) = found
    close_when_regrouped(last, plain)
    assert gradients.keys() == expected.keys()
    # of all: the keys' biases have none but what rounding leaves
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    for name, gradient in gradients.items():
        close_gradients(gradient / largest, expected[name] / largest, name)


def test_taps_have_no_padding_rows() -> None:
    packed = batch(23, 19, 23, 7)
    assert round_up(packed.tokens, 64) == 80
    model = build_model(ModelConfig(encoder=ENCODER), seed=1).train()
    taps = Taps(states=frozenset({0, 2}), qkv=frozenset({1}), weights=frozenset({3}))
    padded = shape_buckets.encode(model.encoder, packed, taps=taps)
    plain = model.encoder(packed, taps=taps)
    close_when_regrouped(padded.last, plain.last)
    for mine, other in (
        (padded.states[0], plain.states[0]),
        (padded.states[2], plain.states[2]),
        *zip(padded.qkv[1], plain.qkv[1], strict=True),
        *zip(padded.weights[3], plain.weights[3], strict=True),
    ):
        close_when_regrouped(mine, other)


def test_rows_are_rounded_where_it_pays() -> None:
    rows = (0, 5, 511, 512, 513, 1025, 8170)
    assert [round_up(row) for row in rows] == [0, 5, 511, 512, 528, 1088, 8192]
    assert [round_up(item, 64) for item in (63, 64, 65, 511, 513)] == [63, 64, 80, 512, 528]
