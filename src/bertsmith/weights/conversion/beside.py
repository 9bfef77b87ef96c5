"""What lies beside weights: config.json and the vocabulary, in their folder or the one above.

Training programs leave checkpoint-1000/ with the weights in it, and the vocabulary once above all
of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertsmith.errors import ModelFolderError
from bertsmith.log import say
from bertsmith.weights.conversion.staging import copy_files, read_settings, write_json
from bertsmith.weights.hub_config import HubConfig

_CONFIG = "config.json"
_VOCABULARIES = ("vocab.txt", "tokenizer.json", "vocab.json", "spiece.model")


def config_beside(weights: Path) -> Path:
    """Return the config.json of some weights, checked for what can be computed at all.

    `ModelFolderError` where there is none, or it is that of another kind of model.
    """
    place = next((home / _CONFIG for home in _homes(weights) if (home / _CONFIG).exists()), None)
    if place is None:
        raise ModelFolderError(
            "has no config.json beside it",
            where=weights,
            remedy="put the model's there; fairseq's checkpoints need their dict.txt instead",
        )
    # before minutes are spent on the weights
    HubConfig(place)
    return place


def carry_settings(weights: Path, folder: Path) -> None:
    """Copy the config and the vocabulary of some weights; `ModelFolderError` if they are damaged.

    Where the vocabulary is taken from the folder above, that is said.
    """
    config = read_settings(config_beside(weights))
    write_json(folder / _CONFIG, _without_invented_labels(config))
    for home in _homes(weights):
        if has_vocabulary(home):
            if home.resolve() != weights.parent.resolve():
                say(f"{weights.parent} has no vocabulary: taken from the folder above it")
            copy_files(home, folder)
            return


def has_vocabulary(folder: Path) -> bool:
    """Return whether a vocabulary lies in a folder."""
    return any((folder / name).exists() for name in _VOCABULARIES)


def vocabulary_above(folder: Path) -> bool:
    """Return whether a folder has no vocabulary, and the one above it has."""
    return not has_vocabulary(folder) and has_vocabulary(folder.resolve().parent)


def _homes(weights: Path) -> tuple[Path, Path]:
    """The folder of some weights, and the one above it."""
    return weights.parent, weights.parent.resolve().parent


def _without_invented_labels(config: dict[str, Any]) -> dict[str, Any]:
    """The config, less names of two labels where old versions say that there are other labels."""
    invented = {"0": "LABEL_0", "1": "LABEL_1"}
    if config.get("id2label") != invented or config.get("num_labels") in (None, len(invented)):
        return config
    return {key: value for key, value in config.items() if key not in ("id2label", "label2id")}
