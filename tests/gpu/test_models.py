"""Every family with every head on a GPU: answers and gradients against those of the processor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from bertsmith.batches.examples import EncodedExamples
from bertsmith.core.errors import NonFiniteOutputs
from bertsmith.engine.answers import Forward, text_outputs
from bertsmith.engine.config import EngineConfig
from bertsmith.engine.prepared import prepare_model
from bertsmith.network.batch import Batch
from bertsmith.network.config import Precision
from bertsmith.network.encoded import Taps
from bertsmith.network.model import Model, forward_only
from bounds import check
from families import LENGTHS, MODELS, WIRINGS, answers, batch, varied

ALL = MODELS | WIRINGS
BOUNDS: dict[Precision, float] = {"fp32": 1e-5, "bf16": 0.03}
MARK = 60

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


@pytest.mark.parametrize("case", ALL)
@precisions
def test_the_engine_answers_as_the_processor(case: str, precision: Precision) -> None:
    model, packed = varied(ALL[case]), batch(*LENGTHS)
    with forward_only(model, "fp32"):
        wanted = answers(model, packed)
    engine = prepare_model(model.cuda(), EngineConfig(precision=precision))
    assert (engine.backend, engine.forward.precision) == ("torch", "fp32")
    with forward_only(engine.model, "fp32"):
        found = answers(engine.model, packed.to(engine.model.device))
    for name, answer in wanted.items():
        check(found[name], answer, BOUNDS[precision], name)


def test_auto_is_what_the_gpu_multiplies() -> None:
    engine = prepare_model(varied(ALL["bert-none"]).cuda(), EngineConfig())
    native = torch.cuda.is_bf16_supported(including_emulation=False)
    assert engine.precision == ("bf16" if native else "fp32")


def encoded(lengths: Sequence[int], marked: int | None = None) -> EncodedExamples:
    """Texts of these lengths; the one that is `marked` begins with a token that no other has."""
    ids = [np.arange(5, 5 + length, dtype=np.int32) for length in lengths]
    if marked is not None:
        ids[marked][0] = MARK
    return EncodedExamples.of(ids, [np.zeros(length, np.int8) for length in lengths])


def test_outputs_stay_with_their_texts_while_batches_wait() -> None:
    """Outputs are read a batch late, and the batches of a GPU are not those of a processor."""
    model, examples = varied(ALL["bert-classes"]), encoded([*range(3, 24), *range(23, 2, -1)])
    wanted = text_outputs(model, examples, Forward(tokens_per_batch=60))
    model.cuda()
    for tokens in (None, 60):
        found = text_outputs(model, examples, Forward(tokens_per_batch=tokens))
        check(torch.from_numpy(found), torch.from_numpy(wanted), 1e-5)


@pytest.mark.parametrize("marked", [0, 10, 20], ids=["first", "among", "last"])
def test_a_batch_that_is_not_finite_is_refused(marked: int) -> None:
    model, forward = varied(ALL["bert-classes"]), Forward(tokens_per_batch=60)
    with torch.no_grad():
        model.encoder.embeddings.tokens.weight[MARK] = torch.nan
    model.cuda()
    assert np.isfinite(text_outputs(model, encoded(range(23, 2, -1)), forward)).all()
    with pytest.raises(NonFiniteOutputs):
        text_outputs(model, encoded(range(23, 2, -1), marked), forward)


@pytest.mark.parametrize("case", ["bert-none", "modernbert-none", "causal-masked_lm", "window"])
@precisions
@pytest.mark.parametrize("prepared", [False, True], ids=["network", "engine"])
def test_some_tokens_are_as_among_all(case: str, precision: Precision, prepared: bool) -> None:
    model, packed = varied(ALL[case]).cuda(), batch(*LENGTHS).to(torch.device("cuda"))
    bound = {"fp32": 2e-6, "bf16": 0.02}[precision]
    if prepared:
        engine = prepare_model(model, EngineConfig(precision=precision))
        model, precision = engine.model, engine.forward.precision
    selected = torch.tensor([0, 5, 13, 14, 20, 36, 37, 43, 64], device="cuda")
    with forward_only(model, precision):
        whole = model.encoder(packed).last[selected]
        some = model.encoder(packed, selected=selected).last
    check(some, whole, bound)


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
