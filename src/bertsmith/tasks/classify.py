"""One class a text, or a pair of texts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.examples import EncodedExamples
from bertsmith.core.errors import ExampleError
from bertsmith.engine.answers import class_probabilities
from bertsmith.evaluation.metrics import CLASS_SCORES
from bertsmith.network.model import Model
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.texts import Classify as ClassifyObjective
from bertsmith.tasks.task import Evidence, Room, Scores
from bertsmith.tasks.weighing import LabelLoss, balanced_weights
from bertsmith.tasks.whole_texts import (
    TextTask,
    abstention_note,
    check_labels,
    check_texts,
    confidence_for,
    count_labels,
    order_labels,
)
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer

Classes = NDArray[np.int64]


@dataclass(frozen=True)
class Classify(TextTask):
    """Rows are texts or pairs; answers the probabilities of the classes; evidence two classes."""

    min_confidence: float | None = None
    """The probability below which no class is told; None where one always is."""
    target_accuracy: float | None = None
    """The share of the answers given that shall be right, for which `tuned` finds it."""

    called: ClassVar = "classify"
    outputs: ClassVar = staticmethod(class_probabilities)
    predicts: ClassVar = "class"
    title: ClassVar = "Classification"
    weighs: ClassVar = True
    kind: ClassVar = "class"

    def labels(self, rows: Sequence[Example], known: Sequence[str]) -> tuple[str, ...]:
        """The classes in the order that the model will keep."""
        found = (str(row.label) for row in rows)
        # F1 is that of GLUE's second class, whatever order another model has them in
        labels = order_labels(found, known) if self.glue is None else self.glue.labels
        if len(labels) < 2:
            raise ExampleError(
                f"has one class only, {labels[0]!r}",
                where=rows[0].source,
                remedy="give examples of two classes or more, or name the label's column",
            )
        check_labels([str(row.label) for row in rows], rows[0].source)
        check_texts(rows, labels)
        return labels

    def picked(self, rows: Sequence[Example], wanted: Callable[[str], bool]) -> list[Example]:
        """Return the rows whose class is wanted."""
        if self.glue is not None:
            return super().picked(rows, wanted)
        return [row for row in rows if wanted(str(row.label))]

    def labels_of(self, row: Example) -> tuple[str, ...]:
        """Its class."""
        return (str(row.label),)

    def stratum(self, row: Example) -> str:
        """Each class is split alike."""
        return str(row.label)

    def encode(
        self,
        tokenizer: Tokenizer,
        rows: Sequence[Example],
        labels: tuple[str, ...],
        room: Room,
        *,
        labelled: bool,
    ) -> EncodedExamples:
        """A text a unit."""
        encoded = self.encoded(tokenizer, rows, room)
        return encoded.labelled("classify", classes_of(rows, labels)) if labelled else encoded

    def objective(
        self, rows: Sequence[Example], labels: tuple[str, ...], settings: LabelLoss
    ) -> Objective:
        """Cross-entropy."""
        balanced = settings.class_weights == "balanced"
        weights = balanced_weights(classes_of(rows, labels), len(labels)) if balanced else ()
        term = ClassifyObjective(smoothing=settings.smoothing, weights=weights)
        return Objective(terms={"classify": term})

    def evidence(
        self, rows: Sequence[Example], answers: Sequence[Any], labels: tuple[str, ...]
    ) -> Evidence:
        """The true and the predicted class, and the latter's probability."""
        said = [int(answer.argmax()) for answer in answers]
        sure = [float(answer.max()) for answer in answers]
        return np.stack([classes_of(rows, labels), said, sure], 1).astype(np.float64)

    def tuned(self, evidence: Evidence) -> Classify:
        """The same with the confidence that gives the accuracy wanted, where one is wanted."""
        if self.target_accuracy is None:
            return self
        right, sure = self.right(evidence), evidence[:, 2]
        found = confidence_for(right, sure, self.target_accuracy)
        # where no threshold does, nothing but certainty is answered
        return replace(self, min_confidence=1.0 if found is None else found)

    def keep(self, model: Model) -> None:
        """The confidence below which no class is told."""
        model.config = replace(model.config, min_confidence=self.min_confidence)

    def notes(self, evidence: Evidence, labels: tuple[str, ...]) -> list[str]:
        """Return the effect of abstaining, if a confidence is asked for."""
        if self.min_confidence is None:
            return []
        right, sure = self.right(evidence), evidence[:, 2]
        return [abstention_note(right, sure, self.min_confidence, self.unit)]

    def scores(self, evidence: Evidence, labels: tuple[str, ...]) -> Scores:
        """Accuracy and the mean F1 of the classes, or what GLUE scores."""
        true, said = evidence[:, :2].astype(np.int64).T
        names = ("accuracy", "macro_f1") if self.glue is None else self.glue.metrics
        return {name: CLASS_SCORES[name](true, said) for name in names}

    def record(self, answer: Any, labels: tuple[str, ...], top: int) -> dict[str, Any]:  # noqa: ANN401
        """The likeliest class, and the likeliest ones with their probabilities."""
        order = np.argsort(-answer, kind="stable")[:top].tolist()
        unsure = self.min_confidence is not None and answer[order[0]] < self.min_confidence
        return {
            "label": None if unsure else labels[order[0]],
            "probability": round(float(answer[order[0]]), 6),
            "probabilities": {labels[i]: round(float(answer[i]), 6) for i in order},
        }

    def lines(
        self,
        row: Example,
        record: dict[str, Any],
        labels: tuple[str, ...],
        brief: Callable[[str], str],
    ) -> Iterator[str]:
        """Class, probability, text."""
        width = max(map(len, labels))
        text = row.text if row.text_pair is None else f"{row.text} | {row.text_pair}"
        yield f"{self.said(record):<{width}}  {record['probability']:.3f}  {brief(text)}"

    def truth(self, row: Example) -> str:
        """Its class."""
        return str(row.label)

    def said(self, record: dict[str, Any]) -> str:
        """The likeliest class."""
        return "-" if record["label"] is None else str(record["label"])

    def right(self, evidence: Evidence) -> NDArray[np.bool_]:
        """Return the rows whose predicted class is the true one."""
        return evidence[:, 0] == evidence[:, 1]  # type: ignore[no-any-return]

    def constant(self, answers: Sequence[Any]) -> bool:
        """Return whether one class is predicted throughout."""
        return len({int(answer.argmax()) for answer in answers}) == 1

    def describe(self, rows: Sequence[Example], labels: tuple[str, ...]) -> str:
        """The classes with their numbers of examples, the first ten."""
        return count_labels((str(row.label) for row in rows), labels)

    def majority_baseline(
        self, train: Sequence[Example], dev: Sequence[Example], labels: tuple[str, ...]
    ) -> tuple[str, float] | None:
        """Always saying the class that is commonest in train."""
        commonest = int(np.bincount(classes_of(train, labels)).argmax())
        true = classes_of(dev, labels)
        said = np.full_like(true, commonest)
        evidence = np.stack([true, said, np.ones_like(true)], 1).astype(np.float64)
        return "always saying the commonest class", next(
            iter(self.scores(evidence, labels).values())
        )


def classes_of(rows: Sequence[Example], labels: tuple[str, ...]) -> Classes:
    """The class numbers of rows, (rows,)."""
    number = {label: index for index, label in enumerate(labels)}
    return np.array([number[str(row.label)] for row in rows], np.int64)
