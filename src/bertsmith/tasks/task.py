"""A task as a record of parts, each replaceable and tested alone.

rows      what a reader gives: a text with its class, a sentence with its tags, a question
units     what training takes whole or not at all (batches/examples.py)
outputs   what a model computes for the units of a row
answers   what these outputs mean: probabilities, tags, spans
evidence  numbers that say how right each answer is, one row of them a row; every score is a
          function of some rows of evidence, so that resampling them gives an interval

Answering takes `reader`, `labels`, `answers` and `present`; fine-tuning adds `identity`, `stratum`
and `learning`; `measuring` is for both fine-tuning and evaluation. Parts are frozen dataclasses of
functions; tasks may share a part.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.examples import EncodedExamples
from bertsmith.core.config import Config
from bertsmith.core.errors import ConfigError
from bertsmith.core.printable import counted
from bertsmith.engine.answers import Forward
from bertsmith.engine.predictor import Outputs
from bertsmith.evaluation.significance import Clusters, Statistic
from bertsmith.evaluation.spans import EntityScores
from bertsmith.network.config import Conformal, Fit, ModelConfig, Predicts
from bertsmith.network.model import Model
from bertsmith.objectives.objective import Objective
from bertsmith.tasks.config import LabelLoss, Reading
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer

Labels = tuple[str, ...]
"""Names of the model's outputs, in their order."""
Record = dict[str, Any]
"""An answer as plain JSON values, the same in the Python API, in CSV and in JSON lines."""
Brief = Callable[[str], str]
"""Shortens a text to what a line has room for."""
Evidence = NDArray[np.float64]
Right = NDArray[np.bool_]
Scores = dict[str, float]
Scoring = dict[str, Callable[[Evidence], float]]
"""Scores by name, each a function of some rows of evidence, so that one can be had alone."""


class Row(Protocol):
    """Something a reader gives; `source` and `line` say where it stands."""

    @property
    def source(self) -> str:
        """The file."""
        ...

    @property
    def line(self) -> int:
        """The line in it, from 1."""
        ...


R = TypeVar("R", bound=Row)

_PARTS_READ: dict[Fit, str] = {
    "head": "only the beginning was read",
    "tail": "only the end was read",
    "head+tail": "only the beginning (a quarter of the tokens) and the end were read",
}


@dataclass(frozen=True, kw_only=True)
class ReadingLimits(Config):
    """The part of a text that is read at once, and the treatment of the rest."""

    longest: int
    """Tokens a sequence at most."""
    long: Fit = "head"
    """The part of longer texts that is read."""
    stride: int | None = None
    """Tokens that two windows share, a third of them all where none is given."""

    def __post_init__(self) -> None:
        if self.longest < 8:
            raise ConfigError(f"longest is {self.longest}", remedy="it must be at least 8 tokens")
        if self.stride is not None and not 0 <= self.stride < self.longest:
            raise ConfigError(
                f"stride is {self.stride}",
                remedy=f"it must be at least 0, and below the {self.longest} tokens of a window",
            )

    @property
    def overlap(self) -> int:
        """The tokens that two windows share."""
        return self.longest // 3 if self.stride is None else self.stride

    def treatment(self, *, windowed: bool) -> str:
        """Return a clause on how longer texts are read; a `windowed` task reads all in windows."""
        if windowed or self.long == "windows":
            return "read in windows"
        return f"{_PARTS_READ[self.long]}; --truncation chooses the part that is read"

    @classmethod
    def of_model(
        cls,
        config: ModelConfig,
        *,
        longest: int | None = None,
        long: Fit | None = None,
        stride: int | None = None,
        usual: int | None = None,
    ) -> ReadingLimits:
        """Return the limits a model answers with: those given, else those it was trained with.

        Of a model that says nothing of its training: as many tokens as its tokenizer keeps, which
        are `usual`, or all that it can read, from the beginning.
        """
        limit, trained = config.encoder.longest, config.preprocessing
        if trained is None:
            longest = longest or usual or limit
            return cls(longest=min(longest, limit), long=long or "head", stride=stride)
        return cls(
            longest=min(longest or trained.longest, limit),
            long=long or trained.long,
            # a stride belongs to the length that it was chosen for
            stride=trained.stride if stride is None and longest is None else stride,
        )


