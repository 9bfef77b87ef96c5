"""What `transformers` wants to read in `config.json`."""

from __future__ import annotations

from typing import Any

from bertsmith.models.catalog import family
from bertsmith.models.model import ModelConfig
from bertsmith.weights.hub_classes import PROBLEMS, architecture


def hub_config(config: ModelConfig, *, pad_id: int) -> dict[str, Any]:
    """The settings of a model, and what `transformers` cannot say under keys of our own."""
    encoder = config.encoder
    data: dict[str, Any] = {
        "architectures": [architecture(config)],
        "attention_probs_dropout_prob": encoder.attention_dropout,
        "dtype": "float32",
        # both names of the tanh formula are known to transformers; this is the older
        "hidden_act": "gelu_new" if encoder.activation == "gelu_tanh" else "gelu",
        "hidden_dropout_prob": encoder.dropout,
        "hidden_size": encoder.hidden,
        "initializer_range": encoder.initial_std,
        "intermediate_size": encoder.feed_forward,
        "layer_norm_eps": encoder.norm_epsilon,
        "max_position_embeddings": encoder.longest,
        "model_type": family(encoder),
        "num_attention_heads": encoder.heads,
        "num_hidden_layers": encoder.layers,
        "pad_token_id": pad_id,
        "position_embedding_type": "absolute",
        "type_vocab_size": encoder.segments or 2,
        "vocab_size": encoder.vocabulary,
    }
    if encoder.embedding is None:
        data["classifier_dropout"] = config.classifier_dropout
    else:
        data["classifier_dropout_prob"] = config.classifier_dropout
        data["embedding_size"] = encoder.embedding
        data["inner_group_num"] = 1
        data["num_hidden_groups"] = encoder.groups or encoder.layers
    if encoder.causal:
        data["is_decoder"] = True
    if encoder.positions != "learned":
        data["bertsmith_positions"] = encoder.positions
    if not encoder.segments:
        data["bertsmith_segments"] = 0
    if config.labels:
        data["id2label"] = {str(number): label for number, label in enumerate(config.labels)}
        data["label2id"] = {label: number for number, label in enumerate(config.labels)}
    if config.predicts in PROBLEMS:
        data["problem_type"] = PROBLEMS[config.predicts]
    return dict(sorted(data.items()))
