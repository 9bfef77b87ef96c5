"""A labelled example, and what its parts must be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bertsmith.errors import BlankText
from bertsmith.text.documents import tidy
from bertsmith.text.labels import class_of, classes_of, number_of
from bertsmith.text.opening import TextFile

Kind = Literal["class", "classes", "number", "rank"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A text or a pair of texts, with its label where that is known.

    `source` and `line` (from 1; of Parquet, the row) say where it stands. Texts are never empty,
    and their white space is single spaces. `label` is a class, or a number as written; `labels`
    are the classes of an example that may have several or none; `number` is finite. Pairs to be
    ranked have their relevance as `number` and the same `group` where they have the same query.
    """

    text: str
    text_pair: str | None
    label: str | None
    source: str
    line: int
    labels: tuple[str, ...] | None = None
    number: float | None = None
    id: str | None = None
    group: str | None = None


Check = Callable[[Example], str | None]
"""Says what is wrong with an example that can be read, None when it is right."""


def checked(file: TextFile, example: Example, check: Check | None) -> Example:
    """The example; raises the file's error when something is wrong with it."""
    wrong = None if check is None else check(example)
    if wrong is not None:
        raise file.fault(wrong, example.line, "mend the row, or leave it out")
    return example


def label_of(
    kind: Kind, value: object, separator: str = "|"
) -> tuple[str | None, float | None, tuple[str, ...] | None]:
    """Label, number and labels of an example, as its kind asks for; raises `BadLabel`."""
    if kind == "classes":
        return None, None, classes_of(value, separator)
    number = number_of(value) if kind in ("number", "rank") else None
    return class_of(value), number, None


def label_until(value: object, sign: str | None) -> object:
    """What of a label stands before the first such sign."""
    return value.split(sign)[0] if sign and isinstance(value, str) else value


def text_of(file: TextFile, line: int, role: str, value: object) -> str:
    """The tidy text of a cell; the file's error when it has none, or no string."""
    if value is not None and not isinstance(value, str):
        raise file.fault(f"the {role} is no string", line, "name a column of strings")
    if value and "\0" in value:
        raise file.fault(f"a zero byte in the {role}", line, "remove it: tr -d '\\000'")
    text = tidy(value or "")
    if not text:
        remedy = "remove the row or fill it in"
        raise BlankText(f"the {role} is empty", where=file.path, line=line, remedy=remedy)
    return text
