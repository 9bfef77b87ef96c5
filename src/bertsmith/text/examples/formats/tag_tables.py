"""Tables of words and tags: a CSV or TSV with a word and its tag per row.

Sentences are separated by empty rows, or by a column that names or numbers the sentence of each row
(perhaps in its first row only). Columns are found by their usual names or, without a header, by
content: the sentence first, then the word, the tag last. A first line is a header if it has usual
names or a word above the numbers of sentences; it is a row if its tag is one of those below, or is
written like them. Otherwise the user has to state it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice, takewhile
from pathlib import Path
from typing import Any

from bertsmith.core.errors import ConfigError, ExampleError, UserError
from bertsmith.core.printable import counted
from bertsmith.text.config import USUAL_TAGS, Columns, TagColumns
from bertsmith.text.examples.columns import GROUPS, PAIRS, first_of
from bertsmith.text.examples.formats.conll_columns import (
    COMMENT,
    DOCUMENT,
    MAX_SENTENCE_LENGTH,
    SENTENCES_LOOKED_AT,
    TAG_NAMES,
    WORD_NAMES,
    count_words,
)
from bertsmith.text.examples.tagged import BadSentence, Words, is_entity_tag, may_be_tagged
from bertsmith.text.headers import (
    Header,
    column_of,
    described_columns,
    index_of,
    is_number,
    is_position,
    undecided,
)
from bertsmith.text.opening import TextFile, kind_of
from bertsmith.text.tables import DELIMITED, SAMPLE_ROWS, comma_rows
from bertsmith.text.white_space import tidy

_LABEL_NAMES = (*TAG_NAMES, "label", "labels", "entity", "xpos")
_SENTENCE_NAMES = (
    *("sentence #", "sentence", "sentence_id", "sentence id", "sentence_number", "sentence number"),
    *("sentence_idx", "sent_id", "sent", "sentenceid", "sid"),
)
# names of columns that hold no words of sentences, whatever stands below them
_PAIR_NAMES = frozenset((*GROUPS, *chain.from_iterable(PAIRS))) - {"text", *_SENTENCE_NAMES}


@dataclass(frozen=True, slots=True)
class _Row:
    """A row, without cells if it is empty or cannot be read."""

    line: int
    cells: list[str]
    error: UserError | None = None

    @property
    def empty(self) -> bool:
        """True if the row ends a sentence."""
        return not self.cells and self.error is None

    @property
    def document(self) -> bool:
        """True if the row begins a document."""
        return any(cell.startswith(DOCUMENT) for cell in self.cells[:2])

    @property
    def word(self) -> bool:
        """True if the row has columns: a word or the header."""
        return bool(self.cells) and not self.document


_UNKNOWN = Header(present=None, reason="its first line is much like the others")


@dataclass(frozen=True, slots=True, kw_only=True)
class _ColumnLayout:
    word: int
    tag: int | None
    sentence: int | None
    header: Header = _UNKNOWN

    def roles(self) -> dict[str, int]:
        """Return the existing columns by role."""
        positions = {"sentence": self.sentence, "word": self.word, "tag": self.tag}
        return {role: index for role, index in positions.items() if index is not None}


def recognise_tag_table(
    path: Path, columns: Columns, tags: TagColumns, *, need_tags: bool
) -> str | None:
    """Return the evidence that a file is a table of words and tags; None if there is none."""
    if kind_of(path) not in DELIMITED:
        return None
    file = TextFile(path, ExampleError, columns.encoding)
    sample = _sample(_rows(file))
    first = _first(sample)
    if len(first) < 1 + need_tags:
        return None
    names = first if columns.header != "no" else []
    word, tag = first_of(names, WORD_NAMES), first_of(names, TAG_NAMES)
    if word is not None and tag is not None:
        return f"its columns {names[word]!r} and {names[tag]!r} are words and their tags"
    if any(name.strip().casefold() in _PAIR_NAMES for name in names):
        return None
    try:
        places = _placed(file, sample, columns, tags, need_tags=need_tags)
    except UserError:
        # an undecided header is refused when the file is read
        places = _by_content(_below(sample))
    if places.tag is None and (need_tags or word is None):
        return None
    return "its rows are words with tags, in sentences" if _holds_words(sample, places) else None


def tag_table_sentences(
    file: TextFile, columns: Columns, tags: TagColumns, *, need_tags: bool
) -> Iterator[Words | BadSentence]:
    """Yield the sentences of a table of words and tags. Raises the file's error."""
    columns.check_read(file.path, "a table of words and tags", "text", "label", "group", "header")
    rows = _rows(file)
    sample = _sample(rows)
    if not any(row.word for row in sample):
        yield from (BadSentence(error=row.error, row="") for row in sample if row.error)
        return
    places = _placed(file, sample, columns, tags, need_tags=need_tags)
    if places.header.present is None:
        raise undecided(places.header, _first(sample), file)
    endless = len(sample) == SAMPLE_ROWS and not any(row.empty for row in sample)
    if places.sentence is None and endless:
        remedy = (
            "put an empty row after each sentence, or name the column that numbers the sentences: "
            "--group-column"
        )
        raise file.fault("the ends of sentences are not marked", 1, remedy)
    sentences = _sentences(file, chain(sample, rows), places, len(_first(sample)))
    first = list(islice(sentences, SENTENCES_LOOKED_AT))
    named = columns.text is not None or tags.word != USUAL_TAGS.word
    read = [sentence for sentence in first if isinstance(sentence, Words)]
    if not named and count_words(sentence.words for sentence in read):
        itself = f"--text-column {places.word} where the numbers are the words"
        remedy = f"name it: --text-column {places.word + 1} or another, or {itself}"
        raise file.fault("the column of the words numbers them", read[0].lines[0], remedy)
    yield from chain(first, sentences)


