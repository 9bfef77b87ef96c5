"""Pre-training a BERT on a token store.

bertsmith pretrain store --out run --model mini --minutes 60
"""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from bertsmith.batches.phases import PhasedBatches
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.batches.store import INDEX, TokenStore
from bertsmith.errors import ConfigError, RunFolderError
from bertsmith.log import say
from bertsmith.models.bert import bert
from bertsmith.models.model import (
    Model,
    ModelConfig,
    build_model,
    start_positions_as_sinusoids,
)
from bertsmith.objectives.pretraining import PRETRAINING
from bertsmith.recipes.continuing import (
    check_parent,
    continued,
    identify,
    size_of,
    start_from_parent,
)
from bertsmith.recipes.devices import best_device
from bertsmith.recipes.preflight import check
from bertsmith.recipes.pretrain_evaluation import describe, evaluate_held_out
from bertsmith.recipes.pretrain_report import model_card, write_report
from bertsmith.recipes.pretrain_settings import PretrainConfig, PretrainRun, fit_config
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.checkpoints import State
from bertsmith.training.interruption import Interrupted
from bertsmith.training.loop import fit
from bertsmith.training.run_folder import RunFolder, write_json
from bertsmith.training.schedule import Budget
from bertsmith.weights.folder import read_config, save_model

_RESULT = "result.json"


@dataclass(frozen=True, kw_only=True)
class PretrainOutcome:
    """What a finished run left."""

    model: Model
    tokenizer: Tokenizer
    state: State
    held_out: dict[str, float]
    folder: Path


def pretrain(
    store: Path | None,
    *,
    out: Path,
    model: str = "small",
    parent: Path | None = None,
    minutes: float | None = None,
    steps: int | None = None,
    settings: PretrainConfig | None = None,
    force: bool = False,
) -> PretrainOutcome:
    """Pre-train a BERT on a store, or go on with the run in `out`.

    With `parent`, a model folder, the weights start from its, whatever `model` says.
    Without `store` everything is taken from the run in `out`; with it, the settings must be those
    of that run, if there is one. What the pre-flight check finds wrong stops a new run, unless
    `force` is given. Raises `UserError` children, and `Interrupted` after Ctrl-C.
    """
    folder = RunFolder(out)
    with folder.owned():
        stored = folder.settings("pretrain")
        if store is None:
            if stored is None:
                raise RunFolderError(
                    "holds no run to go on with", where=out, remedy="name a store to train on"
                )
            run = PretrainRun.from_dict(stored, where=out / "run.json")
        else:
            budget = Budget(steps=steps, minutes=minutes)
            run = resolve(store, model, budget, settings, parent)
            # another number of threads would round differently in what is left to do
            run = replace(run, threads=(stored or {}).get("threads", run.threads))
        opened = TokenStore(run.store)
        if run.store_hash != _hash(run.store):
            raise RunFolderError(
                f"was begun with another store than the one in {run.store} now",
                where=out,
                remedy="choose another --out",
            )
        check_parent(run, opened)
        if folder.claim("pretrain", run):
            ended = (out / _RESULT).exists()
            say(f"the run in {out} has ended" if ended else f"going on with the run in {out}")
        return carry_out(run, opened, folder, force=force)


def resolve(
    store: Path,
    model: str,
    budget: Budget,
    settings: PretrainConfig | None = None,
    parent: Path | None = None,
) -> PretrainRun:
    """A run with everything that decides its result."""
    TokenStore(store)
    if settings is None:
        settings = PretrainConfig() if parent is None else continued(parent)
    return PretrainRun(
        store=store.resolve(),
        store_hash=_hash(store),
        model=model if parent is None else size_of(parent),
        budget=budget,
        threads=torch.get_num_threads(),
        device=best_device().type,
        settings=settings,
        parent=None if parent is None else identify(parent),
    )


