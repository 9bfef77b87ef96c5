"""RoBERTa's checkpoints of fairseq, written as it documents them: same logits, same ids."""

from __future__ import annotations

import argparse
import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    GPT2Tokenizer,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForSequenceClassification,
)

from bertsmith.core.errors import ModelFolderError
from bertsmith.network.batch import pack
from bertsmith.network.model import forward_only
from bertsmith.weights.conversion import fairseq
from bertsmith.weights.conversion.pickled import Unpickled
from bertsmith.weights.conversion.unpickling import read_weights
from bertsmith.weights.folder import load_model
from bounds import close_to_transformers
from verbs import convert
from weights.conversion.reference import varied

Tensors = dict[str, Tensor]

MERGES = ("t h", "th e", "Ġ the", "i n", "Ġ in", "a n", "an d", "Ġ and", "e r", "o n")
HEADS, MAX_LENGTH = 4, 21
MODULES = {
    "attention.self.query": "self_attn.q_proj",
    "attention.self.key": "self_attn.k_proj",
    "attention.self.value": "self_attn.v_proj",
    "attention.output.dense": "self_attn.out_proj",
    "attention.output.LayerNorm": "self_attn_layer_norm",
    "intermediate.dense": "fc1",
    "output.dense": "fc2",
    "output.LayerNorm": "final_layer_norm",
}


