"""Honest folders of every family, small: with a masked-LM head, and with others in turn."""

from __future__ import annotations

import json
import shutil
import struct
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import torch

from bertsmith.network.config import ModelConfig
from bertsmith.network.families.family import FamilyName
from bertsmith.network.model import build_model
from bertsmith.network.pooling import Dense, UnitLength
from bertsmith.tokens.learning.bpe import learn_byte_bpe
from bertsmith.tokens.learning.unigram import learn_unigram
from bertsmith.tokens.normalisation import UnigramRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import save_model
from bertsmith.weights.sentence_folder import SentenceSettings, save_sentence_folder
from bertsmith.weights.tensors import TensorFile, write_tensors
from families import ENCODERS, MODELS, TOKENIZERS

OTHERS = ("bytes", "unigram", "plain", "sentence", "sharded")
_HEADS = ("class", "tags", "span", "choice", "classes", "number")


def specimens(place: Path) -> dict[str, Path]:
    """The folders by name, made in `place`."""
    heads = cycle(_HEADS)
    chosen = [name for item in ENCODERS for name in (f"{item}-masked_lm", f"{item}-{next(heads)}")]
    for name in chosen:
        model = build_model(MODELS[name], seed=1)
        save_model(place / name, model, TOKENIZERS[model.config.encoder.family])
    _save_kinds(place)
    _save_sentences(place / "sentence")
    _save_sharded(place / chosen[0], place / "sharded")
    return {name: place / name for name in (*chosen, *OTHERS)}


def _save_kinds(place: Path) -> None:
    """A RoBERTa with a byte-level vocabulary, an ALBERT and an XLM-RoBERTa with SentencePiece's."""
    texts = ["the cat sat on the mat", "a dog, in 1999, ate the cat's mat", "über naïve cafés"] * 9
    learned = learn_unigram(texts, size=60)
    assert isinstance(learned.rules, UnigramRules)
    rules = replace(learned.rules, charsmap=one_exchange())
    made: dict[str, tuple[FamilyName, Tokenizer]] = {
        "bytes": ("roberta", learn_byte_bpe(texts, size=300)),
        "unigram": ("albert", Tokenizer(learned.vocabulary, rules)),
        "plain": ("xlm-roberta", learn_unigram(texts, size=60, plain=True)),
    }
    for name, (kind, tokenizer) in made.items():
        config = MODELS[f"{kind}-masked_lm"]
        config = replace(config, encoder=replace(config.encoder, vocabulary=tokenizer.size))
        save_model(place / name, build_model(config, seed=1), tokenizer)


def one_exchange() -> bytes:
    """SentencePiece's compiled form of one rule: "A" becomes "b"."""
    units = [0] * 0x80
    units[0] = 0x40 << 10
    units[0x40 ^ ord("A")] = ord("A") | 1 << 8 | 0x20 << 10
    units[0x40 ^ ord("A") ^ 0x20] = 1 << 31
    return struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + b"b\0"


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
