"""A run that changes between threads and local replicas when the machine does."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bertsmith.batches import DataPosition
from bertsmith.batches.pretraining import PretrainingBatches
from bertsmith.core.clock import Clock
from bertsmith.core.errors import RunFolderError, WorkerDied
from bertsmith.network.batch import Batch
from bertsmith.training import local, parallelism
from bertsmith.training.checkpoints import State
from bertsmith.training.config import Budget, FitConfig, Parallelism
from bertsmith.training.distribution import ALONE
from bertsmith.training.gradients import Gradient, compute_gradient
from bertsmith.training.local import LocalReplicas
from bertsmith.training.loop import Session, fit
from bertsmith.training.parallelism import GradientComputer
from bertsmith.training.replicas import Replica
from bertsmith.training.run_folder import PARALLELISM, RunFolder, write_record
from bertsmith.training.schedule import Timing
from invented import tokenizer
from training import test_local
from training.test_local import CONFIG, OBJECTIVE, SAVING, batches, children, model_of, store

__all__ = ["batches", "store", "tokenizer"]

REPLICAS, THREADS = Parallelism(threads=1, replicas=2), Parallelism(threads=2)
BEGUN_WITH_THREADS = replace(CONFIG, replicas=1, alternative=REPLICAS)
BEGUN_WITH_REPLICAS = replace(CONFIG, replicas=2, alternative=THREADS)
# a step of the tests is one of seconds, so that trials are not too short to be worth it
TOKENS_PER_SECOND = 10.0
SHARE = parallelism.TRIAL_SHARE
Speeds = Callable[[int, bool], float]


def always(threads: float, replicas: float) -> Speeds:
    return lambda step, by_replicas: replicas if by_replicas else threads


QUIET, BUSY = always(1.0, 0.9), always(0.4, 0.65)


def busy_between(first: int, last: int) -> Speeds:
    return lambda step, by_replicas: (BUSY if first <= step < last else QUIET)(step, by_replicas)


class Machine:
    """A clock that each gradient moves on by what it takes on a machine of given speeds."""

    def __init__(self, speeds: Speeds) -> None:
        self.speeds, self.now = speeds, 0.0
        self.compute: Callable[..., Gradient | None] = compute_gradient
        self.after: Callable[[], object] = lambda: None
        self.computed: list[tuple[int, bool, int, float]] = []

    def perf_counter(self) -> float:
        return self.now

    def gradient(
        self, replica: Any, loaded: list[Batch], seed: int, step: int, **given: Any  # noqa: ANN401
    ) -> Any:  # fmt: skip  # noqa: ANN401
        by: LocalReplicas | None = given["local"]
        found = self.compute(replica, loaded, seed, step, **given)
        assert found is not None
        seconds = found.tokens / (TOKENS_PER_SECOND * self.speeds(step, by is not None))
        self.now += seconds
        self.computed.append((step, by is not None, torch.get_num_threads(), seconds))
        self.after()
        return found


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Speeds], Machine]]:
    before = torch.get_num_threads()

    def make(speeds: Speeds) -> Machine:
        made = Machine(speeds)
        monkeypatch.setattr(parallelism, "time", made)
        monkeypatch.setattr(parallelism, "compute_gradient", made.gradient)
        return made

    # so that tens of steps are enough for a second change
    monkeypatch.setattr(parallelism, "TRIAL_SHARE", 0.5)
    # what replicas compute, in this process
    monkeypatch.setattr(local, "usable_processors", lambda: 1)
    torch.set_num_threads(1)
    yield make
    torch.set_num_threads(before)


def trained(
    machine: Machine, batches: PretrainingBatches, config: FitConfig, folder: Path | None = None
) -> tuple[State, dict[str, torch.Tensor], list[dict[str, Any]]]:
    """Train by the clock of a machine; the folder may hold a run."""
    timing = Timing(clock=Clock(now=machine.perf_counter))
    return test_local.trained(batches, config, batches, folder, Session(timing=timing))


def changes(run: Path) -> list[tuple[int, int, int]]:
    if not (run / PARALLELISM).exists():
        return []
    entries = json.loads((run / PARALLELISM).read_text(encoding="utf-8"))["changes"]
    return [(step, adopted["threads"], adopted["replicas"]) for step, adopted in entries]


def test_a_run_changes_when_the_machine_becomes_busy_and_back_when_it_is_quiet(
    batches: PretrainingBatches,
    machine: Callable[[Speeds], Machine],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = machine(busy_between(14, 30))
    config = replace(BEGUN_WITH_THREADS, budget=Budget(steps=50))
    trained(made, batches, config, tmp_path)
    (busy, *to_replicas), (quiet, *to_threads) = changes(tmp_path)
    assert to_replicas == [1, 2]
    assert to_threads == [1, 1]
    # most of the eight steps that count have to be of the new speed
    assert 18 <= busy <= 23
    assert 34 <= quiet <= 39
    by_replicas = {step for step, by, *_ in made.computed if by}
    assert set(range(busy, quiet)) <= by_replicas
    by_threads = {step for step, by, *_ in made.computed if not by}
    assert {*range(busy), *range(quiet, 50)} <= by_threads
    said = capsys.readouterr().err
    assert f"step {busy + 1}: from here on with 2 replicas of 1 thread: 6" in said
    assert (
        f"step {quiet + 1}: from here on with 1 thread: 10 tokens/s against 9 with 2 replicas"
        in said
    )


def test_a_run_that_was_begun_beside_other_programs_takes_all_threads_when_they_end(
    batches: PretrainingBatches,
    machine: Callable[[Speeds], Machine],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    others, beside = set(children()), list[int]()
    made = machine(QUIET)
    # two threads would wait for each other where other tests run
    threads_of_torch = [1]
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads_of_torch[-1])
    monkeypatch.setattr(torch, "set_num_threads", threads_of_torch.append)
    monkeypatch.setattr(local, "usable_processors", lambda: 2)
    made.after = lambda: beside.append(len(set(children()) - others))
    trained(made, batches, replace(BEGUN_WITH_REPLICAS, budget=Budget(steps=21)), tmp_path)
    ((step, threads, replicas),) = changes(tmp_path)
    assert 8 <= step <= 10
    assert (threads, replicas) == (2, 1)
    # the other process ends with the last part that it has computed
    assert beside == sorted(beside, reverse=True)
    assert (beside[0], beside[-1]) == (1, 0)
    assert {threads for number, _, threads, _ in made.computed if number > step} == {2}
    assert threads_of_torch[-1] == 1


@pytest.mark.parametrize("speeds", [always(1.0, 1.04), busy_between(10, 11)])
def test_nothing_is_changed_for_less_than_a_clear_and_lasting_gain(
    speeds: Speeds,
    batches: PretrainingBatches,
    machine: Callable[[Speeds], Machine],
    tmp_path: Path,
) -> None:
    made = machine(speeds)
    trained(made, batches, replace(BEGUN_WITH_THREADS, budget=Budget(steps=30)), tmp_path)
    assert not changes(tmp_path)
    assert any(by for _, by, *_ in made.computed)
    assert [step for step, by, *_ in made.computed if not by] == list(range(30))


def test_trials_take_a_small_share_of_the_time(
    batches: PretrainingBatches,
    machine: Callable[[Speeds], Machine],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The speed changes all the time, and threads are faster all the same."""
    monkeypatch.setattr(parallelism, "TRIAL_SHARE", SHARE)
    made = machine(lambda step, by_replicas: (0.5 if by_replicas else 1.0) * (1 + step // 10 % 2))
    made.compute = lambda *_, **__: Gradient(norm=1.0, loss=1.0, losses=[], tokens=260)
    batch, _ = batches.next_batch(DataPosition())
    replica = Replica(model_of(batches), OBJECTIVE, "fp32", ALONE)
    with GradientComputer(replica, OBJECTIVE, BEGUN_WITH_THREADS) as computer:
        for step in range(2000):
            computer.compute([batch], step)
            computer.adapt([batch], step + 1)
    trials = made.now - sum(seconds for _, by, _, seconds in made.computed if not by)
    assert 0.8 * SHARE * made.now < trials <= SHARE * made.now
    # where the rest of the run is too short to gain by one, there is none
    made = machine(QUIET)
    with GradientComputer(replica, OBJECTIVE, BEGUN_WITH_THREADS) as computer:
        for step in range(200):
            computer.compute([batch], step)
            computer.adapt([batch], step + 1, seconds_left=60.0)
    assert not any(by for _, by, *_ in made.computed)


def test_a_run_resumed_before_a_change_computes_every_step_as_before(
    batches: PretrainingBatches, machine: Callable[[Speeds], Machine], tmp_path: Path
) -> None:
    made = machine(busy_between(8, 100))
    budget, whole, run = Budget(steps=30), tmp_path / "whole", tmp_path / "run"
    config = replace(SAVING, replicas=1, alternative=REPLICAS, keep_checkpoints=30, budget=budget)
    _, weights, log = trained(made, batches, config, whole)
    ((step, _, _),) = changes(whole)
    assert 8 < step < 18
    shutil.copytree(whole, run)
    for checkpoint in (run / "checkpoints").iterdir():
        if int(checkpoint.name.removeprefix("step-")) > 7:
            shutil.rmtree(checkpoint)
    # killed then: what follows is computed on a machine that is quiet by now
    resumed = machine(always(1.0, 1.0))
    _, after, again = trained(resumed, batches, config, run)
    by_replicas = {number: by for number, by, *_ in resumed.computed}
    assert by_replicas == {number: number >= step for number in range(7, 30)}
    assert all(torch.equal(weights[name], after[name]) for name in weights)
    assert [line["gradient_norm"] for line in log] == [line["gradient_norm"] for line in again]
    # only what is computed by others has others' dropout
    other = machine(QUIET)
    _, by_threads, _ = trained(other, batches, replace(config, alternative=None))
    assert not any(by for _, by, *_ in other.computed)
    assert any(not torch.equal(weights[name], by_threads[name]) for name in weights)


def test_a_trial_that_cannot_start_leaves_the_run_as_it_is(
    batches: PretrainingBatches,
    machine: Callable[[Speeds], Machine],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = []

    def died(*_: object, **__: object) -> None:
        tried.append(1)
        raise WorkerDied("a process that trains has died")

    monkeypatch.setattr(parallelism, "local_replicas", died)
    made = machine(busy_between(10, 100))
    config = replace(BEGUN_WITH_THREADS, budget=Budget(steps=22))
    state, _, _ = trained(made, batches, config, tmp_path)
    assert tried
    assert state.step == 22
    assert not changes(tmp_path)


def test_a_damaged_record_of_changes_is_refused(
    batches: PretrainingBatches, tmp_path: Path
) -> None:
    (tmp_path / PARALLELISM).write_text('{"changes": []}', encoding="utf-8")
    with pytest.raises(RunFolderError, match=rf"{PARALLELISM}: is damaged"):
        fit(BEGUN_WITH_THREADS, model_of(batches), OBJECTIVE, batches, folder=RunFolder(tmp_path))


@pytest.mark.parametrize(
    "content",
    [
        {"seed": 3},
        {"changes": 7},
        {"changes": [7]},
        {"changes": [["x", {"threads": 1}]]},
        {"changes": [[3, []]]},
        {"changes": [[3, {"threads": "two"}]]},
        {"changes": [[3, {"cores": 2}]]},
    ],
)
def test_another_record_in_the_place_of_that_of_changes_is_refused(
    tmp_path: Path, content: dict[str, Any]
) -> None:
    write_record(tmp_path / PARALLELISM, content)
    with pytest.raises(RunFolderError, match=rf"^[^\n]*{PARALLELISM}: is not the record [^\n]*$"):
        RunFolder(tmp_path).parallelism_changes()
