"""The results of a distillation: the comparison of teacher, students and baselines, in a table.

The table is printed, and shown with conclusions in the report page; the student that is kept has a
model card.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertsmith.core.log import console, table_of
from bertsmith.core.printable import counted
from bertsmith.evaluation.metrics import format_mean, mean_and_spread, percent, score_label
from bertsmith.evaluation.significance import over_seeds, welch_margin
from bertsmith.recipes.distil.config import DistilRun
from bertsmith.recipes.distil.speed import Speed
from bertsmith.reports.model_card import (
    base_of,
    described_outputs,
    head_of,
    note_on_format,
    written,
)
from bertsmith.reports.page import Report
from bertsmith.tasks.task import Scores
from bertsmith.tasks.uncertainty import Difference

_SMALL_GAP = 0.03
"""A gap between teacher and plain student that proves little."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A row of the comparison: a model, or something simpler without sizes and speed."""

    name: str
    scores: tuple[Scores, ...]
    """The scores on dev of each seed."""
    shape: str = ""
    """Layers and width."""
    parameters: int | None = None
    bytes: int | None = None
    """Size of the folder on the disk."""
    speed: Speed | None = None

    def values(self, name: str) -> list[float]:
        """Return a score of each seed."""
        return [scores[name] for scores in self.scores if name in scores]

    @property
    def primary(self) -> list[float]:
        """The score that counts most, of each seed."""
        return self.values(next(iter(self.scores[0])))

    @property
    def mean(self) -> float:
        """The mean of the score that counts most."""
        return mean_and_spread(self.primary)[0]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self) | {"scores": list(self.scores)}


def folder_bytes(folder: Path) -> int:
    """Return the size of the files that lie in a folder."""
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())


def _header(contenders: Sequence[Contender]) -> tuple[str, ...]:
    """Return the header of the table."""
    score = score_label(next(iter(contenders[0].scores[0])))
    return ("", "size", "parameters", "MB", "texts/s", "speed", "one, ms", f"{score} %")


def _rows(contenders: Sequence[Contender]) -> list[tuple[str, ...]]:
    """Return the rows of the table; speed also in times of the first one's, the teacher's."""
    name, teacher = next(iter(contenders[0].scores[0])), contenders[0].speed
    rows: list[tuple[str, ...]] = []
    for contender in contenders:
        speed, times = contender.speed, ""
        if speed is not None and teacher is not None:
            times = f"{speed.bulk / teacher.bulk:.2f} x"
        rows.append(
            (
                contender.name,
                contender.shape,
                "" if contender.parameters is None else f"{contender.parameters / 1e6:.2f} M",
                "" if contender.bytes is None else f"{contender.bytes / 1e6:.1f}",
                "" if speed is None else f"{speed.bulk:,.0f}",
                times,
                "" if speed is None else f"{1000 * speed.single:.2f}",
                format_mean(contender.values(name)),
            )
        )
    return rows


def show(contenders: Sequence[Contender]) -> None:
    """Print the table."""
    console.print(table_of(_header(contenders), _rows(contenders), numbers=True, lined=False))


def degenerate_notes(constant: Mapping[str, Sequence[bool]]) -> list[str]:
    """Return a remark on each student that predicts the same for every row, by seed."""
    notes = []
    for name, seeds in constant.items():
        if count := sum(seeds):
            verb = "predicts" if count == 1 else "predict"
            notes.append(
                f"{name}: {count} of {counted(len(seeds), 'seed')} {verb} the same for every row: "
                "give more --epochs, or another --learning-rate"
            )
    return notes


def conclusions(
    contenders: Sequence[Contender], methods: Sequence[str], differences: Mapping[str, Difference]
) -> list[str]:
    """Return conclusions on each method, by the gap between teacher and plain student."""
    teacher, students = contenders[0], contenders[1 : 1 + len(methods)]
    if not differences:
        return []
    plain = contenders[1 + len(methods)]
    gap, lines = teacher.mean - plain.mean, []
    for method, item in zip(methods, students, strict=True):
        points, difference = item.mean - plain.mean, differences[method]
        uncertainty, seed_margin = f"95 % over dev sets of this size: {difference.interval()}", 0.0
        if len(item.primary) > 1:
            seed_margin = welch_margin(item.primary, plain.primary)
            uncertainty += f"; {over_seeds(seed_margin)}"
        line = f"{method}: {100 * points:+z.2f} points to the plain student ({uncertainty})"
        if gap > 0 and points > 0:
            line += f", {100 * points / gap:.0f} % of the {100 * gap:.2f} points to the teacher"
        if difference.contradicts_interval:
            line += f"; it may still be luck by the stricter of two tests, p = {difference.p:.2g}"
            if len(methods) > 1:
                line += f", corrected for {len(methods)} methods (Holm)"
        elif not difference.certain or abs(points) <= difference.margin(seed_margin):
            line += "; it may well be luck"
        lines.append(line)
    if gap <= 0:
        above = f"{-100 * gap:.2f}"
        where = "as good as" if float(above) == 0 else f"{above} points above"
        lines.append(
            f"the plain student is {where} the teacher: there is nothing to "
            "learn from it; train the teacher better, or use a smaller student"
        )
    elif gap < _SMALL_GAP:
        lines.append(
            f"the plain student is {100 * gap:.2f} points below the teacher: so small a gap proves "
            "little, a smaller student would show more"
        )
    return lines


def write_card(
    run: DistilRun,
    method: str,
    seed: int,
    scored: Mapping[str, Sequence[Mapping[str, float]]],
    teacher: Mapping[str, float],
) -> str:
    """Return the model card of a student."""
    scores = ", ".join(
        f"{score_label(name)} {format_mean([result[name] for result in scored[method]])} % "
        f"(teacher {percent(value)} %)"
        for name, value in teacher.items()
    )
    settings, encoder = run.settings, run.student.encoder
    format_note = f"{note}\n\n" if (note := note_on_format(run.student)) else ""
    base = base_of(run.teacher)
    return f"""{written(head_of(run.student, base=base))}
# A student of {encoder.layers} layers, {encoder.hidden} wide

{described_outputs(run.student.labels)}\
Taught by {method} on the training file of SHA-256 `{run.train_hash}`: {settings.chosen_epochs} x \
each example, {settings.batch_size} a step, learning rate {settings.chosen_learning_rate}. Seeds: \
{run.seeds}; this is the model of seed {seed}, the best of them on dev, so expect the mean on new \
texts.

On dev: {scores}, mean and spread over the seeds.

{format_note}Made by bertsmith from a teacher with weights of SHA-256 `{run.teacher_hash}`.
"""


def write_report(
    path: Path, run: DistilRun, contenders: Sequence[Contender], lines: Sequence[str]
) -> None:
    """Write the page; without matplotlib, print why there is none."""
    report = Report.if_possible("Distillation", f"{run.task}, teacher {run.teacher}")
    if report is None:
        return
    report.table("Teacher, students and baselines", _header(contenders), _rows(contenders))
    if lines:
        report.text("What follows", lines)
    score = next(iter(contenders[0].scores[0]))
    points = {
        contender.name: [(contender.speed.bulk, contender.mean)]
        for contender in contenders
        if contender.speed is not None
    }
    engine = contenders[0].speed.engine if contenders[0].speed is not None else ""
    report.curves(
        "Score against speed",
        points,
        x_label="texts a second",
        y_label=score_label(score),
        percent=True,
        note=f"Means over the seeds on dev, and the speed of the engine on dev rows: {engine}.",
    )
    settings: dict[str, Any] = run.to_dict()
    report.settings("Settings", settings)
    report.write(path)
