"""The columns of a table that hold text, second text, label, id and group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from bertsmith.core.errors import UserError
from bertsmith.text.config import Columns
from bertsmith.text.examples.example import written_by_prodigy
from bertsmith.text.headers import (
    NAMED,
    Header,
    check_unique,
    column_of,
    header_below,
    index_of,
    is_categorical,
    is_number,
    is_position,
    is_quoted,
    listed,
    positions,
    stated_header,
    undecided,
)
from bertsmith.text.opening import TextFile, kind_of
from bertsmith.text.tables import ColumnSelection, TableHead

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
# other things beside a column with the name of a text, such as the numbers of a questionnaire
_LOOSE_PAIRS = (
    ("question", "context"),
    ("claim", "evidence"),
    ("context", "response"),
    ("prompt", "response"),
    ("sent1", "sent2"),
    ("s1", "s2"),
    ("q1", "q2"),
)
# with a label beside them; alone, the answer may be what is learned
_MAYBE_PAIRS = (("question", "answer"), ("query", "answer"))
TEXTS = (
    *("text", "sentence", "review", "content", "question", "comment", "message", "tweet", "body"),
    *("document", "utterance", "query", "description", "abstract", "title", "headline"),
)
FIRSTS = (*TEXTS, *(first for first, _ in PAIRS))
LABELS = (
    *("label", "labels", "gold_label", "class", "category", "target", "sentiment", "intent"),
    *("topic", "polarity", "is_duplicate", "quality", "stars", "rating", "score", "y"),
    *("topics", "genres", "categories", "emotions", "relevance", "rel", "grade", "answer"),
)
# its "answer" judges an annotation, and "accept" lists the options that were chosen
_OF_PRODIGY = ("accept", *(name for name in LABELS if name != "answer"))
GROUPS = ("query_id", "qid", "query-id", "topic_id", "group")
USUAL_NAMES = frozenset(
    (*FIRSTS, *LABELS, *GROUPS, *chain.from_iterable((*PAIRS, *_LOOSE_PAIRS)), "id", "idx", "index")
)
"""Names in lower case that are evidence of a header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnIndices:
    """The positions of the columns of a table, and its header."""

    text: int
    text_pair: int | None = None
    label: int | None = None
    labels: tuple[int, ...] = ()
    label_names: tuple[str, ...] = ()
    id: int | None = None
    group: int | None = None
    header: Header = NAMED

    def roles(self) -> dict[str, int]:
        """Return the existing single columns by role, in the order of `select_columns`."""
        roles = ("text", "text_pair", "label", "id", "group")
        positions = {role: getattr(self, role) for role in roles}
        return {role: index for role, index in positions.items() if index is not None}

    def select_columns(self) -> ColumnSelection:
        """Return the columns to read: those of `roles`, then the labels."""
        columns = (*self.roles().values(), *self.labels)
        optional = frozenset() if self.label is None else frozenset({self.label})
        return ColumnSelection(
            columns=columns, header=self.header.present is not False, optional=optional
        )


def locate_columns(
    head: TableHead, columns: Columns, file: TextFile, *, need_label: bool, grouped: bool = False
) -> ColumnIndices:
    """Find the columns in a table's head.

    The column of the query's name is looked for only if rows are `grouped`. Raises the file's error
    if they cannot be found.
    """
    header = header_of(head, columns, file)
    roles = ("text", "text_pair", "label", "id", "group")
    given = given_columns(columns, roles, head.names, header, file)
    labels = tuple(column_of(name, head.names, header, file) for name in columns.labels)
    _check_distinct(given, labels, file)
    if header.present is None and (given or labels):
        raise undecided(header, head.names, file)
    if header.present is False or header.counted:
        indices = _by_content(head, header, given, file, need_label=need_label and not labels)
    else:
        indices = _by_usual_names(head, given, columns, grouped=grouped)
        for role, index in indices.items():
            if role not in given:
                check_unique(index, head.names, header, file)
        if need_label and "text" not in given and "text_pair" not in indices:
            _check_no_answers(head.names, indices, file)
    for role in ("text", *["label"] * (need_label and not labels)):
        if role not in indices:
            guess = None if "text" in given else indices.get("text")
            raise _missing(role, head, header, file, guess, need_label=need_label)
    named = header.present and not header.counted
    label_names = tuple(
        head.names[index].strip() if named and is_position(name) else name
        for name, index in zip(columns.labels, labels, strict=True)
    )
    return ColumnIndices(**indices, labels=labels, label_names=label_names, header=header)


def given_columns(
    columns: Columns, roles: Sequence[str], names: Sequence[str], header: Header, file: TextFile
) -> dict[str, int]:
    """Return the positions of the columns that are given for `roles`, by role."""
    return {
        role: column_of(name, names, header, file)
        for role in roles
        if (name := getattr(columns, role)) is not None
    }


def header_of(head: TableHead, columns: Columns, file: TextFile) -> Header:
    """Return the header of a table."""
    if not head.delimited:
        columns.check_named(file.path)
        return NAMED
    return stated_header(columns.header, head.sample, columns.named(), USUAL_NAMES)


def _check_distinct(named: Mapping[str, int], labels: Sequence[int], file: TextFile) -> None:
    held = [(role, index) for role, index in named.items() if role != "group"]
    for role, index in held:
        other = next(
            (name for name, other_index in held if other_index == index and name != role), None
        )
        if other or index in labels:
            both = f"{role} and {other or 'a label'}".replace("_", " ")
            problem = f"column {index}, counted from 0, is named for {both}"
            raise file.fault(problem, 1, "name a different column for each")


