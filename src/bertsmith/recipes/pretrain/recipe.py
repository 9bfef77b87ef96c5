"""Pre-training of a BERT on a token store, or its checks alone (`pretrain --dry-run`).

bertsmith pretrain store --out run --model mini --minutes 60
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from bertsmith.batches.pretraining import PhasedBatches, PretrainingBatches
from bertsmith.core.clock import Clock
from bertsmith.core.errors import ConfigError, RunFolderError
from bertsmith.core.files import write_json
from bertsmith.core.log import progress, say
from bertsmith.core.printable import counted, shell_word
from bertsmith.core.signals import Interrupted
from bertsmith.engine.devices import device_named
from bertsmith.network.config import ModelConfig
from bertsmith.network.families.catalog import FAMILIES
from bertsmith.network.model import Model, build_model, start_positions_as_sinusoids
from bertsmith.network.torch_state import threads_of_torch
from bertsmith.objectives.pretraining import objective_of
from bertsmith.recipes.pretrain.config import PretrainConfig, PretrainRun, fit_config
from bertsmith.recipes.pretrain.planning import plan_time
from bertsmith.recipes.pretrain.preflight import OpenedRun, PreparedRun, check, check_resources
from bertsmith.recipes.pretrain.report import (
    HeldOutPlan,
    describe,
    evaluate_held_out,
    measure_held_out,
    model_card,
    write_report,
)
from bertsmith.recipes.pretrain.resolving import RESULT, begin, check_store, network_of
from bertsmith.recipes.pretrain.starting import (
    CONTEXTS,
    DISTANCES,
    count_neighbours,
    start_from_neighbours,
    start_from_parent,
)
from bertsmith.recipes.resources import Findings
from bertsmith.store.store import TokenStore
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.checkpoints import State, has_checkpoint
from bertsmith.training.distribution import ALONE, World, join_world
from bertsmith.training.loop import Session, fit
from bertsmith.training.replicas import gather_model, unshard
from bertsmith.training.run_folder import (
    PREFLIGHT,
    RunFolder,
    read_record,
    require_tensorboard,
    tensorboard_events,
    write_record,
)
from bertsmith.training.schedule import Costs, Timing
from bertsmith.weights.folder import read_config, save_model


@dataclass(frozen=True, kw_only=True)
class PretrainOutcome:
    """The result of a finished run; `network` is what is saved in the folder `model`."""

    network: Model
    tokenizer: Tokenizer
    state: State
    held_out: dict[str, float]
    folder: Path

    @property
    def model(self) -> Path:
        """The folder of the model."""
        return RunFolder(self.folder).model

    def __repr__(self) -> str:
        return f"<PretrainOutcome {str(self.folder)!r}: {describe(self.state, self.held_out)}>"


def pretrain(
    config: PretrainConfig, *, clock: Clock | None = None, say_next: bool = True
) -> PretrainOutcome:
    """Pre-train a BERT on a store, or resume the run in `out`.

    Without `model` the size is chosen by the text and the budget (planning.py). Without
    `settings` they are the recipe's. With `from_`, a model folder, the weights are initialised
    from its weights, whatever `model` and `recipe` are. Without `store` everything is taken from
    the run in `out`; with it, the settings must be those of that run, if there is one. Errors found
    by the pre-flight check stop a new run, unless `force` is given. The number of `workers` does
    not change the result, and may differ when a run is resumed. Minutes are those of the `clock`,
    from this call on by default. Under torchrun, all processes share each step, with `shard` also
    weights and optimiser. `say_next` ends with the command that usually follows. Raises `UserError`
    children, and `Interrupted` after Ctrl-C.
    """
    clock, out, folder = clock or Clock(), config.out, RunFolder(config.out)
    if config.tensorboard:
        require_tensorboard(config.out)
    # of a program, which goes on afterwards with the threads that it had
    with (
        threads_of_torch(None),
        join_world(shard=config.shard) as world,
        folder.owned() if world.first else nullcontext(),
    ):
        prepared = world.broadcast(lambda: begin(folder, config, world).to_dict())
        run = PretrainRun.from_dict(prepared, where=out / "run.json")
        check_store(run, out)
        _check_shared(folder, world)
        device = world.place(device_named(run.device if config.device == "auto" else config.device))
        log = config.tensorboard and world.first
        with tensorboard_events(folder, out / "tensorboard") if log else nullcontext():
            outcome = run_training(
                config, run, TokenStore(run.store), folder, device, world=world, clock=clock
            )
        if say_next and world.first:
            say(f"next: bertsmith finetune {shell_word(outcome.model)} TRAIN --out RUN")
        return outcome


def _check_shared(folder: RunFolder, world: World) -> None:
    """Raise `RunFolderError` on a rank that is to write shards and does not see rank 0's folder."""
    identity = world.broadcast(lambda: folder.identity)
    if world.shard and folder.identity != identity:
        raise RunFolderError(
            f"rank {world.rank} does not find the run of rank 0 there",
            where=folder.path,
            remedy="let all machines share the disk of the run's folder, under the same --out",
        )


