"""Google's checkpoints: the models in them answer as `transformers`' do, both ways."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AlbertConfig,
    AlbertForPreTraining,
    BertConfig,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)

from bertsmith.core.errors import ModelFolderError
from bertsmith.weights.conversion.google import hub_config, hub_name, variable
from bertsmith.weights.conversion.tensor_bundle import TensorBundle
from bertsmith.weights.folder import load_model
from bertsmith.weights.formats.catalog import FORMATS
from verbs import convert
from weights.conversion import bundles
from weights.conversion.reference import (
    SIZES,
    Arrays,
    arrays,
    compared,
    google_config,
    varied,
    write_vocabulary,
)

SLOTS = {
    "global_step": np.int64(100),
    "bert/pooler/dense/bias/adam_m": np.zeros(3, np.float32),
    "bert/pooler/dense/bias/adam_v": np.zeros(3, np.float32),
}


def bert(kind: type[Any], **changes: object) -> Any:  # noqa: ANN401
    torch.manual_seed(1)
    return varied(kind(BertConfig(**SIZES, **changes)))


def checkpoint(folder: Path, values: Arrays, *, name: str = "bert_model.ckpt") -> Path:
    """A folder as Google's."""
    write_vocabulary(folder)
    (folder / "bert_config.json").write_text(json.dumps(google_config()))
    bundles.write(folder / name, values)
    return folder


@pytest.mark.parametrize("kind", ["bert", "albert"])
def test_names_lead_there_and_back(kind: Any) -> None:  # noqa: ANN401
    seen = set()
    for row in FORMATS[kind].table:
        hub = row.hub.format(block=11)
        made = variable(hub, kind)
        assert made is not None
        assert hub_name(made.name, kind) == (hub, made.transposed)
        seen.add(made.name)
    assert len(seen) == len({row.hub for row in FORMATS[kind].table})
    assert variable("bert.pooler.dense.gamma", kind) is None
    assert hub_name("bert/encoder/layer_x/output/dense/kernel", kind) is None


def test_a_pretrained_checkpoint(tmp_path: Path) -> None:
    theirs = bert(BertForPreTraining)
    folder = checkpoint(tmp_path / "uncased_L-3_H-32_A-4", arrays(theirs) | SLOTS)
    result = convert(folder, tmp_path / "out")
    ours, tokenizer = load_model(tmp_path / "out")
    assert compared(ours, theirs) == {"hidden", "masked_lm", "next_sentence"}
    assert tokenizer.lowercase
    assert set(result.moves.dropped) == set(SLOTS)
    assert set(result.moves.dropped.values()) == {"the optimiser's"}
    assert len(result.moves.done) == len(arrays(theirs))
    state = theirs.state_dict()
    saved = BertForPreTraining.from_pretrained(tmp_path / "out").state_dict()
    assert all(torch.equal(saved[name], state[name]) for name in state)


def test_a_fine_tuned_classifier(tmp_path: Path) -> None:
    theirs = bert(BertForSequenceClassification, num_labels=5)
    folder = checkpoint(tmp_path / "output", arrays(theirs), name="model.ckpt-70")
    convert(folder / "model.ckpt-70", tmp_path / "out")
    ours, _ = load_model(tmp_path / "out")
    assert len(ours.config.labels) == 5
    compared(ours, theirs)


def test_a_bare_encoder(tmp_path: Path) -> None:
    theirs = bert(BertModel)
    values = {f"bert/{name}": value for name, value in arrays(theirs).items()}
    convert(checkpoint(tmp_path / "in", values), tmp_path / "out")
    assert "hidden" in compared(load_model(tmp_path / "out")[0], theirs)


@pytest.mark.parametrize(
    ("folder", "lowercase"),
    [
        ("uncased_L-2_H-128_A-2", True),
        ("cased_L-12_H-768_A-12", False),
        ("multi_cased_L-12_H-768_A-12", False),
        ("multilingual_L-12_H-768_A-12", True),
        ("chinese_L-12_H-768_A-12", True),
        ("output", True),  # by the vocabulary, which has no capitals
    ],
)
def test_the_case_is_that_of_the_folders_name(tmp_path: Path, folder: str, lowercase: bool) -> None:
    source = checkpoint(tmp_path / folder, arrays(bert(BertForPreTraining)))
    convert(source, tmp_path / "out")
    assert load_model(tmp_path / "out")[1].lowercase is lowercase


