"""Answers to questions as spans of a text, also where there is none (SQuAD 1.1 and 2.0)."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.examples import EncodedExamples
from bertsmith.batches.truncation import encode_pair, second_begins, window_of
from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.core.printable import counted
from bertsmith.engine.answers import Candidate, candidates, span_logits
from bertsmith.engine.predictor import Outputs
from bertsmith.evaluation.spans import score_v1, score_v2
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.tasks import Span
from bertsmith.tasks.config import LabelLoss, Reading
from bertsmith.tasks.task import (
    UNTUNED,
    Answers,
    Brief,
    Evidence,
    Labelling,
    Labels,
    Learning,
    Measuring,
    Presentation,
    Reader,
    ReadingLimits,
    Record,
    Right,
    Scoring,
    Task,
    Tuned,
)
from bertsmith.text.examples.example import folded
from bertsmith.text.examples.formats.squad import (
    Question,
    describe_questions,
    is_table,
    read_questions,
)
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import Encoding

# reading


def _read(
    file: Path, reading: Reading, *, labelled: bool, located: bool = True
) -> Iterator[Question]:
    return read_questions(
        file,
        need_answers=labelled,
        need_positions=located,
        bad=reading.bad_rows,
        columns=reading.columns,
    )


def _layout(file: Path, reading: Reading) -> str:
    return describe_questions(file, reading.columns)


def _row_a_record(file: Path, reading: Reading) -> bool:
    """Return whether each row of a table is one question."""
    return is_table(file, reading.columns)


def _characters(row: Question) -> int:
    """Return the length of question and context."""
    return len(row.question) + len(row.context)


def _names(rows: Sequence[Question], known: Sequence[str]) -> Labels:
    """Return no names; raises `ExampleError` where no question has an answer."""
    if not any(row.answers for row in rows):
        raise ExampleError("no question has an answer", where=rows[0].source)
    return ()


# encoding

# as in the original code
_MAX_QUESTION_LENGTH = 64
_MIN_CONTEXT_LENGTH = 8


@dataclass(frozen=True, kw_only=True)
class ContextWindows:
    """The windows over a question's context, to read answers in them.

    The context's tokens stand from position `offset` in each window; `begins` are the numbers of
    the first ones, `own` mark for each window those that are best seen there, (tokens,). The
    question has `question` tokens, of which the first `asked` stand in each window.
    """

    context: Encoding
    offset: int
    begins: list[int]
    own: list[NDArray[np.bool_]]
    question: int
    asked: int


def encode_questions(
    tokenizer: Tokenizer, rows: Sequence[Question], limits: ReadingLimits
) -> EncodedExamples:
    """Encode a window of the context with the question as a unit; the sidecar: `ContextWindows`.

    Questions keep their first 64 tokens. Raises `ConfigError` where there is no room for one.
    """
    free = limits.longest - tokenizer.specials_around(pair=True)
    max_question = min(_MAX_QUESTION_LENGTH, free - _MIN_CONTEXT_LENGTH)
    if max_question < 1:
        raise ConfigError(
            f"{limits.longest} tokens are read at once (--max-length)",
            remedy=f"question and context need at least {limits.longest + 1 - max_question} tokens",
        )
    windows, sidecar, cut = [], [], []
    contexts: dict[str, Encoding] = {}
    for row in rows:
        if row.context not in contexts:
            # questions of one context follow one another
            contexts = {row.context: tokenizer.encode_spans(row.context)}
        context = contexts[row.context]
        (encoded_questions,) = tokenizer.encode([row.question])
        question = encoded_questions[:max_question]
        inner = free - len(question)
        begins, window = window_of(len(context), inner, min(limits.overlap, inner // 2))
        parts = [slice(begin, begin + inner) for begin in begins]
        windows.append(
            [
                encode_pair(tokenizer, question, context.ids[part], longest=limits.longest)
                for part in parts
            ]
        )
        cut.append(len(question) < len(encoded_questions))
        sidecar.append(
            ContextWindows(
                context=context,
                offset=second_begins(tokenizer, len(question)),
                begins=begins,
                own=[window[part] == number for number, part in enumerate(parts)],
                question=len(encoded_questions),
                asked=len(question),
            )
        )
    return EncodedExamples.windows(windows, sidecar, cut=cut)


def _unread(sidecar: Any) -> str:  # noqa: ANN401
    """Return a note on a question that is not read whole."""
    assert isinstance(sidecar, ContextWindows)
    if sidecar.asked == sidecar.question:
        return ""
    tokens = counted(sidecar.question, "token")
    read = "is" if sidecar.asked == 1 else f"{sidecar.asked:,} are"
    return f"the question has {tokens}, of which the first {read} read"


# answers

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


def _decode(
    row: Question,
    sidecar: Any,  # noqa: ANN401
    outputs: Outputs,
    labels: Labels,
) -> SpanAnswer:
    """Return the best spans of all windows of the context."""
    assert isinstance(sidecar, ContextWindows)
    spans: list[Candidate] = []
    none = math.inf
    for logits, begin, best_seen in zip(outputs, sidecar.begins, sidecar.own, strict=True):
        inner = logits[sidecar.offset : sidecar.offset + len(best_seen)]
        spans += candidates(inner, begin, best_seen)
        none = min(none, float(logits[0].sum()))
    placed = [
        (span.score, *trimmed(row.context, sidecar.context, span))
        for span in sorted(spans, key=lambda span: -span.score)
    ]
    best = [(score, start, end) for score, start, end in placed if start < end][:_NBEST]
    doubt = none - best[0][0] if best else math.inf
    answers: dict[str, Answer] = {}
    for (_, start, end), share in zip(best, _softmax([each[0] for each in best]), strict=True):
        text = row.context[start:end]
        # of two with the same text, the better one
        answers.setdefault(text, Answer(text, start, end, share))
    return SpanAnswer(tuple(answers.values()), doubt)


def trimmed(text: str, context: Encoding, span: Candidate) -> tuple[int, int]:
    """Return the start and the end of a span without the blanks around it, equal if it is blank.

    Pieces may begin with the blank before a word, or be nothing else.
    """
    start = int(context.starts[span.first])
    found = text[start : _end_with_marks(text, context, span.last)].rstrip()
    return start + len(found) - len(found.lstrip()), start + len(found)


def _end_with_marks(text: str, context: Encoding, last: int) -> int:
    """Return the end of a token with the marks on its last letter that the tokenizer dropped."""
    end = int(context.ends[last])
    limit = int(context.starts[last + 1]) if last + 1 < len(context) else len(text)
    while end < limit and unicodedata.category(text[end]) == "Mn":
        end += 1
    return end


def _softmax(scores: Sequence[float]) -> list[float]:
    if not scores:
        return []
    shares = [math.exp(score - max(scores)) for score in scores]
    return [share / sum(shares) for share in shares]


def _keys(labels: Labels, tuned: Tuned) -> tuple[str, ...]:
    """Return the keys of a record."""
    return ("answer", "start", "end", "probability", "doubt", "n_best")


def _record(answer: Any, labels: Labels, top: int, tuned: Tuned) -> Record:  # noqa: ANN401
    """Return the best answer with its characters, the next best, and the doubt."""
    best = [_json(span) for span in answer.best[:top]]
    silent = not best or (tuned.no_answer is not None and answer.doubt > tuned.no_answer)
    first = {"answer": "", "start": 0, "end": 0, "probability": 0.0} if silent else best[0]
    return {**first, "doubt": round(min(answer.doubt, _NO_SPAN), 6), "n_best": best}


def _json(answer: Answer) -> dict[str, Any]:
    return {
        "answer": answer.text,
        "start": answer.start,
        "end": answer.end,
        "probability": round(answer.probability, 6),
    }


# learning


def _targets(rows: Sequence[Question], labels: Labels, encoded: EncodedExamples) -> EncodedExamples:
    """Return each window with the positions of the answer, none where it is not whole in it."""
    positions = []
    for row, windows in zip(rows, encoded.sidecar, strict=True):
        answer = _answer(windows.context, row)
        for begin, best_seen in zip(windows.begins, windows.own, strict=True):
            positions.append(_positions(answer, begin, len(best_seen), windows.offset))
    return encoded.labelled("span", np.array(positions, np.int64).reshape(-1, 2))


def _answer(context: Encoding, row: Question) -> tuple[int, int] | None:
    """Return the first and the last token of the first answer."""
    if not row.answers:
        return None
    start = row.answers[0].start
    end = start + len(row.answers[0].text)
    first = int(np.searchsorted(context.ends, start, side="right"))
    last = int(np.searchsorted(context.starts, end, side="left")) - 1
    return (first, last) if first <= last else None


def _positions(
    answer: tuple[int, int] | None, start: int, length: int, offset: int
) -> tuple[int, int]:
    """Return the answer's positions in a window; those of [CLS] where it does not lie in it."""
    if answer is None or answer[0] < start or answer[1] >= start + length:
        return 0, 0
    return answer[0] - start + offset, answer[1] - start + offset


