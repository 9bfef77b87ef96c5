"""Where nobody watches, a line comes now and then."""

from __future__ import annotations

import pytest

from bertsmith.log import ToldBar, progress, short_number


class Clock:
    """Goes on when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_line_every_half_minute(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    bar = ToldBar("training", 1.0, "", clock)
    for step in range(10):
        clock.now += 10
        bar.note(f"step {step + 1}")
        bar.move_to(0.05 * (step + 1))
    assert capsys.readouterr().err.splitlines() == [
        "training: 15 % · 0:00:30 elapsed · 0:02:50 left · step 3",
        "training: 30 % · 0:01:00 elapsed · 0:02:20 left · step 6",
        "training: 45 % · 0:01:30 elapsed · 0:01:50 left · step 9",
    ]


def test_a_resumed_run_is_not_taken_for_a_fast_one(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    bar = ToldBar("training", 1.0, "", clock)
    for done in (0.801, 0.802, 0.803):
        clock.now += 20
        bar.move_to(done)
    # a thousandth takes 20 seconds, and 198 are left
    told = capsys.readouterr().err
    assert told == "training: 80 % · 0:00:40 elapsed · 1:06:00 left\n"


def test_what_is_counted_is_told(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    bar = ToldBar("reading", None, "B", clock)
    for _ in range(4):
        clock.now += 11
        bar.advance(2_000_000)
    told = capsys.readouterr().err
    assert told == "reading: 6M B, 182k B/s · 0:00:33 elapsed\n"


def test_what_is_soon_done_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("reading", 10) as bar:
        bar.note("x")
        for _ in range(10):
            bar.advance()
    assert capsys.readouterr().err == ""


def test_numbers_are_short() -> None:
    numbers = {950: "950", 12_345: "12.3k", 999_000: "999k", 4.56e6: "4.56M", 7.2e9: "7.2G"}
    assert {value: short_number(value) for value in numbers} == numbers
