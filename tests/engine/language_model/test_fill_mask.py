from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import BertForMaskedLM

from bertsmith.core.errors import ExampleError
from bertsmith.engine.answers import Forward
from bertsmith.engine.language_model.fill_mask import fill_mask, fill_masks
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.text.examples.reading import Example
from bertsmith.tokens.folder.xlm import arranged
from bertsmith.tokens.normalisation import CompiledRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import save_model
from bounds import close_unit_vectors
from hostile.specimens import one_exchange


def example(text: str, line: int = 1) -> Example:
    return Example(text=text, text_pair=None, label=None, source="memory", line=line)


def test_fillings_are_those_of_transformers(
    model: Model, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    config = ModelConfig(encoder=model.config.encoder, pooler=False, masked_lm=True)
    plain = build_model(config, seed=9)
    save_model(tmp_path / "model", plain, tokenizer)
    reference = BertForMaskedLM.from_pretrained(tmp_path / "model").eval()
    found = fill_mask(plain, tokenizer, "word3 [MASK] word4 [MASK] word5", top=7)
    ids = [2, 8, 4, 9, 4, 10, 3]
    with torch.no_grad():
        logits = reference(torch.tensor([ids])).logits[0, [2, 4], : tokenizer.size]
    values, pieces = logits.softmax(-1).topk(7)
    for mask in range(2):
        assert [f.piece for f in found[mask]] == [tokenizer.vocabulary[p] for p in pieces[mask]]
        close_unit_vectors([f.probability for f in found[mask]], values[mask])


def test_rows_beyond_the_vocabulary_are_no_answers(model: Model, tokenizer: Tokenizer) -> None:
    (found,) = fill_mask(model, tokenizer, "[MASK]", top=1000)
    assert len(found) == tokenizer.size
    assert sum(f.probability for f in found) == pytest.approx(1, abs=1e-5)


def test_a_stream_keeps_its_order_and_each_text_its_masks(
    model: Model, tokenizer: Tokenizer
) -> None:
    texts = [f"word{n} " * (1 + n % 7) + "[MASK] word1 " * (1 + n % 3) for n in range(23)]
    asked = [example(text, line) for line, text in enumerate(texts)]
    found = list(
        fill_masks(model, tokenizer, asked, top=2, rows=10, forward=Forward(tokens_per_batch=50))
    )
    for text, result in zip(texts, found, strict=True):
        alone = fill_mask(model, tokenizer, text, top=2)
        assert len(result) == text.count("[MASK]") == len(alone)
        for ours, expected in zip(result, alone, strict=True):
            assert [f.piece for f in ours] == [f.piece for f in expected]
            close_unit_vectors([f.probability for f in ours], [f.probability for f in expected])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("word1 word2", "memory:8: no [MASK] in the text; write [MASK] where"),
        ("word1 " * 40 + "[MASK]", "memory:8: the text is longer than the 29 tokens"),
    ],
)
def test_what_cannot_be_filled_is_named(
    model: Model, tokenizer: Tokenizer, text: str, message: str
) -> None:
    with pytest.raises(ExampleError) as raised:
        list(fill_masks(model, tokenizer, [example("[MASK]", 7), example(text, 8)]))
    assert str(raised.value).startswith(message)


def test_a_mask_that_is_one_after_characters_are_exchanged_is_filled() -> None:
    pieces = ["\u2581", "a", "b", "\u2581a", "\u2581b"]
    vocabulary, rules = arranged(pieces, [-float(n) for n in range(1, 6)])
    # "A" becomes "<" before masks are looked for
    charsmap = one_exchange().removesuffix(b"b\0") + b"<\0"
    rules = replace(rules, compiled=CompiledRules(late_mask=True), charsmap=charsmap)
    tokenizer = Tokenizer(vocabulary, rules)
    encoder = EncoderConfig(
        vocabulary=len(vocabulary), hidden=16, layers=1, heads=2, feed_forward=17, longest=13
    )
    model = build_model(ModelConfig(encoder=encoder, masked_lm=True), seed=1)
    for text, same in (("a Amask> b", "a <mask> b"), ("<mask> Amask>", "<mask> <mask>")):
        assert fill_mask(model, tokenizer, text) == fill_mask(model, tokenizer, same)
