"""The classes of `transformers` that hold a model's heads, as config.json names them."""

from __future__ import annotations

from bertsmith.models.catalog import Family, family
from bertsmith.models.heads import Predicts
from bertsmith.models.model import ModelConfig
from bertsmith.weights.layout import Part

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
