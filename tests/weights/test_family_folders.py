"""What is particular to the folders of RoBERTa and DistilBERT."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    DistilBertConfig,
    DistilBertForMaskedLM,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
    RobertaModel,
)

from bertsmith.core.errors import ConfigError, ModelFolderError
from bertsmith.network.config import ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.learning.bpe import learn_byte_bpe
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.weights.folder import load_as, load_model, read_config, save_model, start_from
from families import ENCODERS, LABELS, MODELS, TOKENIZERS
from parity.comparing import compare, varied

SIZES: dict[str, Any] = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
    "intermediate_size": 37, "max_position_embeddings": 25, "type_vocab_size": 1,
    "attn_implementation": "eager",
}  # fmt: skip
SMALL: dict[str, Any] = {
    "vocab_size": 99, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 37,
    "max_position_embeddings": 23, "attn_implementation": "eager",
}  # fmt: skip


def saved(folder: Path, case: str) -> tuple[Path, Model]:
    config = MODELS[case]
    model = varied(build_model(config, seed=3))
    save_model(folder, model, TOKENIZERS[case.rpartition("-")[0]])  # type: ignore[index]
    return folder, model


def set_config(folder: Path, **changes: object) -> None:
    data = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(data))


def test_the_masked_lm_head_of_roberta_keeps_to_the_exact_gelu(tmp_path: Path) -> None:
    theirs = varied(RobertaForMaskedLM(RobertaConfig(**SIZES, hidden_act="gelu_new")))
    theirs.save_pretrained(tmp_path / "model")
    TOKENIZERS["roberta"].save(tmp_path / "model")
    ours, _ = load_model(tmp_path / "model")
    assert ours.config.encoder.activation == "gelu_tanh"
    compare(ours, theirs)


@pytest.mark.parametrize("kind", ["vocab.json", "type_vocab_size"])
def test_a_bare_roberta_that_states_no_family_is_not_taken_for_a_bert(
    tmp_path: Path, kind: str
) -> None:
    """As the first versions saved it. All its tensors have the names and shapes of a BERT's."""
    folder = tmp_path / "roberta-old"
    learned = learn_byte_bpe(["the smith heats the iron"] * 3, size=280)
    config = RobertaConfig(**SIZES | {"vocab_size": learned.size})
    theirs = varied(RobertaModel(config))
    theirs.save_pretrained(folder)
    learned.save(folder)
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        (folder / name).unlink()
    path = folder / "config.json"
    unsaid = ("model_type", "architectures", "pad_token_id", "transformers_version")
    data = {k: v for k, v in json.loads(path.read_text()).items() if k not in unsaid}
    if kind == "vocab.json":
        data["type_vocab_size"] = 2
        (folder / "tokenizer.json").unlink()
    else:
        (folder / "vocab.json").unlink()
        (folder / "merges.txt").unlink()
    path.write_text(json.dumps(data))
    with pytest.raises(ModelFolderError, match=f"model_type is missing, and {kind} .* set it"):
        load_model(folder)
    set_config(folder, model_type="roberta", type_vocab_size=1)
    compare(load_model(folder)[0], theirs)


def test_rows_before_the_first_position_are_kept(tmp_path: Path) -> None:
    theirs = RobertaForMaskedLM(RobertaConfig(**SIZES))
    theirs.save_pretrained(tmp_path / "model")
    TOKENIZERS["roberta"].save(tmp_path / "model")
    ours, _ = load_model(tmp_path / "model")
    encoder = ours.config.encoder
    assert (encoder.longest, encoder.position_offset) == (23, 2)
    table = theirs.roberta.embeddings.position_embeddings.weight
    assert torch.equal(ours.get_parameter("encoder.embeddings.positions.weight"), table)


@pytest.mark.parametrize(("pad_id", "longest"), [(0, 24), (5, 19)])
def test_positions_begin_where_the_padding_says(tmp_path: Path, pad_id: int, longest: int) -> None:
    folder, _ = saved(tmp_path / "model", "roberta-span")
    set_config(folder, pad_token_id=pad_id)
    encoder = read_config(folder).encoder
    assert (encoder.position_offset, encoder.longest) == (pad_id + 1, longest)
    # transformers gives a token of the other id, <s> or <unk>, the position of padding
    with pytest.raises(ModelFolderError, match=f"pad_token_id is {pad_id}, by which transformers"):
        load_model(folder)


