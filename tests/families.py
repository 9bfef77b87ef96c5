"""Every family with every head it can have: small, their sizes all distinct; and its answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bertsmith.network.batch import Batch, pack
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.families.catalog import FAMILIES
from bertsmith.network.families.family import FamilyName
from bertsmith.network.model import Model, build_model
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS

LABELS = ("news", "spam", "ham", "art", "law")

_SIZES: dict[str, Any] = {
    "vocabulary": 99, "hidden": 32, "layers": 3, "heads": 4, "feed_forward": 37, "longest": 23,
    "norm_epsilon": 1e-7,
}  # fmt: skip
_NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}

ENCODERS: dict[FamilyName, EncoderConfig] = {
    "bert": EncoderConfig(**_SIZES),
    "albert": EncoderConfig(
        **_SIZES | _NO_DROPOUT | {"layers": 6, "groups": 2},
        family="albert",
        embedding=24,
        activation="gelu_tanh",
    ),
    "roberta": EncoderConfig(**_SIZES, family="roberta", segments=1, position_offset=2),
    "distilbert": EncoderConfig(
        **_SIZES | {"norm_epsilon": 1e-12}, family="distilbert", segments=0, pooling="relu"
    ),
    # sequences are longer than its window
    "modernbert": EncoderConfig(
        **_SIZES | _NO_DROPOUT | {"layers": 5},
        family="modernbert",
        segments=0,
        positions="rotary",
        theta=160_000.0,
        window=8,
        global_every=3,
        gated=True,
        norm="before",
        biases=False,
        pooling="gelu",
    ),
    "electra": EncoderConfig(**_SIZES, family="electra", embedding=24, pooling="gelu"),
    "xlm-roberta": EncoderConfig(**_SIZES, family="xlm-roberta", segments=1, position_offset=2),
}
"""One of each family."""

OTHER_SHAPES: dict[str, Any] = {"hidden": 40, "layers": 4, "heads": 5, "feed_forward": 71}

HEADS: dict[str, dict[str, Any]] = {
    "none": {},
    "masked_lm": {"masked_lm": True, "pooler": False},
    "pretraining": {"masked_lm": True, "next_sentence": True},
    "replaced_tokens": {"replaced_tokens": True, "pooler": False},
    "class": {"predicts": "class", "labels": LABELS},
    "classes": {"predicts": "classes", "labels": LABELS[:3]},
    "number": {"predicts": "number", "labels": ("score",)},
    "tags": {"predicts": "tags", "labels": LABELS, "pooler": False},
    "span": {"predicts": "span", "pooler": False},
    "choice": {"predicts": "choice"},
}
"""The heads of a model by the name that its test bears."""


def _has(family: FamilyName, head: str) -> bool:
    """Return whether a family has a head."""
    record = FAMILIES[family]
    missing = {"pretraining": record.pairs is None, "replaced_tokens": not record.replaced_tokens}
    return not missing.get(head, False)


def _model(family: FamilyName, head: str) -> ModelConfig:
    parts = HEADS[head]
    # these have none but below a head
    alone = FAMILIES[family].pooler == "sequences" and head == "none"
    more = {"pooler": False} if alone else {}
    if family == "modernbert":
        more = {"pooler": "predicts" in parts}
    shares = {"distilbert": 0.2, "modernbert": 0.0}
    dropout = {"classifier_dropout": shares[family]} if family in shares else {}
    return ModelConfig(encoder=ENCODERS[family], **parts | more | dropout)


MODELS: dict[str, ModelConfig] = {
    f"{family}-{head}": _model(family, head)
    for family in ENCODERS
    for head in HEADS
    if _has(family, head)
}
"""Every family with every head that it has."""


def _wired(**changes: Any) -> EncoderConfig:  # noqa: ANN401
    return replace(ENCODERS["bert"], **changes)


_CAUSAL = _wired(causal=True, pooled="last")
WIRINGS: dict[str, ModelConfig] = {
    "causal-masked_lm": ModelConfig(encoder=_wired(causal=True), masked_lm=True, pooler=False),
    "causal-class": ModelConfig(encoder=_CAUSAL, predicts="class", labels=("a", "b")),
    "causal-tags": ModelConfig(
        encoder=_wired(causal=True), predicts="tags", labels=("a", "b"), pooler=False
    ),
    "rotary": ModelConfig(encoder=_wired(positions="rotary", segments=0)),
    "window": ModelConfig(encoder=_wired(window=6, global_every=2)),
    "before": ModelConfig(
        encoder=_wired(norm="before", gated=True, positions="sinusoidal"), masked_lm=True
    ),
    "no-order": ModelConfig(encoder=_wired(positions="none", biases=False, pooled="mean")),
}
"""Models that no family has published."""

# as in RoBERTa's, padding is 1
_SPECIALS = dict.fromkeys(
    ("roberta", "xlm-roberta"), ("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]")
)

TOKENIZERS: dict[FamilyName, Tokenizer] = {
    family: Tokenizer(
        (*_SPECIALS.get(family, SPECIALS), *(f"word{number}" for number in range(94))),
        BasicRules(lowercase=True),
    )
    for family in ENCODERS
}
"""A vocabulary for each."""

LENGTHS = (13, 1, 23, 7, 19, 2)


def batch(*lengths: int, seed: int = 5) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    ids = [torch.randint(5, 99, (length,), generator=generator).numpy() for length in lengths]
    return pack(ids, [(id_ % 2) * (len(id_) > 1) for id_ in ids])


def varied(config: ModelConfig) -> Model:
    """A model none of whose weights is what it starts as."""
    model, generator = build_model(config, seed=7).eval(), torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return model


def answers(model: Model, packed: Batch) -> dict[str, Tensor]:
    """The last hidden states, and what each head says."""
    encoded = model.encoder(packed)
    found = {"hidden": encoded.last}
    if model.config.masked_lm:
        found["masked_lm"] = model.masked_lm(encoded.last)
    if model.config.replaced_tokens:
        found["replaced_tokens"] = model.replaced_tokens(encoded.last)
    if model.config.next_sentence:
        found["next_sentence"] = model.next_sentence(encoded, packed)
    match model.config.head:
        case "classify":
            found["head"] = model.classify(encoded, packed)
        case "tag":
            found["head"] = model.tag(encoded.last)
        case "span":
            found["head"] = model.span(encoded.last)
        case "choose":
            found["head"] = model.choose(encoded, packed)
    return found
