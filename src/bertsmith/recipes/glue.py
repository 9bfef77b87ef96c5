"""GLUE: fine-tuning on every available task, the paper's table, the leaderboard's zip file.

    OUT/
      RTE/ ...           a fine-tuning run per task
      results.json       all scores, by task
      table.md           the paper's table with a row of ours
      submission.zip     the answers to the test files

The same command resumes an interrupted run. Tasks of the same model that a call does not name are
kept in the table and the zip file.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.core.errors import ConfigError, ExampleError, RunFolderError
from bertsmith.core.files import (
    created_folder,
    followed,
    read_json,
    replaced_file,
    write_json,
)
from bertsmith.core.log import Table, console, say
from bertsmith.core.ownership import claimed_output
from bertsmith.core.printable import counted
from bertsmith.core.printable import markdown as shown
from bertsmith.engine.config import FULL_PRECISION
from bertsmith.engine.devices import device_named
from bertsmith.engine.prepared import prepare_model
from bertsmith.evaluation.metrics import format_scores, mean_and_spread
from bertsmith.hub.models import model_folder
from bertsmith.recipes.finetune.config import FinetuneConfig, FinetuneSettings, GlueConfig
from bertsmith.recipes.finetune.inputs import limits_of
from bertsmith.recipes.finetune.outcome import FinetuneOutcome
from bertsmith.recipes.finetune.recipe import finetune
from bertsmith.tasks.answering import TaskAnswering
from bertsmith.tasks.config import LabelLoss
from bertsmith.tasks.glue import GLUE
from bertsmith.tasks.task import Task, score_answers
from bertsmith.text.bad_rows import BadRows
from bertsmith.text.examples.example import Example
from bertsmith.text.examples.glue import MAX_SCORE, TASKS, GlueTask, find_glue, read_glue
from bertsmith.training.run_folder import RunFolder
from bertsmith.weights.folder import load_model
from bertsmith.weights.tensors import weights_hash
from bertsmith.weights.versions import FolderVersion

MATCHED, MISMATCHED = "MNLI", "MNLI-mm"
DIAGNOSTIC = "AX"
"""Diagnostic task, answered by the model of MNLI."""
RESULTS = "results.json"
"""File of all scores."""

_MAX_BYTES = 2**20

Score = tuple[float, float | None]
"""Mean and spread, in shares of 1."""


def _read_earlier(
    out: Path, model_hash: str, *, without: Set[str]
) -> tuple[dict[str, dict[str, Score]], dict[str, Predictions]]:
    """Return scores and answers in `out` of runs from the model with that hash, `without` tasks.

    A row of the table is of one model: results of another are ignored. So is what cannot be read,
    as naming its task restores it.
    """
    tasks = set(_tasks_of(out, model_hash)) - without
    if MATCHED in tasks:
        tasks |= {MISMATCHED, DIAGNOSTIC}
    files = {file for file, (task, _) in FILES.items() if task.name in tasks}
    try:
        results = read_json(out / RESULTS, RunFolderError, largest=_MAX_BYTES)
        scores = {name: _scores(values) for name, values in results.items() if name in tasks}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}, {}
    answers = {file: rows for file, rows in read_submission(out).items() if file in files}
    return scores, answers


def _scores(values: Mapping[str, Mapping[str, Any]]) -> dict[str, Score]:
    scores: dict[str, Score] = {}
    for name, score in values.items():
        mean, spread = score["mean"], score["spread"]
        scores[name] = (float(mean), None if spread is None else float(spread))
    return scores


def _tasks_of(out: Path, model_hash: str) -> Iterator[str]:
    for name in TASKS:
        try:
            settings = RunFolder(out / name).settings("finetune")
        except RunFolderError:
            continue
        if settings and settings.get("model_hash") == model_hash:
            yield name


Files = Mapping[str, Path]


def glue(config: GlueConfig) -> dict[str, Any]:
    """Fine-tune a model on each of GLUE's `tasks`, all available ones by default.

    Returns the scores, with those of other tasks that earlier calls with this model left in `out`.
    Tasks without a training or a dev file are skipped with a message unless they are named.
    `minutes` are for the grid of each task, and `side_by_side` is the number of its trainings at
    once. Raises `ExampleError` for files that are not GLUE's, `ConfigError` for a named task that
    is missing or lacks a file, and what `finetune` raises.
    """
    folder, available = model_folder(config.model), find_glue(config.data)
    out, tasks = config.out, config.tasks
    _check_tasks(config.data, tasks, available)
    chosen = {name: files for name, files in available.items() if not tasks or name in tasks}
    version = FolderVersion.of(folder)
    with claimed_output(out):
        _check_files(chosen, available, config.settings)
        scores: dict[str, dict[str, Score]] = {}
        answers: dict[str, Predictions] = {}
        for name, files in chosen.items():
            task = TASKS[name]
            if lacking := _lacking(task, files):
                if name != DIAGNOSTIC:
                    say(f"{name}: has no {lacking}; skipped")
                continue
            assert task.train is not None
            say(f"{name}:")
            # else tasks would begin from different models
            version.check()
            task_settings = settings_of(task, config.settings)
            outcome = finetune(
                FinetuneConfig(
                    model=folder,
                    train=files[task.train],
                    out=out / name,
                    dev=files[task.dev[0]],
                    task=name,
                    experiment=config.experiment,
                    settings=task_settings,
                )
            )
            scores[name] = {key: mean_and_spread(outcome.values(key)) for key in outcome.names}
            trained = _Trained(outcome, task_settings, config.experiment.device)
            if name == MATCHED and len(task.dev) > 1 and task.dev[1] in files:
                scores[MISMATCHED] = trained.scored(files[task.dev[1]], task, task.dev[1])
            answers |= trained.answered(files, task)
            if name == MATCHED and DIAGNOSTIC in available:
                answers |= trained.answered(available[DIAGNOSTIC], TASKS[DIAGNOSTIC])
        old_scores, old_answers = _read_earlier(out, weights_hash(folder), without=set(scores))
        if old_scores:
            say(f"including {', '.join(old_scores)} from earlier calls")
        return _write_results(out, folder, old_scores | scores, old_answers | answers)


def _check_tasks(data: Path, named: Sequence[str], available: Mapping[str, Files]) -> None:
    """Raise `ConfigError` for a named task that cannot be trained, and where none can be."""
    trainable = [name for name, files in available.items() if not _lacking(TASKS[name], files)]
    available_note = (
        f"the tasks are {', '.join(trainable)}" if trainable else "none of these can be trained"
    )
    for name in named:
        if name not in available:
            raise ConfigError(f"no task {name!r} in {data}", remedy=available_note)
        if name == DIAGNOSTIC and MATCHED not in named:
            problem = f"the task {name!r} has no training file: the model of {MATCHED} answers it"
            raise ConfigError(problem, remedy=f"name {MATCHED} too")
        if name != DIAGNOSTIC and (lacking := _lacking(TASKS[name], available[name])):
            problem = f"the task {name!r} in {data} has no {lacking}"
            alternative = f", or leave the task out: {available_note}" if trainable else ""
            raise ConfigError(problem, remedy=f"add it{alternative}")
    if not trainable:
        lacks = (f"{name} has no {_lacking(TASKS[name], available[name])}" for name in available)
        problem = f"no task in {data} has a training and a dev file: {', '.join(lacks)}"
        raise ConfigError(problem, remedy="add the files")


def _check_files(
    chosen: Mapping[str, Files], available: Mapping[str, Files], settings: FinetuneSettings
) -> None:
    """Read all files of the tasks, so that the last task's do not end a run that took hours.

    Raises `ExampleError`.
    """
    read = {name: files for name, files in chosen.items() if not _lacking(TASKS[name], files)}
    if MATCHED in read and DIAGNOSTIC in available:
        read[DIAGNOSTIC] = available[DIAGNOSTIC]
    for name, files in read.items():
        task = TASKS[name]
        for split in filter(files.__contains__, task.splits):
            # bad rows are counted and set aside when the file is used
            skips = split not in task.test and settings.reading.on_bad != "fail"
            bad = BadRows("skip" if skips else "fail")
            if not sum(1 for _ in read_glue(files[split], task, split, bad=bad)):
                raise ExampleError(
                    "holds no examples", where=files[split], remedy="give a file with rows in it"
                )


def _lacking(task: GlueTask, files: Files) -> str:
    """Return which file that training needs is not there, "" if there are both."""
    if task.train is None or task.train not in files:
        return "training file"
    return "" if task.dev[0] in files else "dev file"


def settings_of(task: GlueTask, settings: FinetuneSettings) -> FinetuneSettings:
    """Return the settings for a task: regression has no use for those that are for classes.

    The count of bad rows starts again.
    """
    settings = replace(settings, reading=replace(settings.reading))
    if task.labels:
        return settings
    return replace(settings, label_loss=LabelLoss(), target_accuracy=None)


class _Trained:
    """The best model of a task, for predictions on further files."""

    def __init__(self, outcome: FinetuneOutcome, settings: FinetuneSettings, device: str) -> None:
        model, tokenizer = load_model(outcome.model)
        self._task: Task[Any] = GLUE[outcome.data.task.name]
        self._labels = model.config.labels
        self._on_bad = settings.reading.on_bad
        limits = limits_of(self._task, settings, model.config.encoder.longest)
        answering = TaskAnswering(
            task=self._task, tokenizer=tokenizer, labels=self._labels, limits=limits
        )
        engine = prepare_model(model.to(device_named(device)), FULL_PRECISION)
        self._predictor = engine.predictor(answering)

    def scored(self, file: Path, task: GlueTask, split: str) -> dict[str, Score]:
        """Return the scores on another dev file."""
        bad = BadRows(self._on_bad)
        rows = list(read_glue(file, task, split, bad=bad))
        bad.print()
        answers = list(self._predictor(rows))
        results = score_answers(self._task, rows, answers, self._labels).scores
        say(f"{split}: {format_scores(results)} (the best seed)")
        return {name: (value, None) for name, value in results.items()}

    def answered(self, files: Files, task: GlueTask) -> dict[str, Predictions]:
        """Return the predictions for the test files, by the leaderboard's file names."""
        return {
            task.submission[split]: self._answers(list(read_glue(files[split], task, split)))
            for split in task.test
            if split in files
        }

    def _answers(self, rows: list[Example]) -> Predictions:
        outputs = self._predictor(rows)
        if self._task.head == "class":
            predictions: list[str | float] = [
                self._labels[int(answer.argmax())] for answer in outputs
            ]
        else:
            predictions = [float(np.clip(answer, 0, MAX_SCORE)) for answer in outputs]
        return [(str(row.id), answer) for row, answer in zip(rows, predictions, strict=True)]


