"""Trainings in processes of their own: the same results, stops, deaths, and what is kept."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bertsmith.core.errors import TrainingDiverged, WorkerDied
from bertsmith.core.signals import Interrupted
from bertsmith.network.torch_state import threads_of_torch
from bertsmith.recipes.finetune.config import ExperimentConfig, FinetuneConfig, FinetuneSettings
from bertsmith.recipes.finetune.experiment import Experiment
from bertsmith.recipes.finetune.outcome import FinetuneOutcome
from bertsmith.recipes.finetune.recipe import finetune
from bertsmith.recipes.finetune.trials import Trials
from recipes.signalling import Signalling, Step

QUICK = FinetuneSettings(
    epochs=2, batch_size=32, learning_rate=3e-3, precision="fp32", dropout=0.05, baseline=False
)
# 144 rows to train on
STEPS = 2 * 5

Run = Callable[..., FinetuneOutcome]


@pytest.fixture
def run(base_folder: Path, labelled: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Fine-tunes into a folder, with models that act in some steps of some seeds."""

    def fine_tune(out: Path, side_by_side: int, **does: Any) -> FinetuneOutcome:  # noqa: ANN401
        def experiment(**parts: Any) -> Experiment:  # noqa: ANN401
            signalling = Signalling(make=parts.pop("make_model"), **does)
            return Experiment(make_model=signalling, **parts)

        monkeypatch.setattr("bertsmith.recipes.finetune.recipe.Experiment", experiment)
        return finetune(
            FinetuneConfig(
                model=base_folder,
                train=labelled,
                out=out,
                settings=QUICK,
                experiment=ExperimentConfig(seeds=3, side_by_side=side_by_side),
            )
        )

    return fine_tune


def told(run: Path) -> dict[str, Any]:
    """All that a run says, but for times; the bytes of its model."""
    results = json.loads((run / "results.json").read_text(encoding="utf-8"))
    del results["sha256"]
    for item in results["seeds"]:
        del item["seconds"], item["elapsed"]
    files = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
    dev = [(run / "seeds" / f"seed-{seed}" / "dev.json").read_text() for seed in range(3)]
    model = (run / "model" / "model.safetensors").read_bytes()
    settings = json.loads((run / "run.json").read_text(encoding="utf-8"))
    del settings["id"]
    return {"results": results, "files": files, "dev": dev, "model": model, "run": settings}


@pytest.fixture(scope="module")
def in_turn(
    tmp_path_factory: pytest.TempPathFactory, base_folder: Path, labelled_rows: list[str]
) -> dict[str, Any]:
    """What a run says whose seeds were trained in turn."""
    folder = tmp_path_factory.mktemp("in-turn")
    train = folder / "labelled.tsv"
    train.write_text("\n".join(labelled_rows) + "\n", encoding="utf-8")
    finetune(
        FinetuneConfig(
            model=base_folder,
            train=train,
            out=folder / "run",
            settings=QUICK,
            experiment=ExperimentConfig(seeds=3, side_by_side=1),
        )
    )
    return told(folder / "run")


def check(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """All but where the training file lies is the same, the number of threads too."""
    sides = []
    for item in (found, expected):
        settings = item["run"]["settings"] | {"train": None}
        sides.append(item | {"run": item["run"] | {"settings": settings}})
    assert sides[0] == sides[1]


def test_the_same_as_in_turn_with_as_many_threads(
    run: Run, in_turn: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with threads_of_torch(2):
        run(tmp_path / "run", 2, threads=1)
        assert torch.get_num_threads() == 2
    check(told(tmp_path / "run"), in_turn)
    lines = capfd.readouterr().err
    assert "2 trainings side by side, with 1 thread each: as requested" in lines
    for seed in range(3):
        assert f"seed {seed} ({seed + 1} of 3): accuracy" in lines


def test_stopped_in_the_middle_of_several_it_goes_on(
    run: Run, in_turn: dict[str, Any], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    pipe, counts = tmp_path / "pipe", tmp_path / "counts"
    counts.mkdir()
    steps = {
        0: Step(number=7, meet=pipe, reads=True, stop_parent=True, wait_for_end=True),
        1: Step(number=4, meet=pipe, wait_for_end=True),
    }
    with pytest.raises(Interrupted) as stopped:
        run(tmp_path / "run", 2, steps=steps, counts=counts)
    assert str(stopped.value) == (
        "seed 0 (1 of 3) stopped after step 7 and seed 1 (2 of 3) stopped after step 4, saved; "
        "the same command resumes it"
    )
    assert not (tmp_path / "run" / "seeds" / "seed-2").exists()
    run(tmp_path / "run", 1, counts=counts)
    # no step was made twice
    assert [len((counts / str(seed)).read_text()) for seed in range(3)] == 3 * [STEPS]
    check(told(tmp_path / "run"), in_turn)


def test_a_process_that_is_killed_ends_the_run_and_the_others_are_saved(
    run: Run, in_turn: dict[str, Any], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    steps = {
        0: Step(number=6, meet=tmp_path / "pipe", reads=True, wait_for_end=True),
        1: Step(number=3, meet=tmp_path / "pipe", kill=True),
    }
    with pytest.raises(WorkerDied) as died:
        run(tmp_path / "run", 2, steps=steps)
    assert str(died.value) == (
        "seed 1 (2 of 3): the process has died (status -9), perhaps because memory ran out; give "
        "the "
        "same command again with --side-by-side 1: it resumes with what the others have saved"
    )
    seeds = tmp_path / "run" / "seeds"
    assert [path.name for path in (seeds / "seed-0" / "checkpoints").iterdir()] == ["step-00000006"]
    run(tmp_path / "run", 1)
    check(told(tmp_path / "run"), in_turn)


def test_what_a_training_raises_is_raised_here(run: Run, tmp_path: Path) -> None:
    with pytest.raises(TrainingDiverged) as diverged:
        run(tmp_path / "run", 2, steps={0: Step(number=3, diverge=True)})
    assert str(diverged.value) == "seed: the loss is no number; lower --learning-rate"
    assert not (tmp_path / "run" / "results.json").exists()


@pytest.mark.parametrize("best_ends", [pytest.param("first", marks=pytest.mark.faults), "last"])
def test_the_best_model_is_kept_whichever_ends_first(
    run: Run,
    in_turn: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    best_ends: str,
) -> None:
    best = in_turn["results"]["best_seed"]
    late = best if best_ends == "last" else next(seed for seed in range(3) if seed != best)
    pipe, known = tmp_path / "pipe", list[int]()
    os.mkfifo(pipe)
    tidy = Trials._tidy

    def tidying(self: Trials, trials: Any, results: Any, *, keep_best: bool) -> None:  # noqa: ANN401
        tidy(self, trials, results, keep_best=keep_best)
        known.append(len(results))
        models = [path.parent.parent.name for path in tmp_path.glob("run/seeds/*/model/*.json")]
        ranks = {trial: result.rank for trial, result in results.items()}
        winner = max(ranks, key=lambda place: ranks[place], default="seeds/")
        # one that has just been saved by a process at work may be there as well
        assert winner.removeprefix("seeds/") in {*models, ""}
        if len(results) == 2:
            with pipe.open("w"):
                pass

    monkeypatch.setattr(Trials, "_tidy", tidying)
    run(tmp_path / "run", 2, steps={late: Step(number=2, meet=pipe, reads=True)})
    assert known == [0, 1, 2, 3]
    check(told(tmp_path / "run"), in_turn)