def byte_pieces() -> list[str]:
    """GPT-2's letters for the 256 bytes: those that can be seen stand for themselves."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in seen]
    letters = {byte: chr(byte) for byte in seen}
    letters |= {byte: chr(256 + place) for place, byte in enumerate(hidden)}
    return [letters[byte] for byte in sorted(letters)]


def write_vocabulary(folder: Path) -> int:
    """GPT-2's two files and fairseq's dictionary; returns the rows of the table."""
    folder.mkdir()
    pieces = [*byte_pieces(), *(merge.replace(" ", "") for merge in MERGES), "<|endoftext|>"]
    (folder / "encoder.json").write_text(json.dumps({p: n for n, p in enumerate(pieces)}))
    (folder / "vocab.bpe").write_text("#version: 0.2\n" + "".join(f"{m}\n" for m in MERGES))
    # by how often they come, which is no order of GPT-2's
    order = sorted(range(len(pieces)), key=lambda n: n * 7919 % 1009)
    lines = [f"{number} {1000 - place}" for place, number in enumerate(order)]
    (folder / "dict.txt").write_text("\n".join([*lines, "madeupword0000 0"]) + "\n")
    return 4 + len(lines) + 1 + 1


def config(rows: int, **changes: Any) -> RobertaConfig:  # noqa: ANN401
    return RobertaConfig(
        vocab_size=rows,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=HEADS,
        intermediate_size=37,
        max_position_embeddings=MAX_LENGTH + 2,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        **changes,
    )


def made(kind: type[Any], rows: int, **changes: Any) -> Any:  # noqa: ANN401
    torch.manual_seed(2)
    model = varied(kind(config(rows, **changes)))
    # fairseq has no segments
    torch.nn.init.zeros_(model.roberta.embeddings.token_type_embeddings.weight)
    return model


def fairseq_names(state: Tensors, *, side: str, norm: str) -> Tensors:
    """The weights as newer versions of fairseq name them."""
    found: Tensors = {}
    for name, value in state.items():
        layer = re.fullmatch(r"roberta\.encoder\.layer\.(\d+)\.(.+)\.(weight|bias)", name)
        if layer:
            place = f"sentence_encoder.layers.{layer[1]}.{MODULES[layer[2]]}.{layer[3]}"
        elif name.startswith("roberta.embeddings.LayerNorm"):
            place = f"sentence_encoder.{norm}.{name.rpartition('.')[2]}"
        elif name.startswith("roberta.embeddings.word"):
            place = "sentence_encoder.embed_tokens.weight"
        elif name.startswith("roberta.embeddings.position_emb"):
            place = "sentence_encoder.embed_positions.weight"
        elif name.startswith("lm_head.decoder"):
            place = f"lm_head.{name.rpartition('.')[2]}"
        elif name.startswith("lm_head"):
            place = name
        else:
            continue
        found[f"{side}.{place}"] = value.clone()
    return found


def fused(state: Tensors) -> Tensors:
    """The weights as the first versions have them, which also left a mark among them."""
    found = {name: value for name, value in state.items() if not re.search("[qkv]_proj", name)}
    for name in state:
        if ".q_proj." in name:
            three = [state[name.replace("q_proj", f"{item}_proj")] for item in "qkv"]
            found[name.replace("q_proj.", "in_proj_")] = torch.cat(three)
    return found | {"decoder.sentence_encoder.version": torch.tensor([3.0])}


def arguments(**changes: object) -> argparse.Namespace:
    return argparse.Namespace(
        arch="roberta_base",
        encoder_attention_heads=HEADS,
        activation_fn="gelu",
        dropout=0.1,
        data=["some", "where"],
        **changes,
    )


def compare(folder: Path, theirs: Any) -> None:  # noqa: ANN401
    """Logits are those of transformers, where each sequence is run by itself."""
    ours, _ = load_model(folder)
    generator = torch.Generator().manual_seed(4)
    rows = ours.config.encoder.vocabulary
    ids = [torch.randint(4, rows, (length,), generator=generator) for length in (3, 11, MAX_LENGTH)]
    batch = pack([id_.numpy() for id_ in ids], [id_.numpy() * 0 for id_ in ids])
    with forward_only(ours, "fp32"):
        encoded = ours.encoder(batch)
        for place, id_ in enumerate(ids):
            own = slice(*batch.offsets[place : place + 2].tolist())
            logits = theirs(id_[None]).logits[0]
            if "classify" in ours.heads:
                mine = ours.classify(encoded, batch)[place]
            else:
                mine = ours.masked_lm(encoded.last[own])
            close_to_transformers(mine, logits)


def test_a_checkpoint_of_the_first_versions(tmp_path: Path) -> None:
    theirs = made(RobertaForMaskedLM, write_vocabulary(tmp_path / "in"))
    weights = fused(fairseq_names(theirs.state_dict(), side="decoder", norm="emb_layer_norm"))
    torch.save({"args": arguments(), "model": weights}, tmp_path / "in" / "model.pt")
    result = convert(tmp_path / "in", tmp_path / "out")
    compare(tmp_path / "out", theirs)
    assert sum(move.change == "split" for move in result.moves.done) == 3 * 3 * 2
    assert result.moves.dropped == {
        "decoder.sentence_encoder.version": "not a known part of a model",
        "decoder.lm_head.weight": "a copy of another",
    }
    again = RobertaForMaskedLM.from_pretrained(tmp_path / "out").state_dict()
    state = theirs.state_dict()
    assert all(torch.equal(again[name], state[name]) for name in state)


def test_a_checkpoint_of_newer_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = made(RobertaForMaskedLM, write_vocabulary(tmp_path / "in"))
    weights = fairseq_names(theirs.state_dict(), side="encoder", norm="layernorm_embedding")
    module = types.ModuleType("fairseq")
    settings = type("Settings", (), {"__module__": "fairseq", "__qualname__": "Settings"})
    monkeypatch.setattr(module, "Settings", settings, raising=False)
    monkeypatch.setitem(sys.modules, "fairseq", module)
    meter = settings()
    meter.val = 3.0
    saved = {
        "args": None,
        "cfg": {"model": arguments(), "task": {"sample_break_mode": "complete"}},
        "model": weights,
        "extra_state": {"meters": [meter]},
    }
    torch.save(saved, tmp_path / "in" / "checkpoint_best.pt")
    monkeypatch.undo()
    convert(tmp_path / "in" / "checkpoint_best.pt", tmp_path / "out")
    compare(tmp_path / "out", theirs)


def test_a_head_for_classes(tmp_path: Path) -> None:
    rows = write_vocabulary(tmp_path / "in")
    theirs = made(RobertaForSequenceClassification, rows, num_labels=5)
    state = theirs.state_dict()
    weights = fairseq_names(state, side="encoder", norm="emb_layer_norm")
    for name, value in state.items():
        if name.startswith("classifier."):
            weights[name.replace("classifier.", "classification_heads.mnli.")] = value
    torch.save({"args": arguments(pooler_dropout=0.3), "model": weights}, tmp_path / "in" / "a.pt")
    convert(tmp_path / "in", tmp_path / "out")
    compare(tmp_path / "out", theirs)
    ours, _ = load_model(tmp_path / "out")
    assert ours.config.classifier_dropout == 0.3


@pytest.mark.usefixtures("opened_here")
def test_another_activation_in_the_head_is_refused(tmp_path: Path) -> None:
    """The head was converted, and answered with tanh."""
    theirs = made(RobertaForSequenceClassification, write_vocabulary(tmp_path / "in"))
    state = theirs.state_dict()
    weights = fairseq_names(state, side="encoder", norm="emb_layer_norm")
    heads = {name: value for name, value in state.items() if name.startswith("classifier.")}
    for name, value in heads.items():
        weights[name.replace("classifier.", "classification_heads.mnli.")] = value
    settings = arguments(pooler_activation_fn="relu")
    torch.save({"args": settings, "model": weights}, tmp_path / "in" / "a.pt")
    with pytest.raises(ModelFolderError, match="pooler_activation_fn is 'relu', not 'tanh'"):
        convert(tmp_path / "in", tmp_path / "out")


def test_ids_are_those_of_fairseq(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    theirs = made(RobertaForMaskedLM, write_vocabulary(folder))
    weights = fairseq_names(theirs.state_dict(), side="decoder", norm="emb_layer_norm")
    torch.save({"args": arguments(), "model": weights}, folder / "model.pt")
    convert(folder, tmp_path / "out")
    (folder / "vocab.json").write_text((folder / "encoder.json").read_text())
    gpt2 = GPT2Tokenizer(str(folder / "vocab.json"), str(folder / "vocab.bpe"))
    lines = (folder / "dict.txt").read_text().splitlines()
    of_token = {line.split(" ")[0]: 4 + number for number, line in enumerate(lines)}
    texts = ["the other and in the end", " on\nthe Ünder-ground  ", "12 they're 日本", ""]
    _, tokenizer = load_model(tmp_path / "out")
    for text, mine in zip(texts, tokenizer.encode(texts), strict=True):
        assert mine.tolist() == [of_token[str(number)] for number in gpt2.encode(text)]
    ids = (0, 1, 2, 3, 4 + len(lines))
    assert ids == (
        tokenizer.cls_id, tokenizer.pad_id, tokenizer.sep_id, tokenizer.unknown_id,
        tokenizer.mask_id,
    )  # fmt: skip


@pytest.fixture
def opened_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are opened in this process, without the seconds that another takes to begin."""

    def unpickle(files: list[Path], out: Path) -> Unpickled:
        return Unpickled(**read_weights(files, out))

    monkeypatch.setattr(fairseq, "unpickle", unpickle)


