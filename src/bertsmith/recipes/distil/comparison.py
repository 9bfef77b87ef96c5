"""The comparison of a teacher with its students: sizes, speed in the engine, and scores."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertsmith.core.log import Table, console
from bertsmith.engine.config import EngineConfig
from bertsmith.engine.predictor import Request, split_requests
from bertsmith.engine.prepared import Prepared as Engine
from bertsmith.engine.prepared import prepare_model
from bertsmith.evaluation.metrics import format_mean, mean_and_spread, score_label
from bertsmith.network.model import Model
from bertsmith.recipes.finetune.inputs import Prepared
from bertsmith.tasks.answering import TaskAnswering
from bertsmith.tasks.task import Scores

# texts answered together, those answered one by one, and turns of each
_TEXTS, _SINGLE, _TURNS = 256, 32, 5


@dataclass(frozen=True, kw_only=True)
class Speed:
    """The speed of a model in the engine on this machine."""

    bulk: float
    """Texts a second, many together."""
    single: float
    """Seconds of one text by itself, the median."""
    engine: str
    """Precision, backend and threads."""


@dataclass(frozen=True, kw_only=True)
class Entrant:
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
    def mean(self) -> float:
        """Return the mean of the score that counts most."""
        return mean_and_spread(self.values(next(iter(self.scores[0]))))[0]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self) | {"scores": list(self.scores)}


def asked_of(
    prepared: Prepared, labels: tuple[str, ...]
) -> tuple[TaskAnswering, list[Request[Any]]]:
    """Return dev rows, from all over them, as an engine is asked for answers."""
    answering = TaskAnswering(
        task=prepared.task, tokenizer=prepared.tokenizer, labels=labels, room=prepared.room
    )
    rows = prepared.data.dev[:: max(1, len(prepared.data.dev) // _TEXTS)][:_TEXTS]
    return answering, split_requests(rows, answering.encode(rows))


def measure_speeds(
    models: Mapping[str, Model],
    answering: TaskAnswering,
    requests: Sequence[Request[Any]],
    *,
    turns: int = _TURNS,
    single: int = _SINGLE,
) -> dict[str, Speed]:
    """Measure models in turns, so that other work on the machine slows all alike.

    The models are changed: their encoders only answer afterwards.
    """
    engines = {name: prepare_model(model, EngineConfig()) for name, model in models.items()}
    bulk: dict[str, list[float]] = {name: [] for name in engines}
    alone: dict[str, list[float]] = {name: [] for name in engines}
    # the first turn warms up
    for turn in range(turns + 1):
        for name, engine in engines.items():
            seconds = _seconds(engine, answering, [requests])
            one_by_one = _seconds(engine, answering, [[each] for each in requests[:single]])
            if turn:
                bulk[name] += seconds
                alone[name] += one_by_one
    return {
        name: Speed(
            bulk=len(requests) / statistics.median(bulk[name]),
            single=statistics.median(alone[name]) if alone[name] else 0.0,
            engine=str(engine),
        )
        for name, engine in engines.items()
    }


def _seconds(
    engine: Engine, answering: TaskAnswering, asked: Sequence[Sequence[Request[Any]]]
) -> list[float]:
    predictor, seconds = engine.predictor(answering), []
    for requests in asked:
        before = time.perf_counter()
        predictor.run(requests)
        seconds.append(time.perf_counter() - before)
    return seconds


def folder_bytes(folder: Path) -> int:
    """Return the size of the files that lie in a folder."""
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())


def header(entrants: Sequence[Entrant]) -> tuple[str, ...]:
    """Return the header of the table."""
    score = score_label(next(iter(entrants[0].scores[0])))
    return ("", "size", "parameters", "MB", "texts/s", "speed", "one, ms", f"{score} %")


def table_rows(entrants: Sequence[Entrant]) -> list[tuple[str, ...]]:
    """Return the rows of the table; speed also in times of the first one's, the teacher's."""
    name, teacher = next(iter(entrants[0].scores[0])), entrants[0].speed
    rows: list[tuple[str, ...]] = []
    for each in entrants:
        speed, times = each.speed, ""
        if speed is not None and teacher is not None:
            times = f"{speed.bulk / teacher.bulk:.2f} x"
        rows.append(
            (
                each.name,
                each.shape,
                "" if each.parameters is None else f"{each.parameters / 1e6:.2f} M",
                "" if each.bytes is None else f"{each.bytes / 1e6:.1f}",
                "" if speed is None else f"{speed.bulk:,.0f}",
                times,
                "" if speed is None else f"{1000 * speed.single:.2f}",
                format_mean(each.values(name)),
            )
        )
    return rows


def show(entrants: Sequence[Entrant]) -> None:
    """Print the table."""
    table = Table(*header(entrants), box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in table_rows(entrants):
        table.add_row(*row)
    console.print(table)
