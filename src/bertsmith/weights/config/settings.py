"""The settings in `config.json` that `transformers` reads."""

from __future__ import annotations

from typing import Any

from bertsmith.network.encoder import EncoderConfig, Family
from bertsmith.network.heads import Predicts
from bertsmith.network.model import ModelConfig
from bertsmith.weights.config.keys import (
    ENCODER,
    KEYS,
    MIN_CONFIDENCE,
    MODERN,
    NO_ANSWER,
    OWN_ACTIVATION,
    PREPROCESSING,
)
from bertsmith.weights.formats import PREFIXES, format_of
from bertsmith.weights.names.layout import Part

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


def architecture(config: ModelConfig) -> str:
    """The class that holds all the heads of a model, or the most telling one."""
    form = format_of(config)
    prefix = OWN_PREFIX if form == "bertsmith" else PREFIXES[form]
    return prefix + _task(config)


def heads_of(architecture: str, kind: Family) -> tuple[Part, ...]:
    """The heads that a class of a family holds; none for a class that is not known."""
    prefix = OWN_PREFIX if architecture.startswith(OWN_PREFIX) else PREFIXES[kind]
    return _PARTS.get(architecture.removeprefix(prefix), ())


def _task(config: ModelConfig) -> str:
    if config.predicts is not None:
        return _PREDICTS[config.predicts]
    if config.next_sentence:
        # there is no class for sentence order alone
        alone = config.encoder.family != "albert" and not config.masked_lm
        return "ForNextSentencePrediction" if alone else "ForPreTraining"
    if config.masked_lm:
        return "LMHeadModel" if config.encoder.causal else "ForMaskedLM"
    return "Model"


def hub_config(config: ModelConfig, *, pad_id: int, ends: tuple[int, int]) -> dict[str, Any]:
    """The settings of a model, and what `transformers` cannot say under keys of our own.

    `pad_id` and `ends` are the ids of padding and of what a sequence begins and ends with.
    """
    encoder, form = config.encoder, format_of(config)
    keys = KEYS[encoder.family]
    # both names of the tanh formula are known to transformers; this is the older
    activation = "gelu_new" if encoder.activation == "gelu_tanh" else "gelu"
    data: dict[str, Any] = {
        "architectures": [architecture(config)],
        "dtype": "float32",
        "model_type": form,
        "pad_token_id": pad_id,
        keys["activation"]: activation,
        keys["classifier_dropout"]: config.classifier_dropout,
    }
    if form == "bertsmith":
        data |= {each["activation"]: OWN_ACTIVATION + activation for each in KEYS.values()}
        data[ENCODER] = encoder.to_dict()
    else:
        named = {key: getattr(encoder, ours, None) for ours, key in keys.items()}
        data = {key: value for key, value in named.items() if value is not None} | data
        data[keys["longest"]] = encoder.longest + encoder.position_offset
        data |= _modern(encoder, ends) if form == "modernbert" else _wiring(encoder)
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


def _wiring(encoder: EncoderConfig) -> dict[str, Any]:
    """Return the settings that follow from several of ours, or are ours alone."""
    kind, data = encoder.family, dict[str, Any]()
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
