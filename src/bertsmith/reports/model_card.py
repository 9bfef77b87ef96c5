"""The head of a model card: the YAML between two lines of dashes that the hub reads.

    ---
    license: apache-2.0
    pipeline_tag: fill-mask
    ---

What is there is kept to the letter; only what is missing is added.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.core.errors import ModelFolderError
from bertsmith.core.printable import printable_lines
from bertsmith.hub.models import PREFIX, origin
from bertsmith.network.families.catalog import family
from bertsmith.network.heads import Predicts
from bertsmith.network.model import ModelConfig
from bertsmith.weights.config.settings import held_by_transformers
from bertsmith.weights.folder import CARD_FILE

_HEAD = re.compile(r"\A\s*---[ \t]*\r?\n(?P<head>.*?)^---[ \t]*$\r?\n?", re.DOTALL | re.MULTILINE)
_LARGEST = 2**20
_ONE, _SEVERAL, _ONE_OR_SEVERAL = (str,), (list,), (str, list)
_KINDS: dict[str, tuple[type, ...]] = {
    "license": _ONE_OR_SEVERAL,
    "language": _ONE_OR_SEVERAL,
    "library_name": _ONE,
    "pipeline_tag": _ONE,
    "tags": _SEVERAL,
    "base_model": _ONE_OR_SEVERAL,
    "datasets": _ONE_OR_SEVERAL,
}
_TASKS: dict[Predicts, str] = {
    "class": "text-classification",
    "classes": "text-classification",
    "number": "text-classification",
    "tags": "token-classification",
    "span": "question-answering",
    "choice": "multiple-choice",
}

Head = Mapping[str, Any]


def head_of(config: ModelConfig, *, base: str | None, sentences: bool = False) -> dict[str, Any]:
    """What the hub wants to know of a model that we know.

    `base` is a repository of the hub; `sentences` if it is a folder of sentence-transformers.
    """
    library = "transformers" if held_by_transformers(config) else "bertsmith"
    head: dict[str, Any] = {
        "library_name": "sentence-transformers" if sentences else library,
        "pipeline_tag": "sentence-similarity" if sentences else task_of(config),
        "tags": [family(config.encoder), "bertsmith"],
    }
    return head | ({"base_model": base} if base else {})


def note_on_format(config: ModelConfig) -> str:
    """Return what to know of a model's folder that `transformers` refuses; "" for any other."""
    if held_by_transformers(config):
        return ""
    return (
        "The model reads from left to right, so its head reads the last token of a text, and "
        "transformers would read the first: config.json has the model_type bertsmith, which "
        "transformers refuses and bertsmith loads."
    )


def task_of(config: ModelConfig) -> str:
    """The hub's name for what a model's head is for."""
    if config.predicts is not None:
        return _TASKS[config.predicts]
    if config.masked_lm:
        return "text-generation" if config.encoder.causal else "fill-mask"
    return "feature-extraction"


def written(head: Head) -> str:
    """A head as the first lines of a card, with the dashes."""
    return f"---\n{_yaml(head)}---\n"


def base_of(folder: Path) -> str | None:
    """The hub's repository that a folder comes from: it is of the hub, or its card names one."""
    if found := origin(folder):
        return found.removeprefix(PREFIX).partition("@")[0]
    base = read_head(read_card(folder), folder / CARD_FILE).get("base_model")
    return base if isinstance(base, str) else None


def read_card(folder: Path) -> str:
    """README.md of a folder, empty if there is none; `ModelFolderError` if it is no text."""
    path = folder / CARD_FILE
    if not path.exists():
        return ""
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:
            raise ModelFolderError("is no model card: no file, or over 1 MiB", where=path)
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFolderError(f"cannot be read: {error}", where=path) from error


def read_head(card: str, where: Path) -> dict[str, Any]:
    """The head of a card, empty if there is none; `ModelFolderError`, with the line, if damaged."""
    import yaml

    found = _HEAD.match(card)
    if found is None:
        return {}
    remedy = "mend the lines between the dashes"
    try:
        head = yaml.safe_load(found["head"])
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        first = card[: found.start("head")].count("\n") + 1
        line = first + mark.line if mark is not None else None
        what = getattr(error, "problem", None) or type(error).__name__
        raise ModelFolderError(f"no YAML: {what}", where=where, line=line, remedy=remedy) from error
    if head is None:
        return {}
    if not isinstance(head, dict):
        raise ModelFolderError("its head is no table", where=where, remedy=remedy)
    for key, kinds in _KINDS.items():
        value = head.get(key)
        items = value if isinstance(value, list) else ()
        if value is not None and not (
            isinstance(value, kinds) and all(isinstance(each, str) for each in items)
        ):
            # the usual trap: language: no is false to YAML
            wanted = " or ".join("a word" if kind is str else "a list of words" for kind in kinds)
            what = f"{key} is {value!r}, not {wanted}"
            raise ModelFolderError(what[:300], where=where, remedy="put words into quotes")
    return head


def with_head(card: str, more: Head, where: Path) -> str:
    """A card with what its head lacks of `more`; the rest of it stays as it is.

    Raises `ModelFolderError` for a head that is damaged.
    """
    head = read_head(card, where)
    missing = {key: value for key, value in more.items() if head.get(key) is None}
    if not missing:
        return card
    found = _HEAD.match(card)
    if found is None:
        return f"{written(missing)}{card}"
    empty = {key for key in missing if key in head}
    kept = "".join(
        line
        for line in found["head"].splitlines(keepends=True)
        if line.partition(":")[0].strip() not in empty
    )
    return f"---\n{kept}{_yaml(missing)}---\n{card[found.end() :]}"


def _yaml(head: Head) -> str:
    import yaml

    def dumped(unicode: bool) -> str:
        return str(yaml.safe_dump(dict(head), sort_keys=False, allow_unicode=unicode, width=100))

    # YAML would keep bidirectional controls and the like; its escapes are as exact
    readable = dumped(unicode=True)
    return readable if printable_lines(readable, len(readable)) == readable else dumped(False)