def carry_out(
    run: PretrainRun, store: TokenStore, folder: RunFolder, *, force: bool = False
) -> PretrainOutcome:
    """Train, evaluate on the held-out documents, save the model folder and the report."""
    settings, tokenizer = run.settings, store.tokenizer()
    torch.set_num_threads(run.threads)
    model = start(run, tokenizer).to(best_device())
    batches = PhasedBatches(store, tokenizer, settings.samples, settings.phases, settings.seed)
    _tell_plan(run, model, batches.parts[-1])
    if not folder.checkpoints.exists():
        _preflight(run, store, tokenizer, model, batches.parts[-1], folder, force=force)
    try:
        state = fit(
            fit_config(run), model, PRETRAINING, batches, enter=batches.enter, folder=folder,
            title="pre-training",
        )  # fmt: skip
    except Interrupted as stopped:
        command = f"bertsmith pretrain --out {shlex.quote(str(folder.path))}"
        raise Interrupted(f"{stopped}, saved; go on with: {command}") from None
    held_out = evaluate_held_out(model, tokenizer, store, settings.samples)
    say(describe(state, held_out))
    write_json(folder.path / _RESULT, {"state": state.to_dict(), "held_out": held_out})
    card = model_card(run, store.index, state, held_out)
    model.cpu()
    model.config = _for_users(run, model.config)
    save_model(folder.model, model, tokenizer, card=card)
    write_report(folder, run, held_out)
    say(f"model: {folder.model}   report: {folder.report}")
    return PretrainOutcome(
        model=model, tokenizer=tokenizer, state=state, held_out=held_out, folder=folder.path
    )


def _preflight(
    run: PretrainRun,
    store: TokenStore,
    tokenizer: Tokenizer,
    model: Model,
    batches: PretrainingBatches,
    folder: RunFolder,
    *,
    force: bool,
) -> None:
    """Check before any training time is spent; what is found stays in preflight.json."""
    settings = run.settings
    found = check(
        store,
        tokenizer,
        model,
        batches,
        PRETRAINING,
        optimiser=settings.optimiser,
        precision=settings.precision,
        accumulate=settings.accumulate,
        budget=run.budget,
    )
    found.tell()
    if not force:
        found.stop(store)
    write_json(folder.path / "preflight.json", found.to_dict())


def start(run: PretrainRun, tokenizer: Tokenizer) -> Model:
    """The network before its first step, a pure function of the run."""
    network = run.settings.network
    if run.settings.samples.longest > network.longest:
        raise ConfigError(
            f"samples.longest ({run.settings.samples.longest}) exceeds network.longest "
            f"({network.longest})"
        )
    if run.parent is not None:
        return start_from_parent(run.parent, run.settings)
    if network.position_start == "parent":
        raise ConfigError("network.position_start is parent", remedy="name a model with --from")
    encoder = bert(
        run.model,
        tokenizer.size,
        longest=network.longest,
        positions=network.positions,
        causal=run.settings.samples.left_to_right,
        activation=network.activation,
        dropout=network.dropout,
        attention_dropout=network.attention_dropout,
    )
    pairs = run.settings.samples.pairs
    config = ModelConfig(encoder=encoder, pooler=pairs, masked_lm=True, next_sentence=pairs)
    model = build_model(config, seed=run.settings.seed)
    if network.position_start == "sinusoidal":
        start_positions_as_sinusoids(model, network.position_scale)
    return model


def _for_users(run: PretrainRun, config: ModelConfig) -> ModelConfig:
    """The config to save: with the dropout that fine-tuning wants, whatever pre-training had."""
    dropout = attention_dropout = 0.1
    if run.parent is not None:
        own = read_config(run.parent.folder).encoder
        dropout, attention_dropout = own.dropout, own.attention_dropout
    encoder = replace(config.encoder, dropout=dropout, attention_dropout=attention_dropout)
    return replace(config, encoder=encoder)


def _tell_plan(run: PretrainRun, model: Model, batches: PretrainingBatches) -> None:
    parameters = sum(parameter.numel() for parameter in model.parameters())
    budget = run.budget
    how_long = f"{budget.minutes:g} minutes" if budget.minutes else f"{budget.steps:,} steps"
    say(
        f"BERT {run.model}, {parameters / 1e6:.1f} M parameters, {how_long} on {run.device}; "
        f"{batches.sequences:,} sequences of at most {run.settings.samples.longest} tokens an epoch"
    )


def _hash(store: Path) -> str:
    return hashlib.sha256((store / INDEX).read_bytes()).hexdigest()
