"""Labelled examples, and the parsing of their cells: text, class, classes, number."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from bertsmith.core.errors import BlankText
from bertsmith.core.normal_forms import normalize
from bertsmith.text.opening import TextFile, kind_of
from bertsmith.text.structured import literal
from bertsmith.text.tables import KEYED
from bertsmith.text.white_space import tidy

Kind = Literal["class", "classes", "number", "rank"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A text or a pair of texts, with its label if known.

    `source` and `line` (from 1; in Parquet, the row) locate it. Texts are never empty, unless blank
    rows are kept, and their white space is single spaces. `label` is a class, or a number as
    written; `labels` are the classes of a multi-label example, perhaps none; `number` is finite.
    Pairs to be ranked have their relevance as `number`. Pairs of the same query, or rows with
    another thing in common, have the same `group`. `written` is the text of a row to answer for as
    it was in the input, None where that is `text`.
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
    written: str | None = field(default=None, repr=False, compare=False)


def folded(text: str) -> str:
    """Return what is the same of texts that differ in capitals or in how characters are written.

    Copies of a text are found by it, as an uncased model reads them as one.
    """
    return normalize("NFKC", text).casefold()


Check = Callable[[Example], str | None]
"""A function that returns the error of a readable example, or None."""


def checked(file: TextFile, example: Example, check: Check | None) -> Example:
    """Return the example. Raises the file's error if `check` finds one."""
    error = None if check is None else check(example)
    if error is not None:
        raise file.fault(error, example.line, "correct the row or remove it")
    return example


_PRODIGY = ("_task_hash", "_input_hash")


def written_by_prodigy(names: Iterable[str]) -> bool:
    """Return whether the keys of a record are those that Prodigy gives its records."""
    return any(name in _PRODIGY for name in names)


def check_accepted(file: TextFile, line: int, record: Mapping[str, object] | None) -> None:
    """Raise the file's error for a record whose label was rejected, or left open, in Prodigy."""
    if record is None or not written_by_prodigy(record):
        return
    if (answer := record.get("answer")) in ("reject", "ignore"):
        what = f"its annotation was not accepted in Prodigy: the answer is {answer!r}"
        remedy = (
            "--on-bad skip leaves such records out; of a single label, --label-column answer "
            "learns which texts have it"
        )
        raise file.fault(what, line, remedy)


def label_of(
    kind: Kind, value: object, separator: str = "|"
) -> tuple[str | None, float | None, tuple[str, ...] | None]:
    """Return label, number and labels of an example of some kind. Raises `BadLabel`."""
    if kind == "classes":
        return None, None, classes_of(value, separator)
    if kind == "class" and isinstance(value, list):
        if len(value) > 1:
            remedy = "give one, or train with --task multi-label"
            raise BadLabel(f"{len(value)} labels instead of one", remedy)
        value = value[0] if value else None
    number = number_of(value) if kind in ("number", "rank") else None
    if kind == "rank" and number is not None and number < 0:
        raise BadLabel(f"the relevance is {number}", "relevance is 0 or more")
    return class_of(value), number, None


def label_until(value: object, sign: str | None) -> object:
    """Return the part of a label before the first `sign`."""
    return value.split(sign)[0] if sign and isinstance(value, str) else value


def text_of(
    file: TextFile, line: int, role: str, value: object, *, keep_blank: bool = False
) -> str:
    """Return the tidy text of a cell, with `keep_blank` "" for an empty one.

    Raises the file's error if it is empty otherwise, or not a string.
    """
    if isinstance(value, dict) and next(iter(value), "") in ("0", "1"):
        remedy = 'write an object for each row, as pandas does by to_json(orient="records")'
        raise file.fault(f"the {role} is not a string but those of many rows", line, remedy)
    if isinstance(value, dict) and value:
        option = "--text-column" if role == "text" else "--text-pair-column"
        remedy = f"name a key inside it, as in {option} KEY.{next(iter(value))}"
        raise file.fault(f"the {role} is not a string but an object", line, remedy)
    if isinstance(value, list):
        remedy = 'name a column of strings, or write a row for each text or pair: {"text": "..."}'
        raise file.fault(f"the {role} is not a string but a list", line, remedy)
    if value is not None and not isinstance(value, str):
        raise file.fault(f"the {role} is not a string", line, "name a column of strings")
    if value and "\0" in value:
        # in JSON it is an escape, which tr does not see
        command = "" if kind_of(file.path) in KEYED else ": tr -d '\\000'"
        raise file.fault(f"a zero byte in the {role}", line, f"remove it{command}")
    text = tidy(value or "")
    if not text and not keep_blank:
        remedy = "remove the row or fill it in"
        raise BlankText(f"the {role} is empty", where=file.path, line=line, remedy=remedy)
    return text


def as_written(text: str, value: object) -> str | None:
    """Return the string of which a tidy text was made, None where it is that text."""
    return value if isinstance(value, str) and value != text else None


_YES = {
    **dict.fromkeys(("1", "1.0", "true", "yes"), True),
    **dict.fromkeys(("0", "0.0", "false", "no"), False),
}


class BadLabel(ValueError):
    """An invalid label, with a remedy; `located` adds file and line."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.problem, self.remedy = problem, remedy


@contextmanager
def located(file: TextFile, line: int) -> Iterator[None]:
    """Raise a `BadLabel` inside the block as the file's error in a line."""
    try:
        yield
    except BadLabel as error:
        raise file.fault(error.problem, line, error.remedy) from error


