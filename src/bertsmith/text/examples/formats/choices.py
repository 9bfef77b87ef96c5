"""Multiple-choice questions in tables, COPA's XML and MCTest's files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertsmith.core.errors import ExampleError, UserError
from bertsmith.core.log import say
from bertsmith.core.printable import counted
from bertsmith.text.bad_rows import FAIL, BadRows, Refuse
from bertsmith.text.config import USUAL, Columns
from bertsmith.text.examples.columns import first_of, given_columns
from bertsmith.text.examples.example import BadLabel, class_of, label_start, located, text_of
from bertsmith.text.examples.formats.mctest import Item, answers_of, has_stories, story_items
from bertsmith.text.examples.formats.xml_items import copa_items
from bertsmith.text.headers import (
    NAMED,
    Header,
    described_columns,
    detect_header,
    index_of,
    is_categorical,
    is_number,
    listed,
)
from bertsmith.text.opening import TextFile, kind_of
from bertsmith.text.structured import literal
from bertsmith.text.tables import TABLES, ColumnSelection, Table, TableHead

_ASKED = {"cause": "What was the cause of this?", "effect": "What happened as a result?"}
_UNKNOWN = (None, "-1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A text and at least two options, with the correct one if known.

    Option i is the pair (`text`, `choices[i]`); `label` counts from 0.
    """

    text: str
    choices: tuple[str, ...]
    label: int | None
    id: str | None
    source: str
    line: int
    context: str | None = None
    """Text that several questions may share, if there is a separate question."""


def made_choice(
    file: TextFile, line: int, parts: Mapping[str, object], *, need_label: bool, start: int = 0
) -> Choice:
    """Build a question of `context`, `question`, `options`, `label`.

    The part `begins` is a text that all options continue; numeric labels count from `start`. Raises
    the file's error.
    """
    question, texts, names = _question(file, line, parts)
    if parts.get("begins"):
        begins = text_of(file, line, "second sentence", parts["begins"])
        texts = [f"{begins} {text}" for text in texts]
    context = parts.get("context")
    with located(file, line):
        name = class_of(parts.get("id"))
    try:
        label = _label(class_of(parts.get("label")), texts, names, start)
    except BadLabel as error:
        if need_label:
            raise file.fault(error.problem, line, error.remedy) from error
        label = None
    if label is None and need_label:
        raise file.fault("no label", line, "give every row a label")
    return Choice(
        text=_text(file, line, context, question),
        choices=tuple(texts),
        label=label,
        id=name,
        source=str(file.path),
        line=line,
        context=text_of(file, line, "text", context) if context and question else None,
    )


def numeric_label(file: TextFile, line: int, parts: Mapping[str, object]) -> tuple[int, int] | None:
    """Return a numeric label and the number of options; None for other labels.

    A label that is the name or text of an option is not numeric: it is no evidence of the start.
    """
    number, texts = _number(file, line, parts) or (None, [])
    return None if number is None or texts.count(str(number)) == 1 else (number, len(texts))


def place_of_number(file: TextFile, line: int, parts: Mapping[str, object]) -> int | None:
    """Return what a label would count from if it is the text of an option, and its number as well.

    None for other labels. Where it is neither 0 nor 1, text and number stand for different options.
    """
    number, texts = _number(file, line, parts) or (0, [])
    if texts.count(str(number)) != 1 or number > len(texts):
        return None
    return number - texts.index(str(number))


def _number(file: TextFile, line: int, parts: Mapping[str, object]) -> tuple[int, list[str]] | None:
    """Return a label that is a number and no option's name, and the texts of the options."""
    try:
        _, texts, names = _question(file, line, parts)
        written = class_of(parts.get("label"))
    except (UserError, BadLabel):
        return None
    if written is None or not _is_number(written) or written in names:
        return None
    return int(written), texts


def _question(
    file: TextFile, line: int, parts: Mapping[str, object]
) -> tuple[object, list[str], list[str | None]]:
    """Return the question, and the texts and names of the options."""
    question, options = parts.get("question"), parts.get("options")
    if isinstance(question, dict):  # as in CommonsenseQA and ARC: {"stem": ..., "choices": [...]}
        options = question.get("choices", options)
        question = question.get("stem")
    return question, *_options(file, line, options)


