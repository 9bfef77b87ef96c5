"""Scores of a fine-tuned model on labelled examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.core.errors import ModelFolderError
from bertsmith.core.log import say
from bertsmith.core.printable import printable
from bertsmith.engine.devices import device_named
from bertsmith.engine.predictor import split_requests
from bertsmith.engine.prepared import Prepared, prepare_model
from bertsmith.evaluation.metrics import percent, score_label
from bertsmith.evaluation.significance import NO_INTERVAL
from bertsmith.evaluation.spans import EntityScores, macro_f1
from bertsmith.hub.models import model_folder
from bertsmith.network.config import ModelConfig
from bertsmith.recipes.predict.config import EvaluateConfig
from bertsmith.recipes.predict.reading import reading_as_trained
from bertsmith.recipes.predict.rows import checked_pairs
from bertsmith.tasks.answering import (
    Presented,
    TaskAnswering,
    answering_of,
    measure,
    print_long_texts,
    print_unread,
)
from bertsmith.tasks.confidence import set_figures
from bertsmith.tasks.config import AnsweringConfig, Reading
from bertsmith.tasks.labels import absent_note, require_labels, unknown_label
from bertsmith.tasks.rows import pick_classes, print_rows
from bertsmith.tasks.task import Task, counted_rows
from bertsmith.tasks.uncertainty import clusters_note, interval_of
from bertsmith.text.examples.tagged import names_entities
from bertsmith.text.opening import refuse_pipe
from bertsmith.weights.folder import load_model


def evaluate(config: EvaluateConfig) -> dict[str, Any]:
    """Score a model on labelled rows, print the scores with 95 % intervals, and return them.

    Labels are compared by name. Raises `ExampleError` for rows that the model cannot be measured
    on, a label that is none of its own among them, `ConfigError`, and `ModelFolderError`.
    """
    device = device_named(config.device)
    loaded, tokenizer = load_model(model_folder(config.model))
    options = AnsweringConfig(**config.length.to_dict(), conformal=config.conformal)
    answering = answering_of(loaded, tokenizer, options, where=config.model)
    prepared = prepare_model(loaded.to(device), config.engine, automatic="fp32")
    figures = evaluate_model(
        prepared, answering, config.file, where=config.model, reading=config.reading
    )
    say(f"engine: {prepared}")
    return figures


def evaluate_model(
    prepared: Prepared,
    answering: Presented[Any],
    file: Path,
    *,
    where: str | Path,
    reading: Reading,
) -> dict[str, Any]:
    """Score the opened model of a folder, `where`, as `evaluate` does."""
    answering = task_answering(answering, where)
    task, labels = answering.task, answering.labels
    rows = labelled_rows(prepared.model.config, answering, file, reading)
    encoded = answering.encode(rows)
    measured = measure(prepared.predictor(answering), rows, encoded)
    if unread := answering.unread(split_requests(rows, encoded)):
        print_unread(unread[0], len(unread))
    if long_ones := encoded.long_texts:
        print_long_texts(answering, long_ones, len(rows))
    content = task.present.describe(rows, labels)
    description = f" ({content})" if content else ""
    say(f"{counted_rows(task, rows)}, {task.title.lower()}{description}")
    figures: dict[str, Any] = {"task": task.name, "rows": len(rows), "scores": {}}
    figures["engine"] = prepared.to_dict()
    for name, value in measured.scores.items():
        interval = interval_of(
            task, measured.evidence, labels, measured.clusters, measured.tuned, name
        )
        low, high = percent(interval.low), percent(interval.high)
        shown = f"95 %: {low} to {high}" if interval.known else NO_INTERVAL
        say(f"{score_label(name):>16} {percent(value):>7} %  ({shown})")
        bounds = (interval.low, interval.high) if interval.known else (None, None)
        figures["scores"][name] = {"value": value, "low": bounds[0], "high": bounds[1]}
    if drawn := clusters_note(measured.clusters):
        say(drawn)
    figures["clusters"] = measured.clusters.count
    for note in task.measuring.notes(measured.evidence, answering.tuned):
        say(note)
    if (threshold := answering.tuned.set_threshold) is not None:
        sets = set_figures(measured.evidence, measured.answers, threshold)
        say(sets.sentence(task.unit))
        figures["prediction_sets"] = {"threshold": threshold, **sets._asdict()}
    if task.measuring.by_type is not None and names_entities(labels):
        figures["types"] = _print_types(task.measuring.by_type(rows, measured.answers))
    return figures


def task_answering(answering: Presented[Any], where: str | Path) -> TaskAnswering:
    """Return the answering of a task; raises `ModelFolderError` for any other."""
    if not isinstance(answering, TaskAnswering):
        raise ModelFolderError(
            "has no head for a task",
            where=where,
            remedy="fine-tune it first: bertsmith finetune MODEL TRAIN --out RUN",
        )
    return answering


def labelled_rows(
    config: ModelConfig, answering: TaskAnswering, file: Path, reading: Reading
) -> list[Any]:
    """Return the labelled rows of a file, read as in training, and print what they are.

    Raises `ExampleError` for rows that the model cannot be measured on.
    """
    refuse_pipe(file)
    task, trained = answering.task, config.preprocessing
    pairs = None if trained is None else trained.pairs
    several = answering.labels if task.head == "classes" else ()
    reading = reading_as_trained(reading, trained, str(file), labelled=True, several=several)
    reading = task.reader.resolve(file, reading)
    rows = list(checked_pairs(task.reader.to_measure(file, reading), pairs))
    rows = list(pick_classes(task, rows, reading.columns, known=answering.labels))
    print_rows(task, rows, file, reading)
    rows = list(task.labels.as_labelled(rows, answering.labels))
    check_known(task, rows, answering.labels)
    if note := absent_note(task, file.name, rows, answering.labels):
        say(note)
    reading.bad_rows.print()
    return rows


def _print_types(scores: Mapping[str, EntityScores]) -> dict[str, dict[str, float]]:
    """Print the scores of each type of entity, and return them."""
    names = [printable(label) or "(no type)" for label in scores]
    width = max([16, *map(len, names)])
    for name, score in zip(names, scores.values(), strict=True):
        shares = f"precision {percent(score.precision)} %, recall {percent(score.recall)} %"
        say(f"{name:>{width}} {percent(score.f1):>7} %  F1 ({shares}; {score.true:,} true)")
    if len(scores) > 1:
        mean, name = percent(macro_f1(scores)), score_label("macro_f1")
        say(f"{name:>{width}} {mean:>7} %  mean of the types' F1")
    return {
        label: {
            "f1": score.f1,
            "precision": score.precision,
            "recall": score.recall,
            "support": score.true,
        }
        for label, score in scores.items()
    }


def check_known(task: Task[Any], rows: Sequence[Any], labels: tuple[str, ...]) -> None:
    """Raise `ExampleError` for a row with a label that is none of a model's."""

    def mistake(label: str) -> tuple[str, str]:
        problem = f"the label {label!r} is none of the model's"
        parts = {sign: {part.strip() for part in label.split(sign)} for sign in "|,;"}
        separators = [sign for sign in parts if parts[sign].issubset(labels)]
        if separators and task.head == "classes":
            return problem, f"its parts are: pass --label-separator '{separators[0]}'"
        picked = task.labels.picked is not None
        known_labels = unknown_label(label, labels, "it knows", picked=picked)
        option = "--label-column" if task.measuring.by_type is None else "--tags.tag"
        remedy = f"{known_labels}; name the label's column with {option}, or rename"
        return problem, remedy

    require_labels(rows, task.labels.of_row, labels, mistake)