def _table(rows: list[Row]) -> Table:
    """Return the table for a terminal of 80 columns, with spreads in a line below."""
    table = Table(*header(), box=None, padding=(0, 1, 0, 0))
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "right", True
    for row in rows:
        parts = [cell.partition(" ± ") for cell in row]
        table.add_row(*(mean for mean, _, _ in parts))
        if any(spread for _, _, spread in parts):
            table.add_row(*(f"± {spread}" if spread else "" for _, _, spread in parts))
    return table


def _write_results(
    out: Path,
    model: Path,
    scores: Mapping[str, Mapping[str, Score]],
    answers: Mapping[str, Predictions],
) -> dict[str, Any]:
    rows = glue_rows(f"ours, {model.name}", scores)
    console.print(_table(rows))
    for name in scores:
        shown = ", ".join(f"{score} {_formatted(value)}" for score, value in scores[name].items())
        say(f"{name:>8}: {shown}")
    say(NOTE)
    followed(out).mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text(f"{markdown(rows)}\n{NOTE}\n", encoding="utf-8")
    figures: dict[str, Any] = {
        name: {score: {"mean": mean, "spread": spread} for score, (mean, spread) in values.items()}
        for name, values in scores.items()
    }
    write_json(out / RESULTS, figures)
    _write_accepted(out, answers)
    return figures


