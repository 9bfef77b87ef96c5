"""Scores of texts against a loop over transformers' models, one masked token at a time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.engine.answers import Forward
from bertsmith.engine.config import EngineConfig, Masking
from bertsmith.engine.language_model.likelihood import TextScore, TextScoring
from bertsmith.engine.predictor import Predictor
from bertsmith.engine.prepared import prepare_model
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import build_model
from bertsmith.text.examples.reading import Example
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.weights.folder import load_model, save_model
from bounds import close_statistics, close_to_transformers

MASK = 4
PIECES = ("play", "work", "tea", "run", "cold", "##ing", "##ed", "##er", "##s")
TEXTS = [
    "playinged workers tea", "tea", "cold unheard working", "tea tea tea tea runs cold playeders",
    "runeder", "work cold run",
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer((*SPECIALS, *PIECES), BasicRules(lowercase=True))


@pytest.fixture(scope="module", params=[False, True], ids=["masked", "left-to-right"])
def folder(
    request: pytest.FixtureRequest, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    encoder = EncoderConfig(
        vocabulary=tokenizer.size + 3, hidden=24, layers=2, heads=3, feed_forward=37, longest=17,
        initial_std=0.4, causal=request.param, pooled="last" if request.param else "first",
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("scored") / "model"
    model = build_model(ModelConfig(encoder=encoder, pooler=False, masked_lm=True), seed=11)
    save_model(folder, model, tokenizer)
    return folder


def example(text: str, pair: str | None = None) -> Example:
    return Example(text=text, text_pair=pair, label=None, source="memory", line=3)


def scores(
    folder: Path, texts: list[Example], masking: Masking = "token"
) -> list[tuple[TextScore, ...]]:
    model, tokenizer = load_model(folder)
    answering = TextScoring(model, tokenizer, masking)
    return list(prepare_model(model, EngineConfig(precision="fp32")).predictor(answering)(texts))


@torch.no_grad()
def loop(folder: Path, ids: list[int], size: int, ends: list[int]) -> list[float]:
    """Return the log-probability of each token, one pass for each; masked up to `ends`."""
    if not ends:
        model = transformers.BertLMHeadModel.from_pretrained(folder).eval()
        shares = model(torch.tensor([ids])).logits[0, :, :size].log_softmax(-1)
        return [float(shares[place - 1, ids[place]]) for place in range(1, len(ids) - 1)]
    model = transformers.BertForMaskedLM.from_pretrained(folder).eval()
    found = []
    for place, end in enumerate(ends, 1):
        masked = [MASK if place <= number < end else id_ for number, id_ in enumerate(ids)]
        shares = model(torch.tensor([masked])).logits[0, place, :size].log_softmax(-1)
        found.append(float(shares[ids[place]]))
    return found


def word_ends(pieces: list[str]) -> list[int]:
    """Return for each piece the place after its word, [CLS] being place 0."""
    whole = [not piece.startswith("##") for piece in pieces] + [True]
    return [1 + whole.index(True, place + 1) for place in range(len(pieces))]


@pytest.mark.parametrize("masking", ["token", "word-l2r"])
def test_scores_are_those_of_a_loop_over_single_masks(
    folder: Path, tokenizer: Tokenizer, masking: Masking
) -> None:
    causal = load_model(folder)[0].config.encoder.causal
    if causal and masking != "token":
        with pytest.raises(ConfigError, match="reads from left to right"):
            scores(folder, [], masking=masking)
        return
    found = scores(folder, [example(text) for text in TEXTS], masking=masking)
    for text, (own,) in zip(TEXTS, found, strict=True):
        pieces = tokenizer.pieces(text)
        assert own.pieces == tuple(pieces)
        ids = [2, *tokenizer.encode([text])[0].tolist(), 3]
        ends = [] if causal else [place + 2 for place in range(len(pieces))]
        if masking == "word-l2r":
            ends = word_ends(pieces)
        expected = loop(folder, ids, tokenizer.size, ends)
        close_to_transformers(own.log_probabilities, expected)
        close_to_transformers([own.total], [sum(expected)])


def test_a_pair_is_two_texts_each_by_itself(folder: Path) -> None:
    alone = scores(folder, [example(text) for text in TEXTS])
    pairs = scores(folder, [example(TEXTS[n], TEXTS[n + 1]) for n in (0, 2, 4)])
    flat = [item.total for pair in pairs for item in pair]
    assert flat == pytest.approx([item.total for (item,) in alone], abs=1e-5)


def test_batches_of_any_size_give_the_same(
    folder: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_model(folder)[0]
    texts = [example(text) for text in TEXTS]

    def totals(forward: Forward) -> list[float]:
        answering = TextScoring(model, tokenizer)
        found = Predictor(model=model, answering=answering, forward=forward)(texts, rows=4)
        return [result.total for (result,) in found]

    whole = totals(Forward())
    monkeypatch.setattr("bertsmith.engine.language_model.likelihood._TOKENS", 60)
    monkeypatch.setattr("bertsmith.engine.language_model.cloze.ROWS_PROJECTED", 3)
    close_statistics(totals(Forward(tokens_per_batch=31)), whole)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tea [MASK]", r"memory:3: holds \[MASK\], but every token is scored"),
        ("tea " * 16, "memory:3: the text is longer than the 17 tokens"),
    ],
)
def test_what_cannot_be_scored_is_named(folder: Path, text: str, message: str) -> None:
    with pytest.raises(ExampleError, match=message):
        scores(folder, [example(TEXTS[0]), example(text)])
