"""Detection of the task that a file or folder of examples is for, from its beginning."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, TypeVar

from bertsmith.core.errors import ConfigError, ExampleError, UserError
from bertsmith.core.printable import counted
from bertsmith.text.config import USUAL, USUAL_TAGS, Columns, TagColumns
from bertsmith.text.examples.columns import GROUPS, ColumnIndices, first_of, locate_columns
from bertsmith.text.examples.example import (
    BadLabel,
    class_of,
    number_of,
    written_by_prodigy,
)
from bertsmith.text.examples.formats.choices import NEEDS_HEADER, find_options, looks_like_options
from bertsmith.text.examples.formats.class_files import (
    classes_of_folder,
    fasttext_labels,
    has_labels_first,
)
from bertsmith.text.examples.formats.conll import joining_sign
from bertsmith.text.examples.formats.conll_columns import DOCUMENT, column_sentences
from bertsmith.text.examples.formats.mctest import has_stories
from bertsmith.text.examples.formats.squad import ANSWER_TEXTS, CONTEXTS
from bertsmith.text.examples.formats.tag_tables import recognise_tag_table
from bertsmith.text.examples.formats.xml_items import has_elements
from bertsmith.text.examples.glue import find_glue, task_of
from bertsmith.text.examples.label_lists import lists_of_labels, separated_labels
from bertsmith.text.examples.reading import FIRST_ROWS, first_rows, has_labels
from bertsmith.text.examples.tagged import (
    ENTITIES,
    TAGS,
    TEXTS,
    TOKENS,
    Words,
    may_be_tagged,
    recognise_scheme,
)
from bertsmith.text.headers import index_of, is_categorical, is_number, listed
from bertsmith.text.opening import TextFile, kind_of, refuse_foreign
from bertsmith.text.structured import first_keys
from bertsmith.text.tables import TABLES, TableHead
from bertsmith.text.white_space import UNSPACED

TaskName = Literal[
    "classify", "pair", "multi-label", "regression", "tag", "span", "choice", "rank", "glue"
]
Parsed = TypeVar("Parsed")

# rows, characters of a cell, and words that make it a text: no name, place or date
_LOOKED_AT, _BEGINNING, _TEXT_WORDS = 200, 200, 4
_MANY_NUMBERS = 20
_PASSAGES = ("passage", "document")
_SEVERAL_PASSAGES = (
    *("positive", "positives", "positive_passages", "pos", "passages", "documents", "ctxs"),
    *("negative", "negatives", "negative_passages", "neg", "positive_ctxs"),
)
# minimum share of answers that occur in their contexts
_QUOTED = 0.5
# largest share of rows without a number in a column of numbers: bad rows, not another task
_ODD = 0.05
_SIGNED = re.compile(r"\s*(?:[-+]?[$€£]\s*[-+]?\d[\d.,]*|[-+]?\d[\d.,]*\s*[%$€£])\s*")
# a name that ends in a number or a letter, and that
_MARKED = re.compile(r"(.*[^\W\d]{2})[ _-]?(\d|[a-j])")
_LETTERS = "abcdefghij"
_WORD = re.compile(r"(?<!\S)[^\w\s]*[^\W\d_]")


def recognise_table(path: Path, columns: Columns) -> tuple[TaskName, str]:
    """Return task and reason. Raises `ExampleError`, with the option to pass, if uncertain."""
    head, rows = first_rows(path, columns)
    by_names = _by_names(head, rows, context=columns.text)
    if by_names is not None:
        return by_names
    if columns.labels:
        return "multi-label", f"its labels are columns of 0 and 1: {', '.join(columns.labels)}"
    file = TextFile(path, ExampleError, columns.encoding)
    try:
        places = locate_columns(head, columns, file, need_label=True)
    except ConfigError:
        raise
    except UserError as error:
        remedy = error.remedy
        if not columns.named():
            remedy += "; if its rows are not texts with a label, pass --task tag, span or choice"
        if head.delimited and not columns.named() and looks_like_options(head):
            remedy = f"if it holds questions with options, {NEEDS_HEADER}; else {remedy}"
        elif {"annotations", "data"} <= set(head.names):
            remedy = "export it from Label Studio as JSON-MIN, whose labels lie beside the texts"
        elif _holds_passages(head.names):
            rows_of = "query, passage and relevance, 1 for those that answer it and 0 for others"
            remedy = f"to rank passages, write each in a row of its own: {rows_of}; else {remedy}"
        elif flags := _flag_columns(head, rows):
            named = f"--label-columns {','.join(flags)}"
            remedy = f"if a label of 0 or 1 each has a column, pass {named}; else {remedy}"
        raise file.fault(error.problem, error.line, remedy) from error
    return _by_labels(file, head, places, rows)


def _holds_passages(names: Sequence[str]) -> bool:
    """Return whether a row has a query with several passages, as for MS MARCO."""
    return first_of(names, ("query", "question")) is not None and (
        first_of(names, _SEVERAL_PASSAGES) is not None
    )


def _by_names(
    head: TableHead, rows: Sequence[Sequence[object]], *, context: str | None
) -> tuple[TaskName, str] | None:
    """Return task and reason by the names of the columns alone; `context` is the given column."""
    known = {name.strip().casefold() for name in head.names}
    answers = next((name for name in ("answers", "answer_start") if name in known), None)
    # Prodigy's options are classes
    options = () if written_by_prodigy(head.names) else find_options(head.names)
    if options and head.names[options[0]].strip().casefold() == "answers":
        options = options if _chosen_by_number(head, rows, options[0]) else ()
        answers = None if options else answers
    if answers and "question" in known and ("context" in known or context is not None):
        return "span", f"it has 'question', {context or 'context'!r} and {answers!r}"
    if known & set(TOKENS) and known & set(TAGS):
        return "tag", "it has tokens and their tags"
    marks = next((name for name in ENTITIES if name in known and known & set(TEXTS)), None)
    if marks is not None and _all_entities(_column(head, rows, marks)):
        return "tag", f"{marks!r} holds positions of entities in the text"
    if not options and (quoted := _quoted_answers(head, rows, context)):
        return "span", quoted
    if options:
        names = ", ".join(repr(head.names[index]) for index in options[:2])
        return "choice", f"it has options: {names}" + (", ..." if len(options) > 2 else "")
    grouped = next((name for name in GROUPS if name in known), None)
    if "query" in known and (grouped or known & set(_PASSAGES)):
        other = grouped or next(name for name in _PASSAGES if name in known)
        return "rank", f"it has 'query' and {other!r}"
    return None


def _chosen_by_number(head: TableHead, rows: Sequence[Sequence[object]], answers: int) -> bool:
    """Return whether each row has several answers as texts, and the number of one as its label."""
    label = index_of(head.names, "label")
    return label is not None and all(
        isinstance(texts := row[answers], list)
        and len(texts) > 1
        and all(isinstance(text, str) for text in texts)
        and is_number(str(row[label]))
        for row in rows
    )


def _flag_columns(head: TableHead, rows: Sequence[Sequence[object]]) -> list[str]:
    """Return the names of the columns of 0 and 1 if there are several, of a table with a header."""
    flags = [
        name
        for index, name in enumerate(head.names)
        if rows and all(str(row[index]) in ("0", "1") for row in rows)
    ]
    return flags if len(flags) > 1 and not any(map(is_number, flags)) else []


def _column(head: TableHead, rows: Sequence[Sequence[object]], name: str) -> list[object]:
    index = index_of(head.names, name)
    assert index is not None
    return [row[index] for row in rows]


def _quoted_answers(
    head: TableHead, rows: Sequence[Sequence[object]], context: str | None
) -> str | None:
    """Return the evidence that answers are texts that occur in their contexts, None without any."""
    names = (("question",), (context,) if context else CONTEXTS, ANSWER_TEXTS)
    places = [first_of(head.names, usual) for usual in names]
    if None in places:
        return None
    texts = []
    for row in rows:
        _, passage, answers = (row[index] for index in places if index is not None)
        answer = answers[0] if isinstance(answers, list) and answers else answers
        if isinstance(passage, str) and isinstance(answer, str) and answer.strip():
            texts.append((answer.strip(), passage))
    if not texts or sum(answer in passage for answer, passage in texts) < _QUOTED * len(texts):
        return None
    question, passage, answer = (repr(head.names[index]) for index in places if index is not None)
    return f"it has {question} and {passage}, in which most texts of {answer} occur"


def _all_entities(values: Sequence[object]) -> bool:
    """Return whether values are lists of entity positions, not all of them empty."""
    marks = [mark for value in values if isinstance(value, list) for mark in value]
    lists = all(isinstance(value, list) for value in values)
    return lists and bool(marks) and all(isinstance(mark, list | dict) for mark in marks)


def _by_labels(
    file: TextFile, head: TableHead, places: ColumnIndices, rows: Sequence[Sequence[object]]
) -> tuple[TaskName, str]:
    """Return task and reason by the labels, for texts or pairs."""
    assert places.label is not None
    values = [row[places.label] for row in rows if row[places.label] not in (None, "")]
    unnamed = places.header.present is False or places.header.counted
    name = f"column {places.label}" if unnamed else repr(head.names[places.label])
    if several := lists_of_labels(values):
        return "multi-label", f"{name} holds {several}"
    if not rows:
        raise file.fault("holds no examples", remedy="give a file with rows in it")
    if not values:
        remedy = "name another column with --label-column"
        raise file.fault(f"no row has a label in {name}", remedy=remedy)
    lists = [value for value in values if isinstance(value, str) and value.startswith("[")]
    if len(lists) == len(values) and any(value.startswith("[{") for value in lists):
        remedy = "export it as JSON, or write them to a .jsonl as lists, for --task tag"
        raise file.fault(f"{name} holds lists of entities in cells", remedy=remedy)
    _check_signs(file, name, values)
    if signs := separated_labels(file, name, values):
        return "multi-label", f"{name} holds labels with {signs} between them"
    if fractions := _fractions(file, name, values):
        return "regression", fractions
    classes = {_or_none(class_of, value) for value in values} - {None}
    shown = f"{name} holds {counted(len(classes), 'class', 'classes')}"
    if len(rows) == FIRST_ROWS:
        shown += f" in its first {FIRST_ROWS:,} rows"
    if places.text_pair is not None:
        return "pair", f"it has two texts, and {shown}"
    _check_no_options(file, head, places, rows, classes)
    return "classify", f"it has one text, and {shown}"


def _fractions(file: TextFile, name: str, values: Sequence[object]) -> str | None:
    """Return the evidence that values are numbers with fractions; None if they are classes.

    Raises the file's error for many different whole numbers, which may be either.
    """
    numbers = [_or_none(number_of, value) for value in values]
    finite = [number for number in numbers if number is not None]
    odd = len(values) - len(finite)
    if not finite or odd > _ODD * len(values):
        return None
    if not all(number.is_integer() for number in finite):
        among = f", but for {counted(odd, 'row')}" if odd else ""
        return f"{name} holds numbers with fractions{among}"
    if len(set(finite)) > _MANY_NUMBERS:
        problem = f"{name} holds {len(set(finite))} different whole numbers, classes or values"
        raise file.fault(problem, remedy="pass --task classify or --task regression")
    return None


def _check_no_options(
    file: TextFile,
    head: TableHead,
    places: ColumnIndices,
    rows: Sequence[Sequence[object]],
    classes: Collection[str | None],
) -> None:
    """Raise the file's error if a label may be the number of one of several columns of texts."""
    families: dict[str, dict[str, int]] = {}
    for index, written in enumerate(head.names):
        match = _MARKED.fullmatch(written.strip().casefold())
        if match and index not in places.roles().values() and _holds_phrases(rows, index):
            families.setdefault(match[1], {})[match[2]] = index
    labels = {str(label).casefold() for label in classes if label}
    for marks in families.values():
        numbers, letters = list(map(str, range(len(marks) + 1))), list(_LETTERS[: len(marks)])
        in_order = sorted(marks) in (numbers[:-1], numbers[1:], letters)
        if len(marks) > 1 and in_order and labels <= {*numbers, *letters}:
            names = [head.names[index] for index in marks.values()]
            what = f"its columns {', '.join(map(repr, names[:4]))} may be options to choose from"
            remedy = (
                "call them option1, option2 and so on for --task choice, or pass --task classify"
            )
            raise file.fault(what, 1, remedy)


