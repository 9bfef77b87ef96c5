"""The metadata of a model card: the YAML front matter that the hub reads.

    ---
    license: apache-2.0
    pipeline_tag: fill-mask
    ---

Existing metadata is kept verbatim; only missing keys are added.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.core.errors import ModelFolderError
from bertsmith.core.printable import markdown, printable_lines
from bertsmith.hub.models import PREFIX, origin
from bertsmith.network.config import ModelConfig, Predicts
from bertsmith.weights.folder import CARD_FILE
from bertsmith.weights.formats.catalog import cannot_hold

_HEAD = re.compile(r"\A\s*---[ \t]*\r?\n(?P<head>.*?)^---[ \t]*$\r?\n?", re.DOTALL | re.MULTILINE)
_MAX_BYTES = 2**20
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
    """Return the metadata that the hub expects and that follows from a model's config.

    `base` is a repository of the hub; `sentences` is true for a folder of sentence-transformers.
    """
    library = "transformers" if cannot_hold(config) is None else "bertsmith"
    head: dict[str, Any] = {
        "library_name": "sentence-transformers" if sentences else library,
        "pipeline_tag": "sentence-similarity" if sentences else task_of(config),
        "tags": [config.encoder.family, "bertsmith"],
    }
    return head | ({"base_model": base} if base else {})


def note_on_format(config: ModelConfig) -> str:
    """Return a note on a model folder that `transformers` refuses; "" for any other."""
    reason = cannot_hold(config)
    if reason is None:
        return ""
    return (
        f"{reason[0].upper()}{reason[1:]}: config.json has the model_type bertsmith, which "
        "transformers refuses and bertsmith loads."
    )


def described_outputs(labels: Sequence[str]) -> str:
    """Return a paragraph that names the outputs of a model; "" where they have no names."""
    return f"Outputs, in their order: {', '.join(map(markdown, labels))}.\n\n" if labels else ""


def task_of(config: ModelConfig) -> str:
    """Return the hub's name of the task of a model's head."""
    if config.predicts is not None:
        return _TASKS[config.predicts]
    if config.masked_lm:
        return "text-generation" if config.encoder.causal else "fill-mask"
    return "feature-extraction"


def written(head: Head) -> str:
    """Return the metadata as the first lines of a card, between dashes."""
    return f"---\n{_yaml(head)}---\n"


def base_of(folder: Path) -> str | None:
    """Return the hub repository that a folder comes from, by the hub's cache or its card."""
    if name := origin(folder):
        return name.removeprefix(PREFIX).partition("@")[0]
    base = read_head(read_card(folder), folder / CARD_FILE).get("base_model")
    return base if isinstance(base, str) else None


def read_card(folder: Path) -> str:
    """Return a folder's README.md, "" if there is none. Raises `ModelFolderError` if unreadable."""
    path = folder / CARD_FILE
    if not path.exists():
        return ""
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            raise ModelFolderError("is not a model card: not a file, or over 1 MiB", where=path)
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFolderError(f"cannot be read: {error}", where=path) from error


def read_head(card: str, where: Path) -> dict[str, Any]:
    """Return a card's metadata, {} if none. Raises `ModelFolderError`, with the line if invalid."""
    import yaml

    match = _HEAD.match(card)
    if match is None:
        return {}
    remedy = "correct the lines between the dashes"
    try:
        head = yaml.safe_load(match["head"])
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        first = card[: match.start("head")].count("\n") + 1
        line = first + mark.line if mark is not None else None
        problem = f"bad YAML: {getattr(error, 'problem', None) or type(error).__name__}"
        raise ModelFolderError(problem, where=where, line=line, remedy=remedy) from error
    if head is None:
        return {}
    if not isinstance(head, dict):
        raise ModelFolderError("its metadata is not a mapping", where=where, remedy=remedy)
    for key, kinds in _KINDS.items():
        value = head.get(key)
        items = value if isinstance(value, list) else ()
        if value is not None and not (
            isinstance(value, kinds) and all(isinstance(item, str) for item in items)
        ):
            # a common trap: YAML reads language: no as false
            wanted = " or ".join("string" if kind is str else "list of strings" for kind in kinds)
            problem = f"{key} is {value!r}, not a {wanted}"
            raise ModelFolderError(problem[:300], where=where, remedy="put strings in quotes")
    return head


def with_head(card: str, more: Head, where: Path) -> str:
    """Return a card with the keys of `more` that its metadata lacks; the rest is unchanged.

    Raises `ModelFolderError` if the metadata is invalid.
    """
    head = read_head(card, where)
    missing = {key: value for key, value in more.items() if head.get(key) is None}
    if not missing:
        return card
    match = _HEAD.match(card)
    if match is None:
        return f"{written(missing)}{card}"
    empty = _lines_of(missing, match["head"])
    other_lines = "".join(
        line
        for number, line in enumerate(match["head"].splitlines(keepends=True))
        if number not in empty
    )
    return f"---\n{other_lines}{_yaml(missing)}---\n{card[match.end() :]}"


def _lines_of(keys: Collection[str], head: str) -> set[int]:
    """Return the numbers of the lines, from 0, of keys of metadata, not of those inside values."""
    import yaml

    node = yaml.compose(head, yaml.SafeLoader)
    pairs = () if node is None else node.value
    return {
        line
        for key, value in pairs
        if key.value in keys
        for line in range(key.start_mark.line, value.end_mark.line + 1)
    }


def _yaml(head: Head) -> str:
    import yaml

    def dumped(unicode: bool) -> str:
        return str(yaml.safe_dump(dict(head), sort_keys=False, allow_unicode=unicode, width=100))

    # YAML would keep bidirectional controls and the like; its escapes mean the same
    readable = dumped(unicode=True)
    return readable if printable_lines(readable, len(readable)) == readable else dumped(False)
