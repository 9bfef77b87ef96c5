"""Pre-training of a BERT on a token store.

bertsmith pretrain store --out run --model mini --minutes 60
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import torch

from bertsmith.batches.pretraining import PhasedBatches, PretrainingBatches
from bertsmith.core.clock import Clock
from bertsmith.core.errors import ConfigError, RunFolderError
from bertsmith.core.files import file_hash, write_json
from bertsmith.core.log import progress, say
from bertsmith.core.printable import counted
from bertsmith.core.signals import Interrupted
from bertsmith.hub.models import model_folder
from bertsmith.network.config import ModelConfig, encoder_of
from bertsmith.network.families.catalog import FAMILIES
from bertsmith.network.model import Model, build_model, start_positions_as_sinusoids
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.pretraining import objective_of
from bertsmith.recipes.devices import best_device, device_named
from bertsmith.recipes.pretrain.config import (
    WIRING,
    PretrainConfig,
    PretrainRun,
    PretrainSettings,
    Size,
    fit_config,
)
from bertsmith.recipes.pretrain.planning import SIZES, choose_size, plan_time
from bertsmith.recipes.pretrain.preflight import check, check_room
from bertsmith.recipes.pretrain.published import default_settings
from bertsmith.recipes.pretrain.report import (
    HeldOutPlan,
    describe,
    evaluate_held_out,
    measure_held_out,
    model_card,
    write_report,
)
from bertsmith.recipes.pretrain.speed import measure_threads
from bertsmith.recipes.pretrain.starting import (
    CONTEXTS,
    PLACES,
    check_parent,
    count_neighbours,
    identify,
    size_of,
    start_from_neighbours,
    start_from_parent,
    wanted_network,
)
from bertsmith.recipes.resources import Findings
from bertsmith.store.store import INDEX, TokenStore, verify_store
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.checkpoints import State
from bertsmith.training.config import Budget
from bertsmith.training.distribution import ALONE, World, joined
from bertsmith.training.loop import Session, fit
from bertsmith.training.replicas import complete, unshard
from bertsmith.training.run_folder import (
    PREFLIGHT,
    RunFolder,
    events,
    require_tensorboard,
    write_record,
)
from bertsmith.training.schedule import Costs, Timing
from bertsmith.training.threads import ThreadChoice, threads_are_set
from bertsmith.weights.folder import read_config, save_model

RESULT = "result.json"
TRYING, MOST_TRYING = 0.01, 1.0
"""Share of the minutes in which a number of threads is tried, and seconds at most."""
VERIFYING = 0.1
"""Share of the minutes after which no other file of the store is hashed."""


def begin(
    folder: RunFolder,
    device: str,
    wanted: Callable[[torch.device, int], PretrainRun | None],
    world: World,
    *,
    sized: bool,
    force: bool,
) -> PretrainRun:
    """Return the folder's run, started now if there was none; it must match the request.

    `wanted` returns the run of the request, whose size is still to be chosen unless it is `sized`.
    """
    out, stored = folder.path, folder.settings("pretrain")
    place = device_named((stored or {}).get("device", device) if device == "auto" else device)
    run = wanted(place, world.size)
    if run is None:
        if stored is None:
            raise RunFolderError(
                "holds no run to go on with", where=out, remedy="name a store to train on"
            )
        run = PretrainRun.from_dict(stored, where=out / "run.json")
    elif stored is not None:
        # a different number of threads or replicas would change rounding in the rest of the run,
        # and more batches per step would change the steps
        run = replace(
            run,
            threads=stored.get("threads", run.threads),
            replicas=stored.get("replicas", run.replicas),
            batches_per_step=stored.get("batches_per_step"),
        )
    check_store(run, out)
    if run.device != place.type:
        raise RunFolderError(
            f"was begun on {run.device}, and would go on otherwise on {place.type}",
            where=out,
            remedy=f"give --device {run.device}, or choose another --out",
        )
    world.share(run.batches_per_step or run.settings.gradient_accumulation)
    opened = TokenStore(run.store)
    verified = verify_store(opened, folder.verified(), verifying_seconds(run.budget))
    check_parent(run, opened)
    run = measured(run, folder, place, world.size, sized=sized, force=force)
    if folder.claim("pretrain", run):
        ended = (out / RESULT).exists()
        say(f"the run in {out} has ended" if ended else f"going on with the run in {out}")
    folder.note_verified(verified)
    return run


def verifying_seconds(budget: Budget) -> float | None:
    """Return the seconds after which no other file of the store is hashed; None for no limit."""
    return None if budget.minutes is None else VERIFYING * 60 * budget.minutes


def check_store(run: PretrainRun, out: Path) -> None:
    """Check that the store is the one the run was started with, on this machine too."""
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


# settings of a recipe are the same for all candidate sizes
ANY_SIZE = "small"


@dataclass(frozen=True, kw_only=True)
class PretrainOutcome:
    """The result of a finished run."""

    model: Model
    tokenizer: Tokenizer
    state: State
    held_out: dict[str, float]
    folder: Path


def pretrain(config: PretrainConfig, *, clock: Clock | None = None) -> PretrainOutcome:
    """Pre-train a BERT on a store, or resume the run in `out`.

    Without `model` the size is chosen by the text and the budget (size_choice.py). Without
    `settings` they are the recipe's. With `from_`, a model folder, the weights are initialised
    from its weights, whatever `model` and `recipe` are. Without `store` everything is taken from
    the run in `out`; with it, the settings must be those of that run, if there is one. Errors found
    by the pre-flight check stop a new run, unless `force` is given. The number of `workers` does
    not change the result, and may differ when a run is resumed. Minutes are those of the `clock`,
    from this call on by default. Under torchrun, all processes share each step, with `shard` also
    weights and optimiser. Raises `UserError` children, and `Interrupted` after Ctrl-C.
    """
    out, force, sized = config.out, config.force, config.store is None or is_sized(config)

    def wanted(place: torch.device, processes: int) -> PretrainRun | None:
        return None if config.store is None else requested(config, place, processes)

    clock, folder = clock or Clock(), RunFolder(out)
    if config.tensorboard:
        require_tensorboard()
    with joined(shard=config.shard) as world, folder.owned() if world.first else nullcontext():
        begun = world.told(
            lambda: begin(folder, config.device, wanted, world, sized=sized, force=force).to_dict()
        )
        run = PretrainRun.from_dict(begun, where=out / "run.json")
        check_store(run, out)
        place = world.place(device_named(run.device if config.device == "auto" else config.device))
        log = config.tensorboard and world.first
        with events(folder, out / "tensorboard") if log else nullcontext():
            return carry_out(
                run, TokenStore(run.store), folder, place, workers=config.workers, force=force,
                world=world, clock=clock,
            )  # fmt: skip


def is_sized(config: PretrainConfig) -> bool:
    """Return whether the size of a new run is given, rather than to be chosen."""
    return config.model is not None or config.from_ is not None


def requested(config: PretrainConfig, device: torch.device, processes: int = 1) -> PretrainRun:
    """Return the run that options with a store define, of any size if that is to be chosen."""
    assert config.store is not None
    budget = Budget(steps=config.steps, minutes=config.minutes)
    parent = None if config.from_ is None else model_folder(config.from_)
    model, recipe = config.model or ANY_SIZE, config.recipe or "quick"
    settings = config.settings or default_settings(recipe, model, budget, parent)
    return resolve(config.store, model, budget, settings, parent, device, processes)


def measured(
    run: PretrainRun,
    folder: RunFolder,
    device: torch.device,
    processes: int,
    *,
    sized: bool,
    force: bool,
) -> PretrainRun:
    """Return the run with what is measured when it begins: its threads, unless `sized` its size.

    Those that were chosen when the run in the folder began hold. Steps are tried, so the store has
    to be verified; a network without room here is refused before it is tried, unless `force`.
    """
    known = folder.settings("pretrain")
    if known is not None:
        model = run.model if sized else str(known.get("model", run.model))
        threads, replicas = known.get("threads", run.threads), known.get("replicas", run.replicas)
        return replace(run, model=model, threads=threads, replicas=replicas)
    store, most = TokenStore(run.store), run.threads
    tokenizer = store.tokenizer()
    alone = device.type == "cpu" and processes == 1 and most > 1
    free = alone and not threads_are_set()

    def fastest(model: str) -> ThreadChoice:
        if not free:
            return ThreadChoice(threads=most)
        network = network_of(replace(run, model=model), tokenizer)
        minutes, samples = run.budget.minutes, run.settings.samples
        batches = PretrainingBatches(store, tokenizer, samples, run.settings.seed)
        check_room(run, network, [batches], folder.path, device, force=force)
        return measure_threads(
            build_model(network, seed=run.settings.seed),
            batches,
            objective_of(network, seed=run.settings.seed),
            run.settings.optimiser,
            run.settings.precision,
            most=most,
            seconds=MOST_TRYING if minutes is None else min(MOST_TRYING, 60 * minutes * TRYING),
            budget=run.budget,
        )

    if not sized:
        smallest = fastest(SIZES[0])
        torch.set_num_threads(smallest.threads)
        choice = choose_size(
            store,
            run.budget,
            run.settings,
            lambda size: network_of(replace(run, model=size), tokenizer),
            device,
            processes,
            smallest.replicas,
        )
        say(choice.reason)
        run = replace(run, model=choice.size)
    chosen = fastest(run.model)
    if chosen.reason:
        say(chosen.reason)
    return replace(run, threads=chosen.threads, replicas=chosen.replicas)


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
    return PretrainRun(
        store=store.resolve(),
        store_hash=store_hash(store),
        model=model if parent is None else size_of(parent),
        budget=budget,
        threads=torch.get_num_threads(),
        device=(device or best_device()).type,
        settings=settings,
        batches_per_step=processes * settings.gradient_accumulation,
        parent=None if parent is None else identify(parent),
    )


def carry_out(
    run: PretrainRun,
    store: TokenStore,
    folder: RunFolder,
    device: torch.device,
    *,
    workers: int = 0,
    force: bool = False,
    world: World = ALONE,
    clock: Clock | None = None,
) -> PretrainOutcome:
    """Train, evaluate on the held-out documents, save the model folder and the report."""
    clock, settings, tokenizer = clock or Clock(), run.settings, store.tokenizer()
    torch.set_num_threads(run.threads)
    batches = PhasedBatches(store, tokenizer, settings.samples, settings.phases, settings.seed)
    wanted, checks = network_of(run, tokenizer), world.first and not folder.checkpoints.exists()
    if checks:
        room = check_room(run, wanted, batches.parts, folder.path, device, force=force)
    goes_on = world.told(lambda: any(folder.checkpoints.glob("step-*")))
    model = start(run, tokenizer, goes_on=goes_on).to(device)
    objective = objective_of(wanted, seed=settings.seed)
    begun = _Begun(run, store, tokenizer, folder, model, objective, batches)
    tell_plan(run, model, batches.parts[-1])
    plan, costs = _told_time(
        world, lambda: plan_time(run, model, objective, tokenizer, store, folder, clock.startup)
    )
    if checks:
        _check(begun, room, clock.elapsed + costs.total(plan.measurements), force=force)
    world.wait_for_first()
    timing = Timing(clock=clock, costs=costs)
    state = _fit(begun, plan, timing, workers=workers, world=world)
    begun = replace(begun, model=complete(model, world))
    unshard(objective.own)
    held_out = world.told(lambda: _finish(begun, state, clock, plan.evaluated_tokens))
    return PretrainOutcome(
        model=begun.model, tokenizer=tokenizer, state=state, held_out=held_out, folder=folder.path
    )


@dataclass(frozen=True)
class _Begun:
    """A run that has begun, with all that trains in it."""

    run: PretrainRun
    store: TokenStore
    tokenizer: Tokenizer
    folder: RunFolder
    model: Model
    objective: Objective
    batches: PhasedBatches


def _check(begun: _Begun, room: Findings, spoken_for: float, *, force: bool) -> None:
    """Print and keep the findings of the pre-flight check; some end the run unless `force`."""
    run, parts = begun.run, begun.batches.parts
    found = room + check(
        run, begun.store, begun.tokenizer, begun.model, parts, begun.objective,
        spoken_for=spoken_for,
    )  # fmt: skip
    found.tell()
    if not force:
        found.stop(begun.store.folder)
    write_record(begun.folder.path / PREFLIGHT, found.to_dict())


def _fit(begun: _Begun, plan: HeldOutPlan, timing: Timing, *, workers: int, world: World) -> State:
    """Train until the budget is spent; `Interrupted` says how to go on."""
    run, folder, settings = begun.run, begun.folder, begun.run.settings
    measure = measure_held_out(
        begun.objective, begun.tokenizer, begun.store, settings.samples, settings.precision,
        plan.measured_tokens,
    )  # fmt: skip
    try:
        return fit(
            replace(fit_config(run, workers=workers), measurements=plan.measurements),
            begun.model,
            begun.objective,
            begun.batches,
            enter=begun.batches.enter,
            measure=measure,
            folder=folder,
            session=Session(title="pre-training", world=world, timing=timing),
        )
    except Interrupted as stopped:
        program = "bertsmith" if world.size == 1 else "torchrun ... -m bertsmith"
        command = f"{program} pretrain --out {shlex.quote(str(folder.path))}"
        raise Interrupted(f"{stopped}, saved; go on with: {command}") from None


def _told_time(
    world: World, plan: Callable[[], tuple[HeldOutPlan, Costs]]
) -> tuple[HeldOutPlan, Costs]:
    """Return what rank 0 plans, on every rank."""
    held_out, costs = world.told(lambda: [each.to_dict() for each in plan()])
    return HeldOutPlan.from_dict(held_out), Costs.from_dict(costs)


def _finish(begun: _Begun, state: State, clock: Clock, tokens: int) -> dict[str, float]:
    """Evaluate a trained model on held-out `tokens` and save it; returns the figures."""
    run, model, folder = begun.run, begun.model, begun.folder
    held_out = evaluate_held_out(
        model, begun.objective, begun.tokenizer, begun.store, run.settings.samples, tokens
    )
    say(describe(state, held_out))
    write_json(folder.path / RESULT, {"state": state.to_dict(), "held_out": held_out})
    card = model_card(run, model.config, begun.store.index, state, held_out)
    model.cpu()
    model.config = _for_users(run, model.config)
    with progress("saving model and report", 2) as bar:
        save_model(folder.model, model, begun.tokenizer, card=card)
        bar.advance()
        write_report(folder, run, held_out)
    say(f"model: {folder.model}   report: {folder.report}")
    say(f"{clock.elapsed / 60:.2f} minutes in all, {state.seconds / 60:.2f} of them in steps")
    return held_out


def network_of(run: PretrainRun, tokenizer: Tokenizer) -> ModelConfig:
    """Return the config of the network that the run trains."""
    network, samples = run.settings.network, run.settings.samples
    if samples.max_length > network.max_positions:
        raise ConfigError(
            f"--max-length ({samples.max_length}) exceeds --max-positions ({network.max_positions})"
        )
    if run.parent is not None:
        return wanted_network(run.parent, run.settings)
    family = FAMILIES[network.family]
    if run.model not in family.sizes:
        sizes = ", ".join(size for size in get_args(Size) if size in family.sizes)
        what = f"--model is {run.model}, and no {family.title} has this size"
        raise ConfigError(what, remedy=f"choose from {sizes}, or another --family")
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
    pairs = samples.pairs
    head: dict[str, Any] = {"replaced_tokens" if samples.replaced_tokens else "masked_lm": True}
    return ModelConfig(encoder=encoder, pooler=pairs, next_sentence=pairs, **head)


def start(run: PretrainRun, tokenizer: Tokenizer, *, goes_on: bool = False) -> Model:
    """Return the network before its first step, a pure function of the run.

    If the run `goes_on` from a checkpoint, nothing is counted for weights that are replaced.
    """
    config, network = network_of(run, tokenizer), run.settings.network
    if run.parent is not None:
        return start_from_parent(run.parent, run.settings)
    model = build_model(config, seed=run.settings.seed)
    if goes_on:
        return model
    if network.initialisation == "neighbours":
        with progress("counting which tokens stand together", None):
            counts = count_neighbours(TokenStore(run.store), tokenizer.size, CONTEXTS, PLACES)
            start_from_neighbours(model, counts, mask_id=tokenizer.mask_id, seed=run.settings.seed)
    elif network.position_initialisation == "sinusoidal":
        start_positions_as_sinusoids(model, network.position_scale)
    return model


def _for_users(run: PretrainRun, config: ModelConfig) -> ModelConfig:
    """Return the config to save, with the default dropout for fine-tuning."""
    dropout = attention_dropout = FAMILIES[config.encoder.family].dropout
    if run.parent is not None:
        own = read_config(run.parent.folder).encoder
        dropout, attention_dropout = own.dropout, own.attention_dropout
    encoder = replace(config.encoder, dropout=dropout, attention_dropout=attention_dropout)
    return replace(config, encoder=encoder)


def tell_plan(run: PretrainRun, model: Model, batches: PretrainingBatches) -> None:
    """Print what is trained, for how long, and on how many sequences."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    budget = run.budget
    if budget.minutes:
        how_long = counted(budget.minutes, "minute")
    else:
        how_long = counted(budget.steps or 0, "step")
    kind = run.settings.network.family.upper()
    say(
        f"{kind} {run.model}, {parameters / 1e6:.1f} M parameters, {how_long} on {run.device}; "
        f"{batches.sequences:,} sequences of at most {run.settings.samples.max_length} tokens an "
        "epoch"
    )
