"""JSON: that of strangers read with every bound checked, our own written whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bertsmith.core.errors import UserError
from bertsmith.core.files import read_bytes, replaced_file

# what follows a value may recurse through it, down to Python's own limit
DEEPEST = 64


class NestedTooDeep(ValueError):
    """JSON that is nested deeper than `DEEPEST`."""

    def __init__(self) -> None:
        super().__init__(f"nested deeper than {DEEPEST} levels")


def parse_json(text: bytes | str, *, unique: bool = False) -> Any:  # noqa: ANN401
    """Return the value of JSON, in UTF-8 where it is bytes; `ValueError` for anything else.

    The same for values that are nested deeper than `DEEPEST`, and with `unique` for an object in
    which a name stands twice.
    """
    try:
        written = text if isinstance(text, str) else text.decode("utf-8")
        value = json.loads(written, object_pairs_hook=_no_duplicates if unique else None)
    except RecursionError as error:
        raise NestedTooDeep from error
    if written.count("[") + written.count("{") > DEEPEST and _too_deep(value):
        raise NestedTooDeep
    return value


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice")
    return found


def _too_deep(value: object) -> bool:
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def read_json(
    path: Path,
    error: type[UserError],
    *,
    largest: int,
    kind: type[dict[str, Any]] | type[list[Any]] = dict,
    remedy: str = "",
) -> Any:  # noqa: ANN401
    """Return the JSON object, or list, in a regular file of at most `largest` bytes.

    Raises `error`, with the line where there is one, for anything that `parse_json` refuses.
    """
    raw = read_bytes(path, error, largest=largest, remedy=remedy)
    try:
        data = parse_json(raw)
    except json.JSONDecodeError as damage:
        raise error(
            f"not JSON: {damage.msg}", where=path, line=damage.lineno, remedy=remedy
        ) from damage
    except NestedTooDeep as damage:
        raise error(f"is {damage}", where=path, remedy=remedy) from damage
    except ValueError as damage:
        # bytes that are no UTF-8, numbers of thousands of digits
        raise error(f"not JSON: {damage}", where=path, remedy=remedy) from damage
    if not isinstance(data, kind):
        what = "object" if kind is dict else "list"
        raise error(f"holds no JSON {what}", where=path, remedy=remedy)
    return data


def write_json(path: Path, content: object, *, in_ascii: bool = True) -> None:
    """Write JSON so that the file is whole or not there; raises `DiskError`."""
    text = json.dumps(content, indent=2, ensure_ascii=in_ascii)
    with replaced_file(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def other_version(version: object, current: int) -> str:
    """Return which version of the program wrote a format, or "" for the current format."""
    if type(version) is int and version == current:
        return ""
    later = type(version) is int and version > current
    return "a later version of bertsmith" if later else "an earlier version of bertsmith"
