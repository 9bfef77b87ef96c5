"""The settings of google-research/bert and /albert, and those of the hub: read both ways."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from bertsmith.errors import ModelFolderError
from bertsmith.models.catalog import Family
from bertsmith.weights.hub_classes import PREFIXES

CONFIG_FILES: dict[Family, str] = {"bert": "bert_config.json", "albert": "albert_config.json"}

_EPSILON = 1e-12
"""What Google's code adds to a variance, whatever the config says."""
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
_PRETRAINING: dict[Family, tuple[str, str]] = {
    "bert": ("cls.predictions.bias", "cls.seq_relationship.bias"),
    "albert": ("predictions.bias", "sop_classifier.classifier.bias"),
}


def hub_config(google: dict[str, Any], kind: Family, tensors: Collection[str]) -> dict[str, Any]:
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
    return config | {"architectures": [PREFIXES[kind] + task]}


def google_config(config: dict[str, Any], source: Path) -> dict[str, Any]:
    """The hub's settings as Google has them; `ModelFolderError` for what it does not compute."""
    refused = {
        "model_type": ("bert",),
        "layer_norm_eps": (_EPSILON,),
        "is_decoder": (False, None),
    }
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
