"""The model card and the report page of a pre-training run."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import torch

from bertsmith.core import VERSION
from bertsmith.core.errors import MissingExtra, RunFolderError
from bertsmith.core.log import say
from bertsmith.core.printable import counted, markdown
from bertsmith.network.families.catalog import FAMILIES
from bertsmith.network.model import ModelConfig
from bertsmith.recipes.pretrain.config import PretrainRun
from bertsmith.recipes.pretrain.starting import new_parts
from bertsmith.reports.model_card import base_of, head_of, written
from bertsmith.reports.page import Report
from bertsmith.reports.training import NAMES, add_training
from bertsmith.store.store import StoreIndex
from bertsmith.training.checkpoints import State
from bertsmith.training.run_folder import PREFLIGHT, RunFolder, read_record


def model_card(
    run: PretrainRun,
    config: ModelConfig,
    store: StoreIndex,
    state: State,
    held_out: Mapping[str, float],
) -> str:
    """Return the README.md of the model folder: data, settings, and results."""
    samples, family = run.settings.samples, run.settings.network.family
    objectives = "left-to-right LM" if samples.left_to_right else "masked LM"
    if samples.replaced_tokens:
        objectives = "replaced tokens, those of a generator trained by masked LM"
    if samples.pairs:
        objectives += f" and {samples.text.replace('_', '-')} prediction"
    rows = [
        ("network", f"{family.upper()} {run.model}, vocabulary {store.fingerprint[:16]}"),
        *_parent_rows(run),
        ("objective", objectives),
        (
            "corpus",
            f"{counted(store.documents, 'document')}, {counted(store.text.words, 'word')}, "
            + counted(store.tokens, "token"),
        ),
        ("corpus hash", run.store_hash),
        (
            "tokens seen",
            f"{state.tokens:,} in {counted(state.step, 'step')}, "
            + counted(state.place.epoch + 1, "epoch"),
        ),
        (
            "time",
            f"{state.elapsed / 60:.1f} minutes on the clock, {state.seconds / 60:.1f} of them in "
            f"steps, on {run.device}, {counted(run.threads, 'thread')}",
        ),
        ("machine", f"{platform.machine()}, torch {torch.__version__}"),
        ("seed", str(run.settings.seed)),
        *(
            (name.replace("_", " ") + ", held out", f"{value:.4g}")
            for name, value in held_out.items()
        ),
        ("made", f"{datetime.now(UTC):%Y-%m-%d} with bertsmith {VERSION}"),
    ]
    table = "\n".join(f"| {name} | {markdown(value, 1000)} |" for name, value in rows)
    parent = run.parent and (run.parent.origin or run.parent.folder.name)
    origin = f"Trained further, from {markdown(parent)}," if parent else "Pre-trained from scratch"
    base = None if run.parent is None else base_of(run.parent.folder)
    title = FAMILIES[family].title
    article = "An" if title[0] in "AEX" else "A"
    return f"""{written(head_of(config, base=base))}
# {article} {title} encoder

{origin} with bertsmith. Load it with `transformers` or `bertsmith`.

| what | value |
|---|---|
{table}
"""


def _parent_rows(run: PretrainRun) -> list[tuple[str, str]]:
    if run.parent is None:
        return []
    name = run.parent.origin or run.parent.folder.name
    rows = [("parent", f"{name}, SHA-256 {run.parent.files_hash}")]
    if new := new_parts(run.parent, run.settings):
        rows.append(("not in the parent", ", ".join(new)))
    return rows


def write_report(folder: RunFolder, run: PretrainRun, held_out: Mapping[str, float]) -> Path | None:
    """Write report.html: curves, held-out figures, settings; return None without matplotlib."""
    try:
        kind = run.settings.network.family.upper()
        report = Report("Pre-training", f"{kind} {run.model} on {run.store.name}")
    except MissingExtra as missing:
        say(f"no report: {missing}")
        return None
    if held_out:
        add_held_out(report, held_out)
    lengths = [phase.max_length for phase in run.settings.phases] + [
        run.settings.samples.max_length
    ]
    add_training(report, {"": folder.log()}, lengths)
    add_preflight(report, folder)
    report.settings("Settings", run.to_dict())
    report.write(folder.report)
    return folder.report


def add_preflight(report: Report, folder: RunFolder) -> None:
    """Add the findings of the pre-flight check, if there was one."""
    path = folder.path / PREFLIGHT
    if path.exists():
        try:
            findings = read_record(path)["findings"]
        except RunFolderError as error:
            say(f"{error.where}: {error.what}; left out of the report")
            return
        rows = [
            [item["name"], item["found"], item["verdict"] if item["verdict"] != "fine" else ""]
            for item in findings
        ]
        report.table("Before training", ["", "finding", ""], rows)


def add_held_out(report: Report, held_out: Mapping[str, float]) -> None:
    """Add the figures on held-out documents."""
    rows: list[list[str | int | float]] = [
        [
            title,
            round(held_out[f"{name}_loss"], 4),
            f"{100 * held_out[f'{name}_accuracy']:.1f} %",
            int(held_out[f"{name}_count"]),
        ]
        for name, title in NAMES.items()
        if f"{name}_loss" in held_out
    ]
    report.table(
        "Held-out documents",
        ["objective", "loss (nats)", "accuracy", "targets"],
        rows,
        note="Measured in float32 on documents that training never saw.",
    )
