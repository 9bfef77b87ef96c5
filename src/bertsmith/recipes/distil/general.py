"""Distillation from a token store: the student learns from its teacher before any task.

The run is one of pre-training, with its budget, checkpoints, measurements on held-out text and
report; batches bring what the teacher gives for them. Masks are new in every epoch, so nothing of
the teacher is kept on the disk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from bertsmith.batches import DataPosition
from bertsmith.batches.config import MaskingConfig, SampleConfig
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.core.clock import Clock
from bertsmith.core.config import Config
from bertsmith.core.errors import ConfigError, ModelFolderError, RunFolderError
from bertsmith.core.files import write_json
from bertsmith.core.log import progress, say
from bertsmith.core.printable import counted, shell_word
from bertsmith.core.signals import Interrupted
from bertsmith.engine.devices import device_named, training_precision
from bertsmith.network.batch import Batch
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.families.catalog import FAMILIES
from bertsmith.network.model import Model, build_model
from bertsmith.objectives.distillation import Answer
from bertsmith.objectives.objective import Losses, Objective, Term
from bertsmith.objectives.pretraining import MaskedLM
from bertsmith.recipes.distil.config import DistilConfig, Method, TeachingConfig
from bertsmith.recipes.distil.methods import (
    METHODS,
    MethodTerms,
    check_method,
    method_terms,
    other_methods,
)
from bertsmith.recipes.distil.student import (
    can_take_layers,
    can_take_token_table,
    check_start,
    chosen_layers,
    student_encoder,
    take_layers,
    take_token_table,
)
from bertsmith.recipes.distil.supervision import LABELS_STEP, with_targets
from bertsmith.recipes.distil.teacher import Wanted, outputs_of
from bertsmith.recipes.pretrain.config import Parent, PretrainRun, PretrainSettings, fit_config
from bertsmith.recipes.pretrain.planning import plan_time
from bertsmith.recipes.pretrain.preflight import check_room
from bertsmith.recipes.pretrain.published import quick
from bertsmith.recipes.pretrain.recipe import PretrainOutcome
from bertsmith.recipes.pretrain.report import (
    evaluate_held_out,
    measure_held_out,
    model_card,
    write_report,
)
from bertsmith.recipes.pretrain.resolving import RESULT, store_hash, verifying_seconds
from bertsmith.recipes.pretrain.starting import check_store_vocabulary, identify
from bertsmith.store.store import TokenStore, verify_store
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.checkpoints import State
from bertsmith.training.config import Budget, OptimiserConfig, ScheduleConfig
from bertsmith.training.loop import Session, fit
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.schedule import Timing
from bertsmith.weights.folder import load_model, read_config, save_model

# what was chosen when a run began
_KEPT = ("threads", "precision")
KIND = "distil from a store"
"""The kind of run, in run.json."""


@dataclass(frozen=True, kw_only=True)
class GeneralRun(Config):
    """A resolved run on a store."""

    teacher: Parent
    """The teacher."""
    student: ModelConfig
    """The student."""
    layers: tuple[int, ...]
    """The teacher's layers that it starts from, from 1."""
    token_table: bool = False
    """True if it starts from the teacher's token table, made narrower."""
    method: Method
    """The method."""
    teaching: TeachingConfig
    """The teaching."""
    training: PretrainRun
    """The store, the budget, and the settings of the training."""


def distil_general(config: DistilConfig, *, clock: Clock | None = None) -> PretrainOutcome:
    """Teach a student on a store, or resume the run in `out`, and save it in `out`/model.

    Raises `UserError` children before anything is written, what `fit` raises, and `Interrupted`
    with everything saved.
    """
    clock, place, folder = clock or Clock(), device_named(config.device), RunFolder(config.out)
    store = TokenStore(config.data)
    run = _resolved(config, store, place)
    with folder.owned():
        known = folder.settings(KIND)
        if known is not None:
            _check_recipe(config, known)
            check_start(config.out, known, run.student, run.layers, token_table=run.token_table)
            # another number of threads or precision would change rounding in the rest of the run
            before, training = known.get("training", {}), run.training
            kept = {name: before.get(name, getattr(training, name)) for name in _KEPT}
            run = replace(run, training=replace(training, **kept))
        seconds = verifying_seconds(run.training.budget)
        verified = verify_store(store, folder.verified(), seconds)
        if folder.claim(KIND, run):
            ended = (config.out / RESULT).exists()
            where = f"the run in {config.out}"
            say(f"{where} has ended" if ended else f"going on with {where}")
        folder.record_verified(verified)
        return _carry_out(run, store, folder, place, clock)


