"""The number of threads that pre-training takes where nobody has set one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bertsmith.batches.config import SampleConfig
from bertsmith.core.errors import StoreError, UserError, WorkerDied
from bertsmith.core.processors import THREAD_SETTINGS, usable_processors
from bertsmith.network.batch import Batch
from bertsmith.network.families.bert import BERT
from bertsmith.network.families.family import usual
from bertsmith.recipes import resources
from bertsmith.recipes.pretrain import speed
from bertsmith.recipes.pretrain.config import NetworkConfig, PretrainConfig, PretrainSettings, Size
from bertsmith.recipes.pretrain.recipe import dry_run, pretrain
from bertsmith.recipes.pretrain.resolving import begin
from bertsmith.store.preparing import prepare_store
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.training import parallelism
from bertsmith.training import threads as of_threads
from bertsmith.training.distribution import ALONE
from bertsmith.training.local import local_replicas
from bertsmith.training.run_folder import RunFolder
from bertsmith.training.threads import choose_threads, quick_choice
from invented import invented_documents, tokenizer

__all__ = ["tokenizer"]

MAX_THREADS = 4
QUICK = PretrainSettings(
    network=NetworkConfig(max_positions=40),
    samples=SampleConfig(max_length=31, tokens_per_batch=190),
    measurements=0,
)
BUSY: dict[int, float] = {1: 22_900, 2: 12_000, MAX_THREADS: 9_500}
QUIET: dict[int, float] = {1: 25_000, 2: 31_000, MAX_THREADS: 33_000}


@pytest.fixture(scope="module", autouse=True)
def brief_trial() -> None:
    """Measure with as many steps as usual: this is what is tested."""


@pytest.mark.parametrize(
    ("speeds", "threads", "reason"),
    [
        (BUSY, 1, "1 thread of 4: 22,900 tokens/s against 9,500, as when other programs are busy"),
        (QUIET, MAX_THREADS, ""),
        ({1: 100, 2: 300, MAX_THREADS: 200}, 2, "2 threads of 4: 300 tokens/s against 200"),
        # a tenth may be chance
        ({1: 219, 2: 100, MAX_THREADS: 200}, MAX_THREADS, ""),
        ({1: 221, 2: 100, MAX_THREADS: 200}, 1, "1 thread of 4"),
    ],
)
def test_fewer_threads_have_to_be_clearly_faster(
    speeds: dict[int, float], threads: int, reason: str
) -> None:
    choice = choose_threads(speeds.__getitem__, MAX_THREADS)
    assert choice.threads == threads
    assert choice.reason.startswith(reason)
    assert bool(choice.reason) == bool(reason)


class _Machine:
    """A clock that each product moves on, by the number of threads that torch has."""

    def __init__(self, speeds: dict[int, float]) -> None:
        self.speeds, self.now = speeds, 0.0

    def perf_counter(self) -> float:
        return self.now

    def linear(self, inputs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        self.now += 1 / self.speeds[torch.get_num_threads()]
        return inputs @ weights.T

    @staticmethod
    def gelu(values: torch.Tensor) -> torch.Tensor:
        return values


@pytest.mark.parametrize(("speeds", "threads"), [(BUSY, 1), (QUIET, MAX_THREADS)])
def test_a_quick_choice_is_by_products_of_the_model(
    speeds: dict[int, float], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in THREAD_SETTINGS:
        monkeypatch.delenv(name, raising=False)
    machine = _Machine({number: speed / 100 for number, speed in speeds.items()})
    monkeypatch.setattr(of_threads, "time", machine)
    monkeypatch.setattr(of_threads, "F", machine)
    before = torch.get_num_threads()
    assert quick_choice(16, 32, MAX_THREADS).threads == threads
    assert torch.get_num_threads() == before
    assert machine.now < 0.6
    monkeypatch.setenv(THREAD_SETTINGS[0], "3")
    assert quick_choice(16, 32, MAX_THREADS).threads == MAX_THREADS


@pytest.mark.parametrize(("most", "tried"), [(1, [1]), (2, [1, 2]), (3, [1, 3]), (9, [1, 4, 9])])
def test_all_threads_half_of_them_and_one_are_tried(most: int, tried: list[int]) -> None:
    seen: list[int] = []

    def speed_of(threads: int) -> float:
        seen.append(threads)
        return 1.0

    assert choose_threads(speed_of, most).threads == most
    assert seen == tried


@pytest.fixture(scope="module")
def store(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "store"
    prepare_store(invented_documents(50), tokenizer, folder, held_out=0.1)
    return folder


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[dict[int, float]], list[int]]]:
    """Make a machine of four threads of given speeds; returns the threads of each step tried."""
    monkeypatch.setitem(BERT.sizes, "tiny", usual(2, 64))
    for name in THREAD_SETTINGS:
        monkeypatch.delenv(name, raising=False)
    before = torch.get_num_threads()

    def make(speeds: dict[int, float]) -> list[int]:
        torch.set_num_threads(MAX_THREADS)
        tried: list[int] = []

        def step(self: object, batch: Batch) -> tuple[float, float, float]:
            del self, batch
            tried.append(torch.get_num_threads())
            return 1 / speeds[torch.get_num_threads()], 0.0, 5.0

        monkeypatch.setattr(speed.TrainedCopy, "step", step)
        return tried

    yield make
    torch.set_num_threads(before)


@pytest.fixture
def trained_with(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that torch has in each step of training, as it is made."""
    seen: list[int] = []
    compute = parallelism.GradientComputer.compute

    def noted(*given: Any) -> Any:  # noqa: ANN401
        seen.append(torch.get_num_threads())
        return compute(*given)

    monkeypatch.setattr(parallelism.GradientComputer, "compute", noted)
    return seen