def _write_accepted(out: Path, answers: Mapping[str, Predictions]) -> None:
    """Write the answers that the leaderboard accepts; say which are left out, and why.

    Without any, a submission that is there is not of this model, and is deleted.
    """
    tables: dict[str, str] = {}
    for file, rows in answers.items():
        try:
            tables[file] = submission_table(file, rows)
        except ExampleError as error:
            say(f"left out of {ZIP}: {error}")
    if tables:
        path = write_submission(out, tables)
        missing = missing_files(tables)
        missing_note = f"; the leaderboard also wants {', '.join(missing)}" if missing else ""
        say(f"{path} holds {', '.join(tables)}{missing_note}")
    elif (out / ZIP).exists():
        (out / ZIP).unlink()
        say(f"{out / ZIP} held no answers of this model: deleted")


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
    "the dev sets, mean ± spread over the seeds, and -mm is of the seed that is best on MNLI-m. F1 "
    "for QQP and MRPC, Spearman's correlation for STS-B, Matthews' for CoLA, accuracy for the "
    "others, all in per cent. The average is shown only when all tasks were run; WNLI, which the "
    "paper leaves out, is not included."
)

Row = tuple[str, ...]


def glue_rows(name: str, results: Mapping[str, Mapping[str, Score]]) -> list[Row]:
    """Return the rows of the table, ours last, from mean and spread by task and score."""
    rows = [(model, *(f"{score:.1f}" for score in scores)) for model, scores in PUBLISHED.items()]
    own_scores = [results.get(task, {}).get(score) for _, task, score in COLUMNS]
    means = [item[0] for item in own_scores if item is not None]
    average = f"{100 * sum(means) / len(means):z.1f}" if len(means) == len(own_scores) else ""
    rows.append((name, *map(_formatted, own_scores), average))
    return rows


