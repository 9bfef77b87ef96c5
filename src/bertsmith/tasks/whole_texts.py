"""The common parts of tasks about whole texts or pairs of texts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.examples import EncodedExamples, encode_examples
from bertsmith.core.errors import ExampleError
from bertsmith.engine.sequences import text_length
from bertsmith.tasks.reading import Reading
from bertsmith.tasks.task import Room, Task
from bertsmith.text.examples.described import describe_examples
from bertsmith.text.examples.example import Example
from bertsmith.text.examples.glue import GlueTask, read_glue, task_of
from bertsmith.text.examples.reading import Kind, has_labels, read_examples
from bertsmith.text.opening import kind_of
from bertsmith.text.tables import TABLES
from bertsmith.tokens.tokenizer import Tokenizer

Right = NDArray[np.bool_]
Confidences = NDArray[np.float64]


def confidence_for(right: Right, confidences: Confidences, accuracy: float) -> float | None:
    """Return the least threshold at which that share of the answers given is right.

    It is one of the confidences, 0 where all may be answered; None where no threshold does.
    """
    order = np.argsort(-confidences, kind="stable")
    reached = np.cumsum(right[order]) / np.arange(1, len(right) + 1)
    # equal confidences are answered together
    ends = np.append(np.diff(confidences[order]) != 0, np.ones(min(1, len(right)), bool))
    good = np.flatnonzero(ends & (reached >= accuracy))
    if not len(good):
        return None
    last = int(good[-1])
    return 0.0 if last + 1 == len(right) else float(confidences[order[last]])


def abstention_note(right: Right, confidences: Confidences, threshold: float, unit: str) -> str:
    """Return what a threshold does to rows: how many are answered, how many of these are right."""
    given = confidences >= threshold
    if not given.any():
        return f"no answer has a probability of {threshold:.4f} or more: none is given"
    return (
        f"answers are given where the probability is at least {threshold:.4f}: to "
        f"{100 * given.mean():.2f} % of the {unit}, {100 * right[given].mean():.2f} % of them right"
    )


# examples a text: fewer are several annotators' judgements
_FEW_TEXTS = 10


@dataclass(frozen=True)
class TextTask(Task[Example]):
    """A task whose rows are texts or pairs of texts, each of them a unit.

    One of GLUE's reads that task's own files.
    """

    glue: GlueTask | None = None

    kind: ClassVar[Kind]
    """What a row's label is."""

    def read(self, file: Path, reading: Reading, *, labelled: bool) -> Iterator[Example]:
        """Texts or pairs."""
        if self.glue is not None:
            reading.columns.check_read(file, "GLUE's files")
            return read_glue(file, self.glue, _split(file, self.glue), bad=reading.bad_rows)
        return read_examples(
            file, reading.columns, need_label=labelled, kind=self.kind, bad=reading.bad_rows
        )

    def layout(self, file: Path, reading: Reading) -> str:
        """Return the header and the columns of a table, or how a folder is laid out."""
        if self.glue is not None:
            return f"GLUE's {self.glue.name}, {_split(file, self.glue)}"
        return describe_examples(file, reading.columns, self.kind, need_label=True)

    @property
    def name(self) -> str:
        """The name of GLUE's task, if it is one."""
        return self.called if self.glue is None else self.glue.name

    def reads_lines(self, file: str, reading: Reading) -> bool:
        """Tell whether it is neither a table nor a folder, and no lines with labels."""
        path = Path(file)
        other = path.is_dir() or kind_of(path) in TABLES or has_labels(path, reading.columns)
        return file == "-" or not other

    def of_text(self, example: Example) -> Example:
        """Return the text itself."""
        return example

    def check(
        self, train: Sequence[Example], dev: Sequence[Example], labels: tuple[str, ...]
    ) -> None:
        """Pairs stay pairs, and every label to be measured must be one that is learned."""
        paired = train[0].text_pair is not None
        for row in dev:
            if (row.text_pair is not None) != paired:
                raise ExampleError(
                    "is a pair of texts" if row.text_pair is not None else "is a single text",
                    where=row.source,
                    line=row.line,
                    remedy="train and dev must both have pairs, or both single texts",
                )
            for label in self.labels_of(row):
                if label not in labels:
                    raise ExampleError(
                        f"unknown label {label!r}",
                        where=row.source,
                        line=row.line,
                        remedy=f"the training examples have {unknown_label(label, labels)}",
                    )

    def identity(self, row: Example) -> Hashable:
        """Copies of a text stay on one side."""
        return row.text, row.text_pair

    def characters(self, row: Example) -> int:
        """Those of the text and its pair."""
        return text_length(row)

    def shown(self, row: Example) -> dict[str, Any]:
        """The text and its pair."""
        pair = {} if row.text_pair is None else {"text_pair": row.text_pair}
        return {"text": row.text, **pair}

    def encoded(self, tokenizer: Tokenizer, rows: Sequence[Example], room: Room) -> EncodedExamples:
        """Rows as units, without labels."""
        return encode_examples(
            tokenizer,
            [row.text for row in rows],
            [row.text_pair for row in rows],
            longest=room.longest,
            fit=room.long,
        )


