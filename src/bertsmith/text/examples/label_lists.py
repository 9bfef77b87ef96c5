"""Several labels in a cell: lists of them, and the sign between them where they are one string."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal

from bertsmith.core.errors import ExampleError
from bertsmith.text.config import Columns
from bertsmith.text.examples.columns import locate_columns
from bertsmith.text.examples.example import ANGLED, BadLabel, shared_parts, written_list
from bertsmith.text.examples.reading import first_rows, has_labels
from bertsmith.text.opening import TextFile

_PLURALS = ("labels", "tags", "topics", "genres", "categories", "keywords", "classes", "emotions")
# minimum share of recurring parts for cells to hold several labels
_SHARED = 0.5
_COMMA = re.compile(r"\s*-?\d+,\d+\s*")
_SIGN_NAMES: dict[Literal[",", ";"], str] = {",": "comma", ";": "semicolon"}
# of HTML, as &amp;: what it ends with separates nothing
_ENTITY = re.compile(r"&#?\w{2,32};")


def lists_of_labels(values: Sequence[object]) -> str | None:
    """Return how values hold several labels each; None if they hold one, or other signs decide."""
    if any(isinstance(value, list) for value in values) or _are_written_lists(values):
        single = all(isinstance(value, list) and len(value) == 1 for value in values)
        more = ", one in each, which --task classify learns as classes" if single else ""
        return f"lists of labels{more}"
    if any(isinstance(value, str) and "|" in value for value in values):
        return "labels with | between them"
    angled = [isinstance(value, str) and ANGLED.fullmatch(value.strip()) for value in values]
    if values and all(angled) and any("><" in str(value) for value in values):
        return "labels between angle brackets"
    return None


def _are_written_lists(values: Sequence[object]) -> bool:
    """Return whether strings are lists as JSON or Python writes them, of other lengths than one."""
    lists: list[list[object]] = []
    for value in values:
        if not isinstance(value, str) or not value.lstrip().startswith("["):
            return False
        try:
            lists.append(written_list(value))
        except BadLabel:
            return False
        if not all(isinstance(item, str | int | float) for item in lists[-1]):
            return False
    return any(len(items) != 1 for items in lists)


def separated_labels(file: TextFile, name: str, values: Sequence[object]) -> str | None:
    """Return what separates several labels in cells, commas or semicolons; raise if uncertain."""
    sign, share, cells = _separator(values)
    plural = name.strip("'").casefold() in _PLURALS
    clear = plural and share >= _SHARED
    if cells and all(map(_COMMA.fullmatch, cells)) and not clear:
        problem = f"{name} holds {cells[0]!r}, a number with a decimal comma or several labels"
        remedy = (
            "pass --task regression, or --task multi-label --label-separator ',', or --task "
            "classify"
        )
        raise file.fault(problem, remedy=remedy)
    if clear:
        return f"{_SIGN_NAMES[sign]}s"
    if share < _SHARED and not (plural and cells):
        return None
    problem = (
        f"{name} holds {cells[0][:40]!r}, several labels or one with a {_SIGN_NAMES[sign]} in it"
    )
    remedy = f"pass --task multi-label --label-separator '{sign}', or --task classify"
    raise file.fault(problem, remedy=remedy)


def _separator(values: Sequence[object]) -> tuple[Literal[",", ";"], float, list[str]]:
    """Return what may separate labels, the share of parts that recur, and the cells with it."""
    strings = [value for value in values if isinstance(value, str)]
    results: list[tuple[Literal[",", ";"], float, list[str]]] = []
    for sign in _SIGN_NAMES:
        cells = [value for value in strings if sign in value]
        if sign == ";" and any(map(_ENTITY.search, cells)):
            cells = []
        results.append((sign, (shared_parts(strings, sign) or 0.0) if cells else 0.0, cells))
    return max(results, key=lambda result: (result[1], bool(result[2])))


def label_separator(path: Path, columns: Columns) -> Literal["|", ",", ";"]:
    """Return the separator of the labels in a multi-label file.

    Raises `ExampleError` if uncertain.
    """
    if columns.label_separator != "auto":
        return columns.label_separator
    if columns.labels or path.is_dir() or has_labels(path, columns):
        return "|"
    values = _labels_of_table(path, columns)
    lists = any(isinstance(value, str) and value.lstrip().startswith("[") for value in values)
    if lists or any(isinstance(value, str) and "|" in value for value in values):
        return "|"
    sign, share, cells = _separator(values)
    if not cells:
        return "|"
    if share < _SHARED:
        problem = (
            f"a label is {cells[0][:40]!r}, several labels or one with a {_SIGN_NAMES[sign]} in it"
        )
        remedy = f"state the separator of labels: --label-separator '{sign}' or '|'"
        raise TextFile(path, ExampleError, columns.encoding).fault(problem, remedy=remedy)
    return sign


def known_separator(
    path: Path, columns: Columns, known: Collection[str]
) -> Literal["|", ",", ";"] | None:
    """Return the separator that divides the cells of a multi-label file into `known` labels.

    None if not exactly one does. Raises `ExampleError`.
    """
    if columns.labels or path.is_dir() or has_labels(path, columns):
        return None
    cells = [value for value in _labels_of_table(path, columns) if isinstance(value, str) and value]
    signs: tuple[Literal["|", ",", ";"], ...] = ("|", ",", ";")
    found = [
        sign
        for sign in signs
        if any(sign in cell for cell in cells)
        and all(part.strip() in known for cell in cells for part in cell.split(sign))
    ]
    return found[0] if len(found) == 1 else None


def _labels_of_table(path: Path, columns: Columns) -> list[object]:
    """Return the cells of the label's column in the first rows of a table."""
    head, rows = first_rows(path, columns)
    file = TextFile(path, ExampleError, columns.encoding)
    places = locate_columns(head, columns, file, need_label=True)
    assert places.label is not None
    return [row[places.label] for row in rows]
