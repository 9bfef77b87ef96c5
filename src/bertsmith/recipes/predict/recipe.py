"""Answers for texts, of the kind that the model folder gives: classes, numbers, tags, spans, ..."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertsmith.batches.examples import encode_examples
from bertsmith.core.errors import ConfigError, ExampleError, ModelFolderError
from bertsmith.core.log import say
from bertsmith.core.output import flush
from bertsmith.core.printable import printable
from bertsmith.engine.answers import next_sentence_probabilities
from bertsmith.engine.continuation import ContinuationConfig, continuations
from bertsmith.engine.fill_mask import fill_masks
from bertsmith.engine.sequences import ROWS, text_length, windows
from bertsmith.hub.models import model_folder
from bertsmith.network.families.catalog import family
from bertsmith.network.model import Model, ModelConfig
from bertsmith.network.preprocessing import Fit
from bertsmith.recipes.devices import device_named
from bertsmith.recipes.predict.answer_files import Answers, Format
from bertsmith.recipes.predict.rows import (
    Asked,
    asked_of_task,
    asked_texts,
    in_the_text_as_written,
    reading_as_trained,
)
from bertsmith.tasks.choice import Choice
from bertsmith.tasks.classify import Classify
from bertsmith.tasks.reading import Reading
from bertsmith.tasks.span import Span
from bertsmith.tasks.table import task_of
from bertsmith.tasks.task import Room, Task
from bertsmith.text.examples.described import without_header
from bertsmith.text.examples.example import Example
from bertsmith.text.examples.tagged import Tagged
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model

Lines = Callable[[], Iterator[str]]
Answered = tuple[Asked[Any], dict[str, Any] | None, Lines]
"""A row, the answer to it, None of a blank one, and the answer for people to read."""


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Where no answer is given, in place of what the model's folder says; None leaves that."""

    no_answer: float | None = None
    """For spans: the doubt over which there is none."""
    min_confidence: float | None = None
    """For classes and choices: the probability below which there is none."""


def predict(
    model: str | Path,
    file: str = "-",
    *,
    top: int = 5,
    format: Format = "table",
    reading: Reading = Reading(),  # noqa: B008 (frozen)
    longest: int | None = None,
    long: Fit | None = None,
    stride: int | None = None,
    thresholds: Thresholds = Thresholds(),
    continuation: ContinuationConfig | None = None,
    device: str = "auto",
) -> None:
    """Write to standard output what the model answers, a row out for each row in.

    A folder with a head for a task answers for it; one of pre-training fills masks, or tells of
    pairs of texts whether one follows the other; one that was pre-trained from left to right
    continues texts, as `continuation` says. Memory does not grow with the number of rows. What
    is read of a text is as in training unless `longest`, `long` or `stride` say otherwise; how many
    texts were longer is told at the end.
    """
    if top < 1:
        raise ConfigError(f"top is {top}", remedy="it must be at least 1")
    if longest is not None and longest < 8:
        raise ConfigError(f"longest is {longest}", remedy="it must be at least 8 tokens")
    place = device_named(device)
    loaded, tokenizer = load_model(model_folder(model))
    room = Room.of_model(loaded.config, longest=longest, long=long, stride=stride)
    # whoever types texts wants each answered at once
    rows = 1 if file == "-" and sys.stdin.isatty() else ROWS
    loaded.to(place)
    if continuation is not None and not _continues(loaded.config):
        raise ConfigError(
            "--tokens, --temperature and --seed are for a model that continues texts",
            remedy="leave them out",
        )
    task = None
    if loaded.config.predicts is not None:
        task = with_thresholds(task_of(loaded.config), thresholds)
        reading = reading_as_trained(reading, loaded.config.preprocessing, file, labelled=False)
        found = _answers(loaded, tokenizer, task, file, reading, room, top, rows)
    elif _continues(loaded.config):
        how = continuation or ContinuationConfig()
        found = _continued(loaded, tokenizer, file, reading, how, rows)
    elif loaded.config.masked_lm or loaded.config.next_sentence:
        found = _of_pretraining(loaded, tokenizer, file, reading, top, rows)
    else:
        raise ModelFolderError(
            "has neither a head for a task nor a masked-LM head",
            where=model,
            remedy="fine-tune it first: bertsmith finetune MODEL TRAIN --out RUN",
        )
    if note := _without_header(task, Path(file), reading):
        say(note)
    _write(found, format, at_once=rows == 1)
    if bad := reading.bad_rows.told():
        say(bad)


