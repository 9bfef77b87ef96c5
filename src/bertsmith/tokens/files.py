"""Small files of a tokenizer: read with suspicion, and written whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from bertsmith import untrusted
from bertsmith.errors import DiskError, ModelFolderError, VocabularyError
from bertsmith.tokens.vocabulary import MOST_PIECES

# so many that a million pieces have room, so few that no nonsense in JSON grows beyond a gigabyte
LARGEST_FILE = 24 * 2**20

ErrorKind = type[VocabularyError | ModelFolderError]


def read_bytes(path: Path, error_kind: ErrorKind = ModelFolderError) -> bytes:
    """The bytes of a file. Raises `error_kind` when it is too long or unreadable."""
    return untrusted.read_bytes(path, error_kind, largest=LARGEST_FILE)


def read_text(path: Path, error_kind: ErrorKind = ModelFolderError) -> str:
    """The text of a file. Raises `error_kind` when it is too long, unreadable or not UTF-8."""
    raw = read_bytes(path, error_kind)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise error_kind(
            "is not UTF-8",
            where=path,
            line=raw.count(b"\n", 0, error.start) + 1,
            remedy="save it as UTF-8",
        ) from error


def read_lines(path: Path, error_kind: ErrorKind = ModelFolderError) -> list[str]:
    """The lines of a file; behind the last line feed one more, if only an empty one.

    Raises `error_kind` also for more lines than a vocabulary can have, before they are parted.
    """
    text = read_text(path, error_kind).replace("\r\n", "\n")
    if text.count("\n") > MOST_PIECES + 1:
        raise error_kind(
            f"holds more than {MOST_PIECES:,} pieces",
            where=path,
            remedy="is it a vocabulary? It must have one piece a line",
        )
    return text.split("\n")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file of JSON. Raises `ModelFolderError`."""
    remedy = "the file is damaged: save or download the folder again"
    found: dict[str, Any] = untrusted.read_json(
        path, ModelFolderError, largest=LARGEST_FILE, remedy=remedy
    )
    return found


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into a folder, which is made; each is complete or absent. Raises `DiskError`."""
    parts = {folder / f".{name}.part": folder / name for name in contents}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part, content in zip(parts, contents.values(), strict=True):
            part.write_bytes(content)
        for part, path in parts.items():
            part.replace(path)
    except OSError as error:
        for part in parts:
            with suppress(OSError):
                part.unlink()
        raise DiskError(
            f"cannot be written: {error.strerror}", where=folder, remedy="free some space"
        ) from error


def json_bytes(data: dict[str, Any]) -> bytes:
    """An object as a file of JSON."""
    return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()
