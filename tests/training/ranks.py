"""What two ranks do for test_distribution.py: `-m training.ranks FOLDER`, in each of them.

Each leaves what it found in rank-N.json, or its models, in the folder.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.nn.utils import get_total_norm

from bertsmith.batches import DataPosition
from bertsmith.batches.config import SampleConfig
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.core.log import say
from bertsmith.core.signals import Interrupted
from bertsmith.network.batch import Batch
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import Model, build_model, forward_only
from bertsmith.objectives.pretraining import PRETRAINING
from bertsmith.store.store import TokenStore
from bertsmith.training.config import Budget, FitConfig, OptimiserConfig, Parallelism
from bertsmith.training.distribution import ALONE, World, join_world
from bertsmith.training.loop import Session, fit
from bertsmith.training.replicas import gather_model, is_sharded
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.state import Measurement
from bertsmith.weights.tensors import write_tensors

STEPS = 4
Method = Literal["adamw", "lamb", "muon"]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A training: what optimises, whether in shares, and at which batch a rank is told to stop.

    With `replicas`, ranks go on where one process had begun with those, and later others.
    """

    method: Method
    shard: bool
    stop: int | None = None
    workers: int = 0
    replicas: int = 1

    @property
    def name(self) -> str:
        end = "" if self.stop is None else "-stopped"
        return f"{self.method}-{'shares' if self.shard else 'copies'}{end}"


CASES = [
    *(Case(method="muon", shard=shard, stop=stop) for shard in (False, True) for stop in (None, 4)),
    Case(method="adamw", shard=False, workers=1, replicas=2),
    Case(method="adamw", shard=True),
    Case(method="lamb", shard=True),
]


class Stopping(PretrainingBatches):
    """Batches that ask the process for a stop when they are drawn the n-th time."""

    left = 0

    def next_batch(self, place: DataPosition) -> tuple[Batch, DataPosition]:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return super().next_batch(place)


def model_of(vocabulary: int, seed: int) -> Model:
    """Widths that two ranks cannot share evenly."""
    encoder = EncoderConfig(
        vocabulary=vocabulary, hidden=21, layers=3, heads=3, feed_forward=37, longest=41
    )
    config = ModelConfig(encoder=encoder, masked_lm=True, next_sentence=True)
    return build_model(config, seed=seed)


def batches_of(store: TokenStore, stop: int | None) -> PretrainingBatches:
    config = SampleConfig(max_length=41, tokens_per_batch=200)
    if stop is None:
        return PretrainingBatches(store, store.tokenizer(), config, seed=3)
    stopping = Stopping(store, store.tokenizer(), config, seed=3)
    stopping.left = stop
    return stopping


def train(case: Case, store: TokenStore, folder: Path, world: World = ALONE) -> Model:
    """Train a small model with dropout in steps of four batches, or go on with it."""
    folder.mkdir(parents=True, exist_ok=True)
    batches = batches_of(store, case.stop if world.rank == 1 else None)
    optimiser = OptimiserConfig(
        learning_rate=2e-3,
        algorithm="lamb" if case.method == "lamb" else "adamw",
        matrices="muon" if case.method == "muon" else "same",
    )
    config = FitConfig(
        budget=Budget(steps=STEPS),
        optimiser=optimiser,
        gradient_accumulation=4,
        precision="fp32",
        seed=9,
        log_every=2,
        # else at the best measurements and the end
        checkpoint_minutes=10.0 if case.method == "lamb" else 1e-9,
        max_gradient_norm=0.5,
        measurements=4,
        workers=case.workers if world.size > 1 else 0,
        replicas=case.replicas if world.size > 1 else 1,
    )
    if world.size > 1 and case.replicas > 1:
        if world.first:
            others = Parallelism(threads=1, replicas=case.replicas)
            RunFolder(folder).record_parallelism_changes([(1, Parallelism(threads=1)), (2, others)])
        world.wait()
    # what ranks compute by themselves differs on unlike machines: the first one's counts
    model = model_of(store.tokenizer().size, seed=5 + world.rank)
    measured = batches_of(store, None).next_batch(DataPosition(epoch=7))[0]

    def measure(model: Model, stopping: object) -> Measurement:
        with forward_only(model, "fp32"):
            loss = PRETRAINING(model, measured).parts["masked_lm"]
        mean = loss.sum.item() / loss.count
        return Measurement(mean if world.first else -mean, {"masked_lm_loss": mean})

    fit(
        config, model, PRETRAINING, batches,
        measure=measure, folder=RunFolder(folder), session=Session(world=world),
    )  # fmt: skip
    return gather_model(model, world)


def talk(world: World) -> dict[str, object]:
    say(f"this is rank {world.rank}")
    assert world.watch is not None
    return {
        "sum": world.sum([world.rank + 1.0, 0.1, 2.0**60]),
        "any": [world.any(world.rank == 1), world.any(False)],
        "of_first": world.broadcast_number(0.1 + world.rank),
        "told": [world.broadcast(lambda: {"rank": world.rank}), world.broadcast(lambda: None)],
        "pids": [peer["pid"] for peer in world.watch.peers.values()],
        "pid": os.getpid(),
    }


def scaled_norm(gradients: list[Tensor]) -> Tensor:
    """A norm of another sum than the first rank's."""
    norm = get_total_norm(gradients)
    return norm if is_sharded(norm) else norm / 2


def learn(world: World, folder: Path) -> dict[str, object]:
    store = TokenStore(folder / "store")
    if not world.first:
        setattr(torch.nn.utils, "get_total_norm", scaled_norm)  # noqa: B010
    for case in CASES:
        alike = replace(world, shard=case.shard)
        try:
            model = train(case, store, folder / case.name, alike)
        except Interrupted:
            assert case.stop is not None
            continue
        if world.first:
            write_tensors(folder / f"{case.name}.safetensors", model.state_dict())
    return talk(world)


def main(folder: Path) -> None:
    with join_world() as world:
        found = learn(world, folder)
        (folder / f"rank-{world.rank}.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
