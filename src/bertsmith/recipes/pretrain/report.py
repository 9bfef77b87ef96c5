"""Results of a pre-training run: held-out evaluation, model card and report page."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import takewhile

import torch

from bertsmith.batches import DataPosition
from bertsmith.batches.config import MaskingConfig, SampleConfig
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.core import VERSION
from bertsmith.core.config import Config
from bertsmith.core.errors import RunFolderError
from bertsmith.core.log import progress, say, short_number
from bertsmith.core.printable import counted, markdown
from bertsmith.network.batch import Batch
from bertsmith.network.config import ModelConfig, Precision
from bertsmith.network.families.catalog import FAMILIES
from bertsmith.network.model import Model, forward_only
from bertsmith.recipes.pretrain.config import PretrainRun
from bertsmith.recipes.pretrain.starting import new_parts
from bertsmith.reports.model_card import base_of, head_of, written
from bertsmith.reports.page import Report
from bertsmith.reports.training import NAMES, add_training, loss_label
from bertsmith.store.store import StoreIndex, TokenStore
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.checkpoints import State
from bertsmith.training.config import Parallelism
from bertsmith.training.replicas import LossFunction, own_modules
from bertsmith.training.run_folder import PREFLIGHT, RunFolder, read_record
from bertsmith.training.state import Measure, Measurement


def evaluate_objective(
    model: Model,
    objective: LossFunction,
    batches: Iterable[Batch],
    *,
    precision: Precision = "fp32",
) -> dict[str, float]:
    """Return means over all targets: ``NAME_loss``, ``NAME_accuracy``, ``NAME_count``.

    Names are those of the log of training. A part without any target is left out, and the accuracy
    of one that predicts nothing. Where classes are uneven there is ``NAME_majority`` too, the
    accuracy of always predicting the most frequent one.
    """
    return _evaluated(model, objective, batches, precision).metrics


def _evaluated(
    model: Model, objective: LossFunction, batches: Iterable[Batch], precision: Precision
) -> Measurement:
    """Return the figures of `evaluate_objective`, and the total loss as training weighs it."""
    sums: dict[str, float] = {}
    correct: dict[str, int] = {}
    majority: dict[str, int] = {}
    counts: dict[str, int] = {}
    total, weights = 0.0, dict[str, float]()
    with forward_only(model, precision), _without_dropout(objective):
        for batch in batches:
            for name, part in objective(model, batch.to(model.device)).parts.items():
                sums[name] = sums.get(name, 0.0) + part.sum.item()
                if part.predicts:
                    correct[name] = correct.get(name, 0) + int(part.correct.item())
                if part.majority is not None:
                    majority[name] = majority.get(name, 0) + int(part.majority.item())
                counts[name] = counts.get(name, 0) + part.count
                weights[name] = part.weight
    figures: dict[str, float] = {}
    for name, count in counts.items():
        if count:
            figures[f"{name}_loss"] = sums[name] / count
            total += weights[name] * figures[f"{name}_loss"]
            if name in correct:
                figures[f"{name}_accuracy"] = correct[name] / count
            if name in majority:
                figures[f"{name}_majority"] = majority[name] / count
            figures[f"{name}_count"] = count
    return Measurement(loss=total, metrics=figures)


@contextmanager
def _without_dropout(objective: LossFunction) -> Iterator[None]:
    """Put what an objective trains beside the model, a generator, in evaluation mode meanwhile."""
    own = own_modules(objective)
    training = [part for part in own.modules() if part.training]
    own.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


@dataclass(frozen=True, kw_only=True)
class HeldOutPlan(Config):
    """The number and size of measurements on held-out text."""

    measurements: int
    """Number of measurements during training."""
    measured_tokens: int = 64_000
    """Tokens per measurement."""
    evaluated_tokens: int = 400_000
    """Tokens for the evaluation of the finished model."""


def evaluate_held_out(
    model: Model,
    objective: LossFunction,
    held_out: PretrainingBatches | None,
    tokens: int = HeldOutPlan.evaluated_tokens,
) -> dict[str, float]:
    """Return loss and accuracy of each objective on `held_out_batches`, in float32.

    At most about `tokens` tokens are read. Empty without held-out documents.
    """
    if held_out is None:
        return {}
    total = min(tokens, held_out.store.tokens)
    with progress("evaluating on held-out text", total, "tokens") as bar:

        def watched() -> Iterator[Batch]:
            for batch in first_batches(held_out, tokens):
                yield batch
                bar.advance(batch.tokens)

        return evaluate_objective(model, objective, watched())


def measure_held_out(
    objective: LossFunction,
    held_out: PretrainingBatches | None,
    precision: Precision,
    tokens: int = HeldOutPlan.measured_tokens,
) -> Measure | None:
    """Return a function that measures on the same held-out text each time, None without any."""
    if held_out is None:
        return None

    def measure(model: Model, stopping: Callable[[], bool]) -> Measurement | None:
        chosen = takewhile(lambda _: not stopping(), first_batches(held_out, tokens))
        measurement = _evaluated(model, objective, chosen, precision)
        return None if stopping() else measurement

    return measure


def held_out_batches(
    tokenizer: Tokenizer, store: TokenStore, samples: SampleConfig
) -> PretrainingBatches | None:
    """Return the batches of the held-out documents, None without any.

    Masks and pairs are fixed, the masks being the paper's (15 %, single tokens) whatever the
    training uses, so that runs can be compared.
    """
    held_out = store.held_out()
    if held_out is None:
        return None
    alone = samples.text == "next_sentence" and held_out.index.documents < 2
    text = "within_documents" if alone else samples.text
    tokens = max(8192, samples.max_length)
    config = replace(
        samples,
        tokens_per_batch=tokens,
        text=text,
        masking=MaskingConfig(),
        short_sequences=0.0,
        copies=0,
    )
    return PretrainingBatches(held_out, tokenizer, config, seed=1)


def describe(state: State, held_out: dict[str, float]) -> str:
    """Return one line with the results."""
    line = (
        f"pre-training: {counted(state.step, 'step')}, {short_number(state.tokens)} tokens, "
        f"{state.tokens / max(state.seconds, 1e-9):,.0f} tokens/s"
    )
    for name, words in (("masked_lm", "masked LM"), ("left_to_right", "left-to-right LM")):
        if f"{name}_loss" in held_out:
            line += (
                f"; held out: {words} loss {held_out[f'{name}_loss']:.3f}, "
                f"accuracy {held_out[f'{name}_accuracy']:.3f}"
            )
    for name in ("replaced_tokens", "next_sentence", "sentence_order"):
        if f"{name}_accuracy" in held_out:
            line += f", {name.replace('_', ' ')} {held_out[f'{name}_accuracy']:.3f}"
        if f"{name}_majority" in held_out:
            line += f" ({held_out[f'{name}_majority']:.3f} by always predicting the majority class)"
    return line


def first_batches(batches: PretrainingBatches, max_tokens: int) -> Iterator[Batch]:
    """Yield the batches of the first epoch up to a number of tokens."""
    position, tokens = DataPosition(), 0
    while position.epoch == 0 and tokens < max_tokens:
        batch, position = batches.next_batch(position)
        tokens += batch.tokens
        yield batch


def model_card(
    run: PretrainRun,
    config: ModelConfig,
    store: StoreIndex,
    state: State,
    held_out: Mapping[str, float],
    *,
    origin: str = "",
    objective: str = "",
    changes: Sequence[tuple[int, Parallelism]] = (),
) -> str:
    """Return the README.md of the model folder: data, settings, and results.

    `origin`, the beginning of a sentence, and `objective` replace those of a pre-training;
    `changes` are the steps from which another parallelism was adopted.
    """
    family = run.settings.network.family
    rows = [
        ("network", f"{family.upper()} {run.model}, vocabulary {store.fingerprint[:16]}"),
        *_parent_rows(run),
        ("objective", objective or _objective(run.settings.samples)),
        (
            "corpus",
            f"{counted(store.documents, 'document')}, "
            f"{counted(store.text.units, store.text.unit)}, {counted(store.tokens, 'token')}",
        ),
        ("corpus hash", run.store_hash),
        (
            "tokens seen",
            f"{state.tokens:,} in {counted(state.step, 'step')}, {_epochs_read(state.place)}",
        ),
        (
            "time",
            f"{state.elapsed / 60:.1f} minutes on the clock, {state.seconds / 60:.1f} of them in "
            f"steps, on {run.device}, {Parallelism(threads=run.threads, replicas=run.replicas)}"
            + "".join(f"; from step {step + 1:,} on, {other}" for step, other in changes),
        ),
        ("machine", f"{platform.machine()}, torch {torch.__version__}"),
        ("seed", str(run.settings.seed)),
        *_held_out_rows(held_out),
        ("made", f"{datetime.now(UTC):%Y-%m-%d} with bertsmith {VERSION}"),
    ]
    table = "\n".join(f"| {name} | {markdown(value, 1000)} |" for name, value in rows)
    base = None if run.parent is None else base_of(run.parent.folder)
    title = FAMILIES[family].title
    article = "An" if title[0] in "AEX" else "A"
    return f"""{written(head_of(config, base=base))}
