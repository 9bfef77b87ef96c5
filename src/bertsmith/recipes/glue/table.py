"""GLUE's table of scores, and the zip file for its leaderboard."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from bertsmith.core.errors import ExampleError
from bertsmith.core.files import made_folder, replaced_file
from bertsmith.core.printable import markdown as shown
from bertsmith.text.examples.glue import HIGHEST, TASKS, GlueTask

COLUMNS = (
    ("MNLI-m", "MNLI", "accuracy"),
    ("-mm", "MNLI-mm", "accuracy"),
    ("QQP", "QQP", "f1"),
    ("QNLI", "QNLI", "accuracy"),
    ("SST-2", "SST-2", "accuracy"),
    ("CoLA", "CoLA", "matthews"),
    ("STS-B", "STS-B", "spearman"),
    ("MRPC", "MRPC", "f1"),
    ("RTE", "RTE", "accuracy"),
)
"""Columns of the paper: name, task, and score in per cent."""

PUBLISHED = {
    "Pre-OpenAI SOTA": (80.6, 80.1, 66.1, 82.3, 93.2, 35.0, 81.0, 86.0, 61.7, 74.0),
    "BiLSTM+ELMo+Attn": (76.4, 76.1, 64.8, 79.8, 90.4, 36.0, 73.3, 84.9, 56.8, 71.0),
    "OpenAI GPT": (82.1, 81.4, 70.3, 87.4, 91.3, 45.4, 80.0, 82.3, 56.0, 75.1),
    "BERT base": (84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4, 79.6),
    "BERT large": (86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1, 82.1),
}
"""Published scores on the test sets, by the leaderboard, and their average."""

NOTE = (
    "Published rows are scores of single models on the test sets, by the leaderboard; ours are on "
    "the dev sets, mean ± spread over the seeds. F1 for QQP and MRPC, Spearman's correlation for "
    "STS-B, Matthews' for CoLA, accuracy for the others, all in per cent. The average is shown "
    "only when all tasks were run; WNLI, which the paper leaves out, is not included."
)

Row = tuple[str, ...]
Scores = Mapping[str, tuple[float, float | None]]


def glue_rows(
    name: str, results: Mapping[str, Mapping[str, tuple[float, float | None]]]
) -> list[Row]:
    """Return the rows of the table, ours last, from mean and spread by task and score."""
    rows = [(model, *(f"{score:.1f}" for score in scores)) for model, scores in PUBLISHED.items()]
    ours = [results.get(task, {}).get(score) for _, task, score in COLUMNS]
    means = [item[0] for item in ours if item is not None]
    average = f"{100 * sum(means) / len(means):.1f}" if len(means) == len(ours) else ""
    rows.append((name, *map(_formatted, ours), average))
    return rows


def header() -> Row:
    """Return the header of the table."""
    return ("", *(column for column, _, _ in COLUMNS), "mean")


def markdown(rows: list[Row]) -> str:
    """Return the table in Markdown."""
    named = [(shown(row[0]), *row[1:]) for row in rows]
    lines = [header(), tuple("---" for _ in header()), *named]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _formatted(score: tuple[float, float | None] | None) -> str:
    if score is None:
        return ""
    mean, spread = score
    return f"{100 * mean:.1f}" + ("" if spread is None else f" ± {100 * spread:.1f}")


ZIP = "submission.zip"
Predictions = Sequence[tuple[str, str | float]]
"""The number of each example of a test file, and its label or score."""

FILES: dict[str, tuple[GlueTask, str]] = {
    file: (task, split) for task in TASKS.values() for split, file in task.submission.items()
}
"""Task and split of each of the leaderboard's files, by name."""

# the earliest time of a zip file, so that the same predictions give the same file
_TIME = (1980, 1, 1, 0, 0, 0)
# bytes; QQP's 390,965 rows are 5 MB
_LARGEST = 2**26


def missing_files(predictions: Mapping[str, Predictions]) -> tuple[str, ...]:
    """Return the files without predictions; the leaderboard requires all of them."""
    return tuple(file for file in FILES if file not in predictions)


def write_submission(folder: Path, predictions: Mapping[str, Predictions]) -> Path:
    """Write `folder`/submission.zip of predictions by the leaderboard's file, such as MNLI-m.tsv.

    Each file has ``index`` and ``prediction``: labels as the task's files write them, the scores of
    STS-B from 0 to 5. Raises `ExampleError` for an unknown label, or a number of rows other than
    that of the published test set, which the leaderboard refuses.
    """
    tables = {file: _table(file, rows) for file, rows in predictions.items()}
    path = folder / ZIP
    with (
        made_folder(folder),
        replaced_file(path) as fresh,
        zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for file, table in tables.items():
            packed.writestr(zipfile.ZipInfo(file, _TIME), table, zipfile.ZIP_DEFLATED)
    return path


def read_submission(folder: Path) -> dict[str, Predictions]:
    """Return the predictions in `folder`/submission.zip, by the leaderboard's file.

    Those that `write_submission` would refuse are left out; empty if the zip file is missing or
    cannot be read.
    """
    predictions: dict[str, Predictions] = {}
    try:
        with zipfile.ZipFile(folder / ZIP) as packed:
            for file in FILES.keys() & set(packed.namelist()):
                if packed.getinfo(file).file_size > _LARGEST:
                    continue
                rows = _rows(file, packed.read(file).decode("utf-8"))
                with suppress(ExampleError):
                    _table(file, rows)
                    predictions[file] = rows
    except (OSError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error):
        # RuntimeError is raised for encrypted files, and for unsupported compression methods
        return {}
    return {file: predictions[file] for file in FILES if file in predictions}


def _rows(file: str, table: str) -> Predictions:
    task, _ = FILES[file]
    pairs = [line.split("\t", 1) for line in table.splitlines()[1:]]
    return [
        (index, prediction if task.labels else float(prediction)) for index, prediction in pairs
    ]


def _table(file: str, rows: Predictions) -> str:
    if file not in FILES:
        remedy = f"it has {', '.join(FILES)}"
        raise ExampleError("is not a file of GLUE's leaderboard", where=file, remedy=remedy)
    task, split = FILES[file]
    if len(rows) != task.sizes[split]:
        what = f"{len(rows):,} predictions, and the test set has {task.sizes[split]:,}"
        raise ExampleError(what, where=file, remedy="predict the whole of the distributed file")
    if len({index for index, _ in rows}) < len(rows):
        raise ExampleError("two predictions of one index", where=file, remedy="predict each once")
    lines = [f"{index}\t{_written(file, task, value)}" for index, value in rows]
    return "\n".join(["index\tprediction", *lines]) + "\n"


def _written(file: str, task: GlueTask, value: str | float) -> str:
    if not task.labels:
        if isinstance(value, str) or not math.isfinite(value):
            raise ExampleError(f"{value!r} is no score", where=file, remedy="give finite numbers")
        return f"{min(max(value, 0.0), HIGHEST):.3f}"
    if value not in task.labels:
        remedy = f"they are {', '.join(task.labels)}"
        raise ExampleError(f"{value!r} is not a label of {task.name}", where=file, remedy=remedy)
    return str(value)
