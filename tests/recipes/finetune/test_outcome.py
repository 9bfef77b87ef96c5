from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import scipy.stats

from bertsmith.evaluation.significance import Interval
from bertsmith.recipes.finetune.baselines import TFIDF, BaselineScores
from bertsmith.recipes.finetune.config import ExperimentConfig, FinetuneConfig, FinetuneSettings
from bertsmith.recipes.finetune.inputs import LabelledData
from bertsmith.recipes.finetune.outcome import FinetuneOutcome, print_outcome
from bertsmith.recipes.finetune.recipe import finetune
from bertsmith.recipes.finetune.trial import TrialResult
from bertsmith.tasks.classify import CLASSIFY
from bertsmith.tasks.uncertainty import Difference, of_best
from bertsmith.text.examples.reading import Example
from bertsmith.weights.folder import read_config, save_model, start_from


def outcome(
    accuracies: list[float],
    rival: float | None,
    p: float = 0.001,
    cut: int = 0,
    width: float = 0.019,
) -> FinetuneOutcome:
    mean = sum(accuracies) / len(accuracies)
    points = mean - max(rival or 0.0, 0.55)
    example = Example(text="a", text_pair=None, label="x", source="memory", line=1)
    beside = BaselineScores(
        name=TFIDF,
        scores=({"accuracy": rival or 0.0, "macro_f1": 0.5},),
        seconds=0.1,
        simpler=True,
    )
    return FinetuneOutcome(
        folder=Path("run"),
        model=Path("run/model"),
        data=LabelledData(
            task=CLASSIFY, labels=("x", "y"), train=[example], dev=[example], dev_is_cut=False
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
        interval=Interval(low=0.61, high=0.97),
        notes=(),
        baselines=() if rival is None else (beside,),
        difference=Difference(points=points, low=points - width, high=points + width, p=p),
        majority_baseline=("always predicting the most frequent class", 0.55),
        grid=None,
        curve=(),
        long=0,
        cut=cut,
        longest=128,
        limit=512,
    )


@pytest.mark.parametrize(
    ("accuracies", "rival", "verdict"),
    [
        (
            [0.90, 0.91, 0.92],
            0.80,
            "the model wins by 11.00 points over TF-IDF + logistic regression",
        ),
        (
            [0.90, 0.91, 0.92],
            0.95,
            "TF-IDF + logistic regression wins by 4.00 points, and is simpler",
        ),
        ([0.90, 0.91, 0.92], 0.92, "no winner: 91.00 against 92.00"),
        ([0.90, 0.90], 0.90, "no winner"),
        ([0.90], 0.90, "no winner"),
        ([0.90], 0.85, "one seed gives no spread"),
        ([0.50, 0.51, 0.5], 0.52, "always predicting the most frequent class wins by 4.67 points"),
        (
            [0.90, 0.91, 0.92],
            None,
            "wins by 36.00 points over always predicting the most frequent",
        ),
    ],
)
def test_the_verdict_is_honest(accuracies: list[float], rival: float | None, verdict: str) -> None:
    assert verdict in outcome(accuracies, rival).verdict()


@pytest.mark.parametrize(
    ("accuracies", "rival", "width"),
    [
        # by scipy's one-sample t-test, 12.7, 4.30 and 2.78 standard errors
        ([0.90, 0.92], 0.80, 0.001),
        ([0.90, 0.91, 0.92], 0.886, 0.001),
        ([0.90, 0.905, 0.91, 0.915, 0.92], 0.901, 0.001),
        # beyond either margin, within both together
        ([0.90, 0.905, 0.91, 0.915, 0.92], 0.898, 0.010),
    ],
)
def test_other_seeds_might_have_turned_the_lead(
    accuracies: list[float], rival: float, width: float
) -> None:
    verdict = outcome(accuracies, rival, width=width).verdict()
    points = 100 * (sum(accuracies) / len(accuracies) - rival)
    assert verdict.startswith("no winner")
    few = f"{len(accuracies)} seeds are too few to tell whether {points:.2f} points are luck (95 %"
    assert (few in verdict) == (len(accuracies) < 5) == verdict.endswith("; use --seeds 5")
    assert ("may well be luck" in verdict) == (len(accuracies) == 5)
    if width < 0.01:
        assert scipy.stats.ttest_1samp(accuracies, rival).pvalue > 0.05
    farther = outcome(accuracies, rival - 0.12, width=width).verdict()
    assert farther.startswith("the model wins")


def test_what_may_be_luck_wins_nothing() -> None:
    """The model of one seed, or of two close ones, two points better on few rows."""
    for accuracies in ([0.92], [0.919, 0.921]):
        told = outcome(accuracies, 0.90, p=0.06, width=0.03).verdict()
        assert told.startswith("no winner: 92.00 against 90.00 of TF-IDF + logistic regression")
        assert "95 % over dev sets of this size: -1.00 to +5.00 points" in told
    assert "the model wins by 2.00" in outcome([0.92], 0.90, p=0.04).verdict()
    # where they are equal there is nothing that may be luck
    same = outcome([0.9], 0.9, p=1.0, width=0.03).verdict()
    assert same.startswith("no winner: 90.00 against 90.00 of TF-IDF + logistic regression (95 %")


def test_seeds_that_score_the_same_are_not_said_to_exclude_luck_by_a_margin_of_nothing() -> None:
    verdict = outcome([0.9, 0.9], 0.80).verdict()
    assert verdict.endswith("points; over the seeds no spread: each scores the same)")
    assert "±0.00" not in verdict


def test_a_p_value_that_contradicts_its_interval_is_told() -> None:
    """A lead was called luck beside an interval that holds leads only."""
    found = outcome([0.92], 0.80)
    led = replace(found, difference=Difference(points=0.12, low=0.02, high=0.2, p=0.125))
    assert (
        "12.00 points may well be luck (95 % over dev sets of this size: +2.00 to +20.00 points, "
        "but by all tests of these rows p = 0.12)"
    ) in led.verdict()
    assert "all tests" not in outcome([0.92], 0.90, p=0.06, width=0.03).verdict()


def test_a_lead_of_the_best_of_many_baselines_is_told_with_its_p() -> None:
    found = outcome([0.80], 0.84, width=0.03)
    lead = Difference(points=-0.04, low=-0.07, high=-0.01, p=0.012)
    told = replace(found, difference=of_best(lead, 15)).verdict()
    assert told.startswith("no winner: 80.00 against 84.00")
    assert "+1.00 to +7.00 points, p = 0.18 for the best of 15 baselines)" in told
    assert "wins by 4.00 points" in replace(found, difference=of_best(lead, 3)).verdict()


def test_a_model_that_read_less_says_so() -> None:
    told = outcome([0.70], 0.90, cut=2).verdict()
    assert "the model read at most 128 tokens of each text, which cut 100 % of them" in told
    assert told.endswith("all: --max-length N reads more, --truncation windows reads everything")
    # a model of so many positions can read no more
    told = replace(outcome([0.70], 0.90, cut=2), limit=128).verdict()
    assert told.endswith("all: --truncation windows reads everything")
    assert "cut" not in outcome([0.70], 0.90).verdict()
    assert "cut" not in outcome([0.70], None, cut=2).verdict()


def test_failed_seeds_are_counted_and_the_choice_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = outcome([0.55, 0.90, 0.80], 0.7)
    print_outcome(found)
    told = capsys.readouterr().err
    assert found.constant == 1
    assert found.best.seed == 1
    assert "1 of 3 seeds predict the same for every row" in told
    assert "the best of 3 on dev: expect the mean on new texts, not its 90.00 %" in told
    assert "75.00 ± 18.03" in told
    assert "median of 3" in told
    assert "80.00" in told
    # that of the best of them would hold its score on other rows in 85 to 90 cases of a hundred
    assert (
        "mean of 3 seeds: accuracy 75.00 %, 95 % interval over dev sets of this size 61.00 to 97.00"
    ) in told
    alone = outcome([0.9], 0.7).certainty()
    assert alone.startswith("seed 0: accuracy 90.00 %, 95 % interval over dev sets of this size")


def test_a_model_of_another_task_is_the_start_and_has_a_card(
    base_folder: Path, labelled: Path, tmp_path: Path
) -> None:
    """A threshold of the former task is none of the new one's."""
    model, tokenizer = start_from(base_folder, predicts="span")
    model.config = replace(model.config, no_answer=1.5)
    save_model(tmp_path / "spans", model, tokenizer)
    settings = FinetuneSettings(epochs=1, batch_size=16, max_length=24)
    made = finetune(
        FinetuneConfig(
            model=tmp_path / "spans",
            train=labelled,
            out=tmp_path / "run",
            settings=settings,
            experiment=ExperimentConfig(seeds=1),
        )
    )
    assert read_config(made.model).no_answer is None
    card = (made.model / "README.md").read_text(encoding="utf-8")
    assert "pipeline_tag: text-classification" in card
    assert "1 epoch, batch size 16, learning rate" in card
    assert "1 threads" not in card
    # a single seed has neither
    assert "mean and spread" not in card
