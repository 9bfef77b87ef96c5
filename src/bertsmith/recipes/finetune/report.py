"""The report page and the model card of a fine-tuning run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.printable import counted
from bertsmith.evaluation.metrics import (
    calibration,
    confusion_counts,
    error_by_chance,
    format_mean,
    percent,
    score_label,
)
from bertsmith.hub.models import origin
from bertsmith.network.model import Model
from bertsmith.recipes.finetune.outcome import FinetuneOutcome, conclusions
from bertsmith.recipes.finetune.trial import DEV
from bertsmith.reports.model_card import (
    base_of,
    described_outputs,
    head_of,
    note_on_format,
    written,
)
from bertsmith.reports.page import Report
from bertsmith.reports.training import add_training
from bertsmith.tasks.task import Task, counted_rows, right_rows
from bertsmith.training.run_folder import RunFolder, read_record
from bertsmith.weights.folder import load_model, read_config


def weight_change(before: Path, after: Path) -> list[tuple[str, float]]:
    """Return the relative change in norm of each layer's weights: embeddings, then every block."""
    first, last = load_model(before)[0], load_model(after)[0]
    layers = range(len(first.encoder.blocks))
    prefixes = ["encoder.embeddings.", *(f"encoder.blocks.{n}." for n in layers)]
    names = ["embeddings", *(f"layer {n + 1}" for n in layers)]
    return [
        (name, _change(first, last, prefix)) for name, prefix in zip(names, prefixes, strict=True)
    ]


def _change(before: Model, after: Model, prefix: str) -> float:
    moved = length = 0.0
    later = dict(after.named_parameters())
    for name, parameter in before.named_parameters():
        if name.startswith(prefix):
            before_norms, after_norms = parameter.detach().double(), later[name].detach().double()
            moved += float((after_norms - before_norms).square().sum())
            length += float(before_norms.square().sum())
    return float((moved / length) ** 0.5) if length else 0.0


# characters of a text shown in a table, and those of its end among them
_SHOWN, _END = 240, 80

Right = NDArray[np.bool_]
Confidence = NDArray[np.float64]


def calibration_points(confidence: Confidence, right: Right) -> list[tuple[float, float]]:
    """Return mean confidence (x) and accuracy (y) of each calibration bin."""
    bins = calibration(confidence, right).bins
    return [(item.confidence, item.accuracy) for item in bins]


def calibration_note(confidence: Confidence, right: Right) -> str:
    """Return the expected calibration error, what chance alone makes it, and answers a point."""
    measured, chance = calibration(confidence, right), error_by_chance(confidence)
    counts = ", ".join(f"{item.count:,}" for item in measured.bins)
    sure, share = float(confidence.mean()), float(right.mean())
    return (
        f"On average the model gives its answer a probability of {sure:.3f} and is right in "
        f"{share:.3f} of the cases; expected calibration error {measured.error:.3f}, where as many "
        f"answers of a perfectly calibrated model have {chance:.3f} on average. The points, from "
        f"left to right, are of {counts} answers."
    )


def mistakes(
    task: Task[Any],
    rows: Sequence[Any],
    answers: Sequence[dict[str, Any]],
    right: Right,
    count: int,
) -> list[tuple[str, str, str, str, str]]:
    """Return the wrong answers with the highest confidence, or the first where none is known.

    Each row has the line, the input, the true and the predicted answer, and the confidence.
    """
    sure = [float(answer.get("probability", 0.0)) for answer in answers]
    wrong = sorted(np.flatnonzero(~right).tolist(), key=lambda row: -sure[row])[:count]
    return [
        (
            f"{rows[row].line}",
            " | ".join(map(_written, task.present.inputs(rows[row]).values())),
            _short(task.present.truth(rows[row])),
            _short(task.present.predicted(rows[row], answers[row])),
            f"{sure[row]:.3f}",
        )
        for row in wrong
    ]


def mistakes_note(answers: Sequence[dict[str, Any]], right: Right) -> str:
    """Return a note with the number of wrong answers, and how many of them are withheld."""
    note = f"{int((~right).sum()):,} of {len(right):,} are wrong"
    # a class or an option is None where its probability is below the threshold
    withheld = [answer.get("label", answer.get("choice", "")) is None for answer in answers]
    if count := int((~right & withheld).sum()):
        note += f", of which {count:,} with - are not given: they are too unsure"
    return f"{note}."


def _written(value: Any) -> str:  # noqa: ANN401
    """Return an input, or a list of them, such as options, as text."""
    return _short(" / ".join(map(str, value)) if isinstance(value, list) else str(value))


