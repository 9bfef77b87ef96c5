"""Examples of texts whose label stands before them, or in the name of their file or folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bertsmith.errors import ExampleError, UserError
from bertsmith.text.bad_rows import BadRows, Refuse, examples_missing
from bertsmith.text.columns import Columns
from bertsmith.text.example import Check, Example, Kind, checked, label_of, label_until, text_of
from bertsmith.text.labels import BadLabel
from bertsmith.text.opening import TextFile, kind_of

_PARTS = re.compile(r"[^\W_]+")
_NOT_DATA = ("readme", "license", "licence", "copying")


def has_labels_first(path: Path, columns: Columns) -> bool:
    """Whether lines begin with their label: as was said, or by the name, as train_5500.label."""
    return columns.layout == "label-first" or kind_of(path) == ".label"


def label_first(
    path: Path, columns: Columns, kind: Kind, check: Check | None, bad: BadRows
) -> Iterator[Example]:
    """Lines of a label, white space and a text, such as ``LOC:city What county is this ?``."""
    file = TextFile(path, ExampleError, columns.encoding)
    before, empty = bad.count, True
    with bad.of(path) as refuse:
        for line, written in _lines(file, refuse):
            label, _, text = written.replace("\t", " ", 1).partition(" ")
            try:
                value = label_until(label, columns.label_until)
                example = checked(file, _example(file, line, text, value, kind), check)
            except UserError as error:
                refuse(error, written)
                continue
            empty = False
            yield example
    if empty:
        raise examples_missing(file, bad, before)


def class_folder(
    folder: Path, columns: Columns, kind: Kind, check: Check | None, bad: BadRows
) -> Iterator[Example]:
    """A file a class, with a text a line, or a folder a class, with a text a file.

    The label is what tells the name from those of the others: ``pos`` of ``rt-polarity.pos``.
    """
    classes = classes_of_folder(folder)
    before, empty = bad.count, True
    for label, path in classes:
        for text in sorted(_visible(path)) if path.is_dir() else [path]:
            file = TextFile(text, ExampleError, columns.encoding)
            with bad.of(text) as refuse:
                lines = _whole(file, refuse) if path.is_dir() else _lines(file, refuse)
                for line, written in lines:
                    try:
                        example = checked(file, _example(file, line, written, label, kind), check)
                    except UserError as error:
                        refuse(error, written)
                        continue
                    empty = False
                    yield example
    if empty:
        raise examples_missing(TextFile(folder, ExampleError), bad, before)


def classes_of_folder(folder: Path) -> list[tuple[str, Path]]:
    """Class and path of each file or folder in it; `ExampleError` where they are no classes."""
    try:
        found = sorted(_visible(folder))
    except OSError as error:
        raise ExampleError(f"cannot be read: {error.strerror}", where=folder) from error
    remedy = "give a file, or a folder with a file or a folder for each class"
    if len(found) < 2 or len({path.is_dir() for path in found}) > 1:
        raise ExampleError("is a folder of other things than classes", where=folder, remedy=remedy)
    parts = [_PARTS.findall(path.name) for path in found]
    while all(parts) and len({names[0] for names in parts}) == 1:
        parts = [names[1:] for names in parts]
    while all(parts) and len({names[-1] for names in parts}) == 1:
        parts = [names[:-1] for names in parts]
    labels = ["-".join(names) for names in parts]
    if not all(labels) or len(set(labels)) < len(labels):
        names = ", ".join(path.name for path in found[:4])
        raise ExampleError(f"no class in each of the names {names}", where=folder, remedy=remedy)
    return list(zip(labels, found, strict=True))


def _visible(folder: Path) -> list[Path]:
    paths = [path for path in folder.iterdir() if not path.name.startswith(".")]
    return [
        path
        for path in paths
        if not path.name.lower().startswith(_NOT_DATA) and not path.name.endswith(".bad.jsonl")
    ]


def _lines(file: TextFile, refuse: Refuse) -> Iterator[tuple[int, str]]:
    for line, text in file.lines(escaped=True):
        if error := file.undecodable(text, line):
            refuse(error, text)
        elif text and not text.isspace():
            yield line, text.strip()


def _whole(file: TextFile, refuse: Refuse) -> Iterator[tuple[int, str]]:
    try:
        text = file.whole()
    except UserError as error:
        refuse(error, "")
        return
    yield 1, text


def _example(file: TextFile, line: int, text: str, value: object, kind: Kind) -> Example:
    try:
        label, number, labels = label_of(kind, value)
    except BadLabel as error:
        raise file.fault(error.what, line, error.remedy) from error
    if (label, number, labels) == (None, None, None):
        raise file.fault("no label", line, "begin the line with its label")
    return Example(
        text=text_of(file, line, "text", text),
        text_pair=None,
        label=label,
        source=str(file.path),
        line=line,
        labels=labels,
        number=number,
    )
