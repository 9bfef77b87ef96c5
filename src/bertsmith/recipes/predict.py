"""Answers for texts, of the kind that the model folder gives: classes, numbers, tags, spans, ..."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

from bertsmith.batches.fitting import Fit
from bertsmith.disk import writing
from bertsmith.errors import ConfigError, ModelFolderError
from bertsmith.inference.fill_mask import Filled, fill_masks
from bertsmith.inference.windows import ROWS, windows
from bertsmith.log import say
from bertsmith.models.model import Model
from bertsmith.recipes.devices import device_named
from bertsmith.recipes.reading import Reading
from bertsmith.recipes.tasks.raw_texts import RawTexts
from bertsmith.recipes.tasks.span import Span
from bertsmith.recipes.tasks.table import task_of
from bertsmith.recipes.tasks.task import Room, Task
from bertsmith.recipes.texts import Texts
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model
from bertsmith.weights.hub import model_folder

Format = Literal["table", "jsonl"]


def predict(
    model: str | Path,
    file: str = "-",
    *,
    top: int = 5,
    format: Format = "table",
    reading: Reading = Reading(),  # noqa: B008 (frozen)
    longest: int | None = None,
    long: Fit = "head",
    stride: int | None = None,
    no_answer: float | None = None,
    device: str = "auto",
) -> None:
    """Write to standard output, row by row, what the model answers, or what stands behind [MASK].

    A folder with a head for a task answers for it, one with a masked-LM head only fills masks.
    Memory does not grow with the number of rows. What is read of a text longer than `longest`
    tokens, by default the model's limit, is up to `long`; how many there were is told at the end.
    Questions get no answer where the doubt is over `no_answer`, or over the model's own threshold.
    """
    if top < 1:
        raise ConfigError(f"top is {top}", remedy="it must be at least 1")
    if longest is not None and longest < 8:
        raise ConfigError(f"longest is {longest}", remedy="it must be at least 8 tokens")
    place = device_named(device)
    loaded, tokenizer = load_model(model_folder(model))
    limit = loaded.config.encoder.longest
    room = Room(longest=min(longest or limit, limit), long=long, stride=stride)
    # whoever types texts wants each answered at once
    rows = 1 if file == "-" and sys.stdin.isatty() else ROWS
    loaded.to(place)
    asked: Iterable[Any] = Texts(file, reading.columns)
    if loaded.config.predicts is not None:
        task: Task[Any] = task_of(loaded.config)
        if no_answer is not None:
            task = Span(no_answer=no_answer)
        asked = task.asked(file, reading)
        lines = _answers(loaded, tokenizer, task, asked, room, top, format, rows)
    elif loaded.config.masked_lm:
        lines = _fillings(loaded, tokenizer, asked, top, format, rows)
    else:
        raise ModelFolderError(
            "has neither a head for a task nor a masked-LM head",
            where=model,
            remedy="fine-tune it first: bertsmith finetune MODEL TRAIN --out RUN",
        )
    for line in lines:
        _write(line)
        if rows == 1:
            sys.stdout.flush()
    if isinstance(asked, Texts | RawTexts) and asked.blank:
        say(f"{asked.blank:,} empty lines passed over")
    if bad := reading.bad_rows.told():
        say(bad)


def _answers(
    model: Model,
    tokenizer: Tokenizer,
    task: Task[Any],
    asked: Iterable[Any],
    room: Room,
    top: int,
    form: Format,
    rows: int,
) -> Iterator[str]:
    labels = model.config.labels
    count = long = 0
    for window in windows(asked, rows, task.characters):
        encoded = task.encode(tokenizer, window, labels, room, labelled=False)
        count, long = count + len(window), long + encoded.long_texts
        answers = task.answers(model, encoded, window)
        for row, answer in zip(window, answers, strict=True):
            record = task.record(answer, labels, top)
            if form == "jsonl":
                yield _json({**task.shown(row), **record})
            else:
                yield from task.lines(row, record, labels, _shown)
    if long:
        became = "--long says what is read of them" if task.fits else "read in windows"
        say(f"{long:,} of {count:,} texts were longer than {room.longest} tokens: {became}")


def _fillings(
    model: Model,
    tokenizer: Tokenizer,
    texts: Iterable[Any],
    top: int,
    form: Format,
    rows: int,
) -> Iterator[str]:
    for found in fill_masks(model, tokenizer, texts, top=top, rows=rows):
        if form == "jsonl":
            yield _json(_mask_object(found))
            continue
        yield _shown(found.example.text)
        for fillings in found.masks:
            shares = (f"{each.piece} {each.probability:.3f}" for each in fillings)
            yield f"    {'  '.join(shares)}"


def _mask_object(found: Filled) -> dict[str, Any]:
    return {
        "text": found.example.text,
        "masks": [
            [{"piece": each.piece, "probability": round(each.probability, 6)} for each in fillings]
            for fillings in found.masks
        ],
    }


def _shown(text: str) -> str:
    """The beginning of a text on one line, without what a terminal would obey."""
    room = max(40, shutil.get_terminal_size().columns - 30)
    kept = "".join(letter if letter.isprintable() else "?" for letter in text[: room + 1])
    return kept if len(kept) <= room else kept[: room - 1] + "…"


def _json(content: dict[str, Any]) -> str:
    readable = json.dumps(content, ensure_ascii=False)
    try:
        readable.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(content)
    return readable


def _write(line: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    with writing("standard output", then="give the same command again"):
        sys.stdout.write(line.encode(encoding, "replace").decode(encoding) + "\n")
