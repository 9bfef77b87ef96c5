"""Labelled examples out of CSV, TSV, JSONL and Parquet files, and of other common layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from bertsmith.core.errors import ConfigError, ExampleError, UserError
from bertsmith.text.bad_rows import FAIL, BadRows, examples_missing
from bertsmith.text.examples.columns import USUAL, Columns, Places, place
from bertsmith.text.examples.example import (
    BadLabel,
    Check,
    Example,
    Kind,
    checked,
    class_of,
    label_of,
    label_until,
    text_of,
    yes_or_no,
)
from bertsmith.text.examples.formats.class_files import (
    class_folder,
    fasttext_examples,
    fasttext_labels,
    has_labels_first,
    label_first,
)
from bertsmith.text.examples.formats.xml_items import pair_examples
from bertsmith.text.opening import TextFile, kind_of, refuse_foreign
from bertsmith.text.tables import TABLES, Head, Pick, Table

__all__ = ["Check", "Example", "Kind", "read_examples"]

_LINES_LOOKED_AT = 50


def read_examples(
    path: Path,
    columns: Columns = USUAL,
    *,
    need_label: bool,
    kind: Kind = "class",
    check: Check | None = None,
    bad: BadRows = FAIL,
    watch: Callable[[Table], object] | None = None,
) -> Iterator[Example]:
    """Stream the examples of a .csv, .tsv, .jsonl or .parquet file, also .gz or .zst.

    CSV is quoted as in RFC 4180, with commas or, where the first line has none, semicolons; TSV has
    no quotes. A file of another name is a TSV when its first line holds a tab. The lines of a
    .label file begin with their label. A folder holds a file a class, with a text a line, or a
    folder a class, with a text a file. A label is a string as written; numbers without fraction are
    written without (``1.0`` in JSON is ``1``). Several labels stand in a list, as ``a|b``, or in
    columns of 0 and 1. Raises `ExampleError`, with file and line, for whatever cannot be read as an
    example, or is wrong by `check`, unless `bad` takes it; a label may be missing unless
    `need_label`. `watch` is handed the table once it is open, to see how far it has been read.
    """
    if columns.labels and kind != "classes":
        remedy = "name one label's column, or the task with several labels"
        raise ConfigError("columns of 0 and 1 are of examples with several labels", remedy=remedy)
    if path.is_dir():
        columns.check_read(path, "a folder of classes")
        return class_folder(path, columns, kind, check, bad)
    if kind_of(path) == ".xml":
        columns.check_read(path, "pairs in XML")
        return pair_examples(path, columns, kind, check, bad, need_label=need_label)
    if fasttext_labels(path, columns.encoding):
        columns.check_read(path, "fastText's lines")
        return fasttext_examples(path, columns, kind, check, bad)
    if has_labels_first(path, columns):
        columns.check_read(path, "lines that begin with their label")
        return label_first(path, columns, kind, check, bad)
    return _rows(path, columns, kind, check, bad, watch, need_label=need_label)


def has_labels(path: Path, columns: Columns) -> bool:
    """Return whether the labels of a file that is no table stand beside its texts."""
    if not path.is_file():
        return False
    xml = kind_of(path) == ".xml"
    return xml or has_labels_first(path, columns) or bool(fasttext_labels(path, columns.encoding))


def _rows(
    path: Path,
    columns: Columns,
    kind: Kind,
    check: Check | None,
    bad: BadRows,
    watch: Callable[[Table], object] | None,
    *,
    need_label: bool,
) -> Iterator[Example]:
    before, empty = bad.count, True
    building: list[_Building] = []
    shape = table_kind(path, columns)
    with bad.of(path) as refuse:
        table = Table(path, ExampleError, kind=shape, encoding=columns.encoding, refuse=refuse)
        if watch is not None:
            watch(table)

        def pick(head: Head) -> Pick:
            grouped = kind == "rank"
            places = place(head, columns, table.file, need_label=need_label, grouped=grouped)
            if grouped and places.text_pair is None:
                remedy = "name the columns of query and passage"
                raise table.file.fault("holds single texts, and pairs are ranked", 1, remedy)
            roles = tuple(places.roles())
            building.append(_Building(table.file, columns, places, kind, need_label, roles))
            return places.pick()

        for line, cells in table.rows(pick):
            try:
                example = checked(table.file, building[0].example(line, cells), check)
            except UserError as error:
                refuse(error, table.row())
                continue
            empty = False
            yield example
    if empty:
        raise examples_missing(table.file, bad, before)


def table_kind(path: Path, columns: Columns) -> str:
    """The extension of the table that a file holds, its own or .tsv; raises `ExampleError`."""
    refuse_foreign(path)
    kind = kind_of(path)
    if kind in TABLES:
        return kind
    file = TextFile(path, ExampleError, columns.encoding)
    _, first = next(file.lines(escaped=True), (1, ""))
    if "\t" not in first:
        remedy = "examples are .csv, .tsv, .jsonl or .parquet, each also .gz or .zst"
        raise file.fault("is of an unknown kind", remedy=remedy)
    return ".tsv"


def has_cells(path: Path, columns: Columns, *, texts: int) -> bool:
    """Tell whether a file named for no table holds one: more cells a line than it has texts.

    The beginning decides: two lines at least, and as many tabs in each, as a table has.
    """
    if kind_of(path) in TABLES or not path.is_file():
        return False
    lines = islice(TextFile(path, ExampleError, columns.encoding).lines(), _LINES_LOOKED_AT)
    tabs = [line.count("\t") for _, line in lines if line.strip()]
    return len(tabs) > 1 and len(set(tabs)) == 1 and tabs[0] >= texts


@dataclass(slots=True)
class _Building:
    """Makes examples of the cells of one file."""

    file: TextFile
    columns: Columns
    places: Places
    kind: Kind
    need_label: bool
    roles: tuple[str, ...]
    ids: set[str] = field(default_factory=set)

    def example(self, line: int, cells: tuple[object, ...]) -> Example:
        cell = dict(zip(self.roles, cells, strict=False))
        text = text_of(self.file, line, "text", cell["text"])
        pair = None
        if "text_pair" in cell:
            pair = text_of(self.file, line, "second text", cell["text_pair"])
        try:
            label, number, labels = self._label(cell.get("label"), cells[len(self.roles) :])
            name = class_of(cell["id"]) if "id" in cell else None
            group = class_of(cell.get("group")) or text if self.kind == "rank" else None
        except BadLabel as error:
            raise self.file.fault(error.what, line, error.remedy) from error
        if self.need_label and (label, number, labels) == (None, None, None):
            raise self.file.fault("no label", line, "give every row a label")
        if self.places.id is not None:
            self._check_id(line, name)
        return Example(
            text=text,
            text_pair=pair,
            label=label,
            source=str(self.file.path),
            line=line,
            labels=labels,
            number=number,
            id=name,
            group=group,
        )

    def _label(
        self, value: object, flags: tuple[object, ...]
    ) -> tuple[str | None, float | None, tuple[str, ...] | None]:
        if not flags:
            separator = self.columns.label_separator
            until = label_until(value, self.columns.label_until)
            return label_of(self.kind, until, "|" if separator == "auto" else separator)
        named = zip(self.places.label_names, flags, strict=True)
        return None, None, tuple(name for name, flag in named if yes_or_no(flag, name))

    def _check_id(self, line: int, name: str | None) -> None:
        remedy = "give every row an id of its own"
        if name is None:
            raise self.file.fault("no id", line, remedy)
        if name in self.ids:
            raise self.file.fault(
                f"the id {name[:40]!r} stands in an earlier row too", line, remedy
            )
        self.ids.add(name)
