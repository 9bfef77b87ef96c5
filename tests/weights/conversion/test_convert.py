"""The verb: its report, the comparison with a reference, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForPreTraining, BertModel

import bertsmith
from bertsmith.cli.main import main
from bertsmith.weights.folder import load_model
from bertsmith.weights.sentence_folder import read_sentence_folder
from bounds import close_to_transformers
from verbs import convert
from weights.conversion import bundles
from weights.conversion.reference import SIZES, arrays, google_config, varied, write_vocabulary


@pytest.fixture
def theirs() -> BertForPreTraining:
    torch.manual_seed(1)
    return varied(BertForPreTraining(BertConfig(**SIZES)))


@pytest.fixture
def google(tmp_path: Path, theirs: BertForPreTraining) -> Path:
    """A checkpoint of Google's, and what a training left in it."""
    folder = tmp_path / "uncased_L-3_H-32_A-4"
    write_vocabulary(folder)
    (folder / "bert_config.json").write_text(json.dumps(google_config()))
    slots = {f"bert/layer_{n}/bias/adam_m": torch.zeros(2).numpy() for n in range(9)}
    bundles.write(folder / "bert_model.ckpt", arrays(theirs) | slots)
    return folder


@pytest.fixture
def folder(tmp_path: Path, theirs: BertForPreTraining) -> Path:
    """The same model as `transformers` saves it."""
    write_vocabulary(tmp_path / "hub")
    theirs.save_pretrained(tmp_path / "hub")
    return tmp_path / "hub"


def test_the_report(
    google: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["convert", str(google), str(out), "--reference", str(folder)]) == 0
    told = capsys.readouterr().err.splitlines()
    assert told[0].endswith(
        "is a TensorFlow checkpoint: 62 tensors carried over (42 renamed, 20 transposed), 9 dropped"
    )
    assert told[1].startswith("dropped, the optimiser's: bert/layer_0/bias/adam_m, bert/layer_1")
    assert told[1].endswith("bert/layer_5/bias/adam_m and 3 more")
    assert told[2:5] == [
        f"largest difference from the reference, {what}: 0"
        for what in ("hidden states", "masked tokens", "next sentence")
    ]
    report = json.loads((out / "conversion.json").read_text())
    assert report["source"] == google.name
    assert len(report["tensors"]) == 62
    assert len(report["dropped"]) == 9
    assert report["largest_differences"]["hidden states"] == 0
    kernel = "bert/encoder/layer_2/output/dense/kernel"
    assert {
        "source": kernel,
        "target": "bert.encoder.layer.2.output.dense.weight",
        "change": "transposed",
    } in report["tensors"]
    card = (out / "README.md").read_text()
    assert card.startswith("---\n")
    assert "from a TensorFlow checkpoint" in card
    assert load_model(out)[0].config == load_model(folder)[0].config


def test_a_reference_that_differs(google: Path, folder: Path, tmp_path: Path) -> None:
    other = BertForPreTraining.from_pretrained(folder)
    torch.nn.init.constant_(other.cls.seq_relationship.bias, 3.0)
    write_vocabulary(tmp_path / "other")
    other.save_pretrained(tmp_path / "other")
    found = convert(google, tmp_path / "out", reference=tmp_path / "other").differences
    assert found["hidden states"] == 0
    assert found["next sentence"] > 1


def test_what_is_written_for_tensorflow_is_compared(folder: Path, tmp_path: Path) -> None:
    result = convert(folder, tmp_path / "google", to="tensorflow", reference=folder)
    assert set(result.differences.values()) == {0.0}
    assert len(result.moves.done) == 62
    assert sorted(path.name for path in (tmp_path / "google").iterdir()) == [
        "bert_config.json",
        "bert_model.ckpt.data-00000-of-00001",
        "bert_model.ckpt.index",
        "conversion.json",
        "tokenizer_config.json",
        "vocab.txt",
    ]


def test_weights_in_several_files_are_written_for_tensorflow(
    theirs: BertForPreTraining, folder: Path, tmp_path: Path
) -> None:
    write_vocabulary(tmp_path / "several")
    theirs.save_pretrained(tmp_path / "several", max_shard_size="20KB")
    convert(tmp_path / "several", tmp_path / "google", to="tensorflow")
    convert(folder, tmp_path / "other", to="tensorflow")
    name = "bert_model.ckpt.data-00000-of-00001"
    one, other = (tmp_path / place / name for place in ("google", "other"))
    assert one.read_bytes() == other.read_bytes()


