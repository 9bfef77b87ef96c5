"""Answers in int8, where that is faster on this processor and as good on labelled examples.

Nothing is converted: the native kernels quantise the weights when a folder is opened, a scale for
each output, and what goes into each product by tokens. The recipe measures, at the lengths of the
user's texts and on their labels, and writes a folder that is opened in int8 from then on, or
refuses.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from shutil import copytree
from typing import Any

from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.core.log import Table, console, say
from bertsmith.core.ownership import new_folder
from bertsmith.engine.config import EngineConfig, Number
from bertsmith.engine.native import cannot
from bertsmith.engine.predictor import Predictor, Request, split_requests
from bertsmith.engine.prepared import Prepared, multiplies_bf16, prepare_model
from bertsmith.evaluation.metrics import percent, score_label
from bertsmith.hub.models import model_folder
from bertsmith.network.config import ModelConfig
from bertsmith.recipes.config import QuantizeConfig
from bertsmith.recipes.predict.evaluate import labelled_rows, task_answering
from bertsmith.recipes.predict.recipe import asked_of
from bertsmith.tasks.answering import TaskAnswering, answering_of, measure
from bertsmith.tasks.config import AnsweringConfig, Reading
from bertsmith.weights.folder import load_model
from bertsmith.weights.quantized import write_quantized

MOST_LOST = 0.5
"""Points of the score, out of 100, that int8 may cost."""
# texts whose lengths are measured, and turns of each precision
_TEXTS, _TURNS = 256, 5


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One precision: its speed on the user's texts and its score on their labels."""

    precision: Number
    seconds: float
    """The median for all texts."""
    scores: dict[str, float]
    """Scores as shares of 1, the one that counts first."""

    @property
    def score(self) -> float:
        """The score that counts, in points."""
        return 100 * next(iter(self.scores.values()))


def quantize(config: QuantizeConfig) -> dict[str, Any]:
    """Measure int8 beside the other precisions, and write a folder that is opened in int8.

    Raises `ConfigError`, after the table, where int8 is not faster than the fastest other precision
    of this processor or costs more than half a point of the score; `ModelFolderError` for a model
    that cannot be computed in int8, `ExampleError` for its examples.
    """
    folder = model_folder(config.model)
    loaded, tokenizer = load_model(folder)
    if reason := cannot(loaded.config.encoder, "int8"):
        raise ConfigError(f"no int8 products: {reason}", remedy="leave the model as it is")
    options = AnsweringConfig(**config.length.to_dict())
    answering = task_answering(
        answering_of(loaded, tokenizer, options, where=config.model), config.model
    )
    rows = labelled_rows(loaded.config, answering, config.dev, config.reading)
    asked = calibration_requests(answering, loaded.config, config.calibrate)
    engines: list[Prepared] = []
    precisions: tuple[Number, ...] = ("fp32", "bf16", "int8")
    for precision in precisions:
        if precision != "bf16" or multiplies_bf16():
            fresh, _ = load_model(folder)
            engines.append(
                prepare_model(fresh, EngineConfig(precision=precision, threads=config.threads))
            )
    predictors = {each.precision: each.predictor(answering) for each in engines}
    measured = measure_precisions(predictors, answering, rows, asked)
    show_measurements(measured, len(asked), len(rows))
    refuse_slow_or_worse(measured)
    figures = _figures(measured, engines, len(asked), len(rows))
    with new_folder(config.out) as fresh_folder:
        copytree(folder, fresh_folder, dirs_exist_ok=True)
        write_quantized(fresh_folder, figures)
    say(f"{config.out} is answered with in int8; its weights are those of {config.model}")
    return {"precision": "int8", "measured": figures}


def calibration_requests(
    answering: TaskAnswering, config: ModelConfig, file: Path
) -> list[Request[Any]]:
    """Return texts as the model is asked them."""
    _, asked = asked_of(config, answering, str(file), Reading())
    rows = [each.row for each in islice(asked, 8 * _TEXTS) if each.row is not None]
    if not rows:
        raise ExampleError("holds no text", where=file, remedy="write one text a line")
    # from all of the file, as far as it was read
    chosen = rows[:: max(1, len(rows) // _TEXTS)][:_TEXTS]
    return split_requests(chosen, answering.encode(chosen))


def measure_precisions(
    predictors: Mapping[Number, Predictor[Any, Any]],
    answering: TaskAnswering,
    rows: Sequence[Any],
    asked: Sequence[Request[Any]],
) -> list[Measurement]:
    """Measure predictors, in turns so that other work on the machine slows all alike.

    Their times are those of the requests, their scores those on the rows.
    """
    encoded = answering.encode(rows)
    scores = [measure(each, rows, encoded).scores for each in predictors.values()]
    seconds: list[list[float]] = [[] for _ in predictors]
    for turn in range(_TURNS + 1):
        for own, predictor in zip(seconds, predictors.values(), strict=True):
            before = time.perf_counter()
            predictor.run(asked)
            if turn:
                own.append(time.perf_counter() - before)
    return [
        Measurement(precision=precision, seconds=statistics.median(own), scores=dict(scored))
        for precision, own, scored in zip(predictors, seconds, scores, strict=True)
    ]


def refuse_slow_or_worse(measured: Sequence[Measurement], verb: str = "answer") -> None:
    """Raise `ConfigError` unless int8, measured last, is the fastest and as good as fp32.

    `verb` is what the user is told to do with another precision.
    """
    exact, *_, small = measured
    fastest = min(measured[:-1], key=lambda each: each.seconds)
    if small.seconds >= fastest.seconds:
        raise ConfigError(
            f"int8 is not faster here: {small.seconds / fastest.seconds:.2f} times the time of "
            f"{fastest.precision}",
            remedy=f"{verb} with --precision {fastest.precision}",
        )
    name, lost = score_label(next(iter(small.scores))), exact.score - small.score
    if math.isnan(lost):
        raise ConfigError(
            f"these labelled rows give no {name}, as when a model says the same of all of them",
            remedy="give others as --dev",
        )
    if lost > MOST_LOST:
        raise ConfigError(
            f"int8 costs {lost:.2f} points of {name}, more than {MOST_LOST}",
            remedy=f"{verb} with --precision {fastest.precision}",
        )


def show_measurements(measured: Sequence[Measurement], texts: int, rows: int) -> None:
    """Print the table."""
    names = list(measured[0].scores)
    table = Table("", f"{texts} texts, ms", *map(score_label, names), box=None)
    for each in measured:
        scores = [f"{percent(each.scores[name])} %" for name in names]
        table.add_row(each.precision, f"{1000 * each.seconds:.0f}", *scores)
    console.print(table)
    say(f"scores on {rows:,} labelled rows")


def _figures(
    measured: Sequence[Measurement], engines: Sequence[Prepared], texts: int, rows: int
) -> dict[str, Any]:
    about = {"instructions": engines[-1].instructions, "threads": engines[-1].threads}
    return about | {"texts": texts, "rows": rows, "precisions": by_precision(measured)}


def by_precision(measured: Sequence[Measurement]) -> dict[str, Any]:
    """Return seconds and scores as plain JSON values."""
    return {each.precision: {"seconds": each.seconds, "scores": each.scores} for each in measured}
