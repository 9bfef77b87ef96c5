"""Dependency trees in CoNLL-U: words, the head of each, and the relation between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertsmith.core.errors import ExampleError
from bertsmith.core.printable import counted
from bertsmith.text.opening import TextFile
from bertsmith.text.white_space import tidy

_WIDTH = 10
_WORD, _TAG, _HEAD, _RELATION, _MISC = 1, 3, 6, 7, 9
_DOCUMENT = "# newdoc"
ENTITY = "Entity"
"""The name of the brackets of mentions in the last column."""
_MAX_SENTENCE_LENGTH = 100_000
# Python reads no number of thousands of digits
_MAX_DIGITS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A sentence and its dependencies.

    `heads` has the index of each word's head, -1 for the root; `relations` are without subtypes
    (``nsubj`` for ``nsubj:pass``), `tags` the universal parts of speech. `source` and `line` (from
    1) locate the first word; `document` counts the ``# newdoc`` before it. `marks` are the
    brackets of the mentions that begin and end at each word (``Entity=`` in the last column).
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]
    source: str
    line: int
    document: int = 0
    marks: tuple[str, ...] = ()


def read_trees(path: Path, encoding: str = "auto") -> Iterator[Tree]:
    """Yield the trees of a CoNLL-U file, also .gz or .zst.

    Multiword tokens and empty nodes are passed over. Raises `ExampleError`, with file and line, for
    a sentence that is no tree of words.
    """
    file = TextFile(path, ExampleError, encoding)
    empty = True
    for document, lines in _sentences(file):
        yield _tree(file, lines, document)
        empty = False
    if empty:
        raise file.fault("holds no sentence", None, "give a treebank in CoNLL-U")


def _sentences(file: TextFile) -> Iterator[tuple[int, list[tuple[int, list[str]]]]]:
    """Yield the number of the document and the words, as numbered cells, of each sentence."""
    words: list[tuple[int, list[str]]] = []
    document = 0
    for line, text in file.lines():
        if not text.strip():
            if words:
                yield document, words
            words = []
            continue
        if text.startswith("#"):
            document += text.startswith(_DOCUMENT)
            continue
        cells = text.split("\t")
        if len(cells) != _WIDTH:
            problem = f"{counted(len(cells), 'column')} where CoNLL-U has {_WIDTH}"
            raise file.fault(problem, line, "separate the columns by tabs")
        if cells[0].isdecimal():
            words.append((line, cells))
        elif not cells[0].replace("-", "").replace(".", "").isdecimal():
            problem = f"{cells[0]!r} is not the number of a word"
            raise file.fault(problem, line, "number the words of a sentence from 1")
        if len(words) > _MAX_SENTENCE_LENGTH:
            problem = f"no empty line in {counted(len(words), 'line')}"
            raise file.fault(problem, line, "put an empty line after each sentence")
    if words:
        yield document, words


def _tree(file: TextFile, lines: Sequence[tuple[int, list[str]]], document: int) -> Tree:
    words, heads = [], []
    for number, (line, cells) in enumerate(lines, 1):
        if _number(cells[0]) != number:
            remedy = "number the words of a sentence from 1"
            raise file.fault(f"word {cells[0][:40]} where word {number} is next", line, remedy)
        word = tidy(cells[_WORD])
        if not word:
            raise file.fault("the word is empty", line, "fill it in")
        words.append(word)
        head = _number(cells[_HEAD])
        if head is None or head > len(lines) or head == number:
            shown = repr(cells[_HEAD][:40])
            problem = f"the head is {shown} in a sentence of {counted(len(lines), 'word')}"
            raise file.fault(problem, line, "give the number of another word, 0 for the root")
        heads.append(head - 1)
    return Tree(
        words=tuple(words),
        tags=tuple(cells[_TAG] for _, cells in lines),
        heads=tuple(heads),
        relations=tuple(cells[_RELATION].partition(":")[0] for _, cells in lines),
        source=str(file.path),
        line=lines[0][0],
        document=document,
        marks=tuple(_marks(cells[_MISC]) for _, cells in lines),
    )


def _number(cell: str) -> int | None:
    """Return the whole number in a cell, None for anything else and for a longer one."""
    return int(cell) if cell.isdecimal() and len(cell) <= _MAX_DIGITS else None


def _marks(cell: str) -> str:
    """Return the brackets of mentions in the last column."""
    parts = (part.partition("=") for part in cell.split("|"))
    return next((value for name, _, value in parts if name == ENTITY), "")
