"""What a loaded model keeps for its options, asked for by several threads."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from bertsmith.recipes import loaded


@pytest.fixture
def switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("switching_often")
def test_threads_with_more_options_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loaded, "_KEPT", 2)
    kept: dict[object, str] = {}

    def ask(thread: int) -> None:
        for number in range(15_000):
            option = (thread + number) % 5
            assert loaded._cached(kept, option, lambda: f"for {option}") == f"for {option}"  # noqa: B023

    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(ask, thread) for thread in range(8)]:
            done.result()
    assert len(kept) <= 2
