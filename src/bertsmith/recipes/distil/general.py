"""Distillation from a token store: the student learns from its teacher before any task.

The run is one of pre-training, with its budget, checkpoints, measurements on held-out text and
report; batches bring what the teacher gives for them. Masks are new in every epoch, so nothing of
the teacher is kept on the disk.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
from bertsmith.core.log import progress, say, short_number
from bertsmith.core.printable import counted, markdown, shell_word
from bertsmith.core.signals import Interrupted
from bertsmith.engine.devices import device_named, training_precision
from bertsmith.network.batch import Batch
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.families.catalog import FAMILIES
from bertsmith.network.model import Model, build_model
from bertsmith.network.torch_state import threads_of_torch
from bertsmith.objectives.distillation import Answer
from bertsmith.objectives.objective import Losses, Objective, Term
from bertsmith.objectives.pretraining import MaskedLM
from bertsmith.recipes.distil.config import DistilConfig, Method, TeachingConfig
from bertsmith.recipes.distil.methods import (
    LABELS_STEP,
    METHODS,
    MethodTerms,
    check_method,
    method_terms,
    other_methods,
    with_targets,
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
from bertsmith.recipes.distil.teacher import TeacherOutputs, outputs_of
from bertsmith.recipes.pretrain.config import Parent, PretrainRun, PretrainSettings, fit_config
from bertsmith.recipes.pretrain.planning import plan_time
from bertsmith.recipes.pretrain.preflight import check_resources
from bertsmith.recipes.pretrain.published import quick
from bertsmith.recipes.pretrain.recipe import PretrainOutcome
from bertsmith.recipes.pretrain.report import (
    evaluate_held_out,
    held_out_batches,
    measure_held_out,
    model_card,
    write_report,
)
from bertsmith.recipes.pretrain.resolving import RESULT, claim_folder, store_hash, verify_for
from bertsmith.recipes.pretrain.starting import check_store_vocabulary, identify
from bertsmith.store.store import TokenStore
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.checkpoints import State, has_checkpoint
from bertsmith.training.config import Budget, OptimiserConfig, ScheduleConfig
from bertsmith.training.loop import Session, fit
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.schedule import Timing
from bertsmith.training.threads import quick_choice
from bertsmith.weights.folder import load_model, read_config, save_model

# what was chosen when a run began
_KEPT = ("threads", "precision")
# in the model card
_OBJECTIVES: Mapping[Method, str] = {
    "distilbert": "soft targets of masked words, cosine of last hidden states, and masked LM",
    "tinybert": "attention scores and hidden states of the teacher",
    "minilm": "relations of queries, keys and values of the teacher",
}
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
    clock, device, folder = clock or Clock(), device_named(config.device), RunFolder(config.out)
    store = TokenStore(config.data)
    run = _resolve_run(config, store, device)
    with threads_of_torch(None), folder.owned():
        earlier = folder.settings(KIND)
        if earlier is not None:
            _check_recipe(config, earlier)
            check_start(config.out, earlier, run.student, run.layers, token_table=run.token_table)
            # another number of threads or precision would change rounding in the rest of the run
            earlier_training, training = earlier.get("training", {}), run.training
            fixed = {name: earlier_training.get(name, getattr(training, name)) for name in _KEPT}
            run = replace(run, training=replace(training, **fixed))
        elif device.type == "cpu":
            run = _with_measured_threads(run)
        verified = verify_for(run.training.budget, store, folder)
        claim_folder(folder, KIND, run, verified)
        return _train_student(run, store, folder, device, clock)


def _with_measured_threads(run: GeneralRun) -> GeneralRun:
    """Return a new run with the number of threads that is fastest now, by products of the teacher.

    It is the larger model of the two, and computes every batch, too.
    """
    encoder = read_config(run.teacher.folder).encoder
    choice = quick_choice(encoder.hidden, encoder.feed_forward, run.training.threads)
    if choice.reason:
        say(choice.reason)
    return replace(run, training=replace(run.training, threads=choice.threads))


def _resolve_run(config: DistilConfig, store: TokenStore, device: torch.device) -> GeneralRun:
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
    has_head = teacher.masked_lm and not teacher.encoder.causal
    usable_methods = tuple(item for item in METHODS if has_head or item != "distilbert")
    if method not in usable_methods:
        able = other_methods(method, teacher.encoder, encoder, usable_methods)
        raise ModelFolderError(
            "has no masked-LM head, whose answers distilbert teaches",
            where=config.teacher,
            remedy=f"give {able}, or another teacher",
        )
    check_method(method, teacher.encoder, encoder, config.teaching, usable_methods)
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
        training=_training(config, store, encoder, device, method),
    )


def _check_recipe(config: DistilConfig, known: Mapping[str, Any]) -> None:
    """Raise `RunFolderError` if a run was begun with another recipe than the one wanted now."""
    optimiser = known.get("training", {}).get("settings", {}).get("optimiser", {})
    earlier = "quick" if optimiser.get("matrices") == "muon" else "paper"
    if optimiser and earlier != config.general.recipe:
        raise RunFolderError(
            f"belongs to a run with --general.recipe {earlier}, now {config.general.recipe}",
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
    options = config.general
    settings = PretrainSettings(
        optimiser=OptimiserConfig(learning_rate=5e-4), schedule=ScheduleConfig(warmup=0.05)
    )
    if options.recipe == "quick":
        settings = quick(config.student.student)
    overrides = {
        "optimiser.learning_rate": options.learning_rate,
        "optimiser.muon_learning_rate": options.muon_learning_rate,
        "schedule.warmup": options.warmup,
    }
    return settings.override(
        **{name: value for name, value in overrides.items() if value is not None}
    )


def _training(
    config: DistilConfig,
    store: TokenStore,
    encoder: EncoderConfig,
    device: torch.device,
    method: Method,
) -> PretrainRun:
    """Return the training as a run of pre-training."""
    options, recipe = config.general, _recipe(config)
    masking = MaskingConfig(smoothing=options.smoothing if method == "distilbert" else 0.0)
    if method == "minilm":
        # text as it is: the student predicts no word
        masking = replace(masking, as_mask=0.0, as_random=0.0)
    settings = PretrainSettings(
        network=replace(recipe.network, family=encoder.family, initialisation="random"),
        samples=SampleConfig(
            max_length=min(options.max_length, encoder.longest),
            tokens_per_batch=options.tokens_per_batch,
            text="within_documents",
            masking=masking,
        ),
        optimiser=recipe.optimiser,
        schedule=recipe.schedule,
        precision=options.precision,
        seed=config.settings.seed,
        checkpoint_minutes=options.checkpoint_minutes,
        measurements=options.measurements,
    )
    return PretrainRun(
        store=store.folder.resolve(),
        store_hash=store_hash(store.folder),
        model=f"{encoder.layers}/{encoder.hidden}",
        budget=Budget(steps=config.steps, minutes=config.minutes),
        threads=torch.get_num_threads(),
        device=device.type,
        precision=training_precision(options.precision, device),
        settings=settings,
    )


@dataclass(frozen=True, kw_only=True)
class TeacherText:
    """Batches of a store with what a teacher gives for them; it is no part of the training."""

    batches: PretrainingBatches
    teacher: Model
    outputs: TeacherOutputs
    names: tuple[str, ...]

    def next_batch(self, position: DataPosition) -> tuple[Batch, DataPosition]:
        """Return the batch at a position in the data, and the position after it."""
        batch, after = self.batches.next_batch(position)
        return self.taught(batch), after

    def taught(self, batch: Batch) -> Batch:
        """Return a batch with the teacher's outputs, and a target for each term."""
        batch = batch.to(self.teacher.device)
        outputs = outputs_of(self.teacher, batch, self.outputs)
        return replace(with_targets(batch, self.names), given=outputs)


