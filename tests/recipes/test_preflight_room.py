"""Memory and disk: what is estimated, what there is, and what is said when it does not suffice."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bertsmith.batches.config import SampleConfig
from bertsmith.core.processors import group_folders
from bertsmith.network.config import ModelConfig, Precision, encoder_of
from bertsmith.network.model import build_model
from bertsmith.objectives.pretraining import objective_of
from bertsmith.recipes import resources
from bertsmith.recipes.resources import MemoryNeed, check_memory_and_disk, free_memory, memory_need
from bertsmith.training.config import OptimiserConfig
from bertsmith.training.optimisers import Optimiser
from bertsmith.training.replicas import TrainedParameters
from native_precision import NATIVE, OTHER

CPU = torch.device("cpu")
SAMPLES = SampleConfig(max_length=64, tokens_per_batch=4096)

# a few steps in a process of its own, whose largest size less that before is what training took
TRAIN = """
import sys, torch
from bertsmith.network.config import encoder_of
from bertsmith.network.model import build_model
from bertsmith.network.config import ModelConfig
from bertsmith.objectives.pretraining import PRETRAINING
from bertsmith.training.optimisers import Optimiser, OptimiserConfig
from bertsmith.training.replicas import autocast
from bertsmith.network.batch import Target, pack
import numpy as np
random = np.random.default_rng(0)
ids = [random.integers(5, 20_000, 64) for _ in range(64)]
batch = pack(ids, [np.zeros(64, np.int64)] * 64)
at = torch.arange(0, 4096, 7)
from dataclasses import replace
batch = replace(batch, targets={"masked_lm": Target(positions=at, labels=batch.ids[at])})
def size(field):
    # what getrusage calls the largest size can be that of the process that started this one
    lines = open("/proc/self/status").read().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(field))
encoder = encoder_of("bert", "mini", 20_000, longest=64, dropout=0.0, attention_dropout=0.0)
before = size('VmRSS')
model = build_model(ModelConfig(encoder=encoder, masked_lm=True), seed=0)
optimiser = Optimiser(model, OptimiserConfig())
for _ in range(2):
    with autocast(sys.argv[1], model.device):
        losses = PRETRAINING(model, batch)
    losses.total().backward()
    optimiser.step(1.0)
print(size('VmHWM') - before)
"""


@pytest.mark.parametrize("precision", [NATIVE, pytest.param(OTHER, marks=pytest.mark.faults)])
def test_the_estimate_is_about_what_training_takes(precision: Precision) -> None:
    # in a fork, memory that was freed before would be used again and not be counted
    done = subprocess.run(
        [sys.executable, "-c", TRAIN, precision], capture_output=True, text=True, check=True
    )
    encoder = encoder_of("bert", "mini", 20_000, longest=64, dropout=0.0, attention_dropout=0.0)
    config = ModelConfig(encoder=encoder, masked_lm=True)
    wanted = memory_need(config, SAMPLES, OptimiserConfig(), precision)
    taken = int(done.stdout)
    # nothing is saved there
    assert 0.6 * taken < wanted.memory - wanted.checkpoint < 1.8 * taken


def test_layers_with_a_window_keep_scores_of_neighbours_only() -> None:
    samples = SampleConfig(max_length=4096, tokens_per_batch=4096)

    def activations(**changes: Any) -> int:  # noqa: ANN401
        config = ModelConfig(encoder=encoder_of("modernbert", "tiny", 99, **changes), pooler=False)
        return memory_need(config, samples, OptimiserConfig(), "fp32").activations

    # two layers of three, two heads: 256 keys a query in place of 4,096
    saved = 2 * 2 * (4096 - 256) * 4096 * 4
    assert activations(global_every=1) - activations() == saved


@pytest.mark.parametrize("optimiser", [OptimiserConfig(), OptimiserConfig(matrices="muon")])
@pytest.mark.parametrize(
    "config",
    [
        ModelConfig(
            encoder=encoder_of("bert", "tiny", 997, longest=41), masked_lm=True, next_sentence=True
        ),
        # with the generator, which is trained beside it
        ModelConfig(
            encoder=encoder_of("electra", "tiny", 997, longest=41),
            pooler=False,
            replaced_tokens=True,
        ),
    ],
    ids=["bert", "electra"],
)
def test_weights_and_moments_are_counted(config: ModelConfig, optimiser: OptimiserConfig) -> None:
    model = build_model(config, seed=1)
    wanted = memory_need(config, SAMPLES, optimiser, "fp32")
    trained = TrainedParameters(model, objective_of(config, seed=1).own)
    assert wanted.weights == 4 * sum(p.numel() for p in trained.parameters())
    stepper = Optimiser(trained, optimiser)
    for parameter in trained.parameters():
        parameter.grad = torch.zeros_like(parameter)
    stepper.step(0.0)
    moments = sum(tensor.nbytes for tensor in stepper.tensors().values() if tensor.dim())
    assert wanted.moments == moments


def test_a_longer_batch_and_dropout_want_more() -> None:
    config = ModelConfig(
        encoder=encoder_of("bert", "tiny", 997, dropout=0.0, attention_dropout=0.0)
    )
    dropped = replace(config, encoder=encoder_of("bert", "tiny", 997))
    large = replace(SAMPLES, tokens_per_batch=8192)
    small, batch, drop = (
        memory_need(item, samples, OptimiserConfig(), "bf16").activations
        for item, samples in ((config, SAMPLES), (config, large), (dropped, SAMPLES))
    )
    assert batch == pytest.approx(2 * small, rel=1e-6)
    assert drop > 1.1 * small


def test_too_little_room_is_said_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = MemoryNeed(weights=4, moments=8, passing=4, activations=10**9)
    monkeypatch.setattr(resources, "free_memory", lambda device: 2 * 10**9)
    memory, disk = check_memory_and_disk(wanted, tmp_path / "not" / "there", CPU, checkpoints=4)
    assert (memory.verdict, disk.verdict) == ("fine", "fine")
    memory, _ = check_memory_and_disk(wanted, tmp_path, CPU, checkpoints=4, processes=2)
    assert memory.verdict == "stop"
    assert memory.found == "about 2.5 GB in 2 processes (1.0 GB of it for a batch), 2.0 GB free"
    assert "--tokens-per-batch" in memory.remedy
    _, disk = check_memory_and_disk(replace(wanted, moments=10**15), tmp_path, CPU, checkpoints=4)
    assert disk.verdict == "stop"


def test_free_memory_is_no_more_than_the_machine_has() -> None:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    total = 1024 * int(next(line.split()[1] for line in lines if line.startswith("MemTotal")))
    free = free_memory(CPU)
    assert free is not None
    assert 0 < free <= total


@pytest.mark.parametrize("version", [1, 2])
def test_limits_of_control_groups_count(tmp_path: Path, version: int) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    base = root / "memory" if version == 1 else root
    outer, inner = base / "jobs", base / "jobs" / "mine"
    inner.mkdir(parents=True)
    limit, used = (
        ("memory.limit_in_bytes", "memory.usage_in_bytes")
        if version == 1
        else ("memory.max", "memory.current")
    )
    own.write_text(f"3:cpu:/x\n{'7:memory' if version == 1 else '0:'}:/jobs/mine\n")
    for folder, most, now in ((inner, "max", "100"), (outer, "5000", "3000")):
        (folder / limit).write_text(f"{most}\n")
        (folder / used).write_text(f"{now}\n")
    (outer / "memory.stat").write_text("anon 7\ninactive_file 500\n")
    groups = group_folders("memory", root, own)
    assert list(resources._free_group_memory(groups)) == [2500]