def first_rows(file: TextFile) -> Iterator[list[str]]:
    """Yield the cells of the rows of words, and of the header."""
    return (row.cells for row in _rows(file) if row.word)


def described_tag_table(path: Path, columns: Columns, tags: TagColumns) -> str:
    """Return a short description of the header and columns of a table of words and tags."""
    file = TextFile(path, ExampleError, columns.encoding)
    sample = _sample(_rows(file))
    places = _placed(file, sample, columns, tags, need_tags=False)
    shown = described_columns(kind_of(path), _first(sample), places.header, places.roles())
    return shown if places.sentence is not None else f"{shown}, an empty row ends a sentence"


def _rows(file: TextFile) -> Iterator[_Row]:
    """Yield the rows of a file, including empty and unreadable ones, without its comments."""
    begins = True
    for row in _rows_with_comments(file):
        if not _is_comment(row.cells, begins=begins):
            begins = row.empty
            yield row


def _is_comment(cells: Sequence[str], *, begins: bool) -> bool:
    """Return whether a row is a comment such as ``# sent_id = 4``; a word may be ``#`` itself.

    Others are known by being a single cell where a sentence `begins`.
    """
    if not cells or not cells[0].startswith("#"):
        return False
    by_looks = COMMENT.match(cells[0]) is not None
    if len(cells) > 1:
        return by_looks and begins
    return by_looks or (begins and cells[0].startswith("# "))


def _rows_with_comments(file: TextFile) -> Iterator[_Row]:
    if kind_of(file.path) == ".csv":
        for line, cells, _ in comma_rows(file):
            if isinstance(cells, UserError):
                yield _Row(line, [], cells)
            else:
                yield _Row(line, cells if any(map(str.strip, cells)) else [])
        return
    for line, text in file.lines(escaped=True):
        error = file.undecodable(text, line)
        blank = not text or text.isspace()
        yield _Row(line, [] if blank or error else text.split("\t"), error)


def _sample(rows: Iterator[_Row]) -> list[_Row]:
    return list(islice(rows, SAMPLE_ROWS))


def _first(sample: Sequence[_Row]) -> list[str]:
    """Return the cells of the first row that is a word or the header, [] if there is none."""
    return next((row.cells for row in sample if row.word), [])


def _below(sample: Sequence[_Row]) -> list[list[str]]:
    """Return the cells of the rows of words below the first, if of the same width."""
    width = len(_first(sample))
    return [row.cells for row in sample if row.word and len(row.cells) == width][1:]


def _placed(
    file: TextFile, sample: Sequence[_Row], columns: Columns, tags: TagColumns, *, need_tags: bool
) -> _ColumnLayout:
    """Find the columns and the header, whose `present` is None if undecided."""
    names, rows_below, width = _first(sample), _below(sample), len(_first(sample))
    content = _given_positions(_by_content(rows_below), columns, tags, width)
    usual = _by_names(names) if columns.header != "no" else None
    places = content if usual is None else _given_positions(usual, columns, tags, width)
    header = _header(names, rows_below, places, columns)
    if usual is not None and header.present is False:
        places = content
    roles = (("word", columns.text), ("tag", columns.label), ("sentence", columns.group))
    named = {role: column_of(name, names, header, file) for role, name in roles if name}
    places = replace(places, **named, header=header)
    if named.get("sentence") == places.tag and "tag" not in named and tags.tag == USUAL_TAGS.tag:
        # the last column numbers the sentences
        others = [at for at in range(width) if at not in (places.word, places.sentence)]
        places = replace(places, tag=others[-1] if others else None)
    if places.tag == places.word or places.tag is None:
        if need_tags:
            remedy = "give words and tags, or name the column of the tags: --label-column"
            raise file.fault("no column of tags", 1, remedy)
        places = replace(places, tag=None)
    if places.sentence in (places.word, places.tag):
        places = replace(places, sentence=None)
    for role, index in places.roles().items():
        if not 0 <= index < width:
            remedy = f"its {counted(width, 'column')} count from 0, or from -1 backwards"
            raise file.fault(f"no column {index} for the {role}", 1, remedy)
    return places


