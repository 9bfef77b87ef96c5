"""AdamW against torch's and transformers' parameter groups, LAMB against the paper's algorithm."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import BertConfig, BertForPreTraining
from transformers.trainer_pt_utils import get_parameter_names

from bertsmith.core.errors import ConfigError
from bertsmith.network.config import ModelConfig, encoder_of
from bertsmith.network.model import Model, build_model
from bertsmith.training import optimisers
from bertsmith.training.config import Budget, FitConfig, OptimiserConfig
from bertsmith.training.optimisers import Lamb, Optimiser
from bertsmith.weights import names
from bounds import close_to_float64

Vector = NDArray[np.float64]
STEPS, RATE, DECAY, BETAS, EPSILON = 7, 0.01, 0.1, (0.9, 0.99), 1e-5


def small(seed: int = 1) -> Model:
    encoder = encoder_of("bert", "tiny", 53, hidden=24, heads=3, feed_forward=40, longest=13)
    return build_model(ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True), seed=seed)


def gradients(model: nn.Module, step: int, *, without: str = "nothing") -> dict[str, torch.Tensor]:
    """Gradients of very different sizes, the same for the same step."""
    generator = torch.Generator().manual_seed(100 + step)
    drawn = {
        name: torch.randn(item.shape, generator=generator) * 10.0 ** (number % 5 - 4)
        for number, (name, item) in enumerate(model.named_parameters())
    }
    return {name: batch for name, batch in drawn.items() if without not in name or step % 3}


def lamb_of_the_paper(
    x: Vector, steps: list[Vector | None], *, decay: float, trust: bool
) -> Vector:
    """You et al. 2020, algorithm 2, in float64; phi is the identity."""
    m, v, t = np.zeros_like(x), np.zeros_like(x), 0
    for g in steps:
        if g is None:
            continue
        t += 1
        m = BETAS[0] * m + (1 - BETAS[0]) * g
        v = BETAS[1] * v + (1 - BETAS[1]) * g * g
        r = (m / (1 - BETAS[0] ** t)) / (np.sqrt(v / (1 - BETAS[1] ** t)) + EPSILON)
        u = r + decay * x
        long, far = np.linalg.norm(x), np.linalg.norm(u)
        x = x - RATE * (long / far if trust and long > 0 and far > 0 else 1.0) * u
    return x


def test_lamb_is_the_papers_but_for_norms_and_biases() -> None:
    model = small()
    before = {name: item.detach().double().numpy() for name, item in model.named_parameters()}
    config = OptimiserConfig(
        algorithm="lamb",
        learning_rate=RATE,
        weight_decay=DECAY,
        beta_1=0.9,
        beta_2=0.99,
        epsilon=EPSILON,
    )
    optimiser = Optimiser(model, config)
    drawn = [gradients(model, step, without="next_sentence") for step in range(STEPS)]
    for step in drawn:
        for name, parameter in model.named_parameters():
            parameter.grad = step[name].clone() if name in step else None
        optimiser.step(1.0)
    for name, parameter in model.named_parameters():
        matrix = parameter.dim() > 1
        steps = [step[name].double().numpy() if name in step else None for step in drawn]
        expected = lamb_of_the_paper(
            before[name], steps, decay=DECAY if matrix else 0.0, trust=matrix
        )
        moved = np.abs(expected - before[name]).max()
        assert moved > 1e-3, name
        found = parameter.detach().double().numpy()
        # of what it moved, and of the last digit of where it is
        assert np.abs(found - expected).max() < (moved + 0.02) / 100_000, name


def test_lamb_moves_what_is_zero_and_leaves_what_has_no_gradient() -> None:
    zero, idle = nn.Parameter(torch.zeros(3, 5)), nn.Parameter(torch.ones(3, 5))
    zero.grad, idle.grad = torch.ones(3, 5), torch.zeros(3, 5)
    Lamb([zero, idle], lr=0.1).step()
    # a step of Adam's first: the sign of the gradient times the rate
    close_to_float64(zero, torch.full((3, 5), -0.1))
    assert torch.equal(idle, torch.ones(3, 5))


def test_lambs_step_is_as_long_as_the_tensor_whatever_the_gradient() -> None:
    for scale in (1e-6, 1.0, 1e6):
        weight = nn.Parameter(torch.randn(7, 9, generator=torch.Generator().manual_seed(3)))
        before, weight.grad = weight.detach().clone(), scale * torch.randn(7, 9)
        Lamb([weight], lr=0.01, eps=1e-12).step()
        assert float((weight.detach() - before).norm() / before.norm()) == pytest.approx(
            0.01, rel=1e-4
        )


def test_adamw_is_torchs_in_the_groups_of_transformers() -> None:
    """The decayed parameters are those that transformers' Trainer decays, by our table of names."""
    ours = small()
    encoder = ours.config.encoder
    theirs = BertForPreTraining(
        BertConfig(
            vocab_size=53, hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
            intermediate_size=40, max_position_embeddings=13,
        )
    )  # fmt: skip
    decayed = set(
        get_parameter_names(
            theirs, [nn.LayerNorm], ["bias", "layernorm", "rmsnorm", r"(?:^|\.)norm(?:$|\.)"]
        )
    )
    to_theirs = {row.ours: row.hub for row in names.rows(ours.config)}
    copy = {name: item.detach().double().requires_grad_() for name, item in ours.named_parameters()}
    reference = torch.optim.AdamW(
        [
            {"params": [value], "weight_decay": DECAY if to_theirs[name] in decayed else 0.0}
            for name, value in copy.items()
        ],
        lr=RATE, betas=BETAS, eps=EPSILON, foreach=False, fused=False,
    )  # fmt: skip
    config = OptimiserConfig(
        learning_rate=RATE, weight_decay=DECAY, beta_1=0.9, beta_2=0.99, epsilon=EPSILON
    )
    optimiser = Optimiser(ours, config)
    for step, factor in enumerate((0.5, 1.0, 0.25)):
        for name, gradient in gradients(ours, step).items():
            ours.get_parameter(name).grad = gradient.clone()
            copy[name].grad = gradient.double()
        for group in reference.param_groups:
            group["lr"] = RATE * factor
        reference.step()
        optimiser.step(factor)
    assert encoder.vocabulary == 53
    for name, item in ours.named_parameters():
        close_to_float64(item, copy[name], name)


