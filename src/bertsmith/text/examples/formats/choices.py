"""Columns of tables with multiple-choice questions: context, question, options and label."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertsmith.core.errors import ExampleError, UserError
from bertsmith.core.log import say
from bertsmith.text.bad_rows import FAIL, BadRows, Refuse, examples_missing
from bertsmith.text.examples.columns import USUAL, Columns, first_of
from bertsmith.text.examples.example import BadLabel, class_of, label_start, text_of
from bertsmith.text.examples.formats.mctest import answers_of, has_stories, story_items
from bertsmith.text.examples.formats.xml_items import copa_items
from bertsmith.text.headers import (
    NAMED,
    Header,
    column_of,
    described_columns,
    detect_header,
    index_of,
    is_categorical,
    is_number,
    listed,
)
from bertsmith.text.opening import TextFile, kind_of
from bertsmith.text.structured import literal
from bertsmith.text.tables import TABLES, Head, Pick, Table

_ASKED = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}
_UNKNOWN = (None, "-1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A text and two options or more, of which one is right where that is known.

    Option i is the pair (`text`, `choices[i]`); `label` counts from 0.
    """

    text: str
    choices: tuple[str, ...]
    label: int | None
    id: str | None
    source: str
    line: int
    context: str | None = None
    """What other questions may be about too, where there is a question besides."""


def made_choice(
    file: TextFile, line: int, parts: Mapping[str, object], *, need_label: bool, start: int = 0
) -> Choice:
    """The question of `context`, `question`, `options` and `label`; the file's error if it is none.

    `begins` is a text that all options go on from; numeric labels count from `start`.
    """
    asked, texts, names = _asked(file, line, parts)
    if parts.get("begins"):
        begins = text_of(file, line, "second sentence", parts["begins"])
        texts = [f"{begins} {text}" for text in texts]
    context = parts.get("context")
    try:
        name = class_of(parts.get("id"))
        label = _label(class_of(parts.get("label")), texts, names, start)
    except BadLabel as error:
        raise file.fault(error.what, line, error.remedy) from error
    if label is None and need_label:
        raise file.fault("no label", line, "give every row a label")
    return Choice(
        text=_text(file, line, context, asked),
        choices=tuple(texts),
        label=label,
        id=name,
        source=str(file.path),
        line=line,
        context=text_of(file, line, "text", context) if context and asked else None,
    )


def numeric_label(file: TextFile, line: int, parts: Mapping[str, object]) -> tuple[int, int] | None:
    """Return a label that is a number, and the number of options; None of others.

    A label that is the name or the text of an option is none: it says nothing of how others count.
    """
    try:
        _, texts, names = _asked(file, line, parts)
        written = class_of(parts.get("label"))
    except (UserError, BadLabel):
        return None
    if written is None or not _is_number(written) or written in names:
        return None
    return None if texts.count(written) == 1 else (int(written), len(texts))


def _asked(
    file: TextFile, line: int, parts: Mapping[str, object]
) -> tuple[object, list[str], list[str | None]]:
    """Return the question, and the texts and names of the options."""
    asked, options = parts.get("question"), parts.get("options")
    if isinstance(asked, dict):  # as in CommonsenseQA and ARC: {"stem": ..., "choices": [...]}
        options = asked.get("choices", options)
        asked = asked.get("stem")
    return asked, *_options(file, line, options)


def _text(file: TextFile, line: int, context: object, asked: object) -> str:
    if context is None:
        return text_of(file, line, "question", asked)
    text = text_of(file, line, "text", context)
    if asked is None or asked == "":
        return text
    question = text_of(file, line, "question", asked)
    return f"{text} {_ASKED.get(question, question)}"


def _options(file: TextFile, line: int, options: object) -> tuple[list[str], list[str | None]]:
    """Texts and, where they have any, names of the options."""
    remedy = 'write "choices": ["...", "..."], two or more'
    if isinstance(options, str):
        try:
            options = literal(options)
        except ValueError as error:
            raise file.fault("the options are no list", line, remedy) from error
    if isinstance(options, dict):  # columns of texts and names
        texts, names = options.get("text"), options.get("label")
        if not isinstance(texts, list) or not isinstance(names, list) or len(texts) != len(names):
            raise file.fault("the options are no list", line, remedy)
        options = [{"text": text, "label": name} for text, name in zip(texts, names, strict=True)]
    if not isinstance(options, list) or len(options) < 2:
        raise file.fault("fewer than two options, or no list of them", line, remedy)
    found: list[dict[str, object]] = [
        each if isinstance(each, dict) else {"text": each} for each in options
    ]
    texts = [
        text_of(file, line, f"option {index}", each.get("text")) for index, each in enumerate(found)
    ]
    named = [each.get("label") for each in found]
    return texts, [name if isinstance(name, str) else None for name in named]


def _is_number(written: str) -> bool:
    return written.isascii() and written.isdecimal() and len(written) < 5


def _label(
    written: str | None, texts: Sequence[str], names: Sequence[str | None], start: int
) -> int | None:
    if written in _UNKNOWN:
        return None
    if written in names:
        return names.index(written)
    if _is_number(written) and 0 <= int(written) - start < len(texts):
        return int(written) - start
    letter = ord(written.upper()) - ord("A") if len(written) == 1 else -1
    if 0 <= letter < len(texts):
        return letter
    if texts.count(written) == 1:
        return texts.index(written)
    remedy = (
        f"numbers are {start} to {len(texts) - 1 + start} (--columns.label_start states where they "
        "begin); or give a letter, or the option's text"
    )
    raise BadLabel(f"the label is {written[:40]!r}, and there are {len(texts)} options", remedy)


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
    question, context = _asked_columns(names, given)
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


def _asked_columns(names: Sequence[str], given: dict[str, int]) -> tuple[int | None, int | None]:
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
