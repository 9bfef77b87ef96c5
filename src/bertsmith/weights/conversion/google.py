"""Checkpoints of google-research/bert and /albert: read into the hub's layout, and back.

    bert_model.ckpt.index, bert_model.ckpt.data-00000-of-00001   the variables
    bert_config.json or albert_config.json                       sizes
    vocab.txt or 30k-clean.model                                 the vocabulary

What is there besides, bert_model.ckpt.meta say, is the graph of a program and not needed.
"""

from __future__ import annotations

import glob
import re
from pathlib import Path

from torch import Tensor

from bertsmith.errors import ModelFolderError
from bertsmith.models.catalog import Family
from bertsmith.weights.conversion.google_config import CONFIG_FILES, google_config, hub_config
from bertsmith.weights.conversion.google_names import hub_name, variable
from bertsmith.weights.conversion.staging import (
    Change,
    Move,
    Moves,
    copy_file,
    copy_files,
    read_settings,
    write_json,
)
from bertsmith.weights.conversion.tensor_bundle import (
    INDEX_SUFFIX,
    TensorBundle,
    is_checkpoint,
    write_bundle,
)
from bertsmith.weights.folder import check_file
from bertsmith.weights.tensors import TensorFile
from bertsmith.weights.writing import write_tensors

WRITTEN = "bert_model.ckpt"

_OPTIMISER = re.compile(
    r"(^|/)(adam_[mv]|lamb_[mv]|(AdamWeightDecay|LAMB|Adafactor)\w*|Adam(_\d+)?)$"
    r"|^(global_step|beta[12]_power|loss_scale|good_steps)$"
)
_CASED = re.compile(r"(^|[_\-.])(multi_)?cased([_\-.]|$)")
_LOWERCASE = re.compile(r"uncased|^(multilingual|chinese)_L-12_H-768_A-12$")


def find_checkpoint(source: Path) -> Path | None:
    """The prefix of the checkpoint's files: named itself, or the only one of a folder.

    None where there is none; `ModelFolderError` where there are several.
    """
    if source.is_dir():
        indices = sorted(source.glob(f"*{INDEX_SUFFIX}"))
        found = [path for path in indices if _is_inside(path) and is_checkpoint(path)]
        if len(found) > 1:
            raise ModelFolderError(
                f"holds {len(found)} checkpoints",
                where=source,
                remedy=f"name one: {found[-1].with_suffix('')}",
            )
        for path in () if found else indices:
            if any(source.glob(f"{glob.escape(path.stem)}.data-*")):
                check_file(path, source.resolve())
        return found[0].with_suffix("") if found else None
    prefix = source.with_suffix("") if source.suffix == INDEX_SUFFIX else source
    index = prefix.with_name(prefix.name + INDEX_SUFFIX)
    if not index.is_symlink() and not index.exists():
        return None
    check_file(index, index.parent.resolve())
    return prefix if is_checkpoint(index) else None


def _is_inside(path: Path) -> bool:
    """Return whether a path is a file in its folder; a link may lead elsewhere."""
    try:
        check_file(path, path.parent.resolve())
    except (ModelFolderError, OSError, RuntimeError):
        return False
    return True


def read_checkpoint(prefix: Path, folder: Path) -> Moves:
    """Write what a checkpoint holds as config.json, model.safetensors and the vocabulary.

    `ModelFolderError` if it is damaged, or holds no BERT.
    """
    home = prefix.parent
    for path in home.glob(f"{glob.escape(prefix.name)}.*"):
        check_file(path, home.resolve())
    bundle = TensorBundle(prefix)
    kind: Family = "albert" if any("/group_0/" in name for name in bundle.entries) else "bert"
    place = home / CONFIG_FILES[kind]
    if not place.exists():
        raise ModelFolderError(
            f"has no {place.name} beside it",
            where=prefix,
            remedy="put it there with the vocabulary: Google's folders have both",
        )
    moves, tensors = _renamed(bundle, kind)
    if not tensors:
        raise ModelFolderError(
            f"holds no variable of Google's {kind.upper()}",
            where=bundle.index,
            remedy="name a checkpoint that google-research/bert or /albert wrote",
        )
    write_json(folder / "config.json", hub_config(read_settings(place), kind, tensors))
    write_tensors(folder / "model.safetensors", tensors, {"format": "pt"})
    _carry_vocabulary(home, folder)
    return moves


def write_checkpoint(source: Path, folder: Path) -> Moves:
    """Write a folder in the hub's layout as a checkpoint of Google's; a BERT's, no other's.

    `ModelFolderError` for what Google's code could not compute.
    """
    config = read_settings(source / "config.json")
    google = google_config(config, source)
    file, moves = TensorFile(source / "model.safetensors"), Moves()
    tensors: dict[str, Tensor] = {}
    task = config["architectures"][0]
    # named as the classifier's, read otherwise
    foreign = "classifier." if task.endswith(("TokenClassification", "MultipleChoice")) else None
    bare = not any(name.startswith("bert.") for name in file.entries)
    for name in file.entries:
        made = variable(f"bert.{name}" if bare else name, "bert")
        if made is None or (foreign and name.startswith(foreign)):
            moves.dropped[name] = "Google's code has no such head"
            continue
        tensor = file.read(name)
        tensors[made.name] = tensor.t() if made.transposed else tensor
        change: Change = "transposed" if made.transposed else "renamed"
        moves.done.append(Move(source=name, target=made.name, change=change))
    write_bundle(folder / WRITTEN, tensors)
    write_json(folder / CONFIG_FILES["bert"], google)
    copy_files(source, folder, ("vocab.txt", "tokenizer_config.json"))
    return moves


def _renamed(bundle: TensorBundle, kind: Family) -> tuple[Moves, dict[str, Tensor]]:
    """The variables that belong to a model, by the hub's names and the way about they are there."""
    moves = Moves()
    tensors: dict[str, Tensor] = {}
    for name in bundle.entries:
        found = hub_name(name, kind)
        if found is None:
            optimiser = _OPTIMISER.search(name)
            moves.dropped[name] = (
                "the optimiser's" if optimiser else "no part of a model that is known"
            )
            continue
        target, transposed = found
        if target in tensors:
            raise ModelFolderError(
                f"holds {target} twice, the second time as {name[:80]}",
                where=bundle.index,
                remedy="name a checkpoint of one model",
            )
        tensor = bundle.read(name)
        turned = transposed and tensor.dim() == 2
        tensors[target] = tensor.t() if turned else tensor
        change: Change = "transposed" if turned else "renamed"
        moves.done.append(Move(source=name, target=target, change=change))
    return moves, tensors


def _carry_vocabulary(home: Path, folder: Path) -> None:
    """Copy the vocabulary; with the case that the folder's name tells, as Google's code does."""
    copy_files(home, folder)
    for path in sorted(home.glob("*.model"))[:1]:
        copy_file(path, folder / "spiece.model")
    name = home.resolve().name
    lowercase = bool(_LOWERCASE.search(name))
    if not (folder / "tokenizer_config.json").exists() and (lowercase or _CASED.search(name)):
        write_json(folder / "tokenizer_config.json", {"do_lower_case": lowercase})