def _split(file: Path, glue: GlueTask) -> str:
    """The split that a file of a task holds, by its name."""
    found = task_of(file)
    if found is None or found[0] is not glue:
        raise ExampleError(
            f"is no file of {glue.name}",
            where=file,
            remedy=f"name one in a folder called {glue.name}, as GLUE distributes it",
        )
    return found[1]


def order_labels(found: Iterable[str], known: Sequence[str]) -> tuple[str, ...]:
    """The classes in the order that the model will keep.

    The order of the model that training starts from if it has the same classes, whatever the order
    of the file; otherwise sorted, by value if all are finite numbers.
    """
    labels = set(found)
    if labels == set(known):
        return tuple(known)
    try:
        values = {label: float(label) for label in labels}
    except ValueError:
        return tuple(sorted(labels))
    if not all(map(math.isfinite, values.values())):
        # nan has no place among numbers
        return tuple(sorted(labels))
    return tuple(sorted(labels, key=lambda label: (values[label], label)))


def check_labels(found: Sequence[str], where: str) -> None:
    """Raise `ExampleError` for labels that are hardly classes, or one number in two spellings."""
    counts = Counter(found)
    alone = sum(count == 1 for count in counts.values())
    if len(found) > 2 and (alone == len(found) or (len(found) >= 10 and 2 * alone > len(found))):
        what = (
            "gives every example a label of its own"
            if alone == len(found)
            else f"{alone:,} of {len(found):,} labels occur once only, such as {found[0][:40]!r}"
        )
        remedy = "name the label's column: there must be several examples of a class"
        raise ExampleError(what, where=where, remedy=remedy)
    spelled: dict[float, str] = {}
    for label in counts:
        other = spelled.setdefault(value_of(label), label)
        if other != label and not math.isnan(value_of(label)):
            what = f"the labels {other!r} and {label!r} are one number written in two ways"
            remedy = "write them alike: labels are classes by their spelling"
            raise ExampleError(what, where=where, remedy=remedy)


def value_of(label: str) -> float:
    """Return the number that a label is, not a number (nan) for other labels."""
    try:
        return float(label)
    except ValueError:
        return math.nan


def check_texts(rows: Sequence[Example], labels: Sequence[str]) -> None:
    """Raise `ExampleError` where so few texts differ that they must be labels themselves."""
    texts = {(row.text, row.text_pair) for row in rows}
    if len(rows) >= _FEW_TEXTS * len(texts) and len(texts) <= 2 * len(labels):
        raise ExampleError(
            f"{len(rows):,} examples have only {len(texts)} different texts, such as "
            f"{rows[0].text[:40]!r}",
            where=rows[0].source,
            remedy="name the text's column with --text-column: this looks like the label's",
        )


def unknown_label(label: str, known: Sequence[str]) -> str:
    """Return what is known in place of an unknown label, for a remedy."""
    same = [other for other in known if value_of(other) == value_of(label)]
    if same:
        return f"{same[0]!r} is the same number: write both alike"
    folded = [other for other in known if other.casefold() == label.casefold()]
    if folded:
        return f"{folded[0]!r} is written otherwise: write both alike"
    return ", ".join(known[:10])


def count_labels(found: Iterable[str], labels: tuple[str, ...]) -> str:
    """Labels with how often they are found, the first ten."""
    counts = Counter(found)
    shown = ", ".join(f"{label} {counts[label]:,}" for label in labels[:10])
    return shown + (f" and {len(labels) - 10} more" if len(labels) > 10 else "")
