from __future__ import annotations

import signal
import threading
import time

import pytest

from bertsmith.core.signals import Terminated, ending_status, termination_as_interrupt


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
