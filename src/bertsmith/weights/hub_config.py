"""`config.json` as `transformers` writes it, read and checked."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from bertsmith.errors import ConfigError, ModelFolderError
from bertsmith.layers.feed_forward import Activation
from bertsmith.layers.positions import Positions
from bertsmith.models.catalog import FAMILIES, Family
from bertsmith.models.encoder import EncoderConfig
from bertsmith.models.heads import HEADS, HeadName, Predicts
from bertsmith.weights.hub_classes import PROBLEMS, heads_of
from bertsmith.weights.layout import Part

_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
_POSITIONS: tuple[Positions, ...] = ("learned", "sinusoidal", "none")
_LARGEST_FILE = 2**20

# what transformers takes for settings that are not there
_DEFAULTS: dict[Family, dict[str, Any]] = {
    "bert": {"hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1},
    "albert": {
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "classifier_dropout_prob": 0.1,
        "embedding_size": 128,
        "num_hidden_groups": 1,
    },
}

# settings of transformers that change a model's result, and the values we can follow
_ONLY: dict[str, tuple[object, ...]] = {
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, True, None),
    "is_encoder_decoder": (False, None),
    "add_cross_attention": (False, None),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
    "auto_map": ({}, None),
    "inner_group_num": (1,),
}


class HubConfig:
    """A `config.json` that has been read and checked; `ModelFolderError` when it does not fit.

    `encoder`: the encoder's config. `longest` and all other sizes are checked against each other
    here, against the tensors later. Settings we do not know are those that `transformers`' BERT
    does not know either, so they change nothing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data = _read_json(path)
        self.family = self._family()
        self._check_settings()
        try:
            self.encoder = self._encoder()
        except ConfigError as error:
            self._refuse(error.what, error.remedy)
        self.classifier_dropout = self._classifier_dropout()

    @property
    def architecture(self) -> str:
        """The class that `transformers` would load, or an empty string."""
        names = self._data.get("architectures")
        return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""

    @property
    def heads(self) -> tuple[Part, ...]:
        """The heads that the file is said to hold; a classifier where nothing is said."""
        return heads_of(self.architecture, self.family) if self.architecture else ("classify",)

    def predicts(self, head: HeadName, outputs: int) -> Predicts:
        """What a head of so many outputs predicts."""
        if head != "classify":
            return next(predicts for predicts, name in HEADS.items() if name == head)
        problem = self._data.get("problem_type")
        if problem is None:
            # so does transformers, when it is given labels
            return "number" if outputs == 1 else "class"
        known = next((predicts for predicts, name in PROBLEMS.items() if name == problem), None)
        if known is None:
            self._refuse(
                f"problem_type is {problem!r}", f"it can be {', '.join(PROBLEMS.values())}"
            )
        return known

    def labels(self, outputs: int) -> tuple[str, ...]:
        """The names of a head's outputs, in their order; both directions must agree."""
        number_to_name, name_to_number = (self._data.get(k) for k in ("id2label", "label2id"))
        if number_to_name is None:
            return tuple(f"LABEL_{number}" for number in range(outputs))
        numbers = [str(number) for number in range(outputs)]
        if not isinstance(number_to_name, dict) or sorted(number_to_name) != sorted(numbers):
            self._refuse(
                f"id2label does not name the head's {outputs} outputs",
                f'it must have the keys "0" to "{outputs - 1}"',
            )
        labels = tuple(number_to_name[number] for number in numbers)
        if not all(isinstance(label, str) for label in labels) or len(set(labels)) < outputs:
            self._refuse("id2label must give each number a name of its own", "mend it")
        expected = {label: number for number, label in enumerate(labels)}
        if name_to_number is not None and name_to_number != expected:
            self._refuse("label2id and id2label contradict each other", "mend the wrong one")
        return labels

    def _family(self) -> Family:
        kind = self._data.get("model_type", "bert")
        known = next((each for each in FAMILIES if each == kind), None)
        if known is None:
            self._refuse(f"model_type is {kind!r}", f"it can be {', '.join(FAMILIES)}")
        return known

    def _check_settings(self) -> None:
        if self.family == "albert" and self._data.get("is_decoder") is True:
            self._refuse("is_decoder is True, which no ALBERT can be", "leave it out")
        for key, values in _ONLY.items():
            if key in self._data and self._data[key] not in values:
                self._refuse(
                    f"{key} is {self._data[key]!r}, which changes the result",
                    f"only {values[0]!r} can be followed",
                )

    def _encoder(self) -> EncoderConfig:
        activation = self._setting("hidden_act")
        if not isinstance(activation, str) or activation not in _ACTIVATIONS:
            self._refuse(f"hidden_act is {activation!r}", f"it can be {', '.join(_ACTIVATIONS)}")
        positions = self._data.get("bertsmith_positions", "learned")
        if positions not in _POSITIONS:
            self._refuse(
                f"bertsmith_positions is {positions!r}", f"it can be {', '.join(_POSITIONS)}"
            )
        segments = self._integer("type_vocab_size", 2)
        layers = self._integer("num_hidden_layers")
        embedding = groups = None
        if self.family == "albert":
            embedding = self._integer("embedding_size")
            groups = self._integer("num_hidden_groups")
        return EncoderConfig(
            embedding=embedding,
            # as many groups as layers share nothing
            groups=None if groups == layers else groups,
            vocabulary=self._integer("vocab_size"),
            hidden=self._integer("hidden_size"),
            layers=layers,
            heads=self._integer("num_attention_heads"),
            feed_forward=self._integer("intermediate_size"),
            longest=self._integer("max_position_embeddings"),
            segments=0 if self._data.get("bertsmith_segments") == 0 else segments,
            positions=positions,
            activation=_ACTIVATIONS[activation],
            causal=self._data.get("is_decoder") is True,
            dropout=self._number("hidden_dropout_prob"),
            attention_dropout=self._number("attention_probs_dropout_prob"),
            norm_epsilon=self._number("layer_norm_eps", 1e-12),
            initial_std=self._number("initializer_range", 0.02),
        )

    def _classifier_dropout(self) -> float:
        key = "classifier_dropout" if self.family == "bert" else "classifier_dropout_prob"
        if self._setting(key) is None:
            return self.encoder.dropout
        value = self._number(key)
        if value >= 1:
            self._refuse(f"{key} is {value!r}", "it must be in [0, 1)")
        return value

    def _setting(self, key: str, default: float | None = None) -> Any:  # noqa: ANN401
        return self._data.get(key, _DEFAULTS[self.family].get(key, default))

    def _integer(self, key: str, default: int | None = None) -> int:
        value = self._setting(key, default)
        if type(value) is not int or value < 1:
            self._refuse(
                f"{key} is {value!r}" if key in self._data else f"{key} is missing",
                "it must be a whole number, at least 1",
            )
        return value

    def _number(self, key: str, default: float | None = None) -> float:
        value = self._setting(key, default)
        if type(value) not in (int, float) or not 0 <= value < math.inf:
            self._refuse(f"{key} is {value!r}", "it must be a number, at least 0")
        return float(value)

    def _refuse(self, what: str, remedy: str) -> NoReturn:
        raise ModelFolderError(what, where=self.path, remedy=remedy)


def _read_json(path: Path) -> Mapping[str, Any]:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise ModelFolderError("is no config: larger than 1 MiB", where=path)
        data = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ModelFolderError(f"not JSON: {error.msg}", where=path, line=error.lineno) from error
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        raise ModelFolderError(f"cannot be read: {error}", where=path) from error
    if not isinstance(data, dict):
        raise ModelFolderError("holds no JSON object", where=path)
    return data