def _holds_phrases(rows: Sequence[Sequence[object]], index: int) -> bool:
    """Return whether most cells of a column are texts of several words."""
    phrases = sum(isinstance(row[index], str) and " " in str(row[index]).strip() for row in rows)
    return 2 * phrases > len(rows)


def unread_texts(path: Path, columns: Columns, *, grouped: bool) -> str:
    """Return a note on columns of texts that are not read, where none was named; "" without any.

    Rows are `grouped` to be ranked. Raises `ExampleError`.
    """
    if columns.text is not None or path.is_dir() or has_labels(path, columns):
        return ""
    head, rows = first_rows(path, columns)
    file = TextFile(path, ExampleError, columns.encoding)
    places = locate_columns(head, columns, file, need_label=True, grouped=grouped)
    read = {*places.roles().values(), *places.labels}
    unread = [
        name
        for index, name in enumerate(head.names)
        if index not in read and _holds_texts([row[index] for row in rows[:_LOOKED_AT]])
    ]
    if not unread:
        return ""
    hold = "holds texts too, and is" if len(unread) == 1 else "hold texts too, and are"
    option = "" if places.text_pair is not None else "; --text-pair-column names a second text"
    return f"{path.name}: {listed(unread)} {hold} not read{option}"


def _holds_texts(cells: Sequence[object]) -> bool:
    """Return whether most cells are texts of some words, which hardly recur."""
    texts = [cell for cell in cells if isinstance(cell, str) and cell.strip()]
    if 2 * len(texts) <= len(cells) or is_categorical(texts):
        return False
    # no lists or objects
    heads = [text[:_BEGINNING] for text in texts if text.lstrip()[0] not in "[{"]
    return 2 * sum(_word_count(head) >= _TEXT_WORDS for head in heads) > len(texts)


