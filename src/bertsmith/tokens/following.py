"""Which tokenizer of `transformers` a folder's ids follow: its slow one, or its fast one.

Version 4 has both, version 5 the fast one alone. They differ on decomposed Unicode where accents
stay, on blanks beside special tokens, and in which files they read: the slow one reads vocab.txt,
vocab.json or spiece.model, the fast one tokenizer.json.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from bertsmith.errors import ModelFolderError
from bertsmith.tokens.files import read_json

Followed = Literal["slow", "fast"]

FOLLOWS = "bertsmith_follows"
"""The key of tokenizer_config.json by which a folder says it."""
GENERIC_CLASS = re.compile("PreTrainedTokenizerFast|TokenizersBackend")
"""Classes that take everything from tokenizer.json, and are fast."""

_FOLLOWED: tuple[Followed, ...] = ("slow", "fast")
_MODEL_FILE = "config.json"
_VERSION = re.compile(r"(\d{1,3})\.")


def is_generic(settings: Mapping[str, Any]) -> bool:
    """Return whether tokenizer_config.json names no class of a family."""
    name = settings.get("tokenizer_class")
    return isinstance(name, str) and GENERIC_CLASS.fullmatch(name) is not None


def followed(folder: Path, settings: Mapping[str, Any], where: Path) -> Followed:
    """Return the tokenizer whose ids a folder is to give.

    What `settings`, those of tokenizer_config.json at `where`, say under `FOLLOWS`; or else the
    fast one if version 5 wrote the folder, or if there is no slow one of its class; or else the
    slow one. Raises `ModelFolderError`.
    """
    stated = settings.get(FOLLOWS)
    known: Followed | None = next((each for each in _FOLLOWED if each == stated), None)
    if known is not None:
        return known
    if stated is not None:
        raise ModelFolderError(
            f"{FOLLOWS} is {str(stated)[:50]!r}", where=where, remedy="it can be slow or fast"
        )
    # version 5 alone writes of its backend
    if is_generic(settings) or settings.get("backend") == "tokenizers":
        return "fast"
    return "fast" if (_major_version(folder) or 0) >= 5 else "slow"


def _major_version(folder: Path) -> int | None:
    """Return the major version of the `transformers` that wrote a folder's config.json."""
    path = folder / _MODEL_FILE
    version = read_json(path).get("transformers_version") if path.is_file() else None
    found = _VERSION.match(version) if isinstance(version, str) else None
    return int(found[1]) if found else None
