"""What stands in the cells of a label: a class, some classes, a number."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from bertsmith.core.errors import BlankText
from bertsmith.core.json_files import parse_json
from bertsmith.text.corpus.documents import tidy
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


_YES = {"1": True, "1.0": True, "true": True, "0": False, "0.0": False, "false": False}


class BadLabel(ValueError):
    """What is wrong with a label, and what to do about it; readers add the place."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(what)
        self.what, self.remedy = what, remedy


def class_of(value: object) -> str | None:
    """A class as written; numbers without fraction are written without. None: there is none."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if value is None or isinstance(value, str | int | float):
        label = tidy("" if value is None else str(value))
        return None if label in ("", "nan") else label
    raise BadLabel("the label is neither string nor number", "name another column, or the task")


def number_of(value: object) -> float | None:
    """A finite number, None where there is none."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadLabel("the label is no number", "name another column, or the task")
    try:
        number = float(value)
    except (ValueError, OverflowError) as error:
        remedy = "write it with a point, such as 3.75, or name the task"
        raise BadLabel(f"the label is no number: {str(value)[:40]!r}", remedy) from error
    if not math.isfinite(number):
        raise BadLabel(f"the label is {number}, no finite number", "remove the row or mend it")
    return number


def shared_parts(values: Iterable[object], separator: str) -> float | None:
    """Return the share of the parts between separators that other values have too.

    The labels of ``a,b`` and ``c,a`` and ``b`` are shared; of names such as ``Paris, France`` few
    parts are. None if no value has a separator.
    """
    strings = {value.strip() for value in values if isinstance(value, str)}
    cells = {value: {part.strip() for part in value.split(separator)} for value in strings}
    counts = Counter(part for parts in cells.values() for part in parts)
    parts = {part for found in cells.values() if len(found) > 1 for part in found}
    return sum(counts[part] > 1 for part in parts) / len(parts) if parts else None


def classes_of(value: object, separator: str = "|") -> tuple[str, ...] | None:
    """Classes out of a list, or out of a string such as ``a|b`` or ``["a", "b"]``.

    An empty string or list says that none applies; None that nothing is known.
    """
    if value is None:
        return None
    parts: Sequence[object]
    if isinstance(value, str) and value.lstrip().startswith("["):
        parts = _json_list(value)
    elif isinstance(value, str):
        parts = value.split(separator) if value.strip() else ()
    elif isinstance(value, list | tuple):
        parts = value
    else:
        parts = (value,)
    labels = []
    for part in parts:
        label = class_of(part)
        if label is None:
            raise BadLabel(
                "an empty label among several",
                f"write a{separator}b, without {separator} at the ends",
            )
        labels.append(label)
    return tuple(dict.fromkeys(labels))


def yes_or_no(value: object, name: str) -> bool:
    """What a column of 0 and 1 says."""
    written = class_of(value)
    answer = _YES.get(written.lower()) if written is not None else None
    if answer is None:
        remedy = "a column of its own for each label holds 0 or 1"
        raise BadLabel(f"{name!r} is {str(value)[:40]!r}, neither 0 nor 1", remedy)
    return answer


def _json_list(written: str) -> list[object]:
    try:
        found = parse_json(written)
    except ValueError as error:
        raise BadLabel("the labels are no JSON list", 'write ["a", "b"] or a|b') from error
    return list(found)


LabelStart = Literal["auto", "0", "1"]


def label_start(labels: Iterable[tuple[int, int, int]], file: TextFile) -> int:
    """Return what numeric labels count from, given line, label and number of options of each.

    A 0 says that it is 0; where there is none, a label that is the number of options says that it
    is 1. Raises the file's error where there is neither; 0 where there are no numeric labels.
    """
    first: tuple[int, int] | None = None
    last = False
    for line, label, options in labels:
        if label == 0:
            return 0
        first = first or (line, label)
        last = last or label == options
    if first is None or last:
        return int(last)
    what = (
        f"the labels may count from 0 or from 1: none is 0, and none the last, such as {first[1]}"
    )
    remedy = "state it: --columns.label_start 0 or --columns.label_start 1"
    raise file.fault(what, first[0], remedy)
