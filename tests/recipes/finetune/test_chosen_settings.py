from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bertsmith.core.errors import ConfigError, RunFolderError
from bertsmith.recipes.distil.config import DistilConfig, StudentConfig, TeachingConfig
from bertsmith.recipes.distil.recipe import distil
from bertsmith.recipes.finetune.config import (
    ExperimentConfig,
    FinetuneConfig,
    FinetuneSettings,
    SearchConfig,
)
from bertsmith.recipes.finetune.experiment import cells_of
from bertsmith.recipes.finetune.recipe import finetune
from bertsmith.weights.folder import save_model, start_from

QUICK = FinetuneSettings(batch_size=32, precision="fp32", max_length=16, baseline=False)


@pytest.fixture(scope="module")
def rows(labelled_rows: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("rows") / "train.tsv"
    file.write_text("\n".join(labelled_rows[:81]) + "\n")
    return file


def config_of(base: Path, rows: Path, out: Path, rate: float | None = None) -> FinetuneConfig:
    return FinetuneConfig(
        model=base, train=rows, out=out, settings=replace(QUICK, learning_rate=rate),
        experiment=ExperimentConfig(seeds=1),
    )  # fmt: skip


def recorded(out: Path) -> tuple[float, int]:
    """The learning rate and the epochs in the file of a run's settings."""
    settings = json.loads((out / "run.json").read_text(encoding="utf-8"))["settings"]["settings"]
    return settings["learning_rate"], settings["epochs"]


@pytest.mark.parametrize(
    ("width", "published"),
    [
        (1024, 5e-5),  # BERT-Large and Base: Devlin et al. 2018, A.3
        (768, 5e-5),
        (384, 1e-4),
        (256, 1.5e-4),  # ELECTRA-Small: three times the rate of Base (Clark et al. 2020)
        (128, 3e-4),  # the highest rate of the miniatures of Turc et al. 2019
        (8, 4e-4),
    ],
)
def test_the_rate_follows_the_width(width: int, published: float) -> None:
    settings, note = FinetuneSettings().with_rate(width, None)
    assert settings.chosen_learning_rate == published
    assert (f"{published:g}" in note) == (width < 768)
    assert FinetuneSettings(learning_rate=0.1).with_rate(width, 0.2)[0].learning_rate == 0.1


def test_a_run_keeps_what_its_model_and_examples_have_chosen(
    base_folder: Path, rows: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    finetune(config_of(base_folder, rows, out))
    assert recorded(out) == (4e-4, 20)
    told = capsys.readouterr().err
    assert "peak learning rate 0.0004, as the model is" in told
    assert "20 epochs, as 72 examples make few steps" in told
    given = tmp_path / "given"
    finetune(config_of(base_folder, rows, given, 2e-3))
    capsys.readouterr()
    # without the option the run is the same one, which has ended
    finetune(config_of(base_folder, rows, given))
    told = capsys.readouterr().err
    assert "has ended" in told
    # by a model's width it has not been chosen
    assert "peak learning rate" not in told
    assert recorded(given) == (2e-3, 20)
    with pytest.raises(RunFolderError, match=r"learning_rate was 0\.0004, now 0\.002"):
        finetune(config_of(base_folder, rows, out, 2e-3))


def test_a_student_has_the_rate_of_its_own_width_and_epochs_of_all_that_teaches_it(
    base_folder: Path, rows: Path, tmp_path: Path
) -> None:
    model, tokenizer = start_from(base_folder, labels=("up", "down"), seed=3)
    save_model(teacher := tmp_path / "teacher", model, tokenizer)
    out = tmp_path / "distilled"
    distil(
        DistilConfig(
            teacher=teacher, data=rows, out=out, settings=QUICK, seeds=1, method=("minilm",),
            student=StudentConfig(student="1/192"), side_by_side=1, plain=False,
            teaching=TeachingConfig(augment=20),
        )
    )  # fmt: skip
    assert recorded(out) == (2e-4, 7)


@pytest.mark.parametrize(
    ("rows", "epochs"), [(20, 20), (400, 20), (960, 10), (2_400, 4), (3_200, 3), (10**6, 3)]
)
def test_few_examples_are_passed_more_often(rows: int, epochs: int) -> None:
    settings, note = FinetuneSettings().with_epochs(rows, None)
    assert settings.chosen_epochs == epochs
    assert (f"{epochs} epochs" in note) == (epochs != 3)
    assert FinetuneSettings().with_epochs(rows, None, 6)[0].chosen_epochs == max(6, epochs)
    assert FinetuneSettings(epochs=2).with_epochs(rows, 9)[0].epochs == 2


def test_the_grid_searches_around_what_fits_model_and_examples() -> None:
    grid = SearchConfig().resolved(384, 10_000)
    assert grid.learning_rates == (4e-5, 6e-5, 1e-4)
    assert grid.epochs == (2, 3, 4)
    assert SearchConfig().resolved(768, 10_000).learning_rates == (2e-5, 3e-5, 5e-5)
    assert len(cells_of(FinetuneSettings(), grid)) == 18
    assert SearchConfig().resolved(768, 100).epochs == (13, 20, 27)
    own = SearchConfig(learning_rates=(1e-3,), epochs=(7,))
    assert own.resolved(128, 100) == own
    for rates in ((0.0,), (1e-5, -1.0), (1.5,)):
        with pytest.raises(ConfigError, match="learning-rates"):
            SearchConfig(learning_rates=rates)
