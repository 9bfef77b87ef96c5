"""Pre-training on a GPU: the losses of the processor, every optimiser, and a run resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import bertsmith
from bertsmith.batches import DataPosition
from bertsmith.batches.config import SampleConfig
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.core.signals import Interrupted
from bertsmith.network.batch import Batch
from bertsmith.network.families.bert import BERT
from bertsmith.network.families.family import usual
from bertsmith.recipes.pretrain import published
from bertsmith.recipes.pretrain.config import NetworkConfig, PretrainConfig, PretrainSettings
from bertsmith.recipes.pretrain.recipe import PretrainOutcome, pretrain
from bertsmith.recipes.pretrain.speed import TRIAL_STEPS
from bertsmith.store.preparing import prepare_store
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.config import OptimiserConfig
from bertsmith.weights.folder import load_model
from bounds import check
from invented import invented_documents, tokenizer

__all__ = ["tokenizer"]

STEPS = 20
NO_DROPOUT = NetworkConfig(max_positions=40, hidden_dropout=0.0, attention_dropout=0.0)
PLAIN = PretrainSettings(
    network=NO_DROPOUT,
    samples=SampleConfig(max_length=31, tokens_per_batch=190),
    log_every=1,
    measurements=0,
    precision="fp32",
    seed=5,
)


@pytest.fixture(scope="module", autouse=True)
def sizes() -> Iterator[None]:
    """A size that trains in no time, with heads of 64."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BERT.sizes, "tiny", usual(2, 128))
        yield


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "store"
    prepare_store(invented_documents(50), tokenizer, folder, held_out=0.1)
    return folder


def run(store: Path | None, out: Path, device: str, **changes: Any) -> PretrainOutcome:  # noqa: ANN401
    options: dict[str, Any] = {
        "model": "tiny",
        "steps": STEPS,
        "settings": PLAIN,
        "workers": 0,
    } | changes
    return pretrain(PretrainConfig(store=store, out=out, device=device, **options))


def logged(outcome: PretrainOutcome) -> list[dict[str, Any]]:
    lines = (outcome.folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def losses(outcome: PretrainOutcome) -> list[float]:
    return [line["masked_lm_loss"] for line in logged(outcome)]


def recipe(name: str) -> PretrainSettings:
    """A recipe as published, small, in float32 and without dropout."""
    settings: PretrainSettings = getattr(published, name)("tiny")
    network = replace(settings.network, max_positions=40, hidden_dropout=0.0, attention_dropout=0.0)
    samples = replace(settings.samples, max_length=31, tokens_per_batch=190)
    return replace(
        settings, network=network, samples=samples, phases=(), log_every=1, measurements=0,
        precision="fp32", seed=5,
    )  # fmt: skip


@pytest.mark.parametrize("matrices", ["adamw", "lamb", "muon"])
def test_losses_are_those_of_the_processor(store: Path, tmp_path: Path, matrices: str) -> None:
    kinds: dict[str, Any] = {
        "adamw": {}, "lamb": {"algorithm": "lamb"}, "muon": {"matrices": "muon"}
    }  # fmt: skip
    settings = replace(PLAIN, optimiser=OptimiserConfig(**kinds[matrices]))
    # with the processes that prepare batches for a GPU
    here, there = (
        run(store, tmp_path / name, name, settings=settings, workers=None)
        for name in ("cpu", "cuda")
    )
    # Muon orthogonalises in bfloat16 where the device has it
    bound = 0.05 if matrices == "muon" else 1e-3
    assert losses(there) == pytest.approx(losses(here), rel=bound)
    assert losses(there)[0] == pytest.approx(losses(here)[0], rel=1e-5)
    assert there.state.tokens == here.state.tokens
    assert there.held_out == pytest.approx(here.held_out, rel=bound, abs=0.01)
    assert (there.folder / "model" / "model.safetensors").exists()


@pytest.mark.parametrize("name", ["paper", "albert", "modern", "electra"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_recipes_train(store: Path, tmp_path: Path, name: str, precision: str) -> None:
    settings = replace(recipe(name), precision=precision)  # type: ignore[arg-type]
    model = "2/128"
    here = run(store, tmp_path / "cpu", "cpu", settings=settings, model=model)
    there = run(store, tmp_path / "cuda", "cuda", settings=settings, model=model)
    bound = 1e-4 if precision == "fp32" else 0.02
    mine, other = logged(there)[0], logged(here)[0]
    assert mine.keys() == other.keys()
    for key, value in other.items():
        if key.endswith("loss"):
            assert mine[key] == pytest.approx(value, rel=bound), key
    assert there.state.step == STEPS
    loaded, _ = load_model(there.folder / "model")
    assert all(weight.isfinite().all() for weight in loaded.state_dict().values())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_stopped_run_goes_on(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    """With dropout: the same samples and the same drops; sums on a GPU differ in the last digit."""
    network = NetworkConfig(max_positions=40)
    settings = replace(PLAIN, network=network, precision=precision)  # type: ignore[arg-type]
    whole = run(store, tmp_path / "whole", "cuda", settings=settings)
    next_batch, left = PretrainingBatches.next_batch, [TRIAL_STEPS + 8]

    def stopping(self: PretrainingBatches, place: DataPosition) -> tuple[Batch, DataPosition]:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGINT)
        return next_batch(self, place)

    with monkeypatch.context() as patch:
        patch.setattr(PretrainingBatches, "next_batch", stopping)
        with pytest.raises(Interrupted, match="stopped after step"):
            run(store, tmp_path / "run", "cuda", settings=settings)
    torch.rand(3, device="cuda")
    resumed = run(None, tmp_path / "run", "auto", model=None, steps=None, settings=None)
    assert resumed.state.tokens == whole.state.tokens
    bound = 1e-4 if precision == "fp32" else 0.02
    assert losses(resumed) == pytest.approx(losses(whole), rel=bound)
    (ours, _), (theirs, _) = (load_model(o.folder / "model") for o in (resumed, whole))
    for name, weight in theirs.state_dict().items():
        check(ours.state_dict()[name], weight, 1e-4 if precision == "fp32" else 2e-2, name)


def test_training_leaves_the_random_numbers_of_the_gpu_alone(store: Path, tmp_path: Path) -> None:
    """With dropout, for which every step seeds a generator."""
    torch.manual_seed(3)
    expected = torch.rand(11, device="cuda")
    torch.manual_seed(3)
    out = tmp_path / "run"
    bertsmith.pretrain(store, out=out, model="2/128", steps=3, device="cuda", workers=0)
    assert torch.equal(torch.rand(11, device="cuda"), expected)


def test_a_seed_set_before_the_gpu_is_used_holds_after_training(
    store: Path, tmp_path: Path
) -> None:
    """In another process, since a GPU stays in use once it was."""
    program = f"""
import torch, bertsmith
torch.manual_seed(3)
assert not torch.cuda.is_initialized()
bertsmith.pretrain({str(store)!r}, out={str(tmp_path / "run")!r}, model="2/128", steps=3,
                   device="cuda", workers=0)
found = torch.rand(11, device="cuda")
torch.manual_seed(3)
assert torch.equal(found, torch.rand(11, device="cuda"))
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