def _resolved(config: DistilConfig, store: TokenStore, place: torch.device) -> GeneralRun:
    """Return the run that options define; raises `UserError` children for what cannot be."""
    (method, *others), teacher = config.method, read_config(config.teacher)
    if others:
        raise ConfigError(
            f"--method names {len(config.method)}, and a store is for one",
            remedy="give one, or labelled examples",
        )
    check_store_vocabulary(store, config.teacher)
    if config.student.size is None:
        raise ConfigError(
            f"--student is {config.student.student!r}, which is for labelled examples",
            remedy="give layers and width, as 4/312",
        )
    encoder = student_encoder(teacher.encoder, *config.student.size, config.student)
    heads = teacher.masked_lm and not teacher.encoder.causal
    among = (
        METHODS
        if heads
        else tuple(other_method for other_method in METHODS if other_method != "distilbert")
    )
    if method not in among:
        able = other_methods(method, teacher.encoder, encoder, among)
        raise ModelFolderError(
            "has no masked-LM head, whose answers distilbert teaches",
            where=config.teacher,
            remedy=f"give {able}, or another teacher",
        )
    check_method(method, teacher.encoder, encoder, config.teaching, among)
    network = _recipe(config).network
    encoder = replace(
        _as_published(method, encoder),
        dropout=network.hidden_dropout,
        attention_dropout=network.attention_dropout,
    )
    takes_layers = can_take_layers(encoder, teacher.encoder)
    start = config.student.start if takes_layers else "new"
    return GeneralRun(
        teacher=identify(config.teacher),
        student=ModelConfig(encoder=encoder, pooler=False, masked_lm=method == "distilbert"),
        layers=chosen_layers(teacher.encoder.layers, encoder.layers, start),
        token_table=not takes_layers
        and config.student.start != "new"
        and network.initialisation != "random"
        and can_take_token_table(encoder),
        method=method,
        teaching=replace(config.teaching, cache=None),
        training=_training(config, store, encoder, place, method),
    )


def _check_recipe(config: DistilConfig, known: Mapping[str, Any]) -> None:
    """Raise `RunFolderError` if a run was begun with another recipe than the one wanted now."""
    optimiser = known.get("training", {}).get("settings", {}).get("optimiser", {})
    begun = "quick" if optimiser.get("matrices") == "muon" else "paper"
    if optimiser and begun != config.general.recipe:
        raise RunFolderError(
            f"belongs to a run with --general.recipe {begun}, now {config.general.recipe}",
            where=config.out,
            remedy="choose another --out, or give the recipe that run was begun with",
        )


def _as_published(method: Method, encoder: EncoderConfig) -> EncoderConfig:
    """Return the encoder of a BERT's student: that of DistilBERT has no segments."""
    if method == "distilbert" and encoder.family == "bert" and encoder.segments:
        return replace(encoder, family="distilbert", segments=0, pooling="relu")
    return encoder


def _recipe(config: DistilConfig) -> PretrainSettings:
    """Return settings with the dropout, the start, the optimiser and the schedule that are wanted.

    Those of `paper` are AdamW and random weights.
    """
    own = config.general
    settings = PretrainSettings(
        optimiser=OptimiserConfig(learning_rate=5e-4), schedule=ScheduleConfig(warmup=0.05)
    )
    if own.recipe == "quick":
        budget = Budget(steps=config.steps, minutes=config.minutes)
        settings = quick(config.student.student, budget)
    wanted = {
        "optimiser.learning_rate": own.learning_rate,
        "optimiser.muon_learning_rate": own.muon_learning_rate,
        "schedule.warmup": own.warmup,
    }
    return settings.override(**{name: value for name, value in wanted.items() if value is not None})


