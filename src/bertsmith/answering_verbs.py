"""The verbs that ask a fine-tuned model: each is a function that calls one recipe."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Literal

from bertsmith.command import Verb
from bertsmith.reading_options import Layout, OnBad, Scheme, reading_of

Fit = Literal["head", "tail", "head+tail", "windows"]


def predict(
    model: Path,
    file: str = "-",
    *,
    top: int = 5,
    format: Literal["table", "jsonl"] = "table",
    longest: int | None = None,
    long: Fit = "head",
    stride: int | None = None,
    no_answer: float | None = None,
    text_column: str | None = None,
    text_pair_column: str | None = None,
    on_bad: OnBad = "fail",
    device: str = "auto",
) -> None:
    """Answer for texts, by what the model folder was taught, or fill in [MASK].

    Memory stays the same whatever the number of texts.

    Args:
        model: folder of a model, or hub:owner/name, or with @revision
        file: texts, one a line or in the columns of a table, or a file of the model's task; - is
            standard input
        top: answers to show for each text
        format: a table to read, or a JSON object a line
        longest: tokens of a text that are read at once, where that is less than the model can
        long: what is read of longer texts: head, tail, head+tail, or windows, all of it
        stride: tokens that two windows share, where words or answers are looked for; a third of
            all where none are named
        no_answer: give no answer to a question where the doubt is over this; finetune tells what
            is best
        text_column: column of the text, where its name is not a usual one
        text_pair_column: column of the second text
        on_bad: what becomes of bad rows; quarantine puts them into FILE.bad.jsonl
        device: cpu, cuda or cuda:1; auto is a GPU if there is one
    """
    from bertsmith.recipes.predict import predict as recipe

    reading = reading_of(text=text_column, text_pair=text_pair_column, on_bad=on_bad)
    recipe(
        model,
        file,
        top=top,
        format=format,
        reading=reading,
        longest=longest,
        long=long,
        stride=stride,
        no_answer=no_answer,
        device=device,
    )


def evaluate(
    model: Path,
    file: Path,
    *,
    longest: int | None = None,
    long: Fit = "head",
    stride: int | None = None,
    text_column: str | None = None,
    text_pair_column: str | None = None,
    label_column: str | None = None,
    label_columns: str | None = None,
    group_column: str | None = None,
    layout: Layout = "table",
    label_until: str | None = None,
    tag_column: int = -1,
    scheme: Scheme = "auto",
    on_bad: OnBad = "fail",
    device: str = "auto",
    json: bool = False,
) -> None:
    """Score a fine-tuned model on labelled examples, with 95 % intervals.

    Labels are compared by name, whatever the order in which the file has them.

    Args:
        model: folder of a fine-tuned model
        file: labelled examples
        longest: tokens of a text that are read at once, where that is less than the model can
        long: what is read of longer texts: head, tail, head+tail, or windows, all of it
        stride: tokens that two windows share, where words or answers are looked for
        text_column: column of the text, where its name is not a usual one
        text_pair_column: column of the second text
        label_column: column of the label
        label_columns: columns of 0 and 1, with commas between their names, for several labels
        group_column: column of what names the query, for ranking
        layout: label-first for lines of a label, a blank and a text
        label_until: keep labels up to this sign, as the colon in ENTY:animal
        tag_column: column of the tags from 0, or from the end below it
        scheme: how tags say where an entity begins
        on_bad: what becomes of bad rows; quarantine puts them into FILE.bad.jsonl
        device: cpu, cuda or cuda:1; auto is a GPU if there is one
        json: print the scores as one JSON object on standard output
    """
    from bertsmith.recipes.evaluate import evaluate as recipe

    scores = recipe(
        model,
        file,
        reading=reading_of(
            text_column, text_pair_column, label_column, label_columns, group_column,
            layout, label_until, tag_column, scheme, on_bad,
        ),
        longest=longest,
        long=long,
        stride=stride,
        device=device,
    )  # fmt: skip
    if json:
        print(json_format.dumps(scores))


ANSWERING_VERBS = {
    "predict": Verb(
        function=predict,
        examples=("spam/model messages.txt", "run/model --top 3 < sentences-with-masks.txt"),
    ),
    "evaluate": Verb(function=evaluate, examples=("spam/model test.csv",)),
}
