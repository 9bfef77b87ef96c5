"""Questions answered by spans of a context: SQuAD 1.1 and 2.0, and the same in tables."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from bertsmith.core.errors import BlankText, ExampleError, UserError
from bertsmith.text.bad_rows import FAIL, BadRows, Refuse
from bertsmith.text.config import USUAL, Columns
from bertsmith.text.examples.columns import first_of
from bertsmith.text.headers import (
    NAMED,
    Header,
    column_of,
    described_columns,
    listed,
    stated_header,
)
from bertsmith.text.opening import TextFile, kind_of, refuse_foreign
from bertsmith.text.structured import LocatedJson, LocatedValue, first_keys, literal
from bertsmith.text.tables import TABLES, ColumnSelection, Table, TableHead
from bertsmith.text.white_space import tidy, without_surrogates

_ANSWER = 'write {"text": "...", "answer_start": 0}, the start in characters of the context'
_PLACE = f"{_ANSWER}, or --on-bad skip leaves such questions out"


class Answer(NamedTuple):
    """A span of a context: its text and the index of its first character."""

    text: str
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question about a context, which is kept verbatim: answers are positions in it.

    `impossible` questions (SQuAD 2.0) have no answer, though perhaps `plausible` ones; the answers
    of other questions without any are unknown.
    """

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...]
    impossible: bool
    plausible: tuple[Answer, ...]
    title: str
    source: str
    line: int


def read_questions(
    path: Path,
    *,
    need_answers: bool,
    need_positions: bool = True,
    bad: BadRows = FAIL,
    columns: Columns = USUAL,
) -> Iterator[Question]:
    """Yield the questions of SQuAD's JSON, or of a table or list of records with one per row.

    Rows have ``id``, ``question``, ``context``, perhaps the ``title`` of its article, and
    ``answers`` as ``{"text": [...], "answer_start": [...]}``, in a cell as JSON or as Python prints
    it, empty lists if no answer is possible; or columns ``answer_text`` and ``answer_start``.
    Answers may be text alone, without positions: a string, a list of strings, or a column
    ``answer_text`` or ``answer``, empty if no answer is possible. Such a text is found in the
    context, as whole words if it occurs as such; it is an error unless it occurs once or, without
    `need_positions`, as scores compare texts alone, more often: then it is the first. Of `columns`,
    the text is the context, the second text the question and the label the answers. An answer that
    is not at its position is an error; without `need_answers`, what is no answer is left out.
    Raises `ExampleError`, with file and line, unless `bad` takes the error; an unreadable paragraph
    or article counts as one.
    """
    file = TextFile(path, ExampleError, columns.encoding)

    def rows(refuse: Refuse) -> Iterator[Question]:
        builder = _QuestionBuilder(
            file, refuse, need_answers=need_answers, need_positions=need_positions
        )
        if is_table(path, columns):
            columns.check_read(path, "questions about texts", *_READ)
            return builder.of_table(path, columns)
        columns.check_read(path, "SQuAD's JSON")
        if kind_of(path) != ".json":
            refuse_foreign(path)
            _check_begins_as_json(file)
        return builder.of_articles()

    return bad.read(file, rows)


def _check_begins_as_json(file: TextFile) -> None:
    """Raise the file's error for plain text."""
    first = next((line for _, line in file.lines(escaped=True) if line.strip()), "")
    if not first.lstrip().startswith("{"):
        remedy = "give rows of question and context in a .jsonl or .csv, or SQuAD's JSON"
        raise file.fault("holds no questions", 1, remedy)


