"""Multiple choice, with any number of options: SWAG, COPA and the like."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from bertsmith.errors import ExampleError, UserError
from bertsmith.text.bad_rows import FAIL, BadRows, Refuse, examples_missing
from bertsmith.text.choice import Choice, made_choice
from bertsmith.text.choices_xml import copa_items
from bertsmith.text.encodings import AUTO
from bertsmith.text.headers import NAMED, Header, described_columns, index_of, listed
from bertsmith.text.opening import TextFile, kind_of
from bertsmith.text.tables import TABLES, Head, Pick, Table

__all__ = ["Choice", "find_options", "read_choices"]

LISTS = ("choices", "options", "endings", "alternatives")
_NUMBERED = re.compile(r"(ending|choice|option|alternative|answer|a)[ _-]?(\d{1,4})", re.IGNORECASE)
_LABELS = ("label", "answer", "answerkey", "gold", "correct", "answer_index", "gold_label")
_IDS = ("id", "idx")
_CONTEXTS = ("premise", "sent1", "context", "ctx", "article", "passage", "text", "startphrase")
_QUESTIONS = ("question", "query", "sentence")


def read_choices(
    path: Path, *, need_label: bool, bad: BadRows = FAIL, encoding: str = AUTO
) -> Iterator[Choice]:
    """Stream the questions of a .csv, .tsv, .jsonl or .parquet file, or of COPA's .xml.

    Options stand in a list (``choices``, ``options``, ``endings``) or in numbered columns
    (``ending0``, ``choice1``); the label is the number of the right one from 0, its letter, or its
    text. SWAG's second sentence begins each of its endings, COPA's cause or effect is asked in
    words. Raises `ExampleError`, with file and line, unless `bad` takes the fault; a label may be
    missing unless `need_label`.
    """
    before, empty = bad.count, True
    file = TextFile(path, ExampleError, encoding)
    ids: set[str] = set()
    with bad.of(path) as refuse:
        for line, parts, row in _items(file, refuse, need_label=need_label):
            try:
                choice = made_choice(file, line, parts, need_label=need_label)
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


def describe_choices(path: Path) -> str:
    """Return which columns of a table hold the parts of a question, in a few words."""
    kind = kind_of(path)
    if kind == ".xml":
        return "COPA's XML"
    heads: list[Head] = []
    table = Table(path, ExampleError, refuse=lambda error, row: None)
    found: dict[str, int] = {}

    def pick(head: Head) -> Pick:
        heads.append(head)
        found.update(_places(head, table.file, need_label=False))
        return Pick(columns=tuple(found.values()), optional=frozenset(found.values()))

    next(table.rows(pick), None)
    return described_columns(
        kind, heads[0].names, Header(present=True) if heads[0].delimited else NAMED, found
    )


Item = tuple[int, dict[str, object], str]


def _items(file: TextFile, refuse: Refuse, *, need_label: bool) -> Iterator[Item]:
    """Line, parts and text of each question."""
    kind = kind_of(file.path)
    if kind == ".xml":
        return copa_items(file)
    if kind not in TABLES:
        remedy = "questions with options are .csv, .tsv, .jsonl, .parquet or COPA's .xml"
        raise file.fault("is of an unknown kind", remedy=remedy)
    table = Table(file.path, ExampleError, encoding=file.encoding, refuse=refuse)
    return _rows(table, need_label=need_label)


def _rows(table: Table, *, need_label: bool) -> Iterator[Item]:
    roles: list[str] = []

    def pick(head: Head) -> Pick:
        found = _places(head, table.file, need_label=need_label)
        roles.extend(found)
        optional = frozenset(place for role, place in found.items() if role == "label")
        return Pick(columns=tuple(found.values()), optional=optional)

    for line, cells in table.rows(pick):
        parts = dict(zip(roles, cells, strict=True))
        options = [parts.pop(role) for role in roles if role.startswith("option ")]
        yield line, {"options": options, **parts} if options else parts, table.row()


def find_options(names: tuple[str, ...]) -> tuple[int, ...]:
    """Where the options stand in a table: one column that has them all, or one for each."""
    for name in LISTS:
        if (index := index_of(names, name)) is not None:
            return (index,)
    families: dict[str, list[tuple[int, int]]] = {}
    for index, name in enumerate(names):
        if match := _NUMBERED.fullmatch(name.strip()):
            families.setdefault(match[1].lower(), []).append((int(match[2]), index))
    wide = [sorted(family) for family in families.values() if len(family) > 1]
    return tuple(index for _, index in max(wide, key=len)) if wide else ()


def _places(head: Head, file: TextFile, *, need_label: bool) -> dict[str, int]:
    """Where the parts of a question stand, by role."""
    names = head.names
    options = find_options(names)
    question = _first(names, _QUESTIONS)
    context = _first(names, _CONTEXTS)
    label = _first(names, _LABELS)
    seen = f"the columns are: {listed(names)}"
    if not options and question is None:
        raise file.fault("no columns that look like options", 1, seen)
    if context is None and question is None:
        raise file.fault("no column that looks like the question", 1, seen)
    if label is None and need_label:
        raise file.fault("no column that looks like the label", 1, seen)
    wanted = {"question": question, "context": context, "label": label}
    wanted |= {"begins": index_of(names, "sent2"), "id": _first(names, _IDS)}
    found = {role: place for role, place in wanted.items() if place is not None}
    if len(options) == 1:
        return found | {"options": options[0]}
    return found | {f"option {number}": place for number, place in enumerate(options)}


def _first(names: tuple[str, ...], wanted: tuple[str, ...]) -> int | None:
    found = (index_of(names, name) for name in wanted)
    return next((index for index in found if index is not None), None)
