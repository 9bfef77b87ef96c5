"""Whether a model is better than a contestant, or luckier."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
from scipy.stats import binomtest, ttest_ind

from bertsmith.core.errors import RunFolderError
from bertsmith.evaluation.significance import Clusters, Interval, draws
from bertsmith.recipes.finetune.compare import compare
from bertsmith.recipes.finetune.config import CompareConfig, FinetuneSettings, SearchConfig
from bertsmith.recipes.finetune.recipe import FinetuneRun
from bertsmith.tasks import uncertainty
from bertsmith.tasks.classify import CLASSIFY
from bertsmith.tasks.glue import GLUE
from bertsmith.tasks.regression import NUMBER, REGRESSION
from bertsmith.tasks.span import SPAN
from bertsmith.tasks.tag import TAG
from bertsmith.tasks.task import Evidence, Labels, Scoring, Task, Tuned
from bertsmith.tasks.uncertainty import Difference
from bertsmith.training.run_folder import RUN_FORMAT, write_record

LABELS = ("x", "y")


# rows of which each is evidence of its own


def difference_of(
    task: Task[Any], labels: Labels, ours: list[Evidence], theirs: list[Evidence]
) -> Difference:
    return uncertainty.difference_of(task, labels, ours, theirs, Clusters.alone(len(ours[0])))


def difference_to_constant(
    task: Task[Any], labels: Labels, ours: list[Evidence], constant: float
) -> Difference:
    alone = Clusters.alone(len(ours[0]))
    return uncertainty.difference_to_constant(task, labels, ours, constant, alone)


def interval_of_mean(task: Task[Any], labels: Labels, evidences: list[Evidence]) -> Interval:
    return uncertainty.interval_of_mean(task, labels, evidences, Clusters.alone(len(evidences[0])))


def interval_of(
    task: Task[Any], evidence: Evidence, labels: Labels, name: str | None = None
) -> Interval:
    return uncertainty.interval_of(task, evidence, labels, Clusters.alone(len(evidence)), name=name)


def evidence(right: list[bool]) -> Evidence:
    """Of rows whose class is 0."""
    return np.array([[0.0, 0.0 if item else 1.0] for item in right])


def pair(only_first: int, only_second: int, both: int) -> tuple[Evidence, Evidence]:
    first = [True] * (only_first + both) + [False] * only_second
    second = [False] * only_first + [True] * (both + only_second)
    return evidence(first), evidence(second)


@pytest.mark.parametrize(
    ("only_first", "only_second", "both", "certain"),
    # two points on 200 rows are luck, on 2,000 they are not
    [(10, 6, 184, False), (100, 60, 1840, True), (0, 0, 50, False), (6, 10, 184, False)],
)
def test_one_model_against_one(only_first: int, only_second: int, both: int, certain: bool) -> None:
    ours, theirs = pair(only_first, only_second, both)
    found = difference_of(CLASSIFY, LABELS, [ours], [theirs])
    assert found.certain == certain
    rows = only_first + only_second + both
    assert found.points == pytest.approx((only_first - only_second) / rows)
    assert found.low <= found.points <= found.high
    if only_first != only_second:
        assert found.p >= binomtest(only_first, only_first + only_second).pvalue - 1e-12


def test_several_seeds_are_compared_by_their_mean() -> None:
    """Seeds that are right on other rows each time leave less to luck than one of them alone."""
    random = np.random.default_rng(0)
    seeds = [evidence(list(random.random(400) < 0.85)) for _ in range(5)]
    rival = evidence(list(random.random(400) < 0.80))
    found = difference_of(CLASSIFY, LABELS, seeds, [rival])
    accuracies = [np.mean(seed[:, 0] == seed[:, 1]) for seed in seeds]
    assert found.points == pytest.approx(np.mean(accuracies) - np.mean(rival[:, 1] == 0))
    alone = difference_of(CLASSIFY, LABELS, seeds[:1], [rival])
    assert found.high - found.low < alone.high - alone.low


def test_a_constant_score_is_beaten_by_an_interval_above_it() -> None:
    ours = evidence([True] * 36 + [False] * 4)
    assert difference_to_constant(CLASSIFY, LABELS, [ours], 0.55).certain
    assert not difference_to_constant(CLASSIFY, LABELS, [ours], 0.85).certain


@pytest.mark.parametrize("constant", [0.75, 0.78, 0.82])
def test_the_p_of_a_constant_score_is_that_of_resamples(constant: float) -> None:
    found = difference_to_constant(
        CLASSIFY, LABELS, [evidence([True] * 36 + [False] * 4)], constant
    )
    below = scipy.stats.binom.cdf(np.floor(40 * constant), 40, 0.9)
    # of 1,000 draws
    assert found.p == pytest.approx(2 * below, abs=0.02)
    assert found.p > 0.001


@pytest.mark.parametrize("rows", [1, 3, 5])
def test_a_handful_of_rows_is_certain_of_nothing(rows: int) -> None:
    """Draws of rows that agree have no width; a sign test of so few is never below 0.05."""
    ours, theirs = pair(rows, 0, 0)
    for found in (
        difference_of(CLASSIFY, LABELS, [ours], [theirs]),
        difference_of(CLASSIFY, LABELS, [ours, ours], [theirs]),
        difference_to_constant(CLASSIFY, LABELS, [ours], 0.5),
    ):
        assert not found.certain
        assert found.p >= binomtest(rows, rows).pvalue - 1e-12


TAGS = ("B-X", "I-X", "O")


def tagged(entities: list[tuple[int, int, int]]) -> Evidence:
    """Of sentences of seven words, by their true, predicted and right entities."""
    return np.array([(*counts, 7, 7 - counts[0] + counts[2]) for counts in entities], float)


def test_entities_that_are_all_right_leave_room_for_others() -> None:
    """All resamples have an F1 of 1, which is a share of the entities' true and predicted sides.

    The exact interval of as many shares as there are sentences with entities.
    """
    right = tagged([(2, 2, 2), (1, 1, 1), (0, 0, 0), (3, 3, 3)] * 4)
    interval = interval_of(TAG, right, TAGS)
    exact = binomtest(12, 12).proportion_ci(0.95, method="exact")
    assert [interval.low, interval.high] == pytest.approx([exact.low, 1.0])
    assert interval_of_mean(TAG, TAGS, [right, right]) == interval
    found = difference_to_constant(TAG, TAGS, [right], 0.75)
    assert not found.certain
    assert found.interval() == "-1.46 to +25.00 points"


def test_entities_of_two_models_that_agree_may_yet_differ() -> None:
    right, wrong = tagged([(2, 2, 2), (1, 1, 1)] * 5), tagged([(2, 2, 0), (1, 0, 0)] * 5)
    others = 1 - binomtest(10, 10).proportion_ci(0.95, method="exact").low
    same = difference_of(TAG, TAGS, [right], [right])
    assert [same.low, same.high] == pytest.approx([-others, others])
    found = difference_of(TAG, TAGS, [right], [wrong])
    assert found.certain
    assert [found.low, found.high] == pytest.approx([1 - 2 * others, 1.0])


def test_sentences_without_entities_prove_nothing() -> None:
    """Four sentences are on one side, however many others hold no entity."""
    others = [(0, 0, 0)] * 60
    right = tagged([(1, 1, 1)] * 4 + others)
    wrong = tagged([(1, 1, 0), (1, 0, 0), (1, 0, 0), (1, 0, 0), *others])
    found = difference_of(TAG, TAGS, [right, right], [wrong])
    assert found.p >= binomtest(4, 4).pvalue - 1e-12
    # precision is a share of what was predicted, by the model that predicts least
    alone = Clusters.alone(64)
    assert uncertainty.units_of(TAG, [right, wrong], TAGS, alone, "precision") == 1


def test_an_interval_is_that_of_the_score_that_is_asked_for() -> None:
    half_right = np.tile([0.0, 0.5, -1.0, 1.0], (20, 1))
    exact, f1 = (interval_of(SPAN, half_right, (), name) for name in ("exact_match", "f1"))
    assert exact.low == 0 < exact.high < 0.2
    assert 0.4 < f1.low < 0.5 < f1.high < 0.6


def test_a_margin_is_the_distance_to_the_bound_nearer_to_no_difference() -> None:
    lead = Difference(points=0.04, low=0.01, high=0.12, p=0.01)
    behind = replace(lead, points=-0.04, low=-0.12, high=-0.01)
    assert [each.margin(0.04) for each in (lead, behind)] == pytest.approx([0.05, 0.05])
    assert replace(lead, low=np.nan, high=np.nan).margin(0.04) == 0.04


def test_a_correlation_that_is_whole_in_all_resamples_has_no_interval() -> None:
    """Nothing bounds Matthews' correlation on other rows where all of these are right."""
    right = np.array([(0, 0, 1), (1, 1, 1)] * 20, float)
    wrong = right * (1, 0, 1)
    assert not interval_of(GLUE["CoLA"], right, LABELS).known
    found = difference_of(GLUE["CoLA"], LABELS, [right], [wrong])
    assert found.certain
    assert found.interval(of_other=True).startswith("no interval")
    assert found.to_dict() == {"points": 1, "low": None, "high": None, "p": found.p}


