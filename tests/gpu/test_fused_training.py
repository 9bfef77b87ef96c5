"""Models trained with the fused kernels and without: the same losses, gradients and drops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bertsmith.network.batch import Batch, Target, pack
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.encoded import Taps
from bertsmith.network.fused import support
from bertsmith.network.model import Model, build_model
from bertsmith.objectives.pretraining import PRETRAINING
from bertsmith.training.local import DropoutKey

VOCABULARY, LENGTHS = 1021, (13, 130, 1, 64, 77)


def built(dropout: float = 0.0, **changes: Any) -> Model:  # noqa: ANN401
    encoder = EncoderConfig(
        **{
            "vocabulary": VOCABULARY, "hidden": 192, "layers": 3, "heads": 3, "feed_forward": 776,
            "dropout": dropout, "attention_dropout": dropout, "longest": 130, "initial_std": 0.1,
        } | changes
    )  # fmt: skip
    config = ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True)
    return build_model(config, seed=1).cuda().train()


def batch() -> Batch:
    random = np.random.default_rng(0)
    rows = [random.integers(5, VOCABULARY, length) for length in LENGTHS]
    packed = pack(rows, [np.arange(len(row)) % 2 for row in rows])
    read = torch.arange(2, sum(LENGTHS), 6)
    targets = {
        "masked_lm": Target(positions=read, labels=torch.arange(len(read)) + 7),
        "next_sentence": Target(
            positions=torch.arange(5), labels=torch.tensor([0, 1, 1, 0, 1]), by_sequence=True
        ),
    }
    return replace(packed, targets=targets)


def trained(model: Model, *without: support.Part, seed: int = 0) -> tuple[float, dict[str, Tensor]]:
    """The loss of the batch, and gradients by the names of parameters."""
    model.zero_grad(set_to_none=True)
    autocast = torch.autocast("cuda", torch.bfloat16)
    with support.without(*without), DropoutKey(seed, 3, 0).seeded(), autocast:
        loss = PRETRAINING(model, batch().to(model.device)).total()
        loss.backward()
    gradients = {
        name: parameter.grad.double().flatten()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    return float(loss.detach()), gradients


@pytest.mark.parametrize(
    "changes",
    [
        {}, {"activation": "gelu_tanh"}, {"biases": False}, {"layers": 4, "groups": 2},
        {"positions": "rotary"}, {"hidden": 60, "heads": 3},
    ],
    ids=str,
)  # fmt: skip
def test_every_part_has_the_losses_and_gradients_of_torch(changes: dict[str, Any]) -> None:
    model = built(**changes)
    loss, wanted = trained(model, *support.PARTS)
    others = [tuple(p for p in support.PARTS if p != part) for part in support.PARTS]
    for without in [*others, ()]:
        mine, found = trained(model, *without)
        assert mine == pytest.approx(loss, rel=3e-3), without
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            # a constant added to all keys changes nothing: the gradient of their biases is noise
            if not name.endswith("key.bias"):
                assert torch.cosine_similarity(found[name], value, 0) > 0.99, (name, without)


def test_the_parts_are_used() -> None:
    """Triton works here; else all tests beside would compare torch with itself."""
    with torch.autocast("cuda", torch.bfloat16):
        inputs = torch.zeros(3, 8, device="cuda")
        assert all(support.uses(part, inputs) for part in support.PARTS)
        assert not support.uses("gelu", inputs.cpu())
        with torch.no_grad():
            assert not support.uses("gelu", inputs)
    assert not support.uses("gelu", inputs)


def test_drops_follow_from_the_seed_alone() -> None:
    model = built(dropout=0.1)
    first, _ = trained(model, seed=5)
    torch.rand(3)
    torch.rand(3, device="cuda")
    assert trained(model, seed=5)[0] == first
    assert trained(model, seed=6)[0] != first


def test_states_can_be_tapped_and_trained_on() -> None:
    model = built()
    found = []
    for without in ((), support.PARTS):
        model.zero_grad(set_to_none=True)
        with support.without(*without), torch.autocast("cuda", torch.bfloat16):
            taps = Taps(states=frozenset(range(4)), qkv=frozenset({2}), weights=frozenset({3}))
            encoded = model.encoder(batch().to(model.device), taps=taps)
            states = torch.stack([encoded.states[number].float() for number in range(4)])
            (states * torch.linspace(-1, 1, states.shape[-1], device="cuda")).sum().backward()
        query = model.encoder.blocks[0].get_parameter("attention.query.weight").grad
        assert query is not None
        found.append((states.detach(), encoded.qkv[2][0].detach().float(), query))
    for one, other in zip(*found, strict=True):
        assert torch.cosine_similarity(one.flatten().double(), other.flatten().double(), 0) > 0.999
