"""Answers for texts, of the kind that the model folder gives: classes, numbers, tags, spans, ...

They are written as a table for the eye, as CSV or as JSON lines. In the latter two every row keeps
the columns of the input, and the answer follows them; where an input column has the name of a part
of the answer, that part is called ``predicted_`` and its name. A blank row has empty values, or
null.
"""

from __future__ import annotations

import csv
import json
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from bertsmith.core.errors import ExampleError
from bertsmith.core.log import say
from bertsmith.core.output import flush, print_json, print_line
from bertsmith.core.pipes import standard_input_waits
from bertsmith.core.printable import counted, fitted
from bertsmith.engine.devices import device_named
from bertsmith.engine.predictor import ROWS, Answering, Predictor, windows
from bertsmith.engine.prepared import Prepared
from bertsmith.hub.models import model_folder
from bertsmith.network.config import ModelConfig
from bertsmith.recipes.cluster import Cluster, Job, cluster_options, join_cluster, print_cluster
from bertsmith.recipes.predict.config import Format, PredictConfig
from bertsmith.recipes.predict.reading import reading_as_trained
from bertsmith.recipes.predict.rows import (
    InputRow,
    refuse_choice,
    task_rows,
    text_rows,
    with_written_offsets,
)
from bertsmith.tasks.answering import (
    Presented,
    TaskAnswering,
    answering_of,
    continues,
    print_long_texts,
    print_unread,
)
from bertsmith.tasks.config import Reading
from bertsmith.tasks.opening import open_model
from bertsmith.tasks.task import Labels, Record, Task
from bertsmith.text.examples.example import BadLabel, Example, classes_of
from bertsmith.text.examples.reading import Check, reading_note
from bertsmith.text.examples.tagged import Tagged
from bertsmith.text.growing import as_first_opened
from bertsmith.text.opening import kind_of, refuse_pipe
from bertsmith.text.tables import TABLES

Columns = Mapping[str, Any]

# parts of an answer that say in more words what the others say
_ONLY_JSON = ("probabilities", "n_best", "token_scores")
# lists of labels, or of numbers of choices
_LABELS = ("labels", "prediction_set")
_PREFIX = "predicted_"
_JSONL = "use --format jsonl"


def predict(config: PredictConfig) -> None:
    """Write the answers of a model to standard output, a row out for each row in.

    A folder with a head for a task answers for it; one of pre-training fills masks, or predicts for
    pairs of texts whether one follows the other; one that was pre-trained from left to right
    continues texts. Memory does not grow with the number of rows. What is read of a text is as in
    training unless the options say otherwise; the number of longer texts is printed at the end.
    """
    with as_first_opened(Path(config.file)):
        if config.ray is None:
            _predict(config, None)
            return
        with join_cluster(config.ray) as cluster:
            _predict(config, cluster)


def _predict(config: PredictConfig, cluster: Cluster | None) -> None:
    """Write the answers to the rows of a file, computed here or on a cluster."""
    file = config.file
    if cluster is not None:
        config = replace(config, **cluster_options(config.engine))
    predictor, answering, prepared = open_predictor(config)
    reading, rows_in = open_rows(prepared.model.config, answering, file, config.reading)
    waits = None
    if file == "-":
        # what was typed, or logged by another program, is answered before more of it is waited for
        waits, rows_in = standard_input_waits, _after_flushing(rows_in)
    map_windows: WindowMapper | None = None
    if cluster is not None:
        threads = config.engine.threads or 1
        job = Job(open=_open_worker_predictor, argument=config, work=answer_window, threads=threads)
        map_windows = partial(cluster.in_order, job)
        print_cluster(cluster, threads)
    task = answering.task if isinstance(answering, TaskAnswering) else None
    if note := _reading_note(task, Path(file), reading):
        say(note)
    writer = AnswerWriter(config.format, keys=answering.keys, labels=_labels_of(answering))
    blank_count = bad_count = 0
    for row, record in answer_rows(
        predictor, answering, rows_in, waits=waits, map_windows=map_windows
    ):
        if record is None:
            bad_count += row.bad
            blank_count += not row.bad
            writer.blank(row.columns)
        else:
            lines = partial(answering.lines, row.example, record, terminal_preview)
            writer.add(row.columns, record, lines)
    writer.end()
    if blank_count:
        answers = "a blank answer" if blank_count == 1 else "blank answers"
        say(f"{counted(blank_count, 'blank row')}, with {answers}")
    reading.bad_rows.print(answered=bad_count)
    say(f"engine: {prepared}")


def _after_flushing(rows: Iterator[InputRow[Any]]) -> Iterator[InputRow[Any]]:
    """Yield rows; the answers that are there are handed on before more are waited for."""
    for row in rows:
        yield row
        flush()


