"""The names of a model's settings in `config.json`: a table a family, read both ways."""

from __future__ import annotations

from typing import Any

from bertsmith.network.encoder import Family

_USUAL = {
    "vocabulary": "vocab_size",
    "hidden": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "longest": "max_position_embeddings",
    "segments": "type_vocab_size",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "classifier_dropout": "classifier_dropout",
    "norm_epsilon": "layer_norm_eps",
    "initial_std": "initializer_range",
}

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

KEYS: dict[Family, dict[str, str]] = {
    "bert": _USUAL,
    "albert": _USUAL
    | {
        "embedding": "embedding_size",
        "groups": "num_hidden_groups",
        "classifier_dropout": "classifier_dropout_prob",
    },
    "roberta": _USUAL,
    "distilbert": {
        "vocabulary": "vocab_size",
        "hidden": "dim",
        "layers": "n_layers",
        "heads": "n_heads",
        "feed_forward": "hidden_dim",
        "longest": "max_position_embeddings",
        "activation": "activation",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
        "classifier_dropout": "seq_classif_dropout",
        "initial_std": "initializer_range",
    },
    "modernbert": {
        "vocabulary": "vocab_size",
        "hidden": "hidden_size",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "feed_forward": "intermediate_size",
        "longest": "max_position_embeddings",
        "theta": "global_rope_theta",
        "local_theta": "local_rope_theta",
        "window": "local_attention",
        "global_every": "global_attn_every_n_layers",
        "activation": "hidden_activation",
        "dropout": "mlp_dropout",
        "attention_dropout": "attention_dropout",
        "classifier_dropout": "classifier_dropout",
        "norm_epsilon": "norm_eps",
        "initial_std": "initializer_range",
    },
}
"""Keys by the names of our settings. `longest` counts the rows that are not used too."""

_BERT_DEFAULTS: dict[str, Any] = {
    "segments": 2,
    "activation": "gelu",
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "norm_epsilon": 1e-12,
    "initial_std": 0.02,
}

DEFAULTS: dict[Family, dict[str, Any]] = {
    "bert": _BERT_DEFAULTS,
    "albert": _BERT_DEFAULTS
    | {
        "activation": "gelu_new",
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "classifier_dropout": 0.1,
        "embedding": 128,
        "groups": 1,
    },
    "roberta": _BERT_DEFAULTS,
    "distilbert": _BERT_DEFAULTS | {"classifier_dropout": 0.2},
    "modernbert": {
        "theta": 160_000.0,
        "local_theta": 10_000.0,
        "window": 128,
        "global_every": 3,
        "activation": "gelu",
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "classifier_dropout": 0.0,
        "norm_epsilon": 1e-5,
        "initial_std": 0.02,
    },
}
"""What `transformers` takes for settings that are not there; it has none for sizes."""

MODERN: dict[str, Any] = {
    "attention_bias": False,
    "classifier_bias": False,
    "decoder_bias": True,
    "mlp_bias": False,
    "norm_bias": False,
}
"""What a ModernBERT might have otherwise, and we cannot follow: its defaults in `transformers`."""
