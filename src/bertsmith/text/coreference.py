"""Documents with mentions that refer to the same thing: columns of CoNLL-2012, and CoNLL-U.

CoNLL-2012 (OntoNotes): ``#begin document (name); part 000``, a word a line with its part of speech
in column 4 and the brackets of mentions in the last, ``(12|(7)`` and ``12)``. CoNLL-U as in GUM and
CorefUD: ``Entity=(e7-person-1`` and ``Entity=e7)`` in the last column, the parts of a bracket named
by a comment ``# global.Entity``. The head word of a mention is that of its tree; without one, the
last word before what follows a noun (a preposition, a relative clause, a comma).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import Literal, NamedTuple

from bertsmith.core.errors import ExampleError
from bertsmith.text.config import AUTO
from bertsmith.text.opening import TextFile, kind_of
from bertsmith.text.treebank import ENTITY, Tree, read_trees
from bertsmith.text.white_space import tidy

Kind = Literal["pronoun", "proper", "nominal"]
Layout = Literal["conll-2012", "conllu"]

_BEGIN, _END = "#begin document", "#end document"
_WORD, _TAG, _NAMED = 3, 4, 10
_MIN_COLUMNS = 6
_LINES = 2000
_NOTHING = ("-", "_", "*", "")
_BRACKET = re.compile(r"\(([^()|]*)\)?|([^()|]+)\)")
_PRONOUNS = ("PRON", "PRP", "PRP$")
_PROPER = ("PROPN", "NNP", "NNPS")
_BRACKETS = {"-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}"}
# what follows the head of a noun phrase
_AFTER_HEAD = re.compile(r"IN|TO|CC|W.*|VB.*|[,:.]|-LRB-")
_CAN_BE_HEAD = re.compile(r"NN.*|PRP|CD|EX")
_NO_HEAD = re.compile(r"POS|\W+|-.RB-")


class Mention(NamedTuple):
    """A mention: the words from `begin` to `end`, exclusive, its head word, and what it names."""

    begin: int
    end: int
    head: int
    entity: str
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedSentence:
    """A sentence: its words, and their parts of speech or, where there are any, entities."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedDocument:
    """The sentences of a document and its mentions, whose words are counted from its beginning."""

    sentences: tuple[MarkedSentence, ...]
    mentions: tuple[Mention, ...]


def coreference_layout(path: Path, encoding: str = AUTO) -> Layout | None:
    """Return the layout of a file with mentions, by its beginning; None for any other file."""
    if kind_of(path) in (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".xml"):
        return None
    universal = kind_of(path) == ".conllu"
    file = TextFile(path, ExampleError, encoding)
    for _, text in islice(file.lines(escaped=True), _LINES):
        if universal and (text.startswith("# global.Entity") or f"{ENTITY}=(" in text):
            return "conllu"
        if not universal and text.strip():
            return "conll-2012" if text.startswith(_BEGIN) else None
    return None


def read_coreference(path: Path, layout: Layout, encoding: str = AUTO) -> Iterator[MarkedDocument]:
    """Yield the documents of a file; raises `ExampleError` for what cannot be read."""
    if layout == "conll-2012":
        yield from _column_documents(TextFile(path, ExampleError, encoding))
        return
    at = _entity_part(TextFile(path, ExampleError, encoding))
    for _, trees in groupby(read_trees(path, encoding), lambda tree: tree.document):
        yield _of_trees(list(trees), at)


# CoNLL-U


def _entity_part(file: TextFile) -> int:
    """Return which part of a bracket, between hyphens, names the entity."""
    for _, text in islice(file.lines(escaped=True), _LINES):
        name, _, value = text.partition("=")
        if name.strip() == "# global.Entity":
            parts = value.strip().split("-")
            return next((n for n, part in enumerate(parts) if part in ("eid", "GRP")), 0)
    return 0


def _of_trees(trees: Sequence[Tree], at: int) -> MarkedDocument:
    """Return a document; a bracket without its other half is passed over."""
    sentences, marks, tags, heads = [], list[str](), list[str](), list[int]()
    for tree in trees:
        first = len(tags)
        sentences.append(MarkedSentence(words=tree.words, tags=tree.tags, line=tree.line))
        marks += tree.marks
        tags += tree.tags
        heads += [first + head if head >= 0 else -1 for head in tree.heads]
    mentions = []
    for begin, end, entity in _spans(marks, at).spans:
        inside = range(begin, end)
        head = next((word for word in inside if heads[word] not in inside), begin)
        mentions.append(Mention(begin, end, head, entity, _kind(tags[head])))
    return MarkedDocument(sentences=tuple(sentences), mentions=tuple(sorted(mentions)))


class _Spans(NamedTuple):
    """Begin, end and entity of mentions, and the word of each bracket that is not matched."""

    spans: list[tuple[int, int, str]]
    unmatched: list[int]


