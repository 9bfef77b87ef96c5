"""Reading JSON that somebody else wrote, without being led into trouble by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bertsmith.errors import UserError

# what follows a value may recurse through it, down to Python's own limit
DEEPEST = 64


def read_json(
    path: Path,
    error: type[UserError],
    *,
    largest: int,
    kind: type[dict[str, Any]] | type[list[Any]] = dict,
    remedy: str = "",
) -> Any:  # noqa: ANN401
    """The JSON object, or list, in a file of at most `largest` bytes; read only if it is a file.

    Raises `error`, with the line where there is one, for anything else, and for values that are
    nested deeper than `DEEPEST`.
    """
    try:
        if not path.is_file():
            raise error("is no file", where=path, remedy=remedy)
        size = path.stat().st_size
        if size > largest:
            raise error(f"is {size:,} bytes long; at most {largest:,} are read", where=path)
        raw = path.read_bytes()
    except OSError as refusal:
        raise error(f"cannot be read: {refusal.strerror}", where=path) from refusal
    try:
        data = json.loads(raw.decode("utf-8"))
    except json.JSONDecodeError as damage:
        raise error(
            f"not JSON: {damage.msg}", where=path, line=damage.lineno, remedy=remedy
        ) from damage
    except (ValueError, RecursionError) as damage:
        # bytes that are no UTF-8, numbers of thousands of digits
        raise error(f"not JSON: {damage}", where=path, remedy=remedy) from damage
    if not isinstance(data, kind):
        what = "object" if kind is dict else "list"
        raise error(f"holds no JSON {what}", where=path, remedy=remedy)
    if too_deep(data):
        raise error(f"is nested deeper than {DEEPEST} levels", where=path, remedy=remedy)
    return data


def too_deep(data: object) -> bool:
    """Whether some JSON is nested deeper than `DEEPEST`."""
    level: list[Any] = [data]
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