def _given_positions(
    places: _ColumnLayout, columns: Columns, tags: TagColumns, width: int
) -> _ColumnLayout:
    """Replace the columns that are given as positions."""
    positions: dict[str, Any] = {}
    for role, name, position, usual in (
        ("word", columns.text, tags.word, USUAL_TAGS.word),
        ("tag", columns.label, tags.tag, USUAL_TAGS.tag),
        ("sentence", columns.group, 0, 0),
    ):
        if position != usual and name is not None:
            option = "--text-column" if role == "word" else "--label-column"
            problem = f"the column of the {role} is named twice, by {option} and --tags.{role}"
            raise ConfigError(problem, remedy="omit one of them")
        if position != usual:
            positions[role] = position + width * (position < 0)
        elif name is not None and is_position(name) and int(name) < width:
            positions[role] = int(name)
    return replace(places, **positions)


def _by_names(names: Sequence[str]) -> _ColumnLayout | None:
    """Find the columns by their usual names; None unless word and tag are among them."""
    word, tag = first_of(names, WORD_NAMES), first_of(names, _LABEL_NAMES)
    if word is None or (tag is None and len(names) > 2):
        return None
    return _ColumnLayout(word=word, tag=tag, sentence=first_of(names, _SENTENCE_NAMES))


def _by_content(rows: Sequence[Sequence[str]]) -> _ColumnLayout:
    """Find the columns by content: sentence, perhaps after a row number; word; tag."""
    width = len(rows[0]) if rows else 0
    for index in range(min(2, width - 2)):
        if _names_sentences([row[index].strip() for row in rows]):
            return _ColumnLayout(word=index + 1, tag=width - 1, sentence=index)
    return _ColumnLayout(word=0, tag=width - 1 if width > 1 else None, sentence=None)


def _names_sentences(cells: Sequence[str]) -> bool:
    """Return whether cells number sentences: runs of a number, or a number and empty cells."""
    runs = [name for name, _ in groupby(_filled(cells))]
    numbered = all(any(map(str.isdigit, name)) for name in runs)
    return len(runs) > 1 and 2 * len(runs) <= len(cells) and numbered and len(set(runs)) > 1


def _filled(cells: Sequence[str]) -> Iterator[str]:
    """Yield the cells, replacing empty ones by the last non-empty one before."""
    last = next(filter(None, cells), "")
    for cell in cells:
        last = cell or last
        yield last


def _header(
    names: Sequence[str],
    rows_below: Sequence[Sequence[str]],
    places: _ColumnLayout,
    columns: Columns,
) -> Header:
    """Return the header as stated or, with `auto`, as detected."""
    if columns.header != "auto":
        return Header(present=columns.header == "yes", reason="as stated")
    header = _seen_header(names, rows_below, places)
    given = (columns.text, columns.label, columns.group)
    named = [name for name in given if name is not None and not is_position(name)]
    if header.present is None and any(index_of(names, name) is not None for name in named):
        return Header(present=True, reason="it has a name that was given")
    return header


def _seen_header(
    names: Sequence[str], rows_below: Sequence[Sequence[str]], places: _ColumnLayout
) -> Header:
    """Decide whether the first line is a header, by usual names, sentences and tags."""
    known = {*WORD_NAMES, *_LABEL_NAMES, *_SENTENCE_NAMES}
    usual = {index: name for index, name in enumerate(names) if name.strip().casefold() in known}
    if len(usual) > 1:
        shown = ", ".join(map(repr, usual.values()))
        return Header(present=True, reason=f"its first line has the names {shown}")
    cell = names[places.sentence].strip() if places.sentence is not None else ""
    if cell and places.sentence is not None:
        numbers = [value for row in rows_below if (value := row[places.sentence].strip())]
        if numbers and all(map(is_number, numbers)):
            shown = repr(cell[:30])
            if is_number(cell):
                reason = f"{shown} in its first line is a number, as below"
                return Header(present=False, reason=reason)
            return Header(present=True, reason=f"{shown} is above numbers")
    evidence = (
        None
        if places.tag is None or not 0 <= places.tag < len(names)
        else _tag_below(names[places.tag], rows_below, places.tag)
    )
    if evidence and usual and places.tag in usual:
        evidence = None
    if evidence:
        return Header(present=False, reason=evidence)
    if usual:
        return Header(present=True, reason=f"it has the name {next(iter(usual.values()))!r}")
    return _UNKNOWN


