"""The ways an opened model answers: by its task, by its pre-training heads, or by continuing texts.

Each of these is an `Answering` of the engine whose answers have two forms besides: `record`, plain
JSON values, the same in the Python API, in CSV and in JSON lines; and `lines` for people.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from bertsmith.batches.examples import EncodedExamples, encode_rows
from bertsmith.core.errors import ConfigError, ExampleError, ModelFolderError
from bertsmith.core.log import say
from bertsmith.core.printable import count_with_verb, counted, to_millionths
from bertsmith.engine.answers import Forward, next_sentence_probabilities
from bertsmith.engine.config import ContinuationConfig, FillingConfig
from bertsmith.engine.language_model.continuation import Continuation, TextContinuation
from bertsmith.engine.language_model.fill_mask import Fillings, MaskFilling
from bertsmith.engine.language_model.words import Filling
from bertsmith.engine.predictor import (
    Answering,
    Predictor,
    Request,
    join_requests,
    split_by_request,
    split_requests,
    text_length,
)
from bertsmith.network.config import ModelConfig
from bertsmith.network.families.catalog import FAMILIES
from bertsmith.network.model import Model
from bertsmith.tasks.confidence import set_threshold
from bertsmith.tasks.config import AnsweringConfig
from bertsmith.tasks.table import task_of
from bertsmith.tasks.task import (
    UNTUNED,
    Brief,
    Labels,
    Measured,
    ReadingLimits,
    Record,
    Task,
    Tuned,
    check_windows,
    score_answers,
)
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer

R = TypeVar("R")


class Presented(Answering[R, Any], Protocol[R]):
    """An answering whose answers can be shown."""

    @property
    def keys(self) -> Sequence[str]:
        """The keys of a record, also of a blank row's; a pair's may differ from a text's."""
        ...

    def record(self, answer: Any) -> Record:  # noqa: ANN401
        """Return an answer as plain JSON values."""
        ...

    def lines(self, row: R, record: Record, brief: Brief) -> Iterator[str]:
        """Yield an example and its answer for people to read."""
        ...


@dataclass(frozen=True, kw_only=True)
class TaskAnswering:
    """The answering of a model with a head for a task."""

    task: Task[Any]
    tokenizer: Tokenizer
    labels: Labels
    limits: ReadingLimits
    tuned: Tuned = UNTUNED
    top: int = 5

    def __repr__(self) -> str:
        labels = f", {counted(len(self.labels), 'label')}" if self.labels else ""
        return f"<TaskAnswering: {self.task.name}{labels}>"

    def characters(self, example: Any) -> int:  # noqa: ANN401
        """Return the length of a row's texts."""
        return self.task.reader.characters(example)

    def encode(self, examples: Sequence[Any]) -> EncodedExamples:
        """Encode rows as in training, without labels."""
        return self.task.answers.encode(self.tokenizer, examples, self.limits)

    def outputs(
        self, model: Model, requests: Sequence[Request[Any]], forward: Forward
    ) -> Sequence[Any]:
        """Return the outputs of the head for the units of each row."""
        outputs = self.task.answers.outputs(model, join_requests(requests), forward)
        return split_by_request(requests, outputs)

    def decode(self, request: Request[Any], output: Any) -> Any:  # noqa: ANN401
        """Return the answer to a row."""
        sidecar = next(iter(request.encoded.sidecar), None)
        return self.task.answers.decode(request.example, sidecar, output, self.labels)

    def unread(self, requests: Iterable[Request[Any]]) -> list[str]:
        """Return for each row that is not read whole, windows included, where it is and why."""
        results = []
        for request in requests:
            if note := self.task.answers.unread(next(iter(request.encoded.sidecar), None)):
                row = request.example
                results.append(f"{Path(row.source).name}:{row.line}: {note}")
        return results

    @property
    def keys(self) -> Sequence[str]:
        """The keys of a record."""
        return self.task.answers.keys(self.labels, self.tuned)

    def record(self, answer: Any) -> Record:  # noqa: ANN401
        """Return an answer as plain JSON values."""
        return self.task.answers.record(answer, self.labels, self.top, self.tuned)

    def lines(self, row: Any, record: Record, brief: Brief) -> Iterator[str]:  # noqa: ANN401
        """Yield a row and its answer for people to read."""
        return self.task.present.lines(row, record, self.labels, brief)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pretrained:
    """The answer of a pre-trained model: to a pair, to masks, or to both."""

    share: float | None
    """The probability that the pair belongs so; None of what is no pair, or not asked."""
    fillings: Fillings | None


