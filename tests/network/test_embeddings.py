"""Embeddings, positions and the feed-forward network."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from bertsmith.network.config import Activation, EncoderConfig, Positions
from bertsmith.network.encoder import Embeddings, FeedForward, sinusoidal_table
from bounds import close_to_float64

CONFIG = EncoderConfig(vocabulary=99, hidden=32, layers=3, heads=2, feed_forward=13, longest=11)


def embeddings(positions: Positions, segments: int = 2, dropout: float = 0.0) -> Embeddings:
    torch.manual_seed(1)
    return Embeddings(
        replace(CONFIG, segments=segments, positions=positions, dropout=dropout, longest=13)
    )


def test_sinusoids_are_those_of_the_paper() -> None:
    table = sinusoidal_table(23, 6)
    for position in (0, 1, 22):
        for pair in range(3):
            angle = position / 10_000 ** (2 * pair / 6)
            assert float(table[position, 2 * pair]) == pytest.approx(math.sin(angle), abs=1e-6)
            assert float(table[position, 2 * pair + 1]) == pytest.approx(math.cos(angle), abs=1e-6)


def test_an_odd_width_has_its_sinusoids_too() -> None:
    assert sinusoidal_table(7, 5).shape == (7, 5)
    assert torch.equal(sinusoidal_table(7, 6)[:, 0], sinusoidal_table(7, 5)[:, 0])


@torch.no_grad()
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
@pytest.mark.parametrize("segments", [0, 3])
def test_embeddings_are_a_normed_sum(positions: Positions, segments: int) -> None:
    part = embeddings(positions, segments)
    ids, kinds = torch.tensor([5, 98, 5, 5]), torch.tensor([0, 2, 2, 0])
    places = torch.tensor([0, 12, 4, 4])
    expected = part.tokens.weight[ids]
    if part.segments is not None:
        expected = expected + part.segments.weight[kinds]
    if positions == "learned":
        expected = expected + part.get_parameter("positions.weight")[places]
    if positions == "sinusoidal":
        expected = expected + sinusoidal_table(13, 32)[places]
    expected = expected - expected.mean(-1, keepdim=True)
    expected = expected / expected.pow(2).mean(-1, keepdim=True).sqrt()
    found = part(ids, kinds, places)
    close_to_float64(found, expected)
    assert torch.equal(found[2], found[3]) == (segments == 0)
    assert torch.equal(found[0], found[3]) == (positions == "none")


def test_only_learned_positions_are_parameters() -> None:
    assert "positions.weight" in dict(embeddings("learned").named_parameters())
    for positions in ("sinusoidal", "none"):
        part = embeddings(positions)
        assert "positions.weight" not in dict(part.named_parameters())
        assert "positions.weight" not in part.state_dict()


def test_dropout_is_for_training_only() -> None:
    part = embeddings("learned", dropout=0.5)
    batch = (torch.arange(13), torch.zeros(13, dtype=torch.long), torch.arange(13))
    assert 0.35 < float((part(*batch) == 0).double().mean()) < 0.65
    assert torch.equal(part.eval()(*batch), part(*batch))


@torch.no_grad()
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
def test_feed_forward_is_two_layers_around_a_gelu(activation: Activation) -> None:
    torch.manual_seed(1)
    part = FeedForward(replace(CONFIG, hidden=7, heads=1, activation=activation))
    inputs = torch.randn(5, 7) * 3
    inner = part.up(inputs).double()
    if activation == "gelu":
        inner = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
    else:
        cube = math.sqrt(2 / math.pi) * (inner + 0.044715 * inner**3)
        inner = inner * (1 + cube.tanh()) / 2
    expected = inner @ part.down.weight.double().T + part.down.bias.double()
    close_to_float64(part(inputs), expected)
