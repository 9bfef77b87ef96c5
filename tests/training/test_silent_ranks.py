"""A rank that falls silent is missed by the one after it, and heard when it goes on."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import torch

from bertsmith.core.errors import ConfigError
from bertsmith.training import distribution
from bertsmith.training.distribution import RankWatch


class DictStore:
    """The launcher's store, in this process."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}

    def clone(self) -> DictStore:
        return self

    def set(self, key: str, value: str) -> None:
        self.values[key] = value.encode()

    def get(self, key: str) -> bytes:
        return self.values[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)


@pytest.fixture
def peer() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.send_signal(signal.SIGCONT)
    process.communicate()


@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("rank", [0, 1])
def test_silence_is_told_once_and_so_is_its_end(
    peer: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    rank: int,
    stopped: bool,
) -> None:
    # polls are those of the test: its thread would make some while the test is kept waiting
    monkeypatch.setattr(RankWatch, "_run", lambda watch: None)
    store, other = DictStore(), 1 - rank
    store.set(f"rank/{other}", json.dumps(distribution._this_peer() | {"pid": peer.pid}))
    store.set(f"beat/{other}", "1")
    if stopped:
        peer.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, peer.pid, os.WSTOPPED)
    watch = RankWatch(store, rank, 2)
    numbers = itertools.count(1)

    def told(polls: int) -> list[str]:
        for _ in range(polls):
            watch._poll([], next(numbers))
        return capsys.readouterr().err.splitlines()

    # the first poll hears a heartbeat, then ten hear none
    assert told(10) == []
    (silent,) = told(1)
    name = f"rank {other} (pid {peer.pid} on "
    assert name in silent
    assert "has sent no heartbeat for 10 seconds: " in silent
    assert (f"kill -CONT {peer.pid}" in silent) is stopped
    assert told(40) == []
    store.set(f"beat/{other}", "2")
    (running,) = told(1)
    assert name in running
    assert running.endswith(" is running again")
    # whoever has left is missed by nobody
    store.set(f"left/{other}", "1")
    assert told(40) == []
    watch.leave()
    assert watch.cause == ""


@pytest.mark.parametrize("other", ["bertsmith 0.0.1, torch 2.10.0", "{}, --shard"])
def test_ranks_that_run_different_programs_are_named(
    monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    monkeypatch.setattr(RankWatch, "_run", lambda watch: None)
    peer = distribution._this_peer()
    program = other.format(peer["program"])
    store = DictStore()
    store.set("rank/1", json.dumps(peer | {"program": program}))
    watch = RankWatch(store, 0, 2)
    refused = f"rank 1 \\(pid .*\\) runs {program}, and rank 0 {peer['program']};"
    with pytest.raises(ConfigError, match=refused.replace("+", "\\+")):
        watch.check_alike()
    store.set("rank/1", json.dumps(peer))
    RankWatch(store, 0, 2).check_alike()


def test_builds_of_one_torch_are_one_program_on_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PyPI's build is for CUDA, also on machines without a GPU."""
    for has_gpus in (False, True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda has_gpus=has_gpus: has_gpus)
        programs = set[str]()
        for build in ("+cpu", "+cu130"):
            monkeypatch.setattr(torch, "__version__", f"2.13.0{build}")
            programs.add(distribution._this_peer()["program"])
        assert len(programs) == 1 + has_gpus


def test_ranks_are_watched_until_one_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    polled = threading.Semaphore(0)
    monkeypatch.setattr(distribution, "_POLL_SECONDS", 0.001)
    monkeypatch.setattr(RankWatch, "_poll", lambda watch, ended, polls: polled.release())
    watch = RankWatch(DictStore(), 0, 1)
    for _ in range(3):
        assert polled.acquire(timeout=300)
    watch.leave()
    assert not watch._thread.is_alive()


@pytest.mark.parametrize("failed", [True, False])
def test_a_rank_may_leave_while_its_thread_ends(
    monkeypatch: pytest.MonkeyPatch, failed: bool
) -> None:
    """The thread closes the pipe by which it is woken, whose number may be another file then."""
    monkeypatch.setattr(distribution, "_POLL_SECONDS", 0.001)
    monkeypatch.setattr(RankWatch, "_poll", lambda watch, ended, polls: None)
    watch = RankWatch(DictStore(), 0, 1)
    if failed:
        watch._known.set()
    leave = watch._left.set

    def leave_and_be_slow() -> None:
        leave()
        watch._thread.join()

    monkeypatch.setattr(watch._left, "set", leave_and_be_slow)
    watch.leave()
    assert not watch._thread.is_alive()


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (signal.SIGKILL, "was killed by signal 9 (SIGKILL)"),
        # of real time, without a name
        (40, "was killed by signal 40"),
    ],
)
def test_the_signal_that_ended_a_rank_is_named(number: int, reason: str) -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    try:
        child.send_signal(number)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        peer: distribution.Peer = {"pid": child.pid, "host": "here", "machine": "", "program": ""}
        assert distribution._describe_exit(peer, 3).endswith(f"on here) {reason}")
    finally:
        child.kill()
        child.communicate()


def test_a_rank_that_notices_two_causes_at_once_reports_the_first_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RankWatch, "_run", lambda watch: None)
    store, second_asks = DictStore(), threading.Event()
    watch = RankWatch(store, 0, 1)
    second = threading.Thread(target=watch.record_failure, args=["its own"])

    def compare_set(key: str, expected: str, value: str) -> bytes:
        cause = store.values.setdefault(key, value.encode())
        if threading.current_thread() is second:
            second_asks.set()
            first.join()
        else:
            second.start()
            # never, where one waits for the other
            second_asks.wait(0.1)
        return cause

    monkeypatch.setattr(store, "compare_set", compare_set, raising=False)
    first = threading.Thread(target=watch.record_failure, args=["that of another"])
    first.start()
    first.join()
    second.join()
    assert (watch.cause, watch.reported_here) == ("that of another", True)
