"""Which columns of a table hold the text, its second half, the label and what else is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bertsmith.config import Config
from bertsmith.errors import ConfigError, UserError
from bertsmith.text.opening import Encoding, TextFile
from bertsmith.text.tables import Head, Pick, index_of, listed

PAIRS = (
    ("text", "text_pair"),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("sentence_a", "sentence_b"),
    ("#1 string", "#2 string"),
    ("question", "sentence"),
    ("question", "passage"),
    ("query", "passage"),
    ("query", "document"),
)
TEXTS = (
    *("text", "sentence", "review", "content", "question", "comment", "message", "tweet", "body"),
    *("document", "utterance", "query", "description", "abstract", "title", "headline"),
)
FIRSTS = (*TEXTS, *(first for first, _ in PAIRS))
LABELS = (
    *("label", "labels", "gold_label", "class", "category", "target", "sentiment", "intent"),
    *("topic", "polarity", "is_duplicate", "quality", "stars", "rating", "score", "answer", "y"),
    *("relevance", "rel", "grade"),
)
GROUPS = ("query_id", "qid", "query-id", "topic_id", "group")


@dataclass(frozen=True, kw_only=True)
class Columns(Config):
    """Where a table keeps its texts and labels: names, or numbers from 0 for one without header.

    A column left out is looked for by the usual names, a second text only when `text` is left out
    as well. A CSV or TSV of two columns without header (``ham<TAB>text``) is recognised when one
    column has few values, the first row's among them, that repeat.
    """

    text: str | None = None
    """the text, or the first of a pair"""
    text_pair: str | None = None
    """the second text of a pair"""
    label: str | None = None
    """the class, number or relevance"""
    labels: tuple[str, ...] = ()
    """several columns of 0 and 1, each named for its class (multi-label)"""
    id: str | None = None
    """what names a row; no two rows may have the same"""
    group: str | None = None
    """of pairs to be ranked, what names the query; without it, the query's text"""
    layout: Literal["table", "label-first"] = "table"
    """label-first: lines of a label, a blank and a text, as in TREC and any .label file"""
    label_until: str | None = None
    """keep the label up to this sign only, as the colon in ENTY:animal"""
    encoding: Encoding = "utf-8"
    """of the file's text"""

    def __post_init__(self) -> None:
        if self.label is not None and self.labels:
            raise ConfigError("both a label's column and several of 0 and 1", remedy="name one")

    def named(self) -> list[str]:
        """The columns that were named."""
        single = (self.text, self.text_pair, self.label, self.id, self.group)
        return [name for name in (*single, *self.labels) if name is not None]


USUAL = Columns()


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where the columns stand in a table's head."""

    text: int
    text_pair: int | None = None
    label: int | None = None
    labels: tuple[int, ...] = ()
    id: int | None = None
    group: int | None = None
    header: bool = True

    def roles(self) -> dict[str, int]:
        """The single columns that exist, by what they hold, in the order of `pick`."""
        roles = ("text", "text_pair", "label", "id", "group")
        found = {role: getattr(self, role) for role in roles}
        return {role: place for role, place in found.items() if place is not None}

    def pick(self) -> Pick:
        """The columns to read: those of `roles`, then the labels."""
        columns = (*self.roles().values(), *self.labels)
        optional = frozenset() if self.label is None else frozenset({self.label})
        return Pick(columns=columns, header=self.header, optional=optional)


