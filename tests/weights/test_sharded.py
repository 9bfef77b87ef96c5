"""Weights in several files: those transformers wrote are read, indices that lie are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM

from bertsmith.core.errors import ModelFolderError
from bertsmith.network.model import Model
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model
from bertsmith.weights.tensors import INDEX_FILE, weights_hash

WORDS = "bert.embeddings.word_embeddings.weight"
Index = dict[str, Any]


@pytest.fixture
def sharded(saved: Path) -> Path:
    """The folder of the usual model, its weights in three files."""
    tensors = load_file(saved / "model.safetensors")
    (saved / "model.safetensors").unlink()
    index: Index = {"metadata": {"total_size": 0}, "weight_map": {}}
    for number in range(3):
        name = f"model-{number + 1:05}-of-00003.safetensors"
        part = {key: tensors[key] for key in sorted(tensors)[number::3]}
        save_file(part, saved / name)
        index["weight_map"] |= dict.fromkeys(part, name)
    (saved / INDEX_FILE).write_text(json.dumps(index))
    return saved


def rewrite(folder: Path, change: Callable[[Index], object]) -> None:
    index = json.loads((folder / INDEX_FILE).read_text())
    change(index["weight_map"])
    (folder / INDEX_FILE).write_text(json.dumps(index))


def test_several_files_hold_one_model(sharded: Path, model: Model) -> None:
    back, _ = load_model(sharded)
    assert back.config == model.config
    for name, value in model.state_dict().items():
        assert torch.equal(back.state_dict()[name], value)


def test_what_transformers_sharded_is_read(tmp_path: Path, tokenizer: Tokenizer) -> None:
    config = BertConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=37, max_position_embeddings=23,
    )  # fmt: skip
    theirs = BertForMaskedLM(config)
    theirs.save_pretrained(tmp_path / "model", max_shard_size="20KB")
    tokenizer.save(tmp_path / "model")
    assert len(list((tmp_path / "model").glob("model-*-of-*.safetensors"))) > 3
    ours, _ = load_model(tmp_path / "model")
    words = theirs.bert.embeddings.word_embeddings.weight
    assert ours.config.masked_lm
    assert torch.equal(ours.encoder.embeddings.tokens.weight, words)


def test_the_hash_is_of_all_files(sharded: Path) -> None:
    before = weights_hash(sharded)
    path = sharded / "model-00002-of-00003.safetensors"
    tensors = load_file(path)
    name = min(tensors)
    save_file(tensors | {name: tensors[name] + 1}, path)
    assert weights_hash(sharded) != before


@pytest.mark.parametrize(
    ("home", "told"),
    [
        ("../model-00001-of-00003.safetensors", "which no shard can be"),
        ("/etc/passwd", "which no shard can be"),
        ("model/../../x.safetensors", "which no shard can be"),
        ("..\\x.safetensors", "which no shard can be"),
        ("x\0.safetensors", "which no shard can be"),
        (".safetensors", "which no shard can be"),
        ("pytorch_model.bin", "which no shard can be"),
        (7, "which no shard can be"),
        (None, "which no shard can be"),
        ("model-00004-of-00003.safetensors", "00004-of-00003.safetensors: is missing"),
        ("model-00003-of-00003.safetensors", f"{WORDS}' is in model-0000.*, not in model-00003"),
    ],
)
def test_an_index_that_names_another_file_is_refused(
    sharded: Path, home: object, told: str
) -> None:
    def change(index: Index) -> None:
        # so that it does not lie in the third
        assert index[WORDS] != "model-00003-of-00003.safetensors"
        index[WORDS] = home

    rewrite(sharded, change)
    with pytest.raises(ModelFolderError, match=told):
        load_model(sharded)


def test_a_tensor_that_is_listed_and_not_there_or_the_other_way_round(sharded: Path) -> None:
    index = (sharded / INDEX_FILE).read_text()
    rewrite(sharded, lambda index: index.update(more="model-00001-of-00003.safetensors"))
    with pytest.raises(
        ModelFolderError, match=r"00001-of-00003\.safetensors lacks the tensor 'more'"
    ):
        load_model(sharded)
    (sharded / INDEX_FILE).write_text(index)
    rewrite(sharded, lambda index: index.pop(WORDS))
    with pytest.raises(ModelFolderError, match=f"holds '{WORDS}', which is not listed"):
        load_model(sharded)


def test_a_tensor_in_two_files_is_refused(sharded: Path) -> None:
    one, other = (sharded / f"model-0000{number}-of-00003.safetensors" for number in (1, 2))
    tensors = load_file(one)
    save_file(load_file(other) | {min(tensors): tensors[min(tensors)]}, other)
    with pytest.raises(ModelFolderError, match=r"is in model-00001-of.* and model-00002-of"):
        load_model(sharded)


def test_a_shard_that_is_a_link_out_of_the_folder_or_damaged_is_refused(
    sharded: Path, tmp_path: Path
) -> None:
    path = sharded / "model-00002-of-00003.safetensors"
    path.rename(tmp_path / "outside")
    path.symlink_to("../outside")
    with pytest.raises(ModelFolderError, match="is a link that leads out"):
        load_model(sharded)
    path.unlink()
    path.write_bytes((tmp_path / "outside").read_bytes()[:-1])
    with pytest.raises(ModelFolderError, match=r"00002-of-00003\.safetensors: is damaged"):
        load_model(sharded)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {}}', "[" * 10**5]
)
def test_an_index_that_is_none_is_refused(sharded: Path, text: str) -> None:
    (sharded / INDEX_FILE).write_text(text)
    with pytest.raises(ModelFolderError, match=r"model\.safetensors\.index\.json"):
        load_model(sharded)


def test_an_index_of_too_many_files_is_refused(sharded: Path) -> None:
    names = {f"x{number}": f"{number}.safetensors" for number in range(1001)}
    (sharded / INDEX_FILE).write_text(json.dumps({"weight_map": names}))
    with pytest.raises(ModelFolderError, match="names 1,001 files"):
        load_model(sharded)


def test_one_file_beside_an_index_is_what_counts(sharded: Path, model: Model) -> None:
    """As in transformers."""
    tensors: dict[str, torch.Tensor] = {}
    for path in sharded.glob("model-*.safetensors"):
        tensors |= load_file(path)
    save_file(tensors, sharded / "model.safetensors")
    (sharded / INDEX_FILE).write_text("{}")
    assert load_model(sharded)[0].config == model.config
