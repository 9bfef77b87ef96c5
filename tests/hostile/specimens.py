"""Honest folders of every family, small: with a masked-LM head, and with others in turn."""

from __future__ import annotations

import json
import shutil
from itertools import cycle
from pathlib import Path

import torch

from bertsmith.layers.after_pooling import Dense, UnitLength
from bertsmith.models.catalog import family
from bertsmith.models.model import ModelConfig, build_model
from bertsmith.weights.folder import save_model
from bertsmith.weights.sentence_folder import SentenceSettings
from bertsmith.weights.sentence_writing import save_sentence_folder
from bertsmith.weights.tensors import TensorFile
from bertsmith.weights.writing import write_tensors
from families import ENCODERS, MODELS, TOKENIZERS

_HEADS = ("class", "tags", "span", "choice", "classes", "number")


def specimens(place: Path) -> dict[str, Path]:
    """The folders by name, made in `place`."""
    heads = cycle(_HEADS)
    chosen = [name for each in ENCODERS for name in (f"{each}-masked_lm", f"{each}-{next(heads)}")]
    for name in chosen:
        model = build_model(MODELS[name], seed=1)
        save_model(place / name, model, TOKENIZERS[family(model.config.encoder)])
    _save_sentences(place / "sentence")
    _save_sharded(place / chosen[0], place / "sharded")
    return {name: place / name for name in (*chosen, "sentence", "sharded")}


def _save_sentences(folder: Path) -> None:
    """A bare BERT with all that sentence-transformers can put behind it."""
    encoder = ENCODERS["bert"]
    map_ = Dense(torch.ones(5, 2 * encoder.hidden), torch.zeros(5), "Tanh")
    settings = SentenceSettings(
        network=folder,
        pool=("cls", "mean"),
        after=(map_, UnitLength()),
        longest=16,
        prompts={"query": "word1 "},
    )
    bare = build_model(ModelConfig(encoder=encoder), seed=1)
    save_sentence_folder(folder, bare, TOKENIZERS["bert"], settings)


def _save_sharded(whole: Path, folder: Path) -> None:
    """The same model with its weights in three files and an index."""
    shutil.copytree(whole, folder)
    weights = TensorFile(folder / "model.safetensors")
    tensors = {name: weights.read(name) for name in weights.entries}
    index: dict[str, str] = {}
    for number in range(3):
        home = f"model-{number + 1:05}-of-00003.safetensors"
        part = {name: tensors[name] for name in sorted(tensors)[number::3]}
        write_tensors(folder / home, part, {"format": "pt"})
        index |= dict.fromkeys(part, home)
    (folder / "model.safetensors").unlink()
    text = json.dumps({"metadata": {"total_size": 1}, "weight_map": index})
    (folder / "model.safetensors.index.json").write_text(text)
