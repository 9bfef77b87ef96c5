"""Multiple choice, with any number of options: SWAG, COPA, MCTest and the like."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bertsmith.errors import ExampleError, UserError
from bertsmith.log import say
from bertsmith.text.bad_rows import FAIL, BadRows, Refuse, examples_missing
from bertsmith.text.choice import Choice, made_choice, numeric_label
from bertsmith.text.choice_columns import READ, choice_places, counts_from_zero
from bertsmith.text.choice_labels import label_start
from bertsmith.text.choices_xml import copa_items
from bertsmith.text.columns import USUAL, Columns
from bertsmith.text.headers import NAMED, Header, described_columns
from bertsmith.text.mctest import answers_of, has_stories, story_items
from bertsmith.text.opening import TextFile, kind_of
from bertsmith.text.tables import TABLES, Head, Pick, Table

__all__ = ["Choice", "find_label_start", "read_choices"]


def read_choices(
    path: Path, columns: Columns = USUAL, *, need_label: bool, bad: BadRows = FAIL
) -> Iterator[Choice]:
    """Stream the questions of a .csv, .tsv, .jsonl or .parquet file, or of COPA's .xml.

    Options stand in a list (``choices``, ``options``, ``endings``), in numbered columns
    (``ending0``, ``choice1``) or in columns ``A``, ``B``, ``C``; the label is the letter of the
    right one, its text, or its number, from 0 or from 1 as `find_label_start` finds. SWAG's second
    sentence begins each of its endings, COPA's cause or effect is asked in words. A .tsv of MCTest
    has its answers in an .ans file beside it. Raises `ExampleError`, with file and line, unless
    `bad` takes the fault; a label may be missing unless `need_label`.
    """
    before, empty = bad.count, True
    file = TextFile(path, ExampleError, columns.encoding)
    start = find_label_start(path, columns, need_label=need_label)
    if start and need_label and columns.label_start == "auto":
        say(f"{path.name}: labels count from 1, for none is 0 and some are the number of options")
    ids: set[str] = set()
    with bad.of(path) as refuse:
        for line, parts, row in _items(file, columns, refuse, need_label=need_label):
            try:
                choice = made_choice(file, line, parts, need_label=need_label, start=start)
                if choice.id is not None and choice.id in ids:
                    what = f"the id {choice.id[:40]!r} stands in an earlier row too"
                    raise file.fault(what, line, "give every row an id of its own")
            except UserError as error:
                refuse(error, row)
                continue
            if choice.id is not None:
                ids.add(choice.id)
            empty = False
            yield choice
    if empty:
        raise examples_missing(file, bad, before)


def find_label_start(path: Path, columns: Columns, *, need_label: bool = True) -> int:
    """Return the number, 0 or 1, that the numeric labels of a file count from.

    Raises `ExampleError` where they leave it open and `columns` does not state it; without
    `need_label` it is 0 then.
    """
    if columns.label_start != "auto":
        return int(columns.label_start)
    if kind_of(path) not in TABLES or has_stories(path, columns.encoding):
        return 0
    table = _table(path, columns)
    heads: list[Head] = []

    def labels() -> Iterator[tuple[int, int, int]]:
        try:
            for line, parts, _ in _rows(table, columns, need_label=need_label, heads=heads):
                if counts_from_zero(heads[0].names):
                    return
                if (found := numeric_label(table.file, line, parts)) is not None:
                    yield line, *found
        except UserError:
            return  # the reading itself raises it

    try:
        return label_start(labels(), table.file)
    except ExampleError:
        if need_label:
            raise
        return 0


def describe_choices(path: Path, columns: Columns) -> str:
    """Return which columns of a table hold the parts of a question, in a few words."""
    kind = kind_of(path)
    if kind == ".xml":
        return "COPA's XML"
    if has_stories(path, columns.encoding):
        return f"MCTest's stories, the answers in {answers_of(path).name}"
    heads: list[Head] = []
    table = _table(path, columns)
    found: dict[str, int] = {}

    def pick(head: Head) -> Pick:
        heads.append(head)
        found.update(choice_places(head, columns, table.file, need_label=False))
        return Pick(columns=tuple(found.values()), optional=frozenset(found.values()))

    next(table.rows(pick), None)
    header = Header(present=True) if heads[0].delimited else NAMED
    counted = ", labels count from 1" if find_label_start(path, columns) else ""
    return described_columns(kind, heads[0].names, header, found) + counted


Item = tuple[int, dict[str, object], str]


def _table(path: Path, columns: Columns) -> Table:
    """Return a table whose bad rows are passed over."""
    return Table(path, ExampleError, encoding=columns.encoding, refuse=lambda error, row: None)


def _items(file: TextFile, columns: Columns, refuse: Refuse, *, need_label: bool) -> Iterator[Item]:
    """Line, parts and text of each question."""
    kind = kind_of(file.path)
    if kind == ".xml":
        columns.check_read(file.path, "COPA's XML")
        return copa_items(file)
    if kind not in TABLES:
        remedy = "questions with options are .csv, .tsv, .jsonl, .parquet or COPA's .xml"
        raise file.fault("is of an unknown kind", remedy=remedy)
    if has_stories(file.path, columns.encoding):
        columns.check_read(file.path, "a file of stories with questions, laid out as MCTest's")
        return story_items(file, refuse, need_label=need_label)
    columns.check_read(file.path, "multiple choice", *READ)
    table = Table(file.path, ExampleError, encoding=file.encoding, refuse=refuse)
    return _rows(table, columns, need_label=need_label)


def _rows(
    table: Table, columns: Columns, *, need_label: bool, heads: list[Head] | None = None
) -> Iterator[Item]:
    roles: list[str] = []

    def pick(head: Head) -> Pick:
        if heads is not None:
            heads.append(head)
        found = choice_places(head, columns, table.file, need_label=need_label)
        roles.extend(found)
        optional = frozenset(place for role, place in found.items() if role == "label")
        return Pick(columns=tuple(found.values()), optional=optional)

    for line, cells in table.rows(pick):
        parts = dict(zip(roles, cells, strict=True))
        options = [parts.pop(role) for role in roles if role.startswith("option ")]
        yield line, {"options": options, **parts} if options else parts, table.row()
