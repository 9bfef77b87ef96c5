"""The answers to be explained: what a model says of one sequence, as a number.

A `Subject` is a sequence with its words and a `Target`, the logit of the answer. A target reads any
number of copies of the sequence in one batch, whose tokens or embeddings may have been changed, but
not their number: so positions stay what they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.batches.truncation import (
    Ids,
    Segments,
    encode_pair,
    fitted,
    fitting_lengths,
    second_begins,
)
from bertsmith.core.errors import ConfigError, NonFiniteOutputs
from bertsmith.engine.answers import Candidate, candidates, finite
from bertsmith.network.batch import Batch, pack
from bertsmith.network.encoded import Encoded
from bertsmith.network.heads import pooled_tokens
from bertsmith.network.model import Model, forward_only
from bertsmith.tasks.span import encode_questions, trimmed
from bertsmith.tasks.tag import divided_tag, join_entities
from bertsmith.tasks.task import UNTUNED, ReadingLimits, Task
from bertsmith.tasks.word_windows import encode_text, first_pieces
from bertsmith.text.examples.example import Example
from bertsmith.text.examples.tagged import entity_spans, names_entities, words_of
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import Encoding

Positions = NDArray[np.int64]


class Target(Protocol):
    """The answer of a model to copies of one sequence."""

    @property
    def positions(self) -> Sequence[int]:
        """The tokens that the head reads."""
        ...

    def values(self, model: Model, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the logit of the answer for each copy, (copies,)."""
        ...

    def answers(self, model: Model, encoded: Encoded, batch: Batch) -> list[Any]:
        """Return the model's answer to each copy."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """A word of a text, and the tokens that it stands for in the sequence, (pieces,).

    `second` is true in the second text of a pair; `in_answer` if the answer consists of the word;
    `glued` if it follows the one before without a blank.
    """

    text: str
    positions: Positions
    second: bool = False
    in_answer: bool = False
    glued: bool = False


@dataclass(frozen=True, kw_only=True)
class Subject:
    """An answer to be explained: `ids` and `segments` are (length,)."""

    ids: Ids
    segments: Segments
    words: tuple[Word, ...]
    target: Target
    answer: str
    """The answer in words."""
    cut: bool
    """True if the model read less than the whole text."""
    withheld: bool = False
    """True if a threshold keeps the model from giving this answer."""

    def copies(self, ids: Sequence[Ids]) -> Batch:
        """Return a batch of sequences of this length."""
        return pack(ids, [self.segments] * len(ids))


@dataclass(frozen=True, kw_only=True)
class ClassTarget:
    """The logit of a class, or of a label among several, or a number."""

    label: int
    several: bool
    positions: tuple[int, ...]

    def values(self, model: Model, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the logit of the class for each copy."""
        return model.classify(encoded, batch)[:, self.label]

    def answers(self, model: Model, encoded: Encoded, batch: Batch) -> list[Any]:
        """Return the likeliest class of each copy; among several labels, whether it has this."""
        logits = model.classify(encoded, batch)
        if self.several:
            return (logits[:, self.label] > 0).tolist()
        return logits.argmax(1).tolist()


