"""The settings in `config.json` that `transformers` reads."""

from __future__ import annotations

from typing import Any

from bertsmith.network.families.catalog import FAMILIES
from bertsmith.network.families.family import FamilyName
from bertsmith.network.heads import Predicts
from bertsmith.network.model import ModelConfig
from bertsmith.weights.formats.catalog import FORMATS, format_of
from bertsmith.weights.formats.format import Part

# settings of ours that transformers ignores
NO_ANSWER = "bertsmith_no_answer"
MIN_CONFIDENCE = "bertsmith_min_confidence"
PREPROCESSING = "bertsmith_preprocessing"

OWN_MODEL_TYPE = "bertsmith"
"""`model_type` of models that `transformers` would compute otherwise, so that it refuses them."""
OWN_ACTIVATION = "bertsmith_"
"""What the name of their activation begins with: a class of `transformers` that is named outright,
as in BertModel.from_pretrained, warns of the type and goes on, and refuses an activation."""
ENCODER = "bertsmith_encoder"
"""In their config.json: all settings of the encoder."""

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
    return FORMATS[format_of(config)].classes + _task(config)


def heads_of(architecture: str, kind: FamilyName) -> tuple[Part, ...]:
    """The heads that a class of a family holds; none for a class that is not known."""
    form = FORMATS[kind]
    own = FORMATS["bertsmith"].classes
    task = architecture.removeprefix(own if architecture.startswith(own) else form.classes)
    return {**_PARTS, **form.parts}.get(task, ())


def _task(config: ModelConfig) -> str:
    if config.predicts is not None:
        return _PREDICTS[config.predicts]
    if config.replaced_tokens:
        return "ForPreTraining"
    if config.next_sentence:
        # there is no class for sentence order alone
        alone = FAMILIES[config.encoder.family].pairs == "next_sentence" and not config.masked_lm
        return "ForNextSentencePrediction" if alone else "ForPreTraining"
    if config.masked_lm:
        return "LMHeadModel" if config.encoder.causal else "ForMaskedLM"
    return "Model"


def hub_config(config: ModelConfig, *, pad_id: int, ends: tuple[int, int]) -> dict[str, Any]:
    """The settings of a model, and what `transformers` cannot say under keys of our own.

    `pad_id` and `ends` are the ids of padding and of what a sequence begins and ends with.
    """
    encoder, name = config.encoder, format_of(config)
    keys, form = FORMATS[encoder.family].keys, FORMATS[name]
    # both names of the tanh formula are known to transformers; this is the older
    activation = "gelu_new" if encoder.activation == "gelu_tanh" else "gelu"
    data: dict[str, Any] = {
        "architectures": [architecture(config)],
        "dtype": "float32",
        "model_type": name,
        "pad_token_id": pad_id,
        keys["activation"]: activation,
        keys["classifier_dropout"]: config.classifier_dropout,
    }
    if name == "bertsmith":
        names = {each.keys["activation"] for each in FORMATS.values() if each.keys}
        data |= dict.fromkeys(names, OWN_ACTIVATION + activation)
        data[ENCODER] = encoder.to_dict()
    else:
        named = {key: getattr(encoder, ours, None) for ours, key in keys.items()}
        data = {key: value for key, value in named.items() if value is not None} | data
        data[keys["longest"]] = encoder.longest + encoder.position_offset
        data |= {**form.constants, **form.write(encoder, ends)}
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