def open_predictor(config: PredictConfig) -> tuple[Predictor[Any, Any], Presented[Any], Prepared]:
    """Return the predictor of a model folder, its answering, and the model made ready to answer."""
    device, folder = device_named(config.device), model_folder(config.model)
    prepared, tokenizer = open_model(folder, device, config.engine)
    answering = answering_of(prepared.model, tokenizer, config.answering, where=config.model)
    return prepared.predictor(answering), answering, prepared


def _open_worker_predictor(config: PredictConfig) -> Predictor[Any, Any]:
    """Return the predictor of a process of a cluster."""
    return open_predictor(config)[0]


def open_rows(
    config: ModelConfig, answering: Presented[Any], file: str, reading: Reading
) -> tuple[Reading, Iterator[InputRow[Any]]]:
    """Return how a file is read for a model, by what it was trained on, and the rows it asks.

    Raises `ConfigError` for a choice of classes, other than among the folders of a folder.
    """
    refuse_choice(file, reading.columns)
    if not isinstance(answering, TaskAnswering):
        pairs = config.next_sentence and not continues(config)
        check = check_of(answering, reading)
        return reading, text_rows(file, reading, pairs=pairs, check=check)
    _check_pipe(answering.task, Path(file))
    trained = config.preprocessing
    reading = reading_as_trained(reading, trained, file, labelled=False)
    pairs_only = trained.pairs if trained else None
    return reading, task_rows(answering.task, file, reading, pairs=pairs_only)


def _check_pipe(task: Task[Any], path: Path) -> None:
    """Raise `ExampleError` for a pipe whose layout is looked at, or whose rows are read twice."""
    if task.reader.pairs and kind_of(path) not in (*TABLES, ".xml"):
        return
    texts = ", or give a text a line as standard input (-)" if task.reader.of_text else ""
    refuse_pipe(path, remedy=f"write its rows to a file{texts}")


