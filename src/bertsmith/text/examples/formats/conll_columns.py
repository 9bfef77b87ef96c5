"""Sentences in columns, one word per line: the CoNLL tasks' format and CoNLL-U."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from bertsmith.core.errors import ExampleError, UserError
from bertsmith.core.printable import counted
from bertsmith.text.config import USUAL_TAGS, TagColumns
from bertsmith.text.examples.columns import first_of
from bertsmith.text.examples.tagged import BadSentence, Words
from bertsmith.text.opening import TextFile, kind_of
from bertsmith.text.white_space import tidy

DOCUMENT = "-DOCSTART-"
MAX_SENTENCE_LENGTH = 100_000
COMMENT = re.compile(r"#\s+(?:[\w.:-]+\s*=|id\s)")
"""A comment by its looks; others are known by their number of columns."""
_CONLLU = ".conllu"
_FORM, _UPOS = 1, 3

WORD_NAMES = ("word", "words", "token", "tokens", "form")
TAG_NAMES = ("tag", "tags", "ner", "ner_tag", "ner_tags", "pos", "pos_tag", "pos_tags", "upos")

# fewer words than these may be numbers by chance
_COUNTED = 3
SENTENCES_LOOKED_AT = 20


@dataclass(frozen=True, slots=True)
class _ColumnLayout:
    word: int
    tag: int
    width: int
    universal: bool


def column_sentences(
    file: TextFile, columns: TagColumns, *, need_tags: bool
) -> Iterator[Words | BadSentence]:
    """Yield the sentences of a file of columns, which tabs or else spaces separate in each line."""
    universal = kind_of(file.path) == _CONLLU
    word, tag = columns.word, columns.tag
    if universal:
        word = _FORM if word == USUAL_TAGS.word else word
        tag = _UPOS if tag == USUAL_TAGS.tag else tag
    layout: _ColumnLayout | None = None
    blocks = _blocks(file, universal=universal)
    first = list(islice(blocks, SENTENCES_LOOKED_AT))
    if columns.word == USUAL_TAGS.word and not universal:
        _refuse_numbers(file, [lines for _, lines in first])
    for document, lines in chain(first, blocks):
        if layout is None:
            if not universal and names_columns(_cells(lines[0][1])):
                del lines[0]
                if not lines:
                    continue
            width = len(_cells(lines[0][1]))
            layout = _ColumnLayout(word, tag, width, universal)
        row = "\n".join(text for _, text in lines)
        try:
            yield _sentence(file, lines, layout, document, row, need_tags=need_tags)
        except UserError as error:
            yield BadSentence(error=error, row=row)


def _refuse_numbers(file: TextFile, blocks: Sequence[list[tuple[int, str]]]) -> None:
    """Raise the file's error if the column of words, which was not named, counts them."""
    rows = [[_cells(text) for _, text in lines] for lines in blocks]
    if rows and names_columns(rows[0][0]):
        del rows[0][0]
    if count_words([[cells[0] for cells in block if len(cells) > 1] for block in rows]):
        width = len(_cells(blocks[0][0][1]))
        itself = f"--tags.word=-{width} where the numbers are the words"
        remedy = f"name the column of words, counted from 0: --tags.word 1, or {itself}"
        raise file.fault("the first column numbers the words", blocks[0][0][0], remedy)


def count_words(sentences: Iterable[Sequence[str]]) -> bool:
    """Return whether what is in the place of words counts those of each sentence, from 0 or 1.

    Sentences too short to tell are left out.
    """
    long = [list(cells) for cells in sentences if len(cells) >= _COUNTED]
    return bool(long) and all(
        cells in ([str(number + first) for number in range(len(cells))] for first in (0, 1))
        for cells in long
    )


def names_columns(cells: Sequence[str]) -> bool:
    """Return whether the cells of a first line are usual names of word and tag."""
    return first_of(cells, WORD_NAMES) is not None and first_of(cells, TAG_NAMES) is not None


def has_names(path: Path, encoding: str) -> bool:
    """Return whether the first non-empty line of a file of columns names them."""
    lines = TextFile(path, ExampleError, encoding).lines(escaped=True)
    words = (text for _, text in lines if text.strip() and not COMMENT.match(text))
    return names_columns(_cells(next(words, "")))


def first_words(file: TextFile) -> Iterator[list[str]]:
    """Yield the cells of each word, and of the names of the columns where there are some."""
    for _, lines in _blocks(file, universal=kind_of(file.path) == _CONLLU):
        yield from (_cells(text) for _, text in lines)


