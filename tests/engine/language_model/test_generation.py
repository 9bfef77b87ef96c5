"""Texts written by masked and left-to-right models, against loops over transformers' models."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.engine.answers import Forward
from bertsmith.engine.config import WritingConfig
from bertsmith.engine.language_model.cloze import predictions
from bertsmith.engine.language_model.generation import TextWriting, Written
from bertsmith.engine.predictor import Predictor
from bertsmith.network.config import EncoderConfig, ModelConfig
from bertsmith.network.model import Model, build_model
from bertsmith.text.examples.reading import Example
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import SPECIALS
from bertsmith.weights.folder import save_model

MASK, CLS, SEP, FIRST = 4, 2, 3, 5
TOKENIZER = Tokenizer((*SPECIALS, *(f"word{n}" for n in range(23))), BasicRules(lowercase=True))


def model_of(causal: bool) -> Model:
    encoder = EncoderConfig(
        vocabulary=TOKENIZER.size, hidden=24, layers=2, heads=3, feed_forward=37, longest=29,
        initial_std=0.3, causal=causal, pooled="last" if causal else "first",
    )  # fmt: skip
    return build_model(ModelConfig(encoder=encoder, pooler=False, masked_lm=True), seed=7)


def written(
    model: Model, prompt: str = "word3 word1", samples: int = 1, **how: object
) -> list[Written]:
    config = WritingConfig.from_dict(how)
    example = Example(text=prompt, text_pair=None, label=None, source="prompt", line=1)
    answering = TextWriting(model, TOKENIZER, config)
    return list(Predictor(model=model, answering=answering)([example] * samples))


@torch.no_grad()
def shares(reference: torch.nn.Module, ids: list[int]) -> torch.Tensor:
    """Return the log-probabilities at each place; special tokens have none."""
    logits: torch.Tensor = reference(torch.tensor([ids])).logits
    found = logits[0].log_softmax(-1)
    found[:, :FIRST] = -torch.inf
    return found


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Model, torch.nn.Module]:
    folder: Path = tmp_path_factory.mktemp("masked") / "model"
    model = model_of(causal=False)
    save_model(folder, model, TOKENIZER)
    return model, transformers.BertForMaskedLM.from_pretrained(folder).eval()


def test_masks_are_filled_from_left_to_right(masked: tuple[Model, torch.nn.Module]) -> None:
    model, reference = masked
    (found,) = written(model, length=5, temperature=0)
    ids = [CLS, 8, 6, *[MASK] * 5, SEP]
    for place in range(3, 8):
        ids[place] = int(shares(reference, ids)[place].argmax())
    assert found.ids.tolist() == ids[3:8]
    assert found.text == TOKENIZER.decode(ids[1:8])
    assert found.passes == 5


def test_the_least_probable_are_masked_again(masked: tuple[Model, torch.nn.Module]) -> None:
    model, reference = masked
    length, passes = 7, 4
    (found,) = written(model, length=length, temperature=0, how="mask-predict", passes=passes)
    ids = [CLS, 8, 6, *[MASK] * length, SEP]
    certain = dict.fromkeys(range(3, 3 + length), -np.inf)
    for done in range(passes):
        again = sorted(certain, key=lambda place: certain[place])[
            : length * (passes - done) // passes
        ]
        for place in again:
            ids[place] = MASK
        every = shares(reference, ids)
        for place in again:
            ids[place] = int(every[place].argmax())
            certain[place] = float(every[place].max())
    assert found.ids.tolist() == ids[3 : 3 + length]


def test_passes_of_any_number_take_no_memory() -> None:
    for length, passes in ((1, 1), (1, 5), (7, 4), (7, 100), (40, 10), (3, 3)):
        config = WritingConfig(length=length, how="mask-predict", passes=passes)
        counts = [length * (passes - done) // passes for done in range(passes)]
        assert list(config.masked_again) == [count for count in counts if count]
        assert config.passes_made == len(list(config.masked_again))
    most = WritingConfig(length=40, how="mask-predict", passes=10**18)
    assert most.passes_made == 10**18 - 10**18 // 40 + 1
    assert list(islice(most.masked_again, 3)) == [40, 39, 39]


def test_a_single_token_is_drawn_as_often_as_it_is_probable(
    masked: tuple[Model, torch.nn.Module],
) -> None:
    model, reference = masked
    expected = shares(reference, [CLS, 8, 6, MASK, SEP])[3].exp()
    expected /= expected.sum()
    best = expected.topk(3).indices.tolist()
    for how in ("left-to-right", "mask-predict", "gibbs"):
        # a chain over one token draws it anew whatever it was
        options: dict[str, Any] = {} if how == "left-to-right" else {"passes": 1}
        found = written(model, samples=600, length=1, how=how, **options)
        counts = Counter(int(result.ids[0]) for result in found)
        for token in range(FIRST, TOKENIZER.size):
            share = float(expected[token])
            spread = 4.5 * (share * (1 - share) / 600) ** 0.5
            assert abs(counts[token] / 600 - share) < spread + 1e-9
        few = written(model, samples=60, length=1, how=how, top_k=3, **options)
        assert {int(item.ids[0]) for item in few} == set(best)


def test_gibbs_draws_every_token_in_each_round_and_depends_on_the_seed(
    masked: tuple[Model, torch.nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, _ = masked
    asked: list[list[int]] = []
    batches = Forward.batches

    def watched(self: Forward, model: Model, examples: object) -> object:
        asked.append(examples.ids[0].tolist())  # type: ignore[attr-defined]
        return batches(self, model, examples)  # type: ignore[arg-type]

    monkeypatch.setattr(Forward, "batches", watched)
    (first,) = written(model, length=6, how="gibbs", passes=12)
    assert len(asked) == first.passes == 12
    # one mask more is filled in each pass of the first round; then there is one at a time
    assert [ids.count(MASK) for ids in asked] == [6, 5, 4, 3, 2, 1] + [1] * 6
    assert sorted(ids.index(MASK) for ids in asked[6:]) == list(range(3, 9))
    monkeypatch.undo()
    again, other = (written(model, length=6, how="gibbs", passes=12, seed=seed) for seed in (0, 1))
    assert again[0].ids.tolist() == first.ids.tolist() != other[0].ids.tolist()
    two = written(model, length=6, how="gibbs", passes=12, samples=2)
    assert two[0].ids.tolist() == first.ids.tolist() != two[1].ids.tolist()
    assert min(two[1].ids) >= FIRST


def test_a_left_to_right_model_writes_what_transformers_generates(tmp_path: Path) -> None:
    model = model_of(causal=True)
    save_model(tmp_path / "model", model, TOKENIZER)
    reference = transformers.BertLMHeadModel.from_pretrained(tmp_path / "model").eval()
    (found,) = written(model, length=6, temperature=0)
    ids = [CLS, 8, 6]
    for _ in range(6):
        ids.append(int(shares(reference, ids)[-1].argmax()))
    assert found.ids.tolist() == ids[3:]
    with pytest.raises(ConfigError, match="reads from left to right"):
        written(model, how="gibbs")


def test_what_cannot_be_written_is_named(masked: tuple[Model, torch.nn.Module]) -> None:
    model, _ = masked
    with pytest.raises(ExampleError, match="the prompt and 26 tokens are more than the 29"):
        written(model, length=26)
    with pytest.raises(ExampleError, match=r"holds \[MASK\], and the text is written after"):
        written(model, prompt="[MASK]", length=2)
    with pytest.raises(ConfigError, match="gibbs needs at least one a token"):
        WritingConfig(how="gibbs", passes=3)


@pytest.mark.parametrize(("length", "passes"), [(5, 10), (1, 10), (7, 3), (10, 10)])
def test_the_passes_that_are_told_are_those_made(
    length: int, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def counted(*values: object) -> object:
        made.append(values)
        return predictions(*values)  # type: ignore[arg-type]

    monkeypatch.setattr("bertsmith.engine.language_model.generation.predictions", counted)
    (found,) = written(model_of(causal=False), how="mask-predict", length=length, passes=passes)
    assert found.passes == len(made)


@pytest.mark.parametrize("causal", [False, True])
def test_next_to_no_temperature_is_as_good_as_none(causal: bool) -> None:
    model = model_of(causal)
    (cold,) = written(model, length=5, temperature=1e-308)
    (none,) = written(model, length=5, temperature=0)
    assert cold.ids.tolist() == none.ids.tolist()
