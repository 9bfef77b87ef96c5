"""The options of a pre-training run, to start it or to run its pre-flight check alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from bertsmith.batches.pretraining import PhasedBatches
from bertsmith.core.clock import Clock
from bertsmith.core.errors import ConfigError
from bertsmith.core.log import say
from bertsmith.hub.models import model_folder
from bertsmith.objectives.pretraining import objective_of
from bertsmith.recipes.devices import device_named
from bertsmith.recipes.findings import Findings
from bertsmith.recipes.pretrain.preflight.check import check, check_room
from bertsmith.recipes.pretrain.published import default_settings
from bertsmith.recipes.pretrain.recipe import (
    ANY_SIZE,
    measured,
    network_of,
    pretrain,
    resolve,
    start,
    tell_plan,
    verifying_seconds,
)
from bertsmith.recipes.pretrain.settings import PretrainConfig, PretrainRun
from bertsmith.recipes.pretrain.time import plan_time
from bertsmith.store.store import TokenStore, verify_store
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.schedule import Budget


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The options of a pre-training run, as `pretrain` takes them."""

    store: Path | None
    out: Path
    model: str | None = None
    parent: str | Path | None = None
    recipe: str = "quick"
    minutes: float | None = None
    steps: int | None = None
    settings: PretrainConfig | None = None
    device: str = "auto"
    clock: Clock | None = None


def begin(wanted: Wanted, *, workers: int, tensorboard: bool, shard: bool, force: bool) -> None:
    """Pre-train with these options; raises what `pretrain` raises."""
    pretrain(
        wanted.store, out=wanted.out, model=wanted.model, recipe=wanted.recipe,
        parent=wanted.parent, minutes=wanted.minutes, steps=wanted.steps, settings=wanted.settings,
        device=wanted.device, workers=workers, tensorboard=tensorboard, shard=shard, force=force,
        clock=wanted.clock,
    )  # fmt: skip


def look(wanted: Wanted, *, force: bool = False) -> Findings:
    """Print what `pretrain` finds before it trains with the same options, and stop.

    Nothing is written to the folder of the run, so that the run can start there afterwards. Raises
    what `pretrain` raises before its first step.
    """
    clock = wanted.clock or Clock()
    run, device = _resolved(wanted, force)
    store = TokenStore(run.store)
    settings, tokenizer = run.settings, store.tokenizer()
    torch.set_num_threads(run.threads)
    batches = PhasedBatches(store, tokenizer, settings.samples, settings.phases, settings.seed)
    network = network_of(run, tokenizer)
    room = check_room(run, network, batches.parts, wanted.out, device, force=force)
    model = start(run, tokenizer).to(device)
    objective = objective_of(model.config, seed=run.settings.seed)
    tell_plan(run, model, batches.parts[-1])
    with TemporaryDirectory() as elsewhere:
        plan, costs = plan_time(
            run, model, objective, tokenizer, store, RunFolder(Path(elsewhere)), clock.startup
        )
    spoken_for = clock.elapsed + costs.total(plan.measurements)
    parts = batches.parts
    findings = room + check(run, store, tokenizer, model, parts, objective, spoken_for=spoken_for)
    findings.tell()
    if not force:
        findings.stop(store.folder)
    say("dry run: nothing was trained, nothing was written")
    return findings


def _resolved(wanted: Wanted, force: bool) -> tuple[PretrainRun, torch.device]:
    """Return the run defined by the options, or the one that the folder holds already."""
    folder = RunFolder(wanted.out)
    folder.check_version()
    stored = folder.settings("pretrain")
    if wanted.store is None:
        if stored is None:
            raise ConfigError("no store to look at", remedy="name the folder made by prepare")
        run = PretrainRun.from_dict(stored, where=wanted.out / "run.json")
        return run, device_named(run.device)
    device = device_named(wanted.device)
    parent = None if wanted.parent is None else model_folder(wanted.parent)
    budget = Budget(steps=wanted.steps, minutes=wanted.minutes)
    model = wanted.model or ANY_SIZE
    settings = wanted.settings or default_settings(wanted.recipe, model, budget, parent)
    run = resolve(wanted.store, model, budget, settings, parent, device)
    # steps are tried below, and a damaged store would end them
    verify_store(TokenStore(run.store), folder.verified(), verifying_seconds(budget))
    named = wanted.model is not None or parent is not None
    return measured(run, folder, device, processes=1, sized=named, force=force), device
