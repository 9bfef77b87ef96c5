"""Which columns of a table hold the text, its second half, the label and what else is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bertsmith.core.config import Config
from bertsmith.core.errors import ConfigError, UserError
from bertsmith.text.encodings import AUTO, check_encoding
from bertsmith.text.examples.example import LabelStart
from bertsmith.text.headers import (
    NAMED,
    Header,
    HeaderOption,
    check_unique,
    column_of,
    index_of,
    is_categorical,
    is_number,
    is_position,
    listed,
    positions,
    stated_header,
    undecided,
)
from bertsmith.text.opening import TextFile
from bertsmith.text.tables import Head, Pick

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
USUAL_NAMES = frozenset(
    (*FIRSTS, *LABELS, *GROUPS, *(second for _, second in PAIRS), "id", "idx", "index")
)
"""Names in lower case that show a first line to be a header."""


@dataclass(frozen=True, kw_only=True)
class Columns(Config):
    """Where a table keeps its texts and labels: names, or in a CSV or TSV positions from 0.

    A column left out is looked for by the usual names, a second text only when `text` is left out
    as well. Of a CSV or TSV of two columns without header (``ham<TAB>text``) the label is the
    column of few values that repeat, or the one of numbers.
    """

    text: str | None = None
    """column of the text, or of a pair's first: a name or, in CSV and TSV, a position from 0"""
    text_pair: str | None = None
    """column of the second text of a pair"""
    label: str | None = None
    """column of the class, number or relevance"""
    labels: tuple[str, ...] = ()
    """several columns of 0 and 1, each named for its class (multi-label)"""
    id: str | None = None
    """what names a row; no two rows may have the same"""
    group: str | None = None
    """of pairs to be ranked, what names the query; without it, the query's text; of words
    with tags, what names the sentence"""
    header: HeaderOption = "auto"
    """whether the first line of a CSV or TSV is a header, with the names of its columns: yes, no,
    or auto, which decides by the first lines and says what it found"""
    layout: Literal["table", "label-first"] = "table"
    """label-first: lines of a label, a blank and a text, as in TREC and any .label file"""
    label_until: str | None = None
    """keep the label up to this sign only, as the colon in ENTY:animal"""
    label_separator: Literal["auto", "|", ",", ";"] = "auto"
    """what stands between several labels in a cell; auto is |, or commas if labels recur"""
    label_start: LabelStart = "auto"
    """of multiple choice, what numeric labels count from: 0, 1, or auto, as all labels show"""
    encoding: str = AUTO
    """of the file's text, such as latin-1, cp1252, utf-16 or gb18030; auto is UTF-8, what a byte
    order mark says, or a guess that is said"""
    classes: tuple[str, ...] = ()
    """the only classes to read examples of, with commas between; of several labels, the only
    labels"""
    exclude: tuple[str, ...] = ()
    """classes to leave out, with commas between"""

    def __post_init__(self) -> None:
        check_encoding(self.encoding)
        if self.label is not None and self.labels:
            raise ConfigError("both a label's column and several of 0 and 1", remedy="name one")

    def named(self) -> list[str]:
        """The columns that were named."""
        single = (self.text, self.text_pair, self.label, self.id, self.group)
        return [name for name in (*single, *self.labels) if name is not None]

    def check_named(self, path: Path) -> None:
        """Raise `ConfigError` where a file in which every value has its name is to have none."""
        if self.header == "no":
            what = "--header no means nothing for JSON and Parquet, in which every value has a name"
            raise ConfigError(what, where=path, remedy="leave it out")

    def check_read(self, path: Path | str, reader: str, *fields: str) -> None:
        """Raise `ConfigError` where a column or header is stated that is not among `fields`.

        `reader` is the task or kind of file that reads those fields only.
        """
        unread = [
            name
            for name in _OPTIONS
            if name not in fields and getattr(self, name) != getattr(USUAL, name)
        ]
        if not unread:
            return
        options = [_OPTIONS[name] for name in _OPTIONS if name in fields]
        known = f"leave it out; {', '.join(options)} can be given" if options else "leave it out"
        what = f"{_OPTIONS[unread[0]]} means nothing for {reader}"
        raise ConfigError(what, where=path, remedy=known)


USUAL = Columns()
_OPTIONS = {
    "text": "--text-column",
    "text_pair": "--text-pair-column",
    "label": "--label-column",
    "labels": "--columns.labels",
    "id": "--columns.id",
    "group": "--columns.group",
    "header": "--header",
}
"""Settings that say where the parts of a row stand, as the command names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where the columns stand in a table, and what its first line is."""

    text: int
    text_pair: int | None = None
    label: int | None = None
    labels: tuple[int, ...] = ()
    label_names: tuple[str, ...] = ()
    id: int | None = None
    group: int | None = None
    header: Header = NAMED

    def roles(self) -> dict[str, int]:
        """The single columns that exist, by what they hold, in the order of `pick`."""
        roles = ("text", "text_pair", "label", "id", "group")
        found = {role: getattr(self, role) for role in roles}
        return {role: place for role, place in found.items() if place is not None}

    def pick(self) -> Pick:
        """The columns to read: those of `roles`, then the labels."""
        columns = (*self.roles().values(), *self.labels)
        optional = frozenset() if self.label is None else frozenset({self.label})
        return Pick(columns=columns, header=self.header.present is not False, optional=optional)


