"""Masks that are filled together by a model to which special tokens are the likeliest."""

from __future__ import annotations

import pytest
import torch

from bertsmith.engine.config import FillingConfig
from bertsmith.engine.language_model.fill_mask import MaskFilling
from bertsmith.engine.predictor import Predictor
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import build_model
from bertsmith.text.examples.example import Example
from invented import syllable_tokenizer

TOKENIZER = syllable_tokenizer()
TEXT = "gabo [MASK] dela [MASK] kuri [MASK]."


@pytest.mark.parametrize("top", [1, 3, 999])
@pytest.mark.parametrize("special", sorted(TOKENIZER.special_ids))
def test_special_tokens_are_not_filled_in(special: int, top: int) -> None:
    encoder = EncoderConfig(
        vocabulary=TOKENIZER.size, hidden=64, layers=2, heads=2, feed_forward=40, longest=64,
        initial_std=0.4,
    )  # fmt: skip
    model = build_model(ModelConfig(encoder=encoder, pooler=False, masked_lm=True), seed=1)
    with torch.no_grad():
        model.heads.get_parameter("masked_lm.bias")[special] = 99.0
    filling = MaskFilling(model, TOKENIZER, top=top, config=FillingConfig(joint=True))
    example = Example(text=TEXT, text_pair=None, label=None, source="text", line=1)
    (found,) = Predictor(model=model, answering=filling)([example])
    assert found.joint is not None
    assert sorted(found.joint.order) == [0, 1, 2]
    assert not TOKENIZER.special_ids & {word.ids[0] for word in found.joint.words}
    for fillings in found.masks:
        assert len(fillings) == min(top, TOKENIZER.size - len(TOKENIZER.special_ids))
        assert all(0 <= word.probability <= 1 for word in fillings)