def _training(
    config: DistilConfig,
    store: TokenStore,
    encoder: EncoderConfig,
    place: torch.device,
    method: Method,
) -> PretrainRun:
    """Return the training as a run of pre-training."""
    own, recipe = config.general, _recipe(config)
    masking = MaskingConfig(smoothing=own.smoothing if method == "distilbert" else 0.0)
    if method == "minilm":
        # text as it is: the student predicts no word
        masking = replace(masking, as_mask=0.0, as_random=0.0)
    settings = PretrainSettings(
        network=replace(recipe.network, family=encoder.family, initialisation="random"),
        samples=SampleConfig(
            max_length=min(own.max_length, encoder.longest),
            tokens_per_batch=own.tokens_per_batch,
            text="within_documents",
            masking=masking,
        ),
        optimiser=recipe.optimiser,
        schedule=recipe.schedule,
        precision=own.precision,
        seed=config.settings.seed,
        checkpoint_minutes=own.checkpoint_minutes,
        measurements=own.measurements,
    )
    return PretrainRun(
        store=store.folder.resolve(),
        store_hash=store_hash(store.folder),
        model=f"{encoder.layers}/{encoder.hidden}",
        budget=Budget(steps=config.steps, minutes=config.minutes),
        threads=torch.get_num_threads(),
        device=place.type,
        precision=training_precision(own.precision, place),
        settings=settings,
    )


@dataclass(frozen=True, kw_only=True)
class TeacherText:
    """Batches of a store with what a teacher gives for them; it is no part of the training."""

    batches: PretrainingBatches
    teacher: Model
    wanted: Wanted
    names: tuple[str, ...]

    def next_batch(self, place: DataPosition) -> tuple[Batch, DataPosition]:
        """Return the batch at a position in the data, and the position after it."""
        batch, after = self.batches.next_batch(place)
        return self.taught(batch), after

    def taught(self, batch: Batch) -> Batch:
        """Return a batch with the teacher's outputs, and a target for each term."""
        batch = batch.to(self.teacher.device)
        given = outputs_of(self.teacher, batch, self.wanted)
        return replace(with_targets(batch, self.names), given=given)


@dataclass(frozen=True, kw_only=True)
class _Measured:
    """An objective that has the teacher run for each batch."""

    objective: Objective
    text: TeacherText

    def __call__(self, model: Model, batch: Batch) -> Losses:
        return self.objective(model, self.text.taught(batch))


def _carry_out(
    run: GeneralRun, store: TokenStore, folder: RunFolder, place: torch.device, clock: Clock
) -> PretrainOutcome:
    """Train, evaluate on held-out text, save the student and the report."""
    training, settings, tokenizer = run.training, run.training.settings, store.tokenizer()
    torch.set_num_threads(training.threads)
    batches = PretrainingBatches(store, tokenizer, settings.samples, settings.seed)
    goes_on = any(folder.checkpoints.glob("step-*"))
    if not goes_on:
        check_room(training, run.student, [batches], folder.path, place).tell()
    teacher = load_model(run.teacher.folder)[0].to(place)
    model = build_model(run.student, seed=settings.seed)
    if run.layers:
        take_layers(model, teacher, run.layers)
    if run.token_table:
        take_token_table(model, teacher, mask_id=tokenizer.mask_id, seed=settings.seed)
    model.to(place)
    taught, objective = _terms(run, teacher)
    wanted = Wanted(
        taps=taught.taps,
        answer="masked_lm" if taught.logits else None,
        precision=training.precision,
    )
    text = TeacherText(batches=batches, teacher=teacher, wanted=wanted, names=taught.steps[0])
    measured = _Measured(objective=objective, text=text)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    say(
        f"{run.method}, {training.model}, {parameters / 1e6:.1f} M parameters; "
        f"{batches.sequences:,} sequences of at most {settings.samples.max_length} tokens an epoch"
    )
    plan, costs = plan_time(training, model, measured, tokenizer, store, folder, clock.startup)
    if not goes_on:
        _tell_time(training.budget, clock.elapsed + costs.total(plan.measurements))
    try:
        state = fit(
            replace(fit_config(training), measurements=plan.measurements),
            model,
            objective,
            text,
            measure=measure_held_out(
                measured, tokenizer, store, settings.samples, training.precision,
                plan.measured_tokens,
            ),
            folder=folder,
            session=Session(title="distilling", timing=Timing(clock=clock, costs=costs)),
        )  # fmt: skip
    except Interrupted as stopped:
        where = shell_word(folder.path)
        raise Interrupted(f"{stopped}, saved in {where}; go on with the same command") from None
    held_out = evaluate_held_out(
        model, measured, tokenizer, store, settings.samples, plan.evaluated_tokens
    )
    _finish(run, folder, model, tokenizer, store, state, held_out)
    say(f"{clock.elapsed / 60:.2f} minutes in all, {state.seconds / 60:.2f} of them in steps")
    return PretrainOutcome(
        model=model, tokenizer=tokenizer, state=state, held_out=held_out, folder=folder.path
    )