class PretrainedAnswering:
    """The answering of a pre-trained model: masks filled, or pairs judged."""

    def __init__(
        self, model: Model, tokenizer: Tokenizer, top: int, filling: FillingConfig | None = None
    ) -> None:
        """The options of filling are for texts with masks alone; raises `ConfigError`."""
        self._config, self._tokenizer = model.config, tokenizer
        self._mask = tokenizer.vocabulary[tokenizer.mask_id]
        self._how = filling or FillingConfig()
        self._filling = MaskFilling(model, tokenizer, top=top, config=filling)

    def characters(self, example: Example) -> int:
        """Return the length of a text or pair."""
        return text_length(example)

    def _is_pair_question(self, example: Example) -> bool:
        """Return whether the question is if the second text follows the first."""
        return self._config.next_sentence and example.text_pair is not None

    def _has_masks(self, example: Example) -> bool:
        """Return whether masks are to be filled: all that can be asked of what is no pair."""
        masked = self._mask in example.text or self._mask in (example.text_pair or "")
        return not self._is_pair_question(example) or (masked and self._config.masked_lm)

    def encode(self, examples: Sequence[Example]) -> EncodedExamples:
        """Encode pairs without masks, and texts with masks."""
        encoded = encode_rows(self._tokenizer, examples, longest=self._config.encoder.longest)
        for example, units in zip(examples, encoded.by_row(), strict=True):
            if not self._has_masks(example):
                continue
            if not self._config.masked_lm:
                raise ExampleError(
                    "is not a pair of texts, but this model can only predict whether one text "
                    "follows another",
                    where=example.source,
                    line=example.line,
                    remedy="write both texts, separated by a tab",
                )
            self._filling.check(example, units)
        return encoded

    def outputs(
        self, model: Model, requests: Sequence[Request[Example]], forward: Forward
    ) -> Sequence[Any]:
        """Return the probability of each pair, and the fillings of each text with masks."""
        pairs = [request for request in requests if self._is_pair_question(request.example)]
        masked = [request for request in requests if self._has_masks(request.example)]
        shares = iter(
            next_sentence_probabilities(model, join_requests(pairs), forward).tolist()
            if pairs
            else ()
        )
        filled = iter(self._filling.outputs(model, masked, forward) if masked else ())
        return [
            Pretrained(
                share=next(shares) if self._is_pair_question(request.example) else None,
                fillings=next(filled) if self._has_masks(request.example) else None,
            )
            for request in requests
        ]

    def decode(self, request: Request[Example], output: Pretrained) -> Pretrained:
        """Return the output as it is."""
        return output

    @property
    def keys(self) -> Sequence[str]:
        """The keys of the record of a text with masks, or of a pair where none are filled."""
        if self._config.masked_lm:
            return ("masks", "joint") if self._how.joint else ("masks",)
        return (self._pair_key, "probability")

    @property
    def _pair_key(self) -> str:
        ordered = FAMILIES[self._config.encoder.family].pairs == "sentence_order"
        return "in_order" if ordered else "is_next"

    def record(self, answer: Pretrained) -> Record:
        """Return whether the pair belongs so, and the fillings of each mask."""
        record: Record = {}
        if answer.fillings is not None:
            masks = answer.fillings.masks
            record["masks"] = [
                [self._filling_record(filling) for filling in mask] for mask in masks
            ]
            if (joint := answer.fillings.joint) is not None:
                record["joint"] = {
                    "fillings": [self._filling_record(filling) for filling in joint.words],
                    "order": [mask + 1 for mask in joint.order],
                    "probability": float(f"{joint.probability:.6g}"),
                }
        if answer.share is not None:
            record |= {self._pair_key: answer.share >= 0.5, "probability": round(answer.share, 6)}
        return record

    def _filling_record(self, filling: Filling) -> Record:
        """Return a piece, or a word whose score makes it comparable with words of other lengths."""
        if not (self._how.choices or self._how.most_pieces > 1):
            return {"piece": filling.piece, "probability": round(filling.probability, 6)}
        return {
            "word": filling.piece,
            "pieces": len(filling.ids),
            "probability": float(f"{filling.probability:.6g}"),
            "score": to_millionths(filling.score),
        }

    def lines(self, row: Example, record: Record, brief: Brief) -> Iterator[str]:
        """Yield the probability before a pair, and fillings below their text."""
        if "probability" in record:
            name = "is next" if "is_next" in record else "in order"
            texts = f"{row.text} | {row.text_pair}"
            yield f"{name} {record['probability']:.3f}  {brief(texts)}"
        else:
            yield brief(row.text)
        for mask in record.get("masks", ()):
            yield f"    {'  '.join(map(_filling_words, mask))}"
        if "joint" in record:
            joint = record["joint"]
            order = ", ".join(map(str, joint["order"]))
            words = "  ".join(map(_filling_words, joint["fillings"]))
            yield f"    together (in the order {order}): {words}"