@dataclass(frozen=True, kw_only=True)
class Tuned:
    """Thresholds tuned on measured rows and kept in a model's config; None answers always."""

    no_answer: float | None = None
    """For spans: the doubt over which no answer is given."""
    min_confidence: float | None = None
    """For classes and choices: the probability below which no answer is given."""
    set_threshold: float | None = None
    """For classes and choices: the least probability of an answer in the prediction set, which is
    given where this is; not kept."""

    @classmethod
    def of_model(cls, config: ModelConfig) -> Tuned:
        """Return the thresholds that a model keeps."""
        return cls(no_answer=config.no_answer, min_confidence=config.min_confidence)

    def kept_in(self, config: ModelConfig) -> ModelConfig:
        """Return the config with these thresholds."""
        return replace(config, no_answer=self.no_answer, min_confidence=self.min_confidence)


UNTUNED = Tuned()
Threshold = Literal["no_answer", "min_confidence"]


# the defaults of parts: module-level functions, since tasks are sent to worker processes


def _unchanged(file: Path, reading: Reading) -> Reading:
    return reading


def first_output(row: object, sidecar: object, outputs: Outputs, labels: Labels) -> Any:  # noqa: ANN401
    """Return the output for the only unit of a row."""
    return outputs[0]


def _untuned(evidence: Evidence, target_accuracy: float | None = None) -> Tuned:
    return UNTUNED


def _none(*values: object) -> None:
    return None


def _never(*values: object) -> bool:
    return False


def _always(*values: object) -> bool:
    return True


def _no_text(*values: object) -> str:
    return ""


def _no_labels(*values: object) -> Labels:
    return ()


def _as_given(rows: Sequence[R], labels: Labels) -> Sequence[R]:
    return rows


def _no_notes(*values: object) -> list[str]:
    return []


def _every_row(evidence: Evidence, name: str) -> Right | None:
    return np.ones(len(evidence), bool)


def no_units(evidence: Evidence, name: str) -> Right | None:
    """Return None: no score is a share or mean, as correlations are not."""
    return None


@dataclass(frozen=True, kw_only=True)
class Reader(Generic[R]):
    """The rows of files; reading raises `ExampleError`, with file and line."""

    labelled: Callable[[Path, Reading], Iterator[R]]
    """The labelled rows of a file."""
    measured: Callable[[Path, Reading], Iterator[R]] | None = None
    """The labelled rows to measure with, where less is needed; None for those of `labelled`."""
    unlabelled: Callable[[Path, Reading], Iterator[R]]
    """The rows of a file to answer for, where they are no lines."""
    characters: Callable[[R], int]
    """The length of a row's texts, so that few long ones are taken at once."""
    resolve: Callable[[Path, Reading], Reading] = _unchanged
    """The reading, with what it leaves open decided from a labelled file."""
    layout: Callable[[Path, Reading], str] = _no_text
    """A description of a labelled file, such as its header and columns."""
    unread_columns: Callable[[Path, Reading], str] = _no_text
    """A note on columns of a labelled file that hold texts and are not read; "" without any."""
    of_text: Callable[[Example], R] | None = None
    """A text as a row; None where a row is more than that."""
    pairs: bool = False
    """True if a row may be a pair of texts."""
    reads_lines: Callable[[str, Reading], bool] = _never
    """True if each line of a file, or of standard input (-), is a text to answer for."""
    row_a_record: Callable[[Path, Reading], bool] = _always
    """True if each record of a table is one row, so that its columns can be kept."""

    def to_measure(self, file: Path, reading: Reading) -> Iterator[R]:
        """Return the labelled rows of a file that a model is measured with."""
        return (self.measured or self.labelled)(file, reading)


@dataclass(frozen=True, kw_only=True)
class Labelling(Generic[R]):
    """The names of the model's outputs."""

    names: Callable[[Sequence[R], Sequence[str]], Labels] = _no_labels
    """The names for training rows, in the order of the parent model's where it has the same ones;
    raises `ExampleError` for rows that cannot be learned from."""
    fixed: Labels = ()
    """The names, where they are the same whatever the rows are."""
    of_row: Callable[[R], Labels] = _no_labels
    """The labels of a row."""
    check: Callable[[Sequence[R], Sequence[R], Labels], None] = _none
    """Raises `ExampleError` for dev rows that are of another kind than the training rows."""
    as_labelled: Callable[[Sequence[R], Labels], Sequence[R]] = _as_given
    """The rows with their labels as a model spells them that has these."""
    picked: Callable[[Sequence[R], Callable[[str], bool]], list[R]] | None = None
    """The rows with classes that are wanted; None where rows have no classes."""

    @property
    def has_classes(self) -> bool:
        """Return whether rows have labels, of which there are several."""
        return self.of_row is not _no_labels


NO_LABELS = Labelling[Any]()