def run_training(
    config: PretrainConfig,
    run: PretrainRun,
    store: TokenStore,
    folder: RunFolder,
    device: torch.device,
    *,
    world: World,
    clock: Clock,
) -> PretrainOutcome:
    """Train, evaluate on the held-out documents, save the model folder and the report."""
    opened, again = _open(run, store, folder), _command_to_resume(config, world)
    resumes = world.broadcast(lambda: has_checkpoint(folder))
    checks = world.first and not resumes
    if checks:
        force = config.force or _was_forced(folder)
        resources = check_resources(
            run, opened.network, opened.batches.parts, folder.path, device, force=force,
            processes=world.local_size,
        )  # fmt: skip
    prepared = _prepare(opened, device, resumes=resumes)
    plan, costs = _broadcast_plan(world, lambda: _plan_time(prepared, folder, clock))
    if checks:
        reserved_seconds = clock.elapsed + costs.total(plan.measurements)
        _check(prepared, resources, reserved_seconds, processes=world.size, force=force)
    world.wait_for_first()
    timing = Timing(clock=clock, costs=costs)
    try:
        state = _fit(prepared, plan, timing, workers=config.workers, world=world)
    except Interrupted as stopped:
        raise Interrupted(f"{stopped}, saved; to resume: {again}") from None
    with _trained(state, again):
        prepared = replace(prepared, model=gather_model(prepared.model, world))
        unshard(prepared.objective.own)
        figures = world.broadcast(lambda: _finish(prepared, state, clock, plan.evaluated_tokens))
    return PretrainOutcome(
        network=prepared.model,
        tokenizer=prepared.tokenizer,
        state=state,
        held_out=figures,
        folder=folder.path,
    )


def _open(run: PretrainRun, store: TokenStore, folder: RunFolder) -> OpenedRun:
    """Open all that a run reads, and set the threads that it computes with."""
    torch.set_num_threads(run.threads)
    settings, tokenizer = run.settings, store.tokenizer()
    return OpenedRun(
        run=run,
        folder=folder,
        store=store,
        tokenizer=tokenizer,
        batches=PhasedBatches(store, tokenizer, settings.samples, settings.phases, settings.seed),
        network=network_of(run, tokenizer),
    )


def _prepare(opened: OpenedRun, device: torch.device, *, resumes: bool = False) -> PreparedRun:
    """Make what trains in a run, and print what it is."""
    run = opened.run
    model = start(run, opened.tokenizer, resumes=resumes).to(device)
    objective = objective_of(opened.network, seed=run.settings.seed)
    print_plan(run, model, opened.batches.parts[-1])
    return PreparedRun(**vars(opened), model=model, objective=objective)