def _write(found: Iterator[Answered], format: Format, *, at_once: bool) -> None:
    """Write answers to standard output, each at once or as the system likes."""
    blank, answers = 0, Answers(format)
    for asked, record, lines in found:
        if record is None:
            blank += 1
            answers.blank(asked.columns)
        else:
            answers.add(asked.columns, record, lines)
        if at_once:
            flush()
    answers.end()
    if blank:
        say(f"{blank:,} blank row{'s' * (blank != 1)}: a blank answer for each")


def _without_header(task: Task[Any] | None, file: Path, reading: Reading) -> str | None:
    """Return the description of a table that has no names of columns; None of other files."""
    if task is None or not file.is_file() or task.row_a_record(file, reading):
        return without_header(file, reading.columns)
    layout = task.layout(file, reading)
    return f"{file.name}: {layout}" if " without header " in layout else None


def with_thresholds(task: Task[Any], thresholds: Thresholds) -> Task[Any]:
    """Return the task with other thresholds; raises `ConfigError` where it has no such ones."""
    if (no_answer := thresholds.no_answer) is not None:
        if not isinstance(task, Span):
            raise ConfigError(
                "--no-answer is for a model that looks for answers in texts",
                remedy="leave it out, or give --min-confidence",
            )
        task = Span(no_answer=no_answer)
    if (confidence := thresholds.min_confidence) is not None:
        if not 0 <= confidence <= 1:
            raise ConfigError(
                f"min_confidence is {confidence}", remedy="it is a probability, from 0 to 1"
            )
        if not isinstance(task, Classify | Choice):
            raise ConfigError(
                f"--min-confidence is for classes and choices, and this is {task.title.lower()}",
                remedy="leave it out",
            )
        task = replace(task, min_confidence=confidence)
    return task


def _answers(
    model: Model,
    tokenizer: Tokenizer,
    task: Task[Any],
    file: str,
    reading: Reading,
    room: Room,
    top: int,
    rows: int,
) -> Iterator[Answered]:
    """Answer for the rows of a file by the model's task."""
    labels, trained = model.config.labels, model.config.preprocessing
    asked = asked_of_task(task, file, reading, pairs=trained.pairs if trained else None)
    count = long = 0

    def length(each: Asked[Any]) -> int:
        return 0 if each.row is None else task.characters(each.row)

    for window in windows(asked, rows, length):
        own = [each.row for each in window if each.row is not None]
        records: Iterator[dict[str, Any]] = iter(())
        if own:
            encoded = task.encode(tokenizer, own, labels, room, labelled=False)
            count, long = count + len(own), long + encoded.long_texts
            found = task.answers(model, encoded, own)
            records = (task.record(answer, labels, top) for answer in found)
        for each in window:
            record = None if each.row is None else next(records)
            lines = _lines_of(task, each.row, record, labels)
            if record is not None and isinstance(each.row, Tagged):
                record = in_the_text_as_written(record, each.row.text, each.columns)
            yield each, record, lines
    if long:
        became = "--long says what is read of them" if task.fits else "read in windows"
        say(f"{long:,} of {count:,} texts were longer than {room.longest} tokens: {became}")


def _lines_of(
    task: Task[Any],
    row: Any,  # noqa: ANN401
    record: dict[str, Any] | None,
    labels: tuple[str, ...],
) -> Lines:
    return lambda: iter(()) if record is None else task.lines(row, record, labels, _shown)


def _continues(config: ModelConfig) -> bool:
    """Return whether a model was pre-trained from left to right, and for no task since."""
    return config.predicts is None and config.masked_lm and config.encoder.causal