def place(
    head: Head, columns: Columns, file: TextFile, *, need_label: bool, grouped: bool = False
) -> Places:
    """Find the columns in a table's head; raises the file's error when that is not possible.

    What names the query is looked for when rows are `grouped`.
    """
    given = columns.named()
    if head.delimited and any(_is_number(name, head) for name in given):
        return _numbered(head, columns, file, need_label=need_label)
    for name in given:
        if index_of(head.names, name) is None:
            remedy = f"name one of its columns: {listed(head.names)}"
            raise file.fault(f"no column {name!r}", 1, remedy)
    text, text_pair = _texts(head.names, columns)
    label = None
    if not columns.labels:
        label = _first(head.names, LABELS if columns.label is None else (columns.label,))
    if text is None and label is None and not given and head.delimited:
        return _headless(head, file)
    if text is None:
        raise _unfound("text", head, file)
    if label in (text, text_pair):
        label = None
    if label is None and not columns.labels and need_label:
        raise _unfound("label", head, file)
    return Places(
        text=text,
        text_pair=text_pair,
        label=label,
        labels=tuple(_known(head, name) for name in columns.labels),
        id=None if columns.id is None else _known(head, columns.id),
        group=_first(head.names, (columns.group,) if columns.group else GROUPS * grouped),
    )


def _known(head: Head, name: str) -> int:
    index = index_of(head.names, name)
    assert index is not None
    return index


def _first(names: Sequence[str], wanted: Sequence[str]) -> int | None:
    found = (index_of(names, name) for name in wanted)
    return next((index for index in found if index is not None), None)


def _texts(names: Sequence[str], columns: Columns) -> tuple[int | None, int | None]:
    pair = None if columns.text_pair is None else index_of(names, columns.text_pair)
    if columns.text is not None:
        return index_of(names, columns.text), pair
    if pair is not None:
        usual = tuple(name for name in FIRSTS if index_of(names, name) != pair)
        return _first(names, usual), pair
    for first, second in PAIRS:
        if (one := index_of(names, first)) is not None:
            other = index_of(names, second)
            if other is not None:
                return one, other
    return _first(names, FIRSTS), None


def _is_number(name: str, head: Head) -> bool:
    return name.isdecimal() and index_of(head.names, name) is None


def _numbered(head: Head, columns: Columns, file: TextFile, *, need_label: bool) -> Places:
    """Columns by number: the table has no header, unless its cells are the usual names."""

    def number_of(name: str | None) -> int | None:
        number = None if name is None else index_of(head.names, name)
        if name is not None and number is None:
            if not name.isdecimal() or int(name) >= len(head.names):
                remedy = f"its {len(head.names)} columns are numbered from 0"
                raise file.fault(f"no column {name!r}", 1, remedy)
            number = int(name)
        return number

    text, label = number_of(columns.text), number_of(columns.label)
    if text is None:
        raise file.fault("no column was named for the text", 1, "give its number, from 0")
    if label is None and not columns.labels and need_label:
        raise file.fault("no column was named for the label", 1, "give its number, from 0")
    text_pair = number_of(columns.text_pair)
    chosen = [index for index in (text, text_pair, label) if index is not None]
    usual = {*TEXTS, *LABELS, *(name for pair in PAIRS for name in pair)}
    return Places(
        text=text,
        text_pair=text_pair,
        label=label,
        labels=tuple(index for index in map(number_of, columns.labels) if index is not None),
        id=number_of(columns.id),
        group=number_of(columns.group),
        header=all(head.names[index].strip().casefold() in usual for index in chosen),
    )


def _headless(head: Head, file: TextFile) -> Places:
    """Two columns without header: the one with few values that repeat is the label."""
    if len(head.names) == 2:
        rows = [row for row in head.sample if len(row) == 2]
        values = [{row[index].strip() for row in rows} for index in range(2)]
        label = 0 if len(values[0]) < len(values[1]) else 1
        again = any(row[label].strip() == rows[0][label].strip() for row in rows[1:])
        if 5 * len(values[label]) <= len(rows) and again:
            return Places(text=1 - label, label=label, header=False)
    raise _unfound("text", head, file)


def _unfound(role: str, head: Head, file: TextFile) -> UserError:
    remedy = f"name it with --{role}-column; the columns are: {listed(head.names)}"
    if head.delimited:
        remedy += "; in a file without header, columns are named by number, from 0"
    return file.fault(f"no column that looks like the {role}", 1, remedy)
