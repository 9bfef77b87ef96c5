"""Descriptions of how files of examples are read: their header and the roles of their columns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bertsmith.core.errors import ExampleError, UserError
from bertsmith.text.examples.columns import Columns, Places, place
from bertsmith.text.examples.example import Kind
from bertsmith.text.examples.formats.class_files import (
    classes_of_folder,
    fasttext_labels,
    has_labels_first,
)
from bertsmith.text.examples.reading import table_kind
from bertsmith.text.headers import described_columns
from bertsmith.text.opening import kind_of
from bertsmith.text.tables import Head, Pick, Table

_ROLES = {"text_pair": "second text", "group": "query's name"}


def describe_examples(path: Path, columns: Columns, kind: Kind, *, need_label: bool) -> str:
    """Return a short description of how a file or folder of examples is read.

    Raises `ExampleError` if `read_examples` does so before its first row.
    """
    if path.is_dir():
        classes = classes_of_folder(path)
        entry = "folder" if classes[0][1].is_dir() else "file"
        return f"a {entry} per class, named after it: {len(classes)} classes"
    if has_labels_first(path, columns):
        return "lines of a label, a space and a text"
    if kind_of(path) == ".xml":
        return "pairs in XML, the text in <t>, the second text in <h>"
    if fasttext_labels(path, columns.encoding):
        return "lines of fastText, __label__ and the label before the text"
    places: list[Places] = []

    def pick(head: Head, table: Table) -> Pick:
        grouped = kind == "rank"
        places.append(place(head, columns, table.file, need_label=need_label, grouped=grouped))
        return places[0].pick()

    head, extension = _head(path, columns, pick)
    if not places:
        raise ExampleError("holds no examples", where=path, remedy="give a file with rows in it")
    roles = {_ROLES.get(role, role): index for role, index in places[0].roles().items()}
    roles |= dict(zip(map(repr, places[0].label_names), places[0].labels, strict=True))
    return described_columns(extension, head.names, places[0].header, roles)


def without_header(path: Path, columns: Columns) -> str | None:
    """Return the description of a CSV or TSV without header; None for other files."""
    if not path.is_file():
        return None
    try:
        described = describe_examples(path, columns, "class", need_label=False)
    except UserError:
        return None  # reported when the file is read
    return f"{path.name}: {described}" if " without header " in described else None


def _head(path: Path, columns: Columns, pick: Callable[[Head, Table], Pick]) -> tuple[Head, str]:
    """Return the head of a table, and the extension of its kind."""
    heads: list[Head] = []
    extension = table_kind(path, columns)

    def refuse(error: UserError, row: str) -> None:
        del error, row

    table = Table(path, ExampleError, kind=extension, encoding=columns.encoding, refuse=refuse)

    def kept(head: Head) -> Pick:
        heads.append(head)
        return pick(head, table)

    next(table.rows(kept), None)
    return (heads[0] if heads else Head(names=())), extension
