"""The scores of a fine-tuning run on the terminal and on the model card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertsmith.core.log import Table, console, say
from bertsmith.core.printable import markdown
from bertsmith.hub.models import origin
from bertsmith.recipes.finetune.formatting import format_mean, percent, score_label
from bertsmith.recipes.finetune.labelled import overlap
from bertsmith.recipes.finetune.outcome import FinetuneOutcome
from bertsmith.recipes.finetune.trial import Prepared
from bertsmith.reports.model_card import base_of, head_of, note_on_format, written
from bertsmith.weights.folder import read_config

_LONG = {
    "head": "only their beginning was read",
    "tail": "only their end was read",
    "head+tail": "only a quarter of their tokens' room from the beginning and the rest from the "
    "end were read",
    "windows": "they were read in windows",
}


def print_outcome(outcome: FinetuneOutcome) -> None:
    """Print the table of scores and the conclusions, on standard error."""
    table = Table(*outcome.header())
    for column in table.columns[1:]:
        column.justify = "right"
    for row in outcome.rows():
        table.add_row(*row)
    console.print(table)
    if outcome.curve:
        for point in outcome.curve:
            say(f"{point.rows:>9,} {outcome.data.task.unit}: {format_mean(point.values)} %")
    for line in conclusions(outcome):
        say(line)


def conclusions(outcome: FinetuneOutcome) -> list[str]:
    """Return the conclusions drawn from the scores."""
    lines = [outcome.verdict(), outcome.certainty(), *outcome.notes]
    if outcome.constant:
        lines.append(
            f"{outcome.constant} of {len(outcome.seeds)} seeds predict the same for every row: try "
            "another --rate (small models need 3e-4 to 1e-3, large ones less), or more epochs"
        )
    if outcome.grid is not None:
        lines.append(outcome.grid.note())
    return [*lines, outcome.choice()]


def write_card(outcome: FinetuneOutcome, run: dict[str, Any]) -> str:
    """Return the model card: what the model was trained on, and how reliable its scores are."""
    settings, data, best = run["settings"], outcome.data, outcome.best
    if outcome.grid is not None:
        settings = outcome.grid.settings.to_dict()
    beside = "".join(f"; {rival.name} {percent(rival.mean)} %" for rival in outcome.rivals[:1])
    scores = ", ".join(
        f"{score_label(name)} {format_mean(outcome.values(name))} %" for name in outcome.names
    )
    seconds = sum(seed.seconds for seed in outcome.seeds)
    names = (
        f"Outputs, in their order: {', '.join(map(markdown, data.labels))}.\n\n"
        if data.labels
        else ""
    )
    chosen = (
        f"This is the model of seed {best.seed}, the best of them on these very {data.task.unit} "
        f"({percent(best.score)} %), so the mean is the better guess for new texts."
        if len(outcome.seeds) > 1
        else f"This is the model of seed {best.seed}; one seed gives no spread."
    )
    base = Path(run["model"])
    config = read_config(base).with_head(data.task.predicts, data.labels)
    format_note = f"{note}\n\n" if (note := note_on_format(config)) else ""
    longest = min(settings["longest"] or data.task.longest, config.encoder.longest)
    return f"""{written(head_of(config, base=base_of(base)))}
# {data.task.title}

{names}Trained on {len(data.train):,} {data.task.unit} (file of SHA-256 `{run["train_hash"]}`): \
{settings["epochs"]} x each, {settings["batch"]} a step, learning rate {settings["rate"]}, at most \
{longest} tokens at once. Seeds: {len(outcome.seeds)}, in \
{seconds / 60:.1f} minutes of training ({run["device"]}, {run["threads"]} threads).

On {len(data.dev):,} dev {data.task.unit}: {scores} (mean and spread over the seeds){beside}.
{chosen}

{format_note}Made by bertsmith from {origin(base) or "weights"} of SHA-256 `{run["model_hash"]}`.
"""


def describe(prepared: Prepared) -> list[str]:
    """Return lines that describe the data, with warnings."""
    data, task = prepared.data, prepared.task
    lines = []
    for name, rows in (("train", data.train), ("dev", data.dev)):
        held = task.describe(rows, data.labels)
        lines.append(f"{name}: {len(rows):,} {task.unit}" + (f" ({held})" if held else ""))
    if data.dev_is_cut:
        lines[-1] += ", held out of the training file"
    if shared := overlap(data):
        lines.append(f"{shared:,} of the dev {task.unit} have a text that is also in train")
    if line := truncation_note(prepared):
        lines.append(line)
    return lines


def truncation_note(prepared: Prepared) -> str:
    """Return how many texts exceeded the limit, and how they were read; "" if none did."""
    parts, room, task = (prepared.train, prepared.dev), prepared.room, prepared.task
    total = sum(part.texts for part in parts)
    long, cut = sum(part.long_texts for part in parts), sum(part.cut_texts for part in parts)
    lines = []
    if long:
        became = _LONG[room.long if cut and task.fits else "windows"]
        share = f"{long:,} of {total:,} texts ({100 * long / total:.1f} %)"
        lines.append(f"{share} were longer than {room.longest} tokens: {became}")
        lines += ["--long says what is read"] * bool(cut and task.fits)
    if cut and not task.fits:
        lines.append(f"of {cut:,} {task.unit} themselves only the beginning was read")
    return "; ".join(lines)