def _tag_below(cell: str, rows_below: Sequence[Sequence[str]], tag: int) -> str | None:
    """Return the evidence that the first cell of the tags is a tag; None if there is none."""
    cell, values = cell.strip(), [row[tag].strip() for row in rows_below if row[tag].strip()]
    if not cell or not values:
        return None
    shown = repr(cell[:30])
    if cell in values:
        return f"{shown} in its first line is repeated below"
    if is_entity_tag(cell) and all(map(is_entity_tag, values)):
        return f"{shown} in its first line is a tag of entities, as below"
    if cell.isupper() and all(value.isupper() for value in values if value.isalpha()):
        return f"{shown} in its first line is written like the tags below"
    return None


def _holds_words(sample: Sequence[_Row], places: _ColumnLayout) -> bool:
    """Return whether rows are words with recurring tags, in at least two sentences.

    Most sentences have several words. The first row may be a header, the last sentence incomplete.
    """
    rows = _below(sample)
    if not rows or _holds_texts(rows, places):
        return False
    if places.sentence is not None:
        named = [cells[places.sentence].strip() for cells in rows]
        sizes = [len(list(run)) for _, run in groupby(_filled(named))]
    else:
        sizes = [
            len(list(run)) for empty, run in groupby(sample, lambda row: row.empty) if not empty
        ]
    words = [cells[places.word].strip() for cells in rows]
    tags = [cells[places.tag].strip() for cells in rows if places.tag is not None]
    return len(sizes) > 1 and may_be_tagged(words, tags, sizes)


def _holds_texts(rows: Sequence[Sequence[str]], places: _ColumnLayout) -> bool:
    """Return whether a column beside those of words, tags and sentences mostly holds texts."""
    beside = set(range(len(rows[0]))) - set(places.roles().values())
    return any(2 * sum(row[index].count(" ") > 1 for row in rows) > len(rows) for index in beside)


def _sentences(
    file: TextFile, rows: Iterator[_Row], places: _ColumnLayout, width: int
) -> Iterator[Words | BadSentence]:
    """Yield the sentences of rows, of which the first with cells may be the header."""
    document, block, named = 0, list[_Row](), ""
    if places.header.present:
        rows = chain(takewhile(lambda row: not row.word, rows), rows)
    for row in rows:
        name = named
        if places.sentence is not None and places.sentence < len(row.cells):
            name = row.cells[places.sentence].strip() or named
        if block and (row.empty or row.document or name != named):
            yield _sentence(file, block, places, width, document)
            block = []
        named, document = name, document + row.document
        if not row.empty and not row.document:
            block.append(row)
            if len(block) > MAX_SENTENCE_LENGTH:
                remedy = "put an empty row after each sentence, or name the task"
                raise file.fault(f"no empty row in {counted(len(block), 'row')}", row.line, remedy)
    if block:
        yield _sentence(file, block, places, width, document)


def _sentence(
    file: TextFile, block: Sequence[_Row], places: _ColumnLayout, width: int, document: int
) -> Words | BadSentence:
    row = "\n".join("\t".join(word.cells) for word in block)
    words, tags, lines = [], [], []
    try:
        for word in block:
            line, cells = word.line, word.cells
            if word.error is not None:
                raise word.error
            if len(cells) != width:
                problem = f"{counted(len(cells), 'column')} where the first row has {width}"
                remedy = 'give every word the same columns; put a comma as a word in quotes: ","'
                raise file.fault(problem, line, remedy)
            words.append(_cell(file, cells[places.word], line, "word"))
            if places.tag is not None:
                tags.append(_cell(file, cells[places.tag], line, "tag"))
            lines.append(line)
    except UserError as error:
        return BadSentence(error=error, row=row)
    return Words(words=words, tags=tags or None, lines=lines, document=document, row=row)


def _cell(file: TextFile, cell: str, line: int, role: str) -> str:
    if "\0" in cell:
        raise file.fault("a zero byte", line, "remove it: tr -d '\\000'")
    text = tidy(cell)
    if not text:
        raise file.fault(f"the {role} is empty", line, "fill it in, or remove the line")
    if text.startswith("[") and text.endswith("]") and " " in text:
        remedy = "give one word per row, or lists of tokens and tags in a .jsonl"
        raise file.fault(f"a list where a {role} is expected", line, remedy)
    return text