def _word_count(text: str) -> int:
    """Return the number of words that begin with a letter: an address of the web is at most one.

    In scripts without blanks between words each character counts.
    """
    return len(_WORD.findall(text)) + sum(map(len, UNSPACED.findall(text)))


def _check_signs(file: TextFile, name: str, values: Sequence[object]) -> None:
    """Raise the file's error for many different numbers with a sign of money or per cent."""
    signed = [value for value in values if isinstance(value, str) and _SIGNED.fullmatch(value)]
    odd = len(values) - len(signed)
    if odd <= _ODD * len(values) and len(set(signed)) > _MANY_NUMBERS:
        what = f"{name} holds {signed[0]!r} and {len(set(signed)) - 1} other numbers with a sign"
        remedy = "write them without it for --task regression, or pass --task classify"
        raise file.fault(what, remedy=remedy)


def _or_none(parse: Callable[[object], Parsed | None], value: object) -> Parsed | None:
    try:
        return parse(value)
    except BadLabel:
        return None


_TAGGED = (".conll", ".conllu", ".bio", ".iob", ".iob2", ".bioes")
_SENTENCES = 50
_MANY_CLASSES = 30


@dataclass(frozen=True, kw_only=True)
class Recognised:
    """A detected task, the reason, and the name of a task of GLUE, None for a folder of several."""

    task: TaskName
    reason: str
    glue: str | None = None


