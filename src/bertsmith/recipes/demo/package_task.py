"""The demo's labelled task: the package that a docstring comes from, with names blanked out.

Eight packages, 50 labels each; dev examples come from other modules than training examples. Three
methods see the same examples: the pre-trained encoder, the same network from random weights, and
TF-IDF + logistic regression.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.core.log import console, say, table_of
from bertsmith.core.streams import Purpose, permutation, stream, uniform
from bertsmith.engine.devices import training_precision
from bertsmith.evaluation.metrics import confusion_counts, mean_and_spread
from bertsmith.network.model import Model, build_model
from bertsmith.recipes.finetune.baselines import TFIDF, BaselineScores
from bertsmith.recipes.finetune.config import FinetuneSettings
from bertsmith.recipes.finetune.inputs import LabelledData, Prepared, prepare
from bertsmith.recipes.finetune.tfidf import tfidf_baseline
from bertsmith.recipes.finetune.trial import TrialResult, run_trial
from bertsmith.tasks.classify import CLASSIFY
from bertsmith.tasks.task import Measured, ReadingLimits
from bertsmith.text.corpus.documentation import ModuleText
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.folder import start_from

CLASSES, LABELS_A_CLASS, DEV_A_CLASS, SEEDS = 8, 50, 100, 3
MAX_LENGTH = 96
SETTINGS = FinetuneSettings(epochs=12, batch_size=16, learning_rate=1e-3)
PRETRAINED, RANDOM, BASELINE = "pre-trained here", "random weights", TFIDF

_MIN_LENGTH, _MAX_LENGTH = 80, 500
_DEV_SHARE = 0.5
# an identifier: dots, underscores or digits inside, or camel case
_IDENTIFIER = re.compile(
    r"[`'\"]*\b(?:\w+[._/]\w[\w./]*|_\w+|\w*[a-z][A-Z]\w*|\w*\d\w*)\b(?:\(\))?[`'\"]*"
)
_BLANK = "it"


@dataclass(frozen=True, kw_only=True)
class Task:
    """Texts and class numbers for training and evaluation, and the names of the classes."""

    labels: tuple[str, ...]
    train: list[str]
    train_classes: NDArray[np.int64]
    dev: list[str]
    dev_classes: NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class TaskOutcome:
    """Accuracies by method, and the counts of (true, predicted) classes of the pre-trained one."""

    task: Task
    accuracies: dict[str, list[float]]
    confusion: dict[tuple[int, int], int]

    def rows(self) -> list[tuple[str, str, str]]:
        """Return method, mean and spread, and single scores, in per cent."""
        return [
            (name, format_mean(scores), ", ".join(f"{100 * score:.1f}" for score in scores))
            for name, scores in self.accuracies.items()
        ]

    def verdict(self) -> str:
        """Return a sentence on which method is best."""
        means = self._means()
        first, second = sorted(means, key=lambda name: -means[name])[:2]
        difference = 100 * (means[first] - means[second])
        draw = " (within the error of so few examples: a draw)"
        remark = "" if self._is_better(first, second) else draw
        return f"{first} leads {second} by {difference:z.1f} points{remark}"

    def conclusion(self) -> str:
        """Return why words are a good hint, and where the model is better than these, that too."""
        hint = "a package has words of its own, and words are what TF-IDF counts"
        if not self._is_better(PRETRAINED, BASELINE):
            return hint
        return f"{hint}: the model has learned more than these from the same labels"

    def _means(self) -> dict[str, float]:
        """Return the mean accuracy of each method."""
        return {name: sum(scores) / len(scores) for name, scores in self.accuracies.items()}

    def _is_better(self, one: str, other: str) -> bool:
        """Return whether a method leads another one by more than the error of the dev examples."""
        means = self._means()
        # of the difference of two means, from the binomial variance of the dev examples
        error = math.sqrt(2 * means[one] * (1 - means[one]) / len(self.task.dev))
        return means[one] - means[other] > 2 * error

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        figures: dict[str, Any] = {"labels": len(self.task.train), "dev": len(self.task.dev)}
        for name, scores in self.accuracies.items():
            mean, spread = mean_and_spread(scores)
            figures[name] = {"mean": mean, "spread": spread}
        return figures


def format_mean(scores: list[float]) -> str:
    """Return mean and spread in per cent."""
    mean, spread = mean_and_spread(scores)
    return f"{100 * mean:z.1f}" if spread is None else f"{100 * mean:z.1f} ± {100 * spread:.1f}"


def dev_modules(count: int) -> list[bool]:
    """Return for each module whether its text is for evaluation, in every task of the demo."""
    draws = uniform(stream(Purpose.DEMO_MODULES), np.arange(count))
    return [bool(is_dev) for is_dev in draws < _DEV_SHARE]


def make_task(modules: list[ModuleText]) -> Task:
    """Choose the packages with most text, and make examples from their modules."""
    texts: defaultdict[str, list[tuple[str, bool]]] = defaultdict(list)
    seen: set[str] = set()
    for module, is_dev in zip(modules, dev_modules(len(modules)), strict=True):
        blank = _name_filter(module)
        for paragraph in module.paragraphs:
            text = blank(paragraph)
            if _MIN_LENGTH <= len(text) <= _MAX_LENGTH and text not in seen:
                seen.add(text)
                texts[module.package].append((text, is_dev))
    sizes = Counter({package: len(items) for package, items in texts.items()})
    labels = tuple(sorted(package for package, _ in sizes.most_common(CLASSES)))
    sides = [
        _choose_texts(texts, labels, is_dev=is_dev, count=count)
        for is_dev, count in ((False, LABELS_A_CLASS), (True, DEV_A_CLASS))
    ]
    (train, train_classes), (dev, dev_classes) = sides
    return Task(
        labels=labels, train=train, train_classes=train_classes, dev=dev, dev_classes=dev_classes
    )


def run_task(task: Task, folder: Path, seed: int) -> TaskOutcome:
    """Train the networks with three seeds each, and TF-IDF."""

    def pretrained(seed: int) -> Model:
        return start_from(folder, predicts="class", labels=task.labels, seed=seed)[0]

    tokenizer, config = Tokenizer.load(folder), pretrained(seed).config
    data = LabelledData(
        task=CLASSIFY,
        labels=task.labels,
        train=_rows(task.train, task.train_classes, task.labels),
        dev=_rows(task.dev, task.dev_classes, task.labels),
        dev_is_cut=False,
    )
    prepared = prepare(data, tokenizer, ReadingLimits(longest=MAX_LENGTH))
    results = {
        PRETRAINED: _trained(pretrained, prepared, seed),
        RANDOM: _trained(lambda seed: build_model(config, seed=seed), prepared, seed),
    }
    accuracies = {name: [result.score for result, _ in trials] for name, trials in results.items()}
    baseline = tfidf_baseline(prepared)
    assert isinstance(baseline, BaselineScores)
    best = max(results[PRETRAINED], key=lambda trial: trial[0].rank)
    true, predicted = best[1].evidence[:, :2].astype(np.int64).T
    return TaskOutcome(
        task=task,
        accuracies=accuracies | {BASELINE: baseline.values("accuracy")},
        confusion=confusion_counts(true, predicted),
    )


def _rows(texts: list[str], classes: NDArray[np.int64], labels: tuple[str, ...]) -> list[Example]:
    return [
        Example(text=text, text_pair=None, label=labels[number], source="demo", line=line)
        for line, (text, number) in enumerate(zip(texts, classes.tolist(), strict=True), 1)
    ]


def _trained(
    make_model: Callable[[int], Model], prepared: Prepared, first: int
) -> list[tuple[TrialResult, Measured]]:
    title = "fine-tuning for packages, seed"
    precision = training_precision(SETTINGS.precision, torch.device("cpu"))
    settings = replace(SETTINGS, precision=precision)
    return [
        run_trial(make_model, prepared, settings, seed, title=f"{title} {seed}")[:2]
        for seed in range(first, first + SEEDS)
    ]


def print_task(outcome: TaskOutcome, question: str) -> None:
    """Print the question, the table, the verdict, and the conclusion."""
    task = outcome.task
    say(f"{question} {len(task.train)} labels; measured on {len(task.dev)} of other modules")
    console.print(table_of(("", "accuracy %", "by seed"), outcome.rows()))
    say(f"{outcome.verdict()}; {outcome.conclusion()}")


def _name_filter(module: ModuleText) -> Callable[[str], str]:
    """Return a filter that removes a package's names and whatever looks like code."""
    names = {part for part in module.module.replace("_", ".").split(".") if len(part) > 2}
    package_names = (
        re.compile(rf"(?i)\b(?:{'|'.join(map(re.escape, sorted(names)))})\w*") if names else None
    )

    def blank(text: str) -> str:
        text = _IDENTIFIER.sub(_BLANK, text)
        return " ".join((package_names.sub(_BLANK, text) if package_names else text).split())

    return blank


def _choose_texts(
    texts: dict[str, list[tuple[str, bool]]], labels: tuple[str, ...], *, is_dev: bool, count: int
) -> tuple[list[str], NDArray[np.int64]]:
    """Return at most `count` texts of each label from one side, and their class numbers."""
    chosen: list[str] = []
    classes: list[int] = []
    for number, label in enumerate(labels):
        matching = [text for text, side in texts[label] if side == is_dev]
        key = stream(Purpose.DEMO_TEXTS, number)
        order = permutation(len(matching), key)[:count]
        chosen += [matching[index] for index in order.tolist()]
        classes += [number] * len(order)
    return chosen, np.array(classes, np.int64)