def _text(file: TextFile, line: int, context: object, question: object) -> str:
    if context is None:
        return text_of(file, line, "question", question)
    text = text_of(file, line, "text", context)
    if question is None or question == "":
        return text
    return with_question(text, text_of(file, line, "question", question))


def with_question(context: str, question: str) -> str:
    """Return a context with the question after it, COPA's cause or effect in words."""
    return f"{context} {_ASKED.get(question, question)}"


def _options(file: TextFile, line: int, options: object) -> tuple[list[str], list[str | None]]:
    """Return the texts of the options and their names, if any."""
    remedy = 'write "choices": ["...", "..."], two or more'
    if isinstance(options, str):
        try:
            options = literal(options)
        except ValueError as error:
            raise file.fault("the options are not a list", line, remedy) from error
    if isinstance(options, dict) and "text" not in options:  # by name: {"A": "...", "B": "..."}
        # Parquet gives every row the keys of all rows
        given = {name: text for name, text in options.items() if text is not None}
        options = [{"text": text, "label": name} for name, text in given.items()]
    if isinstance(options, dict):  # parallel lists of texts and names
        texts, names = options.get("text"), options.get("label")
        if not isinstance(texts, list) or not isinstance(names, list) or len(texts) != len(names):
            raise file.fault("the options are not a list", line, remedy)
        options = [{"text": text, "label": name} for text, name in zip(texts, names, strict=True)]
    if not isinstance(options, list) or len(options) < 2:
        raise file.fault("fewer than two options, or not a list", line, remedy)
    items: list[dict[str, object]] = [
        item if isinstance(item, dict) else {"text": item} for item in _without_blank_end(options)
    ]
    texts = [
        text_of(file, line, f"option {index}", item.get("text")) for index, item in enumerate(items)
    ]
    named = [_name(item.get("label")) for item in items]
    # numbers that repeat are marks of right and wrong
    numbered = any(isinstance(item.get("label"), int | float) for item in items)
    distinct = len({*named}) == len(named)
    return texts, named if distinct or not numbered else [None] * len(named)


