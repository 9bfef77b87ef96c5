"""Columns of tables with multiple-choice questions: context, question, options and label."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bertsmith.text.columns import Columns, first_of
from bertsmith.text.headers import (
    NAMED,
    Header,
    column_of,
    detect_header,
    index_of,
    is_categorical,
    is_number,
    listed,
)
from bertsmith.text.opening import TextFile
from bertsmith.text.tables import Head

LISTS = ("choices", "options", "endings", "alternatives")
_NUMBERED = re.compile(
    r"(ending|choice|option|alternative|answer|a)[ _-]?(\d{1,4})"
    r"|(ending|choice|option|alternative)[ _-]?([a-j])",
    re.IGNORECASE,
)
_LETTERS = "ABCDEFGHIJ"
_LABELS = ("label", "answer", "answerkey", "gold", "correct", "answer_index", "gold_label")
_IDS = ("id", "idx")
_STORIES = ("article", "passage", "story")
_CONTEXTS = ("premise", "sent1", "context", "ctx", *_STORIES, "text", "startphrase")
_QUESTIONS = ("question", "query", "sentence")
READ = ("text", "text_pair", "label", "id", "header")
"""The settings of `Columns` that say where the parts of a question stand."""

NEEDS_HEADER = "write a first line of names above it, such as question,A,B,C,D,label"


def find_options(names: Sequence[str]) -> tuple[int, ...]:
    """Return where the options stand: one column that has them all, or one for each."""
    for name in LISTS:
        if (index := index_of(names, name)) is not None:
            return (index,)
    families: dict[str, list[tuple[int, int]]] = {}
    for index, name in enumerate(names):
        if match := _NUMBERED.fullmatch(name.strip()):
            number = int(match[2]) if match[2] else ord(match[4].lower())
            families.setdefault((match[1] or match[3]).lower(), []).append((number, index))
    wide = [sorted(family) for family in families.values() if len(family) > 1]
    if wide:
        return tuple(index for _, index in max(wide, key=len))
    return _lettered(names)


def _lettered(names: Sequence[str]) -> tuple[int, ...]:
    """Return where A, B, C and so on stand; two such columns alone may be a pair of texts."""
    stripped = [name.strip() for name in names]
    found: list[int] = []
    for letter in _LETTERS:
        if letter not in stripped:
            break
        found.append(stripped.index(letter))
    asked = first_of(names, (*_QUESTIONS, *_CONTEXTS)) is not None
    return tuple(found) if len(found) > 2 or (len(found) == 2 and asked) else ()


def counts_from_zero(names: Sequence[str]) -> bool:
    """Return whether the columns of the options are numbered from 0, as ending0 is."""
    options = [names[index].strip() for index in find_options(names)]
    matches = [_NUMBERED.fullmatch(name) for name in options]
    return any(match is not None and match[2] == "0" for match in matches)


def choice_places(
    head: Head, columns: Columns, file: TextFile, *, need_label: bool
) -> dict[str, int]:
    """Return where the parts of a question stand, by role.

    `columns.text` is the context or, in a table without another column of questions, the question;
    `columns.text_pair` is the question. Raises the file's error where a part is missing, and for a
    table without header.
    """
    names = head.names
    options = find_options(names)
    _check_header(head, columns, file, found=bool(options))
    given = {
        role: column_of(name, names, NAMED if not head.delimited else Header(present=True), file)
        for role in ("text", "text_pair", "label", "id")
        if (name := getattr(columns, role)) is not None
    }
    _check_distinct(given, options, names, file)
    question, context = _asked(names, given)
    label = given.get("label", first_of(names, _LABELS))
    seen = f"the columns are: {listed(names)}"
    if not options and question is None:
        raise file.fault("no columns that look like options", 1, seen)
    if context is None and question is None:
        raise file.fault(
            "no column that looks like the question", 1, f"name it with --text-column; {seen}"
        )
    if label is None and need_label:
        raise file.fault(
            "no column that looks like the label", 1, f"name it with --label-column; {seen}"
        )
    wanted = {"question": question, "context": context, "label": label}
    wanted |= {"begins": index_of(names, "sent2"), "id": given.get("id", first_of(names, _IDS))}
    found = {role: place for role, place in wanted.items() if place is not None}
    if len(options) == 1:
        return found | {"options": options[0]}
    return found | {f"option {number}": place for number, place in enumerate(options)}


def _asked(names: Sequence[str], given: dict[str, int]) -> tuple[int | None, int | None]:
    """Return where the question and the context stand."""
    # a column that was given for one role is none of the others
    free = ["" if index in given.values() else name for index, name in enumerate(names)]
    question = given.get("text_pair", first_of(free, _QUESTIONS))
    if "text" not in given:
        return question, first_of(free, _CONTEXTS)
    if "text_pair" not in given and names[given["text"]].strip().casefold() in _QUESTIONS:
        return given["text"], first_of(free, _CONTEXTS)
    return question, given["text"]


def _check_header(head: Head, columns: Columns, file: TextFile, *, found: bool) -> None:
    """Raise the file's error for a table without names, which tell options from other texts."""
    if not head.delimited:
        columns.check_named(file.path)
        return
    if columns.header == "no":
        what = "multiple choice needs a header, by which options are told from other columns"
        raise file.fault(what, 1, NEEDS_HEADER)
    if columns.header == "auto" and not found:
        header = detect_header(head.sample, {*_QUESTIONS, *_CONTEXTS, *_LABELS, *_IDS})
        if header.present is not True:
            raise file.fault(
                f"no columns that look like options, and no header: {header.reason}", 1,
                NEEDS_HEADER,
            )  # fmt: skip


def _check_distinct(
    given: dict[str, int], options: Sequence[int], names: Sequence[str], file: TextFile
) -> None:
    for role, index in given.items():
        other = next((name for name, place in given.items() if place == index and name != role), "")
        if other or index in options:
            both = f"{role} and {other or 'an option'}".replace("_", " ")
            what = f"the column {names[index][:40]!r} is named for {both}"
            raise file.fault(what, 1, "name a column of its own for each")


def looks_like_options(head: Head) -> bool:
    """Return whether a table without header seems to hold a question, options and a label a row.

    One column holds letters from A on or small numbers, three others or more hold texts.
    """
    rows = [row for row in head.sample if len(row) == len(head.names)]
    columns = [[row[index].strip() for row in rows] for index in range(len(head.names))]
    if len(rows) < 2:
        return False
    texts = [
        each for each in columns
        if not is_categorical(each) and not all(map(is_number, each)) and max(map(len, each)) > 1
    ]  # fmt: skip
    marks = {*_LETTERS[: len(texts)], *map(str, range(len(texts) + 1))}
    labels = [each for each in columns if set(each) <= marks and len(set(each)) > 1]
    return len(texts) > 2 and len(labels) == 1
