from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import BertModel

from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.engine.answers import Forward
from bertsmith.engine.config import FeatureConfig
from bertsmith.engine.features import TextFeatures, features, width
from bertsmith.network.config import ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.network.pooling import UnitLength
from bertsmith.text.examples.reading import Example
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import save_model
from bounds import close_to_transformers, close_unit_vectors, close_when_regrouped

Rows = NDArray[np.float64]
# of each text the hidden states of every layer, (layers + 1, tokens, hidden)
States = list[Rows]


def example(text: str, pair: str | None = None, line: int = 1) -> Example:
    return Example(text=text, text_pair=pair, label=None, source="memory", line=line)


def examples(count: int, words: int = 20) -> list[Example]:
    random = np.random.default_rng(3)
    return [
        example(
            " ".join(f"word{n}" for n in random.integers(0, 46, random.integers(1, words))),
            line=line,
        )
        for line in range(count)
    ]


@pytest.fixture(scope="module")
def reference(
    model: Model, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Rows]:
    """What transformers gives for one text by itself: (layers + 1, tokens, hidden)."""
    folder = tmp_path_factory.mktemp("reference") / "model"
    save_model(folder, model, tokenizer)
    theirs = BertModel.from_pretrained(folder, attn_implementation="eager").double().eval()

    @torch.no_grad()
    def states(text: str) -> Rows:
        ids = [tokenizer.cls_id, *tokenizer.encode([text])[0][:27], tokenizer.sep_id]
        out = theirs(torch.tensor([ids]), output_hidden_states=True)
        return torch.stack(out.hidden_states)[:, 0].numpy()

    return states


def found(
    model: Model, tokenizer: Tokenizer, asked: list[Example], config: FeatureConfig
) -> list[TextFeatures]:
    return list(
        features(model, tokenizer, asked, config, rows=7, forward=Forward(tokens_per_batch=60))
    )


LAYERS: dict[str, Callable[[Rows], Rows]] = {
    "0": lambda states: states[0],
    "embeddings": lambda states: states[0],
    "1": lambda states: states[1],
    "first": lambda states: states[1],
    "second-to-last": lambda states: states[-2],
    "last": lambda states: states[-1],
    "sum-all": lambda states: states[1:].sum(0),
    "mix:0.25,-1,3": lambda states: 0.25 * states[0] - states[1] + 3 * states[2],
    "mix:2,3": lambda states: 2 * states[1] + 3 * states[2],
}
POOLS: dict[str, Callable[[Rows], Rows]] = {
    "auto": lambda rows: rows.mean(0),
    "cls": lambda rows: rows[0],
    "mean": lambda rows: rows.mean(0),
    "max": lambda rows: rows.max(0),
    "last-token": lambda rows: rows[-1],
    "mean-sqrt-length": lambda rows: rows.sum(0) / np.sqrt(len(rows)),
    "weighted-mean": lambda rows: np.average(rows, 0, np.arange(1, len(rows) + 1)),
    "max+cls": lambda rows: np.concatenate([rows.max(0), rows[0]]),
    "token": lambda rows: rows,
}


@pytest.mark.parametrize("layer", LAYERS)
def test_every_layer_is_that_of_transformers(
    model: Model, tokenizer: Tokenizer, reference: Callable[[str], Rows], layer: str
) -> None:
    config = FeatureConfig(layer=layer, pool="token")
    for result in found(model, tokenizer, examples(23), config):
        expected = LAYERS[layer](reference(result.example.text))
        close_to_transformers(result.vectors, expected)


@pytest.mark.parametrize("pool", POOLS)
def test_every_pooling_is_that_of_its_definition(
    model: Model, tokenizer: Tokenizer, reference: Callable[[str], Rows], pool: str
) -> None:
    config, asked = FeatureConfig(pool=pool), examples(23)
    got = found(model, tokenizer, asked, config)
    assert [item.example for item in got] == asked
    for item in got:
        expected = POOLS[pool](reference(item.example.text)[-1])
        close_to_transformers(item.vectors, expected)
        if config.unit == "text":
            assert item.vectors.shape == (width(model, config),)


def test_the_pooler_is_that_of_transformers(
    model: Model, tokenizer: Tokenizer, reference: Callable[[str], Rows]
) -> None:
    assert model.pooler is not None
    dense = model.pooler.dense
    weight, bias = (item.detach().double().numpy() for item in (dense.weight, dense.bias))
    for result in found(model, tokenizer, examples(5), FeatureConfig(pool="pooler")):
        expected = np.tanh(weight @ reference(result.example.text)[-1][0] + bias)
        close_to_transformers(result.vectors, expected)