class _QuestionBuilder:
    """A builder of questions from the parts of one file."""

    def __init__(
        self, file: TextFile, refuse: Refuse, *, need_answers: bool, need_positions: bool
    ) -> None:
        self._file = file
        self._refuse = refuse
        self._need_answers = need_answers
        self._need_positions = need_positions
        self._ids: set[str] = set()
        self._of_line: Counter[int] = Counter()
        self._in_table = False

    def of_articles(self) -> Iterator[Question]:
        for article in LocatedJson(self._file).elements(("data", "paragraphs", "qas")):
            title = article.value.get("title") if isinstance(article.value, dict) else None
            for paragraph in self._parts(article, "paragraphs"):
                for item in self._parts(paragraph, "qas"):
                    assert isinstance(paragraph.value, dict)
                    context = paragraph.value.get("context")
                    question = self._try(item, context, title)
                    if question is not None:
                        yield question

    def of_table(self, path: Path, columns: Columns) -> Iterator[Question]:
        table = Table(path, ExampleError, encoding=self._file.encoding, refuse=self._refuse)
        roles: list[str] = []
        self._in_table = True

        def select_columns(head: TableHead) -> ColumnSelection:
            positions = _places(head, columns, self._file)
            for name in ("question", "context", *(("answers",) if self._need_answers else ())):
                if name not in positions and not (name == "answers" and "text" in positions):
                    remedy = (
                        "questions have id, question, context, and answers or answer_text, perhaps "
                        f"with answer_start; the columns are: {listed(head.names)}"
                    )
                    raise self._file.fault(f"has no {name!r}", 1, remedy)
            roles.extend(positions)
            return ColumnSelection(columns=tuple(positions.values()))

        for line, cells in table.rows(select_columns):
            part = dict(zip(roles, cells, strict=True))
            name = part["id"] if "id" in part else self._id_of_line(line)
            value = {"question": part["question"], "id": name}
            if "answers" in part or "text" in part:
                value["answers"] = _answers_of_row(part)
                value["is_impossible"] = not value["answers"]
            context, title = part["context"], part.get("title")
            question = self._try(LocatedValue(value, line), context, title, row=table.row())
            if question is not None:
                yield question

    def _parts(self, whole: LocatedValue, key: str) -> list[LocatedValue]:
        parts = whole.value.get(key) if isinstance(whole.value, dict) else None
        if not isinstance(parts, list):
            remedy = "see the layout of SQuAD: data, paragraphs, qas"
            fault = self._file.fault(f"has no list {key!r}", whole.line, remedy)
            self._refuse(fault, json.dumps(whole.value))
            return []
        return parts

    def _try(
        self, item: LocatedValue, context: object, title: object, row: str | None = None
    ) -> Question | None:
        try:
            return self._question(item, context, title)
        except UserError as error:
            self._refuse(error, json.dumps(item.value) if row is None else row)
            return None

    def _question(self, item: LocatedValue, context: object, title: object) -> Question:
        value, line = item
        if not isinstance(value, dict):
            raise self._file.fault("a question is not a JSON object", line)
        passage = self._text(line, "context", context)
        question = tidy(self._text(line, "question", value.get("question")))
        name = self._id(line, value.get("id"))
        try:
            impossible, answers = self._truth(line, passage, value)
        except UserError:
            if self._need_answers:
                raise
            impossible, answers = False, ()
        self._ids.add(name)
        return Question(
            id=name,
            question=question,
            context=passage,
            answers=answers,
            impossible=impossible,
            plausible=self._plausible(line, passage, value.get("plausible_answers", [])),
            title=title if isinstance(title, str) else "",
            source=str(self._file.path),
            line=line,
        )

    def _truth(
        self, line: int, context: str, value: Mapping[str, object]
    ) -> tuple[bool, tuple[Answer, ...]]:
        """Return whether no answer is possible, and the answers."""
        impossible = value.get("is_impossible", False)
        if not isinstance(impossible, bool):
            problem = "'is_impossible' is neither true nor false"
            raise self._file.fault(problem, line, "write true or false")
        answers = self._answers(line, context, value.get("answers", []))
        if impossible and answers:
            raise self._file.fault("impossible, but has answers", line, "remove one of the two")
        if self._need_answers and not impossible and not answers:
            raise self._file.fault("no answer", line, 'give one, or write "is_impossible": true')
        return impossible, answers

    def _text(self, line: int, role: str, value: object) -> str:
        if not isinstance(value, str) or not value.strip():
            problem = f"the {role} is empty or not a string"
            # in a table the row of an empty one is known, so that an answer can be left blank
            if self._in_table and (value is None or isinstance(value, str)):
                raise BlankText(problem, where=self._file.path, line=line, remedy="fill it in")
            raise self._file.fault(problem, line, "fill it in")
        if "\0" in value:
            raise self._file.fault(f"a zero byte in the {role}", line, "remove it")
        return without_surrogates(value)

    def _id(self, line: int, value: object) -> str:
        name = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
        remedy = "give every question a unique id"
        if not name:
            raise self._file.fault("no id", line, remedy)
        if name in self._ids:
            problem = f"the id {name[:40]!r} is used by an earlier question too"
            raise self._file.fault(problem, line, remedy)
        return name

    def _id_of_line(self, line: int) -> str:
        """Return the line as an id, with a number for further records of a line."""
        self._of_line[line] += 1
        number = self._of_line[line]
        return str(line) if number == 1 else f"{line}.{number}"

    def _answers(self, line: int, context: str, value: object) -> tuple[Answer, ...]:
        if not isinstance(value, list):
            raise self._file.fault("'answers' is not a list", line, _ANSWER)
        if not self._need_answers and any(map(_is_placeless, value)):
            return ()  # nothing is learned from them
        return tuple(self._answer(line, context, answer) for answer in value)

    def _plausible(self, line: int, context: str, value: object) -> tuple[Answer, ...]:
        try:
            return self._answers(line, context, value)
        except UserError:
            return ()  # not used in training or evaluation

    def _answer(self, line: int, context: str, value: object) -> Answer:
        text = value.get("text") if isinstance(value, dict) else None
        start = value.get("answer_start") if isinstance(value, dict) else None
        placeless = _is_placeless(value)
        if not isinstance(text, str) or not text.strip() or not (placeless or type(start) is int):
            raise self._file.fault("an answer without text or answer_start", line, _ANSWER)
        text = without_surrogates(text)
        if placeless:
            return self._located(line, context, text.strip())
        assert isinstance(start, int)
        if start >= 0 and context.startswith(text, start):
            return Answer(text, start)
        actual = context[start : start + len(text)] if start >= 0 else ""
        problem = f"the answer {text[:40]!r} is not at {start}: there is {actual[:40]!r}"
        remedy = "correct answer_start"
        if (other := _counted_otherwise(context, text, start)) is not None:
            remedy = f"answer_start seems to count {other[1]}: it is {other[0]} in characters"
        raise self._file.fault(problem, line, remedy)

    def _located(self, line: int, context: str, text: str) -> Answer:
        """Return the only occurrence of a text, as whole words if it occurs as such.

        Where positions are not needed, it is the first of several.
        """
        result = re.escape(text)
        for pattern in (rf"(?<!\w){result}(?!\w)", result):
            starts = [match.start() for match in re.finditer(pattern, context)]
            if len(starts) == 1 or (starts and not self._need_positions):
                return Answer(text, starts[0])
            if starts:
                problem = f"the answer {text[:40]!r} occurs {len(starts)} times in the context"
                raise self._file.fault(f"{problem}, and has no answer_start", line, _PLACE)
        remedy = f"leave it empty where no answer is possible; else {_PLACE}"
        raise self._file.fault(f"the answer {text[:40]!r} is not in the context", line, remedy)


