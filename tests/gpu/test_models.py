"""Every family with every head on a GPU: answers and gradients against those of the processor."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from bertsmith.network.batch import Batch
from bertsmith.network.config import Precision
from bertsmith.network.encoded import Taps
from bertsmith.network.model import Model, forward_only
from bounds import check
from families import LENGTHS, MODELS, WIRINGS, answers, batch, varied

ALL = MODELS | WIRINGS
BOUNDS: dict[Precision, float] = {"fp32": 1e-5, "bf16": 0.03}

precisions = pytest.mark.parametrize("precision", list(BOUNDS))


@pytest.mark.parametrize("case", ALL)
@precisions
def test_answers_are_those_of_the_processor(case: str, precision: Precision) -> None:
    model, packed = varied(ALL[case]), batch(*LENGTHS)
    with forward_only(model, "fp32"):
        wanted = answers(model, packed)
    model.cuda()
    with forward_only(model, precision):
        found = answers(model, packed.to(model.device))
    assert found.keys() == wanted.keys()
    for name, answer in wanted.items():
        assert found[name].is_cuda
        check(found[name], answer, BOUNDS[precision], name)


@pytest.mark.parametrize("case", ["bert-none", "modernbert-none", "causal-masked_lm", "window"])
@precisions
def test_some_tokens_are_as_among_all(case: str, precision: Precision) -> None:
    model, packed = varied(ALL[case]).cuda(), batch(*LENGTHS).to(torch.device("cuda"))
    selected = torch.tensor([0, 5, 13, 14, 20, 36, 37, 43, 64], device="cuda")
    with forward_only(model, precision):
        whole = model.encoder(packed).last[selected]
        some = model.encoder(packed, selected=selected).last
    check(some, whole, {"fp32": 2e-6, "bf16": 0.02}[precision])


@pytest.mark.parametrize("case", ["bert-masked_lm", "modernbert-none", "causal-masked_lm"])
def test_taps_are_those_of_the_processor(case: str) -> None:
    model, packed = varied(ALL[case]), batch(*LENGTHS)
    taps = Taps(states=frozenset({0, 2}), qkv=frozenset({1}), weights=frozenset({2}))
    with forward_only(model, "fp32"):
        wanted = model.encoder(packed, taps=taps)
    model.cuda()
    with forward_only(model, "fp32"):
        found = model.encoder(packed.to(model.device), taps=taps)
    for number, state in wanted.states.items():
        check(found.states[number], state, 1e-5)
    for mine, other in zip(found.qkv[1], wanted.qkv[1], strict=True):
        check(mine, other, 1e-5)
    for mine, other in zip(found.weights[2], wanted.weights[2], strict=True):
        check(mine, other, 1e-5)


def gradients(model: Model, packed: Batch, precision: Precision) -> dict[str, Tensor]:
    model.zero_grad()
    with torch.autocast(model.device.type, torch.bfloat16, enabled=precision == "bf16"):
        found = answers(model, packed)
    total = torch.zeros((), device=model.device)
    for answer in found.values():
        weights = torch.randn(answer.shape, generator=torch.Generator().manual_seed(1))
        total = total + (answer.float() * weights.to(model.device)).sum()
    total.backward()
    return {
        name: parameter.grad for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }  # fmt: skip


@pytest.mark.parametrize("case", ALL)
@precisions
def test_gradients_are_those_of_the_processor(case: str, precision: Precision) -> None:
    model, packed = varied(ALL[case]).eval(), batch(*LENGTHS)
    wanted = {name: grad.clone() for name, grad in gradients(model, packed, "fp32").items()}
    model.cuda()
    found = gradients(model, packed.to(model.device), precision)
    assert found.keys() == wanted.keys()
    for name, grad in wanted.items():
        check(found[name], grad, {"fp32": 5e-5, "bf16": 0.1}[precision], name)