@dataclass(frozen=True, kw_only=True)
class Answers(Generic[R]):
    """From rows to outputs, and from outputs to answers."""

    encode: Callable[[Tokenizer, Sequence[R], ReadingLimits], EncodedExamples]
    """The rows as token ids, and what decoding needs as sidecar."""
    outputs: Callable[[Model, EncodedExamples, Forward], Outputs]
    """The function of the engine that computes outputs for each unit, in order."""
    decode: Callable[[R, Any, Outputs, Labels], Any] = first_output
    """The answer to a row by its sidecar and the outputs for its units; by default the output for
    its only unit."""
    record: Callable[[Any, Labels, int, Tuned], Record]
    """An answer as plain JSON values, with a number of the likeliest ones."""
    keys: Callable[[Labels, Tuned], tuple[str, ...]]
    """The keys of each such record."""
    windowed: bool = False
    """True if long texts are always read whole, in windows."""
    unread: Callable[[Any], str] = _no_text
    """By a row's sidecar, what of it is in none of its windows; "" for nothing."""
    thresholds: tuple[Threshold, ...] = ()
    """The thresholds below or over which `record` withholds an answer."""


@dataclass(frozen=True, kw_only=True)
class Learning(Generic[R]):
    """All that training adds."""

    targets: Callable[[Sequence[R], Labels, EncodedExamples], EncodedExamples]
    """The encoded rows with what is to be learned of them."""
    objective: Callable[[Sequence[R], Labels, LabelLoss], Objective]
    """The objective that training on some rows minimises."""
    finish: Callable[[Model, Sequence[R]], None] = _none
    """Finishes a model that was trained on some rows, before it answers."""
    weighs: bool = False
    """True if there are classes that can be weighed, and labels that can be smoothed."""
    longest: int = 128
    """Tokens a sequence at most, where none are named."""
    lengthens: bool = True
    """True if more tokens are read where many texts are longer."""