def test_muon_has_its_settings_and_the_matrices_inside_the_layers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(optimisers, "multiplies_bf16", lambda device: True)
    ours, start = small(), small()
    copy = {name: item.detach().clone().requires_grad_() for name, item in ours.named_parameters()}
    inside = {n for n, item in copy.items() if n.startswith("encoder.blocks.") and item.dim() == 2}
    assert len(inside) == 12
    reference = torch.optim.Muon(
        [copy[name] for name in inside], lr=0.03, weight_decay=DECAY, momentum=0.8
    )
    config = OptimiserConfig(
        matrices="muon", muon_learning_rate=0.03, muon_momentum=0.8, weight_decay=DECAY,
        learning_rate=1e-5,
    )  # fmt: skip
    optimiser = Optimiser(ours, config)
    for step, factor in enumerate((0.5, 1.0, 0.25, 1.0)):
        for name, gradient in gradients(ours, step).items():
            ours.get_parameter(name).grad = gradient.clone()
            copy[name].grad = gradient
        reference.param_groups[0]["lr"] = 0.03 * factor
        reference.step()
        optimiser.step(factor)
    for name, item in ours.named_parameters():
        moved = (item - start.get_parameter(name)).norm()
        if name in inside:
            # both iterate in bfloat16
            assert (item - copy[name]).norm() < 0.01 * moved, name
        else:
            # AdamW moves no value by more than its rate, which is far lower
            assert moved < 1e-4 * item.numel() ** 0.5, name