def _plan_time(prepared: PreparedRun, folder: RunFolder, clock: Clock) -> tuple[HeldOutPlan, Costs]:
    """Return the plan for held-out text, which is kept in a folder, and what it costs."""
    run = prepared.run
    # for a number of steps nothing is measured
    held_out = None if run.budget.minutes is None else prepared.held_out
    return plan_time(run, prepared.model, prepared.objective, held_out, folder, clock.startup)


def _check(
    prepared: PreparedRun,
    resources: Findings,
    reserved_seconds: float,
    *,
    processes: int,
    force: bool,
) -> None:
    """Print and keep the findings of the pre-flight check; some end the run unless `force`."""
    findings = resources + check(prepared, processes=processes, reserved_seconds=reserved_seconds)
    findings.print()
    if not force:
        findings.raise_if_stopped(prepared.store.folder)
    write_record(prepared.folder.path / PREFLIGHT, findings.to_dict())


def _was_forced(folder: RunFolder) -> bool:
    """Return whether a run without checkpoints was begun in spite of what its check had found."""
    path = folder.path / PREFLIGHT
    return path.exists() and any(
        finding["verdict"] == "stop" for finding in read_record(path)["findings"]
    )


def _fit(
    prepared: PreparedRun, plan: HeldOutPlan, timing: Timing, *, workers: int | None, world: World
) -> State:
    """Train until the budget is spent."""
    run = prepared.run
    measure = measure_held_out(
        prepared.objective, prepared.held_out, run.precision, plan.measured_tokens
    )
    return fit(
        replace(fit_config(run, workers=workers), measurements=plan.measurements),
        prepared.model,
        prepared.objective,
        prepared.batches,
        enter=prepared.batches.enter,
        measure=measure,
        folder=prepared.folder,
        session=Session(title="pre-training", world=world, timing=timing),
    )


def _command_to_resume(config: PretrainConfig, world: World) -> str:
    """Return the command that resumes a run, with the options that its folder does not keep."""
    program = "bertsmith" if world.size == 1 else "torchrun ... -m bertsmith"
    options = {
        # the folder has the type of the device, not which of several it was
        f"--device {config.device}": ":" in config.device,
        f"--workers {config.workers}": config.workers is not None,
        "--tensorboard": config.tensorboard,
        "--shard": config.shard,
    }
    given = [option for option, is_given in options.items() if is_given]
    return " ".join([program, "pretrain --out", shell_word(config.out), *given])


@contextmanager
def _trained(state: State, again: str) -> Iterator[None]:
    """Say, when what follows the last step is interrupted, how to get the model."""
    try:
        yield
    except KeyboardInterrupt:
        # no `Interrupted`, for which all ranks stop together
        raise KeyboardInterrupt(
            f"stopped after step {state.step}, the last, which is saved; for the model: {again}"
        ) from None


def _broadcast_plan(
    world: World, plan: Callable[[], tuple[HeldOutPlan, Costs]]
) -> tuple[HeldOutPlan, Costs]:
    """Return the plan of rank 0, on every rank."""
    held_out, costs = world.broadcast(lambda: [item.to_dict() for item in plan()])
    return HeldOutPlan.from_dict(held_out), Costs.from_dict(costs)


def _finish(prepared: PreparedRun, state: State, clock: Clock, tokens: int) -> dict[str, float]:
    """Evaluate a trained model on held-out `tokens` and save it; returns the figures."""
    run, model, folder = prepared.run, prepared.model, prepared.folder
    held_out = evaluate_held_out(model, prepared.objective, prepared.held_out, tokens)
    say(describe(state, held_out))
    write_json(folder.path / RESULT, {"state": state.to_dict(), "held_out": held_out})
    changes = folder.parallelism_changes()
    card = model_card(run, model.config, prepared.store.index, state, held_out, changes=changes)
    model.cpu()
    model.config = _config_to_save(run, model.config)
    with progress("saving model and report", 2) as bar:
        save_model(folder.model, model, prepared.tokenizer, card=card)
        bar.advance()
        write_report(folder, run, held_out)
    say(f"model: {folder.model}   report: {folder.report}")
    say(f"{clock.elapsed / 60:.2f} minutes in all, {state.seconds / 60:.2f} of them in steps")
    return held_out


