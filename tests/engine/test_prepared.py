"""Models made ready to answer: every family, head, wiring and precision against the network."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.batches.examples import EncodedExamples
from bertsmith.core.errors import ConfigError
from bertsmith.engine.answers import (
    Forward,
    class_probabilities,
    next_sentence_probabilities,
    option_scores,
    span_logits,
    tag_probabilities,
    text_outputs,
)
from bertsmith.engine.config import EngineConfig, FeatureConfig, Number
from bertsmith.engine.features import Features
from bertsmith.engine.language_model.fill_mask import MaskFilling
from bertsmith.engine.native import NativeEncoder, unsupported_reason
from bertsmith.engine.prepacked import PackedEncoder
from bertsmith.engine.prepared import Backend, Prepared, prepare_model
from bertsmith.network.batch import Batch
from bertsmith.network.config import EncoderConfig, ModelConfig, Predicts
from bertsmith.network.encoded import Encoded, Taps
from bertsmith.network.families.catalog import FAMILIES
from bertsmith.network.families.family import FamilyName
from bertsmith.network.model import Model, build_model, forward_only
from bertsmith.network.pooling import Dense
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer
from bounds import check

LENGTHS = (29, 3, 11, 11, 2, 23, 7, 1, 16)
SIZES: dict[str, Any] = {
    "vocabulary": 56, "hidden": 48, "layers": 4, "heads": 3, "feed_forward": 72, "longest": 29,
    "initial_std": 0.2,
}  # fmt: skip
WIRINGS: dict[str, dict[str, Any]] = {
    "pre-norm": {"norm": "before", "gated": True, "biases": False, "activation": "gelu_tanh"},
    "window": {"positions": "rotary", "window": 6, "global_every": 2},
    "causal": {"causal": True, "positions": "sinusoidal"},
    "bare": {"segments": 0, "positions": "none", "norm_epsilon": 0.03},
    "narrow": {"embedding": 16, "groups": 2},
}
LABELS = ("a", "b", "c")
Way = tuple[Backend, Number]
ENCODERS = {"torch": PackedEncoder, "native": NativeEncoder}


def family_config(name: FamilyName) -> EncoderConfig:
    wiring = {**FAMILIES[name].wiring}
    sizes = {**SIZES, "family": name} | wiring
    # ALBERT shares one block and has narrow tables
    if "groups" in wiring or name == "albert":
        sizes |= {"groups": 1, "embedding": 16}
    sizes["longest"] = 29
    return EncoderConfig(**sizes)


def trained(config: ModelConfig) -> Model:
    """A model whose biases and norms are not those that it starts from: all 0 and all 1."""
    model, random = build_model(config, seed=3), torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn(parameter.shape, generator=random), alpha=0.2)
    return model


def built(encoder: EncoderConfig, predicts: Predicts | None, **heads: Any) -> Model:  # noqa: ANN401
    pooler = FAMILIES[encoder.family].pooler == "encoder"
    if predicts is None:
        return trained(ModelConfig(encoder=encoder, pooler=pooler, **heads))
    labels = LABELS if predicts in ("class", "classes", "number", "tags") else ()
    bare = ModelConfig(encoder=encoder, pooler=pooler)
    return trained(bare.with_head(predicts, labels))


def encoded(sequences_per_unit: int = 1) -> EncodedExamples:
    random = np.random.default_rng(7)
    ids = [random.integers(5, 51, length).astype(np.int32) for length in LENGTHS]
    segments = [(np.arange(length) > length // 2).astype(np.int8) for length in LENGTHS]
    places = [np.arange(0, length, 3) for length in LENGTHS]
    whole = EncodedExamples.of(ids, segments)
    if sequences_per_unit > 1:
        return whole.grouped([sequences_per_unit] * (len(LENGTHS) // sequences_per_unit))
    return replace(whole, positions=places)


Output = Callable[[Model, Forward], list[NDArray[np.float32]]]


def outputs_of(predicts: Predicts | None) -> Output:
    functions: dict[Predicts | None, tuple[Callable[..., Any], EncodedExamples]] = {
        None: (next_sentence_probabilities, encoded()),
        "class": (class_probabilities, encoded()),
        "classes": (text_outputs, encoded()),
        "number": (text_outputs, encoded()),
        "tags": (tag_probabilities, encoded()),
        "span": (span_logits, encoded()),
        "choice": (option_scores, encoded(3)),
    }
    function, units = functions[predicts]

    def output(model: Model, forward: Forward) -> list[NDArray[np.float32]]:
        return list(function(model, units, replace(forward, tokens_per_batch=60)))

    return output


WAYS = [
    pytest.param((backend, precision), id=f"{backend}-{precision}")
    for backend in ("torch", "native")
    for precision in ("fp32", "bf16", "int8")
    if (backend, precision) != ("torch", "int8")
]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    """A backend with a precision that this machine has."""
    backend, precision = request.param
    reason = unsupported_reason(EncoderConfig(**SIZES), precision) if backend == "native" else None
    if reason:
        pytest.skip(reason)
    return backend, precision


def prepared(model: Model, way: Way, **settings: Any) -> Prepared:  # noqa: ANN401
    config = EngineConfig(precision=way[1], **settings)
    return prepare_model(copy.deepcopy(model), config, backend=way[0])


def of_network(model: Model) -> Prepared:
    return Prepared(model=model, backend="network", precision="fp32", threads=1)


def close(found: Sequence[Any], expected: Sequence[Any], precision: str) -> None:
    """In fp32 to rounding, otherwise by the cosine of all values together."""
    assert len(found) == len(expected)
    mine, other = (
        np.concatenate([np.ravel(part) for part in parts]).astype(np.float64)
        for parts in (found, expected)
    )
    if precision == "fp32":
        check(mine, other, 1e-5)
        return
    least = {"bf16": 0.9995, "int8": 0.99}[precision]
    assert mine @ other >= least * np.linalg.norm(mine) * np.linalg.norm(other)
    assert not np.array_equal(mine, other)


FAMILY_NAMES: list[FamilyName] = list(FAMILIES)
PREDICTS: list[Predicts] = ["class", "classes", "number", "tags", "span", "choice"]


@functools.cache
def head_answers(family: FamilyName, predicts: Predicts) -> tuple[Model, list[NDArray[np.float32]]]:
    """A model with a head, and what it answers."""
    model = built(family_config(family), predicts).eval()
    return model, outputs_of(predicts)(model, Forward())


def heads() -> list[Any]:
    """Families with heads: every head of BERT, every family twice, and in `make faults` all."""
    quick = {("bert", predicts) for predicts in PREDICTS}
    for number, family in enumerate(FAMILY_NAMES):
        quick |= {(family, PREDICTS[(number + step) % len(PREDICTS)]) for step in (0, 3)}
    return [
        pytest.param(*pair, marks=() if pair in quick else pytest.mark.faults)
        for pair in itertools.product(FAMILY_NAMES, PREDICTS)
    ]


@pytest.mark.parametrize(("family", "predicts"), heads())
def test_heads_answer_as_on_the_network(family: FamilyName, predicts: Predicts, way: Way) -> None:
    model, expected = head_answers(family, predicts)
    engine = prepared(model, way)
    assert (engine.backend, engine.precision) == way
    assert isinstance(engine.model.encoder, ENCODERS[way[0]])
    close(outputs_of(predicts)(engine.model, engine.forward), expected, engine.precision)


@functools.cache
def wired(wiring: Any) -> tuple[Model, list[tuple[Batch, Tensor | None, Taps, Encoded]]]:  # noqa: ANN401
    """A model, and its states of batches: at all places or some, some layers or the last alone."""
    config = (
        family_config(wiring)
        if wiring in FAMILIES
        else EncoderConfig(**{**SIZES, **WIRINGS[wiring]})
    )
    model = trained(ModelConfig(encoder=config, pooler=False)).eval()
    taps = Taps(states=frozenset({0, 2, 4}))
    return model, [
        (batch, at, tapped, model.encoder(batch, selected=at, taps=tapped))
        for _, batch in Forward(tokens_per_batch=60).batches(model, encoded())
        for at in (None, batch.starts, batch.ids[:0], torch.arange(0, batch.tokens, 4))
        for tapped in (Taps(), taps)
    ]


@pytest.mark.parametrize("wiring", [*FAMILY_NAMES, *WIRINGS])
def test_every_wiring_gives_the_states_of_the_network(
    wiring: Any,  # noqa: ANN401
    way: Way,
) -> None:
    model, expected = wired(wiring)
    precision, engine = way[1], prepared(model, way)
    for batch, at, tapped, other in expected:
        with forward_only(engine.model, engine.forward.precision):
            mine = engine.model.encoder(batch, selected=at, taps=tapped)
        assert mine.states.keys() == other.states.keys()
        for layer, state in mine.states.items():
            # narrow tables are widened by a product
            if layer or model.config.encoder.embedding is None:
                bound = precision if layer else "fp32"
                close([state], [other.states[layer]], bound)
        if at is None or len(at):
            assert mine.last.dtype == torch.float32
            close([mine.last], [other.last], precision)


def test_pretraining_heads_answer_as_on_the_network(tokenizer: Tokenizer, way: Way) -> None:
    model = built(family_config("bert"), None, masked_lm=True, next_sentence=True).eval()
    asked = [text("word1 [MASK] word2"), text("[MASK] word7 [MASK] word9 word11")]

    def shares(engine: Prepared) -> list[list[float]]:
        filling = MaskFilling(engine.model, tokenizer, top=3, among=range(6, 30))
        filled = engine.predictor(filling)(asked)
        return [[item.probability for item in mask] for own in filled for mask in own.masks]

    network, pairs = of_network(model), outputs_of(None)
    engine = prepared(model, way)
    close(shares(engine), shares(network), engine.precision)
    close(pairs(engine.model, engine.forward), pairs(model, Forward()), engine.precision)


def text(words: str) -> Example:
    return Example(text=words, text_pair=None, label=None, source="m", line=1)


def texts(count: int) -> list[Example]:
    random = np.random.default_rng(3)
    sizes = random.integers(1, 25, count)
    return [text(" ".join(f"word{n}" for n in random.integers(0, 46, size))) for size in sizes]


@pytest.mark.parametrize("pool", ["mean", "cls", "pooler", "token", "word-mean"])
def test_vectors_are_those_of_the_network(pool: str, tokenizer: Tokenizer, way: Way) -> None:
    model = built(family_config("bert"), None, masked_lm=True).eval()
    asked = texts(13)

    def vectors(engine: Prepared) -> list[NDArray[np.float32]]:
        extraction = Features(engine.model, tokenizer, FeatureConfig(pool=pool), ())
        return [item.vectors for item in engine.predictor(extraction)(asked)]

    close(vectors(prepared(model, way)), vectors(of_network(model)), way[1])


@pytest.mark.parametrize("pool", ["mean", "pooler"])
def test_reproducible_answers_have_the_same_bits_among_others(
    pool: str, way: Way, tokenizer: Tokenizer
) -> None:
    model = built(family_config("bert"), None)
    engine = prepared(model, way, reproducible=True)
    random = torch.Generator().manual_seed(2)
    weight, bias = (torch.randn(shape, generator=random) for shape in ((65, 48), (65,)))
    after = (Dense(weight, bias, "Tanh"),)
    extraction = Features(engine.model, tokenizer, FeatureConfig(pool=pool), after)
    predictor, asked = engine.predictor(extraction), texts(17)
    alone = [next(predictor([request])).vectors for request in asked]
    for item, expected in zip(predictor(asked), alone, strict=True):
        assert np.array_equal(item.vectors, expected)


def test_the_blocks_are_held_once(model: Model, way: Way) -> None:
    engine = prepared(model, way)
    names = [name for name, _ in engine.model.named_parameters()]
    assert any(name.startswith("encoder.embeddings.tokens") for name in names)
    assert not any("feed_forward.up" in name or "query" in name for name in names)


def test_precision_threads_and_backend_are_told(model: Model) -> None:
    engine = prepared(model, ("torch", "fp32"), threads=3, reproducible=True)
    assert str(engine) == "fp32, torch, 3 threads, reproducible"
    assert engine.to_dict() == {"precision": "fp32", "backend": "torch", "threads": 3}
    measured = prepare_model(copy.deepcopy(model), EngineConfig(), automatic="fp32")
    assert measured.precision == "fp32"


def test_int8_without_kernels_is_refused(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "bertsmith.engine.prepared.unsupported_reason", lambda *_: "there are none here"
    )
    with pytest.raises(ConfigError, match="no int8 products: there are none here"):
        prepare_model(model, EngineConfig(precision="int8"))
    assert prepare_model(copy.deepcopy(model), EngineConfig()).backend == "torch"
    with pytest.raises(ConfigError, match="--threads is 0"):
        EngineConfig(threads=0)


@pytest.mark.parametrize("has_bf16", [True, False])
def test_auto_is_what_is_asked_of_it_and_can_be_computed(
    model: Model, monkeypatch: pytest.MonkeyPatch, has_bf16: bool
) -> None:
    prepared_module = "bertsmith.engine.prepared"
    monkeypatch.setattr(f"{prepared_module}.unsupported_reason", lambda *_: "there are none here")
    monkeypatch.setattr(f"{prepared_module}._multiplies_bf16", lambda _: has_bf16)
    fastest: Number = "bf16" if has_bf16 else "fp32"
    asked: dict[Number | None, Number] = {None: fastest, "int8": fastest, "fp32": "fp32"}
    for automatic, expected in asked.items():
        engine = prepare_model(copy.deepcopy(model), EngineConfig(), automatic=automatic)
        assert engine.precision == expected, automatic
