"""The answers of models over HTTP: a handler for each kind of task.

Inputs become examples, answers plain JSON values. Spans are characters of the text as it was sent,
whose white space models read as single spaces.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from bertsmith.batches.examples import EncodedExamples, encode_rows
from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.engine.answers import Forward, next_sentence_probabilities, probability_of
from bertsmith.engine.features import ReadText, TextFeatures
from bertsmith.engine.language_model.fill_mask import Fillings, MaskFilling
from bertsmith.engine.predictor import Predictor, Request, join_requests, text_length
from bertsmith.network.config import Conformal
from bertsmith.network.model import Model
from bertsmith.serving.messages import MASK, Input, Kind, Outcome
from bertsmith.tasks.answering import TaskAnswering
from bertsmith.tasks.confidence import set_threshold
from bertsmith.tasks.tag import TagAnswer, raw_text
from bertsmith.tasks.task import Record
from bertsmith.text.examples.example import Example
from bertsmith.text.examples.formats.choices import Choice, with_question
from bertsmith.text.examples.formats.squad import Question
from bertsmith.text.white_space import tidy, tidy_places
from bertsmith.tokens.tokenizer import Tokenizer

MAX_CANDIDATES = 100
_SOURCE = "request"


@dataclass(frozen=True, kw_only=True)
class TaskHandler:
    """One thing that a model does: `example` and `present` stand before and after the engine.

    `limit` is the number of tokens that may be read of a text, in windows where `windowed`.
    """

    predictor: Predictor[Any, Any]
    example: Callable[[Input], Any]
    present: Callable[[Any, Input], Any]
    tokenizer: Tokenizer
    limit: int
    windowed: bool = False

    def encode(self, request_input: Input, number: int) -> tuple[Request[Any], bool] | Outcome:
        """Return an input as a request, and whether it was truncated; or what is wrong with it."""
        try:
            example = self.example(request_input)
            (request,) = self.predictor.encode([example])
            excess = self._excess(example, request)
            if excess and not request_input.truncate:
                message = self._too_long(request, excess)
                return Outcome(number, problem="too_long", message=message, tokens=excess)
            if isinstance(self.predictor.answering, ServedFilling):
                self.predictor.answering.check_read(request.encoded)
            while self.windowed and request.tokens > self.limit:
                shorter = self._shortened(example, request)
                if shorter == example:
                    break
                example = shorter
                (request,) = self.predictor.encode([example])
        except ExampleError as error:
            return Outcome(number, problem="invalid", message=f"{error.problem}; {error.remedy}")
        return request, excess > 0

    def _too_long(self, request: Request[Any], excess: int) -> str:
        answering, unread = self.predictor.answering, ""
        if isinstance(answering, TaskAnswering) and request.tokens <= self.limit:
            unread = answering.task.answers.unread(next(iter(request.encoded.sidecar), None))
        problem = f"the input has {excess:,} tokens, and the model reads {self.limit:,}"
        remedy = '"truncate": true reads its beginning'
        if isinstance(answering, ServedFilling):
            try:
                answering.check_read(request.encoded)
            except ExampleError as error:
                # truncated, it would be refused as well
                remedy = f"{error.problem}; {error.remedy}"
        return f"{unread or problem}; {remedy}"

    def _excess(self, example: Any, request: Request[Any]) -> int:  # noqa: ANN401
        """Return the tokens of an input of which not all are read; 0 of others."""
        if self.windowed and request.tokens > self.limit:
            return request.tokens
        sidecar = next(iter(request.encoded.sidecar), None)
        if isinstance(sidecar, ReadText):
            return sidecar.tokens + sidecar.left_out if sidecar.left_out else 0
        if not request.encoded.cut.any():
            return 0
        return max(map(self._tokens, _sequences(example)))

    def _tokens(self, texts: Sequence[str]) -> int:
        pieces = sum(map(len, self.tokenizer.encode(texts)))
        return pieces + self.tokenizer.specials_around(pair=len(texts) > 1)

    def _shortened(self, example: Any, request: Request[Any]) -> Any:  # noqa: ANN401
        """Return an example with the beginning of its text, as much as may be read in windows."""
        name = "context" if isinstance(example, Question) else "text"
        if isinstance(example, Example) and len(example.text_pair or "") > len(example.text):
            name = "text_pair"
        text: str = getattr(example, name)
        encoded = self.tokenizer.encode_spans(text)
        # windows overlap: their tokens are more than those of the text
        count = max(int(len(encoded) * min(self.limit / request.tokens, 0.9)) - 1, 1)
        text = text[: int(encoded.ends[min(count, len(encoded)) - 1])]
        if name == "text" and not isinstance(example, Example):
            return raw_text(Example(text=text, text_pair=None, label=None, source=_SOURCE, line=1))
        return replace(example, **{name: text})

    def answers(self, numbered: Sequence[tuple[int, Input, Request[Any], bool]]) -> list[Outcome]:
        """Compute requests together and return their answers."""
        requests = [request for _, _, request, _ in numbered]
        answers = self.predictor.answer(requests)
        return [
            Outcome(
                number,
                answer=self.present(answer, request_input),
                tokens=request.tokens,
                truncated=truncated,
            )
            for (number, request_input, request, truncated), answer in zip(
                numbered, answers, strict=True
            )
        ]


def _sequences(example: Any) -> list[Sequence[str]]:  # noqa: ANN401
    """Return the texts of each sequence of an example that was too long."""
    match example:
        case Question():
            return [[example.question]]
        case Choice():
            return [[example.text, choice] for choice in example.choices]
        case Example(text_pair=str()):
            return [[example.text, example.text_pair or ""]]
        case _:
            return [[example.text]]


# examples


def text_of(request_input: Input, *, blank: bool = False, pairs: bool | None = None) -> Example:
    """Return a text or pair as an example; `pairs` says whether the model was trained on pairs.

    Raises `ExampleError` for a blank one, unless `blank`.
    """
    text = tidy(request_input.text)
    second = None if request_input.second is None else tidy(request_input.second)
    if not blank and (not text or second == ""):
        raise _wrong("a text is blank", "leave it out")
    if pairs is not None and (second is not None) != pairs:
        given, other = ("a single text", "pairs") if pairs else ("a pair of texts", "single texts")
        raise _wrong(f"the input is {given}", f"the model was trained on {other}")
    return Example(text=text, text_pair=second, label=None, source=_SOURCE, line=1)


def tagged_of(request_input: Input) -> Any:  # noqa: ANN401
    """Return a text whose words are to be tagged."""
    return raw_text(text_of(request_input, pairs=False))


def question_of(request_input: Input) -> Question:
    """Return a question about a context, which stays as it is."""
    if request_input.second is None:
        raise _wrong("the input is not a question with its context", "give question and context")
    if not tidy(request_input.text) or not tidy(request_input.second):
        raise _wrong("a text is blank", "leave it out")
    return Question(
        id="", question=tidy(request_input.text), context=request_input.second, answers=(),
        impossible=False, plausible=(), title="", source=_SOURCE, line=1,
    )  # fmt: skip


def choice_of(request_input: Input) -> Choice:
    """Return a text, or a question behind its context, with the options."""
    text, choices = tidy(request_input.text), tuple(map(tidy, request_input.choices or ()))
    context = None if request_input.second is None else tidy(request_input.second)
    if len(choices) < 2:
        raise _wrong("the input has fewer than two choices", "give text and choices")
    if not text or context == "" or not all(choices):
        raise _wrong("a text is blank", "leave it out")
    return Choice(
        text=text if context is None else with_question(context, text),
        choices=choices, label=None, id=None, source=_SOURCE, line=1, context=context,
    )  # fmt: skip


def calibrated(
    example: Callable[[Input], Any], conformal: Conformal | None, request_input: Input
) -> Any:  # noqa: ANN401
    """Return the example of an input; raises `ExampleError` where no sets as asked can be given."""
    if request_input.conformal is not None:
        try:
            set_threshold(conformal, request_input.conformal)
        except ConfigError as error:
            raise _wrong(error.problem.removeprefix("--"), error.remedy) from error
    return example(request_input)


def _wrong(problem: str, remedy: str) -> ExampleError:
    return ExampleError(problem, where=_SOURCE, line=1, remedy=remedy)


# answers of tasks


def present_for_task(
    answering: TaskAnswering,
    conformal: Conformal | None,
    answer: Any,  # noqa: ANN401
    request_input: Input,
) -> Any:  # noqa: ANN401
    """Return the answer of a task's head as it is sent."""
    top, tuned = len(answering.labels) or MAX_CANDIDATES, answering.tuned
    if request_input.conformal is not None:
        tuned = replace(tuned, set_threshold=set_threshold(conformal, request_input.conformal))
    record = answering.task.answers.record(
        answer, answering.labels, min(request_input.top or top, top), tuned
    )
    return _PRESENTED[answering.task.name](record, answer, request_input)


