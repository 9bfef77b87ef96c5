"""Answers for texts: classes or fillings of [MASK], by what the model folder holds."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from bertsmith.disk import writing
from bertsmith.errors import ConfigError, ModelFolderError
from bertsmith.inference.classify import Classified, classify
from bertsmith.inference.fill_mask import Filled, fill_masks
from bertsmith.inference.windows import ROWS
from bertsmith.log import say
from bertsmith.models.model import Model
from bertsmith.recipes.devices import device_named
from bertsmith.recipes.texts import Texts
from bertsmith.text.columns import USUAL, Columns
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
    columns: Columns = USUAL,
    longest: int | None = None,
    device: str = "auto",
) -> None:
    """Write to standard output, text by text, the classes or what stands behind each [MASK].

    A folder with a classifier names classes, one with a masked-LM head only fills masks. Memory
    does not grow with the number of texts. A text longer than `longest` tokens, by default the
    model's limit, is classified by its beginning; how many were cut is told at the end.
    """
    if top < 1:
        raise ConfigError(f"top is {top}", remedy="it must be at least 1")
    if longest is not None and longest < 5:
        raise ConfigError(f"longest is {longest}", remedy="it must be at least 5 tokens")
    place = device_named(device)
    loaded, tokenizer = load_model(model_folder(model))
    texts = Texts(file, columns)
    classifies = loaded.config.predicts == "class"
    answer = _classes if classifies else _fillings
    if not classifies and not loaded.config.masked_lm:
        raise ModelFolderError(
            "has neither a classifier nor a masked-LM head",
            where=model,
            remedy="fine-tune it first: bertsmith finetune MODEL TRAIN --out RUN",
        )
    # whoever types texts wants each answered at once
    rows = 1 if file == "-" and sys.stdin.isatty() else ROWS
    loaded.to(place)
    for line in answer(loaded, tokenizer, texts, top, format, longest, rows):
        _write(line)
        if rows == 1:
            sys.stdout.flush()
    if texts.blank:
        say(f"{texts.blank:,} empty lines passed over")


def _classes(
    model: Model,
    tokenizer: Tokenizer,
    texts: Texts,
    top: int,
    form: Format,
    longest: int | None,
    rows: int,
) -> Iterator[str]:
    cut = count = 0
    width = max(map(len, model.config.labels))
    for found in classify(model, tokenizer, texts, longest=longest, rows=rows):
        count, cut = count + 1, cut + found.cut
        if form == "jsonl":
            yield _json(_class_object(found, top))
        else:
            yield f"{found.label:<{width}}  {found.probability:.3f}  {_shown(found.example.text)}"
    if cut:
        limit = min(longest or model.config.encoder.longest, model.config.encoder.longest)
        say(f"{cut:,} of {count:,} texts were longer than {limit} tokens and were cut")


def _class_object(found: Classified, top: int) -> dict[str, Any]:
    pair = found.example.text_pair
    return {
        "text": found.example.text,
        **({} if pair is None else {"text_pair": pair}),
        "label": found.label,
        "probability": round(found.probability, 6),
        "probabilities": {label: round(share, 6) for label, share in found.top(top)},
    }


def _fillings(
    model: Model,
    tokenizer: Tokenizer,
    texts: Texts,
    top: int,
    form: Format,
    longest: int | None,
    rows: int,
) -> Iterator[str]:
    del longest  # a mask may stand in what would be cut, so a text too long is an error
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
