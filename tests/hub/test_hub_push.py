from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from bertsmith.core.errors import ConfigError, HubError, ModelFolderError, UserError
from bertsmith.hub.models import model_folder
from bertsmith.network.pooling import Dense, UnitLength
from bertsmith.tasks.opening import open_embedder, vectors
from bertsmith.weights.folder import (
    QUANTIZED_FILE,
    load_model,
    quantized_precision,
    write_quantized,
)
from bertsmith.weights.sentence_folder import SentenceSettings, save_sentence_folder
from hub.fake_hub import FakeHub, Files, Refusal
from verbs import push

WEIGHTS = "model.safetensors"


@pytest.fixture
def writer(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    """A hub where one is signed in with the right to write."""
    monkeypatch.setenv("HF_TOKEN", "writer")
    return hub


def on_the_hub(hub: FakeHub, branch: str = "main") -> Files:
    repository = hub.repositories["owner/name"]
    return repository.commits[repository.refs[branch]]


def head_of(card: bytes) -> dict[str, object]:
    head: dict[str, object] = yaml.safe_load(card.decode().split("---\n")[1])
    return head


def test_what_is_sent_can_be_fetched_and_is_equal(
    writer: FakeHub, model: Path, model_files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    address = push(model, "owner/name", license="mit")
    files = on_the_hub(writer)
    assert files == {".gitattributes": b"*.safetensors\n"} | {
        path.name: path.read_bytes() for path in model.iterdir()
    }
    assert files.keys() - model_files.keys() == {".gitattributes", "README.md"}
    commit = writer.repositories["owner/name"].at("main")
    assert address == f"{writer.address}/owner/name/commit/{commit}"
    assert f"sent: {address}" in capsys.readouterr().err
    assert load_model(model_folder("hub:owner/name"))[0].config == load_model(model)[0].config


def test_large_files_go_as_such_and_are_verified(writer: FakeHub, model: Path) -> None:
    push(model, "owner/name")
    assert list(writer.uploads.values()) == [(model / WEIGHTS).read_bytes()]
    paths = [path for _, path, _ in writer.asked]
    assert "/verify" in paths
    # the other host gets no token
    assert {token for _, path, token in writer.asked if path.startswith("/upload/")} == {None}


def test_only_the_models_files_are_sent(writer: FakeHub, model: Path) -> None:
    for name in ("optimizer.pt", "log.jsonl", ".env", "token", "train.csv", "modeling.py"):
        (model / name).write_text("secret")
    (model / "checkpoints").mkdir()
    (model / "checkpoints" / WEIGHTS).write_text("secret")
    push(model, "owner/name")
    assert b"secret" not in b"".join(on_the_hub(writer).values())


def test_the_precision_of_a_quantized_folder_is_sent(writer: FakeHub, model: Path) -> None:
    write_quantized(model, {})
    push(model, "owner/name")
    assert quantized_precision(model_folder("hub:owner/name")) == "int8"


@pytest.mark.parametrize("name", ["config_sentence_transformers.json", QUANTIZED_FILE, "README.md"])
def test_links_that_lead_out_of_the_folder_are_not_sent(
    writer: FakeHub, model: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "key").write_text("secret")
    (model / name).unlink(missing_ok=True)
    (model / name).symlink_to(tmp_path / "key")
    with pytest.raises(ModelFolderError, match=f"{name}: is a link that leads out of the folder"):
        push(model, "owner/name")
    assert writer.repositories == {}


def test_a_dry_run_tells_files_and_card_and_does_nothing(
    hub: FakeHub, model: Path, model_files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    (model / "log.jsonl").write_text("")
    assert push(model, "owner/name", license="mit", dry_run=True) is None
    assert hub.asked == []
    told = capsys.readouterr()
    assert [line.split()[0] for line in told.err.splitlines()[: len(model_files) + 1]] == [
        "README.md", "config.json", "tokenizer_config.json", "special_tokens_map.json",
        "vocab.txt", "tokenizer.json", WEIGHTS,
    ]  # fmt: skip
    assert "not uploaded, since not part of the model: log.jsonl" in told.err
    assert "the card has no language: add it with --language en" in told.err
    assert head_of(told.out.encode()) == {
        "license": "mit",
        "library_name": "transformers",
        "pipeline_tag": "fill-mask",
        "tags": ["bert", "bertsmith"],
    }
    assert {path.name for path in model.iterdir()} == {*model_files, "log.jsonl"}


def test_a_folder_of_sentence_transformers_arrives_whole(
    writer: FakeHub, model: Path, tmp_path: Path
) -> None:
    network, tokenizer = load_model(model)
    after = (Dense(torch.ones(5, 24), torch.zeros(5), "Tanh"), UnitLength())
    settings = SentenceSettings(network=model, pool=("cls",), after=after, longest=16)
    folder = tmp_path / "sentences"
    save_sentence_folder(folder, network, tokenizer, settings)
    push(folder, "owner/name", license="mit")
    head = head_of(on_the_hub(writer)["README.md"])
    assert head["library_name"] == "sentence-transformers"
    assert head["pipeline_tag"] == "sentence-similarity"
    texts = ["ba be", "do"]
    own, fetched = (vectors(open_embedder(name), texts) for name in (folder, "hub:owner/name"))
    assert own.shape == (2, 5)
    assert np.array_equal(own, fetched)


def test_what_the_user_wrote_stays(writer: FakeHub, model: Path) -> None:
    written = (
        "---\n# mine\nlicense: 'mit'   # see LICENSE\ntags: [chemie]\nlanguage:\n"
        "pipeline_tag: feature-extraction\nwidget:\n- text: ä\n  language: de\n---\n"
        "My *own* words\n\n---\nmore\n"
    )
    (model / "README.md").write_text(written, encoding="utf-8")
    push(model, "owner/name", language=("de", "en"))
    card = on_the_hub(writer)["README.md"].decode()
    for part in written.replace("language:\n", "").split("---\n")[1:]:
        assert part in card
    assert card == (model / "README.md").read_text(encoding="utf-8")
    head = head_of(card.encode())
    assert head == {
        "license": "mit",
        "tags": ["chemie"],
        "pipeline_tag": "feature-extraction",
        "widget": [{"text": "ä", "language": "de"}],
        "language": ["de", "en"],
        "library_name": "transformers",
    }
    push(model, "owner/name")
    assert on_the_hub(writer)["README.md"].decode() == card


@pytest.mark.parametrize(
    ("card", "message"),
    [
        ("---\nlicense: [mit\ntags: x\n---\n", r"README\.md:3: bad YAML: .*correct the lines"),
        ("---\njust words\n---\n", "its metadata is not a mapping"),
        ("---\nlanguage: no\n---\n", "language is False, not a string or list of strings; put"),
        ("---\ntags: one\n---\n", "tags is 'one', not a list of strings"),
        ("---\nlicense: mit\n---\n", "license is 'mit' in its card, not 'apache-2.0'; change it"),
        ("---\na: &a [1]\nb: !!python/object/apply:os.abort []\n---\n", "bad YAML"),
    ],
)
def test_a_card_that_cannot_be_completed_is_told(
    hub: FakeHub, model: Path, card: str, message: str
) -> None:
    (model / "README.md").write_text(card)
    with pytest.raises((ModelFolderError, ConfigError), match=message):
        push(model, "owner/name", license="apache-2.0", dry_run=True)
    assert (model / "README.md").read_text() == card
    assert hub.asked == []


def test_a_folder_that_does_not_load_is_not_sent(writer: FakeHub, model: Path) -> None:
    (model / WEIGHTS).write_bytes((model / WEIGHTS).read_bytes()[:-1])
    with pytest.raises(ModelFolderError, match="is damaged"):
        push(model, "owner/name")
    assert writer.asked == []


def test_a_branch_is_made_and_main_stays(writer: FakeHub, model: Path) -> None:
    push(model, "owner/name", message="first")
    before = on_the_hub(writer)
    (model / "README.md").write_text("---\nlicense: mit\n---\nother\n")
    push(model, "owner/name", revision="trial", message="second")
    assert on_the_hub(writer) == before
    assert on_the_hub(writer, "trial")["README.md"].endswith(b"other\n")
    assert writer.repositories["owner/name"].messages[1:] == ["first", "second"]


def test_weights_of_an_earlier_model_are_deleted(writer: FakeHub, model: Path) -> None:
    old = {
        "model-00001-of-00002.safetensors": b"x",
        "model.safetensors.index.json": json.dumps({}).encode(),
        "merges.txt": b"x",
        "notes.md": b"kept",
        "1_Pooling/config.json": b"{}",
    }
    writer.add("owner/name", old)
    push(model, "owner/name")
    assert set(on_the_hub(writer)) & set(old) == {"notes.md"}


OF_OTHER_PROGRAMS = (
    "pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "pytorch_model.bin.index.json",
    "model.fp16.safetensors", "tf_model.h5", "flax_model.msgpack", "rust_model.ot", "model.onnx",
    "onnx/model_O2.onnx", "onnx/model.onnx_data", "openvino/openvino_model.xml",
    "openvino_model.bin", "2_Dense/pytorch_model.bin", "adapter_config.json",
    "adapter_model.safetensors",
)  # fmt: skip


def test_weights_of_an_earlier_model_for_other_programs_are_deleted_and_that_is_said(
    writer: FakeHub, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = ("notes.md", "train.csv", "onnx/README.md", "eval.bin", ".gitattributes")
    for others in ({}, {WEIGHTS: b"of another model"}):
        writer.add("owner/name", dict.fromkeys((*OF_OTHER_PROGRAMS, *kept), b"old") | others)
        push(model, "owner/name")
        assert set(on_the_hub(writer)) == {*kept, *(path.name for path in model.iterdir())}
        lines = " ".join(capsys.readouterr().err.split())
        assert "deleted there, as of the model that was there before: 2_Dense/pytorch_mo" in lines


def test_weights_for_other_programs_stay_beside_the_same_model(
    writer: FakeHub, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    push(model, "owner/name")
    writer.add("owner/name", on_the_hub(writer) | {"onnx/model.onnx": b"x", "merges.txt": b"x"})
    push(model, "owner/name", license="mit")
    assert "onnx/model.onnx" in on_the_hub(writer)
    assert "before: merges.txt" in " ".join(capsys.readouterr().err.split())


def test_private_means_private(writer: FakeHub, model: Path) -> None:
    push(model, "owner/name", private=True)
    assert writer.repositories["owner/name"].private
    writer.add("owner/public", {})
    with pytest.raises(HubError, match="already exists and is public; make it private"):
        push(model, "owner/public", private=True)
    assert len(writer.repositories["owner/public"].commits) == 1


@pytest.mark.parametrize("token", [None, "reader", "nonsense"])
def test_without_the_right_to_write_nothing_is_sent(
    hub: FakeHub, model: Path, token: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if token is not None:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(HubError, match=r"token is not accepted|does not permit") as caught:
        push(model, "owner/name")
    assert "hf auth login" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert hub.repositories == {}
    assert hub.uploads == {}


def test_what_the_hub_finds_in_the_card_is_told(writer: FakeHub, model: Path) -> None:
    with pytest.raises(HubError, match='"license" must be one of') as caught:
        push(model, "owner/name", license="own")
    assert "\n" not in str(caught.value)
    assert writer.uploads == {}


@pytest.mark.parametrize("path", ["/api/repos", "/preupload/", "/objects/batch", "/commit/"])
def test_trouble_of_the_hub_is_told(writer: FakeHub, model: Path, path: str) -> None:
    # since 1.0 the client makes several attempts of its own
    writer.refusals.extend([Refusal(path, 500)] * 20)
    with pytest.raises(HubError, match=r"an internal error \(500\)"):
        push(model, "owner/name")


@pytest.mark.parametrize("name", ["name", "a/b/c", "../x", "a/b@main", "http://x/y", ""])
def test_names_that_are_no_place_are_refused(hub: FakeHub, model: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"is not a (repository|valid name)|^repository is empty; "):
        push(model, name)
    assert hub.asked == []


@pytest.mark.parametrize("revision", ["", "../x", "a b", "-x"])
def test_revisions_that_are_no_branch_are_refused(hub: FakeHub, model: Path, revision: str) -> None:
    with pytest.raises(ConfigError, match="name of a branch"):
        push(model, "owner/name", revision=revision)
    assert hub.asked == []
