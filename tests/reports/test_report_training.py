"""The curves of a log: training and held-out side by side, phases marked, skipped steps told."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest

from bertsmith.reports.curves import curves_svg
from bertsmith.reports.page import Report
from bertsmith.reports.training import add_training

if importlib.util.find_spec("matplotlib") is None:
    pytest.skip("matplotlib is not installed", allow_module_level=True)


def log(steps: int = 12) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        lines.append(
            {
                "step": step, "epoch": 0, "phase": int(step > 8), "seconds": 30.0 * step,
                "tokens": 100 * step, "tokens_per_second": 1200 + step, "padding": 0.0,
                "mfu": 0.41, "peak_gflops": 1234.5 if step > 3 else 900.0, "rate": 1e-3,
                "skipped": step // 6, "gradient_norm": 2.0,
                "masked_lm_loss": 9 - step / 4, "masked_lm_accuracy": step / 100,
                "sentence_order_loss": 0.7, "sentence_order_accuracy": 0.5,
            }
        )  # fmt: skip
        if step % 4 == 0:
            held_out = {"held_out_masked_lm_loss": 8.5 - step / 4}
            lines.append({"step": step, "seconds": 30.0 * step} | held_out)
    return lines


def test_everything_in_the_log_is_drawn() -> None:
    report = Report("Run")
    add_training(report, {"": log()}, lengths=(64, 256))
    page = report.html()
    for said in (
        "masked LM: 6 at 6 minutes",
        "masked LM, held out: 5.5 at 6 minutes (lowest 5.5, highest 7.5)",
        "sentence order: 50.0 % at 6 minutes",
        "sequences of 256 at 4 minutes",
        "2 of 12 steps were skipped",
        "Padding: 0 % of the tokens.",
        "41.0 %",
        "The fastest product here: 1,234 GFLOP/s.",
        "Learning rate",
    ):
        assert said in page, said


def test_several_logs_stand_side_by_side_without_marks() -> None:
    report = Report("Seeds")
    short = [
        {key: value for key, value in line.items() if "sentence" not in key} for line in log(5)
    ]
    add_training(report, {"seed 0": log(7), "seed 1": short}, lengths=(64, 256))
    page = report.html()
    assert "seed 0, masked LM: 7.25 at 3.5 minutes" in page
    assert "seed 1, masked LM: 7.75 at 2.5 minutes" in page
    assert "sequences of 256" not in page
    assert "1 of 12 steps was skipped" in page


@pytest.mark.parametrize(
    ("step", "told"),
    [(4.5, "54 seconds"), (9.0, "108 seconds"), (12.0, "2.4 minutes"), (900.0, "3 hours")],
)
def test_the_axis_of_time_has_the_unit_in_which_the_run_is_read(step: float, told: str) -> None:
    report = Report("Run")
    add_training(report, {"": [{**line, "seconds": step * line["step"]} for line in log()]})
    page = report.html()
    assert f"masked LM: 6 at {told}" in page
    assert f">{told.split()[1]}</text>" in page


def test_an_empty_log_draws_nothing() -> None:
    report = Report("Nothing")
    add_training(report, {"": []})
    assert "<svg" not in report.html()


def test_ticks_of_an_axis_can_be_told_apart() -> None:
    svg = curves_svg(
        {"speed": [(step, 12_345_600 + step) for step in range(50)]},
        name="speed", x_label="step", y_label="tokens a second", percent=False,
    )  # fmt: skip
    labels = re.findall(r"<text[^>]*>(12[^<]*)</text>", svg)
    assert len(labels) >= 4
    assert len(set(labels)) == len(labels)
    assert "12,345,620" in labels


def test_squared_errors_are_not_shown_in_nats() -> None:
    for name, unit in (("regress", "loss"), ("masked_lm", "loss (nats)")):
        report = Report("A run")
        lines = [{**line, f"{name}_loss": 1.0} for line in log() if "rate" in line]
        for line in lines if name == "regress" else ():
            del line["masked_lm_loss"]
        add_training(report, {"": lines})
        assert f">{unit}<" in report.html()
        assert ("squared error" in report.html()) == (name == "regress")
