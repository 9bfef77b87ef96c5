"""`config.json` in the hub's form: written for `transformers`, and read and checked."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from bertsmith.core.config import Config, plain_value
from bertsmith.core.errors import ConfigError, ModelFolderError
from bertsmith.core.files import read_json, same_value
from bertsmith.network.config import (
    HEADS,
    Activation,
    Conformal,
    EncoderConfig,
    HeadName,
    ModelConfig,
    Predicts,
    Preprocessing,
)
from bertsmith.network.families.catalog import FAMILIES
from bertsmith.network.families.family import FamilyName
from bertsmith.tokens.folder.files import BPE_FILE, XLM_FILE
from bertsmith.weights.formats.catalog import FORMATS, format_of
from bertsmith.weights.formats.format import Part

C = TypeVar("C", bound=Config)

# settings of ours that transformers ignores
NO_ANSWER = "bertsmith_no_answer"
MIN_CONFIDENCE = "bertsmith_min_confidence"
CONFORMAL = "bertsmith_conformal"
PREPROCESSING = "bertsmith_preprocessing"
PRETRAINED_LENGTH = "bertsmith_pretrained_length"
_WRITER = "transformers_version"

CROSS_ENCODER = "sentence_transformers"
"""The settings of sentence-transformers' CrossEncoder since version 4."""
OLD_ACTIVATION = "sbert_ce_default_activation_function"
"""The activation in earlier versions."""
PROMPTS_FILE = "config_sentence_transformers.json"
"""The file in which newer ones look for the activation first; it has other folders' prompts too."""

OWN_MODEL_TYPE = "bertsmith"
"""`model_type` of models that `transformers` would compute otherwise, so that it refuses them."""
OWN_ACTIVATION = "bertsmith_"
"""The beginning of the name of their activation: a class of `transformers` that is named outright,
as in BertModel.from_pretrained, only warns of the type, but refuses an activation."""
ENCODER = "bertsmith_encoder"
"""In their config.json: all settings of the encoder."""

PROBLEMS: dict[Predicts, str] = {
    "class": "single_label_classification",
    "classes": "multi_label_classification",
    "number": "regression",
}
"""The `problem_type` where several kinds of answer share a class."""

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
    """Return the class that holds all the heads of a model, or the most telling one."""
    return FORMATS[format_of(config)].classes + _task(config)


