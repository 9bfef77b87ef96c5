"""Labelled examples for fine-tuning: read, checked, split into train and dev."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.randomness import permuted, stream
from bertsmith.errors import ExampleError
from bertsmith.text.columns import Columns
from bertsmith.text.examples import Example, read_examples

# purpose of the random stream, unlike those of batches
_SPLIT = 201


@dataclass(frozen=True, kw_only=True)
class LabelledData:
    """Examples to train on and to measure with, and the classes in the model's order."""

    labels: tuple[str, ...]
    train: list[Example]
    dev: list[Example]
    dev_is_cut: bool
    """Whether dev was cut from the training file."""

    def classes(self, examples: Sequence[Example]) -> NDArray[np.int64]:
        """The class numbers of examples, (examples,)."""
        number = {label: index for index, label in enumerate(self.labels)}
        return np.array([number[str(example.label)] for example in examples], np.int64)


def read_labelled(
    train: Path,
    dev: Path | None,
    columns: Columns,
    *,
    known_labels: Sequence[str],
    dev_share: float,
    seed: int,
) -> LabelledData:
    """Read and check the examples; without a dev file, hold out a share of the training file.

    Raises `ExampleError`, with file and line, for anything that cannot be learned from: a single
    class, a label of dev that is none of train, pairs here and single texts there.
    """
    examples = list(read_examples(train, columns, need_label=True))
    labels = order_labels((str(example.label) for example in examples), known_labels)
    if len(labels) < 2:
        raise ExampleError(
            f"has one class only, {labels[0]!r}",
            where=train,
            remedy="give examples of two classes or more, or name the label's column",
        )
    if len(labels) == len(examples) > 2:
        raise ExampleError(
            "gives every example a label of its own",
            where=train,
            remedy="name the label's column: there must be several examples of a class",
        )
    if dev is None:
        kept, held_out = split(examples, dev_share, seed)
        return LabelledData(labels=labels, train=kept, dev=held_out, dev_is_cut=True)
    measured = list(read_examples(dev, columns, need_label=True))
    _check_dev(examples, measured, labels)
    return LabelledData(labels=labels, train=examples, dev=measured, dev_is_cut=False)


def order_labels(found: Iterable[str], known: Sequence[str]) -> tuple[str, ...]:
    """The classes in the order that the model will keep.

    The order of the model that training starts from if it has the same classes, whatever the order
    of the file; otherwise sorted, by value if all are numbers.
    """
    labels = set(found)
    if labels == set(known):
        return tuple(known)
    try:
        values = {label: float(label) for label in labels}
    except ValueError:
        return tuple(sorted(labels))
    return tuple(sorted(labels, key=lambda label: (values[label], label)))


def split(
    examples: Sequence[Example], share: float, seed: int
) -> tuple[list[Example], list[Example]]:
    """Hold out a share of each class, the same for the same seed; both parts keep their order.

    Copies of a text stay on one side, and no class is held out whole.
    """
    by_class: dict[str, dict[tuple[str, str | None], list[int]]] = {}
    label_of: dict[tuple[str, str | None], str] = {}
    for index, example in enumerate(examples):
        text = (example.text, example.text_pair)
        label = label_of.setdefault(text, str(example.label))
        by_class.setdefault(label, {}).setdefault(text, []).append(index)
    wanted = max(1, round(share * len(examples)))
    held_out: set[int] = set()
    passed = 0
    for number, label in enumerate(sorted(by_class)):
        groups = list(by_class[label].values())
        passed += sum(map(len, groups))
        # of the classes so far together, so that what rounding takes from one the next gets
        goal = math.floor(wanted * passed / len(examples) + 0.5)
        order = permuted(np.arange(len(groups)), len(groups), stream(seed, _SPLIT, number))
        for group in order[:-1]:
            if len(held_out) + len(groups[group]) <= goal:
                held_out.update(groups[group])
    if not held_out:
        raise ExampleError(
            f"has too few examples ({len(examples)}) to hold some out",
            where=examples[0].source,
            remedy="give more, or others to measure with by --dev",
        )
    kept = [example for index, example in enumerate(examples) if index not in held_out]
    return kept, [examples[index] for index in sorted(held_out)]


def count_classes(examples: Sequence[Example], labels: Sequence[str]) -> str:
    """The classes with their numbers of examples, the first ten."""
    counts = Counter(example.label for example in examples)
    shown = ", ".join(f"{label} {counts[label]:,}" for label in labels[:10])
    return shown + (f" and {len(labels) - 10} more" if len(labels) > 10 else "")


def overlap(data: LabelledData) -> int:
    """How many dev examples have a text that is also in train."""
    known = {(example.text, example.text_pair) for example in data.train}
    return sum((example.text, example.text_pair) in known for example in data.dev)


def _check_dev(train: list[Example], dev: list[Example], labels: tuple[str, ...]) -> None:
    classes, paired = set(labels), train[0].text_pair is not None
    for example in dev:
        if example.label not in classes:
            raise ExampleError(
                f"unknown label {example.label!r}",
                where=example.source,
                line=example.line,
                remedy=f"the training examples have {', '.join(labels[:10])}",
            )
        if (example.text_pair is not None) != paired:
            raise ExampleError(
                "is a pair of texts" if example.text_pair is not None else "is a single text",
                where=example.source,
                line=example.line,
                remedy="train and dev must both have pairs, or both single texts",
            )