# {article} {title} encoder

{origin or _origin(run)} with bertsmith. Load it with `transformers` or `bertsmith`.

| what | value |
|---|---|
{table}
"""


def _origin(run: PretrainRun) -> str:
    """Return the beginning of a sentence that says what a run started from."""
    if run.parent is None:
        return "Pre-trained from scratch"
    return f"Trained further, from {markdown(run.parent.origin or run.parent.folder.name)},"


def _epochs_read(place: DataPosition) -> str:
    """Return the number of epochs that text was read in, and whether the last one was ended."""
    if place.index == 0:
        return counted(place.epochs, "epoch")
    if place.epochs == 1:
        return "part of one epoch"
    return f"{place.epochs:,} epochs, the last one in part"


def _held_out_rows(held_out: Mapping[str, float]) -> list[tuple[str, str]]:
    return [
        (
            name.replace("_", " ") + ", held out",
            f"{value:,}" if isinstance(value, int) else f"{value:.4g}",
        )
        for name, value in held_out.items()
    ]


def _objective(samples: SampleConfig) -> str:
    """Describe the predictions of such sequences."""
    objective = "left-to-right LM" if samples.left_to_right else "masked LM"
    if samples.replaced_tokens:
        objective = "replaced tokens, those of a generator trained by masked LM"
    if samples.pairs:
        objective += f" and {samples.text.replace('_', '-')} prediction"
    return objective


def _parent_rows(run: PretrainRun) -> list[tuple[str, str]]:
    if run.parent is None:
        return []
    name = run.parent.origin or run.parent.folder.name
    rows = [("parent", f"{name}, SHA-256 {run.parent.files_hash}")]
    if new := new_parts(run.parent, run.settings):
        rows.append(("not in the parent", ", ".join(new)))
    return rows


def write_report(
    folder: RunFolder,
    run: PretrainRun,
    held_out: Mapping[str, float],
    *,
    title: str = "Pre-training",
    origin: str = "",
    record: Config | None = None,
) -> None:
    """Write report.html: curves, held-out figures, settings; without matplotlib, print why not.

    `title`, `origin`, the end of the subtitle, and `record`, whose settings are shown, are those of
    a run of which this is the training.
    """
    kind = run.settings.network.family.upper()
    report = Report.if_possible(title, f"{kind} {run.model} on {run.store.name}{origin}")
    if report is None:
        return
    if held_out:
        add_held_out(report, held_out)
    lengths = [phase.max_length for phase in run.settings.phases] + [
        run.settings.samples.max_length
    ]
    add_training(report, {"": folder.log()}, lengths)
    add_preflight(report, folder)
    report.settings("Settings", (record or run).to_dict())
    report.write(folder.report)


def add_preflight(report: Report, folder: RunFolder) -> None:
    """Add the findings of the pre-flight check, if there was one."""
    path = folder.path / PREFLIGHT
    if path.exists():
        try:
            findings = read_record(path)["findings"]
        except RunFolderError as error:
            say(f"{error.where}: {error.problem}; left out of the report")
            return
        rows = [[item["name"], item["found"], _advice(item)] for item in findings]
        report.table("Before training", ["", "finding", "advice"], rows)


def _advice(finding: Mapping[str, str]) -> str:
    """Return the verdict of the check and its remedy, "" for what is fine."""
    return "" if finding["verdict"] == "fine" else f"{finding['verdict']}: {finding['remedy']}"


def add_held_out(report: Report, held_out: Mapping[str, float]) -> None:
    """Add the figures on held-out documents."""
    names = [name for name in NAMES if f"{name}_loss" in held_out]
    rows: list[list[str | int | float]] = [
        [
            NAMES[name],
            round(held_out[f"{name}_loss"], 4),
            _accuracy(held_out, name),
            int(held_out[f"{name}_count"]),
        ]
        for name in names
    ]
    report.table(
        "Held-out documents",
        ["objective", loss_label(names), "accuracy", "targets"],
        rows,
        note="Measured in float32 on documents that training never saw.",
    )


def _accuracy(held_out: Mapping[str, float], name: str) -> str:
    """Return an accuracy, with that of the majority class where classes are uneven."""
    if f"{name}_accuracy" not in held_out:
        return ""
    shown = f"{100 * held_out[f'{name}_accuracy']:.1f} %"
    majority = held_out.get(f"{name}_majority")
    return shown if majority is None else f"{shown} (majority class: {100 * majority:.1f} %)"