def _short(text: str) -> str:
    """Return a text, of a long one the beginning, and the end: a question may be there."""
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - _END]} … {text[-_END:]}"


_MISTAKES = 20


def write_report(outcome: FinetuneOutcome, path: Path, run: dict[str, Any]) -> None:
    """Write the report of the run; without matplotlib, print why there is none."""
    data = outcome.data
    subtitle = f"{data.task.title}, {counted_rows(data.task, data.train)}, seeds: "
    report = Report.if_possible("Fine-tuning", f"{subtitle}{len(outcome.seeds)}")
    if report is None:
        return
    report.table("Scores on dev", outcome.header(), outcome.rows(), note=outcome.verdict())
    report.text("Conclusions", conclusions(outcome)[1:])
    _add_trials(report, outcome)
    _add_errors(report, outcome)
    logs = {
        f"seed {seed.seed}": RunFolder(outcome.folder / "seeds" / f"seed-{seed.seed}").log()
        for seed in outcome.seeds
    }
    add_training(report, logs)
    _add_weights(report, outcome, Path(run["model"]))
    report.settings("Settings", run)
    report.write(path)


def _add_layers(report: Report, outcome: FinetuneOutcome) -> None:
    """Draw what linear models on the frozen layers score, and the mix that one of them learned."""
    baselines = {baseline.name: baseline for baseline in outcome.baselines}
    names = ["frozen, embeddings", *(f"frozen, layer {n}" for n in range(1, len(baselines)))]
    points = [(float(n), baselines[name].mean) for n, name in enumerate(names) if name in baselines]
    if len(points) < 2:
        return
    tuned = float(np.mean([seed.score for seed in outcome.seeds]))
    series = {"a linear model on one layer": points}
    series["fine-tuned"] = [(points[0][0], tuned), (points[-1][0], tuned)]
    best = max(points, key=lambda point: point[1])
    report.curves(
        "Which layer?",
        series,
        x_label="layer (0: embeddings)",
        y_label=score_label(outcome.names[0]),
        percent=True,
        note=f"Nothing but a linear model is trained, on layer {best[0]:.0f} with most success.",
    )
    mixed = next((baseline for baseline in outcome.baselines if baseline.shares), None)
    if mixed is not None:
        first = round(points[-1][0]) + 1 - len(mixed.shares)
        shares = [(float(layer), share) for layer, share in enumerate(mixed.shares, first)]
        report.curves(
            "The learned mix of the layers",
            {mixed.name: shares},
            x_label="layer (0: embeddings)",
            y_label="share",
            percent=True,
            note=f"They add up to one; the mix scores {percent(mixed.mean)} %.",
        )


def _add_trials(report: Report, outcome: FinetuneOutcome) -> None:
    """Add the details of the baselines, the grid, and the learning curve."""
    score = score_label(outcome.names[0])
    detailed = [baseline for baseline in outcome.baselines if baseline.detail]
    if detailed:
        rows = [(baseline.name, percent(baseline.mean), baseline.detail) for baseline in detailed]
        report.table("Baselines", ("", f"{score} %", "how"), rows)
        _add_layers(report, outcome)
    if outcome.grid is not None:
        cells = sorted(outcome.grid.cells, key=lambda cell: cell.result.rank, reverse=True)
        table = [
            (
                *(f"{cell.settings.chosen_learning_rate:g}", str(cell.settings.batch_size)),
                *(str(cell.settings.chosen_epochs), percent(cell.result.score)),
                f"{cell.result.seconds:.1f}",
            )
            for cell in cells
        ]
        header = ("rate", "batch", "epochs", f"{score} %", "seconds")
        report.table("Grid", header, table, note=outcome.grid.note())
    if outcome.curve:
        means = [(float(point.rows), float(np.mean(point.values))) for point in outcome.curve]
        points = [f"{point.rows:,}: {format_mean(point.values)} %" for point in outcome.curve]
        report.curves(
            "Learning curve",
            {score: means},
            x_label=f"labelled {outcome.data.task.unit}",
            y_label=score,
            percent=True,
            note=f"{score} on dev, mean ± spread over the seeds. " + "; ".join(points),
        )


