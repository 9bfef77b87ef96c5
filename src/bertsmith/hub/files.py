"""The files of a repository or folder that make up a model: no others are transferred.

Code and pickles never are, except that a conversion may download pickled weights if there are no
others.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Literal

from bertsmith.core.errors import ModelFolderError
from bertsmith.core.json_files import read_json
from bertsmith.tokens.folder.files import TOKENIZER_FILES

Purpose = Literal["model", "vocabulary", "conversion"]

PICKLED_FILE = "pytorch_model.bin"
_WEIGHTS = {
    "model": ("model.safetensors",),
    "vocabulary": (),
    "conversion": (
        "model.safetensors",
        PICKLED_FILE,
        "model.fp16.safetensors",
        "model.bf16.safetensors",
        "pytorch_model.fp16.bin",
    ),
}
_SETTINGS = (
    "config.json", "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json",
    *TOKENIZER_FILES,
)  # fmt: skip
# the modules of sentence-transformers after the encoder: 1_Pooling, 2_Dense, 3_Normalize
_BEHIND = re.compile(r"\d{1,2}_[A-Za-z]{1,40}/(config\.json|model\.safetensors)")
_PART_OF_WEIGHTS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}")
_LARGEST_INDEX = 8 * 2**20


def settings_files(listing: Collection[str], purpose: Purpose) -> list[str]:
    """Return the files needed before the weights: config, tokenizer, index of the weights."""
    wanted = [name for name in _SETTINGS if name in listing]
    index = index_file(listing, purpose)
    return [*wanted, index] if index else wanted


def index_file(listing: Collection[str], purpose: Purpose) -> str | None:
    """Return the index of sharded weights, None if they are in one file."""
    for whole in _WEIGHTS[purpose]:
        if whole in listing:
            return None
        if f"{whole}.index.json" in listing:
            return f"{whole}.index.json"
    return None


def weights_files(listing: Collection[str], purpose: Purpose, index: Path | None) -> list[str]:
    """Return the files of weights, none if none may be read.

    `index` is the local path of the file named by `index_file`. Raises `ModelFolderError` if it is
    not an index or names missing files.
    """
    whole = next((name for name in _WEIGHTS[purpose] if name in listing), None)
    names = _named_in(index, listing) if index else [whole] if whole else []
    if not names or "modules.json" not in listing:
        return names
    return names + sorted(name for name in listing if _BEHIND.fullmatch(name))


def of_a_model(name: str) -> bool:
    """Return whether a file is part of a model."""
    patterns = (_PART_OF_WEIGHTS, _BEHIND)
    return name in _SETTINGS or any(pattern.fullmatch(name) for pattern in patterns)


def _named_in(index: Path, listing: Collection[str]) -> list[str]:
    try:
        table = read_json(index, ModelFolderError, largest=_LARGEST_INDEX)["weight_map"]
        names = sorted(set(table.values()))
    except (KeyError, TypeError, AttributeError) as error:
        raise ModelFolderError("is not an index of weights", where=index) from error
    kind = Path(index.name.removesuffix(".index.json")).suffix
    for name in names:
        plain = isinstance(name, str) and _PLAIN.fullmatch(name) and name.endswith(kind)
        if not plain or name not in listing:
            raise ModelFolderError(f"names {str(name)[:80]!r}, which is missing", where=index)
    return names