def _continued(
    model: Model,
    tokenizer: Tokenizer,
    file: str,
    reading: Reading,
    config: ContinuationConfig,
    rows: int,
) -> Iterator[Answered]:
    """Continue the texts of a file."""

    def length(each: Asked[Example]) -> int:
        return 0 if each.row is None else text_length(each.row)

    def lines(text: str, more: str) -> Lines:
        return lambda: iter((_shown(text), f"    {_shown(more.strip())}"))

    count = 0
    for window in windows(asked_texts(file, reading, pairs=False), rows, length):
        own = [each.row for each in window if each.row is not None]
        found = continuations(model, tokenizer, own, config, first=count, rows=max(1, len(own)))
        count += len(own)
        for each in window:
            if each.row is None:
                yield each, None, lambda: iter(())
                continue
            more = next(found).text
            yield each, {"continuation": more}, lines(each.row.text, more)


def _of_pretraining(
    model: Model, tokenizer: Tokenizer, file: str, reading: Reading, top: int, rows: int
) -> Iterator[Answered]:
    """Fill the masks of texts, or tell of pairs without a mask whether they belong together."""
    mask = tokenizer.vocabulary[tokenizer.mask_id]
    asked = asked_texts(file, reading, pairs=model.config.next_sentence)

    def length(each: Asked[Example]) -> int:
        return 0 if each.row is None else text_length(each.row)

    for window in windows(asked, rows, length):
        own = [each.row for each in window if each.row is not None]
        pairs = [row for row in own if _is_pair(row, mask, model.config)]
        texts = [row for row in own if not _is_pair(row, mask, model.config)]
        records = {
            id(row): found
            for part, answer in ((pairs, _next_sentences), (texts, _fillings))
            if part
            for row, found in zip(part, answer(model, tokenizer, part, top), strict=True)
        }
        for each in window:
            record = None if each.row is None else records[id(each.row)]
            yield each, record, _lines_of_pretraining(each.row, record)


def _is_pair(row: Example, mask: str, config: ModelConfig) -> bool:
    """Tell whether it is asked if the second text follows the first."""
    unmasked = mask not in row.text and mask not in (row.text_pair or "")
    return config.next_sentence and row.text_pair is not None and unmasked


def _next_sentences(
    model: Model, tokenizer: Tokenizer, rows: list[Example], top: int
) -> Iterator[dict[str, Any]]:
    """Tell of each pair what the head of pre-training says."""
    del top
    encoded = encode_examples(
        tokenizer,
        [row.text for row in rows],
        [row.text_pair for row in rows],
        longest=model.config.encoder.longest,
    )
    name = "in_order" if family(model.config.encoder) == "albert" else "is_next"
    for share in next_sentence_probabilities(model, encoded).tolist():
        yield {name: share >= 0.5, "probability": round(share, 6)}


def _fillings(
    model: Model, tokenizer: Tokenizer, rows: list[Example], top: int
) -> Iterator[dict[str, Any]]:
    """Tell what stands behind each mask of each text."""
    if not model.config.masked_lm:
        raise ExampleError(
            "is no pair of texts, and the model can only tell whether one follows another",
            where=rows[0].source,
            line=rows[0].line,
            remedy="write both texts with a tab between",
        )
    for found in fill_masks(model, tokenizer, rows, top=top, rows=len(rows)):
        yield {
            "masks": [
                [{"piece": each.piece, "probability": round(each.probability, 6)} for each in mask]
                for mask in found.masks
            ]
        }


def _lines_of_pretraining(row: Example | None, record: dict[str, Any] | None) -> Lines:
    """Return fillings below their text, or the probability before the pair."""

    def lines() -> Iterator[str]:
        if row is None or record is None:
            return
        if "masks" not in record:
            name = "is next" if "is_next" in record else "in order"
            texts = f"{row.text} | {row.text_pair}"
            yield f"{name} {record['probability']:.3f}  {_shown(texts)}"
            return
        yield _shown(row.text)
        for mask in record["masks"]:
            shares = (f"{each['piece']} {each['probability']:.3f}" for each in mask)
            yield f"    {'  '.join(shares)}"

    return lines


def _shown(text: str) -> str:
    """The beginning of a text on one line, without what a terminal would obey."""
    room = max(40, shutil.get_terminal_size().columns - 30)
    return printable(text, room)
