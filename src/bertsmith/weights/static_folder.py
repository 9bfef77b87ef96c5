"""Static models: a vector for each piece of a vocabulary, in the layout of sentence-transformers.

    modules.json        one module, StaticEmbedding
    model.safetensors   embedding.weight, (pieces, width)
    tokenizer.json      and the tokenizer's other files

The vector of a text is the mean of those of its pieces, without special tokens.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor

from bertsmith.core.errors import ModelFolderError
from bertsmith.core.files import read_json, write_json
from bertsmith.core.ownership import new_folder
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import CARD_FILE, check_file
from bertsmith.weights.sentence_folder import MODULES_FILE
from bertsmith.weights.tensors import WEIGHTS_FILE, TensorFile, write_tensors

_CLASS = "sentence_transformers.models.StaticEmbedding"
_KNOWN = re.compile(r"sentence_transformers(\.\w+)*\.StaticEmbedding")
_WEIGHT = "embedding.weight"
_LARGEST_FILE = 2**20


def is_static(folder: Path) -> bool:
    """Return whether a folder is that of a static model; raises `ModelFolderError`."""
    path = folder / MODULES_FILE
    if not path.is_file():
        return False
    modules = read_json(path, ModelFolderError, kind=list, largest=_LARGEST_FILE)
    first = modules[0] if modules and isinstance(modules[0], dict) else {}
    return _KNOWN.fullmatch(str(first.get("type"))) is not None


def read_static(folder: Path) -> tuple[Tensor, Tokenizer]:
    """Return the vectors of a static model, (pieces, width), and its tokenizer.

    Raises `ModelFolderError` for a folder that is damaged or has other modules, too.
    """
    modules = read_json(folder / MODULES_FILE, ModelFolderError, kind=list, largest=_LARGEST_FILE)
    if len(modules) != 1 or modules[0].get("path") != "":
        raise ModelFolderError(
            "has more than a StaticEmbedding, or one in a folder of its own",
            where=folder / MODULES_FILE,
            remedy="open it with sentence-transformers",
        )
    path = folder / WEIGHTS_FILE
    if not path.is_file():
        raise ModelFolderError(f"has no {WEIGHTS_FILE}", where=folder)
    check_file(path, folder.resolve())
    file, tokenizer = TensorFile(path), Tokenizer.load(folder)
    shape = file.entries[_WEIGHT].shape if _WEIGHT in file.entries else ()
    if len(shape) != 2 or shape[0] != tokenizer.size or not shape[1]:
        raise ModelFolderError(
            f"its vectors do not fit a vocabulary of {tokenizer.size} pieces", where=path
        )
    return file.read(_WEIGHT).float(), tokenizer


def save_static(folder: Path, vectors: Tensor, tokenizer: Tokenizer, *, card: str = "") -> None:
    """Write a static model, all or nothing; the folder must be new or empty."""
    assert vectors.shape[0] == tokenizer.size
    with new_folder(folder) as fresh:
        tokenizer.save(fresh, longest=512)
        write_json(fresh / MODULES_FILE, [{"idx": 0, "name": "0", "path": "", "type": _CLASS}])
        write_tensors(fresh / WEIGHTS_FILE, {_WEIGHT: vectors.to(torch.float32)}, {"format": "pt"})
        if card:
            (fresh / CARD_FILE).write_text(card, encoding="utf-8")
