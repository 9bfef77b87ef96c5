"""Parts of tasks about whole texts or pairs of texts, each of them a unit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bertsmith.batches.examples import EncodedExamples, encode_rows
from bertsmith.core.errors import ExampleError
from bertsmith.engine.predictor import text_length
from bertsmith.tasks.config import Reading
from bertsmith.tasks.labels import require_labels, unknown_label
from bertsmith.tasks.task import Labels, Reader, ReadingLimits
from bertsmith.text.examples.detection import unread_texts
from bertsmith.text.examples.example import Example, folded
from bertsmith.text.examples.reading import Kind, describe_examples, has_labels, read_examples
from bertsmith.text.opening import kind_of
from bertsmith.text.tables import TABLES
from bertsmith.tokens.tokenizer import Tokenizer


def text_reader(kind: Kind) -> Reader[Example]:
    """Return the reader of texts, or pairs of texts, with labels of a kind."""
    return Reader(
        labelled=partial(_read, kind=kind, labelled=True),
        unlabelled=partial(_read, kind=kind, labelled=False),
        characters=text_length,
        layout=partial(describe_texts, kind),
        unread_columns=partial(_unread_columns, kind),
        of_text=_identity_row,
        pairs=True,
        reads_lines=_reads_lines,
    )


def _read(file: Path, reading: Reading, *, kind: Kind, labelled: bool) -> Iterator[Example]:
    return read_examples(
        file, reading.columns, need_label=labelled, kind=kind, bad=reading.bad_rows
    )


def describe_texts(kind: Kind, file: Path, reading: Reading) -> str:
    """Return the header and the columns of a table, or how a folder is laid out."""
    return describe_examples(file, reading.columns, kind, need_label=True)


def _unread_columns(kind: Kind, file: Path, reading: Reading) -> str:
    return unread_texts(file, reading.columns, grouped=kind == "rank")


def _identity_row(example: Example) -> Example:
    return example


def _reads_lines(file: str, reading: Reading) -> bool:
    """Return whether it is neither a table nor a folder, and no lines with labels."""
    path = Path(file)
    has_other_layout = path.is_dir() or kind_of(path) in TABLES or has_labels(path, reading.columns)
    return file == "-" or not has_other_layout


def same_texts(row: Example) -> Hashable:
    """Return the identity by which copies of a text or pair stay on one side of a split.

    Those of a pair may have its texts the other way round, as symmetric data are often doubled.
    """
    if row.text_pair is None:
        return folded(row.text), None
    return tuple(sorted((folded(row.text), folded(row.text_pair))))


# fewer clusters than about 30 make intervals too narrow (Cameron, Gelbach and Miller 2008)
_FEWEST_SHARED = 30


def shared_text(rows: Sequence[Example]) -> list[Hashable]:
    """Return the stated group of each row, or the text that each pair shares with most others.

    That is the side with fewer distinct texts, as candidates share a question, of those with at
    least 30: fewer are a constant question or a handful of classes. Pairs are not linked by either
    side, as chains of them could join most to one cluster. Texts and pairs without such a side, and
    rows without a group among others, keep their identities.
    """
    identities = [same_texts(row) for row in rows]
    if any(row.group is not None for row in rows):
        return [row.group or own for row, own in zip(rows, identities, strict=True)]
    if any(row.text_pair is None for row in rows):
        return identities
    sides = [[folded(row.text) for row in rows], [folded(row.text_pair or "") for row in rows]]
    sizes = [len(set(side)) for side in sides]
    shared = [side for side, size in enumerate(sizes) if size >= _FEWEST_SHARED]
    side = min(shared, key=sizes.__getitem__, default=None)
    return identities if side is None else list(sides[side])


def encode_texts(
    tokenizer: Tokenizer, rows: Sequence[Example], limits: ReadingLimits
) -> EncodedExamples:
    """Encode each text or pair as a unit."""
    return encode_rows(tokenizer, rows, longest=limits.longest, fit=limits.long)


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
    if labels_of is not None:
        require_labels(dev, labels_of, labels, partial(_unknown, labels))


def _unknown(labels: Labels, label: str) -> tuple[str, str]:
    return f"unknown label {label!r}", unknown_label(label, labels, "the training examples have")
