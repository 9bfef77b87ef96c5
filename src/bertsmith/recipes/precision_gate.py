"""Precisions beside each other on the user's texts, and the gate that int8 has to pass.

It has to be faster than any other precision of this processor at the lengths of the user's texts,
and as good as fp32. How good a model with a task is, is the score of its answers to labelled
examples. Vectors are as good as they are near those of fp32; where there are pairs of texts with a
number, such as those of STS-B, it is the correlation of the vectors' cosine with that number.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.core.log import console, say, table_of
from bertsmith.core.printable import counted
from bertsmith.engine.config import FeatureConfig, Number
from bertsmith.engine.features import Features
from bertsmith.engine.predictor import Answering, Predictor, Request, split_requests, text_length
from bertsmith.evaluation.metrics import percent, score_label, spearman
from bertsmith.evaluation.significance import Clusters
from bertsmith.network.config import ModelConfig
from bertsmith.network.model import Model
from bertsmith.recipes.predict.evaluate import labelled_rows, task_answering
from bertsmith.recipes.predict.reading import beside_labelled_rows, reading_of_texts
from bertsmith.recipes.predict.recipe import open_rows
from bertsmith.recipes.predict.rows import refuse_choice
from bertsmith.recipes.predict.texts import Texts
from bertsmith.tasks.answering import TaskAnswering, answering_of, measure
from bertsmith.tasks.config import AnsweringConfig, Reading, TextLength
from bertsmith.tasks.opening import folder_features
from bertsmith.tasks.regression import REGRESSION, numbers_of
from bertsmith.tasks.rows import pick_classes, print_rows
from bertsmith.tasks.task import Labels, Measured, Task
from bertsmith.tasks.uncertainty import (
    RESAMPLES,
    Difference,
    paired_difference,
    score_of_resamples,
    units_of,
)
from bertsmith.tasks.whole_texts import shared_text
from bertsmith.text.config import Columns
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.sentence_folder import SentenceSettings

R = TypeVar("R")

MAX_LOSS_POINTS = 0.5
"""Points of a score, out of 100, that int8 may cost."""
MIN_COSINE = 0.997
"""Least mean cosine of int8 vectors with those of fp32, where no pairs say more."""
# texts whose lengths are measured, and turns of each precision
_TEXTS, _TURNS = 256, 5
# texts that are read, of which every other one is compared where vectors are judged
_READ = 8 * _TEXTS
# characters after which no other text is read: all are in memory at once
_CHARACTERS = 2**24


@dataclass(frozen=True, kw_only=True)
class MeasuredPrecision:
    """One precision: its speed on the user's texts, and how good it is."""

    precision: Number
    seconds: float
    """The median for all texts."""
    scores: dict[str, float]
    """Scores as shares of 1, the one that counts first."""
    difference: Difference | None = None
    """The score that counts less that of fp32; None for fp32 itself, and for cosines."""

    @property
    def score(self) -> float:
        """The score that counts, in points."""
        return 100 * next(iter(self.scores.values()))


class Judged(NamedTuple):
    """The scores of one precision, and the difference of the one that counts from that of fp32."""

    scores: dict[str, float]
    difference: Difference | None


Predictors = Mapping[Number, Predictor[Any, Any]]
"""Predictors of the same model by precision, fp32 first and int8 last."""


@dataclass(frozen=True, kw_only=True)
class TaskGate:
    """A model with a task, judged by its answers to labelled rows."""

    answering: TaskAnswering
    timed: Sequence[Request[Any]]
    rows: Sequence[Any]

    @property
    def counts(self) -> dict[str, int]:
        """The texts timed and the labelled rows."""
        return {"texts": len(self.timed), "rows": len(self.rows)}

    @property
    def judged(self) -> str:
        """The number of rows."""
        return f"scores on {counted(len(self.rows), 'labelled row')}"

    def scores(self, predictors: Predictors) -> list[Judged]:
        """Return the scores of the task."""
        encoded = self.answering.encode(self.rows)
        exact, *others = (
            measure(predictor, self.rows, encoded) for predictor in predictors.values()
        )
        task, labels = self.answering.task, self.answering.labels
        compared = (
            Judged(dict(one.scores), difference_of_precisions(task, labels, one, exact))
            for one in others
        )
        return [Judged(dict(exact.scores), None), *compared]


