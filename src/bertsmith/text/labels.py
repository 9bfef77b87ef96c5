"""What stands in the cells of a label: a class, some classes, a number."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence

from bertsmith.text.documents import tidy

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
        found = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise BadLabel("the labels are no JSON list", 'write ["a", "b"] or a|b') from error
    return list(found)
