"""The cells of a grid that fit into some minutes, in turn and side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from bertsmith.network.model import Model
from bertsmith.recipes.finetune.config import FinetuneSettings
from bertsmith.recipes.finetune.experiment import search
from bertsmith.recipes.finetune.inputs import LabelledData, prepare
from bertsmith.recipes.finetune.trial import Trial, TrialResult
from bertsmith.recipes.finetune.trials import Trials
from bertsmith.tasks.classify import CLASSIFY
from bertsmith.tasks.task import ReadingLimits
from bertsmith.text.examples.reading import Example
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training.run_folder import RunFolder


class MinuteTrials(Trials):
    """Trainings of a minute an epoch on the clock, without training."""

    def __init__(self, at_once: int) -> None:
        super().__init__(RunFolder(Path("nowhere")))
        self._number = at_once
        self.waves: list[int] = []

    @property
    def at_once(self) -> int:
        return self._number

    def result(self, subfolder: str) -> TrialResult | None:
        return None

    def train(self, trials: Sequence[Trial], *, keep_best: bool = False) -> list[TrialResult]:
        self.waves.append(len(trials))
        result = TrialResult(
            seed=9, scores={"accuracy": 0.5}, constant=False, losses=[], seconds=1.0, tokens=1
        )
        return [replace(result, elapsed=60.0 * trial.settings.chosen_epochs) for trial in trials]


def no_model(seed: int) -> Model:
    raise AssertionError


@pytest.fixture
def cells(tiny_tokenizer: Tokenizer) -> list[Trial]:
    """Eight cells, the last four of two epochs."""
    rows = [
        Example(text="word1", text_pair=None, label=label, source="memory", line=1)
        for label in ("a", "b")
    ]
    data = LabelledData(task=CLASSIFY, labels=("a", "b"), train=rows, dev=rows, dev_is_cut=False)
    prepared = prepare(data, tiny_tokenizer, ReadingLimits(longest=16))
    return [
        Trial(
            subfolder=f"grid/{number}",
            title=str(number),
            settings=FinetuneSettings(learning_rate=5e-5, epochs=1 + number // 4),
            seed=9,
            make_model=no_model,
            prepared=prepared,
        )
        for number in range(8)
    ]


@pytest.mark.parametrize(
    ("at_once", "minutes", "waves"),
    [
        (1, None, [8]),
        (3, None, [8]),
        (1, 0.001, [1]),
        (1, 3.5, [1, 1, 1]),
        # a minute for each pair, then two minutes
        (2, 3.5, [2, 2]),
        (2, 4.1, [2, 2, 2]),
        # the second three have a cell of two epochs
        (3, 2.9, [3]),
        (3, 100.0, [3, 3, 2]),
    ],
)
def test_as_many_are_taken_as_fit(
    cells: list[Trial], at_once: int, minutes: float | None, waves: list[int]
) -> None:
    trials = MinuteTrials(at_once)
    found = search(trials, cells, minutes)
    assert trials.waves == waves
    assert (len(found.cells), found.total) == (sum(waves), 8)