def test_draws_without_a_correlation_are_left_out_of_its_interval() -> None:
    """They counted as a correlation of 0, with which the interval of any other one ended."""
    true = np.ones(20)
    true[3] = 5
    predicted = np.arange(20.0) % 7
    predicted[3] = -5
    numbers = np.stack([true, predicted], 1)
    drawn = [
        scipy.stats.pearsonr(*numbers[rows].T).statistic
        for rows in draws(20, 1000, 0)
        if 3 in rows and set(rows) != {3}
    ]
    # of 20 rows, by the expanded percentile interval
    outside = scipy.stats.norm.cdf(scipy.stats.t.ppf(0.025, 19) * np.sqrt(20 / 19))
    low, high = np.quantile(drawn, [outside, 1 - outside])
    assert 500 < len(drawn) < 900
    found = interval_of(REGRESSION, numbers, NUMBER)
    assert [found.low, found.high] == pytest.approx([low, high], abs=1e-9)
    assert interval_of_mean(REGRESSION, NUMBER, [numbers]) == found
    turned = np.stack([true, -predicted], 1)
    lead = difference_of(REGRESSION, NUMBER, [turned], [numbers])
    assert lead.low > 0
    # a model that answers alike has a correlation of 0 in every draw, as it has over all rows
    constant = np.stack([true, np.ones(20)], 1)
    assert difference_of(REGRESSION, NUMBER, [turned], [constant]).points == pytest.approx(
        scipy.stats.pearsonr(*turned.T).statistic
    )


