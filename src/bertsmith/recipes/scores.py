"""The scores of a fine-tuning on the terminal and on a page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

from bertsmith.errors import MissingExtra
from bertsmith.evaluation.metrics import confusion_matrix
from bertsmith.log import console, say
from bertsmith.recipes.card import base_of, head_of, written
from bertsmith.recipes.labelled import LabelledData, count_classes, overlap
from bertsmith.recipes.outcome import BASELINE, HEADER, FinetuneOutcome, told
from bertsmith.training.report import Report
from bertsmith.training.report_training import add_training
from bertsmith.training.run_folder import RunFolder
from bertsmith.weights.folder import read_config
from bertsmith.weights.hub import origin


def tell(outcome: FinetuneOutcome) -> None:
    """Print the table of scores and what to make of them, on standard error."""
    table = Table(*HEADER)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in outcome.rows():
        table.add_row(*row)
    console.print(table)
    say(outcome.verdict())
    if outcome.degenerate:
        say(
            f"{outcome.degenerate} of {len(outcome.seeds)} seeds predict one class throughout: "
            "try another --rate (small models want 3e-4 to 1e-3, large ones less), or more epochs"
        )
    say(outcome.choice())


def write_report(outcome: FinetuneOutcome, path: Path, settings: dict[str, Any]) -> None:
    """Write the page of the run; without matplotlib, say so instead."""
    data, best = outcome.data, outcome.best
    try:
        report = Report("Fine-tuning", f"{len(data.labels)} classes, seeds: {len(outcome.seeds)}")
    except MissingExtra as error:
        say(f"no report: {error}")
        return
    report.table("Scores on dev", HEADER, outcome.rows(), note=outcome.verdict())
    report.text("Model", [outcome.choice()])
    report.text("Data", describe(data, outcome.cut))
    logs = {
        f"seed {seed.seed}": RunFolder(outcome.folder / "seeds" / f"seed-{seed.seed}").log()
        for seed in outcome.seeds
    }
    add_training(report, logs)
    truth, classes = data.classes(data.dev), len(data.labels)
    title = f"Confusion on dev, seed {best.seed}"
    report.confusion(
        title, confusion_matrix(truth, best.predictions, classes).tolist(), data.labels
    )
    if outcome.baseline is not None:
        matrix = confusion_matrix(truth, outcome.baseline.predictions, classes)
        report.confusion(f"Confusion on dev, {BASELINE}", matrix.tolist(), data.labels)
    report.settings("Settings", settings)
    report.write(path)


def write_card(outcome: FinetuneOutcome, run: dict[str, Any]) -> str:
    """The model card: what the model was made of, and how far to trust it."""
    settings, data, best = run["settings"], outcome.data, outcome.best
    rival = outcome.baseline
    beside = f"; {BASELINE} {100 * rival.accuracy:.2f} %" if rival is not None else ""
    seconds = sum(seed.seconds for seed in outcome.seeds)
    chosen = (
        f"This is the model of seed {best.seed}, the best of them on these very examples "
        f"({100 * best.accuracy:.2f} %), so the mean is the better guess for new texts."
        if len(outcome.seeds) > 1
        else f"This is the model of seed {best.seed}; one seed says nothing of the spread."
    )
    base = Path(run["model"])
    config = replace(read_config(base), pooler=True, predicts="class", labels=data.labels)
    return f"""{written(head_of(config, base=base_of(base)))}
# A classifier of {len(data.labels)} classes

Classes, in the order of the outputs: {", ".join(data.labels)}.

Trained on {len(data.train):,} examples (file of SHA-256 `{run["train_hash"]}`): \
{settings["epochs"]} x each example, {settings["batch"]} a step, learning rate \
{settings["rate"]}, texts cut at {settings["longest"]} tokens. Seeds: {len(outcome.seeds)}, in \
{seconds / 60:.1f} minutes of training ({run["device"]}, {run["threads"]} threads).

On {len(data.dev):,} dev examples: accuracy {told(outcome.accuracy)} %, macro F1 \
{told(outcome.macro_f1)} % (mean and spread over the seeds){beside}.
{chosen}

Made by bertsmith from {origin(base) or "weights"} of SHA-256 `{run["model_hash"]}`.
"""


def describe(data: LabelledData, cut: int) -> list[str]:
    """The data in words, with what is to be feared of it."""
    lines = [
        f"train: {len(data.train):,} examples ({count_classes(data.train, data.labels)})",
        f"dev: {len(data.dev):,} examples ({count_classes(data.dev, data.labels)})"
        + (", held out of the training file" if data.dev_is_cut else ""),
    ]
    if shared := overlap(data):
        lines.append(f"{shared:,} of the dev examples have a text that is also in train")
    if cut:
        total = len(data.train) + len(data.dev)
        lines.append(f"{cut:,} of {total:,} examples were longer than the limit and were cut")
    return lines
