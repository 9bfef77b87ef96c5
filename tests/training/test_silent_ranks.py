"""A rank that falls silent is missed by the one after it, and heard when it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

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


def until(happened: Callable[[], bool]) -> None:
    for _ in range(6000):
        if happened():
            return
        time.sleep(0.01)
    raise AssertionError("nothing has happened for a minute")


@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize("rank", [0, 1])
def test_silence_is_told_once_and_so_is_its_end(
    peer: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    rank: int,
    stopped: bool,
) -> None:
    monkeypatch.setattr(distribution, "_POLL_SECONDS", 0.005)
    store, other = DictStore(), 1 - rank
    store.set(f"rank/{other}", json.dumps(distribution._me() | {"pid": peer.pid}))
    store.set(f"beat/{other}", "1")
    if stopped:
        peer.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, peer.pid, os.WSTOPPED)
    watch = RankWatch(store, rank, 2)
    said: list[str] = []

    def told() -> list[str]:
        said.extend(capfd.readouterr().err.splitlines())
        return said

    name = f"rank {other} (pid {peer.pid} on "
    until(lambda: len(told()) == 1)
    assert name in said[0]
    assert "has sent no heartbeat for 10 seconds: " in said[0]
    assert (f"kill -CONT {peer.pid}" in said[0]) is stopped
    time.sleep(0.2)
    assert len(told()) == 1
    store.set(f"beat/{other}", "2")
    until(lambda: len(told()) == 2)
    assert name in said[1]
    assert said[1].endswith(" is running again")
    # whoever has left is missed by nobody
    store.set(f"left/{other}", "1")
    time.sleep(0.2)
    watch.leave()
    assert len(told()) == 2
    assert watch.cause == ""
