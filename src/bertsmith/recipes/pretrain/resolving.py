"""The run that options define, and what is chosen when it begins: size, threads, replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import torch

from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.core.config import Config
from bertsmith.core.errors import ConfigError, RunFolderError
from bertsmith.core.files import file_hash
from bertsmith.core.log import say
from bertsmith.core.processors import threads_are_set
from bertsmith.engine.devices import best_device, device_named, training_precision
from bertsmith.hub.models import model_folder
from bertsmith.network.config import ModelConfig, encoder_of
from bertsmith.network.families.catalog import FAMILIES
from bertsmith.network.families.family import OTHER_SIZES
from bertsmith.network.model import build_model
from bertsmith.objectives.pretraining import objective_of
from bertsmith.recipes.pretrain.config import (
    WIRING,
    PretrainConfig,
    PretrainRun,
    PretrainSettings,
    Size,
    fit_config,
)
from bertsmith.recipes.pretrain.planning import SIZES, choose_size
from bertsmith.recipes.pretrain.preflight import check_resources
from bertsmith.recipes.pretrain.published import default_settings
from bertsmith.recipes.pretrain.speed import TrainedCopy, measure_threads
from bertsmith.recipes.pretrain.starting import (
    check_neighbour_start,
    check_parent,
    continued_config,
    identify,
    size_of,
)
from bertsmith.store.store import INDEX, Seen, TokenStore, verify_store
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.checkpoints import has_checkpoint
from bertsmith.training.config import Budget, Parallelism
from bertsmith.training.distribution import World
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.threads import ThreadChoice

TRYING, MAX_TRIAL_SECONDS = 0.01, 1.0
"""Share of the minutes in which a number of threads is tried, and seconds at most."""
VERIFYING = 0.1
"""Share of the minutes after which no other file of the store is hashed."""
RESULT = "result.json"
# a size is chosen among those for which a recipe has the settings of this one
ANY_SIZE = "small"


def begin(
    folder: RunFolder, config: PretrainConfig, world: World, *, dry: bool = False
) -> PretrainRun:
    """Return the folder's run, started now if there was none; it must match the options.

    Nothing is written if it is `dry`.
    """
    out, stored = folder.path, folder.settings("pretrain")
    chosen = config.device
    if chosen == "auto" and stored is not None:
        chosen = stored.get("device", chosen)
    device = device_named(chosen)
    if config.store is None:
        if stored is None:
            raise RunFolderError(
                "holds no run to resume", where=out, remedy="name a store to train on"
            )
        run = PretrainRun.from_dict(stored, where=out / "run.json")
    else:
        run = run_of_options(config, device, world.size)
        if stored is not None:
            # a different number of threads or replicas, or another precision, would change rounding
            # in the rest of the run, and more batches per step would change the steps
            run = replace(
                run,
                precision=stored.get("precision", run.precision),
                threads=stored.get("threads", run.threads),
                replicas=stored.get("replicas", run.replicas),
                alternative=_stored_alternative(stored),
                batches_per_step=stored.get("batches_per_step"),
            )
    check_store(run, out)
    if run.device != device.type:
        raise RunFolderError(
            f"was begun on {run.device}, and would give other results on {device.type}",
            where=out,
            remedy=f"give --device {run.device}, or choose another --out",
        )
    # settings of the loop are refused now, not when all checks have been made
    fit_config(run, workers=config.workers)
    world.share(run.batches_per_step or run.settings.gradient_accumulation)
    store = TokenStore(run.store)
    verified = verify_for(run.budget, store, folder)
    check_parent(run, store)
    sized = config.store is None or config.model is not None or config.from_ is not None
    sizes = () if sized else sizes_alike(config.recipe or "quick")
    run = with_measured_choices(run, folder, device, world.size, sizes=sizes, force=config.force)
    if dry:
        folder.check_claim("pretrain", run)
        _check_not_ended(folder)
        return run
    claim_folder(folder, "pretrain", run, verified)
    return run


def _stored_alternative(stored: Mapping[str, Any]) -> Parallelism | None:
    """Return the alternative parallelism of a run in a folder."""
    alternative = stored.get("alternative")
    return None if alternative is None else Parallelism.from_dict(alternative)


def verify_for(budget: Budget, store: TokenStore, folder: RunFolder) -> Seen:
    """Check the hashes of a store's files but for those that a run has checked before.

    Of a budget of minutes a tenth is spent on it, at most. Raises `StoreError`.
    """
    seconds = None if budget.minutes is None else VERIFYING * 60 * budget.minutes
    return verify_store(store, folder.verified(), seconds)


def claim_folder(folder: RunFolder, kind: str, run: Config, verified: Seen) -> None:
    """Claim a folder for a run on a store, and print whether it is resumed or has ended.

    Raises `RunFolderError` for one that has ended and lost its checkpoints.
    """
    if folder.claim(kind, run):
        _check_not_ended(folder)
        where = f"the run in {folder.path}"
        say(f"{where} has ended" if folder.model.exists() else f"resuming {where}")
    folder.record_verified(verified)


def _check_not_ended(folder: RunFolder) -> None:
    """Raise `RunFolderError` where training anew would replace the model of a run that ended."""
    if folder.model.exists() and not has_checkpoint(folder):
        raise RunFolderError(
            "its run has ended, and its checkpoints are gone",
            where=folder.path,
            remedy="use the model in it, or choose another --out",
        )


def check_store(run: PretrainRun, out: Path) -> None:
    """Check that the store is the one the run was started with, on this machine too."""
    if not run.store.exists():
        raise RunFolderError(
            f"was begun with the store in {run.store}, which is not there any more",
            where=out,
            remedy="if it was moved, give the command that began the run, with its place now",
        )
    TokenStore(run.store)
    if run.store_hash != store_hash(run.store):
        raise RunFolderError(
            f"was begun with another store than the one in {run.store} now",
            where=out,
            remedy="choose another --out",
        )


def store_hash(store: Path) -> str:
    """Return the SHA-256 of a store's index, which includes the hash of every file."""
    return file_hash(store / INDEX)