def test_vectors_do_not_depend_on_the_batch(model: Model, tokenizer: Tokenizer) -> None:
    asked = examples(40)
    random = np.random.default_rng(1)
    alone = [next(features(model, tokenizer, [request])).vectors for request in asked]
    for rows, tokens in ((40, 2048), (3, 50), (11, 100)):
        order = random.permutation(40)
        forward = Forward(tokens_per_batch=tokens)
        got = features(model, tokenizer, [asked[n] for n in order], rows=rows, forward=forward)
        for number, item in zip(order, got, strict=True):
            close_when_regrouped(item.vectors, alone[number])


def test_vectors_can_be_brought_to_length_one(model: Model, tokenizer: Tokenizer) -> None:
    # longer than 1, and shorter
    for layer, longer in (("last", True), ("mix:0.001,0,0.002", False)):
        config = FeatureConfig(pool="token", layer=layer)
        plain = found(model, tokenizer, examples(5), config)
        unit = found(model, tokenizer, examples(5), replace(config, normalize=True))
        for one, other in zip(plain, unit, strict=True):
            lengths = np.linalg.norm(one.vectors.astype(np.float64), axis=1, keepdims=True)
            assert ((lengths > 1) == longer).all()
            close_unit_vectors(other.vectors, one.vectors / lengths)
    (by_layer,) = features(model, tokenizer, examples(1), after=[UnitLength()])
    assert np.linalg.norm(by_layer.vectors) == pytest.approx(1, abs=1e-6)


def test_long_texts_are_cut_and_counted(
    model: Model, tokenizer: Tokenizer, reference: Callable[[str], Rows]
) -> None:
    text = " ".join(f"word{n}" for n in range(40))
    long, same, short = found(
        model, tokenizer, [example(text), example(text), example("word1")], FeatureConfig()
    )
    assert (long.tokens, long.left_out) == (29, 13)
    assert (short.tokens, short.left_out) == (3, 0)
    close_when_regrouped(long.vectors, same.vectors)
    close_to_transformers(long.vectors, reference(text)[-1].mean(0))
    (few,) = found(model, tokenizer, [example(text)], FeatureConfig(max_length=6))
    assert (few.tokens, few.left_out) == (6, 36)
    close_to_transformers(few.vectors, reference("word0 word1 word2 word3")[-1].mean(0))


def test_windows_of_long_texts_are_averaged_by_their_tokens(
    model: Model, tokenizer: Tokenizer, reference: Callable[[str], Rows]
) -> None:
    words = [f"word{n}" for n in range(41)]
    asked = [example("word9"), example(" ".join(words)), example("word3 word4")]
    config = FeatureConfig(truncation="windows", max_length=12)
    first, long, last = found(model, tokenizer, asked, config)
    assert long.left_out == 0
    for short in (first, last):
        close_to_transformers(short.vectors, reference(short.example.text)[-1].mean(0))
    # 41 pieces in windows of at most ten: five of 9, 8, 8, 8 and 8
    edges = [0, 9, 17, 25, 33, 41]
    parts = [words[begin:end] for begin, end in pairwise(edges)]
    rows = [reference(" ".join(part))[-1] for part in parts]
    weights = [len(part) + 2 for part in parts]
    assert long.tokens == sum(weights)
    expected = np.average([row.mean(0) for row in rows], axis=0, weights=weights)
    close_to_transformers(long.vectors, expected)
    (tokens,) = found(
        model,
        tokenizer,
        [asked[1]],
        FeatureConfig(truncation="windows", max_length=12, pool="token"),
    )
    assert list(tokens.names) == ["[CLS]", *words, "[SEP]"]
    inner = np.concatenate([row[1:-1] for row in rows])
    close_to_transformers(tokens.vectors[1:-1], inner)


def test_pairs_are_read_as_one_but_have_no_words(model: Model, tokenizer: Tokenizer) -> None:
    pair = example("word1 word2", "word3", line=4)
    (got,) = found(model, tokenizer, [pair], FeatureConfig())
    assert (got.tokens, got.left_out) == (6, 0)
    (cut,) = found(model, tokenizer, [example("word1 " * 50, "word2 " * 10)], FeatureConfig())
    assert (cut.tokens, cut.left_out) == (29, 34)
    for config in (FeatureConfig(pool="word-mean"), FeatureConfig(truncation="windows")):
        with pytest.raises(ExampleError, match="memory:4: is a pair of texts"):
            found(model, tokenizer, [pair], config)


def test_a_stream_is_read_no_further_than_needed(model: Model, tokenizer: Tokenizer) -> None:
    read = 0

    def endless() -> Iterator[Example]:
        nonlocal read
        while True:
            read += 1
            yield example("word1")

    answers = features(model, tokenizer, endless(), rows=4)
    for _ in range(9):
        next(answers)
    assert read == 12
    assert torch.is_grad_enabled()