_UNITS: Mapping[str, Callable[[str], int]] = {
    "bytes of UTF-8": lambda before: len(before.encode()),
    "units of UTF-16, as JavaScript and Java do": lambda before: (
        len(before.encode("utf-16-le")) // 2
    ),
    "a CRLF as one character": lambda before: len(before.replace("\r\n", "\n")),
    "from 1": lambda before: len(before) + 1,
}
# a short answer may occur in a long context as often as it has characters
_OCCURRENCES = 20


def _counted_otherwise(context: str, text: str, start: int) -> tuple[int, str] | None:
    """Return the index of a text and what else than characters from 0 a position may count."""
    for match in islice(re.finditer(re.escape(text), context), _OCCURRENCES):
        before = context[: match.start()]
        for unit, length in _UNITS.items():
            if length(before) == start:
                return match.start(), unit
    return None


def _is_placeless(answer: object) -> bool:
    """Return whether an answer has a text and no position."""
    return isinstance(answer, dict) and "text" in answer and answer.get("answer_start") is None


def describe_questions(path: Path, columns: Columns) -> str:
    """Return a short description of the columns of the parts of a question."""
    if not is_table(path, columns):
        return "SQuAD's JSON"
    file = TextFile(path, ExampleError, columns.encoding)
    table = Table(path, ExampleError, encoding=columns.encoding, refuse=lambda error, row: None)
    head = table.head()
    assert head is not None
    shown = {"text": "answer", "start": "its start"}
    places = {shown.get(role, role): at for role, at in _places(head, columns, file).items()}
    header = Header(present=True) if head.delimited else NAMED
    return described_columns(kind_of(path), head.names, header, places, head.sample)


def is_table(path: Path, columns: Columns) -> bool:
    """Return whether a file has one question per row or record, unlike SQuAD's JSON."""
    if kind_of(path) != ".json":
        return kind_of(path) in TABLES
    try:
        return "question" in first_keys(TextFile(path, ExampleError, columns.encoding))
    except UserError:
        return False