@dataclass(frozen=True, kw_only=True)
class _TaughtObjective:
    """An objective that has the teacher run for each batch."""

    objective: Objective
    text: TeacherText

    def __call__(self, model: Model, batch: Batch) -> Losses:
        return self.objective(model, self.text.taught(batch))


def _train_student(
    run: GeneralRun, store: TokenStore, folder: RunFolder, device: torch.device, clock: Clock
) -> PretrainOutcome:
    """Train, evaluate on held-out text, save the student and the report."""
    training, settings, tokenizer = run.training, run.training.settings, store.tokenizer()
    torch.set_num_threads(training.threads)
    batches = PretrainingBatches(store, tokenizer, settings.samples, settings.seed)
    goes_on = has_checkpoint(folder)
    if not goes_on:
        check_resources(training, run.student, [batches], folder.path, device).print()
    teacher = load_model(run.teacher.folder)[0].to(device)
    model = _student(run, teacher, tokenizer).to(device)
    taught, objective = _terms(run, teacher)
    outputs = TeacherOutputs(
        taps=taught.taps,
        answer="masked_lm" if taught.logits else None,
        precision=training.precision,
    )
    text = TeacherText(batches=batches, teacher=teacher, outputs=outputs, names=taught.steps[0])
    measured = _TaughtObjective(objective=objective, text=text)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    say(
        f"{run.method}, {training.model}, {parameters / 1e6:.1f} M parameters; "
        f"{counted(batches.sequences, 'sequence')} of at most {settings.samples.max_length} tokens "
        "an epoch"
    )
    held_out = held_out_batches(tokenizer, store, settings.samples)
    plan, costs = plan_time(training, model, measured, held_out, folder, clock.startup)
    if not goes_on:
        _print_time(training.budget, clock.elapsed + costs.total(plan.measurements))
    try:
        state = fit(
            replace(fit_config(training), measurements=plan.measurements),
            model,
            objective,
            text,
            measure=measure_held_out(measured, held_out, training.precision, plan.measured_tokens),
            folder=folder,
            session=Session(title="distilling", timing=Timing(clock=clock, costs=costs)),
        )
    except Interrupted as stopped:
        where = shell_word(folder.path)
        raise Interrupted(f"{stopped}, saved in {where}; the same command resumes it") from None
    with _finishing(folder, state.step):
        figures = evaluate_held_out(model, measured, held_out, plan.evaluated_tokens)
        _finish(run, folder, model, tokenizer, store, state, figures)
    say(f"{clock.elapsed / 60:.2f} minutes in all, {state.seconds / 60:.2f} of them in steps")
    return PretrainOutcome(
        network=model, tokenizer=tokenizer, state=state, held_out=figures, folder=folder.path
    )