def test_every_layer_has_its_share_of_the_rate() -> None:
    """ELECTRA's rule (Clark et al. 2020, appendix B) by hand, for two layers and a decay of 0.5."""
    model = small()
    before = {name: item.detach().clone() for name, item in model.named_parameters()}
    optimiser = Optimiser(
        model, OptimiserConfig(learning_rate=0.01, weight_decay=0.1, layer_decay=0.5)
    )
    for _, item in model.named_parameters():
        item.grad = torch.ones_like(item)
    optimiser.step(0.75)
    shares = {
        "encoder.embeddings.": 0.125, "encoder.blocks.0.": 0.25, "encoder.blocks.1.": 0.5,
        "pooler.": 1.0, "heads.": 1.0,
    }  # fmt: skip
    for name, item in model.named_parameters():
        (share,) = (share for place, share in shares.items() if name.startswith(place))
        rate = 0.01 * 0.75 * share
        # Adam's first step is the rate itself, whatever the gradient's size
        kept = before[name] * (1 - rate * 0.1) if item.dim() > 1 else before[name]
        close_to_float64(item, kept - rate, name)


def test_every_layer_has_its_share_of_muons_rate() -> None:
    moved = {}
    for decay in (1.0, 0.5):
        model = small()
        before = {name: item.detach().clone() for name, item in model.named_parameters()}
        config = OptimiserConfig(matrices="muon", weight_decay=0.0, layer_decay=decay)
        optimiser = Optimiser(model, config)
        for name, gradient in gradients(model, step=1).items():
            model.get_parameter(name).grad = gradient
        optimiser.step(1.0)
        moved[decay] = {
            name: float((model.get_parameter(name) - before[name]).norm().detach())
            for name in before
            if name.startswith("encoder.blocks.") and before[name].dim() > 1
        }
    for name, distance in moved[0.5].items():
        share = 0.25 if name.startswith("encoder.blocks.0.") else 0.5
        assert distance == pytest.approx(share * moved[1.0][name], rel=1e-3), name


def test_what_is_restored_goes_on_the_same() -> None:
    for method in ("adamw", "lamb"):
        config = OptimiserConfig(algorithm=method, learning_rate=RATE)
        straight, halves = small(), small()
        whole, part = Optimiser(straight, config), Optimiser(halves, config)
        for step in range(4):
            if step == 2:
                memory = {name: tensor.clone() for name, tensor in part.tensors().items()}
                part = Optimiser(halves, config)
                part.restore(memory)
            for model, optimiser in ((straight, whole), (halves, part)):
                for name, gradient in gradients(model, step, without="next_sentence").items():
                    model.get_parameter(name).grad = gradient.clone()
                optimiser.step(1.0)
        for one, other in zip(straight.parameters(), halves.parameters(), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("beta_1", 1.0),
        ("beta_2", 1.5),
        ("muon_momentum", -0.1),
        ("epsilon", 0.0),
        ("weight_decay", -0.1),
        ("learning_rate", math.inf),
        ("muon_learning_rate", 0.0),
        ("learning_rate", math.nan),
    ],
)
def test_settings_with_which_nothing_is_learned_are_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} is {value}; it must be in"):
        OptimiserConfig(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "rate"),
    [
        ({}, "learning-rate 0.0001"),
        ({"matrices": "muon", "learning_rate": 1e-12}, "muon-learning-rate 0.02"),
    ],
)
def test_a_decay_that_removes_all_of_a_matrix_at_once_is_refused(
    changes: dict[str, Any], rate: str
) -> None:
    """Above 2 weights grow without end: a step multiplies them by 1 minus the product."""
    with pytest.raises(
        ConfigError, match=rf"--weight-decay is 10000\.0 at --{rate}; their product"
    ):
        OptimiserConfig(weight_decay=1e4, **changes)
    # what LAMB adds up is brought to the length of the weights
    OptimiserConfig(weight_decay=1e4, algorithm="lamb")
    OptimiserConfig(weight_decay=9e3)


@pytest.mark.parametrize("name", ["max_gradient_norm", "checkpoint_minutes"])
@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_limits_below_zero_are_refused(name: str, value: float) -> None:
    """A gradient scaled to a norm below zero would lead uphill."""
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')} is {value}; it must be in"):
        FitConfig(budget=Budget(steps=1), precision="fp32", **{name: value})  # type: ignore[arg-type]