def present_logits(answer: Any, request_input: Input) -> Any:  # noqa: ANN401
    """Return the outputs of a head for each label, as they are."""
    return {"logits": answer.tolist()}


def _classes(record: Record, answer: Any, request_input: Input) -> Any:  # noqa: ANN401
    scores = _listed(record["probabilities"])
    sent = {"label": record["label"], "score": record["probability"], "scores": scores}
    return {**sent, **_set_of(record)}


def _set_of(record: Record) -> Record:
    """Return the prediction set, if requested."""
    return {name: record[name] for name in ("prediction_set",) if name in record}


def _multi_label(record: Record, answer: Any, request_input: Input) -> Any:  # noqa: ANN401
    return {"labels": record["labels"], "scores": _listed(record["probabilities"])}


def _listed(shares: dict[str, float]) -> list[dict[str, Any]]:
    return [{"label": label, "score": share} for label, share in shares.items()]


def _number(record: Record, answer: Any, request_input: Input) -> Any:  # noqa: ANN401
    return {"value": float(answer)}


def _relevance(record: Record, answer: Any, request_input: Input) -> Any:  # noqa: ANN401
    return {"score": probability_of(answer)}


def _choice(record: Record, answer: Any, request_input: Input) -> Any:  # noqa: ANN401
    return {"choice": record["choice"], "scores": record["probabilities"], **_set_of(record)}