def test_the_interval_of_a_mean_is_that_of_all_seeds() -> None:
    """Of the best seed alone, it would lie above the mean of two seeds that differ."""
    random = np.random.default_rng(1)
    seeds = [evidence(list(random.random(300) < share)) for share in (0.95, 0.6)]
    interval = interval_of_mean(CLASSIFY, LABELS, seeds)
    mean = float(np.mean([seed[:, 0] == seed[:, 1] for seed in seeds]))
    assert interval.low < mean < interval.high < interval_of(CLASSIFY, seeds[0], LABELS).low


def test_resamples_are_scored_by_the_score_that_is_asked_for_alone() -> None:
    """The others take several times as long, thousands of times over."""

    def other(evidence: Evidence) -> float:
        raise AssertionError("a score that nobody asked for")

    def scoring(labels: Labels, tuned: Tuned) -> Scoring:
        return CLASSIFY.measuring.scoring(labels, tuned) | {"macro_f1": other}

    task = replace(CLASSIFY, measuring=replace(CLASSIFY.measuring, scoring=scoring))
    ours, theirs = pair(9, 2, 20)
    found = difference_of(task, LABELS, [ours], [theirs])
    assert found == difference_of(CLASSIFY, LABELS, [ours], [theirs])
    mean = interval_of_mean(task, LABELS, [ours, theirs])
    assert mean == interval_of_mean(CLASSIFY, LABELS, [ours, theirs])
    assert interval_of(task, ours, LABELS) == interval_of(CLASSIFY, ours, LABELS, name="accuracy")