def _objective(rows: Sequence[Question], labels: Labels, settings: LabelLoss) -> Objective:
    """Return cross-entropy of the first and the last token."""
    return Objective(terms={"span": Span()})


# measuring


def with_threshold(evidence: Evidence, threshold: float) -> Evidence:
    """Return exact match and F1 (rows, 2) with no answer given for doubts over the threshold."""
    silent = evidence[:, 2] > threshold
    return np.where(silent[:, None], 1 - evidence[:, 3:], evidence[:, :2])


def best_threshold(evidence: Evidence) -> float:
    """Return the least threshold with the best mean F1.

    It is one of the doubts, as in the official script, tried in rising order. Where it is best to
    answer nothing it is 0, as there, or less, so that it is below every doubt.
    """
    order = np.argsort(evidence[:, 2], kind="stable")
    doubts = evidence[order, 2]
    gains = evidence[order, 1] - (1 - evidence[order, 3])
    # silent on all at first; then one more is answered at each step
    totals = np.cumsum(gains)
    # equal doubts are answered together
    last = np.append(doubts[1:] != doubts[:-1], np.ones(min(1, len(doubts)), bool))
    totals, doubts = totals[last], doubts[last]
    if not len(totals) or totals.max() <= 0:
        below = np.nextafter(evidence[:, 2].min(initial=np.inf), -np.inf)
        return min(0.0, float(below))
    return float(doubts[int(totals.argmax())])


