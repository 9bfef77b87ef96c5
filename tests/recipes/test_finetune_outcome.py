from __future__ import annotations

from pathlib import Path

import pytest

from bertsmith.evaluation.intervals import Interval
from bertsmith.recipes.labelled import LabelledData
from bertsmith.recipes.outcome import FinetuneOutcome
from bertsmith.recipes.rivals import TFIDF, Rival
from bertsmith.recipes.scores import tell
from bertsmith.recipes.tasks.classify import Classify
from bertsmith.recipes.trial import TrialResult
from bertsmith.text.examples import Example


def outcome(accuracies: list[float], rival: float | None) -> FinetuneOutcome:
    example = Example(text="a", text_pair=None, label="x", source="memory", line=1)
    beside = Rival(
        name=TFIDF,
        scores=({"accuracy": rival or 0.0, "macro_f1": 0.5},),
        seconds=0.1,
        simpler=True,
    )
    return FinetuneOutcome(
        folder=Path("run"),
        model=Path("run/model"),
        data=LabelledData(
            task=Classify(), labels=("x", "y"), train=[example], dev=[example], dev_is_cut=False
        ),
        seeds=tuple(
            TrialResult(
                seed=seed,
                scores={"accuracy": accuracy, "macro_f1": 0.5},
                constant=accuracy <= 0.6,
                losses=[(1, 0.5)],
                seconds=1.0,
                tokens=9,
            )
            for seed, accuracy in enumerate(accuracies)
        ),
        interval=Interval(low=0.61, high=0.97, confidence=0.95),
        notes=(),
        rivals=() if rival is None else (beside,),
        floor=("always saying the commonest class", 0.55),
        grid=None,
        curve=(),
        long=0,
        cut=0,
    )


@pytest.mark.parametrize(
    ("accuracies", "rival", "verdict"),
    [
        ([0.90, 0.92], 0.80, "the model wins by 11.00 points over TF-IDF + logistic regression"),
        ([0.90, 0.92], 0.95, "TF-IDF + logistic regression wins by 4.00 points, and is simpler"),
        ([0.90, 0.92], 0.92, "no winner: 91.00 against 92.00"),
        ([0.90, 0.90], 0.90, "no winner"),
        ([0.90], 0.90, "no winner"),
        ([0.90], 0.85, "one seed says nothing of the spread"),
        ([0.50, 0.51], 0.52, "always saying the commonest class wins by 4.50 points"),
        ([0.90, 0.92], None, "the model wins by 36.00 points over always saying the commonest"),
    ],
)
def test_the_verdict_is_honest(accuracies: list[float], rival: float | None, verdict: str) -> None:
    assert verdict in outcome(accuracies, rival).verdict()


def test_failed_seeds_are_counted_and_the_choice_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = outcome([0.55, 0.90, 0.80], 0.7)
    tell(found)
    told = capsys.readouterr().err
    assert found.constant == 1
    assert found.best.seed == 1
    assert "1 of 3 seeds say the same of everything" in told
    assert "the best of 3 on dev: expect the mean on new texts, not its 90.00 %" in told
    assert "75.00 ± 18.03" in told
    assert "median of 3" in told
    assert "80.00" in told
    assert "95 % interval over dev sets of this size 61.00 to 97.00" in told
