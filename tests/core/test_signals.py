from __future__ import annotations

import signal
import threading
import time

import pytest

from bertsmith.core.signals import (
    STOPPING,
    Terminated,
    deferred_signals,
    ending_status,
    interruptions,
    termination_as_interrupt,
)


class Deleted:
    """Gets a signal while it is deleted, where Python drops exceptions."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __del__(self) -> None:
        signal.raise_signal(self._number)


@pytest.mark.parametrize(
    ("number", "kind", "status"),
    [(signal.SIGINT, KeyboardInterrupt, 130), (signal.SIGTERM, Terminated, 143)],
)
def test_an_interruption_in_a_destructor_ends_the_program(
    number: int, kind: type[KeyboardInterrupt], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        with termination_as_interrupt():
            Deleted(number)
            time.sleep(30)

    with pytest.raises(KeyboardInterrupt) as ended:
        interrupted()
    assert type(ended.value) is kind
    assert ending_status() == status
    assert capsys.readouterr().err == ""


def test_an_interruption_is_not_sent_again_while_it_would_be_dropped_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine the pause was over before the hook had returned."""

    def busy(thread: threading.Thread) -> None:
        start(thread)
        time.sleep(0.05)

    def interrupted() -> None:
        with termination_as_interrupt():
            Deleted(signal.SIGTERM)
            time.sleep(5)

    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", busy)
    with pytest.raises(Terminated):
        interrupted()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_other_errors_in_a_destructor_are_left_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong:
        def __del__(self) -> None:
            raise ValueError("wrong")

    seen: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda dropped: seen.append(dropped.exc_type))
    with termination_as_interrupt():
        Wrong()
    assert seen == [ValueError]


def test_a_request_is_noted_and_ctrl_c_after_it_ends_at_once() -> None:
    with interruptions() as stopping:
        assert not stopping()
        for _ in range(2):
            signal.raise_signal(signal.SIGTERM)
            assert stopping()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_signals_mean_afterwards_what_they_meant_before() -> None:
    """Below nohup a terminal that hangs up is no request, during training either."""
    hang_up = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        before = [signal.getsignal(number) for number in STOPPING]
        with interruptions() as stopping:
            signal.raise_signal(signal.SIGHUP)
            assert not stopping()
        assert [signal.getsignal(number) for number in STOPPING] == before
    finally:
        signal.signal(signal.SIGHUP, hang_up)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_is_held_back_is_not_lost(number: int) -> None:
    done: list[int] = []

    def work() -> None:
        with deferred_signals():
            signal.raise_signal(number)
            done.append(number)

    with termination_as_interrupt(), pytest.raises(KeyboardInterrupt):
        work()
    assert done == [number]