def difference_of_precisions(
    task: Task[Any], labels: Labels, measured: Measured, exact: Measured
) -> Difference:
    """Return the difference of two precisions on the same rows, at the thresholds of each."""
    clusters = exact.clusters
    first, second = (
        score_of_resamples(task.measuring, one.evidence, labels, one.tuned)
        for one in (measured, exact)
    )
    units = units_of(task, [measured.evidence, exact.evidence], labels, clusters)
    return paired_difference(first, second, clusters, units, resamples=RESAMPLES)


@dataclass(frozen=True, kw_only=True)
class VectorGate:
    """A model that gives vectors, judged by how near they are to those of fp32, and by pairs.

    `compared` are texts whose time is not taken, where the file has more than one; `pairs` have a
    number each, and are empty where there are none.
    """

    answering: Features
    timed: Sequence[Request[Example]]
    compared: Sequence[Request[Example]]
    pairs: Sequence[Example]

    @property
    def counts(self) -> dict[str, int]:
        """The texts timed, the texts compared and the pairs."""
        rows = {"rows": len(self.pairs)} if self.pairs else {}
        return {"texts": len(self.timed), "compared": len(self.compared), **rows}

    @property
    def judged(self) -> str:
        """The number of texts, and of pairs where there are any."""
        comparison = f"cosine with the vectors of fp32, {counted(len(self.compared), 'text')}"
        if self.pairs:
            return (
                f"Spearman of cosine and number, {counted(len(self.pairs), 'pair')}; {comparison}"
            )
        return comparison

    def scores(self, predictors: Predictors) -> list[Judged]:
        """Return Spearman's correlation where there are pairs, and the mean and least cosine."""
        sides = [self._side(first=True), self._side(first=False)] if self.pairs else []
        exact, result = None, list[Judged]()
        of_exact: NDArray[np.float64] | None = None
        for predictor in predictors.values():
            scores, difference = dict[str, float](), None
            if self.pairs:
                similarities = cosines(*(_vectors(predictor, side) for side in sides))
                scores["spearman"] = spearman(numbers_of(self.pairs), similarities)
                if of_exact is not None:
                    difference = self._difference(similarities, of_exact)
                of_exact = similarities if of_exact is None else of_exact
            vectors = _vectors(predictor, self.compared)
            exact = vectors if exact is None else exact
            agreement = cosines(exact, vectors)
            near = {"cosine": float(agreement.mean()), "worst_cosine": float(agreement.min())}
            result.append(Judged(scores | near, difference))
        return result

    def _difference(self, cosines: NDArray[np.float64], exact: NDArray[np.float64]) -> Difference:
        """Return the difference of Spearman's correlations of two precisions, over the pairs."""
        true, clusters = numbers_of(self.pairs), Clusters(shared_text(self.pairs))
        first, second = (partial(_correlation_of_resample, true, side) for side in (cosines, exact))
        return paired_difference(first, second, clusters, None, resamples=RESAMPLES)

    def _side(self, *, first: bool) -> list[Request[Example]]:
        """Return the first or the second texts of the pairs, each alone."""
        rows = [
            replace(row, text=row.text if first else row.text_pair or "", text_pair=None)
            for row in self.pairs
        ]
        return _requests(self.answering, rows)


def _correlation_of_resample(
    true: NDArray[np.float64], cosines: NDArray[np.float64], drawn: NDArray[np.int64]
) -> float:
    return spearman(true[drawn], cosines[drawn])


Gate = TaskGate | VectorGate
"""The texts and the measure by which precisions are judged."""


def _vectors(
    predictor: Predictor[Any, Any], requests: Sequence[Request[Example]]
) -> NDArray[np.float64]:
    """Return the vectors of texts, (texts, width)."""
    return np.stack([answer.vectors for answer in predictor.answer(requests)]).astype(np.float64)


