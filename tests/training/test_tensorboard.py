"""The event files say what log.jsonl says, as tensorboard itself reads them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from bertsmith.core.errors import MissingExtra, RunFolderError
from bertsmith.training import run_folder
from bertsmith.training.run_folder import RunFolder, tag, tensorboard_events

installed = pytest.mark.skipif(
    importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed"
)


def line(step: int) -> dict[str, float]:
    return {"step": step, "seconds": 2.5 * step, "masked_lm_loss": 9.0 - step, "mfu": 0.25}


def scalars(place: Path) -> dict[str, list[tuple[int, float, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(place))
    read.Reload()
    found = {name: read.Scalars(name) for name in read.Tags()["scalars"]}
    return {n: [(e.step, e.value, e.wall_time) for e in all_] for n, all_ in found.items()}


@installed
def test_events_are_the_lines_of_the_log(tmp_path: Path) -> None:
    folder, place = RunFolder(tmp_path), tmp_path / "tensorboard"
    with tensorboard_events(folder, place):
        assert not place.exists()
        folder.record(line(1))
        folder.record(line(2))
        folder.record({"step": 2, "seconds": 5.0, "held_out_masked_lm_loss": 7.5})
    folder.record(line(3))
    found = scalars(place)
    assert found.keys() == {
        "loss/masked_lm", "held_out_loss/masked_lm", "training/mfu", "training/seconds",
    }  # fmt: skip
    assert [point[:2] for point in found["loss/masked_lm"]] == [(1, 8.0), (2, 7.0)]
    assert [point[:2] for point in found["held_out_loss/masked_lm"]] == [(2, 7.5)]
    first, second = (at for _, _, at in found["training/mfu"])
    assert second - first == pytest.approx(2.5)


@installed
def test_a_resumed_run_shows_each_step_once(tmp_path: Path) -> None:
    folder, place = RunFolder(tmp_path), tmp_path / "tensorboard"
    with tensorboard_events(folder, place):
        for step in (1, 2, 3):
            folder.record(line(step))
            if step == 2:
                size = folder.log_bytes
    folder.truncate_log(size)
    with tensorboard_events(folder, place):
        for step in (3, 4):
            folder.record(line(step))
    steps = [step for step, _, _ in scalars(place)["loss/masked_lm"]]
    assert steps == [1, 2, 3, 4]


@installed
def test_a_folder_that_it_cannot_write_to_is_refused_beforehand(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "lat\udce9in")
    with (
        pytest.raises(RunFolderError, match="a folder whose name is not UTF-8"),
        tensorboard_events(folder, folder.path / "tensorboard"),
    ):
        folder.record(line(1))


def test_names_of_figures_become_groups() -> None:
    assert tag("next_sentence_accuracy") == "accuracy/next_sentence"
    assert tag("held_out_next_sentence_count") == "held_out/next_sentence_count"
    assert tag("gradient_norm") == "training/gradient_norm"


def test_a_missing_package_is_named_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "find_spec", lambda name: None)
    with (
        pytest.raises(MissingExtra, match=r"pip install 'bertsmith\[tensorboard\]'"),
        tensorboard_events(RunFolder(tmp_path), tmp_path / "tensorboard"),
    ):
        pass