def test_a_pickled_folder_of_sentence_transformers(tmp_path: Path) -> None:
    source = tmp_path / "in"
    pickled_sentence_folder(source)
    convert(source, tmp_path / "out")
    settings = read_sentence_folder(tmp_path / "out")
    assert settings is not None
    assert (settings.pool, settings.longest) == (("max",), 9)


def pickled_sentence_folder(source: Path) -> BertModel:
    """Write a pickled encoder with the module Pooling, and return the encoder."""
    write_vocabulary(source)
    theirs = varied(BertModel(BertConfig(**SIZES))).eval()
    theirs.config.to_json_file(source / "config.json")
    torch.save(theirs.state_dict(), source / "pytorch_model.bin")
    (source / "sentence_bert_config.json").write_text('{"max_seq_length": 9}')
    (source / "1_P").mkdir()
    pooling = {"word_embedding_dimension": 32, "pooling_mode_max_tokens": True}
    (source / "1_P" / "config.json").write_text(json.dumps(pooling))
    write_modules(source, Transformer="", Pooling="1_P")
    return theirs


def write_modules(folder: Path, **places: str) -> None:
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (kind, path) in enumerate(places.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))


def add_pickled_dense(folder: Path) -> torch.nn.Linear:
    """Add the module Dense as sentence-transformers saved it before it wrote safetensors."""
    (folder / "2_Dense").mkdir()
    linear = torch.nn.Linear(32, 7)
    state = {f"linear.{name}": tensor for name, tensor in linear.state_dict().items()}
    torch.save(state, folder / "2_Dense" / "pytorch_model.bin")
    sizes = {"in_features": 32, "out_features": 7, "bias": True}
    activation = {"activation_function": "torch.nn.modules.activation.Tanh"}
    (folder / "2_Dense" / "config.json").write_text(json.dumps(sizes | activation))
    write_modules(folder, Transformer="", Pooling="1_P", Dense="2_Dense")
    return linear


@pytest.mark.parametrize("encoder", ["pickled", "safetensors"])
def test_a_pickled_layer_after_pooling(
    tmp_path: Path, encoder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    theirs = pickled_sentence_folder(source)
    if encoder == "safetensors":
        (source / "pytorch_model.bin").unlink()
        theirs.save_pretrained(source)
    linear = add_pickled_dense(source)
    if encoder == "safetensors":
        # what names the verb
        assert main(["embed", str(source), "word1", "--out", str(tmp_path / "v.npy")]) == 2
        assert f"bertsmith convert {source} OUT" in capsys.readouterr().err
    convert(source, out)
    tensors = json.loads((out / "conversion.json").read_text(encoding="utf-8"))["tensors"]
    report = {each["source"]: (each["target"], each["change"]) for each in tensors}
    for name in ("2_Dense/linear.weight", "2_Dense/linear.bias"):
        assert report[name] == (name, "same")
    ids = load_model(out)[1].encode(["the smith heats the iron"])[0]
    tokenizer = load_model(out)[1]
    read = torch.tensor([[tokenizer.cls_id, *ids, tokenizer.sep_id]])
    with torch.no_grad():
        expected = linear(theirs(read).last_hidden_state[0].amax(0)).tanh()
    (vector,) = bertsmith.load(out, precision="fp32").embed(["the smith heats the iron"])
    close_to_transformers(torch.as_tensor(vector), expected)


def test_a_pickled_layer_that_would_run_code_runs_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, trace = tmp_path / "in", tmp_path / "trace"
    pickled_sentence_folder(source)
    add_pickled_dense(source)
    torch.save({"linear.weight": Hostile(trace)}, source / "2_Dense" / "pytorch_model.bin")
    assert main(["convert", str(source), str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert "2_Dense/pytorch_model.bin: asks for" in error
    assert "nothing was run" in error
    assert not trace.exists()
    assert not (tmp_path / "out").exists()


class Hostile:
    """An object that writes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize(
    ("source", "to", "message"),
    [
        ("hub", "bertsmith", "hub: is already a model folder; use it as it is"),
        ("nowhere", "bertsmith", "nowhere: no such"),
        ("nowhere", "tensorflow", "nowhere: no such"),
        ("empty", "bertsmith", "empty: holds no weights of a known kind"),
        ("empty", "tensorflow", "empty: is not a model folder"),
    ],
)
def test_what_it_refuses(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    source: str,
    to: str,
    message: str,
) -> None:
    (tmp_path / "empty").mkdir()
    arguments = [str(tmp_path / source), str(tmp_path / "out"), "--to", to]
    assert main(["convert", *arguments]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", folder.name]


def test_nothing_is_written_over(google: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert", str(google), str(google)]) == 2
    assert "exists already; choose another folder" in capsys.readouterr().err