def _add_errors(report: Report, outcome: FinetuneOutcome) -> None:
    """Add confusion matrix, calibration and the most confident mistakes of the best seed."""
    data, seed = outcome.data, outcome.best.seed
    dev = read_record(outcome.folder / "seeds" / f"seed-{seed}" / DEV)
    evidence = np.array(dev["evidence"], np.float64)
    if data.task.head == "class":
        true, predicted = evidence[:, :2].astype(np.int64).T
        counts = confusion_counts(true, predicted)
        report.confusion(f"Confusion on dev, seed {seed}", counts, data.labels)
    right = right_rows(data.task, evidence)
    if right is None:
        return
    # several labels have no probability in common
    known = all(answer.get("probability") is not None for answer in dev["answers"])
    if known:
        add_calibration(report, seed, dev["answers"], right)
    rows = mistakes(data.task, data.dev, dev["answers"], right, _MISTAKES)
    title = f"{'Most confident mistakes' if known else 'Mistakes'} on dev, seed {seed}"
    note = mistakes_note(dev["answers"], right)
    if not rows:
        report.text(title, [note])
        return
    header = ("line", "input", "true", "predicted", "confidence")
    report.table(
        title,
        header if known else header[:-1],
        rows if known else [row[:-1] for row in rows],
        note=note,
    )


def add_calibration(
    report: Report, seed: int, answers: Sequence[dict[str, Any]], right: Right
) -> None:
    """Add the calibration of the answers given: that there is none has no probability."""
    given = np.array([answer.get("answer") != "" for answer in answers])
    if not given.any():
        return
    confidence = np.array([answer["probability"] for answer in answers], np.float64)[given]
    withheld = len(given) - int(given.sum())
    left_out = f" Left out: {withheld:,} of {len(given):,}, to which no answer is given."
    report.curves(
        f"Calibration on dev, seed {seed}",
        {
            "this model": calibration_points(confidence, right[given]),
            "perfect calibration": [(0.0, 0.0), (1.0, 1.0)],
        },
        x_label="confidence",
        y_label="accuracy",
        percent=True,
        note=calibration_note(confidence, right[given]) + (left_out if withheld else ""),
    )


def _add_weights(report: Report, outcome: FinetuneOutcome, base: Path) -> None:
    changes = weight_change(base, outcome.model)
    report.curves(
        "Weight change",
        {"change": [(float(number), change) for number, (_, change) in enumerate(changes)]},
        x_label="layer",
        y_label="relative change",
        percent=True,
        note="The length of the change over that of the weights, 0 being the embeddings. "
        + "; ".join(f"{name}: {percent(change)} %" for name, change in changes)
        + f" (seed {outcome.best.seed})",
    )


def write_card(outcome: FinetuneOutcome, run: dict[str, Any]) -> str:
    """Return the model card: what the model was trained on, and how reliable its scores are."""
    settings, data, best = run["settings"], outcome.data, outcome.best
    if outcome.grid is not None:
        settings = outcome.grid.best.settings.to_dict()
    beside = "".join(
        f"; {baseline.name} {percent(baseline.mean)} %" for baseline in outcome.baselines[:1]
    )
    scores = ", ".join(
        f"{score_label(name)} {format_mean(outcome.values(name))} %" for name in outcome.names
    )
    seconds = sum(seed.seconds for seed in outcome.seeds)
    spread = " (mean and spread over the seeds)" if len(outcome.seeds) > 1 else ""
    chosen = (
        f"This is the model of seed {best.seed}, the best of them on these very {data.task.unit} "
        f"({percent(best.score)} %), so the mean is the better guess for new texts."
        if len(outcome.seeds) > 1
        else f"This is the model of seed {best.seed}; one seed gives no spread."
    )
    base = Path(run["model"])
    config = read_config(base).with_head(data.task.head, data.labels)
    format_note = f"{note}\n\n" if (note := note_on_format(config)) else ""
    longest = min(settings["max_length"] or data.task.learning.longest, config.encoder.longest)
    return f"""{written(head_of(config, base=base_of(base)))}
# {data.task.title}

{described_outputs(data.labels)}\
Trained on {counted_rows(data.task, data.train)} (file of SHA-256 `{run["train_hash"]}`): \
{counted(settings["epochs"], "epoch")}, batch size {settings["batch_size"]}, learning rate \
{settings["learning_rate"]}, at most {longest} tokens at once. Seeds: {len(outcome.seeds)}, in \
{seconds / 60:.1f} minutes of training ({run["device"]}, {counted(run["threads"], "thread")}).

On {len(data.dev):,} dev {data.task.unit}: {scores}{spread}{beside}.
{chosen}

{format_note}Made by bertsmith from {origin(base) or "weights"} of SHA-256 `{run["model_hash"]}`.
"""
