"""The common parts of conversions: the fate of each tensor, and files that are carried over."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bertsmith.core.errors import ModelFolderError
from bertsmith.core.files import read_json, write_json, writing
from bertsmith.core.log import say
from bertsmith.tokens.folder.files import TOKENIZER_FILES, VOCABULARY_FILES
from bertsmith.weights.config_json import HubConfig
from bertsmith.weights.folder import check_file
from bertsmith.weights.wrappers import adapter_in

_CONFIG = "config.json"


def config_beside(weights: Path) -> Path:
    """Return the config.json of some weights, checked for what can be computed at all.

    `ModelFolderError` where there is none, or it is that of another kind of model.
    """
    place = next(
        (home / _CONFIG for home in candidate_folders(weights) if (home / _CONFIG).exists()), None
    )
    if place is None:
        raise ModelFolderError(
            "has no config.json beside it",
            where=weights,
            remedy="put the model's there; fairseq's checkpoints need their dict.txt instead",
        )
    # before minutes are spent on the weights
    HubConfig(place)
    return place


def copy_settings(weights: Path, folder: Path) -> None:
    """Copy the config and the vocabulary of some weights; `ModelFolderError` if they are damaged.

    Where the vocabulary is taken from the folder above, that is said.
    """
    config = read_settings(config_beside(weights))
    write_json(folder / _CONFIG, _without_invented_labels(config))
    if (home := vocabulary_home(weights)) is not None:
        copy_files(home, folder)


def vocabulary_home(weights: Path, others: str = "") -> Path | None:
    """Return the folder of a vocabulary: that of some weights or, which is said, the one above it.

    Files that match the pattern `others` are vocabularies too.
    """
    for home in candidate_folders(weights):
        if has_vocabulary(home) or (others and any(home.glob(others))):
            if home.resolve() != weights.parent.resolve():
                say(f"{weights.parent} has no vocabulary: taken from the folder above it")
            return home
    return None


def has_vocabulary(folder: Path) -> bool:
    """Return whether a vocabulary lies in a folder."""
    return any((folder / name).exists() for name in VOCABULARY_FILES)


def vocabulary_above(folder: Path) -> bool:
    """Return whether a folder has no vocabulary, and the one above it has."""
    return not has_vocabulary(folder) and has_vocabulary(folder.resolve().parent)


def candidate_folders(weights: Path) -> tuple[Path, Path]:
    """Return the folder of some weights, and the one above it."""
    return weights.parent, weights.parent.resolve().parent


def _without_invented_labels(config: dict[str, Any]) -> dict[str, Any]:
    """Return the config without the names of two labels if old keys give other labels."""
    invented = {"0": "LABEL_0", "1": "LABEL_1"}
    if config.get("id2label") != invented or config.get("num_labels") in (None, len(invented)):
        return config
    return {key: value for key, value in config.items() if key not in ("id2label", "label2id")}


Change = Literal["same", "renamed", "transposed", "split"]

_MAX_TEXT_BYTES = 64 * 2**20
_MAX_FILES = 1000
_MAX_JSON_BYTES = 8 * 2**20


@dataclass(frozen=True, kw_only=True)
class TensorChange:
    """A tensor of the source, a tensor it became, and its transformation."""

    source: str
    target: str
    change: Change


@dataclass(kw_only=True)
class TensorChanges:
    """The fate of the tensors of a source."""

    done: list[TensorChange] = field(default_factory=list)
    dropped: dict[str, str] = field(default_factory=dict)
    """Names of those left out, and why."""

    def then(self, after: TensorChanges) -> TensorChanges:
        """These moves, and after them those of the tensors they made."""
        next_of = {move.source: move for move in after.done}
        both = TensorChanges(dropped=dict(self.dropped))
        for move in self.done:
            if move.target in after.dropped:
                both.dropped[move.source] = after.dropped[move.target]
                continue
            last = next_of[move.target]
            plain = move.change in ("same", "renamed") and last.change != "same"
            change = last.change if plain else move.change
            both.done.append(TensorChange(source=move.source, target=last.target, change=change))
        return both


def refuse_adapter(names: Collection[str], path: Path) -> None:
    """Raise `ModelFolderError` for weights with an adapter that has not been merged into them."""
    if (name := adapter_in(names)) is not None:
        raise ModelFolderError(
            f"holds {name[:80]!r}, of an adapter beside the model's own weights",
            where=path,
            remedy="merge it into them first (merge_and_unload of peft), and save that",
        )


def copy_files(source: Path, folder: Path, names: Collection[str] = TOKENIZER_FILES) -> None:
    """Copy those of some small files that a folder has; `ModelFolderError` if one is large."""
    for name in names:
        if (source / name).exists():
            copy_file(source / name, folder / name)


def copy_file(path: Path, to: Path) -> None:
    """Copy a small file; `ModelFolderError` if it is large, or a link out of its folder."""
    _check_small(path)
    with writing(to):
        shutil.copyfile(path, to)


def read_settings(path: Path) -> dict[str, Any]:
    """Return the object in a small JSON file; `ModelFolderError` for none, or a link outside."""
    check_file(path, path.parent.resolve())
    settings: dict[str, Any] = read_json(path, ModelFolderError, largest=_MAX_JSON_BYTES)
    return settings


def indexed_files(index: Path, suffixes: Collection[str]) -> list[Path]:
    """Return the files that an index names, each in the index's own folder.

    `ModelFolderError` where it names none or too many, or one elsewhere or without such a suffix.
    """
    named = read_settings(index).get("weight_map")
    names = sorted({str(value) for value in named.values()}) if isinstance(named, dict) else []
    if not 1 <= len(names) <= _MAX_FILES:
        raise ModelFolderError("names no files of weights", where=index)
    for name in names:
        if Path(name).name != name or Path(name).suffix not in suffixes:
            raise ModelFolderError(
                f"names {name[:80]!r}, which is not a file of weights in its folder", where=index
            )
    return [index.parent / name for name in names]


def read_text(path: Path) -> str:
    """Return the text of a small file; `ModelFolderError` if it is large, or no text."""
    try:
        _check_small(path)
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelFolderError(f"cannot be read: {error}", where=path) from error


def _check_small(path: Path) -> None:
    check_file(path, path.parent.resolve())
    if path.stat().st_size > _MAX_TEXT_BYTES:
        raise ModelFolderError("is larger than 64 MiB, which no tokenizer's file is", where=path)