def test_the_lead_of_the_other_is_told_with_its_own_interval() -> None:
    found = Difference(points=-0.1, low=-0.15, high=-0.02, p=0.01)
    assert found.interval(of_other=True) == "+2.00 to +15.00 points"


NAMES = ("f1", "exact_match")
QUESTIONS = (*NAMES, "f1_at_0")


def ended_run(
    folder: Path,
    seeds: list[Evidence],
    *scored: float,
    names: tuple[str, ...] = QUESTIONS,
    clusters: list[int] | None = None,
    task: str | None = None,
    labels: Labels = (),
) -> Path:
    """A finished run as it is kept, of questions or numbers unless a task is named.

    `scored` are all seeds' scores.
    """
    run = FinetuneRun(
        task=task or ("span" if "f1" in names else "regression"),
        model=Path("m"), model_hash="m", model_reading_hash="m", train=Path("t"),
        train_hash="t", dev=None,
        dev_hash="d", labels=labels, seeds=len(seeds), grid=False, minutes=None, curve=False,
        baselines=False, threads=1, device="cpu", settings=FinetuneSettings(),
        search=SearchConfig(),
    )  # fmt: skip
    folder.mkdir()
    kept = {"format": RUN_FORMAT, "kind": "finetune", "id": "i", "settings": run.to_dict()}
    (folder / "run.json").write_text(json.dumps(kept), encoding="utf-8")
    scores = [dict.fromkeys(names, score) for score in scored]
    each = [{"seed": seed, "scores": score} for seed, score in enumerate(scores)]
    results = {"scores": scores[0], "best_seed": 0, "seeds": each}
    write_record(folder / "results.json", results)
    for seed, evidence in enumerate(seeds):
        place = folder / "seeds" / f"seed-{seed}"
        place.mkdir(parents=True)
        together = list(range(len(evidence))) if clusters is None else clusters
        kept = {"answers": [], "evidence": evidence.tolist(), "clusters": together}
        write_record(place / "dev.json", kept)
    return folder