@pytest.mark.parametrize(("pad_id", "known"), [(5, True), (6, False)], ids=["unused", "word"])
def test_positions_may_be_counted_by_a_token_that_no_text_has(
    tmp_path: Path, pad_id: int, known: bool
) -> None:
    """As in a RoBERTa with a vocabulary of BERT and the pad_token_id of RobertaConfig."""
    tokenizer = Tokenizer([*SPECIALS, "[unused0]", "word"], BasicRules(lowercase=True))
    encoder = dataclasses.replace(ENCODERS["roberta"], vocabulary=tokenizer.size, position_offset=1)
    save_model(tmp_path, build_model(ModelConfig(encoder=encoder), seed=1), tokenizer)
    set_config(tmp_path, pad_token_id=pad_id)
    if known:
        assert load_model(tmp_path)[0].config.encoder.position_offset == pad_id + 1
    else:
        with pytest.raises(ModelFolderError, match=f"pad_token_id is {pad_id}"):
            load_model(tmp_path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"pad_token_id": -1}, "pad_token_id is -1"),
        ({"pad_token_id": None}, "pad_token_id is None"),
        ({"pad_token_id": 24}, "max_position_embeddings is 25; it must be .* 26"),
        ({"is_decoder": True}, "is_decoder is True, which no ROBERTA can be"),
        ({"type_vocab_size": 2}, r"token_type_embeddings.weight has the shape \(1, 32\)"),
        ({"model_type": "bert"}, "lacks the tensor bert"),
        ({"model_type": "camembert"}, "model_type is 'camembert'"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    folder, _ = saved(tmp_path / "model", "roberta-span")
    set_config(folder, **change)
    with pytest.raises(ModelFolderError, match=told):
        load_model(folder)


def test_a_vocabulary_whose_padding_is_elsewhere_is_refused(tmp_path: Path) -> None:
    model = build_model(MODELS["roberta-span"], seed=1)
    with pytest.raises(ConfigError, match="padding has the id 0; set it to 1"):
        save_model(tmp_path / "model", model, TOKENIZERS["bert"])
    assert not (tmp_path / "model").exists()


def test_a_pooler_beside_a_classifier_is_told_and_not_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = {"id2label": dict(enumerate(LABELS)), "label2id": {n: i for i, n in enumerate(LABELS)}}
    theirs = varied(RobertaForSequenceClassification(RobertaConfig(**SIZES, **named)))
    folder = tmp_path / "model"
    theirs.save_pretrained(folder)
    TOKENIZERS["roberta"].save(folder)
    path = folder / "model.safetensors"
    pooler = {f"roberta.pooler.dense.{part}": torch.ones(32, 32)[0] for part in ("bias",)}
    pooler["roberta.pooler.dense.weight"] = torch.ones(32, 32)
    save_file(load_file(path) | {n: value.clone() for n, value in pooler.items()}, path)
    ours, _ = load_model(folder)
    compare(ours, theirs)
    told = capsys.readouterr().err
    assert "left out" in told
    assert "roberta.pooler.dense.bias, roberta.pooler.dense.weight" in told


@pytest.mark.parametrize("kind", ["roberta", "distilbert"])
def test_a_new_classifier_keeps_the_layer_of_the_old(tmp_path: Path, kind: str) -> None:
    """As transformers does; from a model without a classifier it is new."""
    folder, model = saved(tmp_path / "model", f"{kind}-class")
    started, _ = start_from(folder, labels=("a", "b"), seed=1)
    assert model.pooler is not None
    assert started.pooler is not None
    assert torch.equal(started.pooler.dense.weight, model.pooler.dense.weight)
    bare, _ = saved(tmp_path / "bare", f"{kind}-masked_lm")
    new = [start_from(bare, labels=("a", "b"), seed=seed)[0].pooler for seed in (1, 2)]
    assert new[0] is not None
    assert new[1] is not None
    assert not torch.equal(new[0].dense.weight, new[1].dense.weight)


def test_a_classifier_can_become_a_language_model(tmp_path: Path) -> None:
    folder, model = saved(tmp_path / "model", "distilbert-class")
    wanted = ModelConfig(encoder=model.config.encoder, pooler=False, masked_lm=True)
    assert load_as(folder, wanted, seed=1)[0].config == wanted
    other = dataclasses.replace(model.config, labels=("x", "y"))
    assert load_as(folder, other, seed=1)[0].config == other


def test_sinusoids_of_distilbert(tmp_path: Path) -> None:
    theirs = DistilBertForMaskedLM(DistilBertConfig(**SMALL, sinusoidal_pos_embds=True)).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    TOKENIZERS["distilbert"].save(tmp_path / "theirs")
    ours, tokenizer = load_model(tmp_path / "theirs")
    assert ours.config.encoder.positions == "sinusoidal"
    compare(ours, theirs)
    save_model(tmp_path / "ours", ours, tokenizer)
    back = DistilBertForMaskedLM.from_pretrained(tmp_path / "ours", attn_implementation="eager")
    assert back.config.sinusoidal_pos_embds
    for name, value in back.state_dict().items():
        assert torch.equal(value, theirs.state_dict()[name]), name


def test_a_distilbert_may_state_its_sizes_by_the_names_of_a_bert(tmp_path: Path) -> None:
    """transformers takes them before its own: other heads fit the same weights."""
    folder = tmp_path / "model"
    theirs = varied(DistilBertForMaskedLM(DistilBertConfig(**SMALL)))
    theirs.save_pretrained(folder)
    TOKENIZERS["distilbert"].save(folder)
    data = json.loads((folder / "config.json").read_text())
    for key, own, value in (
        ("num_attention_heads", "n_heads", 8),
        ("num_hidden_layers", "n_layers", 1),
    ):
        set_config(folder, **{key: value})
        with pytest.raises(
            ModelFolderError, match=f"{own} is {data[own]}, but {key} is {value}; both"
        ):
            load_model(folder)
        data[key] = data.pop(own)
        (folder / "config.json").write_text(json.dumps(data))
    compare(load_model(folder)[0], theirs)
    set_config(folder, num_attention_heads=8)
    again = DistilBertForMaskedLM.from_pretrained(folder, attn_implementation="eager")
    compare(load_model(folder)[0], again)


def test_impossible_wirings_are_refused() -> None:
    roberta, distilbert = ENCODERS["roberta"], ENCODERS["distilbert"]
    for encoder, wrong, told in (
        (roberta, {"position_offset": -1}, "position_offset is -1"),
        (roberta, {"groups": 2}, "not a multiple of groups"),
        (distilbert, {"pooled": "last"}, "does not read from left to right"),
    ):
        with pytest.raises(ConfigError, match=told):
            dataclasses.replace(encoder, **wrong)
    for encoder in (roberta, distilbert):
        with pytest.raises(ConfigError, match="no next-sentence head"):
            ModelConfig(encoder=encoder, next_sentence=True)
    with pytest.raises(ConfigError, match="has a pooler below heads that read it"):
        ModelConfig(encoder=distilbert, masked_lm=True)
    for parts in ({"predicts": "tags"}, {"labels": ("a",)}, {"predicts": "span", "labels": ("a",)}):
        with pytest.raises(ConfigError, match="for a model that predicts"):
            ModelConfig(encoder=roberta, **parts)


@pytest.mark.parametrize("case", ["distilbert-tags", "modernbert-masked_lm", "bert-span"])
def test_without_a_class_the_message_about_a_head_says_where_to_name_it(
    tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A classifier is looked for, of which these hold a part or nothing."""
    folder, model = saved(tmp_path / "model", case)
    kind = json.loads((folder / "config.json").read_text())["architectures"]
    set_config(folder, architectures=None)
    loaded, _ = load_model(folder)
    assert loaded.config.predicts is None
    assert 'name the class that has it under "architectures" in config.json' in (
        capsys.readouterr().err
    )
    set_config(folder, architectures=kind)
    assert load_model(folder)[0].config == model.config