def class_of(value: object, role: Literal["label", "id", "group"] = "label") -> str | None:
    """Return a class as written, whole numbers without fraction; None if there is none.

    Errors name the `role` of its column.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if value is None or isinstance(value, str | int | float):
        label = tidy("" if value is None else str(value))
        return None if not label or _is_nan(label) else label
    remedy = f"name another column with --{role}-column"
    if isinstance(value, dict) and value:
        remedy = f"name a key inside it, as in --{role}-column KEY.{next(iter(value))}"
    raise BadLabel(f"the {role} is neither string nor number", remedy)


def _is_nan(value: object) -> bool:
    """Return whether a cell is nan, as a number or written."""
    return isinstance(value, str | float) and tidy(str(value)).lower() == "nan"


_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")


def number_of(value: object) -> float | None:
    """Return a finite number, written with a decimal point or comma; None if there is none."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadLabel("the label is not a number", "name another column with --label-column")
    # only Python reads 1_2 as 12
    written = _with_point(value).replace("_", "?") if isinstance(value, str) else value
    try:
        number = float(written)
    except (ValueError, OverflowError) as error:
        remedy = "write a number, with a decimal point as in 3.75, or remove the row"
        raise BadLabel(f"the label is not a number: {str(value)[:40]!r}", remedy) from error
    if not math.isfinite(number):
        raise BadLabel(f"the label is {number}, not a finite number", "correct or remove the row")
    return number


def _with_point(written: str) -> str:
    """Return a number as written, but with a decimal point for a comma."""
    stripped = written.strip()
    if not _DECIMAL_COMMA.fullmatch(stripped):
        return written
    point = stripped.replace(",", ".")
    if _THOUSANDS.fullmatch(stripped):
        problem = f"the label {stripped!r} is {point} or {stripped.replace(',', '')}"
        raise BadLabel(problem, "write a decimal point, or no comma")
    return point


def shared_parts(values: Iterable[object], sign: str = ",") -> float | None:
    """Return the share of the parts between commas, or another sign, that recur in other values.

    The labels of ``a,b`` and ``c,a`` and ``b`` recur; of names such as ``Paris, France`` few parts
    do. None if no value has the sign.
    """
    strings = {value.strip() for value in values if isinstance(value, str)}
    cells = {value: {part.strip() for part in value.split(sign)} for value in strings}
    counts = Counter(part for parts in cells.values() for part in parts)
    parts = {part for split in cells.values() if len(split) > 1 for part in split}
    return sum(counts[part] > 1 for part in parts) / len(parts) if parts else None


ANGLED = re.compile(r"(?:<[^<>]+>)+")
"""Labels one after the other, each between angle brackets."""


def classes_of(value: object, separator: str = "|") -> tuple[str, ...] | None:
    """Return the classes in a list, or in a string such as ``a|b`` or ``["a", "b"]``.

    pandas writes a list to CSV as Python does, ``['a', 'b']``; Stack Exchange writes one as
    ``<a><b>`` or ``|a|b|``. An empty string or list means that none applies; None that the label
    is unknown, as with nan, which pandas writes for none.
    """
    if value is None or _is_nan(value):
        return None
    parts: Sequence[object]
    if isinstance(value, str) and value.lstrip().startswith("["):
        parts = written_list(value)
    elif isinstance(value, str) and ANGLED.fullmatch(value.strip()):
        parts = value.strip()[1:-1].split("><")
    elif isinstance(value, str):
        written = value.strip()
        closed = len(written) > 1 and written[0] == written[-1] == separator == "|"
        parts = (written[1:-1] if closed else written).split(separator) if written else ()
    elif isinstance(value, list | tuple):
        parts = value
    else:
        parts = (value,)
    labels = []
    for part in parts:
        label = class_of(part)
        if label is None and _is_nan(part):
            raise BadLabel(f"an empty label among several ({part})", "leave it out")
        if label is None:
            raise BadLabel(
                "an empty label among several",
                f"write a{separator}b, without {separator} at the ends",
            )
        labels.append(label)
    return tuple(dict.fromkeys(labels))


def are_marks(values: Iterable[str]) -> bool:
    """Return whether cells of columns of labels are marks, an x or nothing."""
    return {value.strip().lower() for value in values} == {"", "x"}


def yes_or_no(value: object, name: str, *, marks: bool = False) -> bool:
    """Parse a cell of a column of 0 and 1, or of yes and no, or of `marks`."""
    written = class_of(value)
    if marks and (written is None or written.lower() == "x"):
        return written is not None
    answer = _YES.get(written.lower()) if written is not None else None
    if answer is None:
        remedy = "give each label a column of 0 and 1"
        raise BadLabel(f"{name!r} is {str(value)[:40]!r}, neither 0 nor 1", remedy)
    return answer


def written_list(written: str) -> list[object]:
    """Parse a list in a cell, of JSON or of Python. Raises `BadLabel`."""
    try:
        result = literal(written)
    except ValueError as error:
        raise BadLabel("the labels are not a list", 'write ["a", "b"] or a|b') from error
    assert isinstance(result, list)
    return result


def label_start(labels: Iterable[tuple[int, int, int]], file: TextFile) -> int:
    """Return the start of numeric labels, 0 or 1, given line, label and number of options of each.

    It is 0 if any label is 0, else 1 if any label equals the number of options. Raises the file's
    error if there is neither; 0 without numeric labels.
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
    problem = f"the labels may count from 0 or from 1: none is 0 or the last, such as {first[1]}"
    remedy = "state it: --label-start 0 or --label-start 1"
    raise file.fault(problem, first[0], remedy)