def recognise(path: Path, columns: Columns = USUAL, tags: TagColumns = USUAL_TAGS) -> Recognised:
    """Detect the task of the examples in a file or folder from its beginning.

    Raises `ExampleError`, naming the --task to pass, if it is uncertain, and for a path that cannot
    be read.
    """
    if path.is_dir():
        return _folder(path, columns)
    if tags.sign or tags.layout != "auto":
        return Recognised(task="tag", reason="its layout is stated to be words and tags")
    refuse_foreign(path)
    if known := task_of(path):
        reason = f"it has the name and place of GLUE's {known[0].name}, {known[1]}"
        return Recognised(task="glue", reason=reason, glue=known[0].name)
    kind = kind_of(path)
    if kind == ".json" and _is_squad(TextFile(path, ExampleError, columns.encoding)):
        return Recognised(task="span", reason="it has SQuAD's layout")
    if kind == ".xml":
        return _xml(path, columns)
    if kind in _TAGGED:
        return Recognised(task="tag", reason=f"a {kind} file has a word and its tags per line")
    if has_stories(path, columns.encoding):
        return Recognised(task="choice", reason="it has stories with questions, like MCTest")
    if labels := fasttext_labels(path, columns.encoding):
        task: TaskName = "multi-label" if labels > 1 else "classify"
        return Recognised(task=task, reason="its lines begin with __label__, like fastText's")
    if has_labels_first(path, columns):
        source = "as stated" if columns.layout == "label-first" else f"as in any {kind} file"
        return Recognised(task="classify", reason=f"its lines begin with their label, {source}")
    if sign := joining_sign(path, tags, columns.encoding):
        return Recognised(task="tag", reason=f"its lines are sentences of word{sign}TAG")
    shown = (
        recognise_tag_table(path, columns, tags, need_tags=True)
        if kind in TABLES
        else columns_of_tags(path, columns)
    )
    if shown:
        return Recognised(task="tag", reason=shown)
    file = TextFile(path, ExampleError, columns.encoding)
    if kind not in TABLES and "\t" not in next(file.lines(escaped=True), (1, ""))[1]:
        remedy = (
            "pass --layout label-first for lines of a label and a text, or --task tag for words "
            "and their tags"
        )
        raise file.fault("is neither a table nor columns of tags", 1, remedy)
    task_name, reason = recognise_table(path, columns)
    return Recognised(task=task_name, reason=reason)


