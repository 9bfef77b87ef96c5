"""The settings in `config.json` that `transformers` reads."""

from __future__ import annotations

from typing import Any

from bertsmith.network.encoder import EncoderConfig
from bertsmith.network.families.catalog import Family, family
from bertsmith.network.heads import Predicts
from bertsmith.network.model import ModelConfig
from bertsmith.weights.config.keys import (
    FAMILY,
    KEYS,
    MIN_CONFIDENCE,
    MODERN,
    NO_ANSWER,
    OWN_ACTIVATION,
    OWN_MODEL_TYPE,
    POOLING,
    PREPROCESSING,
)
from bertsmith.weights.names.layout import Part

PREFIXES: dict[Family, str] = {
    "bert": "Bert",
    "albert": "Albert",
    "roberta": "Roberta",
    "distilbert": "DistilBert",
    "modernbert": "ModernBert",
}
"""What the names of a family's classes begin with."""

OWN_PREFIX = "Bertsmith"
"""The same of models that `transformers` cannot hold."""

PROBLEMS: dict[Predicts, str] = {
    "class": "single_label_classification",
    "classes": "multi_label_classification",
    "number": "regression",
}
"""What `problem_type` is where several kinds of answer share a class."""

_PREDICTS: dict[Predicts, str] = {
    "class": "ForSequenceClassification",
    "classes": "ForSequenceClassification",
    "number": "ForSequenceClassification",
    "tags": "ForTokenClassification",
    "span": "ForQuestionAnswering",
    "choice": "ForMultipleChoice",
}
_PARTS: dict[str, tuple[Part, ...]] = {
    "ForSequenceClassification": ("classify",),
    "ForTokenClassification": ("tag",),
    "ForQuestionAnswering": ("span",),
    "ForMultipleChoice": ("choose",),
    "ForPreTraining": ("masked_lm", "next_sentence"),
    "ForMaskedLM": ("masked_lm",),
    "LMHeadModel": ("masked_lm",),
    "ForNextSentencePrediction": ("next_sentence",),
    "Model": (),
}


def held_by_transformers(config: ModelConfig) -> bool:
    """Return whether a class of `transformers` computes what the model does.

    None has a pooler that reads the last token of a sequence.
    """
    return not (config.pooler and config.encoder.pooled == "last")


def architecture(config: ModelConfig) -> str:
    """The class that holds all the heads of a model, or the most telling one."""
    kind = family(config.encoder)
    prefix = PREFIXES[kind] if held_by_transformers(config) else OWN_PREFIX
    return prefix + _task(config, kind)


def heads_of(architecture: str, kind: Family) -> tuple[Part, ...]:
    """The heads that a class of a family holds; none for a class that is not known."""
    prefix = OWN_PREFIX if architecture.startswith(OWN_PREFIX) else PREFIXES[kind]
    return _PARTS.get(architecture.removeprefix(prefix), ())


def _task(config: ModelConfig, kind: Family) -> str:
    if config.predicts is not None:
        return _PREDICTS[config.predicts]
    if config.next_sentence:
        # there is no class for sentence order alone
        alone = kind != "albert" and not config.masked_lm
        return "ForNextSentencePrediction" if alone else "ForPreTraining"
    if config.masked_lm:
        return "LMHeadModel" if config.encoder.causal else "ForMaskedLM"
    return "Model"


def hub_config(config: ModelConfig, *, pad_id: int, ends: tuple[int, int]) -> dict[str, Any]:
    """The settings of a model, and what `transformers` cannot say under keys of our own.

    `pad_id` and `ends` are the ids of padding and of what a sequence begins and ends with.
    """
    encoder = config.encoder
    kind = family(encoder)
    keys = KEYS[kind]
    data: dict[str, Any] = {
        "architectures": [architecture(config)],
        "dtype": "float32",
        "model_type": kind,
        "pad_token_id": pad_id,
    }
    data |= {key: getattr(encoder, ours) for ours, key in keys.items() if hasattr(encoder, ours)}
    # both names of the tanh formula are known to transformers; this is the older
    data[keys["activation"]] = "gelu_new" if encoder.activation == "gelu_tanh" else "gelu"
    data[keys["classifier_dropout"]] = config.classifier_dropout
    data[keys["longest"]] = encoder.longest + encoder.position_offset
    data |= _modern(encoder, ends) if kind == "modernbert" else _wiring(encoder)
    if not held_by_transformers(config):
        data |= _own(config)
        data[keys["activation"]] = OWN_ACTIVATION + data[keys["activation"]]
    if config.labels:
        data["id2label"] = {str(number): label for number, label in enumerate(config.labels)}
        data["label2id"] = {label: number for number, label in enumerate(config.labels)}
    if config.predicts in PROBLEMS:
        data["problem_type"] = PROBLEMS[config.predicts]
    if config.no_answer is not None:
        data[NO_ANSWER] = config.no_answer
    if config.min_confidence is not None:
        data[MIN_CONFIDENCE] = config.min_confidence
    if config.preprocessing is not None:
        data[PREPROCESSING] = config.preprocessing.to_dict()
    return dict(sorted(data.items()))


def _own(config: ModelConfig) -> dict[str, Any]:
    """Return the settings that make `transformers` refuse a model, and state its pooling."""
    return {
        "model_type": OWN_MODEL_TYPE,
        FAMILY: family(config.encoder),
        POOLING: config.encoder.pooled,
    }


def _wiring(encoder: EncoderConfig) -> dict[str, Any]:
    """Return the settings that follow from several of ours, or are ours alone."""
    kind, data = family(encoder), dict[str, Any]()
    if kind == "albert":
        data["inner_group_num"] = 1
        data["num_hidden_groups"] = encoder.groups or encoder.layers
    if kind == "distilbert":
        data["sinusoidal_pos_embds"] = encoder.positions == "sinusoidal"
    else:
        data["position_embedding_type"] = "absolute"
        data["type_vocab_size"] = encoder.segments or 2
        if not encoder.segments:
            data["bertsmith_segments"] = 0
    if encoder.causal:
        data["is_decoder"] = True
    if encoder.positions != "learned":
        data["bertsmith_positions"] = encoder.positions
    return data


def _modern(encoder: EncoderConfig, ends: tuple[int, int]) -> dict[str, Any]:
    """Return a ModernBERT's wiring, and ids that would default to the published ones."""
    first, last = ends
    return MODERN | {
        "bos_token_id": first,
        "classifier_activation": "gelu_new" if encoder.activation == "gelu_tanh" else "gelu",
        "classifier_pooling": "mean" if encoder.pooled == "mean" else "cls",
        "cls_token_id": first,
        "embedding_dropout": encoder.dropout,
        "eos_token_id": last,
        "sep_token_id": last,
    }
