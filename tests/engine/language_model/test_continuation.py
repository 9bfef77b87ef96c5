from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertLMHeadModel

from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.engine.config import ContinuationConfig
from bertsmith.engine.language_model.continuation import Continuation, TextContinuation
from bertsmith.engine.predictor import Predictor
from bertsmith.network.batch import pack
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.text.examples.example import Example
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.weights.folder import save_model

MAX_LENGTH = 19
TOKENIZER = Tokenizer(
    (*SPECIALS, *(f"word{n}" for n in range(60)), "##s", "##t"), BasicRules(lowercase=True)
)
ENCODER = EncoderConfig(
    # more rows than pieces: none of them may be chosen
    vocabulary=71, hidden=32, layers=2, heads=4, feed_forward=37, longest=MAX_LENGTH, causal=True,
    initial_std=0.4,
)  # fmt: skip
TEXTS = ("word3 word9 word1", "word7", "word2s word4 word5 word6 word8 word9 word10 word11", "")


@pytest.fixture(scope="module")
def model() -> Model:
    return build_model(ModelConfig(encoder=ENCODER, pooler=False, masked_lm=True), seed=4).eval()


def example(text: str, line: int = 1) -> Example:
    return Example(text=text, text_pair=None, label=None, source="m", line=line)


def continued(model: Model, *texts: str, rows: int = 2, **options: float) -> list[Continuation]:
    config = ContinuationConfig.from_dict(dict(options))
    predictor = Predictor(model=model, answering=TextContinuation(model, TOKENIZER, config))
    return list(predictor(map(example, texts), rows=rows))


def test_greedy_tokens_are_those_of_transformers(model: Model, tmp_path: Path) -> None:
    save_model(tmp_path / "model", model, TOKENIZER)
    theirs = BertLMHeadModel.from_pretrained(tmp_path / "model").eval()
    spare = range(TOKENIZER.size, ENCODER.vocabulary)
    found = continued(model, *TEXTS, max_new_tokens=30)
    for text, own in zip(TEXTS, found, strict=True):
        ids = torch.tensor([[TOKENIZER.cls_id, *TOKENIZER.encode([text])[0].tolist()]])
        expected = theirs.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_length=MAX_LENGTH,
            suppress_tokens=[*TOKENIZER.special_ids, *spare],
        )
        # up to the last position, and no further
        assert ids.shape[1] + len(own.ids) == MAX_LENGTH
        assert own.ids.tolist() == expected[0, ids.shape[1] :].tolist()
    assert [len(item.ids) for item in continued(model, *TEXTS, max_new_tokens=4)] == [4] * 4


def test_no_special_token_is_chosen(model: Model) -> None:
    # without the rule these would be the likeliest by far
    likely = build_model(model.config, seed=4).eval()
    with torch.no_grad():
        bias = likely.get_parameter("heads.masked_lm.bias")
        bias[sorted(TOKENIZER.special_ids)] += 100
        bias[TOKENIZER.size :] += 100
    for temperature in (0.0, 1.0, 100.0):
        for item in continued(likely, *TEXTS, temperature=temperature):
            assert not TOKENIZER.special_ids & set(item.ids.tolist())
            assert item.ids.max() < TOKENIZER.size


def test_what_is_drawn_follows_the_seed_and_the_place_alone(model: Model) -> None:
    texts = ["word3 word9"] * 5
    first = [item.text for item in continued(model, *texts, temperature=1.0, seed=3, rows=2)]
    again = [item.text for item in continued(model, *texts, temperature=1.0, seed=3, rows=5)]
    other = [item.text for item in continued(model, *texts, temperature=1.0, seed=4)]
    assert first == again != other
    assert len(set(first)) > 1


def test_tokens_are_drawn_as_often_as_the_softmax_says(model: Model) -> None:
    count, text, temperature = 1000, "word3 word9 word1", 1.5
    drawn = continued(model, *[text] * count, max_new_tokens=1, temperature=temperature, rows=500)
    theirs = torch.zeros(TOKENIZER.size).index_add(
        0, torch.tensor([int(item.ids[0]) for item in drawn]), torch.ones(count)
    )
    (greedy,) = continued(model, text, max_new_tokens=1)
    ids = [TOKENIZER.cls_id, *TOKENIZER.encode([text])[0].tolist()]
    batch = pack([np.array(ids)], [np.zeros(len(ids), np.int8)])
    with torch.no_grad():
        logits = model.masked_lm(model.encoder(batch).last[-1:])[0, : TOKENIZER.size]
    logits[sorted(TOKENIZER.special_ids)] = -torch.inf
    shares = (logits / temperature).softmax(0)
    assert int(greedy.ids[0]) == int(shares.argmax())
    # four standard deviations of a count, and one of rounding
    spread = (count * shares * (1 - shares)).sqrt()
    assert bool(((theirs - count * shares).abs() <= 4 * spread + 1).all())


def test_text_and_continuation_are_the_whole(model: Model) -> None:
    for text, item in zip(TEXTS, continued(model, *TEXTS), strict=True):
        ids = [*TOKENIZER.encode([text])[0].tolist(), *item.ids.tolist()]
        assert text + item.text == TOKENIZER.decode(ids)


def test_what_cannot_be_continued_is_refused(model: Model) -> None:
    both = build_model(
        ModelConfig(
            encoder=EncoderConfig(**{**ENCODER.to_dict(), "causal": False}), masked_lm=True
        ),
        seed=1,
    )
    with pytest.raises(ConfigError, match="only a model pre-trained from left to right"):
        continued(both, "word1")
    with pytest.raises(ExampleError, match="m:1: the text fills the 19 tokens"):
        continued(model, "word1 " * 18)
    with pytest.raises(ExampleError, match=r"holds \[MASK\]"):
        continued(model, "word1 [MASK]")
    for options in ({"max_new_tokens": 0}, {"temperature": -1.0}, {"seed": -1}):
        with pytest.raises(ConfigError, match="it must be"):
            continued(model, "word1", **options)
