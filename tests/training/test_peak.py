"""The peak of matrix products: measured beside busy neighbours, kept, and raised."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import torch

from bertsmith.core import files
from bertsmith.training import peak
from bertsmith.training.peak import Peak, describe_machine, fastest, known_peak, matrix_peak

CPU = torch.device("cpu")
MACHINE = "cpu: a chip, 2 threads"


class Machine:
    """A machine of made-up time, on which products take what they should and interruptions."""

    def __init__(self, speed: float, late: Callable[[int], float] = lambda _: 0.0) -> None:
        self.now = 1000.0
        self.calls: dict[float, int] = {}
        self._speed, self._late, self._number = speed, late, count()

    def clock(self) -> float:
        return self.now

    def products(self) -> Iterator[tuple[float, Callable[[], object]]]:
        for operations in (1e8, 1e9, 8e9, 64e9, 512e9):
            yield operations, partial(self._multiply, operations)

    def _multiply(self, operations: float) -> None:
        self.calls[operations] = self.calls.get(operations, 0) + 1
        # the smallest product is too small for full speed
        share = 0.6 if operations < 1e9 else 1.0
        self.now += operations / (self._speed * share) + self._late(next(self._number))


def test_the_peak_is_that_of_an_idle_machine_however_busy_it_is() -> None:
    for late in (
        lambda _: 0.0,
        # the first calls prepare their kernels
        lambda number: 0.3 if number in (0, 3) else 0.0,
        # another process takes the core nine times of ten
        lambda number: 0.004 * (number % 10 != 0),
    ):
        machine = Machine(4e11, late)
        assert fastest(machine.products(), 1.0, machine.clock) == pytest.approx(4e11)
        # within its time, but for the calls that show how long a call takes
        assert 1.0 <= machine.now - 1000 < 2.0


def test_products_too_large_to_be_repeated_are_left_alone() -> None:
    slow, fast = Machine(1e11), Machine(1e13)
    fastest(slow.products(), 1.0, slow.clock)
    fastest(fast.products(), 1.0, fast.clock)
    assert max(slow.calls) == 1e9
    assert max(fast.calls) == 64e9
    # every one of them is called early and late
    assert min(slow.calls.values()) > 20


def test_a_process_that_was_stopped_before_the_first_product_measures_it_all_the_same() -> None:
    machine = Machine(4e11)

    def late() -> Iterator[tuple[float, Callable[[], object]]]:
        machine.now += 2.0
        yield from machine.products()

    assert fastest(late(), 1.0, machine.clock) == pytest.approx(0.6 * 4e11)


class Speeds:
    """Measurements one after another, and the seconds that each was given."""

    def __init__(self, *speeds: float) -> None:
        self.given: list[float] = []
        self._speeds = list(speeds)

    def __call__(self, seconds: float) -> float:
        self.given.append(seconds)
        return self._speeds.pop(0)


def test_the_highest_measurement_stays(tmp_path: Path) -> None:
    measure, folder = Speeds(3e11, 5e11, 2e11), tmp_path / "not" / "yet"

    def at(seconds: float) -> Peak:
        return known_peak(folder, MACHINE, measure, now=lambda: seconds)

    found = [at(1e9 + 3600 * hour) for hour in range(3)]
    assert [result.flops for result in found] == [3e11, 5e11, 5e11]
    assert [str(result) for result in found] == [
        "300 GFLOP/s (measured once)",
        "500 GFLOP/s (best of 2 measurements)",
        "500 GFLOP/s (best of 3 measurements)",
    ]
    # a machine that is known costs a run less time
    assert measure.given[0] > measure.given[1] == measure.given[2]
    assert [path.suffix for path in folder.iterdir()] == [".json"]


def test_runs_that_follow_one_another_do_not_measure_again_unless_they_are_faster(
    tmp_path: Path,
) -> None:
    measure = Speeds(3e11, 4e11)
    first = known_peak(tmp_path, MACHINE, measure, now=lambda: 1e9)
    assert known_peak(tmp_path, MACHINE, measure, now=lambda: 1e9 + 60, reached=2e11) == first
    # training faster than the peak shows that the machine was busy when it was measured
    assert (
        known_peak(tmp_path, MACHINE, measure, now=lambda: 1e9 + 60, reached=3.5e11).flops == 4e11
    )
    assert len(measure.given) == 2


def test_machines_are_kept_apart(tmp_path: Path) -> None:
    measure = Speeds(3e11, 1e11)
    known_peak(tmp_path, MACHINE, measure)
    assert known_peak(tmp_path, MACHINE + ", fp32", measure).flops == 1e11
    assert known_peak(tmp_path, MACHINE, measure).flops == 3e11


def test_what_is_kept_tells_chip_threads_precision_and_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads = torch.get_num_threads()
    told = describe_machine("fp32", CPU)
    assert f"torch {torch.__version__}, fp32" in told
    others = {told, describe_machine("bf16", CPU)}
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    others.add(describe_machine("fp32", CPU))
    try:
        torch.set_num_threads(threads + 1)
        others.add(describe_machine("fp32", CPU))
    finally:
        torch.set_num_threads(threads)
    assert len(others) == 4


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-20],
        lambda text: text.replace('"flops": ', '"flops": -'),
        lambda text: text.replace('"flops": 300000000000.0', '"flops": Infinity'),
        lambda text: text.replace('"flops": 300000000000.0', '"flops": "fast"'),
        lambda text: text.replace("a chip", "another chip"),
        lambda text: json.dumps(list(json.loads(text))),
        lambda _: "\0",
    ],
)
def test_a_damaged_file_is_as_none(tmp_path: Path, damage: Callable[[str], str]) -> None:
    known_peak(tmp_path, MACHINE, Speeds(3e11))
    (path,) = tmp_path.iterdir()
    path.write_text(damage(path.read_text()))
    assert known_peak(tmp_path, MACHINE, Speeds(1e11)).flops == 1e11
    assert known_peak(tmp_path, MACHINE, Speeds()).flops == 1e11


def test_a_place_that_takes_nothing_costs_nothing_but_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", None):
        for speed in (3e11, 1e11):
            assert known_peak(folder, MACHINE, Speeds(speed)).flops == speed
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_process_asks_once_and_draws_no_random_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peak, "_known_peaks", {})
    monkeypatch.setattr(peak, "_FIRST_SECONDS", 0.02)
    monkeypatch.setenv("BERTSMITH_CACHE", str(tmp_path))
    before = torch.get_rng_state()
    found = matrix_peak("fp32", CPU)
    # any machine that runs the tests is between a thousandth and a thousand times a usual core
    assert 1e8 < found.flops < 1e15
    assert torch.equal(torch.get_rng_state(), before)
    (path,) = (tmp_path / "matrix-peak").iterdir()
    path.unlink()
    assert matrix_peak("fp32", CPU) is found
    assert not path.exists()
    # the next process finds it
    monkeypatch.setattr(peak, "_known_peaks", {})
    matrix_peak("fp32", CPU)
    assert path.exists()


def test_processes_are_measured_with_the_threads_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def measured(*_: object) -> float:
        threads.append(torch.get_num_threads())
        return 1e9

    monkeypatch.setattr(peak, "_known_peaks", {})
    monkeypatch.setattr(peak, "measure_peak", measured)
    monkeypatch.setenv("BERTSMITH_CACHE", str(tmp_path))
    before = torch.get_num_threads()
    for processes in (1, 3):
        matrix_peak("fp32", CPU, processes=processes)
    assert threads == [before, 3 * before]
    assert torch.get_num_threads() == before


def test_the_cache_follows_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    for name in ("BERTSMITH_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    for system, place in (
        ("Linux", ".cache"), ("Darwin", "Library/Caches"), ("Windows", "AppData/Local"),
    ):  # fmt: skip
        monkeypatch.setattr(platform, "system", partial(str, system))
        assert files.user_cache() == home / place / "bertsmith"
    monkeypatch.setattr(platform, "system", partial(str, "Linux"))
    for value, cache in ((str(tmp_path), tmp_path), ("relative", home / ".cache")):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert files.user_cache() == cache / "bertsmith"
    monkeypatch.setenv("BERTSMITH_CACHE", str(tmp_path / "own"))
    assert files.user_cache() == tmp_path / "own"
