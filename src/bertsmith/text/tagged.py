"""Sentences whose words have tags, and the entities that the tags say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bertsmith.errors import UserError
from bertsmith.text.schemes import entity_spans

_WORD = re.compile(r"\w+|[^\w\s]")

Spans = tuple[tuple[int, int], ...]
"""Characters of words: the first, and the one after the last."""


class Entity(NamedTuple):
    """Characters of a text, `start` to before `end`, and what they are."""

    start: int
    end: int
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tagged:
    """A sentence or text, its words as characters of it, and their tags where they are known.

    Tags are in BIO2, or as written where they are no BIO. `entities` are exactly those given, even
    where they begin or end inside a word; None of plain tags and of what has none. `document`
    counts the documents of the file; `source` and `line` say where the sentence begins.
    """

    text: str
    words: Spans
    tags: tuple[str, ...] | None
    entities: tuple[Entity, ...] | None
    document: int
    source: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """A sentence as it stands in a file: each word with its line and its tag as written."""

    words: list[str]
    tags: list[str] | None
    lines: list[int]
    document: int
    row: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BadSentence:
    """A sentence that cannot be read, and why."""

    error: UserError
    row: str


def words_of(text: str) -> Spans:
    """The words and single marks of a raw text."""
    return tuple(match.span() for match in _WORD.finditer(text))


def joined(words: Sequence[str]) -> tuple[str, Spans]:
    """The words with blanks between them, and where they stand."""
    spans, start = [], 0
    for word in words:
        spans.append((start, start + len(word)))
        start += len(word) + 1
    return " ".join(words), tuple(spans)


def entities_of(words: Spans, tags: Sequence[str]) -> tuple[Entity, ...]:
    """Return the entities that the tags of words say, in characters (see `entity_spans`)."""
    assert len(words) == len(tags)
    return tuple(
        Entity(words[begin][0], words[end - 1][1], label)
        for begin, end, label in entity_spans(tags)
    )


def tags_of(words: Spans, entities: Sequence[Entity]) -> tuple[str, ...]:
    """BIO2 tags of the words that share a character with an entity; of two, the first counts."""
    ordered = sorted(entities)
    tags, place, begun = [], 0, -1
    for start, end in words:
        while place < len(ordered) and ordered[place].end <= start:
            place += 1
        if place == len(ordered) or ordered[place].start >= end:
            tags.append("O")
        else:
            tags.append(f"{'I' if begun == place else 'B'}-{ordered[place].label}")
            begun = place
    return tuple(tags)
