"""RoBERTa as fairseq saves it: model.pt with dict.txt, encoder.json and vocab.bpe beside it.

The vocabulary has a detour: text becomes GPT-2's pieces (vocab.bpe), these GPT-2's ids
(encoder.json), and a line of dict.txt, counted behind four special tokens, is the id of the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from bertsmith.core.errors import ModelFolderError
from bertsmith.core.files import write_json
from bertsmith.weights.conversion.pickled import find_pickled, unpickle
from bertsmith.weights.conversion.staging import (
    Change,
    TensorChange,
    TensorChanges,
    copy_file,
    read_settings,
    read_text,
)
from bertsmith.weights.tensors import TensorFile, write_tensors

DICTIONARY = "dict.txt"

_PIECES, _MERGES = "encoder.json", "vocab.bpe"
_BEFORE, _BEHIND = ("<s>", "<pad>", "</s>", "<unk>"), "<mask>"
_EPSILON = 1e-5
"""fairseq adds to a variance what torch does."""
_ACTIVATIONS = {"gelu_accurate": "gelu_new", "gelu_fast": "gelu_new"}

_IN_ENCODER = {
    "embed_tokens": "embeddings.word_embeddings",
    "embed_positions": "embeddings.position_embeddings",
    "emb_layer_norm": "embeddings.LayerNorm",
    "layernorm_embedding": "embeddings.LayerNorm",
}
_IN_LAYER = {
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "self_attn_layer_norm": "attention.output.LayerNorm",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
    "final_layer_norm": "output.LayerNorm",
}
_IN_LM_HEAD = {
    "dense.weight": "dense.weight",
    "dense.bias": "dense.bias",
    "layer_norm.weight": "layer_norm.weight",
    "layer_norm.bias": "layer_norm.bias",
    # a copy of the table
    "weight": "decoder.weight",
    "bias": "bias",
}
_FILLS_UP = re.compile(r"madeupword\d+|<\w+>")
_FUSED = re.compile(r"(roberta\.encoder\.layer\.\d+\.attention\.self)\.in_proj_(weight|bias)")
_HEAD = re.compile(r"classification_heads\.([^.]+)\.((dense|out_proj)\.(weight|bias))")
_LAYER = re.compile(r"layers\.(\d{1,6})\.(.+)")


def find_fairseq(source: Path) -> Path | None:
    """Return the checkpoint that a source is or holds, if fairseq's dictionary is beside it."""
    home = source.parent if source.is_file() else source
    result = find_pickled(source) if (home / DICTIONARY).exists() else []
    return result[0] if result else None


def read_fairseq(path: Path, folder: Path) -> TensorChanges:
    """Write a checkpoint as a folder in the hub's layout.

    `ModelFolderError` if it is damaged, no RoBERTa, or without its vocabulary.
    """
    home = path.parent
    missing = [name for name in (_PIECES, _MERGES) if not (home / name).exists()]
    if missing:
        if _PIECES in missing:
            _refuse_own_dictionary(home / DICTIONARY)
        raise ModelFolderError(
            f"has no {missing[0]} beside it",
            where=path,
            remedy="put GPT-2's file of that name there",
        )
    raw = folder / "fairseq.safetensors"
    result = unpickle([path], raw)
    file = TensorFile(raw)
    moves, tensors = _renamed(file, path)
    moves.dropped |= result.dropped
    raw.unlink()
    config = _config(result.settings, tensors, path)
    table = tensors["roberta.embeddings.word_embeddings.weight"]
    # fairseq has no segments; transformers cannot do without
    segments = torch.zeros(1, table.shape[1])
    tensors["roberta.embeddings.token_type_embeddings.weight"] = segments
    write_tensors(folder / "model.safetensors", tensors, {"format": "pt"})
    write_json(folder / "config.json", config)
    _write_vocabulary(home, folder)
    return moves


def _renamed(file: TensorFile, path: Path) -> tuple[TensorChanges, dict[str, Tensor]]:
    """Return the tensors by the hub's names, fused ones split into three."""
    heads = {match[1] for match in map(_HEAD.search, file.entries) if match}
    moves = TensorChanges()
    tensors: dict[str, Tensor] = {}
    for name in file.entries:
        head = _HEAD.search(name)
        target = _target(name)
        if head and len(heads) == 1:
            target = f"classifier.{head[2]}"
        elif head:
            moves.dropped[name] = "one of several heads, of which a model folder has one"
            continue
        elif target is None:
            if ".sentence_encoder." in name and not name.endswith(".version"):
                _refuse(f"holds {name[:80]}, which no RoBERTa has", path)
            moves.dropped[name] = "not a known part of a model"
            continue
        assert target is not None
        for part, tensor, change in _parts(target, file.read(name)):
            if part in tensors:
                _refuse(f"holds {part} a second time, as {name[:80]}", path)
            tensors[part] = tensor
            moves.done.append(TensorChange(source=name, target=part, change=change))
    for needed in ("word_embeddings", "position_embeddings"):
        if f"roberta.embeddings.{needed}.weight" not in tensors:
            _refuse(f"holds no {needed} of a RoBERTa of fairseq's", path)
    return moves, tensors