@pytest.mark.parametrize("above", [("vocab.txt",), ("vocab.txt", "bert_config.json")])
def test_what_lies_one_folder_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], above: tuple[str, ...]
) -> None:
    theirs, home = bert(BertForPreTraining), tmp_path / "cased_L-3_H-32_A-4"
    source = checkpoint(home / "checkpoint-70", arrays(theirs))
    for name in above:
        (source / name).rename(home / name)
    convert(source, tmp_path / "out")
    assert "has no vocabulary: taken from the folder above it" in capsys.readouterr().err
    ours, tokenizer = load_model(tmp_path / "out")
    assert compared(ours, theirs) == {"hidden", "masked_lm", "next_sentence"}
    assert not tokenizer.lowercase  # by the name of the folder in which the vocabulary lies
    if above == ("vocab.txt",):
        return
    (home / "bert_config.json").unlink()
    with pytest.raises(ModelFolderError, match=r"no bert_config\.json beside it or one folder up"):
        convert(source, tmp_path / "none")


def google_albert(state: dict[str, Any]) -> Arrays:
    """An ALBERT's weights by the names in google-research/albert, one by one."""
    layer, inner = (
        "albert.encoder.albert_layer_groups.0.albert_layers.0",
        "bert/encoder/transformer/group_0/inner_group_0",
    )
    dense = {
        "albert.encoder.embedding_hidden_mapping_in": "bert/encoder/embedding_hidden_mapping_in",
        f"{layer}.attention.query": f"{inner}/attention_1/self/query",
        f"{layer}.attention.key": f"{inner}/attention_1/self/key",
        f"{layer}.attention.value": f"{inner}/attention_1/self/value",
        f"{layer}.attention.dense": f"{inner}/attention_1/output/dense",
        f"{layer}.ffn": f"{inner}/ffn_1/intermediate/dense",
        f"{layer}.ffn_output": f"{inner}/ffn_1/intermediate/output/dense",
        "albert.pooler": "bert/pooler/dense",
        "predictions.dense": "cls/predictions/transform/dense",
    }
    norms = {
        "albert.embeddings.LayerNorm": "bert/embeddings/LayerNorm",
        f"{layer}.attention.LayerNorm": f"{inner}/LayerNorm",
        f"{layer}.full_layer_layer_norm": f"{inner}/LayerNorm_1",
        "predictions.LayerNorm": "cls/predictions/transform/LayerNorm",
    }
    found: Arrays = {
        "cls/predictions/output_bias": state["predictions.bias"].numpy(),
        "cls/seq_relationship/output_weights": state["sop_classifier.classifier.weight"].numpy(),
        "cls/seq_relationship/output_bias": state["sop_classifier.classifier.bias"].numpy(),
    }
    for table in ("word", "position", "token_type"):
        name = f"embeddings.{table}_embeddings"
        found[f"bert/{name.replace('.', '/')}"] = state[f"albert.{name}.weight"].numpy()
    for theirs, scope in dense.items():
        found[f"{scope}/kernel"] = state[f"{theirs}.weight"].numpy().T
        found[f"{scope}/bias"] = state[f"{theirs}.bias"].numpy()
    for theirs, scope in norms.items():
        found[f"{scope}/gamma"] = state[f"{theirs}.weight"].numpy()
        found[f"{scope}/beta"] = state[f"{theirs}.bias"].numpy()
    return found


@pytest.mark.parametrize("prefix", ["", "module/"])
def test_an_albert(tmp_path: Path, prefix: str) -> None:
    torch.manual_seed(1)
    theirs = varied(AlbertForPreTraining(AlbertConfig(**SIZES, embedding_size=16)))
    values = google_albert(theirs.state_dict())
    folder = checkpoint(tmp_path / "in", {prefix + name: value for name, value in values.items()})
    config = google_config(embedding_size=16, num_hidden_groups=1, inner_group_num=1, gap_size=0)
    (folder / "albert_config.json").write_text(json.dumps(config))
    convert(folder, tmp_path / "out")
    assert compared(load_model(tmp_path / "out")[0], theirs) == {
        "hidden",
        "masked_lm",
        "next_sentence",
    }


