"""Checkpoints of google-research/bert and /albert: read into the hub's layout, and back.

    bert_model.ckpt.index, bert_model.ckpt.data-00000-of-00001   the variables
    bert_config.json or albert_config.json                       sizes
    vocab.txt or 30k-clean.model                                 the vocabulary

What is there besides, bert_model.ckpt.meta say, is the graph of a program and not needed.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from bertsmith.core.errors import ModelFolderError
from bertsmith.core.files import write_json
from bertsmith.network.families.family import FamilyName
from bertsmith.weights.conversion.staging import (
    Change,
    TensorChange,
    TensorChanges,
    candidate_folders,
    copy_file,
    copy_files,
    read_settings,
    vocabulary_home,
)
from bertsmith.weights.conversion.tensor_bundle import (
    INDEX_SUFFIX,
    TensorBundle,
    is_checkpoint,
    write_bundle,
)
from bertsmith.weights.folder import check_file
from bertsmith.weights.formats.catalog import FORMATS
from bertsmith.weights.tensors import TensorFile, write_tensors

_HEADS = {
    "cls.predictions": "cls/predictions",
    "cls.seq_relationship": "cls/seq_relationship",
    "qa_outputs": "cls/squad",
    "classifier": "",
    "predictions": "cls/predictions",
    "sop_classifier.classifier": "cls/seq_relationship",
}
"""The hub's modules whose tensors are `output_weights` and `output_bias`, and their scopes."""

_GROUP = "albert.encoder.albert_layer_groups.{block}.albert_layers.0"
_IN_GROUP = "bert/encoder/transformer/group_{block}/inner_group_0"
_ALBERT = {
    "albert.encoder.embedding_hidden_mapping_in": "bert/encoder/embedding_hidden_mapping_in",
    "albert.pooler": "bert/pooler/dense",
    "predictions.dense": "cls/predictions/transform/dense",
    "predictions.LayerNorm": "cls/predictions/transform/LayerNorm",
    f"{_GROUP}.attention.query": f"{_IN_GROUP}/attention_1/self/query",
    f"{_GROUP}.attention.key": f"{_IN_GROUP}/attention_1/self/key",
    f"{_GROUP}.attention.value": f"{_IN_GROUP}/attention_1/self/value",
    f"{_GROUP}.attention.dense": f"{_IN_GROUP}/attention_1/output/dense",
    f"{_GROUP}.attention.LayerNorm": f"{_IN_GROUP}/LayerNorm",
    f"{_GROUP}.ffn": f"{_IN_GROUP}/ffn_1/intermediate/dense",
    f"{_GROUP}.ffn_output": f"{_IN_GROUP}/ffn_1/intermediate/output/dense",
    f"{_GROUP}.full_layer_layer_norm": f"{_IN_GROUP}/LayerNorm_1",
}
_IN_VARIABLE = re.compile(r"(?<=/layer_)\d{1,6}(?=/)|(?<=/group_)\d{1,6}(?=/)")
_IN_HUB = re.compile(r"(?<=\.layer\.)\d{1,6}(?=\.)|(?<=\.albert_layer_groups\.)\d{1,6}(?=\.)")


class Variable(NamedTuple):
    """A tensor in TensorFlow: its name, and whether it is stored the other way about there."""

    name: str
    transposed: bool


def variable(hub: str, kind: FamilyName) -> Variable | None:
    """Return the variable of Google's code that holds a tensor of the hub; None if none does."""
    template, number = _template(_IN_HUB, hub)
    result = _tables(kind)[0].get(template)
    return result and result._replace(name=result.name.replace("{block}", number))


def hub_name(name: str, kind: FamilyName) -> tuple[str, bool] | None:
    """Return the hub's name for a variable, and whether it is transposed there; None if none."""
    # checkpoints made from TensorFlow Hub's modules
    template, number = _template(_IN_VARIABLE, name.removeprefix("module/"))
    result = _tables(kind)[1].get(template)
    return result and (result[0].replace("{block}", number), result[1])


def _template(number: re.Pattern[str], name: str) -> tuple[str, str]:
    """Return a name with a place in place of the layer's number, and that number."""
    match = number.search(name)
    return (number.sub("{block}", name, count=1), match[0]) if match else (name, "")


