"""config.json: read, checked, written, and what transformers makes of it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import gelu
from transformers import CONFIG_MAPPING, BertConfig
from transformers.activations import ACT2FN

from bertsmith.core.errors import ModelFolderError
from bertsmith.network.config import Activation, ModelConfig, Positions
from bertsmith.weights.config_json import HubConfig, architecture, hub_config
from bertsmith.weights.formats.catalog import FORMATS, FormatName
from bounds import close_to_transformers

PLAIN: dict[str, Any] = {
    "model_type": "bert", "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 3,
    "num_attention_heads": 4, "intermediate_size": 37, "max_position_embeddings": 23,
}  # fmt: skip


def read(folder: Path, data: object) -> HubConfig:
    path = folder / "config.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return HubConfig(path)


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh"])
@pytest.mark.parametrize("segments", [0, 1, 3])
def test_our_config_comes_back(
    tmp_path: Path,
    config: ModelConfig,
    positions: Positions,
    activation: Activation,
    segments: int,
) -> None:
    encoder = dataclasses.replace(
        config.encoder, positions=positions, activation=activation, segments=segments
    )
    config = dataclasses.replace(config, encoder=encoder)
    back = read(tmp_path, hub_config(config, ends=(2, 3), pad_id=0))
    assert back.encoder == encoder
    assert back.labels(5) == config.labels
    assert back.classifier_dropout == 0.2
    assert back.heads == ("classify",)
    assert back.predicts("classify", 5) == "class"


def test_transformers_reads_the_same_settings(tmp_path: Path, config: ModelConfig) -> None:
    read(tmp_path, hub_config(config, ends=(2, 3), pad_id=6))
    there = BertConfig.from_pretrained(tmp_path)
    encoder = config.encoder
    assert (there.vocab_size, there.hidden_size, there.intermediate_size) == (99, 32, 37)
    assert (there.num_hidden_layers, there.num_attention_heads) == (3, 4)
    assert (there.max_position_embeddings, there.type_vocab_size) == (23, 2)
    assert (there.hidden_dropout_prob, there.attention_probs_dropout_prob) == (0.15, 0.05)
    assert (there.layer_norm_eps, there.initializer_range) == (1e-7, 0.03)
    assert (there.classifier_dropout, there.pad_token_id) == (0.2, 6)
    assert (there.hidden_act, there.problem_type) == ("gelu", "single_label_classification")
    assert tuple(there.id2label[n] for n in range(5)) == config.labels
    assert encoder.dropout == 0.15


def test_what_transformers_leaves_out_has_its_defaults(tmp_path: Path) -> None:
    config = read(tmp_path, PLAIN | {"hidden_dropout_prob": 0.3})
    assert config.encoder.segments == 2
    assert config.encoder.activation == "gelu"
    assert config.encoder.norm_epsilon == 1e-12
    assert config.classifier_dropout == 0.3
    assert config.labels(2) == ("LABEL_0", "LABEL_1")
    assert config.architecture == ""
    assert config.heads == ("classify",)
    assert config.predicts("classify", 2) == "class"
    assert config.predicts("classify", 1) == "number"


_SIZES: dict[str, dict[str, int]] = {
    "distilbert": {"vocab_size": 99, "dim": 256, "n_layers": 4, "n_heads": 4, "hidden_dim": 37},
    "modernbert": {"num_hidden_layers": 4},
}


@pytest.mark.parametrize("family", [name for name in FORMATS if name != "bertsmith"])
def test_the_defaults_of_a_family_are_those_of_its_class(
    tmp_path: Path, family: FormatName
) -> None:
    usual = {"vocab_size": 99, "hidden_size": 256, "num_hidden_layers": 4}
    usual |= {"num_attention_heads": 4, "intermediate_size": 37}
    sizes = usual | {"max_position_embeddings": 23} | _SIZES.get(family, {})
    theirs = CONFIG_MAPPING[family](**sizes)
    ours = read(tmp_path, sizes | {"model_type": family})
    form = FORMATS[family]
    stated = {name: getattr(theirs, key) for name, key in form.keys.items()}
    stated |= {"longest": ours.encoder.longest, "groups": stated.get("groups")}
    stated["activation"] = "gelu_tanh" if stated["activation"] == "gelu_new" else "gelu"
    dropout = stated.pop("classifier_dropout")
    assert {name: getattr(ours.encoder, name) for name in stated} == stated
    assert ours.classifier_dropout == (ours.encoder.dropout if dropout is None else dropout)
    # a RoBERTa's positions begin behind the padding id
    offset = theirs.pad_token_id + 1 if "roberta" in family else 0
    assert ours.encoder.position_offset == offset
    assert ours.encoder.longest == theirs.max_position_embeddings - offset


@pytest.mark.parametrize("formula", ["none", "tanh"])
def test_all_names_that_transformers_has_for_a_gelu(tmp_path: Path, formula: str) -> None:
    tanh = ["gelu_new", "gelu_pytorch_tanh", "gelu_python_tanh", "gelu_accurate", "gelu_fast"]
    values = torch.linspace(-9, 9, 541)
    for name in tanh if formula == "tanh" else ["gelu", "gelu_python"]:
        close_to_transformers(gelu(values, approximate=formula), ACT2FN[name](values))
        expected = "gelu_tanh" if formula == "tanh" else "gelu"
        assert read(tmp_path, PLAIN | {"hidden_act": name}).encoder.activation == expected


def test_the_class_names_the_family_where_model_type_is_missing(tmp_path: Path) -> None:
    unnamed = {key: value for key, value in PLAIN.items() if key != "model_type"}
    for name, family in (
        ("RobertaModel", "roberta"),
        ("XLMRobertaForMaskedLM", "xlm-roberta"),
        ("BertLMHeadModel", "bert"),
        ("BertForSequenceClassification", "bert"),
    ):
        assert read(tmp_path, unnamed | {"architectures": [name]}).family == family
    assert read(tmp_path, unnamed).family == "bert"
    for name in ("CamembertModel", "RobertaPreLayerNormModel", "BertGenerationEncoder"):
        with pytest.raises(
            ModelFolderError, match=f"is missing, and the class is '{name}'; set it"
        ):
            read(tmp_path, unnamed | {"architectures": [name]})


def test_settings_that_change_nothing_are_accepted(tmp_path: Path) -> None:
    harmless = {
        "gradient_checkpointing": False, "use_cache": True, "_name_or_path": "x", "dtype": "half",
        "directionality": "bidi", "pooler_type": "first_token_transform", "pruned_heads": {},
        "is_decoder": False, "position_embedding_type": "absolute", "pad_token_id": 0,
        "is_causal": False,
    }  # fmt: skip
    assert read(tmp_path, PLAIN | harmless).encoder == read(tmp_path, PLAIN).encoder


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"model_type": "deberta"}, "model_type is 'deberta'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"is_decoder": "yes"}, "is_decoder is 'yes'"),
        ({"is_decoder": 1}, "is_decoder is 1, which changes the result"),
        ({"model_type": "roberta", "is_decoder": 1}, "is_decoder is 1, which changes the result"),
        ({"is_causal": True}, "is_causal is True, which changes the result; only False is"),
        ({"is_decoder": True, "is_causal": False}, "is_causal is False, which changes the result"),
        ({"sinusoidal_pos_embds": 1}, "sinusoidal_pos_embds is 1"),
        ({"position_embedding_type": "rotary"}, "position_embedding_type is 'rotary'"),
        # with it, version 4 adds no positions, and 5 those that were learned
        ({"position_embedding_type": None}, "position_embedding_type is None"),
        ({"rope_theta": 10000.0}, "rope_theta is 10000.0, which changes the result"),
        ({"hidden_act": "silu"}, "hidden_act is 'silu'; it can be gelu, gelu_new"),
        ({"add_cross_attention": True}, "add_cross_attention"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"rotary_value": True}, "rotary_value"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_scaling"),
        ({"prenorm": True}, "prenorm"),
        ({"use_rms_norm": True}, "use_rms_norm"),
        ({"alibi": True}, "alibi"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads"),
        ({"quantization_config": {"bits": 8}}, "quantization_config"),
        ({"auto_map": {"AutoModel": "x--y.Z"}}, "auto_map"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu'; it can be gelu, gelu_new"),
        ({"hidden_act": ["gelu"]}, "hidden_act"),
        ({"bertsmith_positions": "rotary"}, "bertsmith_positions is 'rotary'"),
        ({"vocab_size": "99"}, "vocab_size is '99'"),
        ({"vocab_size": True}, "vocab_size is True"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"type_vocab_size": 0}, "type_vocab_size is 0"),
        ({"num_attention_heads": 5}, "multiple of heads"),
        ({"hidden_dropout_prob": 1.5}, "dropout is 1.5"),
        ({"layer_norm_eps": "tiny"}, "layer_norm_eps is 'tiny'"),
        ({"classifier_dropout": "no"}, "classifier_dropout is 'no'"),
        ({"classifier_dropout": 1.5}, "classifier_dropout is 1.5"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    with pytest.raises(ModelFolderError, match=told):
        read(tmp_path, PLAIN | change)


ROTATION = {"full_attention": {"rope_theta": 5000.0}, "sliding_attention": {"rope_theta": 300.0}}
GLOBAL, LOCAL = "full_attention", "sliding_attention"


def modern(folder: Path, **changes: object) -> tuple[float, float, int]:
    encoder = read(folder, PLAIN | {"model_type": "modernbert"} | changes).encoder
    return encoder.theta, encoder.local_theta, encoder.global_every


def test_a_modernbert_of_either_version(tmp_path: Path) -> None:
    assert modern(tmp_path) == (160_000, 10_000, 3)
    assert modern(tmp_path, global_rope_theta=7.0, local_rope_theta=5.0) == (7, 5, 3)
    assert modern(tmp_path, local_rope_theta=None) == (160_000, 160_000, 3)
    # as the configs of Ettin say; no class of transformers reads it
    assert modern(tmp_path, position_embedding_type="sans_pos") == (160_000, 10_000, 3)
    assert modern(tmp_path, rope_parameters=ROTATION) == (5000, 300, 3)
    agreeing = {"global_rope_theta": 5000.0, "local_rope_theta": None}
    assert modern(tmp_path, rope_parameters=ROTATION, **agreeing) == (5000, 300, 3)
    partly = {GLOBAL: {"rope_type": "default"}, LOCAL: None}
    assert modern(tmp_path, rope_parameters=partly) == (160_000, 10_000, 3)
    assert modern(tmp_path, layer_types=[GLOBAL, LOCAL, GLOBAL])[2] == 2
    # every third or every fourth: what the other version says is kept
    kinds = [GLOBAL, LOCAL, LOCAL]
    assert modern(tmp_path, layer_types=kinds)[2] == 3
    assert modern(tmp_path, layer_types=kinds, global_attn_every_n_layers=4)[2] == 4
    assert modern(tmp_path, local_attention=9, sliding_window=4) == (160_000, 10_000, 3)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"hidden_activation": "gelu_new"}, "classifier_activation is 'gelu' where it is left out"),
        ({"embedding_dropout": 0.5}, "embedding_dropout is 0.5; only 0.0, as elsewhere"),
        ({"rope_parameters": {"rope_theta": 5.0}}, "rope_parameters is .* a table with"),
        ({"rope_parameters": [1]}, "rope_parameters is"),
        ({"rope_parameters": {GLOBAL: 5.0}}, "rope_parameters of full_attention is '5.0'"),
        ({"rope_parameters": {GLOBAL: {"rope_type": "yarn"}}}, "rope_type 'yarn', which changes"),
        ({"rope_parameters": {LOCAL: {"factor": 2.0}}}, "factor '2.0', which changes the result"),
        ({"rope_parameters": {LOCAL: {"rope_theta": "x"}}}, "local_rope_theta is 'x'"),
        ({"rope_parameters": ROTATION, "global_rope_theta": 6.0}, "is 6.0, but rope_parameters"),
        ({"layer_types": [LOCAL, GLOBAL, LOCAL]}, "no full_attention in every n-th layer"),
        ({"layer_types": [GLOBAL, GLOBAL, LOCAL]}, "no full_attention in every n-th layer"),
        (
            {"layer_types": [GLOBAL, LOCAL, GLOBAL], "global_attn_every_n_layers": 3},
            "global_attn_every_n_layers is 3, but layer_types has those of 2",
        ),
        (
            {"layer_types": [GLOBAL] * 3, "global_attn_every_n_layers": "1"},
            "global_attn_every_n_layers is '1', but layer_types has those of 1",
        ),
        ({"layer_types": [GLOBAL, LOCAL]}, "for each of the 3 layers"),
        ({"layer_types": [GLOBAL, LOCAL, ["x"]]}, "layer_types is"),
        ({"layer_types": "full_attention"}, "layer_types is"),
        # version 5 sees as far as this says
        ({"sliding_window": 32}, "sliding_window is 32, but local_attention is 128"),
        ({"sliding_window": "x", "local_attention": "y"}, "sliding_window is 'x', but"),
    ],
)
def test_wiring_of_a_modernbert_that_is_not_computed_here_is_refused_by_name(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(ModelFolderError, match=told) as caught:
        modern(tmp_path, **changes)
    assert caught.value.remedy


@pytest.mark.parametrize("key", [key for key in PLAIN if key != "model_type"])
def test_a_missing_size_is_told(tmp_path: Path, key: str) -> None:
    with pytest.raises(ModelFolderError, match=f"{key} is missing"):
        read(tmp_path, {k: v for k, v in PLAIN.items() if k != key})


@pytest.mark.parametrize("text", ["", "{", "[1]", "\u20ac" * 400_000, "[" * 100_000])
def test_what_is_no_json_object_is_told(tmp_path: Path, text: str) -> None:
    with pytest.raises(ModelFolderError, match=r"config\.json"):
        read(tmp_path, text)


def test_labels_follow_the_numbers_not_the_file(tmp_path: Path) -> None:
    names = {"10": "k", "2": "c", "0": "a", "1": "b"} | {str(n): f"x{n}" for n in range(3, 10)}
    assert read(tmp_path, PLAIN | {"id2label": names}).labels(11) == (
        "a", "b", "c", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "k",
    )  # fmt: skip


def test_names_of_two_among_many_are_those_of_old_versions(tmp_path: Path) -> None:
    two = {"id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "label2id": {"LABEL_0": 0, "LABEL_1": 1}}
    names = ("LABEL_0", "LABEL_1", "LABEL_2")
    assert read(tmp_path, PLAIN | two | {"num_labels": 3}).labels(3) == names
    with pytest.raises(ModelFolderError, match="3 outputs"):
        read(tmp_path, PLAIN | two).labels(3)


@pytest.mark.parametrize(
    "name_to_number",
    [
        pytest.param({"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}, id="names-of-transformers"),
        pytest.param({"LABEL_0": 0, "LABEL_1": 1}, id="names-of-its-two"),
        pytest.param({"a": "0", "b": "1", "c": "2"}, id="numbers-as-text"),
        pytest.param(None, id="nothing"),
    ],
)
def test_label2id_as_transformers_writes_it_is_no_contradiction(
    tmp_path: Path, name_to_number: dict[str, Any] | None
) -> None:
    named = {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": name_to_number}
    assert read(tmp_path, PLAIN | named).labels(3) == ("a", "b", "c")


def test_labels_that_are_numbers_are_named_by_their_digits(tmp_path: Path) -> None:
    named = {"id2label": {"0": 1, "1": 2, "2": -1}, "label2id": {"1": 0, "2": 1, "-1": 2}}
    assert read(tmp_path, PLAIN | named).labels(3) == ("1", "2", "-1")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"id2label": {"0": "a", "1": "b"}}, "3 outputs"),
        ({"id2label": {"0": "a", "1": "b", "3": "c"}}, "3 outputs"),
        ({"id2label": ["a", "b", "c"]}, "3 outputs"),
        ({"id2label": {"0": "a", "1": "b", "2": "a"}}, "name of its own"),
        ({"id2label": {"0": "a", "1": "b", "2": 4}}, "name of its own"),
        (
            {"id2label": {"0": "a", "1": "b", "2": "c"}, "label2id": {"a": 0, "b": 2, "c": 1}},
            "label2id and id2label contradict",
        ),
    ],
)
def test_labels_that_do_not_fit_are_refused(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    with pytest.raises(ModelFolderError, match=told):
        read(tmp_path, PLAIN | change).labels(3)


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ({}, "BertModel"),
        ({"masked_lm": True}, "BertForMaskedLM"),
        ({"masked_lm": True, "next_sentence": True}, "BertForPreTraining"),
        ({"next_sentence": True}, "BertForNextSentencePrediction"),
        ({"predicts": "class", "labels": ("a", "b")}, "BertForSequenceClassification"),
        ({"predicts": "classes", "labels": ("a", "b")}, "BertForSequenceClassification"),
        ({"predicts": "number", "labels": ("a",)}, "BertForSequenceClassification"),
        ({"predicts": "tags", "labels": ("O", "B-X")}, "BertForTokenClassification"),
        ({"predicts": "span"}, "BertForQuestionAnswering"),
        ({"predicts": "choice"}, "BertForMultipleChoice"),
    ],
)
def test_architecture(config: ModelConfig, parts: dict[str, Any], name: str) -> None:
    assert architecture(ModelConfig(encoder=config.encoder, **parts)) == name