def _span(record: Record, answer: Any, request_input: Input) -> Any:  # noqa: ANN401
    if not record["answer"]:
        return dict.fromkeys(("answer", "start", "end", "score"))
    return {
        "answer": record["answer"],
        "start": record["start"],
        "end": record["end"],
        "score": record["probability"],
    }


def _tags(record: Record, answer: Any, request_input: Input) -> Any:  # noqa: ANN401
    assert isinstance(answer, TagAnswer)
    if "entities" in record:
        results = [
            (entity["start"], entity["end"], entity["label"], entity["probability"])
            for entity in record["entities"]
        ]
    else:
        shares = answer.probabilities.tolist()
        words = zip(answer.row.words, answer.tags, shares, strict=True)
        results = [
            (start, end, tag, None if math.isnan(share) else round(share, 6))
            for (start, end), tag, share in words
            if tag is not None
        ]
    if answer.row.text == request_input.text:
        spans = [(start, end) for start, end, _, _ in results]
    else:
        places = tidy_places(request_input.text)
        spans = [(places[start], places[end - 1] + 1) for start, end, _, _ in results]
    entities = [
        {
            "start": start,
            "end": end,
            "label": label,
            "score": share,
            "text": request_input.text[start:end],
        }
        for (start, end), (_, _, label, share) in zip(spans, results, strict=True)
    ]
    return {"entities": entities}