def _tell_time(budget: Budget, spoken_for: float) -> None:
    """Print how many seconds of a budget of minutes are left for steps.

    `spoken_for` are those for all else. Raises `ConfigError` where they take all.
    """
    if budget.minutes is None:
        return
    total = 60 * budget.minutes
    others = "checks, measurements, evaluation and saving take"
    if total <= spoken_for:
        raise ConfigError(
            f"--minutes {budget.minutes:g} leaves no time for steps: {others} {spoken_for:.0f} s",
            remedy=f"give --minutes {math.ceil(20 * spoken_for / 60) / 10:g} or more",
        )
    say(f"{total - spoken_for:.0f} of {total:.0f} s are left for steps; {others} the rest")


def _terms(run: GeneralRun, teacher: Model) -> tuple[MethodTerms, Objective]:
    soft: Answer | None = "masked_lm" if run.student.masked_lm else None
    encoders = teacher.config.encoder, run.student.encoder
    seed = run.training.settings.seed
    taught = method_terms(run.method, *encoders, run.teaching, soft, seed=seed)
    terms: dict[str, Term] = dict(taught.terms)
    if LABELS_STEP in taught.steps[0]:
        terms["masked_lm"] = MaskedLM()
    return taught, Objective(terms)


def _finish(
    run: GeneralRun,
    folder: RunFolder,
    model: Model,
    tokenizer: Tokenizer,
    store: TokenStore,
    state: State,
    held_out: Mapping[str, float],
) -> None:
    """Save the student, with a card, and the report."""
    losses = ", ".join(
        f"{name.removesuffix('_loss').replace('_', ' ')} {value:.4g}"
        for name, value in held_out.items()
        if name.endswith("_loss")
    )
    steps = f"distilling: {counted(state.step, 'step')}, {state.tokens / 1e6:.1f} M tokens"
    say(f"{steps}, {state.tokens / max(state.seconds, 1e-9):,.0f} tokens/s; held out: {losses}")
    write_json(folder.path / RESULT, {"state": state.to_dict(), "held_out": dict(held_out)})
    card = model_card(run.training, model.config, store.index, state, held_out)
    teacher = run.teacher.origin or run.teacher.folder.name
    card += f"\nTaught by {run.method}; the teacher is {teacher}, "
    card += f"SHA-256 `{run.teacher.files_hash}`.\n"
    dropout = FAMILIES[model.config.encoder.family].dropout
    encoder = replace(model.config.encoder, dropout=dropout, attention_dropout=dropout)
    # for fine-tuning, whatever this training had
    model.config = replace(model.config, encoder=encoder)
    with progress("saving student and report", 2) as bar:
        save_model(folder.model, model.cpu(), tokenizer, card=card)
        bar.advance()
        write_report(folder, run.training, held_out)
    say(f"model: {folder.model}   report: {folder.report}")
    say(f"next: bertsmith finetune {shell_word(folder.model)} TRAIN --out RUN")
