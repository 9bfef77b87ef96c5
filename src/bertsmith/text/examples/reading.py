"""Labelled examples from tables and other layouts, and descriptions of how a file is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from bertsmith.core.errors import ConfigError, ExampleError, UserError
from bertsmith.text.bad_rows import FAIL, BadRows, Refuse
from bertsmith.text.config import USUAL, Columns
from bertsmith.text.examples.columns import ColumnIndices, locate_columns
from bertsmith.text.examples.example import (
    BadLabel,
    Check,
    Example,
    Kind,
    are_marks,
    as_written,
    check_accepted,
    checked,
    class_of,
    label_of,
    label_until,
    located,
    text_of,
    yes_or_no,
)
from bertsmith.text.examples.formats.class_files import (
    class_folder,
    classes_of_folder,
    fasttext_examples,
    fasttext_labels,
    has_labels_first,
    label_first,
)
from bertsmith.text.examples.formats.xml_items import pair_examples
from bertsmith.text.headers import QUOTES_ARE_TEXT, described_columns
from bertsmith.text.opening import TextFile, kind_of, refuse_foreign
from bertsmith.text.tables import TABLES, ColumnSelection, Table, TableHead

__all__ = ["Check", "Example", "Kind", "read_examples"]


_LINES_LOOKED_AT = 50
FIRST_ROWS = 1000
"""The rows of a table from which the contents of its columns are detected."""


def read_examples(
    path: Path,
    columns: Columns = USUAL,
    *,
    need_label: bool,
    kind: Kind = "class",
    check: Check | None = None,
    bad: BadRows = FAIL,
    watch: Callable[[Table], object] | None = None,
    keep_blank: bool = False,
) -> Iterator[Example]:
    """Yield the examples of a .csv, .tsv, .jsonl or .parquet file, also .gz or .zst.

    CSV is quoted as in RFC 4180, with commas or, if the first line has none, semicolons; TSV has no
    quotes. A file with another extension is a TSV if its first line has a tab. The lines of a
    .label file begin with their label. A folder contains a file per class, with a text per line, or
    a folder per class, with a text per file. A label is a string as written; whole numbers are
    written without fraction (``1.0`` in JSON is ``1``). Several labels are in a list, as ``a|b``,
    or in columns of 0 and 1; it may be missing unless `need_label`. `watch` is called with the
    table once it is open, to track how much was read. With `keep_blank` the rows of a table without
    text are examples too, with "" as text. Raises `ExampleError`, with file and line, for rows that
    cannot be read as examples or fail `check`, unless `bad` takes the error.
    """
    if columns.labels and kind != "classes":
        remedy = "name one label's column, or the task with several labels"
        raise ConfigError("columns of 0 and 1 are for examples with several labels", remedy=remedy)
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
        columns.check_read(path, "lines that begin with their label", "layout")
        return label_first(path, columns, kind, check, bad)
    rows = _TableRows(kind=kind, need_label=need_label, keep_blank=keep_blank)
    return _rows(path, columns, rows, check, bad, watch)


def has_labels(path: Path, columns: Columns) -> bool:
    """Return whether a file that is not a table holds labels with its texts."""
    if not path.is_file():
        return False
    xml = kind_of(path) == ".xml"
    return xml or has_labels_first(path, columns) or bool(fasttext_labels(path, columns.encoding))


@dataclass(frozen=True, slots=True, kw_only=True)
class _TableRows:
    """The requirements on the rows of a table to be examples."""

    kind: Kind
    need_label: bool
    keep_blank: bool


def _rows(
    path: Path,
    columns: Columns,
    needs: _TableRows,
    check: Check | None,
    bad: BadRows,
    watch: Callable[[Table], object] | None,
) -> Iterator[Example]:
    builders: list[_ExampleBuilder] = []

    def rows(refuse: Refuse) -> Iterator[Example]:
        shape = table_kind(path, columns)
        table = Table(
            path, ExampleError, kind=shape, encoding=columns.encoding, refuse=refuse,
            empty_rows=needs.keep_blank,
        )  # fmt: skip
        if watch is not None:
            watch(table)

        def select_columns(head: TableHead) -> ColumnSelection:
            grouped, need_label = needs.kind == "rank", needs.need_label
            places = locate_columns(
                head, columns, table.file, need_label=need_label, grouped=grouped
            )
            if grouped and places.text_pair is None:
                remedy = "name query and passage with --text-column and --text-pair-column"
                raise table.file.fault("holds single texts, but ranking needs pairs", 1, remedy)
            roles = tuple(places.roles())
            # which texts were accepted may be what is learned
            judged = need_label and (places.label is None or head.names[places.label] != "answer")
            flags = (row[at] for row in head.sample[1:] for at in places.labels if at < len(row))
            builder = _ExampleBuilder(
                table.file, columns, places, needs, roles, judged=judged, marks=are_marks(flags)
            )
            builders.append(builder)
            return places.select_columns()

        for line, cells in table.rows(select_columns):
            try:
                built = builders[0].example(line, cells, table.record())
                example = checked(table.file, built, check)
            except UserError as error:
                refuse(error, table.row())
            else:
                yield example

    return bad.read(TextFile(path, ExampleError, columns.encoding), rows)


def table_kind(path: Path, columns: Columns) -> str:
    """Return the extension of the table in a file, its own or .tsv. Raises `ExampleError`."""
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
    """Return whether a file without a table's extension holds one: more cells per line than texts.

    Its first lines decide: at least two, all with the same number of tabs.
    """
    if kind_of(path) in TABLES or not path.is_file():
        return False
    # what cannot be decoded is for the reader to refuse, or to pass over
    lines = TextFile(path, ExampleError, columns.encoding).lines(escaped=True)
    lines = islice(lines, _LINES_LOOKED_AT)
    tabs = [line.count("\t") for _, line in lines if line.strip()]
    return len(tabs) > 1 and len(set(tabs)) == 1 and tabs[0] >= texts


@dataclass(slots=True)
class _ExampleBuilder:
    """A builder of examples from the cells of one file."""

    file: TextFile
    columns: Columns
    places: ColumnIndices
    needs: _TableRows
    roles: tuple[str, ...]
    judged: bool
    marks: bool
    ids: set[str] = field(default_factory=set)

    def example(
        self, line: int, cells: tuple[object, ...], record: Mapping[str, object] | None
    ) -> Example:
        if self.judged:
            check_accepted(self.file, line, record)
        cell = dict(zip(self.roles, cells, strict=False))
        keep_blank = self.needs.keep_blank
        text = text_of(self.file, line, "text", cell["text"], keep_blank=keep_blank)
        pair = None
        if "text_pair" in cell:
            second = cell["text_pair"]
            pair = text_of(self.file, line, "second text", second, keep_blank=keep_blank)
        with located(self.file, line):
            label, number, labels = self._label(cell.get("label"), cells[len(self.roles) :])
            name = class_of(cell["id"], "id") if "id" in cell else None
            group = class_of(cell.get("group"), "group")
            group = group or (text if self.needs.kind == "rank" else None)
        if self.needs.need_label and (label, number, labels) == (None, None, None):
            # pandas writes nan for none
            written = str(cell.get("label") or "").strip()
            problem = f"no label ({written[:40]})" if written else "no label"
            raise self.file.fault(problem, line, "give every row a label")
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
            written=None if self.needs.need_label else as_written(text, cell["text"]),
        )

    def _label(
        self, value: object, flags: tuple[object, ...]
    ) -> tuple[str | None, float | None, tuple[str, ...] | None]:
        """Return label, number and labels; a bad label is none where none is needed."""
        try:
            if not flags:
                separator = self.columns.label_separator
                until = label_until(value, self.columns.label_until)
                return label_of(self.needs.kind, until, "|" if separator == "auto" else separator)
            named = zip(self.places.label_names, flags, strict=True)
            return (
                None,
                None,
                tuple(name for name, flag in named if yes_or_no(flag, name, marks=self.marks)),
            )
        except BadLabel:
            if self.needs.need_label:
                raise
            return None, None, None

    def _check_id(self, line: int, name: str | None) -> None:
        remedy = "give every row a unique id"
        if name is None:
            raise self.file.fault("no id", line, remedy)
        if name in self.ids:
            raise self.file.fault(
                f"the id {name[:40]!r} is used in an earlier row too", line, remedy
            )
        self.ids.add(name)


def describe_examples(path: Path, columns: Columns, kind: Kind, *, need_label: bool) -> str:
    """Return a short description of how a file or folder of examples is read.

    Raises `ExampleError` if `read_examples` does so before its first row.
    """
    if path.is_dir():
        classes = classes_of_folder(path, columns.classes)
        entry = "folder" if classes[0][1].is_dir() else "file"
        return f"a {entry} per class, named after it: {len(classes)} classes"
    if has_labels_first(path, columns):
        return "lines of a label, a space and a text"
    if kind_of(path) == ".xml":
        return "pairs in XML, the text in <t>, the second text in <h>"
    if fasttext_labels(path, columns.encoding):
        return "lines of fastText, __label__ and the label before the text"
    extension = table_kind(path, columns)
    table = Table(
        path, ExampleError, kind=extension, encoding=columns.encoding, refuse=lambda *bad: None
    )
    head, grouped = table.head(), kind == "rank"
    if head is None:
        raise ExampleError("holds no examples", where=path, remedy="give a file with rows in it")
    places = locate_columns(head, columns, table.file, need_label=need_label, grouped=grouped)
    names = {"text_pair": "second text"} | ({"group": "query's name"} if grouped else {})
    roles = {names.get(role, role): index for role, index in places.roles().items()}
    roles |= dict(zip(map(repr, places.label_names), places.labels, strict=True))
    return described_columns(extension, head.names, places.header, roles, head.sample)


def reading_note(path: Path, columns: Columns) -> str | None:
    """Return how a table is read without header, or where the text is another column than `text`.

    Also of a TSV that an exporter quoted. None for other files, and where the column is given.
    """
    if not path.is_file():
        return None
    try:
        if kind_of(path) not in TABLES and not has_cells(path, columns, texts=1):
            return None  # lines of text
        described = describe_examples(path, columns, "class", need_label=False)
    except UserError:
        return None  # reported when the file is read
    detected = columns.text is None and ": text is '" in described
    chosen = detected and not described.partition(": text is ")[2].casefold().startswith("'text'")
    noted = chosen or " without header " in described or QUOTES_ARE_TEXT in described
    return f"{path.name}: {described}" if noted else None


def first_rows(path: Path, columns: Columns) -> tuple[TableHead, list[Sequence[object]]]:
    """Return the head of a table and its first complete rows, without bad ones."""
    heads: list[TableHead] = []

    def select_columns(head: TableHead) -> ColumnSelection:
        heads.append(head)
        places = tuple(range(len(head.names)))
        return ColumnSelection(columns=places, header=True, optional=frozenset(places))

    faults: list[UserError] = []

    def refuse(error: UserError, row: str) -> None:
        del row
        faults.append(error)

    kind = table_kind(path, columns)
    table = Table(path, ExampleError, kind=kind, encoding=columns.encoding, refuse=refuse)
    rows: list[Sequence[object]] = [
        cells for _, cells in islice(table.rows(select_columns), FIRST_ROWS)
    ]
    if not rows and faults:
        raise faults[0]
    if not heads or (not rows and not heads[0].delimited):
        raise table.file.fault("holds no examples", remedy="give a file with rows in it")
    return heads[0], rows