def _filling_words(filling: Record) -> str:
    """Return a piece with its probability, or a word with its score too."""
    if "piece" in filling:
        return f"{filling['piece']} {filling['probability']:.3f}"
    return f"{filling['word']} {filling['probability']:.3g} ({filling['score']:z.2f})"


class ContinuationAnswering(TextContinuation):
    """The answering of a model that continues texts."""

    keys = ("continuation",)

    def record(self, answer: Continuation) -> Record:
        """Return the continuation of the text."""
        return {"continuation": answer.text}

    def lines(self, row: Example, record: Record, brief: Brief) -> Iterator[str]:
        """Yield the text, and below it what follows."""
        yield brief(row.text)
        yield f"    {brief(record['continuation'].strip())}"


def continues(config: ModelConfig) -> bool:
    """Return whether a model was pre-trained from left to right, and for no task since."""
    return config.predicts is None and config.masked_lm and config.encoder.causal


def answering_of(
    model: Model, tokenizer: Tokenizer, options: AnsweringConfig, *, where: str | Path
) -> Presented[Any]:
    """Return how the model of a folder, `where`, answers, by the heads that it has.

    Raises `ModelFolderError` for a model without a head or with several numbers, `ConfigError` for
    options that are not for its kind.
    """
    config = model.config
    if options.continuation is not None and not continues(config):
        raise ConfigError(
            "--max-new-tokens, --temperature and --seed are for a model that continues texts",
            remedy="leave them out",
        )
    fills = config.predicts is None and config.masked_lm and not continues(config)
    if options.filling is not None and not fills:
        raise ConfigError(
            "--choices, --most-pieces and --joint are for a model that fills masks",
            remedy="leave them out",
        )
    if config.predicts is not None:
        return _task_answering(config, tokenizer, options, where)
    _check_thresholds(options, (), "this model is not fine-tuned for a task")
    if (options.max_length, options.truncation, options.stride) != (None, None, None):
        raise ConfigError(
            "--max-length, --truncation and --stride are for a model fine-tuned for a task",
            remedy="leave them out",
        )
    if continues(config):
        how = options.continuation or ContinuationConfig()
        return ContinuationAnswering(model, tokenizer, how)
    if config.masked_lm or config.next_sentence:
        return PretrainedAnswering(model, tokenizer, options.top, options.filling)
    raise ModelFolderError(
        "has neither a head for a task nor a masked-LM head",
        where=where,
        remedy="fine-tune it first (bertsmith finetune MODEL TRAIN --out RUN), or ask for vectors "
        "(bertsmith embed MODEL TEXTS --out VECTORS.npy)",
    )