@dataclass(frozen=True, kw_only=True)
class TagTarget:
    """The logit of a tag at the first piece of a word."""

    label: int
    place: int

    @property
    def positions(self) -> tuple[int, ...]:
        """The word's first piece."""
        return (self.place,)

    def _logits(self, model: Model, encoded: Encoded, batch: Batch) -> Tensor:
        return model.tag(encoded.last[batch.starts + self.place])

    def values(self, model: Model, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the logit of the tag for each copy."""
        return self._logits(model, encoded, batch)[:, self.label]

    def answers(self, model: Model, encoded: Encoded, batch: Batch) -> list[Any]:
        """Return the likeliest tag of the word in each copy."""
        return self._logits(model, encoded, batch).argmax(1).tolist()


@dataclass(frozen=True, kw_only=True)
class SpanTarget:
    """The score of a span: the logits of its beginning and of its end, added up."""

    first: int
    last: int
    text: str
    context: Encoding
    """The pieces of the text."""
    offset: int
    """The place of the first token of the context."""
    tokens: int
    """The tokens of the context in the sequence."""

    @property
    def positions(self) -> tuple[int, ...]:
        """The first and the last token of the span."""
        return (self.first, self.last)

    def values(self, model: Model, encoded: Encoded, batch: Batch) -> Tensor:
        """Return the score of the span for each copy."""
        logits = model.span(encoded.last)
        return logits[batch.starts + self.first, 0] + logits[batch.starts + self.last, 1]

    def answers(self, model: Model, encoded: Encoded, batch: Batch) -> list[Any]:
        """Return the best span of each copy, as positions of its first and last token."""
        logits = model.span(encoded.last).float().cpu().numpy()
        return [
            self.best(logits[start : start + length])
            for start, length in zip(batch.starts.tolist(), batch.lengths, strict=True)
        ]

    def best(self, logits: NDArray[np.float32]) -> tuple[int, int] | None:
        """Return the best span of a sequence with these logits, (length, 2), that is not blank."""
        inner = logits[self.offset : self.offset + self.tokens]
        for span in candidates(inner, 0, np.ones(len(inner), bool)):
            start, end = trimmed(self.text, self.context, span)
            if start < end:
                return self.offset + span.first, self.offset + span.last
        return None


def subjects_of(
    task: Task[Any],
    model: Model,
    tokenizer: Tokenizer,
    row: Any,  # noqa: ANN401
    limits: ReadingLimits,
) -> Iterator[Subject]:
    """Yield the answers to a row that can be explained; of tags one for each entity or word.

    Of long texts the part is read that the room says, the beginning instead of windows, and of a
    long context its first window. Raises `ConfigError` for a task whose answers have no explanation
    here, `NonFiniteOutputs` for a row without an answer.
    """
    explained = {"tag": _tag_subjects, "span": _span_subjects}
    if isinstance(row, Example) and model.config.head == "classify":
        subjects = _class_subjects(task, model, tokenizer, row, limits)
    elif task.name in explained:
        subjects = explained[task.name](model, tokenizer, row, limits)
    else:
        raise ConfigError(
            f"answers of a model for {task.title.lower()} are not explained",
            remedy="name a model of classes, numbers, tags or spans",
        )
    try:
        yield from subjects
    except NonFiniteOutputs:
        raise NonFiniteOutputs(where=row.source, line=row.line) from None


def run(model: Model, subject: Subject, ids: Sequence[Ids]) -> tuple[Encoded, Batch]:
    """Return the hidden states of sequences of the subject's length, without gradients."""
    return _read(model, subject.copies(ids))


def _read(model: Model, batch: Batch) -> tuple[Encoded, Batch]:
    batch = batch.to(model.device)
    with forward_only(model, "fp32"):
        encoded = model.encoder(batch)
    finite(encoded.last)
    return encoded, batch


def _words(
    text: str,
    encoded: Encoding,
    offset: int,
    pieces: Positions,
    *,
    spans: Sequence[tuple[int, int]] | None = None,
    second: bool = False,
) -> list[Word]:
    """Return the words of a text some of whose `pieces`, by number, stand from `offset`.

    A piece belongs to the word, of the `spans` given, in which its last character is, or to the
    next where that is a blank. Without `spans`, words that one piece covers are one word: in a
    script without blanks each character would be one.
    """
    spans = _with_whole_pieces(words_of(text), encoded) if spans is None else spans
    ends = np.array([end for _, end in spans], np.int64)
    owner = np.searchsorted(ends, encoded.ends[pieces] - 1, side="right")
    owner = np.minimum(owner, len(spans) - 1)
    positions = np.arange(len(pieces)) + offset
    return [
        Word(
            text=text[start:end],
            positions=positions[owner == number],
            second=second,
            glued=number > 0 and start == spans[number - 1][1],
        )
        for number, (start, end) in enumerate(spans)
    ]


def _with_whole_pieces(
    spans: Sequence[tuple[int, int]], encoded: Encoding
) -> Sequence[tuple[int, int]]:
    """Return spans of words, those joined that touch each other within a piece."""
    if not len(encoded):
        return spans
    whole: list[tuple[int, int]] = []
    for start, end in spans:
        before = int(np.searchsorted(encoded.starts, start)) - 1
        if whole and whole[-1][1] == start and before >= 0 and encoded.ends[before] > start:
            whole[-1] = (whole[-1][0], end)
        else:
            whole.append((start, end))
    return whole


def text_of_words(words: Iterable[Word]) -> str:
    """Return words as a text to be shown, with blanks where the text has them."""
    return "".join(word.text if word.glued else f" {word.text}" for word in words).lstrip(" ")


def _class_subjects(
    task: Task[Any], model: Model, tokenizer: Tokenizer, row: Example, limits: ReadingLimits
) -> Iterator[Subject]:
    """Yield the likeliest class of a text or pair, or its number."""
    texts = [row.text] if row.text_pair is None else [row.text, row.text_pair]
    encoded = [tokenizer.encode_spans(text) for text in texts]
    ids, segments = _fitted(tokenizer, [encoding.ids for encoding in encoded], limits)
    # the numbers of the pieces are cut as the pieces are
    numbers, _ = _fitted(tokenizer, [np.arange(len(encoding)) for encoding in encoded], limits)
    second = len(encoded[1]) if len(encoded) > 1 else None
    counts = fitting_lengths(tokenizer, len(encoded[0]), second, longest=limits.longest)
    offsets = (len(tokenizer.begin), second_begins(tokenizer, counts[0]))
    words: list[Word] = []
    for side, (text, encoding) in enumerate(zip(texts, encoded, strict=True)):
        begin = offsets[side]
        read = numbers[begin : begin + counts[side]].astype(np.int64)
        words += _words(text, encoding, begin, read, second=side == 1)
    positions, several = _pooled(model, len(ids)), task.name == "multi-label"
    hidden, batch = _read(model, pack([ids], [segments]))
    with forward_only(model, "fp32"):
        logits = finite(model.classify(hidden, batch))[0].tolist()
    labels = model.config.labels
    for label in _predicted_outputs(logits, several=several):
        shown = labels[label]
        if task.name in _NUMBERS:
            # as it is predicted: of a relevance the probability
            record = task.answers.record(logits[label], labels, 1, UNTUNED)
            shown += f" {task.present.prediction(record)}"
        yield Subject(
            ids=ids,
            segments=segments,
            words=tuple(words),
            target=ClassTarget(label=label, several=several, positions=positions),
            answer=shown,
            cut=sum(counts) < sum(map(len, encoded)),
        )


def _fitted(
    tokenizer: Tokenizer, texts: Sequence[NDArray[np.integer]], limits: ReadingLimits
) -> tuple[Ids, Segments]:
    """Return the sequence of a text or pair, of a text in windows its beginning."""
    fit = "head" if limits.long == "windows" else limits.long
    second = texts[1] if len(texts) > 1 else None
    result = fitted(tokenizer, texts[0], second, longest=limits.longest, fit=fit)
    return result.sequences[0]


def _pooled(model: Model, length: int) -> tuple[int, ...]:
    """Return the positions of a sequence that the pooler reads."""
    pooled = model.config.encoder.pooled
    if pooled == "mean":
        return tuple(range(length))
    return tuple(pooled_tokens(pooled, torch.tensor([0, length])).tolist())


_NUMBERS = ("regression", "rank")


def _predicted_outputs(logits: Sequence[float], *, several: bool) -> list[int]:
    """Return the outputs that are the answer: all labels above one half, or the highest."""
    best = int(np.argmax(logits))
    positive = [number for number, logit in enumerate(logits) if several and logit > 0]
    return positive or [best]


def _mark_answer(words: Sequence[Word], answer_positions: Positions) -> tuple[Word, ...]:
    """Return words, of which those at `answer_positions` are the answer's."""
    return tuple(
        replace(word, in_answer=bool(np.isin(word.positions, answer_positions).any()))
        for word in words
    )


def _tag_subjects(
    model: Model,
    tokenizer: Tokenizer,
    row: Any,  # noqa: ANN401
    limits: ReadingLimits,
) -> Iterator[Subject]:
    """Yield the tag of each word that is the first of an entity, as in the answer of a model.

    Where tags name no entities, yield each other than O.
    """
    encoded = encode_text(tokenizer, row)
    before = len(tokenizer.begin)
    count = min(len(encoded), limits.longest - tokenizer.specials_around(pair=False))
    ids, segments = encode_pair(tokenizer, encoded.ids, None, longest=limits.longest)
    words = _words(row.text, encoded, before, np.arange(count), spans=row.words)
    hidden, _ = _read(model, pack([ids], [segments]))
    labels = model.config.labels
    with forward_only(model, "fp32"):
        numbers = finite(model.tag(hidden.last)).argmax(1).tolist()
    first, inside = first_pieces(encoded, row)
    asked = np.flatnonzero((first >= 0) & (first < count)).tolist()
    tags = ["O"] * len(words)
    for word in asked:
        tags[word] = labels[numbers[before + int(first[word])]]
    for word in inside:
        tags[word - 1 : word + 1] = divided_tag(tags[word - 1])
    if names_entities(labels):
        join_entities(tags, sorted((*asked, *inside)), labels)
    begins = {begin for begin, _, _ in entity_spans(tags)}
    if not names_entities(labels):
        begins = {word for word in asked if tags[word] != "O"}
    for word in asked:
        if word not in begins:
            continue
        place = before + int(first[word])
        yield Subject(
            ids=ids,
            segments=segments,
            words=_mark_answer(words, np.append(words[word].positions, place)),
            target=TagTarget(label=numbers[place], place=place),
            answer=f"{tags[word]}: {words[word].text}",
            cut=count < len(encoded),
        )


def _span_subjects(
    model: Model,
    tokenizer: Tokenizer,
    row: Any,  # noqa: ANN401
    limits: ReadingLimits,
) -> Iterator[Subject]:
    """Yield the best span of the first window of a question's context, if it has a token."""
    encoded = encode_questions(tokenizer, [row], limits)
    windows, ids, segments = encoded.sidecar[0], encoded.ids[0], encoded.segments[0]
    context, offset, tokens = windows.context, windows.offset, len(windows.own[0])
    if not tokens:
        return
    question = tokenizer.encode_spans(row.question)
    question_offset = offset - second_begins(tokenizer, 0)
    words = _words(row.question, question, len(tokenizer.begin), np.arange(question_offset))
    begin = windows.begins[0]
    words += _words(row.context, context, offset, np.arange(begin, begin + tokens), second=True)
    target = SpanTarget(
        first=0, last=0, text=row.context, context=context, offset=offset, tokens=tokens
    )
    hidden, batch = _read(model, pack([ids], [segments]))
    with forward_only(model, "fp32"):
        (best,) = target.answers(model, hidden, batch)
    if best is None:
        return
    first, last = best
    start, end = trimmed(row.context, context, Candidate(first - offset, last - offset, 0.0))
    # the blank before the next word may be its last piece
    inner = context.starts[first - offset : last - offset + 1] < end
    yield Subject(
        ids=ids,
        segments=segments,
        words=_mark_answer(words, first + np.flatnonzero(inner)),
        target=replace(target, first=first, last=last),
        answer=row.context[start:end],
        cut=len(encoded) > 1,
    )