def start(run: PretrainRun, tokenizer: Tokenizer, *, resumes: bool = False) -> Model:
    """Return the network before its first step, a pure function of the run.

    If the run `resumes` from a checkpoint, nothing is counted for weights that are replaced.
    """
    config, network = network_of(run, tokenizer), run.settings.network
    if run.parent is not None:
        return start_from_parent(run.parent, run.settings)
    model = build_model(config, seed=run.settings.seed)
    if resumes:
        return model
    if network.initialisation == "neighbours":
        with progress("counting neighbouring tokens", None):
            counts = count_neighbours(TokenStore(run.store), tokenizer.size, CONTEXTS, DISTANCES)
            start_from_neighbours(model, counts, mask_id=tokenizer.mask_id, seed=run.settings.seed)
    elif network.position_initialisation == "sinusoidal":
        start_positions_as_sinusoids(model, network.position_scale)
    return model


def _config_to_save(run: PretrainRun, config: ModelConfig) -> ModelConfig:
    """Return the config to save, with the default dropout for fine-tuning."""
    dropout = attention_dropout = FAMILIES[config.encoder.family].dropout
    longest = run.settings.samples.max_length
    if run.parent is not None:
        parent = read_config(run.parent.folder)
        dropout, attention_dropout = parent.encoder.dropout, parent.encoder.attention_dropout
        longest = max(longest, parent.pretrained_length or parent.encoder.longest)
    encoder = replace(config.encoder, dropout=dropout, attention_dropout=attention_dropout)
    return replace(config, encoder=encoder).pretrained_on(longest)


def print_plan(run: PretrainRun, model: Model, batches: PretrainingBatches) -> None:
    """Print the model, the budget and the number of sequences."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    budget = run.budget
    if budget.minutes:
        how_long = counted(budget.minutes, "minute")
    else:
        how_long = counted(budget.steps or 0, "step")
    kind = run.settings.network.family.upper()
    say(
        f"{kind} {run.model}, {parameters / 1e6:.1f} M parameters, {how_long} on {run.device}; "
        f"{counted(batches.sequences, 'sequence')} of at most {run.settings.samples.max_length} "
        "tokens an epoch"
    )
    if run.parent is not None and not run.settings.samples.left_to_right:
        masking = run.settings.samples.masking
        say(
            f"masking: {100 * masking.probability:g} % of the tokens, of these "
            f"{100 * masking.as_mask:g} % by [MASK], {100 * masking.as_random:g} % by random tokens"
        )


@threads_of_torch(None)
def dry_run(config: PretrainConfig, *, clock: Clock | None = None) -> Findings:
    """Print what `pretrain` finds before it trains with the same options, and stop.

    Nothing is written to the folder of the run, so that the run can start there afterwards. Raises
    what `pretrain` raises before its first step.
    """
    clock, force = clock or Clock(), config.force
    if config.tensorboard:
        require_tensorboard(config.out)
    folder = RunFolder(config.out)
    folder.check_place()
    if config.store is None and folder.settings("pretrain") is None:
        raise ConfigError("no store to check", remedy="name the folder made by prepare")
    run = begin(folder, config, ALONE, dry=True)
    device = device_named(run.device if config.device == "auto" else config.device)
    opened = _open(run, TokenStore(run.store), folder)
    resources = check_resources(
        run, opened.network, opened.batches.parts, config.out, device, force=force
    )
    prepared = _prepare(opened, device)
    with TemporaryDirectory() as elsewhere:
        plan, costs = _plan_time(prepared, RunFolder(Path(elsewhere)), clock)
    reserved_seconds = clock.elapsed + costs.total(plan.measurements)
    findings = resources + check(prepared, reserved_seconds=reserved_seconds)
    findings.print()
    if not force:
        findings.raise_if_stopped(opened.store.folder)
    say("dry run: nothing was trained, nothing was written")
    return findings