@pytest.mark.usefixtures("opened_here")
@pytest.mark.parametrize(("named", "same"), [("gelu_accurate", "gelu_new"), ("relu", None)])
def test_of_several_heads_none_is_kept_and_the_activation_is_that_of_the_checkpoint(
    tmp_path: Path, named: str, same: str | None
) -> None:
    rows = write_vocabulary(tmp_path / "in")
    theirs = made(RobertaForMaskedLM, rows, hidden_act=same or "gelu")
    weights = fairseq_names(theirs.state_dict(), side="model.encoder", norm="emb_layer_norm")
    heads = [
        f"classification_heads.{name}.{part}.{leaf}"
        for name in ("mnli", "rte")
        for part in ("dense", "out_proj")
        for leaf in ("weight", "bias")
    ]
    weights |= dict.fromkeys(heads, torch.ones(32))
    settings = arguments(attention_dropout=0.25)
    settings.activation_fn = named
    torch.save({"args": settings, "model": weights}, tmp_path / "in" / "model.pt")
    if same is None:
        with pytest.raises(ModelFolderError, match="hidden_act is 'relu'"):
            convert(tmp_path / "in", tmp_path / "out")
        return
    result = convert(tmp_path / "in", tmp_path / "out")
    reason = "one of several heads, of which a model folder has one"
    assert {name: result.moves.dropped[name] for name in heads} == dict.fromkeys(heads, reason)
    compare(tmp_path / "out", theirs)
    encoder = load_model(tmp_path / "out")[0].config.encoder
    assert (encoder.dropout, encoder.attention_dropout) == (0.1, 0.25)


@pytest.mark.usefixtures("opened_here")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda saved: saved["args"].__dict__.clear(), "does not state encoder_attention_heads"),
        (
            lambda saved: saved["model"].pop("decoder.sentence_encoder.embed_positions.weight"),
            "holds no position_embeddings",
        ),
        (
            lambda saved: saved["model"].update(
                {"decoder.sentence_encoder.layer_norm.weight": torch.ones(32)}
            ),
            "layer_norm.weight, which no RoBERTa has",
        ),
        (
            lambda saved: saved["model"].update(
                {"decoder.sentence_encoder.embed_tokens.weight": torch.tensor(1.0)}
            ),
            "holds no layers",
        ),
    ],
)
def test_what_is_no_roberta(tmp_path: Path, change: Any, message: str) -> None:  # noqa: ANN401
    theirs = made(RobertaForMaskedLM, write_vocabulary(tmp_path / "in"))
    weights = fairseq_names(theirs.state_dict(), side="decoder", norm="emb_layer_norm")
    saved = {"args": arguments(), "model": weights}
    change(saved)
    torch.save(saved, tmp_path / "in" / "model.pt")
    with pytest.raises(ModelFolderError, match=message):
        convert(tmp_path / "in", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.usefixtures("opened_here")
@pytest.mark.parametrize(
    ("line", "number"), [("7 1\n", 269), ("999 1\n", 269), ("word\n", 269), ("x one\n", 269)]
)
def test_a_dictionary_that_does_not_fit(tmp_path: Path, line: str, number: int) -> None:
    folder = tmp_path / "in"
    theirs = made(RobertaForMaskedLM, write_vocabulary(folder))
    weights = fairseq_names(theirs.state_dict(), side="decoder", norm="emb_layer_norm")
    torch.save({"args": arguments(), "model": weights}, folder / "model.pt")
    with (folder / "dict.txt").open("a") as file:
        file.write(line)
    with pytest.raises(ModelFolderError, match=rf"dict\.txt:{number}: is no id"):
        convert(folder, tmp_path / "out")
    (folder / "vocab.bpe").unlink()
    with pytest.raises(ModelFolderError, match=r"has no vocab\.bpe"):
        convert(folder, tmp_path / "out")