_PRESENTED: dict[str, Callable[[Record, Any, Input], Any]] = {
    "classify": _classes,
    "multi-label": _multi_label,
    "regression": _number,
    "rank": _relevance,
    "choice": _choice,
    "tag": _tags,
    "span": _span,
}
KINDS: dict[str, Kind] = {
    "classify": "classes",
    "multi-label": "multi-label",
    "regression": "regression",
    "rank": "ranking",
    "choice": "choices",
    "tag": "tags",
    "span": "spans",
}
"""Names of tasks in requests."""
EXAMPLES: dict[Kind, Callable[[Input], Any]] = {
    "tags": tagged_of,
    "spans": question_of,
    "choices": choice_of,
}
"""The makers of examples for tasks whose rows are no texts or pairs."""

# masks, pairs and vectors


class ServedFilling(MaskFilling):
    """Fills the masks of a text, or of as much of it as the model reads."""

    def check(self, example: Example, encoded: EncodedExamples) -> None:
        """Leave it to `check_read`: of a text that is too long, its length is reported first."""

    def check_read(self, encoded: EncodedExamples) -> None:
        """Raise `ExampleError` for a text without a mask in what is read of it."""
        if np.any(encoded.ids[0] == self._tokenizer.mask_id):
            return
        if encoded.cut[0]:
            raise _wrong(f"no {MASK} in what is read of the text", "shorten what stands before it")
        raise _wrong(f"no {MASK} in the text", f"write {MASK} where a word is to be filled in")


def masked_of(tokenizer: Tokenizer, request_input: Input) -> Example:
    """Return a text with masks as the vocabulary writes them."""
    mask = tokenizer.vocabulary[tokenizer.mask_id]
    second = None if request_input.second is None else request_input.second.replace(MASK, mask)
    return text_of(
        request_input._replace(text=request_input.text.replace(MASK, mask), second=second)
    )


def present_fillings(tokenizer: Tokenizer, answer: Fillings, request_input: Input) -> Any:  # noqa: ANN401
    """Return the candidates for each mask, with the characters of the mask where these are known.

    They are where every mask is in the first text and was read.
    """
    mask = tokenizer.vocabulary[tokenizer.mask_id]
    pattern = "|".join(map(re.escape, {MASK, mask}))
    places = [match.span() for match in re.finditer(pattern, request_input.text)]
    # where both texts have some and are truncated, it is unknown which of them were read
    elsewhere = re.search(pattern, request_input.second or "") is not None
    known = len(places) >= len(answer.masks) and not elsewhere
    masks = []
    for number, candidates in enumerate(answer.masks):
        start, end = places[number] if known else (None, None)
        shown = [
            {
                "token": candidate.piece,
                "text": candidate.piece.removeprefix("##"),
                "score": round(candidate.probability, 6),
            }
            for candidate in candidates[: request_input.top]
        ]
        masks.append({"start": start, "end": end, "candidates": shown})
    return {"masks": masks}


class PairAnswering:
    """The answering by which a model judges whether a text follows another."""

    def __init__(self, tokenizer: Tokenizer, longest: int) -> None:
        self._tokenizer, self._longest = tokenizer, longest

    def characters(self, example: Example) -> int:
        """Return the length of a pair."""
        return text_length(example)

    def encode(self, examples: Sequence[Example]) -> EncodedExamples:
        """Encode pairs."""
        return encode_rows(self._tokenizer, examples, longest=self._longest)

    def outputs(
        self, model: Model, requests: Sequence[Request[Example]], forward: Forward
    ) -> list[float]:
        """Return the probability of each pair."""
        result: list[float] = next_sentence_probabilities(
            model, join_requests(requests), forward
        ).tolist()
        return result

    def decode(self, request: Request[Example], output: float) -> float:
        """Return the probability as it is."""
        del request
        return output


def present_score(answer: float, request_input: Input) -> Any:  # noqa: ANN401
    """Return a probability."""
    return {"score": round(answer, 6)}


def present_vector(answer: TextFeatures, request_input: Input) -> bytes:
    """Return the numbers of one vector or of several."""
    return answer.vectors.astype(np.float32).tobytes()


pair_of = partial(text_of, pairs=True)
blank_text_of = partial(text_of, blank=True)