def _target(name: str) -> str | None:
    """Return the hub's name of a tensor, or what stands for three of them."""
    inner = re.sub(r"^(model\.)?(encoder|decoder)\.", "", name)
    if inner.startswith("lm_head."):
        result = _IN_LM_HEAD.get(inner.removeprefix("lm_head."))
        return result and f"lm_head.{result}"
    if not inner.startswith("sentence_encoder."):
        return None
    inner = inner.removeprefix("sentence_encoder.")
    layer = _LAYER.fullmatch(inner)
    if layer and layer[2] in ("self_attn.in_proj_weight", "self_attn.in_proj_bias"):
        return f"roberta.encoder.layer.{layer[1]}.attention.self.{layer[2].partition('.')[2]}"
    module, _, leaf = (layer[2] if layer else inner).rpartition(".")
    table = _IN_LAYER if layer else _IN_ENCODER
    if module not in table or leaf not in ("weight", "bias"):
        return None
    place = f"encoder.layer.{layer[1]}." if layer else ""
    return f"roberta.{place}{table[module]}.{leaf}"


def _parts(target: str, tensor: Tensor) -> Iterator[tuple[str, Tensor, Change]]:
    fused = _FUSED.fullmatch(target)
    if fused is None or tensor.dim() == 0:
        yield target, tensor, "renamed"
        return
    for part, item in zip(("query", "key", "value"), tensor.chunk(3), strict=False):
        yield f"{fused[1]}.{part}.{fused[2]}", item, "split"


def _config(settings: dict[str, Any], tensors: dict[str, Tensor], path: Path) -> dict[str, Any]:
    """Return the sizes, which the tensors determine but for the number of heads."""
    heads = settings.get("encoder_attention_heads")
    if type(heads) is not int:
        _refuse("does not state encoder_attention_heads", path)
    layers = {name.split(".")[3] for name in tensors if name.startswith("roberta.encoder.layer.")}
    table = tensors["roberta.embeddings.word_embeddings.weight"]
    positions = tensors["roberta.embeddings.position_embeddings.weight"]
    inner = tensors.get("roberta.encoder.layer.0.intermediate.dense.weight")
    if inner is None or not table.dim() == positions.dim() == inner.dim() == 2:
        _refuse("holds no layers of a RoBERTa of fairseq's", path)
    activation = str(settings.get("activation_fn", "gelu"))
    classifies = "classifier.out_proj.weight" in tensors
    of_head = settings.get("pooler_activation_fn", "tanh")
    if classifies and of_head != "tanh":
        _refuse(f"pooler_activation_fn is {str(of_head)[:80]!r}, not 'tanh' as in RoBERTa", path)
    return {
        "architectures": [f"RobertaFor{'SequenceClassification' if classifies else 'MaskedLM'}"],
        "attention_probs_dropout_prob": settings.get("attention_dropout", 0.1),
        "bos_token_id": 0,
        "classifier_dropout": settings.get("pooler_dropout", 0.0),
        "eos_token_id": 2,
        "hidden_act": _ACTIVATIONS.get(activation, activation),
        "hidden_dropout_prob": settings.get("dropout", 0.1),
        "hidden_size": table.shape[1],
        "intermediate_size": len(inner),
        "layer_norm_eps": _EPSILON,
        "max_position_embeddings": len(positions),
        "model_type": "roberta",
        "num_attention_heads": heads,
        "num_hidden_layers": len(layers),
        "pad_token_id": 1,
        "type_vocab_size": 1,
        "vocab_size": len(table),
    }


def _write_vocabulary(home: Path, folder: Path) -> None:
    """Write vocab.json in the model's order of ids, and merges.txt."""
    pieces = {str(number): piece for piece, number in read_settings(home / _PIECES).items()}
    path = home / DICTIONARY
    ids = dict(zip(_BEFORE, range(len(_BEFORE)), strict=True))
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        token, _, count = line.rpartition(" ")
        # words that only fill up the table have no place in GPT-2's vocabulary
        piece = pieces.get(token) if token.isdecimal() else token
        if not piece or not count.isdecimal() or piece in ids:
            raise ModelFolderError(
                "is no id of encoder.json that is new here, and its count",
                where=path,
                line=number,
                remedy="dict.txt and encoder.json must be those the model was trained with",
            )
        ids[piece] = len(ids)
    ids.setdefault(_BEHIND, len(ids))
    write_json(folder / "vocab.json", ids, in_ascii=False)
    copy_file(home / _MERGES, folder / "merges.txt")
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "RobertaTokenizer"})


def _refuse_own_dictionary(path: Path) -> None:
    """Raise `ModelFolderError` for a dictionary of tokens other than the numbers of GPT-2's."""
    tokens = [line.rpartition(" ")[0] for line in read_text(path).splitlines()]
    words = [token for token in tokens if not token.isdecimal() and not _FILLS_UP.fullmatch(token)]
    if not words:
        return
    shown = ", ".join(repr(token[:20]) for token in words[:3])
    raise ModelFolderError(
        f"is a dictionary of {len(tokens):,} tokens of its own ({shown}, ...), not the numbers "
        "that stand for GPT-2's pieces",
        where=path,
        remedy="fairseq's checkpoints can be converted with GPT-2's vocabulary only: save this one "
        "with transformers, with a tokenizer.json for its own tokens, and use that folder",
    )


def _refuse(problem: str, path: Path) -> NoReturn:
    raise ModelFolderError(
        problem, where=path, remedy="only RoBERTa's checkpoints of fairseq can be converted"
    )