def check_of(answering: Answering[Any, Any], reading: Reading) -> Check | None:
    """Return the check by which a text without an answer, as without a mask, is a bad row.

    None where the first such text is an error, which the answering raises itself.
    """

    def check(row: Example) -> None:
        answering.encode([row])

    return None if reading.on_bad == "fail" else check


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Rows that are answered together, blank ones left out, the first of them with its number."""

    first: int
    rows: list[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowAnswers:
    """The records of the answers to a window.

    `long` of its texts exceed a sequence; `unread` says of each that even windows leave out a part
    of where it is.
    """

    records: list[Record]
    long: int
    unread: list[str]


WindowMapper = Callable[[Iterable[Window]], Iterator[WindowAnswers]]
"""Yields the answers of windows, in order."""


def answer_window(predictor: Predictor[Any, Any], window: Window) -> WindowAnswers:
    """Return the answers to a window."""
    requests = predictor.encode(window.rows, window.first)
    answering = cast("Presented[Any]", predictor.answering)
    return WindowAnswers(
        records=[answering.record(answer) for answer in predictor.answer(requests)],
        long=sum(request.long for request in requests),
        unread=answering.unread(requests) if isinstance(answering, TaskAnswering) else [],
    )


def answer_rows(
    predictor: Predictor[Any, Any],
    answering: Presented[Any],
    inputs: Iterable[InputRow[Any]],
    *,
    waits: Callable[[], bool] | None = None,
    map_windows: WindowMapper | None = None,
) -> Iterator[tuple[InputRow[Any], Record | None]]:
    """Yield rows with the records of their answers, None for blank ones, in constant memory.

    Windows are answered here, or by `map_windows` where that is given; they end where more rows
    would be waited for, if `waits` says so. The number of texts that were longer than what is read
    of them is printed at the end.
    """
    count = long = unread = 0
    first = ""
    waiting: deque[list[InputRow[Any]]] = deque()

    def length(row: InputRow[Any]) -> int:
        return 0 if row.example is None else answering.characters(row.example)

    def numbered() -> Iterator[Window]:
        nonlocal count
        for window in windows(inputs, ROWS, length, waits):
            waiting.append(window)
            rows_asked = [row.example for row in window if row.example is not None]
            yield Window(first=count, rows=rows_asked)
            count += len(rows_asked)

    map_windows = map_windows or partial(map, partial(answer_window, predictor))
    for window_answers in map_windows(numbered()):
        long, unread = long + window_answers.long, unread + len(window_answers.unread)
        first = first or next(iter(window_answers.unread), "")
        answers = iter(window_answers.records)
        for row in waiting.popleft():
            yield row, None if row.example is None else _as_written(row, next(answers))
    if long and isinstance(answering, TaskAnswering):
        print_long_texts(answering, long, count)
    if unread:
        print_unread(first, unread)


def _as_written(row: InputRow[Any], record: Record) -> Record:
    """Return an answer whose characters are those of the input, which may have other blanks."""
    if not isinstance(row.example, Tagged):
        return record
    return with_written_offsets(record, row.example.written)


def _reading_note(task: Task[Any] | None, file: Path, reading: Reading) -> str | None:
    """Return the description of a table that has no names of columns; None of other files."""
    if task is not None and not task.reader.pairs and kind_of(file) not in TABLES:
        return None  # columns of words are no table of texts
    if task is None or task.reader.pairs or not file.is_file():
        return reading_note(file, reading.columns)
    if task.reader.row_a_record(file, reading):
        return None
    layout = task.reader.layout(file, reading)
    return f"{file.name}: {layout}" if " without header " in layout else None


def terminal_preview(text: str) -> str:
    """Return the beginning of a text on one line, without what a terminal would obey."""
    limits = max(40, shutil.get_terminal_size().columns - 30)
    return fitted(text, limits)


class AnswerWriter:
    """Writes answers to standard output, in the order of their rows.

    `keys` are those of an answer, for rows that are all blank. Raises `ExampleError` for an input
    column that comes later and has the name of an answer's.
    """

    def __init__(
        self, form: Format, *, keys: Sequence[str] = (), labels: Sequence[str] = ()
    ) -> None:
        """Write lists of `labels` to CSV with | between them, if each label is read as itself."""
        self._form: Format = form
        self._keys = keys
        self._joined = all(map(_is_one_label, labels))
        self._waiting: list[Columns] = []
        self._names: dict[str, str] | None = None
        self._header: dict[str, None] = {}
        self._csv = csv.writer(_LineWriter(), lineterminator="\n")

    def blank(self, columns: Columns) -> None:
        """Write a row that asks nothing."""
        if self._form == "table":
            print_line("")
        elif self._names is None:
            # what an answer has is known from the first one
            self._waiting.append(columns)
        else:
            self._emit(columns, dict.fromkeys(self._names))

    def add(self, columns: Columns, record: Columns, lines: Callable[[], Iterator[str]]) -> None:
        """Write a row with its answer; `lines` are those for people."""
        if self._form == "table":
            for line in lines():
                print_line(line)
            return
        if self._form == "csv":
            record = self._flatten(record)
        if self._names is None:
            self._begin(columns, record)
        self._emit(columns, record)

    def end(self) -> None:
        """Write blank rows that no answer followed."""
        if self._names is None and self._waiting:
            only_json = _ONLY_JSON if self._form == "csv" else ()
            keys = [key for key in self._keys if key not in only_json]
            self._begin(self._waiting[0], dict.fromkeys(keys))

    def _flatten(self, record: Columns) -> dict[str, Any]:
        """Return an answer as single values: labels with | between them, other lists as JSON.

        No entities are ``[]``, and so differ from the empty cell of a blank row.
        """
        return {
            key: "|".join(map(str, value)) if key in _LABELS and self._joined else value
            for key, value in record.items()
            if key not in _ONLY_JSON
        }

    def _begin(self, columns: Columns, record: Columns) -> None:
        inputs = dict.fromkeys(name for row in (*self._waiting, columns) for name in row)
        self._names = {key: _PREFIX + key if key in inputs else key for key in record}
        clash = next((name for name in self._names.values() if name in inputs), None)
        if clash is not None:
            raise _column_clash(clash)
        if self._form == "csv":
            self._header = inputs
            self._csv.writerow([*inputs, *self._names.values()])
        waiting, self._waiting = self._waiting, []
        for row in waiting:
            self._emit(row, dict.fromkeys(self._names))

    def _emit(self, columns: Columns, record: Columns) -> None:
        assert self._names is not None
        names = self._names
        if self._form == "csv":
            if unknown := [name for name in columns if name not in self._header]:
                problem = f"a row has the column {unknown[0]!r}, which the first one lacks"
                raise ExampleError(problem, remedy=_JSONL)
            if unknown := [key for key in record if key not in names]:
                problem = f"an answer has {unknown[0]!r}, which the first one lacks"
                raise ExampleError(problem, remedy=_JSONL)
            cells = [_cell(columns.get(name)) for name in self._header]
            self._csv.writerow([*cells, *(_cell(record.get(key)) for key in names)])
            return
        answer = {names.get(key, key): value for key, value in record.items()}
        clash = next((name for name in answer if name in columns), None)
        if clash is not None:
            raise _column_clash(clash)
        print_json({**columns, **answer}, readable=True)


class _LineWriter:
    """Takes the lines that the CSV writer makes."""

    def write(self, line: str) -> int:
        """Write a line with its end."""
        print_line(line.removesuffix("\n"), exact=True)
        return len(line)


def _column_clash(name: str) -> ExampleError:
    problem = f"a row has a column {name!r}, which is also a key of its answer"
    return ExampleError(problem, remedy="rename that column of the input")


def _is_one_label(label: str) -> bool:
    """Return whether a label in a cell is read as itself: ``a|b`` would be two."""
    try:
        return classes_of(label) == (label,)
    except BadLabel:
        return False


def _labels_of(answering: Presented[Any]) -> Labels:
    return answering.labels if isinstance(answering, TaskAnswering) else ()


def _cell(value: object) -> object:
    if isinstance(value, list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value