@cache
def _tables(kind: FamilyName) -> tuple[dict[str, Variable], dict[str, tuple[str, bool]]]:
    """Return the table of a family, from the hub's names and from Google's."""
    variables = {row.hub: _variable(row.hub, kind) for row in FORMATS[kind].table}
    back = {made.name: (hub, made.transposed) for hub, made in variables.items()}
    assert len(back) == len(variables)
    return variables, back


def _variable(hub: str, kind: FamilyName) -> Variable:
    module, _, leaf = hub.rpartition(".")
    if module in _HEADS:
        output = "output_weights" if leaf == "weight" else "output_bias"
        return Variable(f"{_HEADS[module]}/{output}".removeprefix("/"), False)
    scope = _ALBERT.get(module) or module.replace(".layer.", ".layer_").replace(".", "/")
    if kind == "albert":
        scope = scope.replace("albert/embeddings", "bert/embeddings")
    if module.endswith("_embeddings"):
        return Variable(scope, False)
    if "norm" in module.rpartition(".")[2].lower():
        return Variable(f"{scope}/{'gamma' if leaf == 'weight' else 'beta'}", False)
    if leaf == "weight":
        return Variable(f"{scope}/kernel", True)
    return Variable(f"{scope}/bias", False)


CONFIG_FILES: dict[FamilyName, str] = {"bert": "bert_config.json", "albert": "albert_config.json"}

_EPSILON = 1e-12
"""The number that Google's code adds to a variance, whatever the config says."""
_SIZES = (
    "attention_probs_dropout_prob", "hidden_act", "hidden_dropout_prob", "hidden_size",
    "initializer_range", "intermediate_size", "max_position_embeddings", "num_attention_heads",
    "num_hidden_layers", "type_vocab_size", "vocab_size",
)  # fmt: skip
_OURS = (
    "bertsmith_positions", "bertsmith_segments", "classifier_dropout", "id2label", "label2id",
    "problem_type",
)  # fmt: skip
"""Settings that Google's code does not know, and passes over; they bring a model back as it was."""
_ACTIVATION = "bertsmith_activation"
_ALBERT_ONLY = {
    "net_structure_type": 0,
    "gap_size": 0,
    "num_memory_blocks": 0,
    "inner_group_num": 1,
}
_FINE_TUNED = {
    "qa_outputs.weight": "ForQuestionAnswering",
    "classifier.weight": "ForSequenceClassification",
}
_PRETRAINED = {
    (True, True): "ForPreTraining",
    (True, False): "ForMaskedLM",
    (False, True): "ForNextSentencePrediction",
    (False, False): "Model",
}
"""Classes of `transformers`, by the heads there are: for masked tokens, for pairs of sentences."""
_PRETRAINING: dict[FamilyName, tuple[str, str]] = {
    "bert": ("cls.predictions.bias", "cls.seq_relationship.bias"),
    "albert": ("predictions.bias", "sop_classifier.classifier.bias"),
}


def hub_config(
    google: dict[str, Any], kind: FamilyName, tensors: Collection[str]
) -> dict[str, Any]:
    """Google's settings as the hub has them, for a model of some tensors, by the hub's names.

    `ModelFolderError` for a structure that we do not compute.
    """
    config = google | {"model_type": kind, "layer_norm_eps": _EPSILON}
    if kind == "albert":
        if google.get("hidden_act") == "gelu":
            # there the name means the tanh formula
            config["hidden_act"] = "gelu_new"
        for key, only in _ALBERT_ONLY.items():
            if google.get(key, only) != only:
                raise ModelFolderError(
                    f"{key} is {google[key]!r}, not {only}", where=CONFIG_FILES[kind]
                )
    config["hidden_act"] = config.pop(_ACTIVATION, config.get("hidden_act"))
    masked, pairs = (name in tensors for name in _PRETRAINING[kind])
    task = _PRETRAINED[masked, pairs]
    task = next((task for name, task in _FINE_TUNED.items() if name in tensors), task)
    return config | {"architectures": [FORMATS[kind].classes + task]}


def google_config(config: dict[str, Any], source: Path) -> dict[str, Any]:
    """Return the hub's settings as Google has them; `ModelFolderError` for others."""
    refused = {"model_type": ("bert",), "layer_norm_eps": (_EPSILON,), "is_decoder": (False, None)}
    for key, values in refused.items():
        if config.get(key) not in values:
            raise ModelFolderError(
                f"{key} is {config.get(key)!r}, where Google's code has {values[0]!r}",
                where=source,
                remedy="only what it computes alike can be written for it",
            )
    data = {key: config[key] for key in _SIZES} | {
        key: config[key] for key in _OURS if key in config
    }
    if data["hidden_act"] != "gelu":
        data |= {"hidden_act": "gelu", _ACTIVATION: data["hidden_act"]}
    return dict(sorted(data.items()))


