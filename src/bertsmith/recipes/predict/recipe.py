"""Answers for texts, of the kind that the model folder gives: classes, numbers, tags, spans, ..."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bertsmith.core.log import say
from bertsmith.core.output import flush
from bertsmith.core.printable import printable
from bertsmith.engine.predictor import Predictor
from bertsmith.engine.sequences import ROWS, windows
from bertsmith.hub.models import model_folder
from bertsmith.network.model import ModelConfig
from bertsmith.recipes.devices import device_named
from bertsmith.recipes.predict.answer_files import Answers, Format
from bertsmith.recipes.predict.rows import (
    Asked,
    asked_of_task,
    asked_texts,
    in_the_text_as_written,
    reading_as_trained,
)
from bertsmith.tasks.answering import (
    AnsweringConfig,
    Presented,
    TaskAnswering,
    answering_of,
    continues,
)
from bertsmith.tasks.reading import Reading
from bertsmith.tasks.task import Record, Task
from bertsmith.text.examples.described import without_header
from bertsmith.text.examples.tagged import Tagged
from bertsmith.weights.folder import load_model


def predict(
    model: str | Path,
    file: str | Path = "-",
    *,
    format: Format = "table",
    reading: Reading = Reading(),  # noqa: B008 (frozen)
    config: AnsweringConfig = AnsweringConfig(),  # noqa: B008 (frozen)
    device: str = "auto",
) -> None:
    """Write to standard output what the model answers, a row out for each row in.

    A folder with a head for a task answers for it; one of pre-training fills masks, or tells of
    pairs of texts whether one follows the other; one that was pre-trained from left to right
    continues texts. Memory does not grow with the number of rows. What is read of a text is as in
    training unless `config` says otherwise; how many texts were longer is told at the end.
    """
    file, place = str(file), device_named(device)
    loaded, tokenizer = load_model(model_folder(model))
    answering = answering_of(loaded, tokenizer, config, where=model)
    predictor = Predictor(model=loaded.to(place), answering=answering)
    reading, asked = asked_of(loaded.config, answering, file, reading)
    # whoever types texts wants each answered at once
    rows = 1 if file == "-" and sys.stdin.isatty() else ROWS
    task = answering.task if isinstance(answering, TaskAnswering) else None
    if note := _without_header(task, Path(file), reading):
        say(note)
    written, blank = Answers(format), 0
    for each, record in answered(predictor, answering, asked, rows=rows):
        if record is None:
            blank += 1
            written.blank(each.columns)
        else:
            lines = partial(answering.lines, each.row, record, _shown)
            written.add(each.columns, record, lines)
        if rows == 1:
            flush()
    written.end()
    if blank:
        say(f"{blank:,} blank row{'s' * (blank != 1)}: a blank answer for each")
    if bad := reading.bad_rows.told():
        say(bad)


def asked_of(
    config: ModelConfig, answering: Presented[Any], file: str, reading: Reading
) -> tuple[Reading, Iterator[Asked[Any]]]:
    """Return how a file is read for a model, by what it was trained on, and the rows it asks."""
    if not isinstance(answering, TaskAnswering):
        pairs = config.next_sentence and not continues(config)
        return reading, asked_texts(file, reading, pairs=pairs)
    trained = config.preprocessing
    reading = reading_as_trained(reading, trained, file, labelled=False)
    alone = trained.pairs if trained else None
    return reading, asked_of_task(answering.task, file, reading, pairs=alone)


def answered(
    predictor: Predictor[Any, Any],
    answering: Presented[Any],
    asked: Iterable[Asked[Any]],
    *,
    rows: int = ROWS,
) -> Iterator[tuple[Asked[Any], Record | None]]:
    """Yield rows with the records of their answers, None for blank ones, in constant memory.

    How many texts were longer than what is read of them is told at the end.
    """
    count = long = 0

    def length(each: Asked[Any]) -> int:
        return 0 if each.row is None else answering.characters(each.row)

    for window in windows(asked, rows, length):
        own = [each.row for each in window if each.row is not None]
        requests = predictor.encode(own, count)
        count, long = count + len(own), long + sum(request.long for request in requests)
        answers = predictor.answer(requests)
        for each in window:
            yield (
                each,
                None if each.row is None else _as_written(each, answering.record(next(answers))),
            )
    if long and isinstance(answering, TaskAnswering):
        windowed = answering.task.answers.windowed
        became = "read in windows" if windowed else "--long says what is read of them"
        limit = answering.room.longest
        say(f"{long:,} of {count:,} texts were longer than {limit} tokens: {became}")


def _as_written(asked: Asked[Any], record: Record) -> Record:
    """Return an answer whose characters are those of the input, which may have other blanks."""
    if not isinstance(asked.row, Tagged):
        return record
    return in_the_text_as_written(record, asked.row.text, asked.columns)


def _without_header(task: Task[Any] | None, file: Path, reading: Reading) -> str | None:
    """Return the description of a table that has no names of columns; None of other files."""
    if task is None or not file.is_file() or task.reader.row_a_record(file, reading):
        return without_header(file, reading.columns)
    layout = task.reader.layout(file, reading)
    return f"{file.name}: {layout}" if " without header " in layout else None


def _shown(text: str) -> str:
    """The beginning of a text on one line, without what a terminal would obey."""
    room = max(40, shutil.get_terminal_size().columns - 30)
    return printable(text, room)