# of a threshold from the doubt beyond which there is none
_MARGIN = 0.01
# the doubt of a context that holds no span
_NO_SPAN = 1e9


def kept_threshold(evidence: Evidence) -> float:
    """Return a threshold that decides as the best one does, and lies between the doubts.

    The best one is a doubt itself; rounding, which depends on processor and precision, would decide
    whether that question is answered. So it lies midway to the next one.
    """
    best, doubts = best_threshold(evidence), evidence[:, 2]
    if best < doubts.min():
        return float(min(best, doubts.min() - _MARGIN))
    above = doubts[(doubts > best) & (doubts < _NO_SPAN)]
    return float(best + above.min()) / 2 if len(above) else float(best) + _MARGIN


def _evidence(rows: Sequence[Question], answers: Sequence[Any], labels: Labels) -> Evidence:
    """Return exact match and F1 of the best answers, their doubts, and whether there is an answer.

    By the rules of SQuAD 1.1, or of 2.0 where some questions have no answer, before any threshold.
    """
    score = score_v1 if all(row.answers for row in rows) else score_v2
    evidence = []
    for row, answer in zip(rows, answers, strict=True):
        exact, f1 = score([gold.text for gold in row.answers], answer.text)
        evidence.append((exact, f1, min(answer.doubt, _NO_SPAN), float(bool(row.answers))))
    return np.array(evidence, np.float64)


def _tune(evidence: Evidence, target_accuracy: float | None = None) -> Tuned:
    """Return the threshold with the best F1, or none where all questions have answers."""
    return UNTUNED if evidence[:, 3].all() else Tuned(no_answer=kept_threshold(evidence))


def _scoring(labels: Labels, tuned: Tuned) -> Scoring:
    """Return F1 and exact match at the threshold, and with one F1 at 0 too."""
    threshold = math.inf if tuned.no_answer is None else tuned.no_answer
    scoring: Scoring = {
        "f1": lambda evidence: float(with_threshold(evidence, threshold).mean(0)[1]),
        "exact_match": lambda evidence: float(with_threshold(evidence, threshold).mean(0)[0]),
    }
    if threshold < math.inf:
        scoring["f1_at_0"] = lambda evidence: float(with_threshold(evidence, 0.0)[:, 1].mean())
    return scoring


def _right(evidence: Evidence, tuned: Tuned) -> Right:
    """Return the questions answered exactly, at the threshold if there is one."""
    threshold = math.inf if tuned.no_answer is None else tuned.no_answer
    return with_threshold(evidence, threshold)[:, 0] > 0