WRITTEN = "bert_model.ckpt"

_OPTIMISER = re.compile(
    r"(^|/)(adam_[mv]|lamb_[mv]|(AdamWeightDecay|LAMB|Adafactor)\w*|Adam(_\d+)?)$"
    r"|^(global_step|beta[12]_power|loss_scale|good_steps)$"
)
_CASED = re.compile(r"(^|[_\-.])(multi_)?cased([_\-.]|$)")
_LOWERCASE = re.compile(r"uncased|^(multilingual|chinese)_L-12_H-768_A-12$")


def find_checkpoint(source: Path) -> Path | None:
    """Return the prefix of the checkpoint's files: named itself, or the only one of a folder.

    None where there is none; `ModelFolderError` where there are several.
    """
    if source.is_dir():
        indices = sorted(source.glob(f"*{INDEX_SUFFIX}"))
        results = [path for path in indices if _is_inside(path) and is_checkpoint(path)]
        if len(results) > 1:
            raise ModelFolderError(
                f"holds {len(results)} checkpoints",
                where=source,
                remedy=f"name one: {results[-1].with_suffix('')}",
            )
        for path in () if results else indices:
            if any(source.glob(f"{glob.escape(path.stem)}.data-*")):
                check_file(path, source.resolve())
        return results[0].with_suffix("") if results else None
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


def read_checkpoint(prefix: Path, folder: Path) -> TensorChanges:
    """Write a checkpoint as config.json, model.safetensors and the vocabulary.

    `ModelFolderError` if it is damaged, or holds no BERT.
    """
    home = prefix.parent
    for path in home.glob(f"{glob.escape(prefix.name)}.*"):
        check_file(path, home.resolve())
    bundle = TensorBundle(prefix)
    kind: FamilyName = "albert" if any("/group_0/" in name for name in bundle.entries) else "bert"
    name = CONFIG_FILES[kind]
    place = next(
        (item / name for item in candidate_folders(prefix) if (item / name).exists()), None
    )
    if place is None:
        raise ModelFolderError(
            f"has no {name} beside it or one folder up",
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
    _copy_vocabulary(prefix, folder)
    return moves


def write_checkpoint(source: Path, folder: Path) -> TensorChanges:
    """Write a folder in the hub's layout as a checkpoint of Google's; a BERT's, no other's.

    `ModelFolderError` for what Google's code could not compute.
    """
    config = read_settings(source / "config.json")
    google = google_config(config, source)
    file, moves = TensorFile(source / "model.safetensors"), TensorChanges()
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
        moves.done.append(TensorChange(source=name, target=made.name, change=change))
    write_bundle(folder / WRITTEN, tensors)
    write_json(folder / CONFIG_FILES["bert"], google)
    copy_files(source, folder, ("vocab.txt", "tokenizer_config.json"))
    return moves


def _renamed(bundle: TensorBundle, kind: FamilyName) -> tuple[TensorChanges, dict[str, Tensor]]:
    """Return the variables of a model, by the hub's names and transposed as they are there."""
    moves = TensorChanges()
    tensors: dict[str, Tensor] = {}
    for name in bundle.entries:
        result = hub_name(name, kind)
        if result is None:
            optimiser = _OPTIMISER.search(name)
            moves.dropped[name] = "the optimiser's" if optimiser else "not a known part of a model"
            continue
        target, transposed = result
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
        moves.done.append(TensorChange(source=name, target=target, change=change))
    return moves, tensors


def _copy_vocabulary(prefix: Path, folder: Path) -> None:
    """Copy the vocabulary; with the case that the folder's name implies, as in Google's code."""
    home = vocabulary_home(prefix, "*.model")
    if home is None:
        return
    copy_files(home, folder)
    for path in sorted(home.glob("*.model"))[:1]:
        copy_file(path, folder / "spiece.model")
    for name in (home.resolve().name, prefix.resolve().parent.name):
        lowercase = bool(_LOWERCASE.search(name))
        if lowercase or _CASED.search(name):
            break
    else:
        return
    if not (folder / "tokenizer_config.json").exists():
        write_json(folder / "tokenizer_config.json", {"do_lower_case": lowercase})
