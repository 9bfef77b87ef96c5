"""Reading the JSON files of a model folder, which may hold anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.errors import ModelFolderError


def read_json(path: Path, *, largest: int = 2**20) -> Mapping[str, Any]:
    """The object in a file of at most `largest` bytes; `ModelFolderError` for anything else."""
    try:
        if path.stat().st_size > largest:
            raise ModelFolderError(f"is larger than {largest / 2**20:g} MiB", where=path)
        data = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ModelFolderError(f"not JSON: {error.msg}", where=path, line=error.lineno) from error
    except (OSError, ValueError, RecursionError) as error:
        # a number of thousands of digits is a ValueError
        raise ModelFolderError(f"cannot be read: {error}", where=path) from error
    if not isinstance(data, dict):
        raise ModelFolderError("holds no JSON object", where=path)
    return data
