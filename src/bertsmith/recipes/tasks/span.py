"""Answers to questions as spans of a text, also where there is none (SQuAD 1.1 and 2.0)."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.examples import EncodedExamples
from bertsmith.errors import ExampleError
from bertsmith.evaluation.squad import score_v1, score_v2
from bertsmith.inference.span import Candidate, candidates, span_logits
from bertsmith.models.model import Model
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.span import Span as SpanObjective
from bertsmith.recipes.reading import Reading
from bertsmith.recipes.tasks.question_windows import QuestionWindows, question_windows
from bertsmith.recipes.tasks.task import Evidence, Room, Scores, Task
from bertsmith.recipes.tasks.thresholds import best_threshold, with_threshold
from bertsmith.recipes.tasks.weighing import LabelLoss
from bertsmith.text.squad import Question, is_table, read_questions
from bertsmith.tokens.tokenizer import Tokenizer

_BEFORE = 20
"""Characters of a context that are shown before an answer."""
_NBEST = 20


@dataclass(frozen=True, slots=True)
class Answer:
    """A span of a context, in characters, with its share among the best ones."""

    text: str
    start: int
    end: int
    probability: float


@dataclass(frozen=True, slots=True)
class SpanAnswer:
    """The best answers, the best first, and how much likelier none is than the best one.

    `doubt` is the score of no answer, the least of all windows, less that of the best answer.
    """

    best: tuple[Answer, ...]
    doubt: float

    @property
    def text(self) -> str:
        """The best answer."""
        return self.best[0].text if self.best else ""


@dataclass(frozen=True)
class Span(Task[Question]):
    """Evidence: exact match and F1 of the best answer, its doubt, and whether there is an answer.

    The answer is none where the doubt is over `no_answer`. Without one, and where some questions
    have no answer, a threshold is tuned on the very rows that are scored, as the official script
    does; the model keeps it.
    """

    no_answer: float | None = None

    called: ClassVar = "span"
    predicts: ClassVar = "span"
    title: ClassVar = "Question answering"
    unit: ClassVar = "questions"
    fits: ClassVar = False
    longest: ClassVar = 384

    def read(self, file: Path, reading: Reading, *, labelled: bool) -> Iterator[Question]:
        """Questions with their contexts."""
        return read_questions(
            file, need_answers=labelled, bad=reading.bad_rows, columns=reading.columns
        )

    def row_a_record(self, file: Path, reading: Reading) -> bool:
        """Tell whether each row of a table is one question."""
        return is_table(file, reading.columns)

    def labels(self, rows: Sequence[Question], known: Sequence[str]) -> tuple[str, ...]:
        """None; raises `ExampleError` where no question has an answer."""
        if not any(row.answers for row in rows):
            raise ExampleError("no question has an answer", where=rows[0].source)
        return ()

    def identity(self, row: Question) -> Hashable:
        """Questions of one context stay on one side."""
        return row.context

    def characters(self, row: Question) -> int:
        """Those of question and context."""
        return len(row.question) + len(row.context)

    def encode(
        self,
        tokenizer: Tokenizer,
        rows: Sequence[Question],
        labels: tuple[str, ...],
        room: Room,
        *,
        labelled: bool,
    ) -> EncodedExamples:
        """A window of the context with the question a unit."""
        return question_windows(tokenizer, rows, room, labelled=labelled)

    def objective(
        self, rows: Sequence[Question], labels: tuple[str, ...], settings: LabelLoss
    ) -> Objective:
        """Cross-entropy of the first and the last token."""
        return Objective(terms={"span": SpanObjective()})

    def answers(
        self, model: Model, encoded: EncodedExamples, rows: Sequence[Question]
    ) -> Sequence[Any]:
        """The best spans of all windows of each context."""
        assert isinstance(encoded, QuestionWindows)
        found: list[list[Candidate]] = [[] for _ in rows]
        none = [math.inf] * len(rows)
        for unit, logits in enumerate(span_logits(model, encoded)):
            number, offset = int(encoded.rows[unit]), int(encoded.offsets[unit])
            own = encoded.own[unit]
            inner = logits[offset : offset + len(own)]
            found[number] += candidates(inner, int(encoded.begins[unit]), own)
            none[number] = min(none[number], float(logits[0].sum()))
        answers = []
        for number, row in enumerate(rows):
            best = sorted(found[number], key=lambda each: -each.score)[:_NBEST]
            doubt = none[number] - best[0].score if best else math.inf
            answers.append(SpanAnswer(_texts(row, encoded, number, best), doubt))
        return answers

    def evidence(
        self, rows: Sequence[Question], answers: Sequence[Any], labels: tuple[str, ...]
    ) -> Evidence:
        """How right the best answers are, before any threshold.

        By the rules of SQuAD 1.1, or of 2.0 where some questions have no answer.
        """
        score = score_v1 if all(row.answers for row in rows) else score_v2
        found = []
        for row, answer in zip(rows, answers, strict=True):
            exact, f1 = score([gold.text for gold in row.answers], answer.text)
            found.append((exact, f1, min(answer.doubt, 1e9), float(bool(row.answers))))
        return np.array(found, np.float64)

    def scores(self, evidence: Evidence, labels: tuple[str, ...]) -> Scores:
        """F1 and exact match at the threshold, and F1 with none; without a threshold F1 and exact
        match of what is always answered.
        """
        threshold = self._threshold(evidence)
        exact, f1 = with_threshold(evidence, threshold).mean(0).tolist()
        scores = {"f1": f1, "exact_match": exact}
        if threshold < math.inf:
            scores["f1_at_0"] = float(with_threshold(evidence, 0.0)[:, 1].mean())
        return scores

    def _threshold(self, evidence: Evidence) -> float:
        if self.no_answer is not None:
            return self.no_answer
        return math.inf if evidence[:, 3].all() else best_threshold(evidence)

    def tuned(self, evidence: Evidence) -> Span:
        """The same with a threshold, where some questions have no answer."""
        threshold = self._threshold(evidence)
        return replace(self, no_answer=threshold) if threshold < math.inf else self

    def keep(self, model: Model) -> None:
        """The threshold."""
        model.config = replace(model.config, no_answer=self.no_answer)

    def notes(self, evidence: Evidence, labels: tuple[str, ...]) -> list[str]:
        """The threshold, where there is one, and what it does to questions of both kinds."""
        threshold, best = self._threshold(evidence), best_threshold(evidence)
        if threshold == math.inf:
            return []
        f1, possible = with_threshold(evidence, threshold)[:, 1], evidence[:, 3] > 0
        kinds = ((possible, "with an answer"), (~possible, "without"))
        parts = [
            f"{100 * f1[these].mean():.2f} % of {these.sum():,} questions {kind}"
            for these, kind in kinds
            if these.any()
        ]
        origin = "tuned on these very questions (a model trained with them keeps it)"
        if self.no_answer is not None:
            tuned = 100 * with_threshold(evidence, best)[:, 1].mean()
            origin = f"the model's own; F1 {tuned:.2f} % at {best:.4f}, the best for these"
        return [
            f"no answer is given where the doubt exceeds {threshold:.4f}, {origin}; "
            f"F1 {', '.join(parts)}"
        ]

    def record(self, answer: Any, labels: tuple[str, ...], top: int) -> dict[str, Any]:  # noqa: ANN401
        """The best answer with its characters, the next best, and the doubt."""
        best = [_json(each) for each in answer.best[:top]]
        silent = not best or (self.no_answer is not None and answer.doubt > self.no_answer)
        first = {"answer": "", "start": 0, "end": 0, "probability": 0.0} if silent else best[0]
        return {**first, "doubt": round(min(answer.doubt, 1e9), 6), "n_best": best}

    def lines(
        self,
        row: Question,
        record: dict[str, Any],
        labels: tuple[str, ...],
        brief: Callable[[str], str],
    ) -> Iterator[str]:
        """The question, and below it the answer."""
        yield brief(row.question)
        yield f"    {record['probability']:.3f}  {brief(record['answer'])}"

    def shown(self, row: Question) -> dict[str, Any]:
        """Id and question; the context is known to whoever asks."""
        return {"id": row.id, "question": row.question}

    def layout(self, file: Path, reading: Reading) -> str:
        """Return the kind of file."""
        return "a question a row" if is_table(file, reading.columns) else "SQuAD's JSON"

    def parts(self, row: Question) -> dict[str, str]:
        """Return the question, the context from shortly before the answer, and the answer."""
        begin = max(row.answers[0].start - _BEFORE, 0) if row.answers else 0
        context = "..." * (begin > 0) + row.context[begin:]
        answer = row.answers[0].text if row.answers else "(none)"
        return {"question": row.question, "context": context, "answer": answer}

    def truth(self, row: Question) -> str:
        """The first answer."""
        return row.answers[0].text if row.answers else "-"

    def said(self, record: dict[str, Any]) -> str:
        """The best answer."""
        return str(record["answer"])

    def right(self, evidence: Evidence) -> NDArray[np.bool_]:
        """Questions answered exactly, at the threshold if there is one."""
        return with_threshold(evidence, self._threshold(evidence))[:, 0] > 0

    def constant(self, answers: Sequence[Any]) -> bool:
        """Whether all answers are one text."""
        return len({answer.text for answer in answers}) == 1

    def describe(self, rows: Sequence[Question], labels: tuple[str, ...]) -> str:
        """Contexts, and questions without an answer."""
        contexts = len({row.context for row in rows})
        none = sum(not row.answers for row in rows)
        return f"{contexts:,} contexts" + (f", {none:,} without an answer" if none else "")


def _texts(
    row: Question, encoded: QuestionWindows, number: int, best: Sequence[Candidate]
) -> tuple[Answer, ...]:
    """Spans as pieces of the context; of two with the same text, the better one."""
    starts, ends = encoded.pieces[number]
    shares = _softmax([each.score for each in best])
    answers: dict[str, Answer] = {}
    for each, share in zip(best, shares, strict=True):
        start, end = int(starts[each.first]), int(ends[each.last])
        text = row.context[start:end]
        answers.setdefault(text, Answer(text, start, end, share))
    return tuple(answers.values())


def _softmax(scores: Sequence[float]) -> list[float]:
    if not scores:
        return []
    shares = [math.exp(score - max(scores)) for score in scores]
    return [share / sum(shares) for share in shares]


def _json(answer: Answer) -> dict[str, Any]:
    return {
        "answer": answer.text,
        "start": answer.start,
        "end": answer.end,
        "probability": round(answer.probability, 6),
    }