CONTEXTS = ("context", "passage", "paragraph")
"""Usual names of the column of contexts."""
ANSWER_TEXTS = ("answer_text", "answers.text", "answers_text", "answer.text", "answer")
"""Usual names of the column of answers' texts."""
_ROLES = {
    "id": ("id", "qid", "question_id", "_id"),
    "question": ("question", "query"),
    "context": CONTEXTS,
    "answers": ("answers",),
    "text": ANSWER_TEXTS,
    "start": ("answer_start", "answers.answer_start", "answers_start", "start", "start_position"),
}
# of the articles that contexts are from
_TITLES = ("title",)


_NAMES = frozenset(name for names in _ROLES.values() for name in names)
_READ = ("text", "text_pair", "label", "id", "header")
_GIVEN = {"text": "context", "text_pair": "question", "label": "answers", "id": "id"}
"""Roles of the columns given by the user."""


def _places(head: TableHead, columns: Columns, file: TextFile) -> dict[str, int]:
    """Return the columns of the parts of a question, by role."""
    names = head.names
    indices = {}
    for role, usual in _ROLES.items():
        index = first_of(names, usual)
        if index is not None:
            indices[role] = index
    header = _checked_header(head, columns, file, indices)
    for field, role in _GIVEN.items():
        if (name := getattr(columns, field)) is not None:
            indices[role] = column_of(name, names, header, file)
    if "answers" in indices or "text" not in indices:
        indices.pop("text", None)
        indices.pop("start", None)
    same = next((role for role in indices if list(indices.values()).count(indices[role]) > 1), None)
    if same is not None:
        problem = f"the column {names[indices[same]][:40]!r} is named for two parts of a question"
        raise file.fault(problem, 1, "name a different column for each")
    title = first_of(names, _TITLES)
    if title is not None and title not in indices.values():
        indices["title"] = title
    return indices


def _checked_header(
    head: TableHead, columns: Columns, file: TextFile, indices: Mapping[str, int]
) -> Header:
    """Return the header. Raises the file's error for a table without one."""
    if not head.delimited:
        columns.check_named(file.path)
        return NAMED
    header = stated_header(columns.header, head.sample, columns.named(), _NAMES)
    if header.present is False or (header.present is None and not indices):
        remedy = "add a header: id,question,context,answers"
        problem = "questions about texts need a header that names their parts"
        raise file.fault(f"{problem}; {header.reason}", 1, remedy)
    return Header(present=True, reason=header.reason)


def _answers_of_row(part: Mapping[str, object]) -> object:
    """Return the answers of a row in SQuAD's form; None if they cannot be read."""
    if "answers" in part:
        cell = part["answers"]
        answers = _read(cell)
        if isinstance(cell, str) and not isinstance(answers, dict | list):
            # a text, even if it is a number such as 1945, but not a list that cannot be read
            return None if not cell.strip() or cell[0] in "[{" else _listed(cell)
        return _listed(answers)
    text = _read(part["text"], plain=True)
    if "start" not in part:
        return [] if text in (None, "") else _listed(text)
    start = None if part["start"] == "" else _read(part["start"])
    if isinstance(text, list) or isinstance(start, list):
        return _listed({"text": text, "answer_start": start})
    if isinstance(start, float) and start.is_integer():
        start = int(start)
    # 0 is how answers are written here that are none, and the place of [CLS]
    if text in (None, "") and start in (None, "", -1, 0):
        return []
    return [{"text": text, "answer_start": start}]


def _read(cell: object, *, plain: bool = False) -> object:
    """Return a cell's value, parsed if it is a literal; `plain` cells are text unless lists."""
    if not isinstance(cell, str) or (plain and not cell.startswith("[")):
        return cell
    if not cell.strip():
        return None if plain else ([] if cell == "" else cell)
    try:
        return literal(cell)
    except ValueError:
        return cell


def _listed(answers: object) -> object:
    """Convert texts, and an object of parallel lists, to SQuAD's list of answers."""
    if isinstance(answers, str):
        return [{"text": answers}]
    if isinstance(answers, list):
        return [{"text": answer} if isinstance(answer, str) else answer for answer in answers]
    if not isinstance(answers, dict):
        return answers
    if answers.get("answer_start") is None:
        return _listed(answers.get("text"))
    texts, starts = answers.get("text"), answers.get("answer_start")
    if isinstance(texts, str) and isinstance(starts, int):
        return [{"text": texts, "answer_start": starts}]
    if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
        return None
    return [
        {"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)
    ]
