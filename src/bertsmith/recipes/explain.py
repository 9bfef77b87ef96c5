"""Reasons for answers: the shares of words in them, shown, tested and written as a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from bertsmith.analysis.attributions.attribution import Attribution, Explainer, Method
from bertsmith.analysis.attributions.deletion import DeletionFigures, DeletionTest
from bertsmith.analysis.attributions.subjects import Subject, subjects_of
from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.core.log import Bar, progress, say, table_of
from bertsmith.core.output import print_json, print_line, print_table
from bertsmith.core.ownership import claimed_output
from bertsmith.core.printable import counted, model_name, printable, to_millionths
from bertsmith.engine.devices import device_named
from bertsmith.evaluation.metrics import percent
from bertsmith.hub.models import model_folder
from bertsmith.network.model import Model
from bertsmith.recipes.config import ExplainConfig, ExplainingConfig
from bertsmith.recipes.predict.evaluate import task_answering
from bertsmith.recipes.predict.recipe import asked_of, shown
from bertsmith.recipes.predict.rows import Asked
from bertsmith.reports.explanations import add_explanations
from bertsmith.reports.page import Report, require_matplotlib
from bertsmith.tasks.answering import TaskAnswering, answering_of
from bertsmith.tasks.config import AnsweringConfig
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model

_TOLD = 6


@dataclass
class Explained:
    """The answers that were explained, in order, and the test of their shares.

    `numbers` are those of the texts that they answer, from 0, blank ones counted.
    """

    answers: list[tuple[Subject, dict[Method, Attribution]]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    deletion: Mapping[Method, Sequence[DeletionFigures]] = field(default_factory=dict)
    texts: int = 0
    silent: int = 0
    cut: int = 0


def explain(config: ExplainConfig) -> dict[str, Any]:
    """Explain answers, print or write the shares of words, and return them as plain JSON values.

    Raises `ConfigError`, `ExampleError` and `ModelFolderError`.
    """
    if config.out is not None:
        require_matplotlib()
    with nullcontext() if config.out is None else claimed_output(config.out):
        return _explain(config)


def _explain(config: ExplainConfig) -> dict[str, Any]:
    """Explain, print and write the page."""
    place, how = device_named(config.device), config.explaining
    model, tokenizer = open_network(model_folder(config.model), place)
    answering = explaining_answering(model, tokenizer, how, where=config.model)
    reading, asked = asked_of(model.config, answering, config.file, config.reading)
    rows = islice(enumerate(asked), config.limit)
    with progress("explaining", None, "answers") as bar:
        explained = explain_rows(model, answering, rows, how, bar)
    if not explained.texts:
        raise ExampleError("holds no text", where=config.file, remedy="write one text a line")
    figures = explanation_figures(explained)
    if config.json:
        print_json(figures)
    else:
        _print(explained)
        if explained.deletion:
            print_table(table_of(_HEADER, _rows(explained.deletion)))
    _tell(explained, config, _part_read(answering))
    if config.out is not None:
        _page(config, explained).write(config.out)
        say(f"page: {config.out}")
    reading.bad_rows.tell()
    return figures


def open_network(folder: Path, device: torch.device) -> tuple[Model, Tokenizer]:
    """Return the model of a folder, whose gradients can be taken by the embeddings."""
    model, tokenizer = load_model(folder)
    return model.to(device).requires_grad_(False).eval(), tokenizer


def explaining_answering(
    model: Model, tokenizer: Tokenizer, how: ExplainingConfig, *, where: str | Path
) -> TaskAnswering:
    """Return how the model of a folder, `where`, answers.

    Raises `ModelFolderError` without a task's head, `ConfigError` for what cannot be tested.
    """
    options = AnsweringConfig(**how.length.to_dict())
    answering = task_answering(answering_of(model, tokenizer, options, where=where), where)
    task = answering.task
    if how.deletion and task.name in ("regression", "rank"):
        raise ConfigError(
            f"--deletion counts answers that change, and this is {task.title.lower()}",
            remedy="leave it out",
        )
    return answering


def explain_rows(
    model: Model,
    answering: TaskAnswering,
    rows: Iterable[tuple[int, Asked[Any]]],
    how: ExplainingConfig,
    bar: Bar | None = None,
) -> Explained:
    """Explain the answers to numbered rows, blank ones left out."""
    explainer = Explainer(
        model=model,
        inventory=answering.tokenizer,
        baseline=how.baseline,
        tolerance=how.tolerance,
    )
    test, explained = DeletionTest(explainer, seed=how.seed), Explained()
    for subject in _subjects(rows, answering, explainer, how.answers, explained):
        found = {method: explainer.attribute(subject, method) for method in how.methods}
        explained.answers.append((subject, found))
        if how.deletion:
            test.add(subject, {method: each.shares for method, each in found.items()})
        if bar is not None:
            bar.advance(1)
    return replace(explained, deletion=test.figures())


def _subjects(
    rows: Iterable[tuple[int, Asked[Any]]],
    answering: TaskAnswering,
    explainer: Explainer,
    most: int,
    explained: Explained,
) -> Iterator[Subject]:
    """Yield the answers to explain, at most so many a text, and count the texts."""
    for number, asked in rows:
        if (row := asked.row) is None:
            continue
        explained.texts += 1
        found = subjects_of(
            answering.task, explainer.model, answering.tokenizer, row, answering.room
        )
        none = True
        for subject in islice(found, most):
            explained.cut += none and subject.cut
            none = False
            explained.numbers.append(number)
            yield subject
        explained.silent += none


def _record(number: int, subject: Subject, found: Mapping[Method, Attribution]) -> dict[str, Any]:
    """Return an explanation as plain JSON values."""
    methods: dict[str, Any] = {}
    for method, each in found.items():
        methods[method] = {"shares": [to_millionths(float(share)) for share in each.shares]}
        if each.steps is not None:
            methods[method] |= {
                "difference": each.difference, "gap": each.gap, "steps": each.steps
            }  # fmt: skip
    return {
        "text": number,
        "answer": subject.answer,
        "words": [word.text for word in subject.words],
        "answer_words": [number for number, word in enumerate(subject.words) if word.own],
        "methods": methods,
    }


def explanation_figures(explained: Explained) -> dict[str, Any]:
    """Return explanations as plain JSON values."""
    answers = zip(explained.numbers, explained.answers, strict=True)
    return {
        "texts": explained.texts,
        "explanations": [_record(number, *each) for number, each in answers],
        "deletion": {
            method: [
                {
                    "words": each.words,
                    "answers": each.answers,
                    "top": each.top,
                    "random": each.random,
                    "difference": {"low": each.difference.low, "high": each.difference.high},
                }
                for each in rows
            ]
            for method, rows in explained.deletion.items()
        },
    }


def _print(explained: Explained) -> None:
    """Print each answer with the words that have the largest shares."""
    for subject, found in explained.answers:
        print_line(f"{printable(subject.answer)}  {shown(' '.join(w.text for w in subject.words))}")
        for method, each in found.items():
            order = sorted(range(len(each.shares)), key=lambda n: -abs(each.shares[n]))[:_TOLD]
            words = (f"{printable(subject.words[n].text)} {each.shares[n]:+z.3f}" for n in order)
            print_line(f"    {method}: {'  '.join(words)}")


_HEADER = ("method", "words removed", "answers", "top words", "random words", "difference, 95 %")


def _rows(deletion: Mapping[Method, Sequence[DeletionFigures]]) -> Iterator[tuple[str, ...]]:
    for method, rows in deletion.items():
        for each in rows:
            low, high = percent(each.difference.low), percent(each.difference.high)
            yield (
                *(method, str(each.words), f"{each.answers:,}", f"{percent(each.top)} %"),
                *(f"{percent(each.random)} %", f"{low} to {high}"),
            )


def _part_read(answering: TaskAnswering) -> str:
    """Return what is read of long texts, in words."""
    parts = {"tail": "the end", "head+tail": "the beginning and the end"}
    windowed = answering.task.answers.windowed
    return "the beginning" if windowed else parts.get(answering.room.long, "the beginning")


def _tell(explained: Explained, config: ExplainConfig, part: str) -> None:
    """Print how many answers were explained, and how exactly shares add up."""
    texts = counted(explained.texts, "text")
    say(f"{texts}: {counted(len(explained.answers), 'answer')} explained")
    if explained.silent:
        say(f"{counted(explained.silent, 'text')} without an answer to explain")
    if explained.cut:
        say(f"of {counted(explained.cut, 'text')} only {part} was read")
    gaps = _gaps(explained)
    if gaps:
        tolerance = config.explaining.tolerance
        beyond = sum(gap > tolerance for gap, _ in gaps)
        worst, steps = max(gap for gap, _ in gaps), max(steps for _, steps in gaps)
        say(
            f"integrated gradients: shares add up to the logit's difference within {worst:.1e}, "
            f"in {steps:,} steps at most"
            + (f"; {beyond:,} not within {tolerance:g}" if beyond else "")
        )


def _gaps(explained: Explained) -> list[tuple[float, int]]:
    return [
        (each.gap, each.steps)
        for _, found in explained.answers
        for each in found.values()
        if each.gap is not None and each.steps is not None
    ]


def _page(config: ExplainConfig, explained: Explained) -> Report:
    """Return the page of shaded words."""
    title = f"Why? Answers of {printable(model_name(config.model))}"
    subtitle = (
        f"{counted(len(explained.answers), 'answer')}: {', '.join(config.explaining.methods)}"
    )
    report = Report(title, subtitle)
    if explained.deletion:
        report.table(
            "Do these words matter?",
            _HEADER,
            list(_rows(explained.deletion)),
            note="Answers that change when the words with the largest shares are masked, and when "
            "as many random words are; the difference with its 95 % interval, in points. Words "
            "that the answer consists of stay.",
        )
    add_explanations(report, explained.answers)
    return report