def run_of_options(config: PretrainConfig, device: torch.device, processes: int = 1) -> PretrainRun:
    """Return the run that options with a store define, of any size if that is to be chosen."""
    assert config.store is not None
    budget = Budget(steps=config.steps, minutes=config.minutes)
    parent = None if config.from_ is None else model_folder(config.from_)
    model, recipe = config.model or ANY_SIZE, config.recipe or "quick"
    settings = config.settings or default_settings(recipe, model, parent)
    return resolve(config.store, model, budget, settings, parent, device, processes)


def sizes_alike(recipe: str) -> tuple[str, ...]:
    """Return the sizes, in growing order, for which a recipe has the same settings."""
    usual = default_settings(recipe, ANY_SIZE)
    return tuple(size for size in SIZES if default_settings(recipe, size) == usual)


def with_measured_choices(
    run: PretrainRun,
    folder: RunFolder,
    device: torch.device,
    processes: int,
    *,
    sizes: Sequence[str],
    force: bool,
) -> PretrainRun:
    """Return the run with what is measured when it begins: its threads, and one of `sizes`.

    Without `sizes` its size is given. A run that is in the folder keeps what it began with. Steps
    are tried, so the store has to be verified, and a network without room here is refused before
    it is tried, unless `force`.
    """
    stored = folder.settings("pretrain")
    if stored is not None:
        # its threads are the stored ones already
        return replace(run, model=str(stored.get("model", run.model))) if sizes else run
    store, settings, max_threads = TokenStore(run.store), run.settings, run.threads
    tokenizer = store.tokenizer()
    is_local = device.type == "cpu" and processes == 1 and max_threads > 1

    def fastest(size: str) -> ThreadChoice:
        if not is_local or threads_are_set():
            return ThreadChoice(threads=max_threads)
        network = network_of(replace(run, model=size), tokenizer)
        batches = PretrainingBatches(store, tokenizer, settings.samples, settings.seed)
        check_resources(run, network, [batches], folder.path, device, force=force)
        model = build_model(network, seed=settings.seed)
        objective = objective_of(network, seed=settings.seed)
        return measure_threads(
            TrainedCopy(model, objective, settings.optimiser, run.precision),
            batches,
            max_threads=max_threads,
            seconds=_trial_seconds(run.budget),
            budget=run.budget,
        )

    if sizes:
        smallest = fastest(sizes[0])
        torch.set_num_threads(smallest.threads)
        choice = choose_size(
            run, store, lambda size: network_of(replace(run, model=size), tokenizer), device,
            sizes=sizes, processes=processes, replicas=smallest.replicas,
        )  # fmt: skip
        say(choice.reason)
        run = replace(run, model=choice.size)
    chosen = fastest(run.model)
    if chosen.reason:
        say(chosen.reason)
    return replace(
        run,
        threads=chosen.threads,
        replicas=chosen.replicas,
        alternative=chosen.alternative,
    )