def test_a_prompt_and_lower_case_come_before_encoding(model: Model, tokenizer: Tokenizer) -> None:
    (got,) = features(
        model, tokenizer, [example("WORD2")], FeatureConfig(prompt="word1 ", lowercase=True)
    )
    (expected,) = features(model, tokenizer, [example("word1 word2")])
    assert np.array_equal(got.vectors, expected.vectors)
    assert got.example.text == "WORD2"
    with pytest.raises(ConfigError, match="leave the prompt out"):
        found(model, tokenizer, [], FeatureConfig(prompt="word1", pool="token"))


def test_texts_are_lowered_for_a_tokenizer_that_does_not_but_for_its_special_tokens(
    model: Model, tokenizer: Tokenizer
) -> None:
    cased = Tokenizer(tokenizer.vocabulary, BasicRules(lowercase=False))
    written, lower = "WORD2 [MASK] Word3", "word2 [MASK] word3"
    for texts in ((written, lower), (lower, written)):
        one, two = (replace(example(text), text_pair=pair) for text, pair in (texts, texts[::-1]))
        config = FeatureConfig(lowercase=True)
        first, second = (item.vectors for item in features(model, cased, [one, two], config))
        (expected,) = features(model, cased, [replace(example(lower), text_pair=lower)])
        close_when_regrouped(first, second)
        close_when_regrouped(first, expected.vectors)
    with pytest.raises(ConfigError, match="lower-case the text yourself"):
        found(model, cased, [], FeatureConfig(lowercase=True, pool="token"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pool": "median"}, "there is no pooling 'median'; it can be auto, cls, "),
        ({"pool": "cls+token"}, "there is no pooling 'cls+token'"),
        ({"pool": "pooler", "layer": "1"}, "the pooler reads the last layer"),
        ({"max_length": 4}, "--max-length is 4; it must be at least 5"),
        ({"layer": "3"}, "layer '3' asks for layer 3, and the model has 2"),
        ({"layer": "concat-last-4"}, "layer is 'concat-last-4', and the model has 2 layers"),
        ({"layer": "-1"}, "there is no layer '-1'; name one of 0 to 2, embeddings"),
        ({"layer": "mix:1"}, "1: cannot be read"),
        ({"layer": "mix:1,2,3,4"}, "4 weights for 2 layers; give 2, or 3"),
        ({"layer": "mix:1,two"}, "'1,two' is not a list of weights"),
        ({"layer": "mix:1,nan"}, "a weight of a layer is not a number"),
    ],
)
def test_impossible_settings_are_refused(
    model: Model, tokenizer: Tokenizer, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        found(model, tokenizer, examples(1), FeatureConfig.from_dict(settings))
    assert str(raised.value).startswith(message)


def test_a_pooler_that_is_not_there_is_named(model: Model, tokenizer: Tokenizer) -> None:
    bare = build_model(ModelConfig(encoder=model.config.encoder, pooler=False), seed=1)
    with pytest.raises(ConfigError, match="the model has no pooler; choose another"):
        found(bare, tokenizer, examples(1), FeatureConfig(pool="pooler"))


def test_the_last_four_layers(tokenizer: Tokenizer, model: Model, tmp_path: Path) -> None:
    deep = build_model(ModelConfig(encoder=replace(model.config.encoder, layers=6)), seed=3).eval()
    asked = examples(6)
    single = [
        found(deep, tokenizer, asked, FeatureConfig(layer=str(n), pool="token")) for n in range(7)
    ]
    for layer, join in (
        ("sum-last-4", lambda rows: np.sum(rows, axis=0)),
        ("concat-last-4", lambda rows: np.concatenate(rows, axis=1)),
    ):
        config = FeatureConfig(layer=layer, pool="token")
        for number, result in enumerate(found(deep, tokenizer, asked, config)):
            rows = [single[n][number].vectors.astype(np.float64) for n in range(3, 7)]
            close_when_regrouped(result.vectors, join(rows))
            assert result.vectors.shape[1] == width(deep, config)


def test_places_are_those_of_the_text_as_given_where_the_folder_lowers_it(
    model: Model, tokenizer: Tokenizer
) -> None:
    # in lower case each of these letters is two characters
    text = "\u0130\u0130\u0130\u0130\u0130\u0130 Word1 word2"
    (got,) = found(model, tokenizer, [example(text)], FeatureConfig(pool="token", lowercase=True))
    places = dict(zip(got.names, got.spans.tolist(), strict=True))
    assert [text[slice(*places[name])] for name in ("word1", "word2")] == ["Word1", "word2"]
