"""Sentences of words joined to their tags, a sentence a line: word_TAG and word/TAG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from bertsmith.errors import ExampleError, UserError
from bertsmith.text.conll_columns import TagColumns
from bertsmith.text.opening import TextFile, kind_of
from bertsmith.text.tables import TABLES
from bertsmith.text.tagged import BadSentence, Words

_SIGNS = ("_", "/")
_LINES = 50


def joining_sign(path: Path, columns: TagColumns, encoding: str) -> str | None:
    """Return the sign between words and tags of a file, None of one that is laid out otherwise.

    Where it is not stated, every word of the first lines must have it, lines have several words,
    and tags repeat. Raises `ExampleError` where joined words are stated and no sign is found.
    """
    if columns.sign or columns.layout == "columns":
        return columns.sign or None
    stated = columns.layout == "joined"
    if not stated and kind_of(path) in (*TABLES, ".xml", ".conllu"):
        return None
    file = TextFile(path, ExampleError, encoding)
    found = [text.split() for _, text in islice(file.lines(escaped=True), _LINES) if text.strip()]
    words = [word for line in found for word in line]
    if stated:
        return _commonest_sign(file, words)
    if not words or len(words) < 2 * len(found):
        return None
    for sign in _SIGNS:
        pairs = [word.rpartition(sign) for word in words]
        tags = {tag for _, _, tag in pairs}
        if all(word and tag for word, _, tag in pairs) and 2 * len(tags) <= len(words):
            return sign
    return None


def _commonest_sign(file: TextFile, words: Sequence[str]) -> str:
    """Return the sign that most words have; the file's error where half of them have none."""
    counts = {sign: sum(all(word.rpartition(sign)) for word in words) for sign in _SIGNS}
    sign = max(_SIGNS, key=counts.__getitem__)
    if 2 * counts[sign] <= len(words):
        what = f"no sign stands between words and tags; {' and '.join(_SIGNS)} were looked for"
        raise file.fault(what, 1, "state it, such as --tags.sign '|', or --tags.layout columns")
    return sign


def joined_sentences(file: TextFile, sign: str) -> Iterator[Words | BadSentence]:
    r"""Return the sentences of a file; ``\/`` is a slash within a word."""
    for line, text in file.lines(escaped=True):
        if not text.strip():
            continue
        try:
            yield _sentence(file, line, text, sign)
        except UserError as error:
            yield BadSentence(error=error, row=text)


def _sentence(file: TextFile, line: int, text: str, sign: str) -> Words:
    if error := file.undecodable(text, line):
        raise error
    if "\0" in text:
        raise file.fault("a zero byte", line, "remove it: tr -d '\\000'")
    words, tags = [], []
    for joined in text.split():
        word, _, tag = joined.rpartition(sign)
        if not word or not tag:
            what = f"the word {joined[:40]!r} has no tag"
            raise file.fault(what, line, f"write word{sign}TAG for every word")
        words.append(word.replace("\\/", "/"))
        tags.append(tag)
    return Words(words=words, tags=tags, lines=[line] * len(words), document=line, row=text)
