"""Reasons for answers: the shares of words in them, shown, tested and written as a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from bertsmith.analysis.attributions.attribution import Attribution, Baseline, Explainer, Method
from bertsmith.analysis.attributions.deletion import DeletionFigures, DeletionTest
from bertsmith.analysis.attributions.subjects import (
    Subject,
    TagTarget,
    Word,
    subjects_of,
    text_of_words,
)
from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.core.files import check_outputs, followed
from bertsmith.core.log import Bar, progress, say, table_of
from bertsmith.core.output import print_json, print_line, print_table
from bertsmith.core.ownership import claimed_output
from bertsmith.core.printable import counted, model_name, printable, to_millionths
from bertsmith.engine.devices import device_named
from bertsmith.engine.predictor import Predictor
from bertsmith.evaluation.metrics import percent
from bertsmith.hub.models import model_folder
from bertsmith.network.model import Model
from bertsmith.recipes.config import ExplainConfig, ExplainingConfig
from bertsmith.recipes.predict.evaluate import task_answering
from bertsmith.recipes.predict.recipe import open_rows, terminal_preview
from bertsmith.recipes.predict.rows import InputRow
from bertsmith.reports.curves import require_matplotlib
from bertsmith.reports.page import Report, safe, wide
from bertsmith.tasks.answering import TaskAnswering, answering_of
from bertsmith.tasks.config import AnsweringConfig
from bertsmith.tasks.multi_label import MULTI_LABEL
from bertsmith.tasks.task import Record
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import load_model

_SHOWN = 6


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
    withheld: int = 0


def explain(config: ExplainConfig) -> dict[str, Any]:
    """Explain answers, print or write the shares of words, and return them as plain JSON values.

    Raises `ConfigError`, `ExampleError` and `ModelFolderError`.
    """
    if config.out is not None:
        require_matplotlib()
        check_outputs(config.out, [config.out], config.file)
    with nullcontext() if config.out is None else claimed_output(followed(config.out)):
        return _explain(config)


def _explain(config: ExplainConfig) -> dict[str, Any]:
    """Explain, print and write the page."""
    device, explaining = device_named(config.device), config.explaining
    model, tokenizer = open_network(model_folder(config.model), device)
    answering = explaining_answering(model, tokenizer, explaining, where=config.model)
    reading, inputs = open_rows(model.config, answering, config.file, config.reading)
    rows = islice(enumerate(inputs), config.limit)
    with progress("explaining", None, "answers") as bar:
        explained = explain_rows(model, answering, rows, explaining, bar)
    if not explained.texts:
        raise ExampleError("holds no text", where=config.file, remedy="write one text a line")
    figures = explanation_figures(explained)
    if config.json:
        print_json(figures)
    else:
        _print(explained)
        if explained.deletion:
            changed = _rows(explained.deletion)
            print_table(table_of(_HEADER, changed, numbers=True, lined=False))
    _print_summary(explained, config, _part_read(answering))
    if config.out is not None:
        _page(config, explained).write(followed(config.out))
        say(f"page: {config.out}")
    reading.bad_rows.print()
    return figures


def open_network(folder: Path, device: torch.device) -> tuple[Model, Tokenizer]:
    """Return the model of a folder, whose gradients can be taken by the embeddings."""
    model, tokenizer = load_model(folder)
    return model.to(device).requires_grad_(False).eval(), tokenizer


def explaining_answering(
    model: Model, tokenizer: Tokenizer, config: ExplainingConfig, *, where: str | Path
) -> TaskAnswering:
    """Return how the model of a folder, `where`, answers.

    Raises `ModelFolderError` without a task's head, `ConfigError` for what cannot be tested.
    """
    options = AnsweringConfig(**config.length.to_dict())
    answering = task_answering(answering_of(model, tokenizer, options, where=where), where)
    task = answering.task
    if config.deletion and task.name in ("regression", "rank"):
        raise ConfigError(
            f"--deletion counts answers that change, and this is {task.title.lower()}",
            remedy="leave it out",
        )
    return answering


def explain_rows(
    model: Model,
    answering: TaskAnswering,
    rows: Iterable[tuple[int, InputRow[Any]]],
    config: ExplainingConfig,
    bar: Bar | None = None,
) -> Explained:
    """Explain the answers to numbered rows, blank ones left out."""
    explainer = Explainer(
        model=model,
        inventory=answering.tokenizer,
        baseline=config.baseline,
        tolerance=config.tolerance,
    )
    test, explained = DeletionTest(explainer, seed=config.seed), Explained()
    for subject in _subjects(rows, answering, explainer, config.answers, explained):
        attributions = {method: explainer.attribute(subject, method) for method in config.methods}
        explained.answers.append((subject, attributions))
        if config.deletion:
            test.add(subject, {method: result.shares for method, result in attributions.items()})
        if bar is not None:
            bar.advance(1)
    return replace(explained, deletion=test.figures())


def _subjects(
    rows: Iterable[tuple[int, InputRow[Any]]],
    answering: TaskAnswering,
    explainer: Explainer,
    max_answers: int,
    explained: Explained,
) -> Iterator[Subject]:
    """Yield the answers to explain, a limited number a text, and count the texts."""
    for number, input_row in rows:
        if (row := input_row.example) is None:
            continue
        explained.texts += 1
        subjects = subjects_of(
            answering.task, explainer.model, answering.tokenizer, row, answering.limits
        )
        none, any_withheld, predicted = True, False, None
        for subject in islice(subjects, max_answers):
            if none:
                explained.cut += subject.cut
                predicted = _predicted(row, answering, explainer.model)
            none = False
            withheld = predicted is not None and _is_withheld(subject, predicted)
            any_withheld |= withheld
            explained.numbers.append(number)
            yield replace(subject, withheld=withheld)
        explained.silent += none
        explained.withheld += any_withheld


def _predicted(row: Any, answering: TaskAnswering, model: Model) -> Record | None:  # noqa: ANN401
    """Return the answer to a row, all of it read; None where no threshold can withhold one."""
    thresholds = (getattr(answering.tuned, name) for name in answering.task.answers.thresholds)
    # of several labels one half is the threshold
    if answering.task.name != MULTI_LABEL.name and all(each is None for each in thresholds):
        return None
    (answer,) = Predictor(model=model, answering=answering)([row])
    return answering.record(answer)


def _is_withheld(subject: Subject, predicted: Record) -> bool:
    """Return whether an answer is kept back in what is predicted."""
    if "labels" in predicted:
        return subject.answer not in predicted["labels"]
    return predicted["answer" if "answer" in predicted else "label"] in (None, "")


def _record(
    number: int, subject: Subject, attributions: Mapping[Method, Attribution]
) -> dict[str, Any]:
    """Return an explanation as plain JSON values."""
    methods: dict[str, Any] = {}
    for method, result in attributions.items():
        methods[method] = {"shares": [to_millionths(float(share)) for share in result.shares]}
        if result.steps is not None:
            methods[method] |= {
                "difference": result.difference, "gap": result.gap, "steps": result.steps
            }  # fmt: skip
    return {
        "text": number,
        "answer": subject.answer,
        "withheld": subject.withheld,
        "words": [word.text for word in subject.words],
        "answer_words": [number for number, word in enumerate(subject.words) if word.in_answer],
        "methods": methods,
    }


def explanation_figures(explained: Explained) -> dict[str, Any]:
    """Return explanations as plain JSON values."""
    answers = zip(explained.numbers, explained.answers, strict=True)
    return {
        "texts": explained.texts,
        "explanations": [_record(number, *item) for number, item in answers],
        "deletion": {
            method: [
                {
                    "words": row.words,
                    "answers": row.answers,
                    "top": row.top,
                    "random": row.random,
                    "difference": {"low": row.difference.low, "high": row.difference.high},
                }
                for row in rows
            ]
            for method, rows in explained.deletion.items()
        },
    }


def _print(explained: Explained) -> None:
    """Print each answer with the words that have the largest shares."""
    for subject, attributions in explained.answers:
        answer = f"{printable(subject.answer)}{' (withheld)' if subject.withheld else ''}"
        print_line(f"{answer}  {terminal_preview(text_of_words(subject.words))}")
        for method, result in attributions.items():
            order = sorted(range(len(result.shares)), key=lambda n: -abs(result.shares[n]))[:_SHOWN]
            words = (f"{printable(subject.words[n].text)} {result.shares[n]:+z.3f}" for n in order)
            print_line(f"    {method}: {'  '.join(words)}")


# in two lines, so that the table fits into 80 columns with the names of all methods
_HEADER = (
    "method", "words\nmasked", "answers", "top\nwords", "random\nwords", "difference,\n95 %"
)  # fmt: skip


def _rows(deletion: Mapping[Method, Sequence[DeletionFigures]]) -> Iterator[tuple[str, ...]]:
    for method, rows in deletion.items():
        for row in rows:
            low, high = percent(row.difference.low), percent(row.difference.high)
            yield (
                *(method, str(row.words), f"{row.answers:,}", f"{percent(row.top)} %"),
                *(f"{percent(row.random)} %", f"{low} to {high}"),
            )


def _part_read(answering: TaskAnswering) -> str:
    """Return the part of long texts that is read, in words."""
    parts = {"tail": "the end", "head+tail": "the beginning and the end"}
    windowed = answering.task.answers.windowed
    return "the beginning" if windowed else parts.get(answering.limits.long, "the beginning")


def _print_summary(explained: Explained, config: ExplainConfig, part: str) -> None:
    """Print the number of answers explained, and how exactly shares add up."""
    texts = counted(explained.texts, "text")
    say(f"{texts}: {counted(len(explained.answers), 'answer')} explained")
    if explained.silent:
        say(f"{counted(explained.silent, 'text')} without an answer to explain")
    if explained.withheld:
        say(
            f"of {counted(explained.withheld, 'text')} an answer is explained that predict "
            "withholds, as it does not pass the threshold"
        )
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
        (result.gap, result.steps)
        for _, attributions in explained.answers
        for result in attributions.values()
        if result.gap is not None and result.steps is not None
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
            [name.replace("\n", " ") for name in _HEADER],
            list(_rows(explained.deletion)),
            note="Answers that change when the words with the largest shares are masked, and when "
            "as many random words are; the difference with its 95 % interval, in points. Words "
            "that the answer consists of stay.",
        )
    _add_explanations(report, explained.answers, config.explaining.baseline)
    return report


# the words of each text, shaded by their shares in an answer

_MOST_SHARES = 5
# Okabe and Ito's blue and vermilion, which the colour-blind can tell apart
_FOR, _AGAINST = "0, 114, 178", "213, 94, 0"

Attributions = Mapping[Method, Attribution]

_LEGEND = (
    "Blue words support the answer; orange, underlined words oppose it. The stronger the colour, "
    "the larger the share, relative to the largest one in the text by the same method. A frame "
    "marks the words of which the answer consists. Below each text are the largest shares as "
    "figures, and a list of all shares that you can open. Point at a word to see its share."
)


def _add_explanations(
    report: Report, answers: Sequence[tuple[Subject, Attributions]], baseline: Baseline
) -> None:
    """Add the legend and the shaded texts to a page."""
    report.text("How to read this page", [_LEGEND])
    body = ""
    for number, (answer, attributions) in enumerate(answers, 1):
        body += f"<h3>{number}: {_isolated_answer(answer)}"
        body += " (withheld by predict)</h3>" if answer.withheld else "</h3>"
        for method, result in attributions.items():
            body += _shaded(answer, method, result.shares.tolist())
        note = _note(attributions, baseline)
        body += f'<p class="note">{safe(note)}</p>' if note else ""
        body += _all_shares(number, answer, attributions)
    report.section("Answers", body)


def _isolated_answer(answer: Subject) -> str:
    """Return an answer in its own direction, a tag and its word each in theirs."""
    tagged = isinstance(answer.target, TagTarget)
    parts = answer.answer.split(": ", 1) if tagged else [answer.answer]
    return ": ".join(f"<bdi>{safe(part)}</bdi>" for part in parts)


def _note(result: Attributions, baseline: Baseline) -> str:
    """Return a note on how exactly the integrated gradients of an answer add up."""
    own = result.get("integrated-gradients")
    if own is None or own.difference is None or own.gap is None:
        return ""
    side = "above" if own.difference >= 0 else "below"
    other = "masks" if baseline == "mask" else "padding"
    return (
        f"The logit of the answer is {abs(own.difference):.3g} {side} that of a text of {other}; "
        f"the shares of integrated gradients add up to this difference within {own.gap:.1e}, after "
        f"{own.steps} steps."
    )


def _shaded(answer: Subject, method: str, shares: Sequence[float]) -> str:
    """Return a text with its words shaded, and the largest shares in words."""
    largest = max(map(abs, shares), default=0.0) or 1.0
    marks, before = [], False
    for word, share in zip(answer.words, shares, strict=True):
        # of a pair, the second text begins a new line
        marks.append("<br>" if word.second and not before else "" if word.glued else " ")
        before = word.second
        marks.append(_word(word, share, share / largest))
    top = sorted(zip(shares, answer.words, strict=True), key=lambda pair: -abs(pair[0]))[
        :_MOST_SHARES
    ]
    # words from right to left would take the figures after them along
    description = ", ".join(
        f"<bdi>{safe(word.text)}</bdi> {share:+.3g}" for share, word in top if share
    )
    return (
        f'<p class="note">{safe(method)}</p><p dir="auto">{"".join(marks)}</p>'
        f'<p class="note">largest shares: {description or "none"}</p>'
    )


def _all_shares(number: int, answer: Subject, found: Attributions) -> str:
    """Return every share of an answer as a foldable table, for readers who see no colours."""
    header = "".join(f'<th scope="col">{safe(method)}</th>' for method in found)
    rows = ""
    columns = (result.shares.tolist() for result in found.values())
    for word, *shares in zip(answer.words, *columns, strict=True):
        own = " (of the answer)" if word.in_answer else ""
        cells = "".join(f'<td class="number">{share:+.4g}</td>' for share in shares)
        rows += f'<tr><th scope="row" dir="auto">{safe(word.text)}{own}</th>{cells}</tr>'
    name = f"all shares of answer {number}"
    return (
        "<details><summary>All shares</summary>"
        + wide(
            name,
            f'<table aria-label="{name}"><thead><tr><th scope="col">word</th>{header}</tr></thead>'
            f"<tbody>{rows}</tbody></table>",
        )
        + "</details>"
    )


def _word(word: Word, share: float, strength: float) -> str:
    colour = _FOR if strength >= 0 else _AGAINST
    # light enough for dark text at full strength, and on a dark page dark enough for light text
    style = f"background: rgba({colour}, {0.55 * abs(strength):.2f}); border-radius: 3px"
    if strength < -0.1:
        style += "; text-decoration: underline"
    if word.in_answer:
        style += "; outline: 1px solid var(--ink)"
    return f'<span style="{style}" title="{share:+.4g}">{safe(word.text)}</span>'