def _name(value: object) -> str | None:
    """Return the name of an option, which may be a number."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return class_of(value) if is_number else value if isinstance(value, str) else None


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
    names = [name and name.upper() for name in names]
    if written.upper() in names:
        return names.index(written.upper())
    lettered = all(name and len(name) == 1 and name.isalpha() for name in names)
    is_letter = len(written) == 1 and written.isascii() and not lettered
    letter = ord(written.upper()) - ord("A") if is_letter else -1
    place = texts.index(written) if texts.count(written) == 1 else None
    if 0 <= letter < len(texts):
        if place not in (None, letter) and not any(names):
            raise BadLabel(
                f"the label {written!r} is the letter of option {letter} and the text of {place}, "
                "counted from 0",
                "name the options: {" + f'"A": {texts[0][:20]!r}, ...' + "}, or --on-bad skip "
                "leaves such questions out",
            )
        return letter
    if place is not None:
        return place
    remedy = (
        f"numbers are {start} to {len(texts) - 1 + start} (--label-start states where they "
        "begin); or give a letter, or the option's text"
    )
    raise BadLabel(
        f"the label is {written[:40]!r}, but there are {counted(len(texts), 'option')}", remedy
    )


# that of ARC and CommonsenseQA lies inside the question
LISTS = ("choices", "options", "endings", "alternatives", "question.choices", "answers")
_NUMBERED = re.compile(
    r"(ending|choice|option|opt|alternative|answer|ans|solution|sol|a)[ _-]?(\d{1,4})"
    r"|(ending|choice|option|opt|op|alternative|answer|ans)[ _-]?([a-j])",
    re.IGNORECASE,
)
_LETTERS = "ABCDEFGHIJ"
_LABELS = (
    *("label", "answer", "answerkey", "gold", "correct", "answer_index", "answer_idx"),
    *("gold_label", "correct_answer", "correct_option", "cop"),
)
_IDS = ("id", "idx")
_STORIES = ("article", "passage", "story")
_CONTEXTS = ("premise", "sent1", "context", "ctx", *_STORIES, "text", "startphrase")
_QUESTIONS = ("question", "question_stem", "query", "sentence", "goal")
READ = ("text", "text_pair", "label", "id", "header")
"""Settings of `Columns` that apply to questions."""

NEEDS_HEADER = "add a header, such as question,A,B,C,D,label"


def find_options(names: Sequence[str]) -> tuple[int, ...]:
    """Return the columns of the options: one for all, or one for each."""
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
    """Return the columns A, B, C and so on; two alone may be a pair of texts."""
    stripped = [name.strip() for name in names]
    columns: list[int] = []
    for letter in _LETTERS:
        if letter not in stripped:
            break
        columns.append(stripped.index(letter))
    has_question = first_of(names, (*_QUESTIONS, *_CONTEXTS)) is not None
    return tuple(columns) if len(columns) > 2 or (len(columns) == 2 and has_question) else ()


def counts_from_zero(names: Sequence[str]) -> bool:
    """Return whether the columns of the options are numbered from 0, such as ending0."""
    options = [names[index].strip() for index in find_options(names)]
    matches = [_NUMBERED.fullmatch(name) for name in options]
    return any(match is not None and match[2] == "0" for match in matches)


def choice_places(
    head: TableHead, columns: Columns, file: TextFile, *, need_label: bool
) -> dict[str, int]:
    """Return the columns of the parts of a question, by role.

    `columns.text` is the context or, in a table without a separate question, the question;
    `columns.text_pair` is the question. Raises the file's error if a part or the header is missing.
    """
    names = head.names
    options = find_options(names)
    _check_header(head, columns, file, has_options=bool(options))
    header = Header(present=True) if head.delimited else NAMED
    named = given_columns(columns, ("text", "text_pair", "label", "id"), names, header, file)
    _check_distinct(named, options, names, file)
    question, context = _named_columns(names, named)
    label = named.get("label", first_of(names, _LABELS))
    remedy = f"the columns are: {listed(names)}"
    if not options and question is None:
        raise file.fault("no columns that look like options", 1, remedy)
    if context is None and question is None:
        raise file.fault(
            "no column that looks like the question", 1, f"name it with --text-column; {remedy}"
        )
    if label is None and need_label:
        raise file.fault(
            "no column that looks like the label", 1, f"name it with --label-column; {remedy}"
        )
    wanted = {"question": question, "context": context, "label": label}
    wanted |= {"begins": index_of(names, "sent2"), "id": named.get("id", first_of(names, _IDS))}
    positions = {role: index for role, index in wanted.items() if index is not None}
    if len(options) == 1:
        return positions | {"options": options[0]}
    return positions | {f"option {number}": index for number, index in enumerate(options)}


def _named_columns(names: Sequence[str], named: dict[str, int]) -> tuple[int | None, int | None]:
    """Return the columns of the question and the context."""
    # a column given for one role has no other role
    free = ["" if index in named.values() else name for index, name in enumerate(names)]
    question = named.get("text_pair", first_of(free, _QUESTIONS))
    if "text" not in named:
        return question, first_of(free, _CONTEXTS)
    if "text_pair" not in named and names[named["text"]].strip().casefold() in _QUESTIONS:
        return named["text"], first_of(free, _CONTEXTS)
    return question, named["text"]


def _check_header(head: TableHead, columns: Columns, file: TextFile, *, has_options: bool) -> None:
    """Raise the file's error for a table without header, which is needed to find the options."""
    if not head.delimited:
        columns.check_named(file.path)
        return
    if columns.header == "no":
        problem = "multiple choice needs a header that names the columns of the options"
        raise file.fault(problem, 1, NEEDS_HEADER)
    if columns.header == "auto" and not has_options:
        header = detect_header(head.sample, {*_QUESTIONS, *_CONTEXTS, *_LABELS, *_IDS})
        if header.present is not True:
            raise file.fault(
                f"no columns that look like options, and no header: {header.reason}", 1,
                NEEDS_HEADER,
            )  # fmt: skip