def test_an_albert_of_another_structure_is_refused(tmp_path: Path) -> None:
    theirs = AlbertForPreTraining(AlbertConfig(**SIZES, embedding_size=16))
    folder = checkpoint(tmp_path / "in", google_albert(theirs.state_dict()))
    with pytest.raises(ModelFolderError, match=r"no albert_config\.json"):
        convert(folder, tmp_path / "out")
    config = google_config(embedding_size=16, net_structure_type=3)
    (folder / "albert_config.json").write_text(json.dumps(config))
    with pytest.raises(ModelFolderError, match="net_structure_type is 3"):
        convert(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        (BertForPreTraining, {}),
        (BertForPreTraining, {"hidden_act": "gelu_new"}),
        (BertForSequenceClassification, {"num_labels": 5}),
        (BertForSequenceClassification, {"num_labels": 1, "problem_type": "regression"}),
        (BertForQuestionAnswering, {}),
        (BertModel, {}),
    ],
)
def test_what_is_written_has_googles_names_and_comes_back(
    tmp_path: Path, kind: type[Any], changes: dict[str, Any]
) -> None:
    theirs = bert(kind, **changes)
    write_vocabulary(tmp_path / "hub")
    theirs.save_pretrained(tmp_path / "hub")
    result = convert(tmp_path / "hub", tmp_path / "google", to="tensorflow")
    bundle = TensorBundle(tmp_path / "google" / "bert_model.ckpt")
    expected = arrays(theirs)
    if kind is BertModel:
        expected = {f"bert/{name}": value for name, value in expected.items()}
    assert bundle.entries.keys() == expected.keys()
    for name, value in expected.items():
        assert np.array_equal(bundle.read(name).numpy(), value)
    assert result.moves.dropped == {}
    config = json.loads((tmp_path / "google" / "bert_config.json").read_text())
    assert config["hidden_act"] == "gelu"
    assert config.items() >= google_config().items()
    convert(tmp_path / "google", tmp_path / "again")
    convert(tmp_path / "again", tmp_path / "google2", to="tensorflow")
    for name in ("bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001", "vocab.txt"):
        one, other = (tmp_path / place / name for place in ("google", "google2"))
        assert one.read_bytes() == other.read_bytes()
    mine, again = (load_model(tmp_path / place)[0] for place in ("hub", "again"))
    assert mine.config == again.config
    state = again.state_dict()
    assert all(torch.equal(state[name], item) for name, item in mine.state_dict().items())


def test_a_head_that_google_has_not_is_dropped_and_told(tmp_path: Path) -> None:
    write_vocabulary(tmp_path / "hub")
    bert(BertForTokenClassification, num_labels=5).save_pretrained(tmp_path / "hub")
    result = convert(tmp_path / "hub", tmp_path / "google", to="tensorflow")
    assert result.moves.dropped == dict.fromkeys(
        ("classifier.bias", "classifier.weight"), "Google's code has no such head"
    )
    convert(tmp_path / "google", tmp_path / "again")
    assert load_model(tmp_path / "again")[0].config.predicts is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"layer_norm_eps": 1e-5}, "layer_norm_eps is 1e-05"), ({"is_decoder": True}, "is_decoder")],
)
def test_what_google_computes_otherwise_is_not_written(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    write_vocabulary(tmp_path / "hub")
    bert(BertModel, **changes).save_pretrained(tmp_path / "hub")
    with pytest.raises(ModelFolderError, match=message):
        convert(tmp_path / "hub", tmp_path / "google", to="tensorflow")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hub"]


def test_checkpoints_that_cannot_be_converted(tmp_path: Path) -> None:
    values = arrays(bert(BertForPreTraining))
    folder = checkpoint(tmp_path / "in", values)
    bundles.write(folder / "other.ckpt", values)
    with pytest.raises(ModelFolderError, match=r"holds 2 checkpoints; name one: .*other\.ckpt"):
        convert(folder, tmp_path / "out")
    kernel = "bert/encoder/layer_1/output/dense/kernel"
    bundles.write(folder / "lacking.ckpt", {n: v for n, v in values.items() if n != kernel})
    with pytest.raises(ModelFolderError, match=r"lacking\.ckpt: lacks the tensor bert\.enc"):
        convert(folder / "lacking.ckpt", tmp_path / "out")
    bundles.write(folder / "turned.ckpt", values | {kernel: values[kernel].T})
    with pytest.raises(ModelFolderError, match="has the shape"):
        convert(folder / "turned.ckpt", tmp_path / "out")
    bundles.write(folder / "twice.ckpt", values | {f"module/{kernel}": values[kernel]})
    with pytest.raises(ModelFolderError, match=r"twice.*second time as module/bert"):
        convert(folder / "twice.ckpt", tmp_path / "out")
    bundles.write(folder / "foreign.ckpt", {"dense/kernel": np.zeros((2, 2), np.float32)})
    with pytest.raises(ModelFolderError, match="no variable of Google's BERT"):
        convert(folder / "foreign.ckpt", tmp_path / "out")
    (tmp_path / "elsewhere").write_bytes(b"secret")
    data = folder / "other.ckpt.data-00000-of-00001"
    data.unlink()
    data.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelFolderError, match="leads out of the folder"):
        convert(folder / "other.ckpt", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "in"]


def test_googles_code_adds_the_same_to_a_variance_whatever_its_config_says() -> None:
    stated = {"hidden_act": "gelu", "layer_norm_eps": 0.1}
    assert hub_config(stated, "bert", ())["layer_norm_eps"] == 1e-12