def _blocks(file: TextFile, *, universal: bool) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """Yield the number of the document and the lines of each sentence, without its comments."""
    blocks = _blocks_with_comments(file, universal=universal)
    # a block of comments alone, such as a licence, is known by the words of the next sentence
    begin: list[tuple[int, list[tuple[int, str]]]] = []
    word = None
    for document, lines in blocks:
        begin.append((document, lines))
        word = next((text for _, text in lines if not text.startswith("#")), None)
        if universal or word is not None:
            break
    for number, (document, lines) in enumerate(chain(begin, blocks), start=1):
        if words := (
            lines if universal else _without_comments(lines, word, head=number < len(begin))
        ):
            yield document, words


def _without_comments(
    lines: list[tuple[int, str]], word: str | None, *, head: bool
) -> list[tuple[int, str]]:
    """Leave out lines such as ``# id = 4`` above the first word; a word may be ``#`` itself.

    `word` is the line of a word elsewhere, for a block in which all lines begin with ``#``; above
    the first word of the file, the `head`, such a block is all comments if one of its lines is a
    sentence, known by its number of columns.
    """
    first = next((text for _, text in lines if not text.startswith("#")), word)
    begin = 0
    for number, (_, text) in enumerate(lines, start=1):
        other = first is not None and (
            len(_cells(text)) != len(_cells(first)) or ("\t" in first) != ("\t" in text)
        )
        comment = COMMENT.match(text) or (text.startswith("# ") and other)
        if not (comment or text.startswith("# ")) or len(_cells(text)) == 1:
            break
        # a line of as many columns as a word has may be above a comment
        begin = number if comment else begin
    prose = head and begin and not any(COMMENT.match(text) for _, text in lines)
    return [] if prose else lines[begin:]


def _blocks_with_comments(
    file: TextFile, *, universal: bool
) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    document = 0
    lines: list[tuple[int, str]] = []
    for line, text in file.lines(escaped=True):
        begins = text.startswith("# newdoc" if universal else DOCUMENT)
        if begins or not text or text.isspace():
            if lines:
                yield document, lines
                lines = []
            document += begins
        elif not (universal and text.startswith("#")):
            lines.append((line, text))
            if len(lines) > MAX_SENTENCE_LENGTH:
                remedy = "put an empty line after each sentence, or name the task"
                raise file.fault(f"no empty line in {counted(len(lines), 'line')}", line, remedy)
    if lines:
        yield document, lines


def _sentence(
    file: TextFile,
    lines: Sequence[tuple[int, str]],
    layout: _ColumnLayout,
    document: int,
    row: str,
    *,
    need_tags: bool,
) -> Words:
    if layout.width == 1 and need_tags:
        remedy = "give words and tags, in columns separated by tabs or spaces"
        raise file.fault("one column only, so no tags", lines[0][0], remedy)
    words, tags, numbers = [], [], []
    for line, text in lines:
        cells = _checked_cells(file, line, text, layout, need_tags=need_tags)
        if layout.universal and not cells[0].isdecimal():
            continue  # a multiword token or an empty node
        words.append(_cell(file, cells, layout.word, line, "word"))
        if layout.width > 1:
            tags.append(_cell(file, cells, layout.tag, line, "tag"))
        numbers.append(line)
    if not words:
        raise file.fault("a sentence without words", lines[0][0], "remove it")
    return Words(words=words, tags=tags or None, lines=numbers, document=document, row=row)


def _checked_cells(
    file: TextFile, line: int, text: str, layout: _ColumnLayout, *, need_tags: bool
) -> list[str]:
    file.check_line(text, line)
    cells = _cells(text)
    if len(cells) != layout.width:
        problem = f"{counted(len(cells), 'column')} where the first word has {layout.width}"
        remedy = "give every word the same columns"
        if not (need_tags or layout.universal):
            remedy += "; if each line is a text, name the file .txt or give it to standard input"
        raise file.fault(problem, line, remedy)
    return cells


def _cells(text: str) -> list[str]:
    return text.split("\t") if "\t" in text else [cell for cell in text.split(" ") if cell]


def _cell(file: TextFile, cells: Sequence[str], column: int, line: int, role: str) -> str:
    if not -len(cells) <= column < len(cells):
        remedy = f"its {counted(len(cells), 'column')} count from 0, or from -1 backwards"
        raise file.fault(f"no column {column} for the {role}", line, remedy)
    text = tidy(cells[column])
    if not text:
        raise file.fault(f"the {role} is empty", line, "fill it in, or remove the line")
    return text