def _check_distinct(
    named: dict[str, int], options: Sequence[int], names: Sequence[str], file: TextFile
) -> None:
    for role, index in named.items():
        other = next((name for name, place in named.items() if place == index and name != role), "")
        if other or index in options:
            both = f"{role} and {other or 'an option'}".replace("_", " ")
            problem = f"the column {names[index][:40]!r} is named for {both}"
            raise file.fault(problem, 1, "name a different column for each")


def looks_like_options(head: TableHead) -> bool:
    """Return whether a table without header appears to hold questions, options and labels.

    One column holds letters from A on or small numbers, and at least three others hold texts.
    """
    rows = [row for row in head.sample if len(row) == len(head.names)]
    columns = [[row[index].strip() for row in rows] for index in range(len(head.names))]
    if len(rows) < 2:
        return False
    texts = [
        cells for cells in columns
        if not is_categorical(cells) and not all(map(is_number, cells)) and max(map(len, cells)) > 1
    ]  # fmt: skip
    marks = {*_LETTERS[: len(texts)], *map(str, range(len(texts) + 1))}
    labels = [cells for cells in columns if set(cells) <= marks and len(set(cells)) > 1]
    return len(texts) > 2 and len(labels) == 1


def read_choices(
    path: Path, columns: Columns = USUAL, *, need_label: bool, bad: BadRows = FAIL
) -> Iterator[Choice]:
    """Yield the questions of a .csv, .tsv, .jsonl or .parquet file, or of COPA's .xml.

    Options are in a list (``choices``, ``options``, ``endings``), in numbered columns (``ending0``,
    ``choice1``) or in columns ``A``, ``B``, ``C``; the label is the letter, the text, or the number
    of the correct one, counted as by `find_label_start`. SWAG's second sentence is prepended to
    each ending, COPA's cause or effect becomes a question in words. A .tsv of MCTest has its
    answers in an .ans file in the same folder. Raises `ExampleError`, with file and line, unless
    `bad` takes the error; a label may be missing or anything else unless `need_label`.
    """
    file = TextFile(path, ExampleError, columns.encoding)

    def rows(refuse: Refuse) -> Iterator[Choice]:
        start = find_label_start(path, columns, need_label=need_label)
        if start and need_label and columns.label_start == "auto":
            say(f"{path.name}: labels count from 1: none is 0 and some are the number of options")
        ids: set[str] = set()
        for line, parts, row in _items(file, columns, refuse, need_label=need_label):
            try:
                choice = made_choice(file, line, parts, need_label=need_label, start=start)
                if choice.id is not None and choice.id in ids:
                    problem = f"the id {choice.id[:40]!r} is used in an earlier row too"
                    raise file.fault(problem, line, "give every row a unique id")
            except UserError as error:
                refuse(error, row)
                continue
            if choice.id is not None:
                ids.add(choice.id)
            yield choice

    return bad.read(file, rows)


def find_label_start(path: Path, columns: Columns, *, need_label: bool = True) -> int:
    """Return the start of the numeric labels of a file, 0 or 1.

    If it is ambiguous and `columns` does not state it, raises `ExampleError` with `need_label` and
    returns 0 without. It is ambiguous, too, if all labels are both texts of options and numbers of
    others, as of the options 2, 4, 6 and 8.
    """
    if columns.label_start != "auto":
        return int(columns.label_start)
    if kind_of(path) not in TABLES or has_stories(path, columns.encoding):
        return 0
    table = _table(path, columns)
    heads: list[TableHead] = []
    counted: list[int] = []
    places: dict[int, int] = {}

    def labels() -> Iterator[tuple[int, int, int]]:
        try:
            for line, parts, _ in _rows(table, columns, need_label=need_label, heads=heads):
                if counts_from_zero(heads[0].names):
                    return
                if (numeric := numeric_label(table.file, line, parts)) is not None:
                    counted.append(line)
                    yield line, *numeric
                elif (place := place_of_number(table.file, line, parts)) is not None:
                    places.setdefault(place, line)
        except UserError:
            return  # raised when the file is read

    try:
        start = label_start(labels(), table.file)
        return start if counted or not places else _start_of_places(table.file, places)
    except ExampleError:
        if need_label:
            raise
        return 0


