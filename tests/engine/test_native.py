"""The native encoder against the network: every wiring, size and precision."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
import torch

import bertsmith.engine.native as kernels
from bertsmith.engine.native import KernelPrecision, NativeEncoder, cannot, instruction_set
from bertsmith.network.batch import Batch, pack
from bertsmith.network.config import EncoderConfig
from bertsmith.network.encoded import Taps
from bertsmith.network.encoder import Encoder
from bounds import check

pytestmark = pytest.mark.skipif(instruction_set() is None, reason="no native kernels were built")

SIZES: dict[str, Any] = {
    "vocabulary": 99, "hidden": 48, "layers": 3, "heads": 3, "feed_forward": 71, "longest": 301,
    "norm_epsilon": 1e-7,
}  # fmt: skip
MODERN: dict[str, Any] = {
    "layers": 4, "segments": 0, "positions": "rotary", "theta": 160_000.0, "global_every": 3,
    "gated": True, "norm": "before", "biases": False,
}  # fmt: skip
WIRINGS: dict[str, dict[str, Any]] = {
    "bert": {},
    "no multiple of a vector": {"hidden": 39, "feed_forward": 7},
    "heads of 26": {"hidden": 312, "heads": 12, "feed_forward": 130, "layers": 2},
    "heads of 64": {"hidden": 128, "heads": 2},
    "heads of 40": {"hidden": 80, "heads": 2},
    "shared blocks, narrow tables": {
        "layers": 6, "groups": 2, "embedding": 24, "activation": "gelu_tanh",
    },
    "position offset, one segment": {"segments": 1, "position_offset": 2},
    "three segments": {"segments": 3},
    "sinusoids": {"positions": "sinusoidal", "segments": 0},
    "no positions": {"positions": "none"},
    "norm before": {"norm": "before"},
    "norm before, shared blocks": {"norm": "before", "groups": 1, "embedding": 20},
    "no biases": {"biases": False},
    "gated": {"gated": True, "feed_forward": 53},
    "local": {**MODERN, "window": 8},
    "local, wide": {**MODERN, "window": 130, "hidden": 128, "heads": 2},
    "causal": {"causal": True},
    "causal, rotary": {"causal": True, "positions": "rotary", "hidden": 36},
}  # fmt: skip
LENGTHS = (1, 300, 13, 2, 47, 129, 16, 33, 5)
BOUNDS: dict[KernelPrecision, float] = {"fp32": 1e-5, "bf16": 0.03, "int8": 0.1}


@functools.cache
def network(wiring: str) -> Encoder:
    """An encoder with weights large enough that every part of it shows in what it returns."""
    torch.manual_seed(7)
    encoder = Encoder(EncoderConfig(**SIZES | WIRINGS[wiring])).eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.normal_(0.0, 0.1)
        for module in encoder.modules():
            if isinstance(module, torch.nn.LayerNorm):
                module.weight.add_(1.0)
    return encoder


def batch_of(lengths: tuple[int, ...], config: EncoderConfig, seed: int = 3) -> Batch:
    draw = np.random.default_rng(seed)
    kinds = max(config.segments, 1)
    return pack(
        [draw.integers(0, config.vocabulary, length) for length in lengths],
        [draw.integers(0, kinds, length) for length in lengths],
    )


def native(encoder: Encoder, precision: KernelPrecision, threads: int = 1) -> NativeEncoder:
    reason = cannot(encoder.config, precision)
    if reason is not None:
        pytest.skip(reason)
    return NativeEncoder(encoder, precision=precision, threads=threads)


@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize("wiring", WIRINGS)
@torch.no_grad()
def test_native_encoder_computes_what_the_network_does(
    wiring: str, precision: KernelPrecision
) -> None:
    encoder = network(wiring)
    batch = batch_of(LENGTHS, encoder.config)
    every = Taps(states=frozenset(range(encoder.config.layers + 1)))
    expected = encoder(batch, taps=every)
    found = native(encoder, precision)(batch, taps=every)
    check(found.last, expected.last, BOUNDS[precision], precision)
    assert found.states.keys() == expected.states.keys()
    for number, state in found.states.items():
        check(state, expected.states[number], BOUNDS[precision], number)


@pytest.mark.parametrize("precision", BOUNDS)
@pytest.mark.parametrize("wiring", WIRINGS)
@torch.no_grad()
def test_tokens_have_the_same_bits_in_any_company_and_with_any_threads(
    wiring: str, precision: KernelPrecision
) -> None:
    encoder = network(wiring)
    alone, shared = (native(encoder, precision, threads) for threads in (1, 2))
    batch = batch_of(LENGTHS, encoder.config)
    expected = alone(batch).last
    assert torch.equal(shared(batch).last, expected)
    at = torch.arange(0, batch.tokens, 7)
    assert torch.equal(alone(batch, at=at).last, expected[at])
    assert torch.equal(shared(batch, at=at).last, expected[at])
    offsets = [0, *np.cumsum(LENGTHS).tolist()]
    for begin, end in itertools.pairwise(offsets):
        one = pack([batch.ids[begin:end].numpy()], [batch.segments[begin:end].numpy()])
        assert torch.equal(shared(one).last, expected[begin:end])


def test_kernels_of_other_sources_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert instruction_set() is not None
    monkeypatch.setattr(kernels, "_INTERFACE", -1)
    kernels._library.cache_clear()
    try:
        assert instruction_set() is None
        assert "compiled from other sources" in capsys.readouterr().err
    finally:
        kernels._library.cache_clear()