def header() -> Row:
    """Return the header of the table."""
    return ("", *(column for column, _, _ in COLUMNS), "mean")


def markdown(rows: list[Row]) -> str:
    """Return the table in Markdown."""
    named = [(shown(row[0]), *row[1:]) for row in rows]
    lines = [header(), tuple("---" for _ in header()), *named]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _formatted(score: Score | None) -> str:
    if score is None:
        return ""
    mean, spread = score
    return f"{100 * mean:z.1f}" + ("" if spread is None else f" ± {100 * spread:.1f}")


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
_MAX_ANSWERS_BYTES = 2**26


def missing_files(predictions: Collection[str]) -> tuple[str, ...]:
    """Return the files without predictions; the leaderboard requires all of them."""
    return tuple(file for file in FILES if file not in predictions)


def write_submission(folder: Path, tables: Mapping[str, str]) -> Path:
    """Write `folder`/submission.zip of the tables of `submission_table`, by file."""
    path = folder / ZIP
    with (
        created_folder(folder),
        replaced_file(path) as fresh,
        zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for file, table in tables.items():
            packed.writestr(zipfile.ZipInfo(file, _TIME), table, zipfile.ZIP_DEFLATED)
    return path


def read_submission(folder: Path) -> dict[str, Predictions]:
    """Return the predictions in `folder`/submission.zip, by the leaderboard's file.

    Those that `submission_table` would refuse are left out; empty if the zip file is missing or
    cannot be read.
    """
    predictions: dict[str, Predictions] = {}
    try:
        with zipfile.ZipFile(folder / ZIP) as packed:
            for file in FILES.keys() & set(packed.namelist()):
                if packed.getinfo(file).file_size > _MAX_ANSWERS_BYTES:
                    continue
                rows = _rows(file, packed.read(file).decode("utf-8"))
                with suppress(ExampleError):
                    submission_table(file, rows)
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


def submission_table(file: str, rows: Predictions) -> str:
    """Return the text of one of the leaderboard's files, such as MNLI-m.tsv.

    It has ``index`` and ``prediction``: labels as the task's files write them, the scores of STS-B
    from 0 to 5. Raises `ExampleError` for an unknown label, or a number of rows other than that of
    the published test set, which the leaderboard refuses.
    """
    if file not in FILES:
        remedy = f"it has {', '.join(FILES)}"
        raise ExampleError("is not a file of GLUE's leaderboard", where=file, remedy=remedy)
    task, split = FILES[file]
    if len(rows) != task.sizes[split]:
        problem = f"{counted(len(rows), 'prediction')}, and the test set has {task.sizes[split]:,}"
        raise ExampleError(problem, where=file, remedy="predict the whole of the distributed file")
    if len({index for index, _ in rows}) < len(rows):
        raise ExampleError("two predictions of one index", where=file, remedy="predict each once")
    lines = [f"{index}\t{_written(file, task, value)}" for index, value in rows]
    return "\n".join(["index\tprediction", *lines]) + "\n"


def _written(file: str, task: GlueTask, value: str | float) -> str:
    if not task.labels:
        if isinstance(value, str) or not math.isfinite(value):
            raise ExampleError(
                f"{value!r} is not a score", where=file, remedy="give finite numbers"
            )
        return f"{min(max(value, 0.0), MAX_SCORE):.3f}"
    if value not in task.labels:
        remedy = f"they are {', '.join(task.labels)}"
        raise ExampleError(f"{value!r} is not a label of {task.name}", where=file, remedy=remedy)
    return str(value)