def _start_of_places(file: TextFile, places: Mapping[int, int]) -> int:
    """Return the start by which numbers stand for the options whose texts they are.

    `places` are the starts that single labels would need, with a line of each. Raises the file's
    error if there is no such start.
    """
    if len(places) == 1 and next(iter(places)) in (0, 1):
        return next(iter(places))
    line = next(line for place, line in places.items() if place or len(places) > 1)
    problem = "a label may be the text of an option or the number of another"
    remedy = (
        "write the letters of the options; if the labels are numbers, state where they begin: "
        "--label-start 0 or --label-start 1"
    )
    raise file.fault(problem, line, remedy)


def describe_choices(path: Path, columns: Columns) -> str:
    """Return a short description of the columns of the parts of a question."""
    kind = kind_of(path)
    if kind == ".xml":
        return "COPA's XML"
    if has_stories(path, columns.encoding):
        return f"MCTest's stories, the answers in {answers_of(path).name}"
    table = _table(path, columns)
    head = table.head()
    assert head is not None
    positions = choice_places(head, columns, table.file, need_label=False)
    header = Header(present=True) if head.delimited else NAMED
    counted = ", labels count from 1" if find_label_start(path, columns) else ""
    return described_columns(kind, head.names, header, positions, head.sample) + counted


def _table(path: Path, columns: Columns) -> Table:
    """Return a table whose bad rows are skipped."""
    return Table(path, ExampleError, encoding=columns.encoding, refuse=lambda error, row: None)


def _items(file: TextFile, columns: Columns, refuse: Refuse, *, need_label: bool) -> Iterator[Item]:
    """Yield line, parts and text of each question."""
    kind = kind_of(file.path)
    if kind == ".xml":
        columns.check_read(file.path, "COPA's XML")
        return copa_items(file)
    if kind not in TABLES:
        remedy = "questions with options are .csv, .tsv, .jsonl, .parquet or COPA's .xml"
        raise file.fault("is of an unknown kind", remedy=remedy)
    if has_stories(file.path, columns.encoding):
        columns.check_read(file.path, "a file of stories with questions in MCTest's layout")
        return story_items(file, refuse, need_label=need_label)
    columns.check_read(file.path, "multiple choice", *READ)
    table = Table(file.path, ExampleError, encoding=file.encoding, refuse=refuse)
    return _rows(table, columns, need_label=need_label)


def _rows(
    table: Table, columns: Columns, *, need_label: bool, heads: list[TableHead] | None = None
) -> Iterator[Item]:
    roles: list[str] = []
    letters: list[str] = []

    def select_columns(head: TableHead) -> ColumnSelection:
        if heads is not None:
            heads.append(head)
        positions = choice_places(head, columns, table.file, need_label=need_label)
        roles.extend(positions)
        letters.extend(_letters_of(head.names, positions))
        optional = frozenset(index for role, index in positions.items() if role == "label")
        return ColumnSelection(columns=tuple(positions.values()), optional=optional)

    for line, cells in table.rows(select_columns):
        parts = dict(zip(roles, cells, strict=True))
        options = [parts.pop(role) for role in roles if role.startswith("option ")]
        options = _without_blank_end(options)
        if letters:
            pairs = zip(options, letters, strict=False)
            options = [{"text": text, "label": letter} for text, letter in pairs]
        yield line, {"options": options, **parts} if options else parts, table.row()


def _without_blank_end(options: Sequence[object]) -> list[object]:
    """Return the options of a row: there are as many columns as the row with the most has."""
    kept = list(options)
    while len(kept) > 2 and (kept[-1] is None or not str(kept[-1]).strip()):
        del kept[-1]
    return kept


def _letters_of(names: Sequence[str], places: Mapping[str, int]) -> list[str]:
    """Return the letters by which the columns of the options are called, [] of numbered ones."""
    options = [names[index].strip() for role, index in places.items() if role.startswith("option ")]
    matches = [_NUMBERED.fullmatch(name) for name in options]
    letters = [match[4] if match else name for match, name in zip(matches, options, strict=True)]
    return [] if None in letters else [letter.upper() for letter in letters]
