"""Records of a run that a later call reads back: JSON that carries the hash of its content.

A record that was cut short, edited or exchanged for something else is found out when it is read,
so that whoever reads it need not ask of each value whether it can be.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.errors import RunFolderError
from bertsmith.training.run_folder import write_json
from bertsmith.untrusted import read_json

_HASH = "sha256"
# the largest is what was said of each row of a large dev set
_LARGEST = 2**30


def write_record(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object with its hash so that it is whole or not there; raises `DiskError`."""
    write_json(path, {_HASH: _hash(content), **content})


def read_record(path: Path) -> dict[str, Any]:
    """Return what `write_record` wrote; `RunFolderError` if it is not that any more."""
    remedy = "delete it, and give the command of the run again"
    try:
        content: dict[str, Any] = read_json(path, RunFolderError, largest=_LARGEST)
    except RunFolderError as error:
        raise RunFolderError(f"is damaged: {error.what}", where=path, remedy=remedy) from error
    if content.pop(_HASH, None) != _hash(content):
        raise RunFolderError("is damaged: it is not what was written", where=path, remedy=remedy)
    return content


def _hash(content: Mapping[str, Any]) -> str:
    # as it will be read: numbers that are keys are strings by then
    return hashlib.sha256(json.dumps(content, sort_keys=False).encode()).hexdigest()
