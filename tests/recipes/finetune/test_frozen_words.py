"""Linear models of tags on frozen layers that are made to hold the answer, or not to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from sklearn.linear_model import LogisticRegression

from bertsmith.network.batch import Batch
from bertsmith.network.encoded import Encoded, Taps
from bertsmith.recipes.finetune.config import (
    ExperimentConfig,
    FinetuneConfig,
    FinetuneSettings,
)
from bertsmith.recipes.finetune.frozen import (
    MIX,
    _fit,
    _predict,
    frozen_baselines,
    mixes,
)
from bertsmith.recipes.finetune.inputs import LabelledData, prepare
from bertsmith.recipes.finetune.recipe import finetune
from bertsmith.tasks.table import TASKS
from bertsmith.tasks.task import ReadingLimits
from bertsmith.text.examples.tagged import Tagged, joined
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import start_from
from bounds import close_to_float64


def sentence(number: int) -> Tagged:
    """Words whose tags the word before decides; the first has always the same."""
    random = np.random.default_rng(number)
    numbers = random.integers(0, 30, int(random.integers(3, 60)))
    text, words = joined([f"word{item}" for item in numbers])
    tags = ("EVEN", *("ODD" if item % 2 else "EVEN" for item in numbers[:-1]))
    return Tagged(
        text=text, words=words, tags=tags, entities=None, document=0, source="memory", line=number
    )


def test_the_layer_that_holds_the_tags_is_found(
    base_folder: Path, tiny_tokenizer: Tokenizer
) -> None:
    task = next(task for task in TASKS.values() if task.head == "tags")
    rows = [sentence(number) for number in range(70)]
    data = LabelledData(
        task=task, labels=("EVEN", "ODD"), train=rows[:50], dev=rows[50:], dev_is_cut=False
    )
    # long sentences are read in windows
    prepared = prepare(data, tiny_tokenizer, ReadingLimits(longest=24))
    assert len(prepared.dev) > 20
    model, _ = start_from(base_folder, predicts="tags", labels=("EVEN", "ODD"))
    numbers = (piece.removeprefix("word") for piece in tiny_tokenizer.vocabulary)
    odd = torch.tensor([int(number) % 2 if number.isdecimal() else 0 for number in numbers])

    def encode(batch: Batch, *, taps: Taps) -> Encoded:
        before = F.one_hot(odd[batch.ids].roll(1), 24).float()
        states = {0: F.one_hot(batch.ids % 24, 24).float(), 1: before, 2: torch.zeros_like(before)}
        assert taps.states == states.keys()
        return Encoded(last=states[2], states=states)

    model.encoder.forward = encode  # type: ignore[method-assign,assignment]
    rivals = {rival.name: rival for rival in frozen_baselines(model, prepared, (4, 9))}
    assert list(rivals) == ["frozen, embeddings", "frozen, layer 1", "frozen, layer 2", MIX]
    words = sum(len(row.words) for row in data.dev)
    assert all(len(rival.scores) == 2 for rival in rivals.values())
    one, other = rivals[MIX].evidences
    assert one[:, 3].sum() == other[:, 3].sum() == words
    # each seed has an order of its own
    alone = [frozen_baselines(model, prepared, (seed,))[-1].shares for seed in (4, 9)]
    assert alone[0] != alone[1]
    assert np.mean(alone, axis=0).tolist() == list(rivals[MIX].shares)
    assert rivals["frozen, layer 1"].mean > 0.99
    assert rivals["frozen, embeddings"].mean < 0.7
    assert rivals["frozen, layer 2"].mean < 0.7
    assert rivals[MIX].mean > 0.99
    shares = rivals[MIX].detail.rpartition("shares of the layers: ")[2].split(", ")
    first, second = map(float, shares)
    assert first > second


def test_few_words_are_learned_as_well_as_logistic_regression_learns_them() -> None:
    """To the end, and not only as far as ten epochs of a few batches lead."""
    random = np.random.default_rng(0)
    features = random.normal(size=(900, 40))
    scores = features[:, :3] + random.normal(size=(900, 3))
    targets = scores.argmax(1)
    states = torch.from_numpy(features)[None].half()
    scale = states.float().mean(1, keepdim=True), states.float().std(1, keepdim=True)
    mix = mixes(1)["frozen, embeddings"]
    known = states[:, :400], scale, torch.from_numpy(targets[:400])
    found = _predict(mix, _fit(mix, *known, 3, 0), states[:, 400:], scale)
    scaled = ((states.float() - scale[0]) / scale[1])[0].numpy()
    expected = LogisticRegression(C=0.05).fit(scaled[:400], targets[:400])
    assert found == pytest.approx(expected.predict_proba(scaled[400:]), abs=0.05)


def test_a_run_that_gets_more_seeds_has_as_many_of_its_baselines(
    base_folder: Path, tmp_path: Path
) -> None:
    train = tmp_path / "train.conll"
    lines = [f"word{n} {'ODD' if n % 2 else 'EVEN'}" for n in range(30)]
    train.write_text("\n\n".join("\n".join(lines[n : n + 5]) for n in range(26)) + "\n")
    for seeds in (1, 2):
        outcome = finetune(
            FinetuneConfig(
                model=base_folder,
                train=train,
                out=tmp_path / "run",
                settings=FinetuneSettings(epochs=1, batch_size=16, baseline=False),
                experiment=ExperimentConfig(seeds=seeds, side_by_side=1, baselines=True),
            )
        )
        frozen = [rival for rival in outcome.baselines if rival.name.startswith("frozen")]
        assert frozen
        assert {len(rival.scores) for rival in frozen} == {seeds}


@pytest.mark.parametrize(("layers", "count"), [(1, 3), (3, 5), (4, 8), (12, 16)])
def test_the_mixes_are_those_of_the_table(layers: int, count: int) -> None:
    states = torch.randn(layers + 1, 7, 5, dtype=torch.float64)
    found = {name: mix(states[mix.layers.start : mix.layers.stop].float())
             for name, mix in mixes(layers).items()}  # fmt: skip
    assert len(found) == count
    assert torch.equal(found["frozen, embeddings"], states[0].float())
    assert torch.equal(found[f"frozen, layer {layers}"], states[-1].float())
    close_to_float64(found[MIX], states[1:].mean(0))
    if layers >= 4:
        total = found["frozen, sum of the last four"]
        close_to_float64(total, states[-4:].sum(0))
        both = found["frozen, concatenation of the last four"]
        assert torch.equal(both, states[-4:].permute(1, 0, 2).flatten(1).float())
