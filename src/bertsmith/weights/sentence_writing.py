"""Model folders that sentence-transformers loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bertsmith.claims import new_folder
from bertsmith.errors import ModelFolderError
from bertsmith.layers.after_pooling import Dense
from bertsmith.log import say
from bertsmith.models.model import Model
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import save_model
from bertsmith.weights.sentence_folder import (
    FLAGS,
    MODULES_FILE,
    POOLINGS,
    PROMPTS_FILE,
    TRANSFORMER_FILE,
    SentenceSettings,
    read_sentence_folder,
)
from bertsmith.weights.writing import write_tensors

_CLASSES = "sentence_transformers.models"


def save_sentence_folder(
    folder: Path,
    model: Model,
    tokenizer: Tokenizer,
    settings: SentenceSettings,
    *,
    card: str = "",
) -> None:
    """Write a model folder that sentence-transformers loads, and that gives equal vectors there.

    All or nothing; the name must be free. `settings.network` is not looked at: the encoder is the
    model's. Raises `ModelFolderError`, `DiskError`.
    """
    if folder.exists():
        raise ModelFolderError("exists already", where=folder, remedy="choose another name")
    with new_folder(folder) as fresh:
        save_model(fresh, model, tokenizer, card=card)
        write_sentence_files(fresh, settings, hidden=model.config.encoder.hidden)


def save_like(
    parent: Path, folder: Path, model: Model, tokenizer: Tokenizer, *, card: str = ""
) -> None:
    """Write a model made of another, as a sentence-transformers folder if `parent` is one.

    What that folder asks for and we do not follow is told and left out.
    """
    try:
        settings = read_sentence_folder(parent)
    except ModelFolderError as error:
        say(f"{error.where}: {error.what}; pooling is left out")
        settings = None
    if settings is None:
        save_model(folder, model, tokenizer, card=card)
    else:
        save_sentence_folder(folder, model, tokenizer, settings, card=card)


def write_sentence_files(folder: Path, settings: SentenceSettings, *, hidden: int) -> None:
    """Write what makes a model folder, whose vectors are `hidden` wide, one of the library's."""
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    for number, layer in enumerate(settings.after, start=2):
        kind = "Dense" if isinstance(layer, Dense) else "Normalize"
        modules.append((kind, f"{number}_{kind}"))
    for _, place in modules[1:]:
        (folder / place).mkdir()
    _write(folder / modules[1][1] / "config.json", _pooling(settings, hidden))
    for (_, place), layer in zip(modules[2:], settings.after, strict=True):
        if isinstance(layer, Dense):
            _write_dense(folder / place, layer)
    _write(
        folder / TRANSFORMER_FILE,
        {"max_seq_length": settings.longest, "do_lower_case": settings.lowercase},
    )
    _write(
        folder / PROMPTS_FILE,
        {"prompts": settings.prompts, "default_prompt_name": settings.default_prompt},
    )
    _write(
        folder / MODULES_FILE,
        [
            {"idx": number, "name": str(number), "path": place, "type": f"{_CLASSES}.{kind}"}
            for number, (kind, place) in enumerate(modules)
        ],
    )


def _pooling(settings: SentenceSettings, hidden: int) -> dict[str, Any]:
    names = {kind: name for name, kind in POOLINGS.items()}
    said: dict[str, Any] = {"word_embedding_dimension": hidden, "include_prompt": True}
    if settings.pool == tuple(kind for kind in names if kind in settings.pool):
        return said | {flag: POOLINGS[name] in settings.pool for name, flag in FLAGS.items()}
    # flags say no order; versions before 5.4 know nothing else
    return said | {"pooling_mode": [names[kind] for kind in settings.pool]}


def _write_dense(place: Path, layer: Dense) -> None:
    tensors = {"linear.weight": layer.weight}
    if layer.bias is not None:
        tensors["linear.bias"] = layer.bias
    write_tensors(place / "model.safetensors", tensors, {"format": "pt"})
    said = {
        "in_features": layer.inputs,
        "out_features": layer.outputs,
        "bias": layer.bias is not None,
        "activation_function": f"torch.nn.modules.activation.{layer.activation}",
    }
    if layer.activation == "Identity":
        said["activation_function"] = "torch.nn.modules.linear.Identity"
    _write(place / "config.json", said)


def _write(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