def _student(run: GeneralRun, teacher: Model, tokenizer: Tokenizer) -> Model:
    """Return the student before its first step, a pure function of the run."""
    seed = run.training.settings.seed
    model = build_model(run.student, seed=seed)
    if run.layers:
        take_layers(model, teacher, run.layers)
    if run.token_table:
        take_token_table(model, teacher, mask_id=tokenizer.mask_id, seed=seed)
    return model


@contextmanager
def _finishing(folder: RunFolder, step: int) -> Iterator[None]:
    """Raise `Interrupted` on Ctrl-C after the last step, which says that nothing is lost."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(
            f"stopped after step {step}, the last, saved in {shell_word(folder.path)}; "
            "the same command makes the student"
        ) from None


def _print_time(budget: Budget, reserved_seconds: float) -> None:
    """Print the seconds of a budget of minutes that are left for steps.

    `reserved_seconds` are those for all else. Raises `ConfigError` where they take all.
    """
    if budget.minutes is None:
        return
    total = 60 * budget.minutes
    others = "checks, measurements, evaluation and saving take"
    if total <= reserved_seconds:
        raise ConfigError(
            f"--minutes {budget.minutes:g} leaves no time for steps: {others} "
            f"{reserved_seconds:.0f} s",
            remedy=f"give --minutes {math.ceil(20 * reserved_seconds / 60) / 10:g} or more",
        )
    say(f"{total - reserved_seconds:.0f} of {total:.0f} s are left for steps; {others} the rest")


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
    line = (
        f"distilling: {counted(state.step, 'step')}, {short_number(state.tokens)} tokens, "
        f"{state.tokens / max(state.seconds, 1e-9):,.0f} tokens/s"
    )
    say(f"{line}; held out: {losses}" if losses else line)
    write_json(folder.path / RESULT, {"state": state.to_dict(), "held_out": dict(held_out)})
    teacher = run.teacher.origin or run.teacher.folder.name
    card = model_card(
        run.training, model.config, store.index, state, held_out,
        origin=f"Distilled from {markdown(teacher)}", objective=_OBJECTIVES[run.method],
    )  # fmt: skip
    card += f"\nTaught by {run.method}; the teacher is {teacher}, "
    card += f"SHA-256 `{run.teacher.files_hash}`.\n"
    dropout = FAMILIES[model.config.encoder.family].dropout
    encoder = replace(model.config.encoder, dropout=dropout, attention_dropout=dropout)
    # for fine-tuning, whatever this training had
    longest = run.training.settings.samples.max_length
    if run.layers:
        # the positions are the teacher's too
        of_teacher = read_config(run.teacher.folder)
        longest = max(longest, of_teacher.pretrained_length or of_teacher.encoder.longest)
    model.config = replace(model.config, encoder=encoder).pretrained_on(longest)
    with progress("saving student and report", 2) as bar:
        save_model(folder.model, model.cpu(), tokenizer, card=card)
        bar.advance()
        origin = f", taught by {run.method}, teacher {teacher}"
        write_report(
            folder, run.training, held_out, title="Distillation", origin=origin, record=run
        )
    say(f"model: {folder.model}   report: {folder.report}")
    say(f"next: bertsmith finetune {shell_word(folder.model)} TRAIN --out RUN")
