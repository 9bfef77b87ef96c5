"""Grid, learning curve, contestants, going on after a stop, and comparing runs."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith.core.errors import ConfigError, RunFolderError
from bertsmith.network.config import Predicts
from bertsmith.recipes.finetune.baselines import TFIDF
from bertsmith.recipes.finetune.compare import compare
from bertsmith.recipes.finetune.config import (
    CompareConfig,
    ExperimentConfig,
    FinetuneConfig,
    FinetuneSettings,
    SearchConfig,
)
from bertsmith.recipes.finetune.experiment import RANDOM, cells_of, curve_points
from bertsmith.recipes.finetune.frozen import STATIC
from bertsmith.recipes.finetune.outcome import FinetuneOutcome, conclusions
from bertsmith.recipes.finetune.recipe import finetune
from bertsmith.weights.folder import start_from

QUICK = FinetuneSettings(
    epochs=2, batch_size=16, learning_rate=3e-3, precision="fp32", dropout=0.05
)
SEARCH = SearchConfig(learning_rates=(1e-5, 3e-3), batch_sizes=(16,), epochs=(1, 2))


@pytest.fixture(scope="module")
def experiment(
    tmp_path_factory: pytest.TempPathFactory, base_folder: Path, labelled_rows: list[str]
) -> tuple[Path, FinetuneOutcome]:
    folder = tmp_path_factory.mktemp("experiment")
    train = folder / "train.tsv"
    train.write_text("\n".join(labelled_rows) + "\n", encoding="utf-8")
    outcome = finetune(
        FinetuneConfig(
            model=base_folder,
            train=train,
            out=folder / "run",
            settings=QUICK,
            experiment=ExperimentConfig(
                seeds=2, grid=True, search=SEARCH, curve=True, baselines=True
            ),
        )
    )
    return train, outcome


def test_the_grid_tries_every_cell_and_takes_the_best_on_dev(
    experiment: tuple[Path, FinetuneOutcome],
) -> None:
    _, found = experiment
    assert found.grid is not None
    assert len(found.grid.cells) == found.grid.total == 4
    best = max(found.grid.cells, key=lambda cell: cell.result.rank)
    assert found.grid.best is best
    assert best.settings.learning_rate == 3e-3
    assert best.settings == replace(
        QUICK,
        learning_rate=3e-3,
        epochs=best.settings.epochs,
        max_length=found.longest,
        truncation="head",
    )
    assert "the best on dev of 4 cells" in found.grid.note()
    assert (
        "the best on dev of 3 of 4 cells" in replace(found.grid, cells=found.grid.cells[:3]).note()
    )
    # the luck of the grid's own seed is not among those that are told
    assert {cell.result.seed for cell in found.grid.cells} == {2}
    assert [seed.seed for seed in found.seeds] == [0, 1]


def test_the_model_comes_first_and_the_others_are_compared_with_it(
    experiment: tuple[Path, FinetuneOutcome],
) -> None:
    _, found = experiment
    written = (found.folder / "baselines.json").stat().st_mtime_ns
    results = list((found.folder / "seeds").glob("seed-*/result.json"))
    assert len(results) == 2
    assert max(path.stat().st_mtime_ns for path in results) < written
    assert found.difference is not None
    assert found.best_baseline is not None
    mean = sum(seed.score for seed in found.seeds) / 2
    assert found.difference.points == pytest.approx(mean - found.best_baseline[1])
    told = json.loads((found.folder / "results.json").read_text(encoding="utf-8"))
    assert told["difference"]["p"] == found.difference.p
    # there are more baselines than one, of which the best is compared
    assert found.difference.baselines == len(found.baselines) > 5
    assert told["interval"][0] <= mean <= told["interval"][1]
    rows = [
        json.loads(path.with_name("dev.json").read_text(encoding="utf-8"))["evidence"]
        for path in sorted(results)
    ]
    right = np.mean([[true == chosen for true, chosen, _ in seed] for seed in rows], axis=0)
    resampled = np.random.default_rng(1).choice(right, (4000, len(right))).mean(1)
    low, high = np.quantile(resampled, [0.025, 0.975])
    assert told["interval"] == pytest.approx([low, high], abs=2.5 / len(right))
    assert all("evidence" not in rival for rival in told["baselines"])


def test_a_score_by_which_the_epoch_was_chosen_is_told_to_be_too_good(
    experiment: tuple[Path, FinetuneOutcome], base_folder: Path, labelled: Path, tmp_path: Path
) -> None:
    _, trained_to_the_end = experiment
    found = finetune(
        FinetuneConfig(
            model=base_folder,
            train=labelled,
            out=tmp_path / "run",
            settings=replace(QUICK, patience=1, baseline=False),
            experiment=ExperimentConfig(seeds=1),
        )
    )
    (note,) = [line for line in conclusions(found) if "--patience 1" in line]
    assert "too good" in note
    assert note in json.loads((found.folder / "results.json").read_text(encoding="utf-8"))["notes"]
    assert not any("--patience" in line for line in conclusions(trained_to_the_end))


def test_cells_are_shuffled_and_the_same_each_time() -> None:
    cells = cells_of(QUICK, SEARCH)
    assert cells == cells_of(QUICK, SEARCH)
    assert len({(cell.learning_rate, cell.batch_size, cell.epochs) for cell in cells}) == 4


def test_minutes_end_the_grid_after_its_first_cell(
    base_folder: Path, labelled: Path, tmp_path: Path
) -> None:
    found = finetune(
        FinetuneConfig(
            model=base_folder,
            train=labelled,
            out=tmp_path / "run",
            settings=QUICK,
            experiment=ExperimentConfig(seeds=1, grid=True, search=SEARCH, minutes=1e-6),
        )
    )
    assert found.grid is not None
    assert len(found.grid.cells) == 1
    assert "of 4 cells only this one was tried, so nothing was chosen" in found.grid.note()
    assert "too good" not in found.grid.note()
    with pytest.raises(ConfigError, match=r"--search\.\* are for --grid"):
        ExperimentConfig(search=SEARCH)
    with pytest.raises(ConfigError, match="--minutes are for --grid"):
        finetune(
            FinetuneConfig(
                model=base_folder,
                train=labelled,
                out=tmp_path / "other",
                settings=QUICK,
                experiment=ExperimentConfig(minutes=1.0),
            )
        )


def test_every_contestant_is_measured(experiment: tuple[Path, FinetuneOutcome]) -> None:
    _, found = experiment
    names = [rival.name for rival in found.baselines]
    layers = ["frozen, embeddings", "frozen, layer 1", "frozen, layer 2"]
    assert names == [TFIDF, STATIC, *layers, "frozen, mix of the layers", RANDOM]
    scores = {rival.name: rival.mean for rival in found.baselines}
    # the label is one word, so that a bag of words says all
    assert scores[STATIC] >= 0.9
    assert all(0 <= score <= 1 for score in scores.values())
    assert len(found.baselines[-1].scores) == 2


def test_the_curve_ends_with_all_rows(experiment: tuple[Path, FinetuneOutcome]) -> None:
    _, found = experiment
    assert [point.rows for point in found.curve] == [36, 72, 144]
    assert [len(point.results) for point in found.curve] == [2, 2, 2]
    assert curve_points(10_000) == [312, 625, 1250, 2500, 5000]
    assert curve_points(40) == []


def test_parts_of_the_curve_have_as_many_steps_as_all_rows(
    experiment: tuple[Path, FinetuneOutcome],
) -> None:
    _, found = experiment
    folder = found.folder
    steps = {
        place: json.loads((folder / place / "log.jsonl").read_text().splitlines()[-1])["step"]
        for place in ("seeds/seed-0", "curve/72/seed-0", "curve/36/seed-0")
    }
    # 16 a step: 9, 5 and 3 an epoch
    epochs = steps["seeds/seed-0"] // 9
    assert list(steps.values()) == [9 * epochs, 5 * 2 * epochs, 3 * 4 * epochs]
    settings = FinetuneSettings(epochs=3)
    assert [settings.for_part(count, 5000).epochs for count in (2500, 625, 39)] == [6, 20, 20]
    assert FinetuneSettings(epochs=30).for_part(10, 100).epochs == 30


def test_the_report_tells_all_of_it(experiment: tuple[Path, FinetuneOutcome]) -> None:
    page = (experiment[1].folder / "report.html").read_text(encoding="utf-8")
    for title in (
        "Scores on dev", "Baselines", "Grid", "Learning curve", "Confusion on dev",
        "Calibration on dev", "Most confident mistakes", "Weight change", "Settings",
    ):  # fmt: skip
        assert f"<h2>{title}" in page, title


def test_a_run_goes_on_in_the_middle_of_everything(
    experiment: tuple[Path, FinetuneOutcome],
    base_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    train, found = experiment
    folder = tmp_path / "run"
    shutil.copytree(found.folder, folder)
    for gone in ("seeds/seed-1", "curve/72/seed-0", "grid/rate-0.003-batch-16-epochs-1"):
        shutil.rmtree(folder / gone)
    trained: list[int] = []

    def counting(folder: Path, *, predicts: Predicts, labels: tuple[str, ...], seed: int) -> Any:  # noqa: ANN401
        trained.append(seed)
        return start_from(folder, predicts=predicts, labels=labels, seed=seed)

    monkeypatch.setattr("bertsmith.recipes.finetune.recipe.start_from", counting)
    again = finetune(
        FinetuneConfig(
            model=base_folder,
            train=train,
            out=folder,
            settings=QUICK,
            experiment=ExperimentConfig(
                seeds=2, grid=True, search=SEARCH, curve=True, baselines=True
            ),
        )
    )
    assert len(trained) == 3
    assert [seed.scores for seed in again.seeds] == [seed.scores for seed in found.seeds]
    assert again.grid is not None
    assert found.grid is not None
    assert [c.result.scores for c in again.grid.cells] == [
        c.result.scores for c in found.grid.cells
    ]
    assert again.curve[1].values == found.curve[1].values


def test_runs_on_the_same_dev_rows_are_compared(
    experiment: tuple[Path, FinetuneOutcome],
    base_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    train, found = experiment
    bad = replace(QUICK, learning_rate=1e-6, baseline=False)
    other = finetune(
        FinetuneConfig(
            model=base_folder,
            train=train,
            out=tmp_path / "bad",
            settings=bad,
            experiment=ExperimentConfig(seeds=1),
        )
    )
    capsys.readouterr()
    figures = compare(CompareConfig(first=found.folder, second=other.folder))
    told = capsys.readouterr().err
    assert figures["rows"] == 16
    assert figures["scores"]["accuracy"]["first"] == found.best.score
    assert figures["scores"]["accuracy"]["second"] == other.best.score
    dev = [
        json.loads((run.folder / "seeds" / f"seed-{run.best.seed}" / "dev.json").read_text())
        for run in (found, other)
    ]
    rights = [[true == said for true, said, *_ in item["evidence"]] for item in dev]
    alone = sum(one and not two for one, two in zip(*rights, strict=True))
    assert figures["mcnemar"]["only_first"] == alone
    assert "McNemar's exact p" in told
    assert "one seed is not enough to compare the recipes" in told
    copied = shutil.copytree(found.folder, tmp_path / "copy")
    same = compare(CompareConfig(first=found.folder, second=copied))
    assert same["scores"]["accuracy"]["difference"] == 0
    assert same["mcnemar"]["exact"] == 1
    assert same["all_seeds"]["difference"] == 0
    assert not same["all_seeds"]["certain"]
    told = capsys.readouterr().err
    assert "so these two models score the same on these rows" in told
    assert "the recipes score the same on these rows" in told
    assert "luck" not in told


def test_a_run_is_not_compared_with_itself(
    experiment: tuple[Path, FinetuneOutcome], tmp_path: Path
) -> None:
    _, found = experiment
    (tmp_path / "link").symlink_to(found.folder, target_is_directory=True)
    for again in (found.folder, Path(f"{found.folder}/../{found.folder.name}"), tmp_path / "link"):
        with pytest.raises(RunFolderError, match=r": is the same run as .*; name another one"):
            compare(CompareConfig(first=found.folder, second=again))


def test_runs_that_have_not_ended_or_differ_in_dev_are_not_compared(
    experiment: tuple[Path, FinetuneOutcome], base_folder: Path, labelled: Path, tmp_path: Path
) -> None:
    _, found = experiment
    with pytest.raises(RunFolderError, match="is not a finished fine-tuning run"):
        compare(CompareConfig(first=found.folder, second=tmp_path))
    copied = shutil.copytree(found.folder, tmp_path / "copy")
    run = json.loads((copied / "run.json").read_text())
    (copied / "run.json").write_text(json.dumps(run | {"kind": "glue"}))
    with pytest.raises(RunFolderError, match="of `bertsmith glue`; name the --out of bertsmith f"):
        compare(CompareConfig(first=found.folder, second=copied))
    (copied / "run.json").unlink()
    with pytest.raises(RunFolderError, match="copy: is not a finished fine-tuning run"):
        compare(CompareConfig(first=found.folder, second=copied))
    labelled.write_text(labelled.read_text() + "up\tword1 good\n", encoding="utf-8")
    quickest = replace(QUICK, epochs=1, baseline=False)
    other = finetune(
        FinetuneConfig(
            model=base_folder,
            train=labelled,
            out=tmp_path / "run",
            settings=quickest,
            experiment=ExperimentConfig(seeds=1),
        )
    )
    with pytest.raises(RunFolderError, match="was measured on other dev rows"):
        compare(CompareConfig(first=found.folder, second=other.folder))


def test_runs_that_read_the_same_dev_file_otherwise_are_told_by_which_option(
    experiment: tuple[Path, FinetuneOutcome], tmp_path: Path
) -> None:
    """They were said to be measured on other rows, and that the same --dev would help."""
    _, found = experiment
    copied = shutil.copytree(found.folder, tmp_path / "run")
    run = json.loads((copied / "run.json").read_text())
    reading = run["settings"]["settings"]["reading"]

    def compared() -> dict[str, Any]:
        (copied / "run.json").write_text(json.dumps(run))
        return compare(CompareConfig(first=found.folder, second=copied))

    # no row is bad
    reading["on_bad"] = "skip"
    assert compared()["scores"]["accuracy"]["difference"] == 0
    # nor does their order make classes others
    other = shutil.copytree(found.folder, tmp_path / "other")
    for folder, classes in ((other, ["up", "down"]), (copied, ["down", "up"])):
        reading["columns"]["classes"] = classes
        (folder / "run.json").write_text(json.dumps(run))
    assert compare(CompareConfig(first=other, second=copied))["rows"] == 16
    reading["columns"]["classes"] = []
    reading["columns"] |= {"text": "1", "header": "no"}
    options = "with another --text-column and --header than "
    with pytest.raises(RunFolderError, match=f"run: read its dev rows {options}.*; fine-tune both"):
        compared()