def _spans(marks: Iterable[str], at: int = 0) -> _Spans:
    """Return the spans between brackets; of a mention in several parts the first."""
    waiting: dict[str, list[int]] = {}
    result = _Spans([], [])
    for word, mark in enumerate(marks):
        for match in _BRACKET.finditer("" if mark in _NOTHING else mark):
            opened, closed = match.groups()
            parts = (closed if opened is None else opened).split("-")
            # a closing bracket has the name alone
            name, _, part = parts[at if opened is not None and at < len(parts) else 0].partition(
                "["
            )
            if part and not part.startswith("1/"):
                continue
            if opened is not None:
                waiting.setdefault(name, []).append(word)
            if opened is None or match[0].endswith(")"):
                if waiting.get(name):
                    result.spans.append((waiting[name].pop(), word + 1, name))
                else:
                    result.unmatched.append(word)
    result.unmatched.extend(word for words in waiting.values() for word in words)
    return result


def _kind(tag: str) -> Kind:
    if tag in _PRONOUNS:
        return "pronoun"
    return "proper" if tag in _PROPER else "nominal"


# CoNLL-2012

_Lines = list[tuple[int, list[str]]]


def _column_documents(file: TextFile) -> Iterator[MarkedDocument]:
    sentences: list[_Lines] = []
    lines: _Lines = []
    empty, inside = True, False
    for line, text in file.lines():
        ends = text.startswith((_BEGIN, _END))
        if ends or not text.strip():
            if lines:
                sentences.append(lines)
                lines = []
            if ends and sentences:
                yield _of_columns(file, sentences)
                sentences, empty = [], False
            inside = text.startswith(_BEGIN) or (inside and not ends)
            continue
        if not text.startswith("#"):
            cells = text.split()
            if not inside or len(cells) < _MIN_COLUMNS:
                remedy = "give the columns of CoNLL-2012 between #begin document and #end document"
                raise file.fault("no word of a document", line, remedy)
            lines.append((line, cells))
    if lines:
        sentences.append(lines)
    if sentences:
        yield _of_columns(file, sentences)
    elif empty:
        raise file.fault("holds no sentence", None, "give documents in the columns of CoNLL-2012")


def _of_columns(file: TextFile, sentences: Sequence[_Lines]) -> MarkedDocument:
    rows = [row for lines in sentences for row in lines]
    spans, unmatched = _spans(cells[-1] for _, cells in rows)
    if unmatched:
        problem = f"{rows[unmatched[0]][1][-1]!r} has a bracket without its other half"
        raise file.fault(
            problem, rows[unmatched[0]][0], "write (12 where a mention begins, 12) after"
        )
    tags = [cells[_TAG] for _, cells in rows]
    mentions = []
    for begin, end, entity in sorted(spans):
        head = begin + _head_of(tags[begin:end])
        mentions.append(Mention(begin, end, head, entity, _kind(tags[head])))
    return MarkedDocument(
        sentences=tuple(_sentence(lines) for lines in sentences), mentions=tuple(mentions)
    )


def _sentence(lines: _Lines) -> MarkedSentence:
    words = tuple(_BRACKETS.get(cells[_WORD], tidy(cells[_WORD]) or "?") for _, cells in lines)
    named = [cells[_NAMED] if len(cells) > _NAMED + 1 else "*" for _, cells in lines]
    tags = _entities(named) if any("(" in item for item in named) else None
    own = tuple(cells[_TAG] for _, cells in lines)
    return MarkedSentence(words=words, tags=tags or own, line=lines[0][0])


def _entities(cells: Sequence[str]) -> tuple[str, ...]:
    """Return the tags of entities in brackets: ``(ORG*``, ``*`` and ``*)``."""
    tags, kind = [], ""
    for cell in cells:
        begins = cell.startswith("(")
        kind = cell.strip("(*)") if begins else kind
        tags.append(f"{'B' if begins else 'I'}-{kind}" if kind else "O")
        if cell.endswith(")"):
            kind = ""
    return tuple(tags)


def _head_of(tags: Sequence[str]) -> int:
    """Return the head of a noun phrase by its parts of speech."""
    first, nominal = len(tags), False
    for number, tag in enumerate(tags):
        # verbs, commas and "and" may also stand before the noun: a growing, black and white cat
        of_determiner = number and tags[number - 1] == "DT" and tag[0] in "IW"
        if _AFTER_HEAD.fullmatch(tag) and (nominal or of_determiner):
            first = number
            break
        nominal |= _CAN_BE_HEAD.fullmatch(tag) is not None
    inside = [n for n in range(first) if not _NO_HEAD.fullmatch(tags[n])]
    return inside[-1] if inside else first - 1
