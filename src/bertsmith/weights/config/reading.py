"""`config.json` as `transformers` writes it, read and checked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from bertsmith.core.errors import ConfigError, ModelFolderError
from bertsmith.core.json_files import read_json
from bertsmith.network.block import Activation
from bertsmith.network.embeddings import Positions
from bertsmith.network.encoder import EncoderConfig, Family, Pooling
from bertsmith.network.families.catalog import FAMILIES
from bertsmith.network.heads import HEADS, HeadName, Predicts
from bertsmith.network.preprocessing import Preprocessing
from bertsmith.weights.config.keys import (
    DEFAULTS,
    ENCODER,
    KEYS,
    MIN_CONFIDENCE,
    MODERN,
    NO_ANSWER,
    OWN_MODEL_TYPE,
    PREPROCESSING,
)
from bertsmith.weights.config.settings import PROBLEMS, heads_of
from bertsmith.weights.names.layout import Part

_ROTATION, _KINDS, _EVERY = "rope_parameters", "layer_types", "global_attn_every_n_layers"
_GLOBAL, _LOCAL = "full_attention", "sliding_attention"
_BASES = {_GLOBAL: "global_rope_theta", _LOCAL: "local_rope_theta"}


def with_keys_of_version_4(data: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return the settings with the keys of version 4 in place of those of 5.

    Raises `ModelFolderError` for a rotation or an order of layers that is not computed here, and
    where both versions' keys are there and do not agree.
    """
    found = {key: value for key, value in data.items() if key not in (_ROTATION, _KINDS)}
    for kind, base in _bases(data.get(_ROTATION), path).items():
        key = _BASES[kind]
        if data.get(key, base) not in (None, base):
            _refuse(
                f"{key} is {data[key]!r}, but {_ROTATION} has {base!r} for {kind}",
                "both must be the same: remove the wrong one",
                path,
            )
        found[key] = base
    kinds = data.get(_KINDS)
    if kinds is not None:
        found[_EVERY] = _every(kinds, data, path)
    return found


def _bases(table: object, path: Path) -> dict[str, object]:
    """Return the base of the rotation for the kinds of layers that have one of their own."""
    if table is None:
        return {}
    if not isinstance(table, dict) or set(table) - set(_BASES):
        _refuse(
            f"{_ROTATION} is {str(table)[:80]!r}",
            f"it must be a table with {_GLOBAL} and {_LOCAL}",
            path,
        )
    found: dict[str, object] = {}
    for kind, settings in table.items():
        if settings is None:
            continue
        if not isinstance(settings, dict):
            _refuse(f"{_ROTATION} of {kind} is {str(settings)[:80]!r}", "it must be a table", path)
        for key, value in settings.items():
            if key == "rope_theta":
                found[kind] = value
            elif key not in ("rope_type", "type") or value != "default":
                _refuse(
                    f"{_ROTATION} of {kind} has {str(key)[:30]} {str(value)[:50]!r}, "
                    "which changes the result",
                    "only rope_theta with the rope_type 'default' can be followed",
                    path,
                )
    return found


def _every(kinds: object, data: dict[str, Any], path: Path) -> int:
    """Return n where every n-th layer is global, the first among them."""
    layers = data.get("num_hidden_layers")
    known = isinstance(kinds, list) and all(kind in (_GLOBAL, _LOCAL) for kind in kinds)
    if not isinstance(kinds, list) or not known or len(kinds) != layers:
        _refuse(
            f"{_KINDS} is {str(kinds)[:80]}",
            f"it must have {_GLOBAL!r} or {_LOCAL!r} for each of the {layers} layers",
            path,
        )
    stated = data.get(_EVERY)
    if type(stated) is int and stated > 0 and kinds == _pattern(stated, len(kinds)):
        return stated
    every = next((n for n, kind in enumerate(kinds) if n and kind == _GLOBAL), len(kinds))
    if kinds != _pattern(every, len(kinds)):
        _refuse(
            f"{_KINDS} has no {_GLOBAL} in every n-th layer, the first among them",
            "another order of layers cannot be followed",
            path,
        )
    return every


def _pattern(every: int, layers: int) -> Sequence[str]:
    return [_LOCAL if layer % every else _GLOBAL for layer in range(layers)]


def _refuse(what: str, remedy: str, path: Path) -> NoReturn:
    raise ModelFolderError(what, where=path, remedy=remedy)


