"""Training curves from the lines of a training log, the same for every recipe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bertsmith.core.printable import count_with_verb
from bertsmith.reports.page import Report

Line = Mapping[str, Any]

NAMES = {
    "masked_lm": "masked LM",
    "replaced_tokens": "replaced tokens",
    "left_to_right": "left-to-right LM",
    "next_sentence": "next sentence",
    "sentence_order": "sentence order",
    "classify": "classes",
    "regress": "number",
    "rank": "relevance",
    "choose": "options",
    "tag": "tags",
    "span": "answers",
    "soft_targets": "soft targets",
    "cosine": "cosine of hidden states",
    "hidden_states": "hidden states",
    "attention_scores": "attention scores",
    "relations": "relations",
}
"""Display names of the objectives, by their names in the log."""

# losses that are no cross-entropies
_ERRORS = frozenset({"regress", "cosine", "hidden_states", "attention_scores"})

_SECONDS = {"seconds": 1, "minutes": 60, "hours": 3600}

CURVES = 6
"""Number of figures that `add_training` makes of one log."""


def add_training(
    report: Report, logs: Mapping[str, Sequence[Line]], lengths: Sequence[int] = ()
) -> None:
    """Add loss, accuracy, speed and further curves over the time of training.

    `logs` are the lines of one or more logs by name, "" for a single one; `lengths` are the
    sequence lengths by phase.
    """
    unit = _time_unit(logs)
    marks = _phases(logs, lengths, unit)
    losses = loss_label(
        key.removesuffix("_loss") for log in logs.values() for line in log for key in line
    )
    for figure, label in (("loss", losses), ("accuracy", "accuracy")):
        series = {
            _joined(title, words, where): points
            for title, log in logs.items()
            for name, words in NAMES.items()
            for key, where in ((f"{name}_{figure}", ""), (f"held_out_{name}_{figure}", "held out"))
            if (points := _points(log, key, unit))
        }
        if series:
            report.curves(
                figure.capitalize(), series, x_label=unit, y_label=label,
                percent=figure == "accuracy", marks=marks, note=_note(figure, logs),
            )  # fmt: skip
    for title, key, label in (
        ("Speed", "tokens_per_second", "tokens a second"),
        ("Utilisation (MFU)", "mfu", "share of the fastest matrix product"),
        ("Gradient norm", "gradient_norm", "norm before it was clipped"),
        ("Learning rate", "rate", "rate of AdamW"),
    ):
        curves = {name or label: _points(log, key, unit) for name, log in logs.items()}
        if any(curves.values()):
            report.curves(
                title, curves, x_label=unit, y_label=label, percent=key == "mfu", marks=marks,
                note=_note(key, logs),
            )  # fmt: skip


def loss_label(objectives: Iterable[str]) -> str:
    """Return the name of the losses of some objectives, with their unit if all of them have it."""
    return "loss (nats)" if _ERRORS.isdisjoint(objectives) else "loss"


def _time_unit(logs: Mapping[str, Sequence[Line]]) -> str:
    """Return the unit in which the longest log is read best."""
    longest = max((log[-1]["seconds"] for log in logs.values() if log), default=0.0)
    return next(
        unit
        for unit, seconds in reversed(_SECONDS.items())
        if longest >= 2 * seconds or seconds == 1
    )


def _points(log: Sequence[Line], key: str, unit: str) -> list[tuple[float, float]]:
    return [(line["seconds"] / _SECONDS[unit], line[key]) for line in log if key in line]


def _joined(*words: str) -> str:
    return ", ".join(filter(None, words))


def _phases(
    logs: Mapping[str, Sequence[Line]], lengths: Sequence[int], unit: str
) -> dict[str, float]:
    """Return the start of each phase but the first."""
    begins: dict[str, float] = {}
    if len(logs) == 1 and len(lengths) > 1:
        (log,) = logs.values()
        before = 0.0
        for line in log:
            phase = line.get("phase", 0)
            if phase in range(1, len(lengths)):
                begins.setdefault(f"sequences of {lengths[phase]}", before / _SECONDS[unit])
            before = line["seconds"]
    return begins


def _note(key: str, logs: Mapping[str, Sequence[Line]]) -> str:
    last = [lines[-1] for log in logs.values() if (lines := [x for x in log if "rate" in x])]
    if key == "loss" and any("regress_loss" in line for line in last):
        return "The loss of a number is its squared error, with the variance in train as unit."
    if key == "accuracy" and any("regress_accuracy" in line for line in last):
        return "A number is right where it is nearer to the true one than the mean of all is."
    if key == "gradient_norm":
        skipped = sum(line.get("skipped", 0) for line in last)
        steps = sum(line["step"] for line in last)
        reason = "loss or gradient was not finite, or the gradient was a spike"
        return f"{count_with_verb(skipped, steps, 'step')} skipped: {reason}."
    if key == "tokens_per_second":
        padding = max((line.get("padding", 0.0) for line in last), default=0.0)
        return f"Padding: {100 * padding:.0f} % of the tokens."
    if key == "mfu":
        peaks = sorted({line["peak_gflops"] for line in last if "peak_gflops" in line})
        return f"The fastest product here: {_range(peaks)} GFLOP/s." if peaks else ""
    return ""


def _range(numbers: Sequence[float]) -> str:
    """Format the range of sorted numbers."""
    low, high = f"{numbers[0]:,.0f}", f"{numbers[-1]:,.0f}"
    return low if low == high else f"{low} to {high}"
