"""Reading files that somebody else wrote, without being led into trouble by them."""

from __future__ import annotations

import errno
import json
import os
import stat
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import Any

from bertsmith.errors import UserError

# what follows a value may recurse through it, down to Python's own limit
DEEPEST = 64

_BACKSLASH = "\\"
# a pipe that takes the file's place after it was looked at must not be waited for
_NO_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; `OSError` for a device, pipe, socket or folder.

    None of these is opened: reading a device may never end, and opening a pipe may never begin.
    """
    _check_regular(path, os.stat(path).st_mode)
    handle = os.open(path, os.O_RDONLY | _NO_WAITING)
    try:
        _check_regular(path, os.fstat(handle).st_mode)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _check_regular(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "is no regular file", str(path))


def read_bytes(path: Path, error: type[UserError], *, largest: int, remedy: str = "") -> bytes:
    """Return the content of a regular file of at most `largest` bytes; raises `error`."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            # also a file that grows meanwhile
            raw = b"" if size > largest else file.read(largest + 1)
    except OSError as refusal:
        raise error(
            f"cannot be read: {refusal.strerror or refusal}", where=path, remedy=remedy
        ) from refusal
    if max(size, len(raw)) > largest:
        found = max(size, len(raw))
        raise error(f"is {_size(found)} long; at most {_size(largest)} are read", where=path)
    return raw


def _size(count: int) -> str:
    return f"{count:,} bytes" if count < 2**20 else f"{count / 2**20:,.0f} MiB"


def names_a_file_inside(name: str) -> bool:
    """Return whether a name in a folder's record can only be that of a file in that folder."""
    parts = PurePosixPath(name).parts
    plain = name.isprintable() and _BACKSLASH not in name and ":" not in name
    return plain and bool(parts) and not name.startswith("/") and ".." not in parts


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
    raw = read_bytes(path, error, largest=largest, remedy=remedy)
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
