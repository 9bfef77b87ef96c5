"""One of several options, any number of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.examples import EncodedExamples, encode_examples
from bertsmith.core.errors import ConfigError
from bertsmith.engine.answers import option_scores
from bertsmith.network.model import Model
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.texts import Choose
from bertsmith.tasks.reading import Reading
from bertsmith.tasks.task import Evidence, Room, Scores, Task
from bertsmith.tasks.weighing import LabelLoss
from bertsmith.tasks.whole_texts import abstention_note, confidence_for
from bertsmith.text.examples.formats.choices import Choice as Question
from bertsmith.text.examples.formats.choices import describe_choices, find_label_start, read_choices
from bertsmith.text.examples.formats.mctest import has_stories
from bertsmith.tokens.tokenizer import Tokenizer


@dataclass(frozen=True)
class Choice(Task[Question]):
    """Answers are the probabilities of the options; evidence the right and the chosen one."""

    min_confidence: float | None = None
    """The probability below which no option is chosen; None where one always is."""
    target_accuracy: float | None = None
    """The share of the answers given that shall be right, for which `tuned` finds it."""

    called: ClassVar = "choice"
    outputs: ClassVar = staticmethod(option_scores)
    predicts: ClassVar = "choice"
    title: ClassVar = "Multiple choice"
    unit: ClassVar = "questions"

    def read(self, file: Path, reading: Reading, *, labelled: bool) -> Iterator[Question]:
        """Questions with options."""
        return read_choices(file, reading.columns, need_label=labelled, bad=reading.bad_rows)

    def settled(self, file: Path, reading: Reading) -> Reading:
        """Return the reading with what numeric labels count from."""
        start = find_label_start(file, reading.columns)
        return reading.settled(columns=replace(reading.columns, label_start="1" if start else "0"))

    def row_a_record(self, file: Path, reading: Reading) -> bool:
        """Tell whether each row of a table is one question."""
        return not has_stories(file, reading.columns.encoding)

    def identity(self, row: Question) -> Hashable:
        """Questions of one text stay on one side."""
        return row.context or row.text

    def characters(self, row: Question) -> int:
        """Those of the text with each option."""
        return sum(len(row.text) + len(option) for option in row.choices)

    def encode(
        self,
        tokenizer: Tokenizer,
        rows: Sequence[Question],
        labels: tuple[str, ...],
        room: Room,
        *,
        labelled: bool,
    ) -> EncodedExamples:
        """A question a unit, its options as pairs with the text."""
        if room.long == "windows":
            raise ConfigError(
                "--long windows is not for multiple choice", remedy="take head, tail or head+tail"
            )
        encoded = encode_examples(
            tokenizer,
            [row.text for row in rows for _ in row.choices],
            [option for row in rows for option in row.choices],
            longest=room.longest,
            fit=room.long,
        ).grouped([len(row.choices) for row in rows])
        return encoded.labelled("choose", _right(rows)) if labelled else encoded

    def objective(
        self, rows: Sequence[Question], labels: tuple[str, ...], settings: LabelLoss
    ) -> Objective:
        """Cross-entropy among the options of each question."""
        return Objective(terms={"choose": Choose()})

    def evidence(
        self, rows: Sequence[Question], answers: Sequence[Any], labels: tuple[str, ...]
    ) -> Evidence:
        """The right option, the chosen one, and the latter's probability."""
        chosen = [int(answer.argmax()) for answer in answers]
        sure = [float(answer.max()) for answer in answers]
        return np.stack([_right(rows), chosen, sure], 1).astype(np.float64)

    def tuned(self, evidence: Evidence) -> Choice:
        """The same with the confidence that gives the accuracy wanted, where one is wanted."""
        if self.target_accuracy is None:
            return self
        found = confidence_for(self.right(evidence), evidence[:, 2], self.target_accuracy)
        return replace(self, min_confidence=1.0 if found is None else found)

    def keep(self, model: Model) -> None:
        """The confidence below which no option is chosen."""
        model.config = replace(model.config, min_confidence=self.min_confidence)

    def notes(self, evidence: Evidence, labels: tuple[str, ...]) -> list[str]:
        """Return the effect of abstaining, if a confidence is asked for."""
        if self.min_confidence is None:
            return []
        right, sure = self.right(evidence), evidence[:, 2]
        return [abstention_note(right, sure, self.min_confidence, self.unit)]

    def scores(self, evidence: Evidence, labels: tuple[str, ...]) -> Scores:
        """The share of the questions with the right option chosen."""
        return {"accuracy": float(self.right(evidence).mean())}

    def record(self, answer: Any, labels: tuple[str, ...], top: int) -> dict[str, Any]:  # noqa: ANN401
        """The chosen option, from 0, and the probabilities of all."""
        chosen = int(answer.argmax())
        unsure = self.min_confidence is not None and answer[chosen] < self.min_confidence
        return {
            "choice": None if unsure else chosen,
            "probability": round(float(answer[chosen]), 6),
            "probabilities": [round(float(share), 6) for share in answer],
        }

    def lines(
        self,
        row: Question,
        record: dict[str, Any],
        labels: tuple[str, ...],
        brief: Callable[[str], str],
    ) -> Iterator[str]:
        """The text, and below it the options with their probabilities."""
        yield brief(row.text)
        for number, (option, share) in enumerate(
            zip(row.choices, record["probabilities"], strict=True)
        ):
            yield f"  {'>' if number == record['choice'] else ' '} {share:.3f}  {brief(option)}"

    def shown(self, row: Question) -> dict[str, Any]:
        """Text and options."""
        name = {} if row.id is None else {"id": row.id}
        return {**name, "text": row.text, "choices": list(row.choices)}

    def layout(self, file: Path, reading: Reading) -> str:
        """Return the columns of the question, its options and the label."""
        return describe_choices(file, reading.columns)

    def parts(self, row: Question) -> dict[str, str]:
        """Return the text, the options by number, and the right one."""
        options = {f"option {number}": option for number, option in enumerate(row.choices)}
        return {"text": row.text, **options, "right": f"option {row.label}"}

    def truth(self, row: Question) -> str:
        """The right option."""
        assert row.label is not None
        return row.choices[row.label]

    def said(self, record: dict[str, Any]) -> str:
        """The number of the chosen option, from 0."""
        return "-" if record["choice"] is None else f"option {record['choice']}"

    def right(self, evidence: Evidence) -> NDArray[np.bool_]:
        """Return the rows whose right option is chosen."""
        return evidence[:, 0] == evidence[:, 1]  # type: ignore[no-any-return]

    def constant(self, answers: Sequence[Any]) -> bool:
        """Return whether all options of every question are equally likely."""
        return all(np.ptp(answer) < 1e-4 for answer in answers)

    def describe(self, rows: Sequence[Question], labels: tuple[str, ...]) -> str:
        """The numbers of options."""
        sizes = {len(row.choices) for row in rows}
        least, most = min(sizes), max(sizes)
        return f"{least} options each" if least == most else f"{least} to {most} options"

    def majority_baseline(
        self, train: Sequence[Question], dev: Sequence[Question], labels: tuple[str, ...]
    ) -> tuple[str, float] | None:
        """Choosing by lot."""
        return "choosing by lot", float(np.mean([1 / len(row.choices) for row in dev]))


def _right(rows: Sequence[Question]) -> NDArray[np.int64]:
    """The right option of each question, from 0, (questions,)."""
    return np.array([row.label for row in rows], np.int64)
