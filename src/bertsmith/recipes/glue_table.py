"""GLUE's table as in the paper of BERT (Devlin et al. 2018, table 1), with a row of ours."""

from __future__ import annotations

from collections.abc import Mapping

from bertsmith.printable import markdown as shown

COLUMNS = (
    ("MNLI-m", "MNLI", "accuracy"),
    ("-mm", "MNLI-mm", "accuracy"),
    ("QQP", "QQP", "f1"),
    ("QNLI", "QNLI", "accuracy"),
    ("SST-2", "SST-2", "accuracy"),
    ("CoLA", "CoLA", "matthews"),
    ("STS-B", "STS-B", "spearman"),
    ("MRPC", "MRPC", "f1"),
    ("RTE", "RTE", "accuracy"),
)
"""Columns of the paper: its name, the task, and the score that it tells, in per cent."""

PUBLISHED = {
    "Pre-OpenAI SOTA": (80.6, 80.1, 66.1, 82.3, 93.2, 35.0, 81.0, 86.0, 61.7, 74.0),
    "BiLSTM+ELMo+Attn": (76.4, 76.1, 64.8, 79.8, 90.4, 36.0, 73.3, 84.9, 56.8, 71.0),
    "OpenAI GPT": (82.1, 81.4, 70.3, 87.4, 91.3, 45.4, 80.0, 82.3, 56.0, 75.1),
    "BERT base": (84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4, 79.6),
    "BERT large": (86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1, 82.1),
}
"""Published scores on the test sets, by the leaderboard, and their average."""

NOTE = (
    "Published rows are scores of single models on the test sets, by the leaderboard; ours are on "
    "the dev sets, mean ± spread over the seeds. F1 for QQP and MRPC, Spearman's correlation for "
    "STS-B, Matthews' for CoLA, accuracy for the others, all in per cent. The average is told "
    "where all tasks are there; WNLI, which the paper leaves out, stands apart."
)

Row = tuple[str, ...]
Scores = Mapping[str, tuple[float, float | None]]


def glue_rows(
    name: str, found: Mapping[str, Mapping[str, tuple[float, float | None]]]
) -> list[Row]:
    """The table's rows, ours last, of the mean and spread, in shares of 1, by task and score."""
    rows = [(model, *(f"{score:.1f}" for score in scores)) for model, scores in PUBLISHED.items()]
    ours = [found.get(task, {}).get(score) for _, task, score in COLUMNS]
    means = [each[0] for each in ours if each is not None]
    average = f"{100 * sum(means) / len(means):.1f}" if len(means) == len(ours) else ""
    rows.append((name, *map(_told, ours), average))
    return rows


def header() -> Row:
    """What stands above the rows."""
    return ("", *(column for column, _, _ in COLUMNS), "mean")


def markdown(rows: list[Row]) -> str:
    """The table in Markdown."""
    named = [(shown(row[0]), *row[1:]) for row in rows]
    lines = [header(), tuple("---" for _ in header()), *named]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _told(score: tuple[float, float | None] | None) -> str:
    if score is None:
        return ""
    mean, spread = score
    return f"{100 * mean:.1f}" + ("" if spread is None else f" ± {100 * spread:.1f}")
