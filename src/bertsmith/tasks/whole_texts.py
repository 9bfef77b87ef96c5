"""Parts of tasks about whole texts or pairs of texts, each of them a unit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bertsmith.batches.examples import EncodedExamples, encode_examples
from bertsmith.core.errors import ExampleError
from bertsmith.engine.sequences import text_length
from bertsmith.tasks.reading import Reading
from bertsmith.tasks.task import Labels, Reader, Room
from bertsmith.text.examples.described import describe_examples
from bertsmith.text.examples.example import Example
from bertsmith.text.examples.glue import GlueTask, read_glue, task_of
from bertsmith.text.examples.reading import Kind, has_labels, read_examples
from bertsmith.text.opening import kind_of
from bertsmith.text.tables import TABLES
from bertsmith.tokens.tokenizer import Tokenizer


def text_reader(kind: Kind) -> Reader[Example]:
    """Return the reader of texts, or pairs of texts, with labels of a kind."""
    return Reader(
        labelled=partial(_read, kind, True),
        unlabelled=partial(_read, kind, False),
        characters=text_length,
        layout=partial(describe_texts, kind),
        of_text=_itself,
        pairs=True,
        reads_lines=_reads_lines,
    )


def _read(kind: Kind, need_label: bool, file: Path, reading: Reading) -> Iterator[Example]:
    return read_examples(
        file, reading.columns, need_label=need_label, kind=kind, bad=reading.bad_rows
    )


def describe_texts(kind: Kind, file: Path, reading: Reading) -> str:
    """Return the header and the columns of a table, or how a folder is laid out."""
    return describe_examples(file, reading.columns, kind, need_label=True)


def _itself(example: Example) -> Example:
    return example


def _reads_lines(file: str, reading: Reading) -> bool:
    """Return whether it is neither a table nor a folder, and no lines with labels."""
    path = Path(file)
    other = path.is_dir() or kind_of(path) in TABLES or has_labels(path, reading.columns)
    return file == "-" or not other


def glue_reader(task: GlueTask) -> Reader[Example]:
    """Return the reader of the files of a GLUE task."""
    read = partial(_read_glue, task)
    layout = partial(_glue_layout, task)
    return replace(text_reader("class"), labelled=read, unlabelled=read, layout=layout)


def _read_glue(task: GlueTask, file: Path, reading: Reading) -> Iterator[Example]:
    reading.columns.check_read(file, "GLUE's files")
    return read_glue(file, task, _split(file, task), bad=reading.bad_rows)


def _glue_layout(task: GlueTask, file: Path, reading: Reading) -> str:
    return f"GLUE's {task.name}, {_split(file, task)}"


def _split(file: Path, glue: GlueTask) -> str:
    """Return the split that a file of a task holds, by its name."""
    found = task_of(file)
    if found is None or found[0] is not glue:
        raise ExampleError(
            f"is no file of {glue.name}",
            where=file,
            remedy=f"name one in a folder called {glue.name}, as GLUE distributes it",
        )
    return found[1]


def same_text(row: Example) -> Hashable:
    """Return the identity by which copies of a text stay on one side of a split."""
    return row.text, row.text_pair


def encode_texts(tokenizer: Tokenizer, rows: Sequence[Example], room: Room) -> EncodedExamples:
    """Encode each text or pair as a unit."""
    return encode_examples(
        tokenizer,
        [row.text for row in rows],
        [row.text_pair for row in rows],
        longest=room.longest,
        fit=room.long,
    )


def text_inputs(row: Example) -> dict[str, Any]:
    """Return the text and its pair."""
    pair = {} if row.text_pair is None else {"text_pair": row.text_pair}
    return {"text": row.text, **pair}


def check_rows(
    labels_of: Callable[[Example], Labels] | None,
    train: Sequence[Example],
    dev: Sequence[Example],
    labels: Labels,
) -> None:
    """Raise `ExampleError` for dev rows that are no pairs as in train, or with unknown labels."""
    paired = train[0].text_pair is not None
    for row in dev:
        if (row.text_pair is not None) != paired:
            raise ExampleError(
                "is a pair of texts" if row.text_pair is not None else "is a single text",
                where=row.source,
                line=row.line,
                remedy="train and dev must both have pairs, or both single texts",
            )
        for label in () if labels_of is None else labels_of(row):
            if label not in labels:
                raise ExampleError(
                    f"unknown label {label!r}",
                    where=row.source,
                    line=row.line,
                    remedy=f"the training examples have {unknown_label(label, labels)}",
                )


# examples a text: fewer are several annotators' judgements
_FEW_TEXTS = 10


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
