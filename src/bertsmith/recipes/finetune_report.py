"""The page that tells of a fine-tuning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.errors import MissingExtra
from bertsmith.evaluation.metrics import confusion_matrix
from bertsmith.log import say
from bertsmith.recipes.finetune_mistakes import calibration_note, calibration_points, mistakes
from bertsmith.recipes.outcome import FinetuneOutcome
from bertsmith.recipes.scores import conclusions
from bertsmith.recipes.telling import in_words, percent, told
from bertsmith.recipes.trial_folder import DEV
from bertsmith.recipes.weight_change import weight_change
from bertsmith.training.records import read_record
from bertsmith.training.report import Report
from bertsmith.training.report_training import add_training
from bertsmith.training.run_folder import RunFolder

_MISTAKES = 20


def write_report(outcome: FinetuneOutcome, path: Path, run: dict[str, Any]) -> None:
    """Write the page of the run; without matplotlib, say so instead."""
    data = outcome.data
    subtitle = f"{data.task.title}, {len(data.train):,} {data.task.unit}, seeds: "
    try:
        report = Report("Fine-tuning", f"{subtitle}{len(outcome.seeds)}")
    except MissingExtra as error:
        say(f"no report: {error}")
        return
    report.table("Scores on dev", outcome.header(), outcome.rows(), note=outcome.verdict())
    report.text("What to make of them", conclusions(outcome)[1:])
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


def _add_trials(report: Report, outcome: FinetuneOutcome) -> None:
    """The contestants' details, the grid, and the learning curve."""
    score = in_words(outcome.names[0])
    detailed = [rival for rival in outcome.rivals if rival.detail]
    if detailed:
        rows = [(rival.name, percent(rival.mean), rival.detail) for rival in detailed]
        report.table("Contestants", ("", f"{score} %", "how"), rows)
    if outcome.grid is not None:
        cells = sorted(outcome.grid.cells, key=lambda cell: cell.result.rank, reverse=True)
        table = [
            (f"{c.rate:g}", str(c.batch), str(c.epochs), percent(c.result.score),
             f"{c.result.seconds:.1f}")
            for c in cells
        ]  # fmt: skip
        header = ("rate", "batch", "epochs", f"{score} %", "seconds")
        report.table("Grid", header, table, note=outcome.grid.note())
    if outcome.curve:
        means = [(float(point.rows), float(np.mean(point.values))) for point in outcome.curve]
        points = [f"{point.rows:,}: {told(point.values)} %" for point in outcome.curve]
        report.curves(
            "Learning curve",
            {score: means},
            x_label=f"labelled {outcome.data.task.unit}",
            y_label=score,
            percent=True,
            note=f"{score} on dev, mean ± spread over the seeds. " + "; ".join(points),
        )


def _add_errors(report: Report, outcome: FinetuneOutcome) -> None:
    """Confusion, calibration and the most confident mistakes of the best seed."""
    data, seed = outcome.data, outcome.best.seed
    dev = read_record(outcome.folder / "seeds" / f"seed-{seed}" / DEV)
    evidence = np.array(dev["evidence"], np.float64)
    if data.task.predicts == "class":
        true, said = evidence[:, :2].astype(np.int64).T
        matrix = confusion_matrix(true, said, len(data.labels)).tolist()
        report.confusion(f"Confusion on dev, seed {seed}", matrix, data.labels)
    sure = [answer.get("probability") for answer in dev["answers"]]
    right = data.task.right(evidence)
    if right is not None and None not in sure:
        confidence = np.array(sure, np.float64)
        report.curves(
            f"Calibration on dev, seed {seed}",
            {
                "right": calibration_points(confidence, right),
                "if it were as right as it is sure": [(0.0, 0.0), (1.0, 1.0)],
            },
            x_label="probability that the model gives its answer",
            y_label="share that is right",
            percent=True,
            note=calibration_note(confidence, right),
        )
    if right is not None:
        rows = mistakes(data.task, data.dev, dev["answers"], right, _MISTAKES)
        report.table(
            f"Most confident mistakes on dev, seed {seed}",
            ("line", "asked", "true", "said", "sure"),
            rows,
            note=f"{int((~right).sum()):,} of {len(right):,} are wrong.",
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
