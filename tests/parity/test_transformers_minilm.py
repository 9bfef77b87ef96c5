"""Real weights, MiniLM of 6 layers and 384 hidden, on real texts of mixed length."""

from __future__ import annotations

import inspect
import os
import random
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertModel, BertTokenizer

from bertsmith.network.batch import Batch, pack
from bertsmith.network.model import Model
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model, save_model
from bounds import close_to_transformers, close_when_regrouped
from parity.comparing import every_state

TEXTS = 48
MAX_LENGTH = 96
AT_ONCE = 24
# slow on most processors
HALF = 5


@cache
def texts() -> tuple[str, ...]:
    """Real texts in which short and long ones lie side by side."""
    folder = os.environ.get("BERTSMITH_DATA")
    if folder:
        lines = (Path(folder) / "sms-spam" / "SMSSpamCollection").read_text("utf-8").splitlines()
        lines += (Path(folder) / "glue" / "RTE" / "dev.tsv").read_text("utf-8").splitlines()[1:]
        found = [line.split("\t")[1] for line in lines]
    else:
        functions = inspect.getmembers(np, callable) + inspect.getmembers(torch, callable)
        documents = [inspect.getdoc(item) or "" for _, item in functions]
        found = [
            part for document in documents for part in document.split("\n\n") if len(part) > 10
        ]
    return tuple(random.Random(4).sample(sorted(set(found)), TEXTS))


@pytest.fixture(scope="module")
def ours(minilm_folder: Path) -> tuple[Model, Tokenizer]:
    return load_model(minilm_folder)


def batches(tokenizer: Tokenizer, at_once: int = AT_ONCE) -> list[Batch]:
    found = tokenizer.encode(list(texts()))
    rows = [np.array([tokenizer.cls_id, *ids[: MAX_LENGTH - 2], tokenizer.sep_id]) for ids in found]
    groups = [rows[begin : begin + at_once] for begin in range(0, TEXTS, at_once)]
    return [pack(group, [np.zeros_like(ids) for ids in group]) for group in groups]


@torch.no_grad()
def test_every_hidden_state_is_that_of_transformers(
    ours: tuple[Model, Tokenizer], minilm_folder: Path
) -> None:
    model, tokenizer = ours
    theirs = BertModel.from_pretrained(minilm_folder, attn_implementation="eager").eval()
    reference = BertTokenizer.from_pretrained(minilm_folder)
    seen = 0
    for number, batch in enumerate(batches(tokenizer)):
        group = list(texts()[number * AT_ONCE : (number + 1) * AT_ONCE])
        padded = reference(
            group, truncation=True, max_length=MAX_LENGTH, padding=True, return_tensors="pt"
        )
        real = padded["attention_mask"].bool()
        assert torch.equal(padded["input_ids"][real], batch.ids)
        out = theirs(**padded, output_hidden_states=True)
        encoded = model.encoder(batch, taps=every_state(model))
        for mine, other in zip(encoded.states.values(), out.hidden_states, strict=True):
            close_to_transformers(mine, other[real])
        close_to_transformers(model.pooled(encoded, batch), out.pooler_output)
        assert len(set(batch.lengths)) > 10
        seen += batch.sequences
    assert seen == TEXTS


@torch.no_grad()
def test_packed_is_as_one_at_a_time(ours: tuple[Model, Tokenizer]) -> None:
    model, tokenizer = ours
    batch = batches(tokenizer)[0]
    hidden = model.encoder(batch).last
    for begin, length in zip(batch.starts.tolist(), batch.lengths, strict=True):
        ids = batch.ids[begin : begin + length].numpy()
        alone = model.encoder(pack([ids], [np.zeros_like(ids)])).last
        close_when_regrouped(alone, hidden[begin : begin + length])


@pytest.mark.parametrize(("kind", "bound"), [(torch.bfloat16, 1e-2), (torch.float16, 5e-3)])
@pytest.mark.parametrize("graph", [False, True])
def test_half_precision_is_close(
    ours: tuple[Model, Tokenizer], kind: torch.dtype, bound: float, graph: bool
) -> None:
    """Relative to the norm of all hidden states; both ways through attention, with a graph too."""
    model, tokenizer = ours
    batch = batches(tokenizer, HALF)[1]
    with torch.no_grad():
        exact = model.encoder(batch).last
    with torch.autocast("cpu", dtype=kind), torch.set_grad_enabled(graph):
        rough = model.encoder(batch).last.detach()
    assert len(set(batch.lengths)) > 1
    assert 0 < float((rough - exact).norm() / exact.norm()) < bound


def test_saving_real_weights_again_changes_no_bit(
    ours: tuple[Model, Tokenizer], minilm_folder: Path, tmp_path: Path
) -> None:
    model, tokenizer = ours
    save_model(tmp_path / "model", model, tokenizer)
    back, read = load_model(tmp_path / "model")
    assert read.fingerprint == tokenizer.fingerprint
    assert back.config == model.config
    state = back.state_dict()
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    theirs = BertModel.from_pretrained(minilm_folder).state_dict()
    again, told = BertModel.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not any(told.values())
    assert all(torch.equal(theirs[name], value) for name, value in again.state_dict().items())
