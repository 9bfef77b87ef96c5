from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from bertsmith.batches.examples import EncodedExamples, encode_examples, pack_examples
from bertsmith.engine.answers import (
    Forward,
    class_probabilities,
    label_probabilities,
    option_scores,
    text_outputs,
)
from bertsmith.engine.predictor import windows
from bertsmith.network.config import ModelConfig, Predicts, encoder_of
from bertsmith.network.model import Model, build_model
from bertsmith.tokens.tokenizer import Tokenizer
from bounds import close_unit_vectors, close_when_regrouped


def examples(tokenizer: Tokenizer, count: int) -> EncodedExamples:
    random = np.random.default_rng(3)
    texts = [
        " ".join(f"word{n}" for n in random.integers(0, 46, random.integers(1, 20)))
        for _ in range(count)
    ]
    pairs = ["word3 word4" if number % 3 else None for number in range(count)]
    return encode_examples(tokenizer, texts, pairs, longest=29)


def test_answers_come_in_order_and_equal_those_of_each_text_alone(
    model: Model, tokenizer: Tokenizer
) -> None:
    encoded = examples(tokenizer, 41)
    found = class_probabilities(model, encoded, Forward(tokens_per_batch=70))
    several = label_probabilities(model, encoded, Forward(tokens_per_batch=70))
    model.eval()
    for number, probabilities in enumerate(found):
        batch = pack_examples(encoded, np.array([number]))
        alone = model.classify(model.encoder(batch), batch)[0].detach()
        close_unit_vectors(probabilities, alone.softmax(-1))
        close_unit_vectors(several[number], alone.sigmoid())


@pytest.mark.parametrize("predicts", ["class", "choice"])
def test_a_head_that_reads_the_mean_of_all_tokens_is_given_all(
    predicts: Predicts, tokenizer: Tokenizer
) -> None:
    size = {"hidden": 24, "layers": 2, "heads": 2, "feed_forward": 37, "longest": 29}
    encoder = encoder_of("modernbert", "tiny", 56, **size, pooled="mean", initial_std=0.3)
    labels = ("a", "b") if predicts == "class" else ()
    one = build_model(ModelConfig(encoder=encoder, predicts=predicts, labels=labels), seed=5)
    one.eval()
    encoded = examples(tokenizer, 6)
    batch = pack_examples(encoded, np.arange(6))
    hidden = one.encoder(batch)
    if predicts == "class":
        close_when_regrouped(text_outputs(one, encoded), one.classify(hidden, batch))
    else:
        shares = one.choose(hidden, batch).softmax(-1)
        close_unit_vectors(option_scores(one, encoded.grouped([6]))[0], shares)


def test_windows_of_a_text_are_averaged(model: Model, tokenizer: Tokenizer) -> None:
    text = " ".join(f"word{n}" for n in range(40))
    encoded = encode_examples(tokenizer, ["word1 word2", text], longest=20, fit="windows")
    assert len(encoded) == 2
    assert len(encoded.ids) == 4
    assert encoded.long.tolist() == [False, True]
    assert not encoded.cut.any()
    outputs = text_outputs(model, encoded)
    alone = []
    for ids, segments in zip(encoded.ids, encoded.segments, strict=True):
        one = EncodedExamples.of([ids], [segments])
        alone.append(text_outputs(model, one)[0])
    close_when_regrouped(outputs[0], alone[0])
    close_when_regrouped(outputs[1], np.mean(alone[1:], 0))


def test_options_of_a_question_share_its_probability(model: Model, tokenizer: Tokenizer) -> None:
    chooser = build_model(
        ModelConfig(encoder=model.config.encoder, predicts="choice"), seed=4
    ).eval()
    options = encode_examples(
        tokenizer, ["word1"] * 5, ["word2", "word3 word4", "word5", "word6", "word7 word8"],
        longest=29,
    )  # fmt: skip
    found = option_scores(chooser, options.grouped([2, 3]))
    assert [len(result) for result in found] == [2, 3]
    assert [float(result.sum()) for result in found] == pytest.approx([1, 1])
    swapped = encode_examples(tokenizer, ["word1"] * 2, ["word3 word4", "word2"], longest=29)
    close_unit_vectors(option_scores(chooser, swapped.grouped([2]))[0], found[0][::-1])


def test_windows_of_very_long_texts_are_short() -> None:
    texts = ["x" * 1_500_000 for _ in range(7)]
    assert [len(window) for window in windows(texts, 100, len)] == [3, 3, 1]


def test_a_stream_is_read_no_further_than_the_window() -> None:
    read: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(100):
            read.append(number)
            yield number

    found = windows(numbers(), 4, lambda _: 1)
    for _ in range(3):
        next(found)
    assert len(read) == 12


def test_a_text_of_100_000_words_is_read_by_its_beginning(
    model: Model, tokenizer: Tokenizer
) -> None:
    encoded = encode_examples(tokenizer, ["word7 " * 100_000, "word7 " * 27], longest=29)
    assert encoded.cut.tolist() == [True, False]
    long, short = class_probabilities(model, encoded)
    close_unit_vectors(long, short)


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