def _task_answering(
    config: ModelConfig, tokenizer: Tokenizer, options: AnsweringConfig, where: str | Path
) -> TaskAnswering:
    """Return how a model that is fine-tuned for a task answers."""
    if config.predicts == "number" and len(config.labels) > 1:
        raise ModelFolderError(
            f"has {len(config.labels)} numbers for a text; only one is supported",
            where=where,
            remedy="export it (bertsmith export MODEL --to onnx --out OUT), which keeps all",
        )
    task = task_of(config)
    check_windows(task, options.truncation, options.stride)
    return TaskAnswering(
        task=task,
        tokenizer=tokenizer,
        labels=config.labels,
        limits=ReadingLimits.of_model(
            config,
            longest=options.max_length,
            long=options.truncation,
            stride=options.stride,
            usual=tokenizer.longest,
        ),
        tuned=_thresholds(task, config, options),
        top=options.top,
    )


_FOR_CHOICES = "classes and choices"
# options of answering, what they are for, and the threshold of a task that they stand for
_THRESHOLD_OPTIONS = {
    "no_answer": ("a model that looks for answers in texts", "no_answer"),
    "min_confidence": (_FOR_CHOICES, "min_confidence"),
    "conformal": (_FOR_CHOICES, "min_confidence"),
}


def _check_thresholds(
    options: AnsweringConfig, thresholds: Collection[str], task_name: str
) -> None:
    """Raise `ConfigError` for an option that means nothing where there are only `thresholds`."""
    for name, (condition, threshold) in _THRESHOLD_OPTIONS.items():
        if getattr(options, name) is not None and threshold not in thresholds:
            option = f"--{name.replace('_', '-')}"
            raise ConfigError(
                f"{option} is for {condition}, and {task_name}", remedy="leave it out"
            )


def _thresholds(task: Task[Any], config: ModelConfig, options: AnsweringConfig) -> Tuned:
    """Return the model's thresholds, or the given ones; `ConfigError` if the task has none."""
    _check_thresholds(options, task.answers.thresholds, f"this is {task.title.lower()}")
    tuned, coverage = Tuned.of_model(config), options.conformal
    return Tuned(
        set_threshold=None if coverage is None else set_threshold(config.conformal, coverage),
        no_answer=tuned.no_answer if options.no_answer is None else options.no_answer,
        min_confidence=tuned.min_confidence
        if options.min_confidence is None
        else options.min_confidence,
    )


def task_predictor(
    task: Task[Any], model: Model, tokenizer: Tokenizer, limits: ReadingLimits
) -> Predictor[Any, Any]:
    """Return the predictor by which a network answers for a task."""
    labels = model.config.labels
    answering = TaskAnswering(task=task, tokenizer=tokenizer, labels=labels, limits=limits)
    return Predictor(model=model, answering=answering)


def print_unread(first: str, count: int) -> None:
    """Print that rows are not read whole: the note of the `first` of `count`."""
    say(first if count == 1 else f"{first} (the first of {count:,} such rows)")


def print_long_texts(answering: TaskAnswering, long: int, count: int) -> None:
    """Print that `long` of `count` texts exceed the limit, and what is read of them."""
    limits, windowed = answering.limits, answering.task.answers.windowed
    what = f"{count_with_verb(long, count, 'text')} longer than {limits.longest} tokens"
    say(f"{what}: {limits.treatment(windowed=windowed)}")


def measure(
    predictor: Predictor[Any, Any],
    rows: Sequence[Any],
    encoded: EncodedExamples,
    *,
    target_accuracy: float | None = None,
) -> Measured:
    """Ask a model for its answers to labelled rows, encoded by its answering, and score them."""
    answering = predictor.answering
    assert isinstance(answering, TaskAnswering)
    return score_answers(
        answering.task,
        rows,
        list(predictor.answer(split_requests(rows, encoded))),
        answering.labels,
        tuned=answering.tuned,
        target_accuracy=target_accuracy,
    )
