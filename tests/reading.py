"""Every reader of labelled data under one name, for tests of what they have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from bertsmith.text.bad_rows import BadRows
from bertsmith.text.config import Columns, TagColumns
from bertsmith.text.examples.formats.choices import read_choices
from bertsmith.text.examples.formats.conll import read_tagged
from bertsmith.text.examples.formats.squad import read_questions
from bertsmith.text.examples.glue import TASKS, read_glue
from bertsmith.text.examples.reading import Example, read_examples

Reader = Callable[[Path, BadRows], Iterator[object]]


def _examples(kind: str = "class", **columns: object) -> Reader:
    def read(path: Path, bad: BadRows) -> Iterator[object]:
        named = Columns.from_dict(columns)
        return read_examples(path, named, need_label=True, kind=kind, bad=bad)  # type: ignore[arg-type]

    return read


def _known(path: Path, bad: BadRows) -> Iterator[object]:
    def check(example: Example) -> str | None:
        return None if example.label in ("a", "b") else f"the label {example.label!r} is new"

    return read_examples(path, need_label=True, check=check, bad=bad)


def _glue(name: str, split: str) -> Reader:
    return lambda path, bad: read_glue(path, TASKS[name], split, bad=bad)


def _tagged(**columns: object) -> Reader:
    named = TagColumns.from_dict(columns)
    return lambda path, bad: read_tagged(path, named, need_tags=True, bad=bad)


READERS: dict[str, Reader] = {
    "class": _examples(),
    "classes": _examples("classes"),
    "flags": _examples("classes", labels=["rude", "loud"]),
    "number": _examples("number"),
    "rank": _examples("rank"),
    "id": _examples(id="id"),
    "numbered": _examples(text="1", label="0"),
    "label-first": _examples(layout="label-first", label_until=":"),
    "dev": _known,
    "tag": _tagged(),
    "bio2": _tagged(scheme="bio2"),
    "span": lambda path, bad: read_questions(path, need_answers=True, bad=bad),
    "choice": lambda path, bad: read_choices(path, need_label=True, bad=bad),
    "stories": lambda path, bad: read_choices(path, need_label=False, bad=bad),
    "CoLA": _glue("CoLA", "dev"),
    "CoLA test": _glue("CoLA", "test"),
    "SST-2": _glue("SST-2", "dev"),
    "MRPC": _glue("MRPC", "dev"),
    "STS-B": _glue("STS-B", "dev"),
    "MNLI": _glue("MNLI", "dev_matched"),
    "QQP": _glue("QQP", "dev"),
    "RTE": _glue("RTE", "dev"),
}
