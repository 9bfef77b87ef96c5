"""Linear models over what a model knows before it is fine-tuned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import RidgeCV

from bertsmith.network.batch import Batch
from bertsmith.network.config import ModelConfig
from bertsmith.network.encoded import Encoded, Taps
from bertsmith.network.model import build_model
from bertsmith.recipes.finetune.baselines import linear_answers
from bertsmith.recipes.finetune.frozen import FROZEN_STRENGTHS, frozen_baselines
from bertsmith.recipes.finetune.inputs import LabelledData, prepare
from bertsmith.tasks.classify import CLASSIFY
from bertsmith.tasks.regression import REGRESSION
from bertsmith.tasks.task import ReadingLimits, Task
from bertsmith.text.examples.reading import Example
from bertsmith.tokens.learning.bpe import learn_byte_bpe
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import start_from
from families import ENCODERS


@pytest.mark.parametrize("task", [CLASSIFY, REGRESSION], ids=["class", "number"])
def test_the_mix_is_of_layers_as_they_were_when_its_shares_were_learned(
    task: Task[Example], base_folder: Path, tiny_tokenizer: Tokenizer
) -> None:
    """The layer that knows has small numbers, the other one large ones that say nothing."""
    random = np.random.default_rng(2)
    rows = []
    for n in range(160):
        words = [f"word{k}" for k in random.integers(0, 30, 5)]
        rows.append(
            Example(
                text=" ".join([*words, "good" if n % 2 else "bad"]),
                text_pair=None,
                label=str(n % 2),
                number=70_000.0 + 20_000 * (n % 2) + float(random.normal()),
                source="memory",
                line=n,
            )
        )
    data = LabelledData(
        task=task,
        labels=task.labels.names(rows, ()),
        train=rows[:100],
        dev=rows[100:],
        dev_is_cut=False,
    )
    prepared = prepare(data, tiny_tokenizer, ReadingLimits(longest=32))
    model, _ = start_from(base_folder, labels=("0", "1"))
    noise = 1000 * torch.randn(37, 24, generator=torch.Generator().manual_seed(1))
    known = torch.zeros(37, 24)
    known[-2:, 0] = torch.tensor([0.01, -0.01])

    def encode(batch: Batch, *, taps: Taps) -> Encoded:
        # of the words of chance alone, so that the other says nothing of good and bad
        chance = noise * (torch.arange(37) < 35)[:, None]
        states = {0: chance[batch.ids], 1: known[batch.ids]}
        assert taps.states >= states.keys()
        return Encoded(last=states[1], states=states)

    model.encoder.forward = encode  # type: ignore[method-assign,assignment]
    state = torch.get_rng_state()
    scores = {rival.name: rival.mean for rival in frozen_baselines(model, prepared, (0,))}
    # other threads draw from the same generator
    assert torch.equal(torch.get_rng_state(), state)
    assert scores["frozen, layer 1"] > 0.99
    assert scores["frozen, embeddings"] < 0.75
    assert scores["frozen, mix of the layers"] > 0.95


def test_the_texts_of_a_pair_are_told_apart_without_segments() -> None:
    """A RoBERTa has none, and whether two texts are one is in no mean over both."""
    names = ["river", "bank", "house", "wide", "deep", "cold", "north"]
    tokenizer = learn_byte_bpe([f"{one} {other}" for one in names for other in names], size=330)
    assert not tokenizer.segments
    random = np.random.default_rng(3)
    rows = []
    for n in range(240):
        one, other = random.choice(names, 2, replace=False)
        rows.append(
            Example(
                text=one, text_pair=one if n % 2 else other, label=str(n % 2), source="memory",
                line=n,
            )
        )  # fmt: skip
    data = LabelledData(
        task=CLASSIFY, labels=("0", "1"), train=rows[:160], dev=rows[160:], dev_is_cut=False
    )
    prepared = prepare(data, tokenizer, ReadingLimits(longest=23))
    encoder = replace(ENCODERS["roberta"], vocabulary=tokenizer.size, layers=1, initial_std=0.3)
    model = build_model(ModelConfig(encoder=encoder), seed=7)
    scores = {rival.name: rival.mean for rival in frozen_baselines(model, prepared, (0,))}
    assert scores["mean static vectors + linear"] > 0.9
    assert scores["frozen, layer 1"] > 0.9


def test_rows_of_one_class_are_all_that_is_ever_said() -> None:
    features = np.eye(4)
    answers, _ = linear_answers("class", features, np.array([2, 2, 2, 2]), features[:1], 3)
    assert answers[0].tolist() == [0, 0, 1]


def test_many_features_of_noisy_numbers_are_shrunk_as_far_as_it_pays() -> None:
    """Of 200 features and 300 rows, nearly all of what a search of any strength finds."""
    random = np.random.default_rng(0)
    features = random.normal(size=(800, 200))
    known = features @ random.normal(size=200) / np.sqrt(200)
    numbers = known + 3 * random.normal(size=800)
    answers, _ = linear_answers(
        "number", features[:300], numbers[:300], features[300:], 1, FROZEN_STRENGTHS
    )
    searched = RidgeCV(alphas=np.logspace(-1, 5, 25)).fit(features[:300], numbers[:300])
    best = np.corrcoef(searched.predict(features[300:]), known[300:])[0, 1]
    assert np.corrcoef(answers, known[300:])[0, 1] > best - 0.01