class Tune(Protocol):
    """The choice of thresholds."""

    def __call__(self, evidence: Evidence, target_accuracy: float | None = None) -> Tuned:
        """Return the thresholds that are best for measured rows.

        `target_accuracy` is the share of the answers given that shall be right, where it is chosen.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Measuring(Generic[R]):
    """The comparison of answers with labels."""

    evidence: Callable[[Sequence[R], Sequence[Any], Labels], Evidence]
    """The evidence of how right the answers to labelled rows are, (rows, numbers)."""
    scoring: Callable[[Labels, Tuned], Scoring]
    """The scores at some thresholds, as shares of 1, the one that counts most first."""
    statistic: Callable[[Evidence, str], Statistic | None] = _none
    """A score, by its name, of drawn rows of evidence; None where it is that of these rows."""
    defined: Callable[[Evidence], bool] = _always
    """True if rows of evidence have the scores, as correlations with a constant side have not."""
    constant: Callable[[Sequence[R], Sequence[Any]], bool]
    """True if the answers to labelled rows are all the same: the training has failed."""
    tune: Tune = _untuned
    """The thresholds that are best for measured rows."""
    right: Callable[[Evidence, Tuned], Right] | None = None
    """The rows of evidence that are right; None where answers are right by degrees."""
    units: Callable[[Evidence, str], Right | None] = _every_row
    """The rows of evidence over which a score, by its name, is a share or mean between 0 and 1;
    None for one that is neither, such as a correlation."""
    notes: Callable[[Evidence, Tuned], list[str]] = _no_notes
    """Further remarks on some rows of evidence, by the thresholds that were given."""
    calibrate: Callable[[Evidence, Sequence[Any]], Conformal | None] = _none
    """The thresholds of prediction sets, by some rows of evidence and their answers."""
    majority_baseline: Callable[[Sequence[R], Sequence[R], Labels], tuple[str, float] | None] = (
        _none
    )
    """Name and score on dev rows of what learns from training rows no more than frequencies."""
    by_type: Callable[[Sequence[R], Sequence[Any]], dict[str, EntityScores]] | None = None
    """The scores of each type of entity."""

    def scores(self, evidence: Evidence, labels: Labels, tuned: Tuned) -> Scores:
        """Return all scores of some rows of evidence, the one that counts most first."""
        return {name: score(evidence) for name, score in self.scoring(labels, tuned).items()}

    def primary(self, labels: Labels, tuned: Tuned) -> tuple[str, Callable[[Evidence], float]]:
        """Return the name of the score that counts most, and its function."""
        return next(iter(self.scoring(labels, tuned).items()))


@dataclass(frozen=True, kw_only=True)
class Presentation(Generic[R]):
    """Rows and answers for people to read."""

    lines: Callable[[R, Record, Labels, Brief], Iterator[str]]
    """A row and its answer."""
    inputs: Callable[[R], dict[str, Any]]
    """The input of a row as plain JSON values."""
    truth: Callable[[R], str]
    """The label of a row."""
    prediction: Callable[[Record], str]
    """An answer in words."""
    describe: Callable[[Sequence[R], Labels], str] = _no_text
    """A short description of some rows; "" if there is nothing worth saying."""
    parts: Callable[[R], dict[str, str]] | None = None
    """The parts of a labelled row by name; None for its inputs and its label."""
    chosen: Callable[[R, Record], str] | None = None
    """An answer in the words of its row, as its label is; None for `prediction`."""

    def predicted(self, row: R, record: Record) -> str:
        """Return the answer to a row as its label is written."""
        return self.prediction(record) if self.chosen is None else self.chosen(row, record)

    def labelled_parts(self, row: R) -> dict[str, str]:
        """Return the parts of a labelled row as the model gets them, by name, the truth last."""
        if self.parts is not None:
            return self.parts(row)
        inputs = {name: str(value) for name, value in self.inputs(row).items()}
        return {**inputs, "label": self.truth(row)}


@dataclass(frozen=True, kw_only=True)
class Task(Generic[R]):
    """One kind of fine-tuning; the first of its scores is the one that models are chosen by."""

    name: str
    """The name for --task, and in a run."""
    title: str
    """The name in a report."""
    unit: str = "examples"
    """The name of its rows, in the plural."""
    head: Predicts
    """The head it needs."""
    reader: Reader[R]
    labels: Labelling[R] = NO_LABELS
    identity: Callable[[R], Hashable]
    """The key that rows share if they must not be on both sides of a split."""
    clusters: Callable[[Sequence[R]], Sequence[Hashable]] | None = None
    """The keys of rows that share one if they are no independent evidence, as the sentences of one
    document are not; None for their identities. Dev is cut by them where it can be."""
    question_key: Callable[[R], Hashable] | None = None
    """The key of all that a row asks, without its label; None where that is its identity."""
    stratum: Callable[[R], str] = _no_text
    """The stratum of a row, of which both sides of a split get their share."""
    answers: Answers[R]
    learning: Learning[R]
    measuring: Measuring[R]
    present: Presentation[R]

    def cluster_keys(self, rows: Sequence[R]) -> Sequence[Hashable]:
        """Return the keys of the clusters of rows, where there are none their identities."""
        return (
            [self.identity(row) for row in rows] if self.clusters is None else self.clusters(rows)
        )


def counted_rows(task: Task[Any], rows: Sequence[Any]) -> str:
    """Return the number of rows with their unit: ``1 question``."""
    return counted(len(rows), task.unit.removesuffix("s"), task.unit)


def check_windows(task: Task[Any], truncation: Fit | None, stride: int | None) -> None:
    """Raise `ConfigError` for an option, None if it is not given, that a task does not read by.

    Only some tasks read long texts in windows, and these read them in no other way.
    """
    if task.answers.windowed and truncation not in (None, "windows"):
        raise ConfigError(
            f"--truncation is {truncation}, and {task.title.lower()} reads long texts in windows",
            remedy="leave it out",
        )
    if not task.answers.windowed and stride is not None:
        raise ConfigError(
            f"--stride is for words and answers in windows, and this is {task.title.lower()}",
            remedy="leave it out",
        )


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The answers to labelled rows, and how right they are at some thresholds."""

    answers: Sequence[Any]
    evidence: Evidence
    clusters: Clusters
    """The rows of evidence that belong together."""
    tuned: Tuned
    scores: Scores


def score_answers(
    task: Task[Any],
    rows: Sequence[Any],
    answers: Sequence[Any],
    labels: Labels,
    *,
    tuned: Tuned = UNTUNED,
    target_accuracy: float | None = None,
) -> Measured:
    """Score the answers to labelled rows, at thresholds tuned on them where none are given."""
    measuring = task.measuring
    evidence = measuring.evidence(rows, answers, labels)
    if tuned == UNTUNED:
        tuned = measuring.tune(evidence, target_accuracy)
    scores = measuring.scores(evidence, labels, tuned)
    clusters = clusters_of(task, rows, evidence)
    return Measured(
        answers=answers, evidence=evidence, clusters=clusters, tuned=tuned, scores=scores
    )


def clusters_of(task: Task[Any], rows: Sequence[Any], evidence: Evidence) -> Clusters:
    """Return the rows of evidence that belong together: of one context or document, or copies.

    Evidence that has a row for each of these already, as for queries, is independent.
    """
    if len(evidence) < len(rows):
        return Clusters.alone(len(evidence))
    return Clusters(task.cluster_keys(rows))


def right_rows(task: Task[Any], evidence: Evidence) -> Right | None:
    """Return which rows are right at the thresholds that are best for them."""
    measuring = task.measuring
    return None if measuring.right is None else measuring.right(evidence, measuring.tune(evidence))