def _notes(evidence: Evidence, tuned: Tuned) -> list[str]:
    """Return the threshold, where there is one, and its effect on questions of both kinds."""
    best = best_threshold(evidence)
    threshold = _tune(evidence).no_answer if tuned == UNTUNED else tuned.no_answer
    if threshold is None:
        return []
    f1, possible = with_threshold(evidence, threshold)[:, 1], evidence[:, 3] > 0
    kinds = ((possible, "with an answer"), (~possible, "without"))
    parts = [
        f"{100 * f1[these].mean():.2f} % of {counted(int(these.sum()), 'question')} {kind}"
        for these, kind in kinds
        if these.any()
    ]
    origin = "tuned on these very questions (a model trained with them keeps it)"
    if tuned != UNTUNED:
        at_best = 100 * with_threshold(evidence, best)[:, 1].mean()
        origin = f"the model's own; F1 {at_best:.2f} % at {best:.4f}, the best for these"
    return [
        f"no answer is given where the doubt exceeds {threshold:.4f}, {origin}; "
        f"F1 {', '.join(parts)}"
    ]


def _constant(rows: Sequence[Question], answers: Sequence[Any]) -> bool:
    """Return whether all answers are one text."""
    return len({answer.text for answer in answers}) == 1


# presentation

_BEFORE = 20
"""Characters of a context that are shown before an answer."""


def _lines(row: Question, record: Record, labels: Labels, brief: Brief) -> Iterator[str]:
    """Yield the question, and below it the answer."""
    yield brief(row.question)
    yield f"    {record['probability']:.3f}  {brief(record['answer'])}"


def _inputs(row: Question) -> dict[str, Any]:
    """Return id and question; the caller knows the context."""
    return {"id": row.id, "question": row.question}


def _parts(row: Question) -> dict[str, str]:
    """Return the question, the context from shortly before the answer, and the answer."""
    begin = max(row.answers[0].start - _BEFORE, 0) if row.answers else 0
    context = "..." * (begin > 0) + row.context[begin:]
    answer = row.answers[0].text if row.answers else "(none)"
    return {"question": row.question, "context": context, "answer": answer}


def _truth(row: Question) -> str:
    """Return the first answer."""
    return row.answers[0].text if row.answers else "-"


def _prediction(record: Record) -> str:
    return str(record["answer"])


# questions of one context follow one another, and a long one is kept once
_folded = lru_cache(maxsize=1)(folded)


def _identity(row: Question) -> Hashable:
    """Return the context, whose questions stay on one side of a split."""
    return _folded(row.context)


def _articles(rows: Sequence[Question]) -> list[Hashable]:
    """Return the title of each question's article, whose contexts are about the same.

    Where it has none, or all have one title in common, its context.
    """
    several = len({row.title for row in rows}) > 1
    return [row.title if several and row.title else _identity(row) for row in rows]


def _describe(rows: Sequence[Question], labels: Labels) -> str:
    """Return the numbers of contexts, and of questions without an answer."""
    contexts = len({row.context for row in rows})
    none = sum(not row.answers for row in rows)
    return counted(contexts, "context") + (f", {none:,} without an answer" if none else "")


SPAN = Task(
    name="span",
    title="Question answering",
    unit="questions",
    head="span",
    reader=Reader(
        labelled=partial(_read, labelled=True),
        measured=partial(_read, labelled=True, located=False),
        unlabelled=partial(_read, labelled=False),
        characters=_characters,
        layout=_layout,
        row_a_record=_row_a_record,
    ),
    labels=Labelling(names=_names),
    # the questions of a context
    identity=_identity,
    clusters=_articles,
    question_key=attrgetter("question", "context"),
    answers=Answers(
        encode=encode_questions,
        outputs=span_logits,
        decode=_decode,
        record=_record,
        keys=_keys,
        windowed=True,
        unread=_unread,
        thresholds=("no_answer",),
    ),
    learning=Learning(targets=_targets, objective=_objective, longest=384, lengthens=False),
    measuring=Measuring(
        evidence=_evidence,
        scoring=_scoring,
        constant=_constant,
        tune=_tune,
        right=_right,
        notes=_notes,
    ),
    present=Presentation(
        lines=_lines,
        inputs=_inputs,
        truth=_truth,
        prediction=_prediction,
        describe=_describe,
        parts=_parts,
    ),
)
"""Answers are the best spans of each context, and the doubt that there is one.

Where some questions have no answer, a threshold for the doubt is tuned on the very rows that are
scored, as the official script does; the model keeps it.
"""