def place(
    head: Head, columns: Columns, file: TextFile, *, need_label: bool, grouped: bool = False
) -> Places:
    """Find the columns in a table's head; raises the file's error when that is not possible.

    What names the query is looked for when rows are `grouped`.
    """
    header = header_of(head, columns, file)
    given = {
        role: column_of(name, head.names, header, file)
        for role in ("text", "text_pair", "label", "id", "group")
        if (name := getattr(columns, role)) is not None
    }
    labels = tuple(column_of(name, head.names, header, file) for name in columns.labels)
    _check_distinct(given, labels, file)
    if header.present is None and (given or labels):
        raise undecided(header, head.names, file)
    if header.present is False or header.counted:
        found = _by_content(head, header, given, file, need_label=need_label and not labels)
    else:
        found = _by_usual_names(head, given, columns, grouped=grouped)
        for role, index in found.items():
            if role not in given:
                check_unique(index, head.names, header, file)
    for role in ("text", *["label"] * (need_label and not labels)):
        if role not in found:
            raise _missing(role, head, header, file)
    return Places(
        **found,
        labels=labels,
        label_names=tuple(map(_label_name(head, header), columns.labels, labels)),
        header=header,
    )


def header_of(head: Head, columns: Columns, file: TextFile) -> Header:
    """Return what the first line of a table is."""
    if not head.delimited:
        columns.check_named(file.path)
        return NAMED
    return stated_header(columns.header, head.sample, columns.named(), USUAL_NAMES)


def _label_name(head: Head, header: Header) -> Callable[[str, int], str]:
    """Return what makes a label's name of the name or the number that was given for its column."""

    def name_of(given: str, index: int) -> str:
        named = header.present and not header.counted
        return head.names[index].strip() if named and is_position(given) else given

    return name_of


def _check_distinct(given: Mapping[str, int], labels: Sequence[int], file: TextFile) -> None:
    held = [(role, index) for role, index in given.items() if role != "group"]
    for role, index in held:
        other = next((name for name, place in held if place == index and name != role), None)
        if other or index in labels:
            both = f"{role} and {other or 'a label'}".replace("_", " ")
            what = f"column {index}, counted from 0, is named for {both}"
            raise file.fault(what, 1, "name a column of its own for each")


def _by_usual_names(
    head: Head, given: Mapping[str, int], columns: Columns, *, grouped: bool
) -> dict[str, int]:
    """Columns by role: those given, and others by the names that they usually have."""
    found = dict(given)
    # a column that was given for one role is none of the others
    names = ["" if index in given.values() else name for index, name in enumerate(head.names)]
    if "text" not in given:
        text, text_pair = _texts(names, paired="text_pair" in given)
        found |= {"text": text} if text is not None else {}
        found |= {"text_pair": text_pair} if text_pair is not None else {}
    if "label" not in given and not columns.labels:
        label = first_of(names, LABELS)
        if label is not None and label not in found.values():
            found["label"] = label
    if "group" not in given and grouped:
        group = first_of(head.names, GROUPS)
        found |= {"group": group} if group is not None else {}
    return found


def first_of(names: Sequence[str], wanted: Sequence[str]) -> int | None:
    """Return where the first of the wanted names stands."""
    found = (index_of(names, name) for name in wanted)
    return next((index for index in found if index is not None), None)


def _texts(names: Sequence[str], *, paired: bool) -> tuple[int | None, int | None]:
    """Return where the text stands, and the second text unless one was given."""
    for first, second in () if paired else PAIRS:
        if (one := index_of(names, first)) is not None:
            other = index_of(names, second)
            if other is not None:
                return one, other
    return first_of(names, FIRSTS), None


def _by_content(
    head: Head, header: Header, given: Mapping[str, int], file: TextFile, *, need_label: bool
) -> dict[str, int]:
    """Columns by role where there are no names: those given, and what two columns leave open."""
    found, width = dict(given), len(head.names)
    rows = [row for row in head.sample[header.present is True :] if len(row) == width]
    left = [index for index in range(width) if index not in found.values()]
    if "text" not in found and "label" not in found and not need_label and width == 1:
        found["text"] = 0
    elif width == 2 and not found:
        label = _label_column([[row[index].strip() for row in rows] for index in range(2)])
        if label is None:
            what = f"no telling which column is the text and which the label; {header.reason}"
            raise file.fault(what, 1, _by_position(head))
        found |= {"text": 1 - label, "label": label}
    elif width == 2 and len(left) == 1 and set(found) < {"text", "label"}:
        missing = "label" if "text" in found else "text"
        if missing == "text" or need_label:
            found[missing] = left[0]
    return found


def _label_column(columns: Sequence[Sequence[str]]) -> int | None:
    """Return which of two columns is the label: the one of few values, or of numbers."""
    kinds = [len(set(column)) for column in columns]
    label = 0 if kinds[0] < kinds[1] else 1
    if is_categorical(columns[label]) and kinds[0] != kinds[1]:
        return label
    numeric = [all(map(is_number, column)) for column in columns]
    if len(columns[0]) > 1 and sum(numeric) == 1:
        return numeric.index(True)
    return None


def _by_position(head: Head) -> str:
    return (
        "name them by position, from 0, such as --text-column 1 --label-column 0: "
        f"{positions(head.names)}"
    )


def _missing(role: str, head: Head, header: Header, file: TextFile) -> UserError:
    if header.present is False or header.counted:
        what = f"no column was named for the {role}; "
        what += header.reason if header.counted else f"it has no header: {header.reason}"
        return file.fault(what, 1, _by_position(head))
    if head.delimited and len(head.names) == 1 and any(each in head.names[0] for each in ",;|"):
        what = f"has no tabs, so one column only, {head.names[0][:40]!r}"
        return file.fault(what, 1, "if commas stand between its columns, name the file .csv")
    remedy = f"name it with --{role}-column; the columns are: {listed(head.names)}"
    if header.present is None:
        remedy += "; if its first line is no header, add --header no and name columns by position"
    return file.fault(f"no column that looks like the {role}", 1, remedy)