def _trial_seconds(budget: Budget) -> float:
    """Return the seconds in which steps are tried, fewer of a budget of few minutes."""
    if budget.minutes is None:
        return MAX_TRIAL_SECONDS
    return min(MAX_TRIAL_SECONDS, 60 * budget.minutes * TRYING)


def resolve(
    store: Path,
    model: str,
    budget: Budget,
    settings: PretrainSettings,
    parent: Path | None = None,
    device: torch.device | None = None,
    processes: int = 1,
) -> PretrainRun:
    """Return a run with everything that determines its result."""
    TokenStore(store)
    device = device or best_device()
    return PretrainRun(
        store=store.resolve(),
        store_hash=store_hash(store),
        model=model if parent is None else size_of(parent),
        budget=budget,
        threads=torch.get_num_threads(),
        device=device.type,
        precision=training_precision(settings.precision, device),
        settings=settings,
        batches_per_step=processes * settings.gradient_accumulation,
        parent=None if parent is None else identify(parent),
    )


def network_of(run: PretrainRun, tokenizer: Tokenizer) -> ModelConfig:
    """Return the config of the network that the run trains."""
    network, samples = run.settings.network, run.settings.samples
    if samples.max_length > network.max_positions:
        longer = "" if run.parent else f", or give --max-positions {samples.max_length}"
        raise ConfigError(
            f"--max-length ({samples.max_length}) exceeds --max-positions ({network.max_positions})"
            + (", which the model in --from decides" if run.parent else ""),
            remedy=f"lower --max-length{longer}",
        )
    if run.parent is not None:
        return continued_config(run.parent, run.settings)
    family = FAMILIES[network.family]
    if family.size(run.model) is None:
        sizes = ", ".join(size for size in get_args(Size) if size in family.sizes)
        problem = f"--model is {run.model}, and no {family.title} has this size"
        remedy = f"choose from {sizes}, or {OTHER_SIZES}, or another --family"
        raise ConfigError(problem, remedy=remedy)
    if network.position_initialisation == "parent":
        raise ConfigError("--position-initialisation is parent", remedy="name a model with --from")
    chosen = {name: getattr(network, name) for name in WIRING}
    wiring = {name: value for name, value in chosen.items() if value is not None}
    if "position_offset" in family.wiring:
        # counted as in transformers
        wiring["position_offset"] = tokenizer.pad_id + 1
    encoder = encoder_of(
        network.family,
        run.model,
        tokenizer.size,
        longest=network.max_positions,
        causal=samples.left_to_right,
        activation=network.activation,
        dropout=network.hidden_dropout,
        attention_dropout=network.attention_dropout,
        **wiring,
    )
    if network.initialisation == "neighbours":
        check_neighbour_start(encoder)
    pairs = samples.pairs
    head: dict[str, Any] = {"replaced_tokens" if samples.replaced_tokens else "masked_lm": True}
    return ModelConfig(encoder=encoder, pooler=pairs, next_sentence=pairs, **head)
