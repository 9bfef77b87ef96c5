"""Labelled examples out of CSV, TSV, JSONL and Parquet files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bertsmith.errors import ExampleError
from bertsmith.text.columns import USUAL, Columns, Places, place
from bertsmith.text.documents import tidy
from bertsmith.text.opening import TextFile, kind_of
from bertsmith.text.tables import TABLES, Head, Pick, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A text or a pair of texts, with its class where that is known.

    `source` and `line` (from 1; of Parquet, the row) say where it stands. Texts are never empty,
    and their white space is single spaces.
    """

    text: str
    text_pair: str | None
    label: str | None
    source: str
    line: int


def read_examples(path: Path, columns: Columns = USUAL, *, need_label: bool) -> Iterator[Example]:
    """Stream the examples of a .csv, .tsv, .jsonl or .parquet file, also .gz or .zst.

    CSV is quoted as in RFC 4180, with commas or, where the first line has none, semicolons; TSV has
    no quotes. A file of another name is a TSV when its first line holds a tab. A label is a string
    as written; numbers without fraction are written without (``1.0`` in JSON is ``1``). Raises
    `ExampleError`, with file and line, for whatever cannot be read as an example; a label may be
    missing unless `need_label`.
    """
    table = Table(path, ExampleError, kind=_kind(path))
    places: list[Places] = []

    def pick(head: Head) -> Pick:
        places.append(place(head, columns, table.file, need_label=need_label))
        return places[0].pick()

    empty = True
    for line, cells in table.rows(pick):
        empty = False
        yield _example(table.file, places[0], line, cells, need_label=need_label)
    if empty:
        raise table.file.fault("holds no examples", remedy="give a file with rows in it")


def _kind(path: Path) -> str:
    kind = kind_of(path)
    if kind in TABLES:
        return kind
    file = TextFile(path, ExampleError)
    _, first = next(file.lines(), (1, ""))
    if "\t" not in first:
        remedy = "examples are .csv, .tsv, .jsonl or .parquet, each also .gz or .zst"
        raise file.fault("is of an unknown kind", remedy=remedy)
    return ".tsv"


def _example(
    file: TextFile, places: Places, line: int, cells: tuple[object, ...], *, need_label: bool
) -> Example:
    rest = list(cells)
    text = _text(file, line, "text", rest.pop(0))
    pair = None if places.text_pair is None else _text(file, line, "second text", rest.pop(0))
    label = None if places.label is None else _label(file, line, rest.pop(0))
    if label is None and need_label:
        raise file.fault("no label", line, "give every row a label")
    return Example(text=text, text_pair=pair, label=label, source=str(file.path), line=line)


def _text(file: TextFile, line: int, role: str, value: object) -> str:
    if value is not None and not isinstance(value, str):
        raise file.fault(f"the {role} is no string", line, "name a column of strings")
    if value and "\0" in value:
        raise file.fault(f"a zero byte in the {role}", line, "remove it: tr -d '\\000'")
    text = tidy(value or "")
    if not text:
        raise file.fault(f"the {role} is empty", line, "remove the row or fill it in")
    return text


def _label(file: TextFile, line: int, value: object) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if value is None or isinstance(value, str | int | float):
        label = tidy("" if value is None else str(value))
        return None if label in ("", "nan") else label
    raise file.fault("the label is neither string nor number", line, "name another column")