def _by_usual_names(
    head: TableHead, named: Mapping[str, int], columns: Columns, *, grouped: bool
) -> dict[str, int]:
    """Return the columns by role: those given, and others by their usual names."""
    indices = dict(named)
    # a column given for one role has no other role, but rows may be grouped by any
    given = {index for role, index in named.items() if role != "group"}
    names = ["" if index in given else name for index, name in enumerate(head.names)]
    if "text" not in named:
        text, text_pair = _texts(names, paired="text_pair" in named)
        indices |= {"text": text} if text is not None else {}
        indices |= {"text_pair": text_pair} if text_pair is not None else {}
    if "label" not in named and not columns.labels:
        label = first_of(names, _OF_PRODIGY if written_by_prodigy(head.names) else LABELS)
        if label is not None and label not in indices.values():
            indices["label"] = label
    if "group" not in named and grouped:
        group = first_of(head.names, GROUPS)
        indices |= {"group": group} if group is not None else {}
    return indices


def _check_no_answers(names: Sequence[str], indices: Mapping[str, int], file: TextFile) -> None:
    """Raise the file's error for texts beside answers to them, which are not the labels."""
    for first, second in _MAYBE_PAIRS:
        text, other = indices.get("text"), index_of(names, second)
        is_text = text is not None and text == index_of(names, first)
        if is_text and other not in (None, indices.get("label")):
            raise file.fault(
                f"{first!r} and {second!r} may be pairs, or the text may be {first!r} alone",
                1,
                f"pass --text-column {first} --text-pair-column {second}, or --text-column {first}",
            )


def first_of(names: Sequence[str], wanted: Sequence[str]) -> int | None:
    """Return the index of the first wanted name that is among the names, or None."""
    indices = (index_of(names, name) for name in wanted)
    return next((index for index in indices if index is not None), None)


def _texts(names: Sequence[str], *, paired: bool) -> tuple[int | None, int | None]:
    """Return the columns of the text and of the second text, unless that was given."""
    alone = first_of(names, FIRSTS)
    for first, second in () if paired else (*PAIRS, *_LOOSE_PAIRS):
        if (one := index_of(names, first)) is not None:
            other = index_of(names, second)
            clear = (first, second) in PAIRS or alone in (None, one, other)
            if other is not None and clear:
                return one, other
    return alone, None


def _by_content(
    head: TableHead, header: Header, named: Mapping[str, int], file: TextFile, *, need_label: bool
) -> dict[str, int]:
    """Return the columns by role without names: those given, and the others of two columns."""
    indices, width = dict(named), len(head.names)
    rows = [row for row in head.sample[header.present is True :] if len(row) == width]
    unused = [index for index in range(width) if index not in indices.values()]
    if "text" not in indices and "label" not in indices and not need_label and width == 1:
        indices["text"] = 0
    elif width == 2 and not indices:
        label = _label_column([[row[index].strip() for row in rows] for index in range(2)])
        if label is None:
            columns = "the columns of text and label" if need_label else "its two columns"
            problem = f"{columns} cannot be told apart: "
            problem += f"{'a' if header.present else 'no'} header ({header.reason})"
            raise file.fault(problem, 1, _by_position(head, need_label=need_label))
        indices |= {"text": 1 - label, "label": label}
    elif width == 2 and len(unused) == 1 and set(indices) < {"text", "label"}:
        missing = "label" if "text" in indices else "text"
        if missing == "text" or need_label:
            indices[missing] = unused[0]
    return indices


def _label_column(columns: Sequence[Sequence[str]]) -> int | None:
    """Return the index of the label of two columns: that of few values, or of numbers, or None."""
    kinds = [len(set(column)) for column in columns]
    label = 0 if kinds[0] < kinds[1] else 1
    if is_categorical(columns[label]) and kinds[0] != kinds[1]:
        return label
    numeric = [all(map(is_number, column)) for column in columns]
    if len(columns[0]) > 1 and sum(numeric) == 1:
        return numeric.index(True)
    return None


def _by_position(head: TableHead, *, need_label: bool) -> str:
    """Return the remedy for columns without names; only where labels are needed, one has them."""
    named = (
        "them by position, from 0, such as --text-column 1 --label-column 0"
        if need_label
        else "the text by position, from 0, such as --text-column 0, or of pairs "
        "--text-column 0 --text-pair-column 1"
    )
    return f"name {named}: {positions(head.names)}"


def _missing(
    role: str,
    head: TableHead,
    header: Header,
    file: TextFile,
    text: int | None,
    *,
    need_label: bool,
) -> UserError:
    """Return the error for a missing column; `text` is that of the text, if it is a guess."""
    if header.present is False or header.counted:
        problem = f"no column is given for the {role}; "
        problem += header.reason if header.counted else f"it has no header: {header.reason}"
        return file.fault(problem, 1, _by_position(head, need_label=need_label))
    if head.delimited and len(head.names) == 1 and any(sign in head.names[0] for sign in ",;|"):
        problem = f"has no tabs, so one column only, {head.names[0][:40]!r}"
        return file.fault(problem, 1, "if its columns are separated by commas, name the file .csv")
    if head.delimited and kind_of(file.path) != ".csv" and any(map(is_quoted, head.names)):
        problem = f"no column that looks like the {role}, as their names are in quotes"
        remedy = f"name the file .csv to have them removed; the columns are: {listed(head.names)}"
        return file.fault(problem, 1, remedy)
    more = ""
    if role == "label" and text is not None:
        more = f" (the text is {head.names[text][:40]!r})"
    remedy = f"name it with --{role}-column{more}; the columns are: {listed(head.names)}"
    if header.present is None:
        remedy += "; if its first line is not a header, add --header no and columns by position"
    if role == "text":
        remedy += "; name the second text of a pair with --text-pair-column"
    remedy = header_below(head.sample, USUAL_NAMES) or remedy
    return file.fault(f"no column that looks like the {role}", 1, remedy)
