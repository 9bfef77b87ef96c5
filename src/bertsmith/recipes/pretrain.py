"""Pre-training a BERT on a token store.

bertsmith pretrain store --out run --model mini --minutes 60
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from bertsmith.batches.batch import Batch
from bertsmith.batches.pretraining import Place, PretrainingBatches, SampleConfig
from bertsmith.batches.store import INDEX, TokenStore
from bertsmith.errors import ConfigError, RunFolderError
from bertsmith.evaluation.held_out import evaluate_objective
from bertsmith.log import say
from bertsmith.models.bert import bert
from bertsmith.models.model import (
    Model,
    ModelConfig,
    build_model,
    start_positions_as_sinusoids,
)
from bertsmith.objectives.masked_lm import masked_lm
from bertsmith.objectives.next_sentence import next_sentence
from bertsmith.objectives.objective import Objective
from bertsmith.recipes.devices import best_device
from bertsmith.recipes.pretrain_report import model_card, write_report
from bertsmith.recipes.pretrain_settings import PretrainConfig, PretrainRun, fit_config
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.checkpoints import State
from bertsmith.training.interruption import Interrupted
from bertsmith.training.loop import fit
from bertsmith.training.run_folder import RunFolder, write_json
from bertsmith.training.schedule import Budget
from bertsmith.weights.folder import save_model

_HELD_OUT_TOKENS = 400_000


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
    minutes: float | None = None,
    steps: int | None = None,
    settings: PretrainConfig | None = None,
) -> PretrainOutcome:
    """Pre-train a BERT on a store, or go on with the run in `out`.

    Without `store` everything is taken from the run in `out`; with it, the settings must be those
    of that run, if there is one. Raises `UserError` children, and `Interrupted` after Ctrl-C.
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
            run = resolve(store, model, budget, settings or PretrainConfig())
        opened = TokenStore(run.store)
        if run.store_hash != _hash(run.store):
            raise RunFolderError(
                f"was begun with another store than the one in {run.store} now",
                where=out,
                remedy="choose another --out",
            )
        if folder.claim("pretrain", run):
            say(f"going on with the run in {out}")
        return carry_out(run, opened, folder)


def resolve(store: Path, model: str, budget: Budget, settings: PretrainConfig) -> PretrainRun:
    """A run with everything that decides its result."""
    TokenStore(store)
    return PretrainRun(
        store=store.resolve(),
        store_hash=_hash(store),
        model=model,
        budget=budget,
        threads=torch.get_num_threads(),
        device=best_device().type,
        settings=settings,
    )


def carry_out(run: PretrainRun, store: TokenStore, folder: RunFolder) -> PretrainOutcome:
    """Train, evaluate on the held-out documents, save the model folder and the report."""
    settings, tokenizer = run.settings, store.tokenizer()
    torch.set_num_threads(run.threads)
    model = start(run, tokenizer).to(best_device())
    batches = PretrainingBatches(store, tokenizer, settings.samples, settings.seed)
    objective = objective_for(settings.samples)
    _tell_plan(run, model, batches)
    try:
        state = fit(fit_config(run), model, objective, batches, folder=folder, title="pre-training")
    except Interrupted as stopped:
        raise Interrupted(
            f"{stopped}, saved; go on with: bertsmith pretrain --out {folder.path}"
        ) from None
    held_out = evaluate_held_out(model, tokenizer, store, settings.samples)
    say(describe(state, held_out))
    write_json(folder.path / "result.json", {"state": state.to_dict(), "held_out": held_out})
    card = model_card(run, store.index, state, held_out)
    model.cpu()
    model.config = _for_users(model.config)
    save_model(folder.model, model, tokenizer, card=card)
    write_report(folder, run, held_out)
    say(f"model: {folder.model}   report: {folder.report}")
    return PretrainOutcome(
        model=model, tokenizer=tokenizer, state=state, held_out=held_out, folder=folder.path
    )


def start(run: PretrainRun, tokenizer: Tokenizer) -> Model:
    """The network before its first step, a pure function of the run."""
    network = run.settings.network
    if run.settings.samples.longest > network.longest:
        raise ConfigError(
            f"samples.longest ({run.settings.samples.longest}) exceeds network.longest "
            f"({network.longest})"
        )
    encoder = bert(
        run.model,
        tokenizer.size,
        longest=network.longest,
        positions=network.positions,
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


def objective_for(samples: SampleConfig) -> Objective:
    """Masked LM, with next sentence where the samples are pairs."""
    if samples.pairs:
        return Objective({"masked_lm": masked_lm, "next_sentence": next_sentence})
    return Objective({"masked_lm": masked_lm})


def evaluate_held_out(
    model: Model, tokenizer: Tokenizer, store: TokenStore, samples: SampleConfig
) -> dict[str, float]:
    """Loss and accuracy of each objective on the held-out documents, in float32; {} without any.

    The masks and pairs are always the same ones; at most 400,000 tokens are read.
    """
    held_out = store.held_out()
    if held_out is None:
        return {}
    pairs = samples.pairs and held_out.index.documents > 1
    config = replace(samples, tokens_per_batch=max(8192, samples.longest), pairs=pairs)
    batches = PretrainingBatches(held_out, tokenizer, config, seed=1)
    return evaluate_objective(model, objective_for(config), _once(batches))


def describe(state: State, held_out: dict[str, float]) -> str:
    """One line about what was learned."""
    line = (
        f"pre-training: {state.step:,} steps, {state.tokens / 1e6:.1f} M tokens, "
        f"{state.tokens / max(state.seconds, 1e-9):,.0f} tokens/s"
    )
    if "masked_lm_loss" in held_out:
        line += (
            f"; held out: masked LM loss {held_out['masked_lm_loss']:.3f}, "
            f"accuracy {held_out['masked_lm_accuracy']:.3f}"
        )
    if "next_sentence_accuracy" in held_out:
        line += f", next sentence {held_out['next_sentence_accuracy']:.3f}"
    return line


def _once(batches: PretrainingBatches) -> Iterator[Batch]:
    place, tokens = Place(), 0
    while place.epoch == 0 and tokens < _HELD_OUT_TOKENS:
        batch, place = batches.take(place)
        tokens += batch.tokens
        yield batch


def _for_users(config: ModelConfig) -> ModelConfig:
    """The config to save: with the dropout that fine-tuning wants, whatever pre-training had."""
    encoder = replace(config.encoder, dropout=0.1, attention_dropout=0.1)
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
