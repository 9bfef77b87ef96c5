"""Fine-tuning a model folder to classify texts or pairs of texts, with several seeds.

    RUN/
      run.json       the resolved run
      seeds/seed-N/  log and result of each seed, its checkpoints while it trains
      baseline.json  what TF-IDF + logistic regression came to
      model/         the model of the seed that was best on dev
      results.json   all scores
      report.html

A run that was stopped goes on where it was: with the seed in hand, or with the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from bertsmith.batches.examples import EncodedExamples, encode_examples
from bertsmith.batches.store import file_hash
from bertsmith.config import Config
from bertsmith.errors import ConfigError
from bertsmith.log import say
from bertsmith.models.model import Model
from bertsmith.recipes.baselines import BaselineResult, tfidf_baseline
from bertsmith.recipes.devices import device_named
from bertsmith.recipes.labelled import LabelledData, read_labelled
from bertsmith.recipes.outcome import FinetuneOutcome, majority_accuracy
from bertsmith.recipes.scores import describe, tell, write_card, write_report
from bertsmith.recipes.seed_folders import SeedFolders, read_json
from bertsmith.recipes.seeds import FinetuneConfig
from bertsmith.text.columns import USUAL, Columns
from bertsmith.text.examples import Example
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.interruption import Interrupted
from bertsmith.training.run_folder import RunFolder, write_json
from bertsmith.training.tensorboard import require_tensorboard
from bertsmith.weights.folder import WEIGHTS_FILE, load_model, start_from
from bertsmith.weights.hub import model_folder, origin

__all__ = ["FinetuneConfig", "FinetuneOutcome", "FinetuneRun", "finetune"]


@dataclass(frozen=True, kw_only=True)
class FinetuneRun(Config):
    """A resolved run: what it starts from, what it reads, and how it trains."""

    model: Path
    """Folder of the model that training starts from."""
    model_hash: str
    """SHA-256 of its weights."""
    origin: str | None = None
    """Its name and commit on the hub, if it came from there."""
    train: Path
    """The training examples."""
    train_hash: str
    """SHA-256 of their file."""
    dev: Path | None
    """The examples to measure with, None for a share of the training file."""
    dev_hash: str | None
    """SHA-256 of their file."""
    columns: Columns
    """Columns that were named."""
    labels: tuple[str, ...]
    """The classes in the model's order."""
    seeds: int
    """Number of seeds."""
    threads: int
    """Threads of torch; part of what makes a run repeat bit for bit."""
    device: str
    """Type of the device."""
    settings: FinetuneConfig
    """How each is trained."""


def finetune(
    model: str | Path,
    train: Path,
    *,
    out: Path,
    dev: Path | None = None,
    seeds: int = 5,
    columns: Columns = USUAL,
    settings: FinetuneConfig = FinetuneConfig(),  # noqa: B008 (frozen)
    device: str = "auto",
    tensorboard: bool = False,
) -> FinetuneOutcome:
    """Train `seeds` classifiers, tell how they do on dev, and keep the best in `out`/model.

    Raises `ExampleError`, `ModelFolderError` or `RunFolderError` before anything is written, and
    what `fit` raises; after an interruption the same call goes on. `device` is a name that
    `device_named` knows; `tensorboard` writes the logs for TensorBoard too.
    """
    place = device_named(device)
    if tensorboard:
        require_tensorboard()
    if seeds < 1:
        raise ConfigError(f"seeds is {seeds}", remedy="it must be at least 1")
    model = model_folder(model)
    base, tokenizer = load_model(model)
    data = read_labelled(
        train,
        dev,
        columns,
        known_labels=base.config.labels,
        dev_share=settings.dev_share,
        seed=settings.seed,
    )
    run = FinetuneRun(
        model=model.resolve(),
        model_hash=file_hash(model / WEIGHTS_FILE),
        origin=origin(model),
        train=train.resolve(),
        train_hash=file_hash(train),
        dev=None if dev is None else dev.resolve(),
        dev_hash=None if dev is None else file_hash(dev),
        columns=columns,
        labels=data.labels,
        seeds=seeds,
        threads=torch.get_num_threads(),
        device=place.type,
        settings=settings,
    )
    longest = min(settings.longest, base.config.encoder.longest)
    train_and_dev = [_encoded(part, data, tokenizer, longest) for part in (data.train, data.dev)]
    folder = RunFolder(out)
    with folder.owned():
        stored = folder.settings("finetune") or {}
        # another number of threads would round differently in what is left to do
        run = replace(run, threads=stored.get("threads", run.threads))
        if folder.claim("finetune", run):
            ended = (out / "results.json").exists()
            say(f"the run in {out} has ended" if ended else f"going on with the run in {out}")
        return _carry_out(
            folder, run, data, tokenizer, *train_and_dev, device=place, tensorboard=tensorboard
        )


def _carry_out(
    folder: RunFolder,
    run: FinetuneRun,
    data: LabelledData,
    tokenizer: Tokenizer,
    train: EncodedExamples,
    dev: EncodedExamples,
    *,
    device: torch.device,
    tensorboard: bool,
) -> FinetuneOutcome:
    def make_model(seed: int) -> Model:
        return start_from(run.model, labels=run.labels, seed=seed)[0].to(device)

    cut = int(train.cut.sum() + dev.cut.sum())
    for line in describe(data, cut):
        say(line)
    torch.set_num_threads(run.threads)
    baseline = _baseline(folder, data) if run.settings.baseline else None
    seeds = SeedFolders(folder, run.settings, run.seeds, tensorboard=tensorboard)
    try:
        results = seeds.train(make_model, tokenizer, train, dev)
    except Interrupted as stopped:
        raise Interrupted(f"{stopped}, saved; go on with the same command") from None
    outcome = FinetuneOutcome(
        folder=folder.path,
        model=folder.model,
        data=data,
        seeds=tuple(results),
        baseline=baseline,
        majority=majority_accuracy(data),
        cut=cut,
    )
    seeds.move_model(outcome.best.seed, write_card(outcome, run.to_dict()))
    write_json(folder.path / "results.json", outcome.to_dict())
    write_report(outcome, folder.report, run.to_dict())
    tell(outcome)
    say(f"next: bertsmith predict {outcome.model} FILE")
    return outcome


def _encoded(
    examples: Sequence[Example], data: LabelledData, tokenizer: Tokenizer, longest: int
) -> EncodedExamples:
    return encode_examples(
        tokenizer,
        [example.text for example in examples],
        [example.text_pair for example in examples],
        data.classes(examples),
        longest=longest,
    )


def _baseline(folder: RunFolder, data: LabelledData) -> BaselineResult:
    """What an earlier part of the run has found, or found now."""
    path = folder.path / "baseline.json"
    if path.exists():
        return BaselineResult.from_dict(read_json(path))
    train, dev = ([(one.text, one.text_pair) for one in part] for part in (data.train, data.dev))
    result = tfidf_baseline(train, data.classes(data.train), dev, data.classes(data.dev))
    write_json(path, result.to_dict())
    return result
