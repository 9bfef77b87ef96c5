from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from bertsmith.batches.examples import encode_examples, pack_examples
from bertsmith.inference.classify import class_probabilities, classify
from bertsmith.inference.windows import windows
from bertsmith.models.model import Model
from bertsmith.text.examples import Example
from bertsmith.tokens.tokenizer import Tokenizer


def example(text: str, pair: str | None = None, line: int = 1) -> Example:
    return Example(text=text, text_pair=pair, label=None, source="memory", line=line)


def examples(count: int) -> list[Example]:
    random = np.random.default_rng(3)
    return [
        example(
            " ".join(f"word{n}" for n in random.integers(0, 46, random.integers(1, 20))),
            "word3 word4" if line % 3 else None,
            line,
        )
        for line in range(count)
    ]


def test_answers_come_in_order_and_equal_those_of_each_text_alone(
    model: Model, tokenizer: Tokenizer
) -> None:
    asked = examples(41)
    found = list(classify(model, tokenizer, asked, rows=16, tokens_per_batch=70))
    assert [each.example.line for each in found] == list(range(41))
    model.eval()
    for each in found:
        encoded = encode_examples(
            tokenizer, [each.example.text], [each.example.text_pair], longest=29
        )
        batch = pack_examples(encoded, np.array([0]))
        alone = model.classify(model.encoder(batch), batch)[0].softmax(-1).detach().numpy()
        assert np.abs(each.probabilities - alone).max() < 1e-6
        assert each.label == model.config.labels[alone.argmax()]
        assert each.probability == pytest.approx(alone.max(), abs=1e-6)


def test_the_likeliest_classes_come_first(model: Model, tokenizer: Tokenizer) -> None:
    found = next(classify(model, tokenizer, [example("word1 word2")]))
    top = found.top(3)
    assert len(top) == 3
    assert top[0] == (found.label, found.probability)
    assert [share for _, share in top] == sorted((share for _, share in top), reverse=True)
    assert sum(share for _, share in found.top(9)) == pytest.approx(1, abs=1e-6)


def test_a_stream_is_read_no_further_than_the_window(model: Model, tokenizer: Tokenizer) -> None:
    read = 0

    def endless() -> Iterator[Example]:
        nonlocal read
        while True:
            read += 1
            yield example("word1")

    answers = classify(model, tokenizer, endless(), rows=4)
    for _ in range(9):
        next(answers)
    assert read == 12


def test_windows_of_very_long_texts_are_short() -> None:
    texts = [example("x" * 1_500_000) for _ in range(7)]
    assert [len(window) for window in windows(texts, 100)] == [3, 3, 1]


def test_a_text_of_100_000_words_is_read_by_its_beginning(
    model: Model, tokenizer: Tokenizer
) -> None:
    long, short = classify(model, tokenizer, [example("word7 " * 100_000), example("word7 " * 27)])
    assert (long.cut, short.cut) == (True, False)
    assert np.abs(long.probabilities - short.probabilities).max() < 1e-6


def test_the_limit_can_be_lowered(model: Model, tokenizer: Tokenizer) -> None:
    text = " ".join(f"word{n}" for n in range(20))
    cut, same = classify(model, tokenizer, [example(text), example("word0 word1 word2")], longest=5)
    assert (cut.cut, same.cut) == (True, False)
    assert np.abs(cut.probabilities - same.probabilities).max() < 1e-6


def test_probabilities_are_without_dropout_and_the_model_stays_in_its_mode(
    model: Model, tokenizer: Tokenizer
) -> None:
    encoded = encode_examples(tokenizer, ["word1 word2", "word9"], longest=29)
    model.train()
    first, second = (class_probabilities(model, encoded) for _ in range(2))
    assert model.training
    model.eval()
    assert np.array_equal(first, second)
    assert first.shape == (2, 4)
