"""The pre-flight check of pre-training alone: `pretrain --dry-run`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from bertsmith.batches.pretraining import PhasedBatches
from bertsmith.core.clock import Clock
from bertsmith.core.errors import ConfigError
from bertsmith.core.log import say
from bertsmith.objectives.pretraining import objective_of
from bertsmith.recipes.devices import device_named
from bertsmith.recipes.pretrain.config import PretrainConfig, PretrainRun
from bertsmith.recipes.pretrain.planning import plan_time
from bertsmith.recipes.pretrain.preflight import check, check_room
from bertsmith.recipes.pretrain.recipe import (
    is_sized,
    measured,
    network_of,
    requested,
    start,
    tell_plan,
    verifying_seconds,
)
from bertsmith.recipes.resources import Findings
from bertsmith.store.store import TokenStore, verify_store
from bertsmith.training.run_folder import RunFolder


def look(config: PretrainConfig, *, clock: Clock | None = None) -> Findings:
    """Print what `pretrain` finds before it trains with the same options, and stop.

    Nothing is written to the folder of the run, so that the run can start there afterwards. Raises
    what `pretrain` raises before its first step.
    """
    clock, force = clock or Clock(), config.force
    run, device = _resolved(config)
    store = TokenStore(run.store)
    settings, tokenizer = run.settings, store.tokenizer()
    torch.set_num_threads(run.threads)
    batches = PhasedBatches(store, tokenizer, settings.samples, settings.phases, settings.seed)
    network = network_of(run, tokenizer)
    room = check_room(run, network, batches.parts, config.out, device, force=force)
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


def _resolved(config: PretrainConfig) -> tuple[PretrainRun, torch.device]:
    """Return the run defined by the options, or the one that the folder holds already."""
    folder = RunFolder(config.out)
    folder.check_version()
    stored = folder.settings("pretrain")
    if config.store is None:
        if stored is None:
            raise ConfigError("no store to look at", remedy="name the folder made by prepare")
        run = PretrainRun.from_dict(stored, where=config.out / "run.json")
        return run, device_named(run.device)
    device = device_named(config.device)
    run = requested(config, device)
    # steps are tried below, and a damaged store would end them
    verify_store(TokenStore(run.store), folder.verified(), verifying_seconds(run.budget))
    sized = is_sized(config)
    return measured(run, folder, device, processes=1, sized=sized, force=config.force), device