_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
_POSITIONS: tuple[Positions, ...] = ("learned", "sinusoidal", "none")
_LARGEST_SIZE, _LARGEST_NUMBER = 2**31 - 1, 1e30
_LARGEST_OWN = 2**24

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
    "sinusoidal_pos_embds": (False, True, None),
    # of encoders that call themselves by the name of a family and are wired otherwise
    "rotary_value": (False, None),
    "rope_theta": (None,),
    "rope_scaling": (None,),
    "prenorm": (False, None),
    "use_rms_norm": (False, None),
    "alibi": (False, None),
}
_MOST_LABELS = 100_000
_TWO_LABELS = {"0": "LABEL_0", "1": "LABEL_1"}
_ONLY_MODERN: dict[str, tuple[object, ...]] = {key: (value,) for key, value in MODERN.items()}
_POOLING: dict[Family, Pooling] = {"distilbert": "relu", "modernbert": "gelu"}


def _same(value: object, expected: object) -> bool:
    return type(value) is type(expected) and value == expected


class HubConfig:
    """A `config.json` that has been read and checked; `ModelFolderError` when it does not fit.

    `encoder`: the encoder's config. `longest` and all other sizes are checked against each other
    here, against the tensors later. Settings we do not know are those that `transformers` does not
    know for these families either, so they change nothing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._data: dict[str, Any] = read_json(path, ModelFolderError, largest=2**20)
        self.is_own = self._data.get("model_type") == OWN_MODEL_TYPE
        try:
            if self.is_own:
                self.encoder = self._own_encoder()
                self.family = self.encoder.family
            else:
                self.family = self._family()
                if self.family == "modernbert":
                    self._data = with_keys_of_version_4(self._data, path)
                self._check_settings()
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

    @property
    def no_answer(self) -> float | None:
        """By how much no answer has to be likelier than the best one for none to be given."""
        return self._optional_number(NO_ANSWER, -_LARGEST_NUMBER, _LARGEST_NUMBER)

    @property
    def min_confidence(self) -> float | None:
        """The probability below which the model gives no answer."""
        return self._optional_number(MIN_CONFIDENCE, 0, 1)

    @property
    def preprocessing(self) -> Preprocessing | None:
        """Return the preprocessing of texts in fine-tuning."""
        value = self._data.get(PREPROCESSING)
        if value is None:
            return None
        if not isinstance(value, dict):
            self._refuse(f"{PREPROCESSING} is {value!r}", "it must be an object")
        try:
            return Preprocessing.from_dict(value)
        except ConfigError as error:
            self._refuse(f"{PREPROCESSING}: {error.what}", error.remedy or "mend it")

    def predicts(self, head: HeadName, outputs: int) -> Predicts:
        """Return what a head of so many outputs predicts."""
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
        if outputs > _MOST_LABELS:
            self._refuse(f"its head has {outputs:,} outputs", f"at most {_MOST_LABELS:,} are read")
        number_to_name, name_to_number = (self._data.get(k) for k in ("id2label", "label2id"))
        # old versions wrote the names of two, whatever num_labels was
        unnamed = number_to_name == _TWO_LABELS and self._data.get("num_labels") == outputs
        if number_to_name is None or unnamed:
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
            kinds = ", ".join((*FAMILIES, OWN_MODEL_TYPE))
            self._refuse(f"model_type is {kind!r}", f"it can be {kinds}")
        return known

    def _own_encoder(self) -> EncoderConfig:
        """Return the encoder of our own format, whose settings are one key."""
        settings = self._data.get(ENCODER)
        if not isinstance(settings, dict):
            self._refuse(f"{ENCODER} is {settings!r}", "it must be an object")
        for name, value in settings.items():
            if isinstance(value, int | float) and not -1 < value <= _LARGEST_OWN:
                self._refuse(f"{ENCODER}: {name} is {value!r}", f"at most {_LARGEST_OWN:,}")
        return EncoderConfig.from_dict(settings)

    def _check_settings(self) -> None:
        if self.family != "bert" and self._data.get("is_decoder") is True:
            kind = self.family.upper()
            self._refuse(f"is_decoder is True, which no {kind} can be", "leave it out")
        modern = self.family == "modernbert"
        for key, values in (_ONLY | _ONLY_MODERN if modern else _ONLY).items():
            # 1 is no True: transformers takes it for one in some places and refuses it in others
            if key in self._data and not any(_same(self._data[key], value) for value in values):
                self._refuse(
                    f"{key} is {self._data[key]!r}, which changes the result",
                    f"only {values[0]!r} can be followed",
                )

    def _encoder(self) -> EncoderConfig:
        keys, layers = KEYS[self.family], self._integer("layers")
        activation = self._value("activation")
        if not isinstance(activation, str) or activation not in _ACTIVATIONS:
            key = keys["activation"]
            self._refuse(f"{key} is {activation!r}", f"it can be {', '.join(_ACTIVATIONS)}")
        groups = self._integer("groups") if "groups" in keys else None
        modern = self._modern() if self.family == "modernbert" else {}
        distilled, offset = self.family == "distilbert", self._position_offset()
        segments = self._integer("segments") if "segments" in keys else 0
        return EncoderConfig(
            family=self.family,
            embedding=self._integer("embedding") if "embedding" in keys else None,
            # as many groups as layers share nothing
            groups=None if groups == layers else groups,
            vocabulary=self._integer("vocabulary"),
            hidden=self._integer("hidden"),
            layers=layers,
            heads=self._integer("heads"),
            feed_forward=self._integer("feed_forward"),
            longest=self._integer("longest", least=1 + offset) - offset,
            position_offset=offset,
            segments=0 if self._data.get("bertsmith_segments") == 0 else segments,
            positions=self._positions(),
            activation=_ACTIVATIONS[activation],
            pooling=_POOLING.get(self.family, "tanh"),
            causal=self._data.get("is_decoder") is True,
            **modern,
            dropout=self._number("dropout"),
            attention_dropout=self._number("attention_dropout"),
            norm_epsilon=1e-12 if distilled else self._number("norm_epsilon"),
            initial_std=self._number("initial_std"),
        )

    def _modern(self) -> dict[str, Any]:
        """The wiring of a ModernBERT; what its files might say otherwise is refused."""
        pooled = {"cls": "first", "mean": "mean"}.get(
            str(self._data.get("classifier_pooling", "cls"))
        )
        if pooled is None:
            self._refuse(
                f"classifier_pooling is {self._data['classifier_pooling']!r}",
                "it can be cls or mean",
            )
        activation = self._value("activation")
        for key, same in (
            ("classifier_activation", activation),
            ("embedding_dropout", self._value("dropout")),
        ):
            if self._data.get(key, same) != same:
                self._refuse(
                    f"{key} is {self._data[key]!r}", f"only {same!r} as elsewhere can be followed"
                )
        local_theta = "theta" if self._value("local_theta") is None else "local_theta"
        return {
            "theta": self._number("theta"),
            "local_theta": self._number(local_theta),
            "window": self._integer("window"),
            "global_every": self._integer("global_every"),
            "gated": True,
            "norm": "before",
            "biases": False,
            "pooled": pooled,
        }

    def _position_offset(self) -> int:
        """The row of the first position, which a RoBERTa counts from its padding id."""
        if self.family != "roberta":
            return 0
        pad_id = self._data.get("pad_token_id", 1)
        if type(pad_id) is not int or not 0 <= pad_id < _LARGEST_SIZE:
            self._refuse(f"pad_token_id is {pad_id!r}", "it must be a whole number, at least 0")
        return pad_id + 1

    def _positions(self) -> Positions:
        usual = "learned"
        if self.family == "distilbert" and self._data.get("sinusoidal_pos_embds") is True:
            usual = "sinusoidal"
        if self.family == "modernbert":
            return "rotary"
        found = self._data.get("bertsmith_positions", usual)
        known = next((each for each in _POSITIONS if each == found), None)
        if known is None:
            self._refuse(f"bertsmith_positions is {found!r}", f"it can be {', '.join(_POSITIONS)}")
        return known

    def _classifier_dropout(self) -> float:
        if self._value("classifier_dropout") is None:
            return self.encoder.dropout
        value = self._number("classifier_dropout")
        if value >= 1:
            key = KEYS[self.family]["classifier_dropout"]
            self._refuse(f"{key} is {value!r}", "it must be in [0, 1)")
        return value

    def _value(self, name: str) -> Any:  # noqa: ANN401
        """Return the value for a setting of ours."""
        return self._data.get(KEYS[self.family][name], DEFAULTS[self.family].get(name))

    def _integer(self, name: str, *, least: int = 1) -> int:
        key, value = KEYS[self.family][name], self._value(name)
        if type(value) is not int or not least <= value <= _LARGEST_SIZE:
            self._refuse(
                f"{key} is {value!r}" if key in self._data else f"{key} is missing",
                f"it must be a whole number from {least} to {_LARGEST_SIZE:,}",
            )
        return value

    def _number(self, name: str) -> float:
        value = self._value(name)
        if type(value) not in (int, float) or not 0 <= value <= _LARGEST_NUMBER:
            key = KEYS[self.family][name]
            self._refuse(f"{key} is {value!r}", "it must be a number, at least 0")
        return float(value)

    def _optional_number(self, key: str, least: float, most: float) -> float | None:
        value = self._data.get(key)
        if value is None:
            return None
        if type(value) not in (int, float) or not least <= value <= most:
            self._refuse(f"{key} is {value!r}", f"it must be a number from {least:g} to {most:g}")
        return float(value)

    def _refuse(self, what: str, remedy: str) -> NoReturn:
        raise ModelFolderError(what, where=self.path, remedy=remedy)
