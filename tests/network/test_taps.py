"""The one forward: what is asked for is there, and nothing else is computed or kept."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.network.attention.reference import attention_weights
from bertsmith.network.batch import Batch, pack
from bertsmith.network.config import ModelConfig
from bertsmith.network.encoded import NO_TAPS, Taps
from bertsmith.network.model import Model, build_model
from bounds import (
    close_gradients,
    close_to_float64,
    close_unit_vectors,
    close_when_regrouped,
)
from families import ENCODERS

BERT = dataclasses.replace(ENCODERS["bert"], dropout=0.0, attention_dropout=0.0, initial_std=0.2)


def batch() -> Batch:
    generator = np.random.default_rng(1)
    ids = [generator.integers(0, 99, length) for length in (13, 1, 23, 7)]
    return pack(ids, [id_ % 2 for id_ in ids])


def built(**changes: object) -> Model:
    encoder = BERT.override(**changes)
    return build_model(ModelConfig(encoder=encoder, pooler=False), seed=1)


def calls(model: Model, **asked: object) -> list[int]:
    """Numbers of the layers that run."""
    ran: list[int] = []
    for number, block in enumerate(model.encoder.blocks, 1):
        block.register_forward_hook(lambda *_, number=number: ran.append(number))
    with torch.no_grad():
        model.encoder(batch(), **asked)
    return ran


def test_layers_above_the_highest_tap_do_not_run_where_nothing_is_read() -> None:
    nowhere = torch.zeros(0, dtype=torch.long)
    assert calls(built()) == [1, 2, 3]
    assert calls(built(), selected=nowhere, taps=Taps(states=frozenset({0, 2}))) == [1, 2]
    assert calls(built(), selected=nowhere, taps=Taps(states=frozenset({3}))) == [1, 2, 3]
    assert calls(built(), selected=nowhere) == []
    assert calls(built(), selected=torch.tensor([4]), taps=Taps(states=frozenset({1}))) == [1, 2, 3]


def test_nothing_is_kept_that_was_not_asked_for() -> None:
    model, packed = built(), batch()
    plain = model.encoder(packed)
    assert [len(item) for item in (plain.states, plain.qkv, plain.weights)] == [0, 0, 0]
    some = model.encoder(packed, taps=Taps(states=frozenset({1}), qkv=frozenset({2})))
    assert list(some.states) == [1]
    assert list(some.qkv) == [2]
    assert not some.weights
    # states and queries are only kept: not a bit is another
    assert torch.equal(some.last, plain.last)


@pytest.mark.parametrize("causal", [False, True])
def test_a_tap_on_the_last_layer_computes_it_whole(causal: bool) -> None:
    model, packed, read = built(causal=causal).eval(), batch(), torch.tensor([0, 5, 30])
    with torch.no_grad():
        whole = model.encoder(packed).last
        found = model.encoder(packed, selected=read, taps=Taps(states=frozenset({3})))
    close_when_regrouped(found.states[3], whole)
    assert torch.equal(found.last, found.states[3][read])
    assert torch.equal(found.rows(read[[2, 0]]), found.last[[2, 0]])


@pytest.mark.parametrize("changes", [{}, {"causal": True}])
def test_reference_attention_has_the_output_and_the_gradients_of_the_others(
    changes: dict[str, object],
) -> None:
    found = []
    for taps in (NO_TAPS, Taps(weights=frozenset({1, 2, 3}))):
        model = built(**changes).train()
        encoded = model.encoder(batch(), taps=taps)
        encoded.last.square().sum().backward()
        gradients = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
        found.append((encoded, gradients))
    (plain, expected), (tapped, gradients) = found
    close_when_regrouped(tapped.last, plain.last)
    scale = max(float(value.abs().max()) for value in expected.values())
    for name, value in expected.items():
        close_gradients(gradients[name] / scale, value / scale, name)


def test_weights_are_those_before_dropout() -> None:
    model, packed = built(attention_dropout=0.5).train(), batch()
    torch.manual_seed(1)
    first, again = (model.encoder(packed, taps=Taps(weights=frozenset({1}))) for _ in range(2))
    assert not torch.equal(first.last, again.last)
    for one, other in zip(first.weights[1], again.weights[1], strict=True):
        assert torch.equal(one, other)
        close_unit_vectors(one.detach().sum(-1), torch.ones(one.shape[:-1]))


@pytest.mark.parametrize(("causal", "window"), [(False, None), (True, None), (False, 2)])
def test_attention_weights_are_the_equation(causal: bool, window: int | None) -> None:
    generator, lengths = torch.Generator().manual_seed(1), (5, 1, 7)
    query, key = (torch.randn(13, 3, 4, generator=generator) for _ in range(2))
    found = attention_weights(query, key, lengths, causal=causal, window=window)
    for weights, begin, length in zip(found, (0, 5, 6), lengths, strict=True):
        assert weights.shape == (3, length, length)
        for head in range(3):
            for place in range(length):
                expected = row(query, key, head, begin, place, length, causal, window)
                close_to_float64(weights[head, place], expected)


def row(
    query: Tensor, key: Tensor, head: int, begin: int, place: int, length: int, causal: bool,
    window: int | None,
) -> NDArray[np.float64]:  # fmt: skip
    """One row of weights, by plain numbers."""
    asked = query[begin + place, head].double().numpy()
    shares = np.zeros(length)
    for other in range(length):
        seen = not (causal and other > place) and (window is None or abs(other - place) <= window)
        if seen:
            product = float(asked @ key[begin + other, head].double().numpy())
            shares[other] = math.exp(product / 2)
    shares /= shares.sum()
    return shares


def test_taps_add_up() -> None:
    one = Taps(states=frozenset({1}), qkv=frozenset({2}))
    other = Taps(states=frozenset({3}), weights=frozenset({2}))
    both = one | other
    assert both == Taps(states=frozenset({1, 3}), qkv=frozenset({2}), weights=frozenset({2}))
    assert both.layers == {1, 2, 3}