def cosines(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the cosine of each row of one with that of the other, (rows,).

    It is 0 where a vector is zero, infinite or no number, which never counts as near.
    """
    products = np.einsum("ij,ij->i", first, second)
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    usable = np.isfinite(products) & np.isfinite(lengths) & (lengths > 0)
    result: NDArray[np.float64] = np.divide(
        products, lengths, out=np.zeros(len(first)), where=usable
    )
    # rounding takes that of equal vectors beyond 1
    return np.clip(result, -1, 1)


def judged_answering(
    model: Model,
    tokenizer: Tokenizer,
    sentence: SentenceSettings | None,
    length: TextLength,
    *,
    where: str | Path,
) -> TaskAnswering | Features:
    """Return how a model answers by which int8 is judged: for its task, or with vectors.

    The latter for an encoder without heads, and in a sentence-transformers folder, which says how.
    Raises `ModelFolderError` for a model with heads of pre-training only, `ConfigError` for options
    that are not for its kind.
    """
    config = model.config
    if config.predicts is not None or (config.pretraining_heads and sentence is None):
        options = AnsweringConfig(**length.to_dict())
        return task_answering(answering_of(model, tokenizer, options, where=where), where)
    if length.truncation is not None or length.stride is not None:
        raise ConfigError(
            "--truncation and --stride are for a model fine-tuned for a task",
            remedy="leave them out",
        )
    feature_config = FeatureConfig(max_length=length.max_length)
    features = folder_features(feature_config, model, tokenizer, sentence, where=where)
    return Features(model, tokenizer, *features)


def read_gate(
    answering: TaskAnswering | Features,
    config: ModelConfig,
    calibrate: Path,
    dev: Path | None,
    reading: Reading,
) -> Gate:
    """Read the texts and the labelled examples by which int8 of a model is judged.

    Raises what reading them raises, and `ConfigError` for a task without labelled examples.
    """
    # without labelled examples what was named is of the texts alone
    of_texts = reading if dev is None else reading_of_texts(reading, calibrate, dev)
    if isinstance(answering, Features):
        pairs = [] if dev is None else _numbered_pairs(dev, reading)
        texts = _texts(calibrate, of_texts.columns)
        timed, compared = texts[::2], texts[1::2] or texts
        return VectorGate(
            answering=answering,
            timed=_requests(answering, _timed(timed)),
            compared=_requests(answering, compared),
            pairs=pairs,
        )
    if dev is None:
        raise ConfigError(
            f"int8 of a model for {answering.task.title.lower()} is judged by labelled examples",
            remedy="give --dev LABELLED",
        )
    rows = labelled_rows(config, answering, dev, reading)
    with beside_labelled_rows():
        of_texts, inputs = open_rows(config, answering, str(calibrate), of_texts)
        present = (item.example for item in islice(inputs, _READ) if item.example is not None)
        results = list(_within_characters(present, answering.characters))
    of_texts.bad_rows.print()
    chosen = _timed(_check_not_empty(results, calibrate))
    return TaskGate(answering=answering, timed=_requests(answering, chosen), rows=rows)


def _texts(file: Path, columns: Columns) -> list[Example]:
    """Return the first texts of a file, those of pairs one by one."""
    refuse_choice(str(file), columns)
    texts: list[Example] = []
    for row in _within_characters(islice(Texts(str(file), columns), _READ), text_length):
        texts.append(replace(row, text_pair=None))
        if row.text_pair is not None:
            texts.append(replace(row, text=row.text_pair, text_pair=None))
    return _check_not_empty(texts, file)[:_READ]


def _within_characters(rows: Iterable[R], characters: Callable[[R], int]) -> Iterator[R]:
    """Yield the rows up to the one with which they are long enough together."""
    read = 0
    for row in rows:
        yield row
        read += characters(row)
        if read >= _CHARACTERS:
            return


def _check_not_empty(rows: list[Any], file: Path) -> list[Any]:
    if not rows:
        raise ExampleError("holds no text", where=file, remedy="write one text a line")
    return rows


def _timed(rows: Sequence[Any]) -> list[Any]:
    """Return as many as are timed, evenly from all of the file as far as it was read."""
    count = min(len(rows), _TEXTS)
    return [rows[number * len(rows) // count] for number in range(count)]


def _requests(answering: Answering[Any, Any], rows: Sequence[Any]) -> list[Request[Any]]:
    return split_requests(rows, answering.encode(rows))


def _numbered_pairs(file: Path, reading: Reading) -> list[Example]:
    """Return pairs of texts with a number, and print how they were read; `ExampleError`."""
    task = REGRESSION
    rows: list[Example] = []
    for row in task.reader.labelled(file, reading):
        if row.text_pair is None:
            raise ExampleError(
                "is a single text, and vectors are judged by pairs with a number",
                where=row.source,
                line=row.line,
                remedy="name the column of the second: --text-pair-column",
            )
        rows.append(row)
    rows = list(pick_classes(task, rows, reading.columns))
    task.labels.names(rows, ())
    print_rows(task, rows, file, reading)
    reading.bad_rows.print()
    return rows


def measure_precisions(predictors: Predictors, gate: Gate) -> list[MeasuredPrecision]:
    """Measure predictors, in turns so that other work on the machine slows all alike."""
    scores = gate.scores(predictors)
    seconds: list[list[float]] = [[] for _ in predictors]
    for repetition in range(_TURNS + 1):
        for times, predictor in zip(seconds, predictors.values(), strict=True):
            started = time.perf_counter()
            predictor.run(gate.timed)
            if repetition:
                times.append(time.perf_counter() - started)
    return [
        MeasuredPrecision(
            precision=precision,
            seconds=statistics.median(times),
            scores=scored,
            difference=difference,
        )
        for precision, times, (scored, difference) in zip(predictors, seconds, scores, strict=True)
    ]


def refuse_slow_or_worse(measured: Sequence[MeasuredPrecision], verb: str = "answer") -> None:
    """Raise `ConfigError` unless int8, measured last, is the fastest and as good as fp32.

    `verb` is the advised command for another precision.
    """
    exact, *_, small = measured
    fastest = min(measured[:-1], key=lambda measurement: measurement.seconds)
    alternative = f"{verb} with --precision {fastest.precision}"
    if small.seconds >= fastest.seconds:
        raise ConfigError(
            f"int8 is not faster here: {small.seconds / fastest.seconds:.2f} times the time of "
            f"{fastest.precision}",
            remedy=alternative,
        )
    name = next(iter(small.scores))
    if name == "cosine":
        _refuse_distant(small, alternative)
        return
    loss = exact.score - small.score
    if math.isnan(loss):
        raise ConfigError(
            f"these labelled rows give no {score_label(name)}, as when a model predicts the same "
            "for all of them",
            remedy="give others as --dev",
        )
    if loss > MAX_LOSS_POINTS:
        raise ConfigError(
            f"int8 costs {loss:.2f} points of {score_label(name)}, more than {MAX_LOSS_POINTS}",
            remedy=alternative,
        )


def _refuse_distant(small: MeasuredPrecision, other: str) -> None:
    """Raise `ConfigError` for vectors that are too far from those of fp32."""
    mean, worst = small.scores["cosine"], small.scores["worst_cosine"]
    if mean < MIN_COSINE:
        raise ConfigError(
            f"the mean cosine of int8 vectors with those of fp32 is {mean:.4f}, below "
            f"{MIN_COSINE} (worst {worst:.4f})",
            remedy=f"{other}, or give pairs with a number as --dev to measure what that costs",
        )


def show_measurements(measured: Sequence[MeasuredPrecision], gate: Gate) -> None:
    """Print the table."""
    head, *rows = table_rows(measured, gate)
    console.print(table_of(head, rows, numbers=True, lined=False))
    say(gate.judged)
    if note := loss_note(measured):
        say(note)


def loss_note(measured: Sequence[MeasuredPrecision]) -> str:
    """Return the difference of int8 from fp32 with its interval; "" where there is no score."""
    small = measured[-1]
    if (difference := small.difference) is None:
        return ""
    score = score_label(next(iter(small.scores)))
    note = f"int8 less fp32: {100 * difference.points:+z.2f} points of {score}"
    if math.isnan(difference.low):
        return f"{note}; {difference.interval()}"
    note += f" (95 % over rows like these: {difference.interval()})"
    if -100 * difference.low > MAX_LOSS_POINTS:
        note += f"; these rows are too few to exclude a loss of more than {MAX_LOSS_POINTS}"
    return note


def table_rows(measured: Sequence[MeasuredPrecision], gate: Gate) -> list[list[str]]:
    """Return the cells of the table, those of its head first."""
    names = list(measured[0].scores)
    head = ["", f"{counted(len(gate.timed), 'text')}, ms", *map(score_label, names)]
    rows = [
        [
            measurement.precision,
            f"{1000 * measurement.seconds:.0f}",
            *(_shown(measurement, name) for name in names),
        ]
        for measurement in measured
    ]
    return [head, *rows]


def _shown(measured: MeasuredPrecision, name: str) -> str:
    value = measured.scores[name]
    return f"{value:.5f}" if name.endswith("cosine") else f"{percent(value)} %"


def by_precision(measured: Sequence[MeasuredPrecision]) -> dict[str, Any]:
    """Return seconds, scores and differences from fp32 as plain JSON values."""
    return {
        measurement.precision: {"seconds": measurement.seconds, "scores": measurement.scores}
        | (
            {}
            if measurement.difference is None
            else {"difference": measurement.difference.to_dict()}
        )
        for measurement in measured
    }