@pytest.mark.parametrize(
    ("only_first", "only_second", "verdict"),
    [
        # the bootstrap alone would be certain of it
        (9, 2, "so these two models may well differ by luck alone"),
        (20, 2, "the first model is better on rows like these"),
        (3, 25, "the second model is better on rows like these"),
    ],
)
def test_two_runs_are_compared_by_resamples_and_mcnemars_test(
    only_first: int,
    only_second: int,
    verdict: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bertsmith.recipes.finetune.compare.RESAMPLES", 1000)
    runs = [
        ended_run(tmp_path / name, [seed], 0.5, names=("accuracy",), task="classify", labels=LABELS)
        for name, seed in zip(("one", "other"), pair(only_first, only_second, 200), strict=True)
    ]
    figures = compare(CompareConfig(first=runs[0], second=runs[1]))
    rows = only_first + only_second + 200
    found = figures["scores"]["accuracy"]
    assert found["first"] == pytest.approx((200 + only_first) / rows)
    assert found["second"] == pytest.approx((200 + only_second) / rows)
    assert found["difference"] == pytest.approx(found["first"] - found["second"])
    assert found["p"] < 0.05
    exact = binomtest(only_first, only_first + only_second).pvalue
    assert figures["mcnemar"] == {
        "only_first": only_first, "only_second": only_second, "exact": pytest.approx(exact),
    }  # fmt: skip
    told = capsys.readouterr().err
    assert verdict in told
    assert "other scores" not in told


def test_all_seeds_of_runs_with_other_labels_are_compared_each_by_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertsmith.recipes.finetune.compare.RESAMPLES", 100)
    one, other = np.zeros((90, 4)), np.zeros((90, 6))
    one[:, 0] = one[:, 2] = other[:, 0] = 1
    # a third has its label, and the others a label that the first run has not seen
    other[:30, 3] = other[30:, 5] = 1
    runs = [
        ended_run(
            tmp_path / name, [seed] * 2, score, score,
            names=("micro_f1",), task="multi-label", labels=labels,
        )
        for name, seed, score, labels in (
            ("one", one, 1.0, LABELS), ("other", other, 1 / 3, (*LABELS, "z")),
        )
    ]  # fmt: skip
    for sign, better in ((1, "the first"), (-1, "the second")):
        first, second = runs[::sign]
        figures = compare(CompareConfig(first=first, second=second))["all_seeds"]
        assert figures["difference"] == pytest.approx(sign * (1 - 2 * 30 / (90 + 90)))
        assert figures["certain"]
        assert f"{better} recipe is better" in capsys.readouterr().err


def test_runs_of_different_tasks_are_not_compared(tmp_path: Path) -> None:
    seed = evidence([True, False])
    runs = [
        ended_run(tmp_path / task, [seed], 0.5, names=("accuracy",), task=task, labels=LABELS)
        for task in ("classify", "rank")
    ]
    with pytest.raises(RunFolderError, match=r"is a run of rank, and .* one of classify"):
        compare(CompareConfig(first=runs[0], second=runs[1]))


def test_seeds_are_compared_at_thresholds_of_their_own(tmp_path: Path) -> None:
    """Doubts of two models need not mean the same: a threshold of one is none of the other's."""
    questions = np.array([(1, 1, -2, 1), (1, 1, -1, 1), (0, 0, 1, 0), (0, 0, 2, 0)], float)
    doubtful = questions + np.array([0, 0, 10, 0])
    one = ended_run(tmp_path / "one", [questions, questions], 1.0, 1.0)
    other = ended_run(tmp_path / "other", [doubtful, doubtful], 1.0, 1.0)
    figures = compare(CompareConfig(first=one, second=other))
    assert figures["scores"]["f1"]["second"] == 1
    assert figures["all_seeds"]["difference"] == 0


def test_two_seeds_of_each_run_prove_little(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two standard errors of so few are exceeded by chance in 18 comparisons of a hundred."""
    right, wrong = np.array([1.0, 1, -1, 1]), np.array([0.0, 0, -1, 1])

    def seeds(*counts: int) -> list[Evidence]:
        return [np.where(np.arange(400)[:, None] < count, wrong, right) for count in counts]

    names = ("f1", "exact_match")
    runs = [
        ended_run(
            tmp_path / name, seeds(*counts), *(1 - count / 400 for count in counts), names=names
        )
        for name, counts in (("one", (20, 40)), ("other", (70, 90)))
    ]
    figures = compare(CompareConfig(first=runs[0], second=runs[1]))["all_seeds"]
    assert figures["difference"] == pytest.approx(0.125)
    assert figures["p"] < 0.01
    margin = ttest_ind([0.95, 0.9], [0.825, 0.775], equal_var=False).confidence_interval()
    assert figures["seed_margin"] == pytest.approx((margin.high - margin.low) / 2)
    assert not figures["certain"]
    assert "the recipes may well differ by luck alone" in capsys.readouterr().err


def test_rows_and_seeds_are_one_doubt(tmp_path: Path) -> None:
    """A lead beyond the margin of either, and within that of both."""
    right, wrong = np.array([1.0, 1, -1, 1]), np.array([0.0, 0, -1, 1])

    def seeds(first: int, *counts: int) -> list[Evidence]:
        rows = np.arange(400)[:, None]
        return [
            np.where((first <= rows) & (rows < first + count), wrong, right) for count in counts
        ]

    names, runs = ("f1", "exact_match"), []
    for name, first, counts in (
        ("one", 0, (20, 23, 27, 32, 34)),
        ("other", 200, (36, 40, 46, 50, 54)),
    ):
        scores = (1 - count / 400 for count in counts)
        runs.append(ended_run(tmp_path / name, seeds(first, *counts), *scores, names=names))
    figures = compare(CompareConfig(first=runs[0], second=runs[1]))["all_seeds"]
    assert figures["p"] < 0.05
    assert figures["difference"] > figures["seed_margin"]
    assert not figures["certain"]


def test_two_runs_on_a_handful_of_numbers_may_differ_by_luck(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any draw of so few rows has the same order, so the bootstrap is certain of anything."""
    monkeypatch.setattr("bertsmith.recipes.finetune.compare.RESAMPLES", 100)
    numbers, scores = np.arange(5.0), ("pearson", "spearman")
    runs = [
        ended_run(tmp_path / name, [np.stack([numbers, predicted], 1)], 1.0, names=scores)
        for name, predicted in (("one", numbers + 1), ("other", -numbers))
    ]
    figures = compare(CompareConfig(first=runs[0], second=runs[1]))
    for score in figures["scores"].values():
        assert score["p"] >= binomtest(5, 5).pvalue - 1e-12
    told = " ".join(capsys.readouterr().err.split())
    assert "may well differ by luck alone" in told
    assert "by Pearson alone: the p-values of the other scores are not corrected" in told


def test_rows_that_belong_together_are_drawn_together(tmp_path: Path) -> None:
    """Eight questions of each text are answered alike: the leads are 12 and not 96."""
    random = np.random.default_rng(8)
    texts = np.repeat(random.random(12) < 0.75, 8)
    right, wrong = (np.array([item, item, -1.0, 1.0]) for item in (1.0, 0.0))
    ours, theirs = np.where(texts[:, None], right, wrong), np.where(texts[:, None], wrong, right)
    assert difference_of(SPAN, (), [ours], [theirs]).certain
    numbers = np.repeat(np.arange(12), 8)
    found = uncertainty.difference_of(SPAN, (), [ours], [theirs], Clusters(numbers.tolist()))
    assert not found.certain
    one, other = (
        ended_run(tmp_path / name, [item] * 2, 0.5, 0.5, names=NAMES, clusters=numbers.tolist())
        for name, item in (("one", ours), ("other", theirs))
    )
    figures = compare(CompareConfig(first=one, second=other))
    assert figures["scores"]["f1"]["p"] == found.p
    assert not figures["all_seeds"]["certain"]


def test_the_best_of_many_baselines_leads_partly_by_choice() -> None:
    """Fifteen that are as good as the model: the best of them was ahead in a tenth of the cases."""
    random, wins = np.random.default_rng(2), 0
    for _ in range(60):
        ours, *others = (random.random((16, 150)) < 0.8).astype(float)
        best = max(others, key=np.sum)
        ahead, behind = int(np.sum(best > ours)), int(np.sum(best < ours))
        found = Difference(
            points=float(ours.mean() - best.mean()), low=-1, high=1,
            p=float(binomtest(ahead, ahead + behind).pvalue),
        )  # fmt: skip
        assert uncertainty.of_best(found, 1) == found
        wins += found.p < 0.05 and found.points < 0
        corrected = uncertainty.of_best(found, 15)
        assert not corrected.certain
        assert corrected.p == min(1.0, found.p * (15 if found.points < 0 else 1))
    assert wins >= 5
    # the model, which leads all of them, needs no correction
    ahead_of_all = Difference(points=0.1, low=0.02, high=0.2, p=0.01)
    assert uncertainty.of_best(ahead_of_all, 15).certain


def test_a_run_that_does_not_say_which_rows_belong_together_is_refused(tmp_path: Path) -> None:
    rows = np.array([(1, 1, -2, 1), (0, 0, 1, 0)], float)
    one, other = (ended_run(tmp_path / name, [rows], 1.0) for name in ("one", "other"))
    kept = other / "seeds" / "seed-0" / "dev.json"
    write_record(kept, {"answers": [], "evidence": rows.tolist()})
    with pytest.raises(RunFolderError, match=r"dev\.json.*which rows belong together"):
        compare(CompareConfig(first=one, second=other))
