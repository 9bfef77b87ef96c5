"""What a pre-training run tells of itself: the model card and the report page."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from bertsmith import __version__
from bertsmith.batches.store import StoreIndex
from bertsmith.errors import MissingExtra
from bertsmith.log import say
from bertsmith.recipes.continuing import new_parts
from bertsmith.recipes.pretrain_settings import PretrainRun
from bertsmith.training.checkpoints import State
from bertsmith.training.report import Report
from bertsmith.training.run_folder import RunFolder


def model_card(
    run: PretrainRun, store: StoreIndex, state: State, held_out: Mapping[str, float]
) -> str:
    """The README.md of the model folder: what it was made of, how, and how good it is."""
    samples = run.settings.samples
    objectives = "left-to-right LM" if samples.left_to_right else "masked LM"
    if samples.pairs:
        objectives += f" and {samples.text.replace('_', '-')} prediction"
    rows = [
        ("network", f"BERT {run.model}, vocabulary {store.fingerprint[:16]}"),
        *_parent_rows(run),
        ("objective", objectives),
        (
            "corpus",
            f"{store.documents:,} documents, {store.words:,} words, {store.tokens:,} tokens",
        ),
        ("corpus hash", run.store_hash),
        (
            "tokens seen",
            f"{state.tokens:,} in {state.step:,} steps, {state.place.epoch + 1} epochs",
        ),
        (
            "time",
            f"{state.seconds / 60:.1f} minutes of training on {run.device}, {run.threads} threads",
        ),
        ("machine", f"{platform.machine()}, torch {torch.__version__}"),
        ("seed", str(run.settings.seed)),
        *(
            (name.replace("_", " ") + ", held out", f"{value:.4g}")
            for name, value in held_out.items()
        ),
        ("made", f"{datetime.now(UTC):%Y-%m-%d} with bertsmith {__version__}"),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    parent = run.parent and run.parent.folder.name
    origin = f"Trained further, from `{parent}`," if parent else "Pre-trained from scratch"
    return f"""---
library_name: transformers
pipeline_tag: fill-mask
tags: [bert, bertsmith]
---
# A BERT encoder

{origin} with bertsmith. Load it with `transformers` or `bertsmith`.

| what | value |
|---|---|
{table}
"""


def _parent_rows(run: PretrainRun) -> list[tuple[str, str]]:
    if run.parent is None:
        return []
    rows = [("parent", f"{run.parent.folder.name}, SHA-256 {run.parent.files_hash}")]
    if new := new_parts(run.parent, run.settings):
        rows.append(("not in the parent", ", ".join(new)))
    return rows


def write_report(folder: RunFolder, run: PretrainRun, held_out: Mapping[str, float]) -> Path | None:
    """Write report.html: curves, held-out figures, settings; None without matplotlib."""
    try:
        report = Report("Pre-training", f"BERT {run.model} on {run.store.name}")
    except MissingExtra as missing:
        say(f"no report: {missing}")
        return None
    add_curves(report, folder.log())
    if held_out:
        add_held_out(report, held_out)
    report.settings("Settings", run.to_dict())
    report.write(folder.report)
    return folder.report


def add_curves(report: Report, log: list[dict[str, Any]]) -> None:
    """Loss, accuracy and speed over the minutes of training."""
    shown = {"masked_lm": "masked LM", "next_sentence": "next sentence"}
    for figure, label in (("loss", "loss (nats)"), ("accuracy", "accuracy")):
        series = {
            title: [
                (line["seconds"] / 60, line[f"{name}_{figure}"])
                for line in log
                if f"{name}_{figure}" in line
            ]
            for name, title in shown.items()
        }
        report.curves(
            f"Training {figure}",
            {title: points for title, points in series.items() if points},
            x_label="minutes",
            y_label=label,
            percent=figure == "accuracy",
        )
    speed = [(line["seconds"] / 60, line["tokens_per_second"]) for line in log]
    report.curves("Speed", {"tokens/s": speed}, x_label="minutes", y_label="tokens a second")


def add_held_out(report: Report, held_out: Mapping[str, float]) -> None:
    """The figures on documents that were not trained on."""
    rows: list[list[str | int | float]] = [
        [
            title,
            round(held_out[f"{name}_loss"], 4),
            f"{100 * held_out[f'{name}_accuracy']:.1f} %",
            int(held_out[f"{name}_count"]),
        ]
        for name, title in (("masked_lm", "masked LM"), ("next_sentence", "next sentence"))
        if f"{name}_loss" in held_out
    ]
    report.table(
        "Held-out documents",
        ["objective", "loss (nats)", "accuracy", "targets"],
        rows,
        note="Measured in float32 on documents that training never saw.",
    )
