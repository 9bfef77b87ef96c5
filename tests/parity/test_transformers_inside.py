"""Hidden states, queries, keys, values and attention weights against those of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModel

from bertsmith.network.encoded import Taps
from bertsmith.network.families.family import FamilyName
from bertsmith.network.model import build_model
from bertsmith.weights.folder import save_model
from bounds import close_to_transformers, close_when_regrouped
from families import ENCODERS, MODELS, TOKENIZERS
from parity.comparing import LENGTHS, sequences, varied


@pytest.mark.parametrize("family", list(ENCODERS))
@torch.no_grad()
def test_what_is_tapped_is_what_transformers_gives(family: FamilyName, tmp_path: Path) -> None:
    ours = varied(build_model(MODELS[f"{family}-none"], seed=1))
    save_model(tmp_path / "model", ours, TOKENIZERS[family])
    theirs: Any = AutoModel.from_pretrained(tmp_path / "model", attn_implementation="eager").eval()
    config = ours.config.encoder
    packed, padded = sequences(config.vocabulary)
    real = padded["attention_mask"]
    kinds = padded.pop("token_type_ids")
    if config.segments:
        padded["token_type_ids"] = kinds if config.segments > 1 else torch.zeros_like(kinds)
    out = theirs(**padded, output_hidden_states=True, output_attentions=True)
    layers = frozenset(range(1, config.layers + 1))
    tapped = ours.encoder(packed, taps=Taps(states=layers | {0}, qkv=layers, weights=layers))
    assert list(tapped.states) == [0, *layers]
    for layer in range(config.layers):
        close_to_transformers(tapped.states[layer], out.hidden_states[layer][real])
    close_to_transformers(tapped.states[config.layers], out.last_hidden_state[real])
    assert len(out.attentions) == len(layers)
    for layer, theirs_of_layer in enumerate(out.attentions, 1):
        for weights, other, length in zip(
            tapped.weights[layer], theirs_of_layer, LENGTHS, strict=True
        ):
            close_to_transformers(weights, other[:, :length, :length])
    seen = attended(ours, packed)
    for layer in layers:
        query, key, value = (item.split(LENGTHS) for item in tapped.qkv[layer])
        size = query[0].shape[-1]
        for q, k, other, length in zip(query, key, out.attentions[layer - 1], LENGTHS, strict=True):
            score = q.transpose(0, 1) @ k.permute(1, 2, 0) / size**0.5
            unseen = other[:, :length, :length] == 0
            close_to_transformers(
                score.masked_fill(unseen, -torch.inf).softmax(-1), other[:, :length, :length]
            )
        sums = [w @ v.transpose(0, 1) for w, v in zip(tapped.weights[layer], value, strict=True)]
        mine = torch.cat([item.transpose(0, 1).flatten(1) for item in sums])
        close_when_regrouped(mine, seen[layer - 1])


def attended(model: Any, packed: Any) -> list[Tensor]:  # noqa: ANN401
    """What goes into the output map of each layer's attention, without any tap."""
    seen: list[Tensor] = []
    for block in model.encoder.blocks:
        block.attention.output.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    model.encoder(packed)
    return seen
