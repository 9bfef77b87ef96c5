"""Labels: their order, their counts and weights, and which of them are unknown, absent or odd."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from shlex import quote

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.errors import ExampleError
from bertsmith.core.printable import counted
from bertsmith.tasks.task import UNTUNED, Labels, R, Task
from bertsmith.text.examples.example import Example, folded
from bertsmith.text.examples.tagged import names_entities, parted


def require_labels(
    rows: Sequence[R],
    labels_of: Callable[[R], Labels],
    known: Labels,
    mistake: Callable[[str], tuple[str, str]],
) -> None:
    """Raise `ExampleError` for a label that is not known; `mistake` has its text and remedy."""
    names = frozenset(known)
    for row in rows:
        for label in labels_of(row):
            if label not in names:
                problem, remedy = mistake(label)
                raise ExampleError(problem, where=row.source, line=row.line, remedy=remedy)


# examples a text: fewer are several annotators' judgements
_FEW_TEXTS = 10


def order_labels(results: Iterable[str], known: Sequence[str]) -> tuple[str, ...]:
    """Return the classes in the order that the model will keep.

    The order of the model that training starts from if it has the same classes, whatever the order
    of the file; otherwise sorted, by value if all are finite numbers.
    """
    labels = set(results)
    if labels == set(known):
        return tuple(known)
    values = {label: value_of(label) for label in labels}
    if not all(map(math.isfinite, values.values())):
        # words, and nan, have no place among numbers
        return tuple(sorted(labels))
    return tuple(sorted(labels, key=lambda label: (values[label], label)))


def check_labels(results: Sequence[str], where: str) -> None:
    """Raise `ExampleError` for labels that are hardly classes, or one number in two spellings."""
    counts = Counter(results)
    singles = sum(count == 1 for count in counts.values())
    if len(results) > 2 and (
        singles == len(results) or (len(results) >= 10 and 2 * singles > len(results))
    ):
        problem = (
            "gives every example a label of its own"
            if singles == len(results)
            else f"{singles:,} of {len(results):,} labels occur once only, such as "
            f"{results[0][:40]!r}"
        )
        remedy = "name the column with --label-column: there must be several examples of a class"
        raise ExampleError(problem, where=where, remedy=remedy)
    spelled: dict[float, str] = {}
    for label in counts:
        value = value_of(label)
        if not math.isfinite(value):
            continue
        # identifiers of many digits may have the same float
        with suppress(ValueError):
            value = int(label)
        first_spelling = spelled.setdefault(value, label)
        if first_spelling != label:
            problem = (
                f"the labels {first_spelling!r} and {label!r} are one number written in two ways"
            )
            remedy = "write them alike: labels are classes by their spelling"
            raise ExampleError(problem, where=where, remedy=remedy)


def value_of(label: str) -> float:
    """Return the number that a label is, not a number (nan) for other labels."""
    if "_" in label:
        # only Python reads 1_2 as 12
        return math.nan
    try:
        return float(label)
    except ValueError:
        return math.nan


def check_texts(rows: Sequence[Example], labels: Sequence[str]) -> None:
    """Raise `ExampleError` where so few texts differ that they must be labels themselves."""
    texts = {(row.text, row.text_pair) for row in rows}
    if len(rows) >= _FEW_TEXTS * len(texts) and len(texts) <= 2 * len(labels):
        raise ExampleError(
            f"{len(rows):,} examples have only {counted(len(texts), 'different text')}, such as "
            f"{rows[0].text[:40]!r}",
            where=rows[0].source,
            remedy="name the text's column with --text-column: this looks like the label's",
        )


def unknown_label(label: str, known: Sequence[str], subject: str, *, picked: bool = True) -> str:
    """Return the remedy for an unknown label, with the known ones; `subject` is with a verb.

    Where classes can be `picked`, the option that leaves out the label is named.
    """
    alternatives = [other for other in known if value_of(other) == value_of(label)]
    if alternatives:
        return f"{alternatives[0]!r} is the same number: write both alike"
    same = [other for other in known if folded(other) == folded(label)]
    if same:
        return f"{same[0]!r} is written otherwise: write both alike"
    shown = f"{subject} {', '.join(known[:10])}" + (", ..." if len(known) > 10 else "")
    left_out = f"; {quote(f'--exclude={label}')} leaves it out" * ("," not in label)
    return shown + left_out * picked


def count_labels(results: Iterable[str], labels: tuple[str, ...]) -> str:
    """Return labels with how often they are found, the first ten."""
    counts = Counter(results)
    shown = ", ".join(f"{label} {counts[label]:,}" for label in labels[:10])
    return shown + (f" and {len(labels) - 10} more" if len(labels) > 10 else "")


def absent_labels(task: Task[R], rows: Sequence[R], labels: Labels) -> str:
    """Return the labels that no row has, the first ten, "" if there are none.

    Of tags of entities, the types.
    """
    known_labels, present = labels, {label for row in rows for label in task.labels.of_row(row)}
    if task.measuring.by_type is not None and names_entities(labels):
        known_labels, present = _types_of(labels), set(_types_of(present))
    elif not task.labels.has_classes:
        return ""
    absent = [label for label in known_labels if label not in present]
    shown = ", ".join(map(repr, absent[:10]))
    return shown + (f" and {len(absent) - 10} more" if len(absent) > 10 else "")


def absent_note(task: Task[R], name: str, rows: Sequence[R], labels: Labels) -> str | None:
    """Return a note on the labels that none of the rows of `name` has, to be measured with."""
    absent = absent_labels(task, rows, labels)
    if not absent:
        return None
    # a mean over all labels, whereas that of classes is over those that there are
    counted_all = task.head == "classes"
    which, are = ("them", "they are") if "', '" in absent else ("it", "it is")
    consequence = (
        f": macro F1 counts {which} as 0"
        if counted_all
        else f", so the scores say nothing about {which}"
    )
    if "macro_f1" in task.measuring.scoring(labels, UNTUNED) and not counted_all:
        consequence += f", and macro F1 counts {which} as 0 if {are} predicted"
    return f"{name} has no example of {absent}{consequence}"


def alike_labels(labels: Labels) -> str:
    """Return the labels that differ from another in case or in how characters are written alone.

    The first ten, "" if there are none.
    """
    counts = Counter(map(folded, labels))
    alike = sorted((label for label in labels if counts[folded(label)] > 1), key=folded)
    return ", ".join(map(repr, alike[:10])) + (", ..." if len(alike) > 10 else "")


_PLACEHOLDERS = frozenset(("-", "--", "?", "n/a", "#n/a", "<na>", "null"))
"""Placeholders for a missing label in files of many publishers, in lower case."""


def placeholder_labels(labels: Labels) -> list[str]:
    """Return the labels that usually stand for none; of counted classes that is -1."""
    placeholders = [label for label in labels if label.casefold() in _PLACEHOLDERS]
    others = [label for label in labels if label != "-1"]
    counted_ones = all(label.isascii() and label.isdecimal() for label in others)
    return placeholders + ["-1"] * (
        len(others) == len(labels) - 1 and len(others) > 1 and counted_ones
    )


def _types_of(tags: Iterable[str]) -> Labels:
    """Return the types of entities that tags are of, in their order."""
    return tuple(dict.fromkeys(kind for tag in tags if (kind := parted(tag)[1])))


def balanced_weights(classes: NDArray[np.int64], count: int) -> tuple[float, ...]:
    """Return weights of `count` classes that make them count alike; their mean over examples is 1.

    `classes` are those of the examples, (examples,).
    """
    sizes = np.bincount(classes, minlength=count)
    present = int(np.count_nonzero(sizes))
    weights = len(classes) / (present * np.maximum(sizes, 1))
    return tuple(float(weight) for weight in weights)