def threads_of(run: Path) -> int:
    return int(json.loads((run / "run.json").read_text(encoding="utf-8"))["settings"]["threads"])


def alternative_of(run: Path) -> object:
    return json.loads((run / "run.json").read_text(encoding="utf-8"))["settings"]["alternative"]


@pytest.mark.parametrize("model", ["tiny", None])
@pytest.mark.parametrize(("speeds", "threads"), [(BUSY, 1), (QUIET, MAX_THREADS)])
def test_a_run_keeps_the_threads_that_were_fastest_when_it_began(
    model: Size | None,
    speeds: dict[int, float],
    threads: int,
    machine: Callable[[dict[int, float]], list[int]],
    trained_with: list[int],
    store: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if model is None:
        # the smallest that is chosen among
        monkeypatch.setitem(BERT.sizes, "tiny", usual(2, 64))
    tried, out = machine(speeds), tmp_path / "run"
    settings = replace(QUICK, log_every=1)
    pretrain(
        PretrainConfig(store=store, out=out, model=model, steps=1, settings=settings, force=True)
    )
    assert set(tried) == {1, 2, MAX_THREADS}
    assert [threads_of(out), *trained_with] == [threads, threads]
    assert ("1 thread of 4: " in capsys.readouterr().err) == (threads == 1)
    # too short a run to change
    assert alternative_of(out) is None
    # the other way round by now
    del tried[:]
    tried = machine(BUSY if speeds is QUIET else QUIET)
    pretrain(
        PretrainConfig(store=store, out=out, model=model, steps=1, settings=settings, force=True)
    )
    assert not set(tried) - {threads}
    assert threads_of(out) == threads
    # a program goes on with its own
    assert torch.get_num_threads() == MAX_THREADS


@pytest.mark.parametrize("name", THREAD_SETTINGS)
def test_a_number_of_threads_that_is_set_holds(
    name: str,
    machine: Callable[[dict[int, float]], list[int]],
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = machine(BUSY)
    monkeypatch.setattr(speed, "_MIN_SECONDS", 0.0)
    monkeypatch.setenv(name, str(MAX_THREADS))
    pretrain(
        PretrainConfig(
            store=store, out=tmp_path / "run", model="tiny", steps=1, settings=QUICK, force=True
        )
    )
    assert set(tried) == {MAX_THREADS}
    assert threads_of(tmp_path / "run") == MAX_THREADS
    assert alternative_of(tmp_path / "run") is None


@pytest.mark.parametrize("model", ["tiny", None])
def test_a_damaged_store_is_refused_before_any_step_is_tried(
    model: Size | None,
    machine: Callable[[dict[int, float]], list[int]],
    store: Path,
    tmp_path: Path,
) -> None:
    tried, damaged, out = machine(BUSY), tmp_path / "store", tmp_path / "run"
    shutil.copytree(store, damaged)
    tokens = damaged / "tokens-00000.bin"
    tokens.write_bytes(b"\xff" * tokens.stat().st_size)
    with pytest.raises(StoreError, match=r"tokens-00000\.bin: is damaged"):
        pretrain(PretrainConfig(store=damaged, out=out, model=model, steps=1, settings=QUICK))
    config = PretrainConfig(store=damaged, out=out, model=model, steps=1, settings=QUICK)
    with pytest.raises(StoreError, match=r"tokens-00000\.bin: is damaged"):
        dry_run(config)
    assert not tried
    assert not out.exists()


def test_a_model_that_is_too_slow_to_be_tried_keeps_all_threads(
    machine: Callable[[dict[int, float]], list[int]], store: Path, tmp_path: Path
) -> None:
    # a step takes longer than the second that there is
    tried = machine({threads: tokens / 1e6 for threads, tokens in BUSY.items()})
    pretrain(
        PretrainConfig(
            store=store, out=tmp_path / "run", model="tiny", steps=1, settings=QUICK, force=True
        )
    )
    assert threads_of(tmp_path / "run") == MAX_THREADS
    assert set(tried) == {1, MAX_THREADS}


def test_a_network_without_room_is_refused_before_it_is_tried(
    machine: Callable[[dict[int, float]], list[int]],
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = machine(BUSY)
    monkeypatch.setattr(resources, "free_memory", lambda device: 2**20)
    with pytest.raises(UserError, match="memory"):
        pretrain(
            PretrainConfig(store=store, out=tmp_path / "run", model="tiny", steps=1, settings=QUICK)
        )
    assert not tried
    assert not (tmp_path / "run").exists()


def died(*_: object) -> float:
    raise WorkerDied("a process that trains has died")


@pytest.mark.parametrize(
    ("seconds", "free", "replicas"),
    [
        (lambda *_: 1e-4, 2**40, MAX_THREADS),
        (lambda *_: 1e4, 2**40, 1),
        (
            lambda trial, batch, processes: batch.tokens / (1.04 * QUIET[MAX_THREADS]),
            2**40,
            MAX_THREADS,
        ),
        (lambda trial, batch, processes: batch.tokens / (0.96 * QUIET[MAX_THREADS]), 2**40, 1),
        (died, 2**40, 1),
        # the memory that replicas share is not there
        (lambda *_: 1e-4, 2**20, 1),
    ],
)
def test_a_run_keeps_its_replicas_where_a_trial_finds_them_faster(
    seconds: Callable[..., float],
    free: int,
    replicas: int,
    machine: Callable[[dict[int, float]], list[int]],
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine(QUIET)
    monkeypatch.setattr(speed, "_MIN_SECONDS", 0.0)
    monkeypatch.setattr(speed, "_seconds_of_replicas", seconds)
    monkeypatch.setattr(speed, "free_memory", lambda device: free)
    out = tmp_path / "run"
    config = PretrainConfig(store=store, out=out, model="tiny", steps=2, settings=QUICK, force=True)
    folder = RunFolder(out)
    with folder.owned():
        begin(folder, config, ALONE)
    record = json.loads((out / "run.json").read_text(encoding="utf-8"))["settings"]
    assert record["replicas"] == replicas
    assert record["threads"] == (1 if replicas > 1 else MAX_THREADS)
    # the other of the two, for when the machine changes; replicas that do not fit are no choice
    other = {"threads": MAX_THREADS, "replicas": 1} if replicas > 1 else None
    fit = {"threads": 1, "replicas": MAX_THREADS} if free > 2**30 else None
    assert record["alternative"] == (other or fit)
    # the same run, whatever a trial would find by now
    monkeypatch.setattr(speed, "_seconds_of_replicas", lambda *_: 1e4 if replicas > 1 else 1e-4)
    with folder.owned():
        assert begin(folder, config, ALONE).replicas == replicas
    assert json.loads((out / "run.json").read_text(encoding="utf-8"))["settings"] == record


def test_a_run_with_replicas_is_trained_by_them(
    machine: Callable[[dict[int, float]], list[int]],
    trained_with: list[int],
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine({1: 25_000, 2: 33_000})
    torch.set_num_threads(2)
    monkeypatch.setattr(speed, "_MIN_SECONDS", 0.0)
    monkeypatch.setattr(speed, "_seconds_of_replicas", lambda *_: 1e-4)
    out = tmp_path / "run"
    config = PretrainConfig(store=store, out=out, model="tiny", steps=2, settings=QUICK, force=True)
    used = list[int]()

    def noted(*given: Any, **named: Any) -> Any:  # noqa: ANN401
        used.append(named["processes"])
        return local_replicas(*given, **named)

    monkeypatch.setattr(parallelism, "local_replicas", noted)
    assert pretrain(config).state.step == 2
    assert used == [min(2, usable_processors())]
    assert [threads_of(out), *trained_with] == [1, 1, 1]
    # the same run, whatever a trial would find by now
    monkeypatch.setattr(speed, "_seconds_of_replicas", lambda *_: 1e4)
    pretrain(config)


def test_replicas_are_really_tried(
    machine: Callable[[dict[int, float]], list[int]],
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Processes start and compute parts; a tiny network by them is slower than threads claim."""
    machine(dict.fromkeys(QUIET, 1000000000000.0))
    monkeypatch.setattr(speed, "_MIN_SECONDS", 0.0)
    timed, found = speed._seconds_of_replicas, list[float]()

    def noted(trial: speed.TrainedCopy, batch: Batch, processes: int) -> float:
        found.append(timed(trial, batch, processes))
        return found[-1]

    monkeypatch.setattr(speed, "_seconds_of_replicas", noted)
    torch.set_num_threads(2)
    pretrain(
        PretrainConfig(
            store=store, out=tmp_path / "run", model="tiny", steps=1, settings=QUICK, force=True
        )
    )
    assert len(found) == 1
    assert found[0] > 0
    assert threads_of(tmp_path / "run") == 2
