"""transformers' own example recipes (run_glue, run_ner, run_qa and run_swag without Trainer).

The same weights, rows, epochs, batch, rate, warm-up and dropout. "recipe" is as the examples are:
float32, rows in random order, padded to the longest of each batch (run_glue and run_qa would pad
all to 128 and 384, if they were not told otherwise). "best" adds what its users add for speed:
bfloat16 autocast, and batches of rows of about one length (its LengthGroupedSampler).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
    get_linear_schedule_with_warmup,
)
from transformers.tokenization_utils_base import PreTrainedTokenizerBase
from transformers.trainer_pt_utils import get_length_grouped_indices

from bertsmith.engine.answers import candidates
from bertsmith.tasks.span import Answer, SpanAnswer
from bertsmith.tasks.tag import TagAnswer
from bertsmith.tasks.task import score_answers
from finetuning.sides import Ended, Sample, Steps
from finetuning.tasks import Learned

_MAX_LENGTH, _SPAN_LONGEST, _SPAN_STRIDE = 128, 384, 128
Feature = dict[str, Any]


@dataclass(frozen=True)
class _Kind:
    """A task as the examples treat it: its model, its features, its answers."""

    model: type[Any]
    features: Callable[[PreTrainedTokenizerBase, Learned, Sequence[Any], bool], list[Feature]]
    answers: Callable[
        [Learned, Sequence[Any], list[Feature], list[np.ndarray[Any, Any]]], list[Any]
    ]


def train(
    learned: Learned, model: Path, seed: int, *, best: bool, sample: Sample | None = None
) -> Ended:
    """Fine-tune and measure; with a `sample`, only as much as tells the speed."""
    began = time.perf_counter()
    kind, settings = _KINDS[learned.data.task.head], learned.settings
    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(model)
    net = _model(kind, learned, model)
    features = kind.features(tokenizer, learned, learned.data.train, True)
    batches = -(-len(features) // settings.batch_size)
    total = settings.chosen_epochs * batches
    # fused, as the Trainer has it by default
    groups = _groups(net, settings.weight_decay)
    optimiser = torch.optim.AdamW(groups, lr=settings.chosen_learning_rate, fused=True)
    schedule = get_linear_schedule_with_warmup(optimiser, int(total * settings.warmup), total)
    timed = Steps(warm=sample.warm if sample else 0)
    opened = time.perf_counter()
    net.train()
    for epoch in range(settings.chosen_epochs):
        for chosen in _order(features, settings.batch_size, seed + epoch, grouped=best):
            if sample is not None and timed.steps >= sample.steps:
                break
            batch = _padded(tokenizer, [features[index] for index in chosen])
            with torch.autocast("cpu", torch.bfloat16, enabled=best):
                loss = net(**batch).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            optimiser.zero_grad()
            timed.count(int(batch["attention_mask"].sum()))
    trained = time.perf_counter()
    if sample is not None:
        some = learned.data.dev[: sample.rows]
        _scores(kind, replace(learned, data=replace(learned.data, dev=some)), tokenizer, net)
        answering = (time.perf_counter() - trained) * len(learned.data.dev) / len(some)
        tokens = settings.chosen_epochs * sum(map(_length, features))
        return sample.whole(timed.speed, opened - began, answering, tokens)
    scores = _scores(kind, learned, tokenizer, net)
    wall = time.perf_counter() - began
    if learned.test:
        found = _scores(kind, learned.tested, tokenizer, net)
        scores |= {f"test_{name}": value for name, value in found.items()}
    return Ended(
        scores=scores,
        training=trained - opened,
        wall=wall,
        processor=time.process_time(),
        tokens_per_second=timed.speed,
    )


def _model(kind: _Kind, learned: Learned, folder: Path) -> Any:  # noqa: ANN401
    task, labels = learned.data.task, learned.data.labels
    extra: dict[str, Any] = {}
    if task.head == "number":
        extra = {"num_labels": 1, "problem_type": "regression"}
    elif labels:
        extra = {"num_labels": len(labels)}
    return kind.model.from_pretrained(folder, attn_implementation="sdpa", **extra)


def _groups(net: torch.nn.Module, decay: float) -> list[dict[str, Any]]:
    plain = ("bias", "LayerNorm.weight")
    named = list(net.named_parameters())
    return [
        {"params": [p for n, p in named if not n.endswith(plain)], "weight_decay": decay},
        {"params": [p for n, p in named if n.endswith(plain)], "weight_decay": 0.0},
    ]


def _order(features: list[Feature], batch: int, seed: int, *, grouped: bool) -> Iterator[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    if grouped:
        lengths = [_length(feature) for feature in features]
        order = get_length_grouped_indices(lengths, batch, generator=generator)
    else:
        order = torch.randperm(len(features), generator=generator).tolist()
    for start in range(0, len(order), batch):
        yield order[start : start + batch]


def _length(feature: Feature) -> int:
    ids = feature["input_ids"]
    return sum(map(len, ids)) if isinstance(ids[0], list) else len(ids)


def _padded(tokenizer: PreTrainedTokenizerBase, features: list[Feature]) -> dict[str, torch.Tensor]:
    keys = ("input_ids", "token_type_ids", "attention_mask")
    several = isinstance(features[0]["input_ids"][0], list)
    flat = [
        dict(zip(keys, option, strict=True))
        for feature in features
        for option in (
            zip(*(feature[key] for key in keys), strict=True)
            if several
            else [tuple(feature[key] for key in keys)]
        )
    ]
    batch = dict(tokenizer.pad(flat, return_tensors="pt"))
    if several:
        batch = {
            key: value.view(len(features), -1, value.shape[-1]) for key, value in batch.items()
        }
    for key in ("labels", "start_positions", "end_positions"):
        if key in features[0]:
            values = [feature[key] for feature in features]
            if isinstance(values[0], list):
                width = batch["input_ids"].shape[1]
                values = [value + [-100] * (width - len(value)) for value in values]
            batch[key] = torch.tensor(values)
    return batch


@torch.no_grad()
def _scores(
    kind: _Kind,
    learned: Learned,
    tokenizer: PreTrainedTokenizerBase,
    net: Any,  # noqa: ANN401
) -> dict[str, float]:
    net.eval()
    data = learned.data
    features = kind.features(tokenizer, learned, data.dev, False)
    outputs: list[np.ndarray[Any, Any]] = []
    for start in range(0, len(features), 32):
        part = features[start : start + 32]
        found = net(**_padded(tokenizer, part))
        if "start_logits" in found:
            logits = torch.stack([found.start_logits, found.end_logits], -1)
        else:
            logits = found.logits
        outputs += [logit.float().numpy() for logit in logits]
    answers = kind.answers(learned, data.dev, features, outputs)
    return score_answers(data.task, data.dev, answers, data.labels).scores


def _texts(
    tokenizer: PreTrainedTokenizerBase, learned: Learned, rows: Sequence[Any], labelled: bool
) -> list[Feature]:
    second = None if rows[0].text_pair is None else [row.text_pair for row in rows]
    encoded = tokenizer([row.text for row in rows], second, truncation=True, max_length=_MAX_LENGTH)
    number = {label: index for index, label in enumerate(learned.data.labels)}
    features = [
        {key: encoded[key][place] for key in ("input_ids", "token_type_ids", "attention_mask")}
        for place in range(len(rows))
    ]
    for feature, row in zip(features, rows, strict=True):
        if labelled:
            numbers = learned.data.task.head == "number"
            feature["labels"] = float(row.number) if numbers else number[row.label]
    return features


def _text_answers(
    learned: Learned, rows: Sequence[Any], features: list[Feature], outputs: list[Any]
) -> list[Any]:
    del rows, features
    if learned.data.task.head == "number":
        return [float(output[0]) for output in outputs]
    return [np.exp(output - output.max()) for output in outputs]


def _words(
    tokenizer: PreTrainedTokenizerBase, learned: Learned, rows: Sequence[Any], labelled: bool
) -> list[Feature]:
    number = {label: index for index, label in enumerate(learned.data.labels)}
    features = []
    for row in rows:
        words = [row.text[start:end] for start, end in row.words]
        encoded = tokenizer(
            words, is_split_into_words=True, truncation=True, max_length=_MAX_LENGTH
        )
        owners = encoded.word_ids()
        first = [
            owner if owner is not None and owner != before else None
            for owner, before in zip(owners, [None, *owners], strict=False)
        ]
        feature = dict(encoded.data) | {"first": first}
        if labelled:
            feature["labels"] = [-100 if word is None else number[row.tags[word]] for word in first]
        features.append(feature)
    return features


def _word_answers(
    learned: Learned, rows: Sequence[Any], features: list[Feature], outputs: list[Any]
) -> list[Any]:
    answers = []
    for row, feature, output in zip(rows, features, outputs, strict=True):
        tags = ["O"] * len(row.words)
        for place, word in enumerate(feature["first"]):
            if word is not None:
                tags[word] = learned.data.labels[int(output[place].argmax())]
        answers.append(TagAnswer(row, tuple(tags), np.ones(len(tags), np.float32)))
    return answers


def _options(
    tokenizer: PreTrainedTokenizerBase,
    learned: Learned,
    rows: Sequence[Any],
    labelled: bool,
) -> list[Feature]:
    del learned
    features = []
    for row in rows:
        firsts = [row.text] * len(row.choices)
        encoded = tokenizer(firsts, list(row.choices), truncation=True, max_length=_MAX_LENGTH)
        features.append(dict(encoded.data) | ({"labels": row.label} if labelled else {}))
    return features


def _option_answers(
    learned: Learned, rows: Sequence[Any], features: list[Feature], outputs: list[Any]
) -> list[Any]:
    del learned, rows, features
    return list(outputs)


def _questions(
    tokenizer: PreTrainedTokenizerBase,
    learned: Learned,
    rows: Sequence[Any],
    labelled: bool,
) -> list[Feature]:
    del learned
    encoded = tokenizer(
        [row.question for row in rows],
        [row.context for row in rows],
        truncation="only_second",
        max_length=_SPAN_LONGEST,
        stride=_SPAN_STRIDE,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    features = []
    for place, number in enumerate(encoded["overflow_to_sample_mapping"]):
        sides = encoded.sequence_ids(place)
        offsets = encoded["offset_mapping"][place]
        context = [index for index, side in enumerate(sides) if side == 1]
        feature = {
            key: encoded[key][place] for key in ("input_ids", "token_type_ids", "attention_mask")
        } | {"row": number, "offsets": offsets, "context": context}
        if labelled:
            feature |= _positions(rows[number], offsets, context)
        features.append(feature)
    return features


def _positions(row: Any, offsets: Any, context: list[int]) -> Feature:  # noqa: ANN401
    start = row.answers[0].start
    end = start + len(row.answers[0].text)
    inside = [i for i in context if offsets[i][1] > start and offsets[i][0] < end]
    whole = inside and offsets[context[0]][0] <= start and offsets[context[-1]][1] >= end
    first, last = (inside[0], inside[-1]) if whole else (0, 0)
    return {"start_positions": first, "end_positions": last}


def _question_answers(
    learned: Learned, rows: Sequence[Any], features: list[Feature], outputs: list[Any]
) -> list[Any]:
    """The best span of all windows, as in the example's postprocess_qa_predictions."""
    del learned
    best: dict[int, tuple[float, str, int, int]] = {}
    for feature, output in zip(features, outputs, strict=True):
        context = feature["context"]
        part = output[context[0] : context[-1] + 1]
        for found in candidates(part, 0, np.ones(len(part), bool))[:1]:
            row = feature["row"]
            start = feature["offsets"][context[found.first]][0]
            end = feature["offsets"][context[found.last]][1]
            if row not in best or found.score > best[row][0]:
                best[row] = (found.score, rows[row].context[start:end], start, end)
    return [
        SpanAnswer((Answer(*best[number][1:], 1.0),) if number in best else (), 0.0)
        for number in range(len(rows))
    ]


_TEXT = _Kind(AutoModelForSequenceClassification, _texts, _text_answers)
_KINDS: dict[str, _Kind] = {
    "class": _TEXT,
    "number": _TEXT,
    "tags": _Kind(AutoModelForTokenClassification, _words, _word_answers),
    "choice": _Kind(AutoModelForMultipleChoice, _options, _option_answers),
    "span": _Kind(AutoModelForQuestionAnswering, _questions, _question_answers),
}
