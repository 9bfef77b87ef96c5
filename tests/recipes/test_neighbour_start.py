from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bertsmith.batches import DataPosition
from bertsmith.batches.config import SampleConfig
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.core.errors import ConfigError
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.encoder import Block
from bertsmith.network.model import Model, build_model
from bertsmith.recipes.pretrain.starting import (
    DISTANCES,
    Neighbours,
    count_neighbours,
    start_from_neighbours,
    token_rows,
)
from bertsmith.store.preparing import prepare_store
from bertsmith.store.store import TokenStore
from bertsmith.text.corpus.documents import Document
from bertsmith.tokens.tokenizer import Tokenizer
from invented import SYLLABLES, store, tokenizer

__all__ = ["store", "tokenizer"]

ENTRIES, MASK = 50, 4


def counted(seed: int = 0, entries: int = ENTRIES) -> Neighbours:
    """Two kinds of tokens, even and odd, each with neighbours of its own; the first five unseen."""
    random = np.random.default_rng(seed)
    kind = np.arange(entries)[:, None] % 2 == np.arange(20) % 2
    near = {
        place: random.poisson(np.where(kind, 30, 1)).astype(np.float32) for place in (-2, -1, 1, 2)
    }
    for counts in near.values():
        counts[:5] = 0
    tokens = near[1].sum(1).astype(np.int64)
    return Neighbours(tokens, np.arange(5, 25), near)


def model(entries: int = ENTRIES, **changes: Any) -> Model:  # noqa: ANN401
    settings: dict[str, Any] = {
        "vocabulary": entries, "hidden": 96, "layers": 2, "heads": 4, "feed_forward": 80,
        "dropout": 0.0, "attention_dropout": 0.0,
    }  # fmt: skip
    config = ModelConfig(encoder=EncoderConfig(**settings | changes), pooler=False, masked_lm=True)
    return build_model(config, seed=3)


def test_tokens_with_the_same_neighbours_are_alike() -> None:
    rows = token_rows(counted(), 64, torch.Generator().manual_seed(0))
    assert rows.shape == (45, 64)
    unit = torch.nn.functional.normalize(rows, dim=1)
    alike = unit @ unit.T
    even = torch.arange(5, 50) % 2 == 0
    same = even[:, None] == even
    # of the five directions or so that mean something, one tells the kinds apart
    assert alike[same].mean() > alike[~same].mean() + 0.2
    assert torch.allclose(rows.square().mean(1), torch.ones(45), atol=1e-3)


def test_rows_are_the_decomposition_of_the_information() -> None:
    neighbours = counted()
    rows = token_rows(neighbours, 80, torch.Generator().manual_seed(0)).double().numpy()
    parts = []
    for counts in neighbours.near.values():
        table = counts[5:].astype(np.float64)
        context = table.sum(0) ** 0.75
        expected = table.sum(1, keepdims=True) * (context / context.sum())
        parts.append(np.log(np.maximum(table / expected, 1)))
    matrix = np.hstack(parts) * neighbours.tokens[5:, None] ** 0.15
    left, values, _ = np.linalg.svd(matrix, full_matrices=False)
    wanted = left * np.sqrt(values)
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    # as many directions as the matrix has, so nothing is left out; turned, so angles are compared
    assert np.abs(rows @ rows.T / 80 - wanted @ wanted.T).max() < 1e-3


@pytest.mark.parametrize(("causal", "places"), [(False, (-1, 1, -2, 2)), (True, (0, -1, -2, -3))])
def test_heads_of_the_first_layer_look_at_one_distance(
    store: TokenStore, tokenizer: Tokenizer, causal: bool, places: tuple[int, ...]
) -> None:
    made = model(tokenizer.size, causal=causal)
    start_from_neighbours(made, counted(entries=tokenizer.size), mask_id=tokenizer.mask_id, seed=0)
    config = SampleConfig(text="within_documents", tokens_per_batch=128)
    batch, _ = PretrainingBatches(store, tokenizer, config, seed=0).next_batch(DataPosition())
    length = batch.lengths[0]
    states = made.encoder.embeddings(batch.ids, batch.segments, batch.positions)[:length]
    block = made.encoder.blocks[0]
    assert isinstance(block, Block)
    attention = block.attention
    query, key = (
        part(states).unflatten(1, (4, 24)).transpose(0, 1)
        for part in (attention.query, attention.key)
    )
    weights = (query @ key.mT / 24**0.5).softmax(-1)
    for head, place in enumerate(places):
        looked: Tensor = weights[head].argmax(-1)[5 : length - 5]
        assert torch.equal(looked, torch.arange(5, length - 5) + place)


def test_the_bias_holds_frequencies_and_unseen_tokens_keep_their_rows() -> None:
    plain, made, neighbours = model(), model(), counted()
    start_from_neighbours(made, neighbours, mask_id=MASK, seed=0)
    shares = made.state_dict()["heads.masked_lm.bias"].exp()
    assert shares.sum().item() == pytest.approx(1)
    assert shares[7] / shares[8] == pytest.approx(
        (neighbours.tokens[7] + 1) / (neighbours.tokens[8] + 1), rel=1e-4
    )
    rows, before = made.encoder.embeddings.tokens.weight, plain.encoder.embeddings.tokens.weight
    assert torch.equal(rows[:4, :72], before[:4, :72])
    assert not rows[MASK].any()
    assert not rows[:, 72:].any()
    again = model()
    start_from_neighbours(again, neighbours, mask_id=MASK, seed=0)
    assert all(map(torch.equal, made.state_dict().values(), again.state_dict().values()))


def test_a_text_of_one_token_has_no_neighbours(tokenizer: Tokenizer, tmp_path: Path) -> None:
    word = Document(source="one", line=1, paragraphs=(SYLLABLES[0],))
    prepare_store([word], tokenizer, tmp_path / "store", held_out=0)
    made = model(tokenizer.size)
    neighbours = count_neighbours(TokenStore(tmp_path / "store"), tokenizer.size, 10, DISTANCES)
    start_from_neighbours(made, neighbours, mask_id=tokenizer.mask_id, seed=0)
    assert all(value.isfinite().all() for value in made.state_dict().values())


@pytest.mark.parametrize("changes", [{"positions": "none"}, {"embedding": 32, "groups": 1}])
def test_other_networks_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="--initialisation random"):
        start_from_neighbours(model(**changes), counted(), mask_id=MASK, seed=0)