def _is_squad(file: TextFile) -> bool:
    """Return whether a JSON file has SQuAD's layout. Raises the file's error for a part of it."""
    keys = first_keys(file)
    if "qas" in keys:
        remedy = 'put them into SQuAD\'s layout: {"data": [{"paragraphs": [...]}]}'
        raise file.fault("holds paragraphs alone", remedy=remedy)
    return "paragraphs" in keys


def _xml(path: Path, columns: Columns) -> Recognised:
    file = TextFile(path, ExampleError, columns.encoding)
    if has_elements(file, "pair"):
        return Recognised(task="pair", reason="its <pair>s have two texts")
    if has_elements(file, "item"):
        return Recognised(task="choice", reason="its <item>s have COPA's layout")
    remedy = "write its texts and labels to a .csv or .jsonl"
    raise file.fault("holds neither <pair>s of texts nor COPA's <item>s", remedy=remedy)


def _folder(path: Path, columns: Columns) -> Recognised:
    try:
        names = list(find_glue(path))
    except UserError:
        names = []
    if names:
        reason = f"it has the files of GLUE's {', '.join(names)}"
        return Recognised(task="glue", reason=reason, glue=names[0] if len(names) == 1 else None)
    classes = [label for label, _ in classes_of_folder(path, columns.classes)]
    shown = f"{len(classes)} files or folders, apparently one per class, such as {classes[0]!r}"
    if len(classes) > _MANY_CLASSES:
        remedy = "pass --task classify if they are classes"
        raise ExampleError(f"holds {shown}", where=path, remedy=remedy)
    return Recognised(task="classify", reason=f"it holds {shown}")


def columns_of_tags(path: Path, columns: Columns) -> str | None:
    """Return the evidence that a file has columns of words and tags; None if there is none."""
    file = TextFile(path, ExampleError, columns.encoding)
    if next(file.lines(escaped=True), (1, ""))[1].startswith(DOCUMENT):
        return f"it begins with {DOCUMENT}"
    file = TextFile(path, ExampleError, columns.encoding)
    usual = TagColumns()
    try:
        blocks = list(islice(column_sentences(file, usual, need_tags=True), _SENTENCES))
    except UserError:  # e.g. a table of thousands of lines without an empty one
        return None
    sentences = [block for block in blocks if isinstance(block, Words)]
    if len(sentences) < 2 or 2 * len(sentences) < len(blocks) or not _holds_words(sentences):
        return None
    plain = recognise_scheme(block.tags for block in sentences if block.tags) == "plain"
    return f"its lines are words with {'tags' if plain else 'tags of entities'}, in sentences"


def _holds_words(blocks: Sequence[Words]) -> bool:
    words = [word for block in blocks for word in block.words]
    tags = [tag for block in blocks for tag in block.tags or ()]
    return may_be_tagged(words, tags, [len(block.words) for block in blocks])
