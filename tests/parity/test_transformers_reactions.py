"""Trained weights of chemistry: rxnfp, a BERT with all heads, and rxnmapper, an ALBERT.

Their packages hold them pickled; what they say of a reaction is what transformers says.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AlbertForMaskedLM, BertForPreTraining, BertForSequenceClassification

from bertsmith.network.batch import pack
from bertsmith.network.model import Model
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model, save_model
from bounds import close_to_transformers
from parity.comparing import every_state

# an amide coupling, 103 tokens
REACTION = (
    "Nc1cccc2cnccc12.O=C(O)c1cc([N+](=O)[O-])c(Sc2c(Cl)cncc2Cl)s1"
    ">>O=C(Nc1cccc2cnccc12)c1cc([N+](=O)[O-])c(Sc2c(Cl)cncc2Cl)s1"
)
TOKEN = re.compile(r"\[[^\]]+\]|Br|Cl|>>|%\d\d|[A-Za-z0-9().=#+\-\\/:~@?>*$]")


def source(package: str, model: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"the package {package}, which holds trained weights, is not installed")
    return Path(found.origin).parent / "models/transformers" / model


def loaded(source: Path, folder: Path) -> tuple[Model, Tokenizer]:
    """A copy of the folder with its weights as safetensors, loaded."""
    folder.mkdir()
    for name in ("config.json", "vocab.txt"):
        shutil.copy(source / name, folder)
    state = torch.load(source / "pytorch_model.bin", map_location="cpu", weights_only=True)
    save_file({name: value.clone().contiguous() for name, value in state.items()},
              folder / "model.safetensors")  # fmt: skip
    return load_model(folder)


def encoded(folder: Path) -> list[int]:
    """The reaction's ids, between [CLS] and [SEP]."""
    pieces = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
    tokens = TOKEN.findall(REACTION)
    assert "".join(tokens) == REACTION
    assert len(tokens) == 103
    return [pieces.index(token) for token in ("[CLS]", *tokens, "[SEP]")]


@torch.no_grad()
def recovered(ours: Model, theirs: Any, ids: list[int], mask_id: int) -> tuple[int, int]:  # noqa: ANN401
    """Tokens that each finds again, each masked alone; their logits are alike."""
    places = range(1, len(ids) - 1)
    rows = torch.tensor([ids] * len(places))
    at = torch.arange(len(places))
    rows[at, at + 1] = mask_id
    packed = pack([row.numpy() for row in rows], [(row * 0).numpy() for row in rows])
    hidden = ours.encoder(packed).last.reshape(*rows.shape, -1)
    mine = ours.masked_lm(hidden[at, at + 1])
    out = theirs(rows)
    other = (out.prediction_logits if "prediction_logits" in out else out.logits)[at, at + 1]
    close_to_transformers(mine, other)
    right = torch.tensor(ids[1:-1])
    return tuple(int((item.argmax(-1) == right).sum()) for item in (mine, other))  # type: ignore[return-value]


def whole(out: Any, ours: Model, ids: list[int]) -> list[tuple[Tensor, Tensor]]:  # noqa: ANN401
    """Hidden states of all layers, ours and theirs."""
    packed = pack([torch.tensor(ids).numpy()], [torch.zeros(len(ids)).long().numpy()])
    states = ours.encoder(packed, taps=every_state(ours)).states.values()
    return [(mine, other[0]) for mine, other in zip(states, out.hidden_states, strict=True)]


@torch.no_grad()
def test_rxnfp_recovers_what_is_masked(tmp_path: Path) -> None:
    place = source("rxnfp", "bert_pretrained")
    theirs = BertForPreTraining.from_pretrained(place, attn_implementation="eager").eval()
    ours, tokenizer = loaded(place, tmp_path / "model")
    assert (ours.config.masked_lm, ours.config.next_sentence) == (True, True)
    ids = encoded(place)
    assert recovered(ours, theirs, ids, tokenizer.mask_id) == (98, 98)
    out = theirs(torch.tensor([ids]), output_hidden_states=True)
    for mine, other in whole(out, ours, ids):
        close_to_transformers(mine, other)
    packed = pack([torch.tensor(ids).numpy()], [torch.zeros(len(ids)).long().numpy()])
    pairs = ours.next_sentence(ours.encoder(packed), packed)
    close_to_transformers(pairs, out.seq_relationship_logits)
    save_model(tmp_path / "again", ours, tokenizer)
    again = BertForPreTraining.from_pretrained(tmp_path / "again").state_dict()
    assert all(torch.equal(value, again[name]) for name, value in theirs.state_dict().items())


@torch.no_grad()
def test_the_classes_of_rxnfp(tmp_path: Path) -> None:
    place = source("rxnfp", "bert_ft_10k_25s")
    # its config names two classes, as old versions wrote it
    names = {number: f"LABEL_{number}" for number in range(50)}
    theirs = BertForSequenceClassification.from_pretrained(
        place, id2label=names, num_labels=50, attn_implementation="eager"
    ).eval()
    ours, tokenizer = loaded(place, tmp_path / "model")
    assert ours.config.predicts == "class"
    assert ours.config.labels == tuple(names.values())
    ids = encoded(place)
    packed = pack([torch.tensor(ids).numpy()], [torch.zeros(len(ids)).long().numpy()])
    mine, other = ours.classify(ours.encoder(packed), packed), theirs(torch.tensor([ids])).logits
    assert mine.shape == (1, 50)
    close_to_transformers(mine, other)
    save_model(tmp_path / "again", ours, tokenizer)
    again = BertForSequenceClassification.from_pretrained(tmp_path / "again").state_dict()
    assert all(torch.equal(value, again[name]) for name, value in theirs.state_dict().items())


@torch.no_grad()
def test_rxnmapper_recovers_what_is_masked(tmp_path: Path) -> None:
    place = source("rxnmapper", "albert_heads_8_uspto_all_1310k")
    theirs = AlbertForMaskedLM.from_pretrained(place, attn_implementation="eager").eval()
    ours, tokenizer = loaded(place, tmp_path / "model")
    assert (ours.config.masked_lm, ours.config.encoder.groups) == (True, 1)
    ids = encoded(place)
    assert recovered(ours, theirs, ids, tokenizer.mask_id) == (103, 103)
    out = theirs(torch.tensor([ids]), output_hidden_states=True)
    for mine, other in whole(out, ours, ids):
        close_to_transformers(mine, other)
    save_model(tmp_path / "again", ours, tokenizer)
    again = AlbertForMaskedLM.from_pretrained(tmp_path / "again").state_dict()
    assert all(torch.equal(value, again[name]) for name, value in theirs.state_dict().items())
