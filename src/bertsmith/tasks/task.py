"""The interface of a kind of fine-tuning: reading, encoding, learning, answering and scoring.

rows      what a reader gives: a text with its class, a sentence with its tags, a question
units     what training takes whole or not at all (batches/examples.py)
answers   what the model says of each row
evidence  numbers that tell how right each answer is, one row of them a row; every score is a
          function of some rows of evidence, so that an interval can be had by drawing them anew
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.examples import EncodedExamples
from bertsmith.core.config import Config
from bertsmith.core.errors import ConfigError
from bertsmith.engine.predictor import Outputs
from bertsmith.evaluation.significance import Interval, bootstrap_interval
from bertsmith.network.heads import Predicts
from bertsmith.network.model import Model, ModelConfig, Precision
from bertsmith.network.preprocessing import Fit
from bertsmith.objectives.objective import Objective
from bertsmith.tasks.reading import Reading
from bertsmith.tasks.weighing import LabelLoss
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer

Evidence = NDArray[np.float64]
Scores = dict[str, float]


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


@dataclass(frozen=True, kw_only=True)
class Room(Config):
    """The part of a text that is read at once, and the treatment of the rest."""

    longest: int
    """Tokens a sequence at most."""
    long: Fit = "head"
    """What is read of longer texts."""
    stride: int | None = None
    """Tokens that two windows share, a third of them all where none is given."""

    def __post_init__(self) -> None:
        if self.longest < 8:
            raise ConfigError(f"longest is {self.longest}", remedy="it must be at least 8 tokens")
        if self.stride is not None and self.stride < 0:
            raise ConfigError(f"stride is {self.stride}", remedy="it must be at least 0")

    @property
    def overlap(self) -> int:
        """The tokens that two windows share."""
        return self.longest // 3 if self.stride is None else self.stride

    @classmethod
    def of_model(
        cls,
        config: ModelConfig,
        *,
        longest: int | None = None,
        long: Fit | None = None,
        stride: int | None = None,
    ) -> Room:
        """The limits a model answers with: those given, else those it was trained with.

        Of a model that says nothing of its training: all that it can read, from the beginning.
        """
        limit, trained = config.encoder.longest, config.preprocessing
        if trained is None:
            return cls(longest=min(longest or limit, limit), long=long or "head", stride=stride)
        return cls(
            longest=min(longest or trained.longest, limit),
            long=long or trained.long,
            # a stride belongs to the length that it was chosen for
            stride=trained.stride if stride is None and longest is None else stride,
        )


class UnitOutputs(Protocol):
    """A function of the engine that runs a model on all units."""

    def __call__(
        self,
        model: Model,
        examples: EncodedExamples,
        *,
        tokens_per_batch: int = ...,
        precision: Precision = ...,
    ) -> Outputs:
        """Return the outputs for each unit, in order."""
        ...


class Task(ABC, Generic[R]):
    """One kind of fine-tuning; the first of its scores is the one that models are chosen by."""

    called: ClassVar[str]
    """What --task calls it."""
    predicts: ClassVar[Predicts]
    """The head it needs."""
    outputs: ClassVar[UnitOutputs]
    """What a model computes for each unit."""
    title: ClassVar[str]
    """What a report calls it."""
    unit: ClassVar[str] = "examples"
    """What its rows are called."""
    fits: ClassVar[bool] = True
    """Whether settings say what is read of long texts; else all is, in windows."""

    weighs: ClassVar[bool] = False
    """Whether it has classes that can be weighed, and labels that can be smoothed."""

    longest: ClassVar[int] = 128
    """Tokens a sequence at most, where none are named."""

    @property
    def name(self) -> str:
        """The name in a run; the files of a benchmark have names of their own."""
        return self.called

    @abstractmethod
    def read(self, file: Path, reading: Reading, *, labelled: bool) -> Iterator[R]:
        """The rows of a file; raises `ExampleError`, with file and line."""

    def settled(self, file: Path, reading: Reading) -> Reading:
        """Return the reading with what it leaves open decided from a labelled file."""
        return reading

    def layout(self, file: Path, reading: Reading) -> str:
        """Return how a labelled file is read, such as its header and columns; "" if undescribed."""
        return ""

    def parts(self, row: R) -> dict[str, str]:
        """Return the parts of a labelled row as the model gets them, by name, the truth last."""
        asked = {name: str(value) for name, value in self.shown(row).items()}
        return {**asked, "label": self.truth(row)}

    def picked(self, rows: Sequence[R], wanted: Callable[[str], bool]) -> list[R]:
        """Return the rows with classes that are wanted; `ConfigError` where rows have none."""
        raise ConfigError(
            f"{self.name} has no classes to pick from", remedy="leave out --classes and --exclude"
        )

    def labels(self, rows: Sequence[R], known: Sequence[str]) -> tuple[str, ...]:
        """The names of the model's outputs, those of the model trained on, `known`, in its order.

        Raises `ExampleError` for rows that cannot be learned from.
        """
        return ()

    def check(self, train: Sequence[R], dev: Sequence[R], labels: tuple[str, ...]) -> None:
        """Raise `ExampleError` where rows to measure with are of another kind than those learned.

        Nothing is wrong where this is not overridden.
        """

    def labels_of(self, row: R) -> tuple[str, ...]:
        """The labels that a row has."""
        return ()

    @abstractmethod
    def identity(self, row: R) -> Hashable:
        """Return the key that rows share if they must not be on both sides of a split."""

    def stratum(self, row: R) -> str:
        """Return the stratum of a row, of which both sides of a split get their share."""
        return ""

    @abstractmethod
    def characters(self, row: R) -> int:
        """The length of a row's texts, so that few long ones are taken at once."""

    @abstractmethod
    def encode(
        self,
        tokenizer: Tokenizer,
        rows: Sequence[R],
        labels: tuple[str, ...],
        room: Room,
        *,
        labelled: bool,
    ) -> EncodedExamples:
        """The rows as token ids, with what is to be learned of them if they are labelled."""

    @abstractmethod
    def objective(
        self, rows: Sequence[R], labels: tuple[str, ...], settings: LabelLoss
    ) -> Objective:
        """Return the objective that training on some rows minimises."""

    def finish(self, model: Model, rows: Sequence[R]) -> None:
        """Finish a model that was trained on some rows, before it answers.

        Nothing where this is not overridden.
        """

    def tuned(self, evidence: Evidence) -> Task[R]:
        """The task with what is best for measured rows; itself where there is nothing to tune."""
        return self

    def keep(self, model: Model) -> None:
        """Write into a model what was tuned, for when it is asked again.

        Nothing where this is not overridden.
        """

    def decode(
        self,
        rows: Sequence[R],
        encoded: EncodedExamples,
        outputs: Outputs,
        labels: tuple[str, ...],
    ) -> Sequence[Any]:
        """Return the answer to each row; `encoded` is what `encode` made of these rows.

        The outputs themselves, where each row is a unit.
        """
        return list(outputs)

    @abstractmethod
    def evidence(
        self, rows: Sequence[R], answers: Sequence[Any], labels: tuple[str, ...]
    ) -> Evidence:
        """Return the evidence of how right the answers to labelled rows are, (rows, numbers)."""

    @abstractmethod
    def scores(self, evidence: Evidence, labels: tuple[str, ...]) -> Scores:
        """The scores of some rows of evidence, as shares of 1, the one that counts most first."""

    @abstractmethod
    def record(self, answer: Any, labels: tuple[str, ...], top: int) -> dict[str, Any]:  # noqa: ANN401
        """An answer as plain JSON values."""

    def reads_lines(self, file: str, reading: Reading) -> bool:
        """Tell whether what is asked of a file, or of standard input (-), is a text a line."""
        return False

    def of_text(self, example: Example) -> R:
        """Return a text as a row, for tasks that read lines."""
        raise NotImplementedError(self.name)

    def asked(self, file: Path, reading: Reading) -> Iterator[R]:
        """Yield the rows of a file to answer for, where they are no lines."""
        return self.read(file, reading, labelled=False)

    def row_a_record(self, file: Path, reading: Reading) -> bool:
        """Tell whether each record of a table is one row, so that its columns can be kept."""
        return True

    @abstractmethod
    def lines(
        self,
        row: R,
        record: dict[str, Any],
        labels: tuple[str, ...],
        brief: Callable[[str], str],
    ) -> Iterator[str]:
        """A row and its answer for people to read; `brief` is the beginning of a text."""

    @abstractmethod
    def shown(self, row: R) -> dict[str, Any]:
        """Return the input of a row as plain JSON values."""

    @abstractmethod
    def truth(self, row: R) -> str:
        """Return the label of a row in words."""

    @abstractmethod
    def said(self, record: dict[str, Any]) -> str:
        """An answer, of which `record` has made JSON values, in words."""

    def right(self, evidence: Evidence) -> NDArray[np.bool_] | None:
        """Return which rows of evidence are right; None if answers are right by degrees."""
        return None

    def notes(self, evidence: Evidence, labels: tuple[str, ...]) -> list[str]:
        """Return further remarks on some rows of evidence."""
        return []

    def constant(self, answers: Sequence[Any]) -> bool:
        """Return whether all answers are the same: the training has failed."""
        first = answers[0]
        return len(answers) > 1 and all(np.array_equal(first, answer) for answer in answers)

    def describe(self, rows: Sequence[R], labels: tuple[str, ...]) -> str:
        """Return a short description of some rows; "" if there is nothing worth saying."""
        return ""

    def majority_baseline(
        self, train: Sequence[R], dev: Sequence[R], labels: tuple[str, ...]
    ) -> tuple[str, float] | None:
        """Return name and score on dev of the majority baseline, None if there is none."""
        return None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The answers to labelled rows, and how right they are."""

    answers: Sequence[Any]
    evidence: Evidence
    scores: Scores


def measure(
    task: Task[Any],
    model: Model,
    encoded: EncodedExamples,
    rows: Sequence[Any],
    labels: tuple[str, ...],
) -> Measured:
    """Ask a model for its answers to labelled rows, and score them."""
    answers = task.decode(rows, encoded, task.outputs(model, encoded), labels)
    return score_answers(task, rows, answers, labels)


def score_answers(
    task: Task[Any], rows: Sequence[Any], answers: Sequence[Any], labels: tuple[str, ...]
) -> Measured:
    """Score the answers to labelled rows."""
    evidence = task.evidence(rows, answers, labels)
    return Measured(answers=answers, evidence=evidence, scores=task.scores(evidence, labels))


def interval_of(
    task: Task[Any], evidence: Evidence, labels: tuple[str, ...], name: str | None = None
) -> Interval:
    """The 95 % interval of a score, the one that counts most where none is named.

    Over rows drawn anew from these, with what was tuned on all of them: it is that model, not a
    tuning for each draw, that will be asked on other rows.
    """
    task = task.tuned(evidence)

    def score(drawn: NDArray[np.int64]) -> float:
        scores = task.scores(evidence[drawn], labels)
        return next(iter(scores.values())) if name is None else scores[name]

    return bootstrap_interval(score, len(evidence), resamples=1000)
