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
from bertsmith.batches.fitting import encode_pair, second_begins
from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.engine.answers import Candidate, candidates, span_logits
from bertsmith.engine.predictor import Outputs
from bertsmith.evaluation.squad import score_v1, score_v2
from bertsmith.network.model import Model
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.words import Span as SpanObjective
from bertsmith.tasks.reading import Reading
from bertsmith.tasks.task import Evidence, Room, Scores, Task
from bertsmith.tasks.weighing import LabelLoss
from bertsmith.tasks.windows import WindowedExamples, window_of
from bertsmith.text.examples.formats.squad import Question, is_table, read_questions
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import Encoding


def with_threshold(evidence: Evidence, threshold: float) -> Evidence:
    """Exact match and F1 (rows, 2) where no answer is given for a doubt over the threshold."""
    silent = evidence[:, 2] > threshold
    return np.where(silent[:, None], 1 - evidence[:, 3:], evidence[:, :2])


def best_threshold(evidence: Evidence, column: int = 1) -> float:
    """The least threshold with the best mean of a column, F1 or exact match.

    It is one of the doubts, as in the official script, tried in rising order. Where it is best to
    answer nothing it is 0, as there, or less, so that it is below every doubt.
    """
    order = np.argsort(evidence[:, 2], kind="stable")
    doubts = evidence[order, 2]
    gains = evidence[order, column] - (1 - evidence[order, 3])
    # silent on all at first; then one more is answered at each step
    totals = np.cumsum(gains)
    # equal doubts are answered together
    last = np.append(doubts[1:] != doubts[:-1], np.ones(min(1, len(doubts)), bool))
    totals, doubts = totals[last], doubts[last]
    if not len(totals) or totals.max() <= 0:
        below = np.nextafter(evidence[:, 2].min(initial=np.inf), -np.inf)
        return min(0.0, float(below))
    return float(doubts[int(totals.argmax())])


# as in the original code
_LONGEST_QUESTION = 64
_SHORTEST_CONTEXT = 8


@dataclass(frozen=True, kw_only=True)
class QuestionWindows(WindowedExamples):
    """Windows with what is needed to read answers in them.

    `own` tells for each window the tokens of the context in it (tokens,) that are best seen there;
    `pieces` for each row the characters of its context where tokens start and end, (tokens,) each.
    """

    own: list[NDArray[np.bool_]]
    pieces: list[tuple[NDArray[np.int32], NDArray[np.int32]]]


def question_windows(
    tokenizer: Tokenizer, rows: Sequence[Question], room: Room, *, labelled: bool
) -> QuestionWindows:
    """The windows of some questions' contexts, with the place of the answer if `labelled`.

    Questions keep their first 64 tokens. A window without the whole answer has none. Raises
    `ConfigError` where there is no room for a question.
    """
    ids, segments, owners, begins, offsets = [], [], [], [], []
    own, labels, long, pieces = [], [], [], []
    contexts: dict[str, Encoding] = {}
    free = room.longest - tokenizer.specials_around(pair=True)
    most = min(_LONGEST_QUESTION, free - _SHORTEST_CONTEXT)
    if most < 1:
        raise ConfigError(
            f"longest is {room.longest}",
            remedy=f"question and context need at least {room.longest + 1 - most} tokens",
        )
    cut = []
    for number, row in enumerate(rows):
        if row.context not in contexts:
            # questions of one context stand in a row
            contexts = {row.context: tokenizer.encode_spans(row.context)}
        context = contexts[row.context]
        whole = tokenizer.encode([row.question])[0]
        question = whole[:most]
        inner = free - len(question)
        offset = second_begins(tokenizer, len(question))
        starts, window = window_of(len(context), inner, min(room.overlap, inner // 2))
        answer = _answer(context, row) if labelled else None
        pieces.append((context.starts, context.ends))
        for which, start in enumerate(starts):
            part = context.ids[start : start + inner]
            sequence, segment = encode_pair(tokenizer, question, part, longest=room.longest)
            ids.append(sequence)
            segments.append(segment)
            owners.append(number)
            begins.append(start)
            offsets.append(offset)
            own.append(window[start : start + len(part)] == which)
            long.append(len(starts) > 1)
            cut.append(len(question) < len(whole))
            labels.append(_place(answer, start, len(part), offset))
    count = len(ids)
    return QuestionWindows(
        ids=ids,
        segments=segments,
        starts=np.arange(count + 1),
        cut=np.array(cut, bool),
        long=np.array(long, bool),
        target="span",
        labels=np.array(labels, np.int64).reshape(-1, 2) if labelled else None,
        rows=np.array(owners, np.int64),
        begins=np.array(begins, np.int64),
        offsets=np.array(offsets, np.int64),
        own=own,
        pieces=pieces,
    )


def _answer(context: Encoding, row: Question) -> tuple[int, int] | None:
    """The first and the last token of the first answer."""
    if not row.answers:
        return None
    start = row.answers[0].start
    end = start + len(row.answers[0].text)
    first = int(np.searchsorted(context.ends, start, side="right"))
    last = int(np.searchsorted(context.starts, end, side="left")) - 1
    return (first, last) if 0 <= first <= last < len(context) else None


def _place(answer: tuple[int, int] | None, start: int, length: int, offset: int) -> tuple[int, int]:
    """The answer's tokens in a window that begins at a token; [CLS] twice where it is not in it."""
    if answer is None or answer[0] < start or answer[1] >= start + length:
        return 0, 0
    return answer[0] - start + offset, answer[1] - start + offset


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
    outputs: ClassVar = staticmethod(span_logits)
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

    def decode(
        self,
        rows: Sequence[Question],
        encoded: EncodedExamples,
        outputs: Outputs,
        labels: tuple[str, ...],
    ) -> Sequence[Any]:
        """Return the best spans of all windows of each context."""
        assert isinstance(encoded, QuestionWindows)
        found: list[list[Candidate]] = [[] for _ in rows]
        none = [math.inf] * len(rows)
        for unit, logits in enumerate(outputs):
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
        """Return the scores of the best answers, before any threshold.

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
        """Return whether all answers are one text."""
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