def heads_of(architecture: str, kind: FamilyName) -> tuple[Part, ...]:
    """Return the heads that a class of a family holds; none for a class that is not known."""
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
    """Return the settings of a model, and what `transformers` cannot say under keys of our own.

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
        names = {candidate.keys["activation"] for candidate in FORMATS.values() if candidate.keys}
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
    if config.cross_encoder_activation is not None:
        data[CROSS_ENCODER] = {"activation_fn": config.cross_encoder_activation}
        data[OLD_ACTIVATION] = config.cross_encoder_activation
    own_settings = {
        NO_ANSWER: config.no_answer,
        MIN_CONFIDENCE: config.min_confidence,
        CONFORMAL: config.conformal,
        PREPROCESSING: config.preprocessing,
        PRETRAINED_LENGTH: config.pretrained_length,
    }
    data |= {key: plain_value(value) for key, value in own_settings.items() if value is not None}
    return dict(sorted(data.items()))


_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python": "gelu",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
}
_MAX_SIZE, _MAX_NUMBER = 2**31 - 1, 1e30
_MAX_OWN_BYTES = 2**24
_DOTTED_NAME = re.compile(r"[A-Za-z_][\w.]{0,200}", re.ASCII)

# settings of transformers that change a model's result, and the values we can follow
_ONLY: dict[str, tuple[object, ...]] = {
    # with none, version 4 adds no positions, and 5 those that were learned
    "position_embedding_type": ("absolute",),
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
_MAX_LABELS = 100_000
_TWO_LABELS = {"0": "LABEL_0", "1": "LABEL_1"}
_NUMBERS = (
    "theta", "local_theta", "dropout", "attention_dropout", "norm_epsilon", "initial_std",
)  # fmt: skip
_ELSEWHERE = ("activation", "classifier_dropout", "longest", "groups")


def _default_labels(outputs: int) -> tuple[str, ...]:
    """Return the names that `transformers` gives to outputs without names."""
    return tuple(f"LABEL_{number}" for number in range(outputs))


def _agrees(name_to_number: object, labels: tuple[str, ...]) -> bool:
    """Return whether a label2id says the same as `labels`, or nothing."""
    if name_to_number is None:
        return True
    if not isinstance(name_to_number, dict):
        return False
    # transformers leaves its own names there where it was given id2label alone
    names = {_default_labels(len(name_to_number)), labels}
    # it keeps numbers as they were given, which may be text
    stated = {name: str(number) for name, number in name_to_number.items()}
    return any(stated == {name: str(number) for number, name in enumerate(each)} for each in names)


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
                self._format = FORMATS[self.family]
            else:
                self.family = self._family()
                self._format = FORMATS[self.family]
                self._data = self._format.upgrade(self._data)
                self._check_settings()
                self.encoder = self._encoder()
        except ConfigError as error:
            self._refuse(error.problem, error.remedy)
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

    def answering(self, predicts: Predicts | None) -> dict[str, Any]:
        """Return settings of `ModelConfig` that `transformers` lacks, for a model's predictions."""
        results: dict[str, Any] = {}
        if predicts == "span":
            results["no_answer"] = self._optional_number(NO_ANSWER, -_MAX_NUMBER, _MAX_NUMBER)
        if predicts in ("class", "choice"):
            results["min_confidence"] = self._optional_number(MIN_CONFIDENCE, 0, 1)
            results["conformal"] = self._optional_config(CONFORMAL, Conformal)
        if predicts is not None:
            results["preprocessing"] = self._optional_config(PREPROCESSING, Preprocessing)
        elif _WRITER not in self._data:
            # transformers copies it, and may have trained on longer sequences
            longest = self._optional_number(PRETRAINED_LENGTH, 1, _MAX_SIZE)
            results["pretrained_length"] = None if longest is None else int(longest)
        if predicts in PROBLEMS:
            results["cross_encoder_activation"] = self._cross_encoder_activation()
        return results

    def saved_again(self) -> list[str]:
        """Return the thresholds of ours that `transformers` copied with a model, by their keys."""
        ours = (NO_ANSWER, MIN_CONFIDENCE, CONFORMAL) if _WRITER in self._data else ()
        return [key for key in ours if self._data.get(key) is not None]

    def _cross_encoder_activation(self) -> str | None:
        """Return the activation that a CrossEncoder applies; None where none is stated.

        No answer of ours depends on it, so one that cannot be understood is left out.
        """
        newer, beside = {}, self.path.with_name(PROMPTS_FILE)
        # without modules.json the library does not read it
        if beside.is_file() and self.path.with_name("modules.json").is_file():
            newer = read_json(beside, ModelFolderError, largest=2**20)
        settings = self._data.get(CROSS_ENCODER)
        stated = (
            newer.get("activation_fn"),
            settings.get("activation_fn") if isinstance(settings, dict) else None,
            self._data.get(OLD_ACTIVATION),
        )
        name = next((name for name in stated if name is not None), None)
        return name if isinstance(name, str) and _DOTTED_NAME.fullmatch(name) else None

    def _optional_config(self, key: str, kind: type[C]) -> C | None:
        """Return settings of ours that are an object; None where there are none."""
        value = self._data.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self._refuse(f"{key} is {value!r}", "it must be an object")
        try:
            return kind.from_dict(value)
        except ConfigError as error:
            self._refuse(f"{key}: {error.problem}", error.remedy or "correct it")

    def predicts(self, head: HeadName, outputs: int) -> Predicts:
        """Return the kind of prediction of a head with a number of outputs."""
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
        if known == "class" and outputs == 1:
            self._refuse(
                "its one class would have the probability 1 whatever the text is",
                'for a sigmoid set "problem_type" in config.json to "multi_label_classification", '
                'for a number to "regression"',
            )
        return known

    def labels(self, outputs: int) -> tuple[str, ...]:
        """Return the names of a head's outputs, in their order; both directions must agree."""
        if outputs > _MAX_LABELS:
            self._refuse(f"its head has {outputs:,} outputs", f"at most {_MAX_LABELS:,} are read")
        number_to_name, name_to_number = (self._data.get(k) for k in ("id2label", "label2id"))
        # old versions wrote the names of two, whatever num_labels was
        unnamed = number_to_name == _TWO_LABELS and self._data.get("num_labels") == outputs
        if number_to_name is None or unnamed:
            return _default_labels(outputs)
        numbers = [str(number) for number in range(outputs)]
        if not isinstance(number_to_name, dict) or sorted(number_to_name) != sorted(numbers):
            self._refuse(
                f"id2label does not name the head's {outputs} outputs",
                f'it must have the keys "0" to "{outputs - 1}"',
            )
        labels = tuple(number_to_name[number] for number in numbers)
        if all(type(label) is int for label in labels):
            labels = tuple(str(label) for label in labels)
        if not all(isinstance(label, str) for label in labels) or len(set(labels)) < outputs:
            self._refuse("id2label must give each number a name of its own", "correct it")
        if not _agrees(name_to_number, labels):
            self._refuse("label2id and id2label contradict each other", "correct the wrong one")
        return labels

    def _family(self) -> FamilyName:
        kind = self._data.get("model_type") or self._kind_of_class()
        known = next((family for family in FAMILIES if family == kind), None)
        if kind == "model2vec":
            self._refuse(
                "is of a static model of Model2Vec without modules.json",
                "save it again with model2vec, which writes that file; embed opens it then",
            )
        if known is None:
            self._refuse(f"model_type is {kind!r}", f"it can be {', '.join(FORMATS)}")
        return known

    def _kind_of_class(self) -> FamilyName:
        """Return the family of the class that the file names, a BERT if it names none."""
        if not self.architecture:
            self._check_is_bert()
            return "bert"
        tasks = r"(For\w+|(LMHead)?Model)"
        fitting = (
            family
            for family in FAMILIES
            if re.fullmatch(FORMATS[family].classes + tasks, self.architecture)
        )
        family = next(fitting, None)
        if family is None:
            self._refuse(
                f"model_type is missing, and the class is {self.architecture[:80]!r}",
                f"set it: it can be {', '.join(FAMILIES)}",
            )
        return family

    def _check_is_bert(self) -> None:
        """Refuse a RoBERTa that does not say so: its tensors fit a BERT, its positions do not."""
        others = (BPE_FILE, XLM_FILE)
        beside = next((name for name in others if self.path.with_name(name).exists()), None)
        reason = f"{beside} lies beside it" if beside else "type_vocab_size is 1"
        if beside or self._data.get("type_vocab_size") == 1:
            self._refuse(
                f"model_type is missing, and {reason}, as of a RoBERTa",
                f"set it: it can be {', '.join(FAMILIES)}",
            )

    def _own_encoder(self) -> EncoderConfig:
        """Return the encoder of our own format, whose settings are one key."""
        if ENCODER not in self._data:
            self._refuse(
                f"has no {ENCODER}: an earlier version saved it", "train or convert it again"
            )
        settings = self._data[ENCODER]
        if not isinstance(settings, dict):
            self._refuse(f"{ENCODER} is {settings!r}", "it must be an object")
        for name, value in settings.items():
            if isinstance(value, int | float) and not -1 < value <= _MAX_OWN_BYTES:
                self._refuse(f"{ENCODER}: {name} is {value!r}", f"at most {_MAX_OWN_BYTES:,}")
        return EncoderConfig.from_dict(settings)

    def _check_settings(self) -> None:
        if True not in self._format.holds["causal"] and self._data.get("is_decoder") is True:
            kind = self.family.upper()
            self._refuse(f"is_decoder is True, which no {kind} can be", "leave it out")
        constants: dict[str, tuple[object, ...]] = {
            key: (value,) for key, value in self._format.constants.items()
        }
        # version 5 follows it where it differs, 4 never does
        constants["is_causal"] = (self._data.get("is_decoder") is True, None)
        for key, values in (_ONLY | constants).items():
            # 1 is no True: transformers takes it for one in some places and refuses it in others
            stated = self._data.get(key)
            if key in self._data and not any(same_value(stated, value) for value in values):
                self._refuse(
                    f"{key} is {stated!r}, which changes the result",
                    f"only {values[0]!r} is supported",
                )

    def _encoder(self) -> EncoderConfig:
        keys, layers = self._format.keys, self._integer("layers")
        activation = self._value("activation")
        if not isinstance(activation, str) or activation not in _ACTIVATIONS:
            key = keys["activation"]
            self._refuse(f"{key} is {activation!r}", f"it can be {', '.join(_ACTIVATIONS)}")
        groups = self._integer("groups") if "groups" in keys else None
        offset = self._position_offset()
        settings: dict[str, Any] = {
            name: self._number(name) if name in _NUMBERS else self._integer(name)
            for name in keys
            if name not in _ELSEWHERE
        }
        settings |= {
            "family": self.family,
            # as many groups as layers share nothing
            "groups": None if groups == layers else groups,
            "longest": self._integer("longest", minimum=1 + offset) - offset,
            "position_offset": offset,
            "activation": _ACTIVATIONS[activation],
            "causal": self._data.get("is_decoder") is True,
        }
        wiring = FAMILIES[self.family].wiring
        return EncoderConfig(**{**wiring, **settings, **self._format.read(self._data)})

    def _position_offset(self) -> int:
        """Return the row of the first position, which a RoBERTa counts from its padding id."""
        if "position_offset" not in self._format.needs:
            return 0
        pad_id = self._data.get("pad_token_id", 1)
        if type(pad_id) is not int or not 0 <= pad_id < _MAX_SIZE:
            self._refuse(f"pad_token_id is {pad_id!r}", "it must be a whole number, at least 0")
        return pad_id + 1

    def _classifier_dropout(self) -> float:
        if self._value("classifier_dropout") is None:
            return self.encoder.dropout
        value = self._number("classifier_dropout")
        if value >= 1:
            key = self._format.keys["classifier_dropout"]
            self._refuse(f"{key} is {value!r}", "it must be in [0, 1)")
        return value

    def _value(self, name: str) -> Any:  # noqa: ANN401
        """Return the value for a setting of ours."""
        return self._data.get(self._format.keys[name], self._format.defaults.get(name))

    def _integer(self, name: str, *, minimum: int = 1) -> int:
        key, value = self._format.keys[name], self._value(name)
        if type(value) is not int or not minimum <= value <= _MAX_SIZE:
            self._refuse(
                f"{key} is {value!r}" if key in self._data else f"{key} is missing",
                f"it must be a whole number from {minimum} to {_MAX_SIZE:,}",
            )
        return value

    def _number(self, name: str) -> float:
        value = self._value(name)
        if type(value) not in (int, float) or not 0 <= value <= _MAX_NUMBER:
            key = self._format.keys[name]
            self._refuse(f"{key} is {value!r}", "it must be a number, at least 0")
        return float(value)

    def _optional_number(self, key: str, minimum: float, maximum: float) -> float | None:
        value = self._data.get(key)
        if value is None:
            return None
        if type(value) not in (int, float) or not minimum <= value <= maximum:
            self._refuse(
                f"{key} is {value!r}", f"it must be a number from {minimum:g} to {maximum:g}"
            )
        return float(value)

    def _refuse(self, problem: str, remedy: str) -> NoReturn:
        raise ModelFolderError(problem, where=self.path, remedy=remedy)
