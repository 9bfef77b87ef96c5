"""The file by which a model folder says that it is to be opened in int8, and why.

`transformers` ignores it. The weights beside it are those of the model it was made of.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from bertsmith.core.errors import ModelFolderError
from bertsmith.core.files import read_json

QUANTIZED_FILE = "bertsmith_quantized.json"
_LARGEST = 2**20


def write_quantized(folder: Path, measured: Mapping[str, Any]) -> None:
    """Write the file into a folder that is being made, with what was measured."""
    data = {"precision": "int8", "measured": measured}
    text = json.dumps(data, indent=1, ensure_ascii=False)
    (folder / QUANTIZED_FILE).write_text(f"{text}\n", encoding="utf-8")


def quantized_precision(folder: Path) -> Literal["int8"] | None:
    """Return the precision that a folder is to be opened in, None where it does not say.

    Raises `ModelFolderError` for a file that cannot be understood.
    """
    path = folder / QUANTIZED_FILE
    if not path.is_file():
        return None
    found = read_json(path, ModelFolderError, largest=_LARGEST)
    if not isinstance(found, dict) or found.get("precision") != "int8":
        raise ModelFolderError(
            "does not say precision int8", where=path, remedy="delete it, or run quantize again"
        )
    return "int8"
