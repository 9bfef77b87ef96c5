"""Tagged sentences of CoNLL columns, CoNLL-U, joined words and tags, and tables, in BIO2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from bertsmith.core.errors import ExampleError, UserError
from bertsmith.text.bad_rows import FAIL, BadRows, Refuse
from bertsmith.text.config import USUAL, USUAL_TAGS, Columns, TagColumns
from bertsmith.text.examples.formats.conll_columns import column_sentences, first_words
from bertsmith.text.examples.formats.tag_tables import first_rows, tag_table_sentences
from bertsmith.text.examples.tagged import (
    BadSentence,
    BadTag,
    Scheme,
    Tagged,
    Words,
    entities_of,
    is_entity_tag,
    joined,
    recognise_scheme,
    record_sentences,
    to_bio2,
)
from bertsmith.text.opening import TextFile, kind_of
from bertsmith.text.tables import DELIMITED, KEYED, TABLES

_SIGNS = ("_", "/")
_LINES = 50


def joining_sign(path: Path, columns: TagColumns, encoding: str) -> str | None:
    """Return the sign that joins words and tags in a file, None for other layouts.

    Unless it is stated, every word of the first lines must have it, lines have several words, and
    tags repeat. Raises `ExampleError` if joined words are stated and no sign is found.
    """
    if columns.sign or columns.layout == "columns":
        return columns.sign or None
    stated = columns.layout == "joined"
    if not stated and kind_of(path) in (*TABLES, ".xml", ".conllu"):
        return None
    file = TextFile(path, ExampleError, encoding)
    lines = [text.split() for _, text in islice(file.lines(escaped=True), _LINES) if text.strip()]
    words = [word for line in lines for word in line]
    if stated:
        return _most_frequent_sign(file, words)
    if not words or len(words) < 2 * len(lines):
        return None
    for sign in _SIGNS:
        pairs = [word.rpartition(sign) for word in words]
        tags = {tag for _, _, tag in pairs}
        if all(word and tag for word, _, tag in pairs) and 2 * len(tags) <= len(words):
            return sign
    return None


def _most_frequent_sign(file: TextFile, words: Sequence[str]) -> str:
    """Return the most frequent sign. Raises the file's error unless most words have it."""
    counts = {sign: sum(all(word.rpartition(sign)) for word in words) for sign in _SIGNS}
    sign = max(_SIGNS, key=counts.__getitem__)
    if 2 * counts[sign] <= len(words):
        problem = f"no sign joins words and tags; tried {' and '.join(_SIGNS)}"
        raise file.fault(problem, 1, "state it, such as --tags.sign '|', or --tags.layout columns")
    return sign


def is_laid_out(path: Path, columns: TagColumns, kind: str, encoding: str) -> bool:
    """Return whether a file can be read with the layout that was stated for one of a `kind`."""
    if path.is_dir() or _family(kind_of(path)) != _family(kind):
        return False
    joined_words = columns.sign is not None or columns.layout == "joined"
    stated = (columns.word, columns.tag) != (USUAL_TAGS.word, USUAL_TAGS.tag)
    if not (joined_words or stated or columns.layout == "columns"):
        return True
    file = TextFile(path, ExampleError, encoding)
    if joined_words:
        words = " ".join(text for _, text in islice(file.lines(escaped=True), _LINES)).split()
        signs = _SIGNS if columns.sign is None else (columns.sign,)
        counts = (sum(all(word.rpartition(sign)) for word in words) for sign in signs)
        return 2 * max(counts) > len(words)
    first = first_rows(file) if kind_of(path) in DELIMITED else first_words(file)
    rows = list(islice(first, _LINES))
    width = len(rows[0]) if rows else 0
    inside = all(-width <= index < width for index in (columns.word, columns.tag))
    # raw texts, a line each, differ in their words
    return inside and len(rows) > 1 and all(len(row) == width for row in rows)


def _family(kind: str) -> str:
    """Return the kinds of files that share a layout, by one of them."""
    families = (DELIMITED, KEYED, (".conllu",))
    return next((kinds[0] for kinds in families if kind in kinds), "")


def joined_sentences(file: TextFile, sign: str) -> Iterator[Words | BadSentence]:
    r"""Yield the sentences of a file; ``\/`` is a slash within a word."""
    for line, text in file.lines(escaped=True):
        if not text.strip():
            continue
        try:
            yield _joined_sentence(file, line, text, sign)
        except UserError as error:
            yield BadSentence(error=error, row=text)


def _joined_sentence(file: TextFile, line: int, text: str, sign: str) -> Words:
    file.check_line(text, line)
    words, tags = [], []
    for pair in text.split():
        word, _, tag = pair.rpartition(sign)
        if not word or not tag:
            problem = f"the word {pair[:40]!r} has no tag"
            raise file.fault(problem, line, f"write word{sign}TAG for every word")
        words.append(word.replace("\\/", "/"))
        tags.append(tag)
    return Words(words=words, tags=tags, lines=[line] * len(words), document=line, row=text)


def read_tagged(
    path: Path,
    columns: TagColumns = USUAL_TAGS,
    *,
    need_tags: bool,
    bad: BadRows = FAIL,
    table: Columns = USUAL,
) -> Iterator[Tagged]:
    """Yield the sentences of a tagged file, also .gz or .zst.

    Columns are separated by tabs or spaces, sentences by empty lines and documents by
    ``-DOCSTART-`` lines; .csv and .tsv are tables; .conllu is CoNLL-U; or a line is a sentence of
    ``word_TAG`` or ``word/TAG``. A .jsonl or .parquet has a text with ``entities`` as
    ``[start, end, label]`` in characters, or ``tokens`` with ``tags``, or the keys that `table`
    names. The tag scheme is detected from all tags (`tag_scheme`) unless `columns` state it. Words
    need no tags unless `need_tags`. Raises `ExampleError`, with file and line, for a sentence that
    cannot be read, unless `bad` takes it.
    """
    file = TextFile(path, ExampleError, table.encoding)

    def rows(refuse: Refuse) -> Iterator[Tagged]:
        scheme = tag_scheme(path, columns, table)
        for sentence in _sentences(path, columns, table, need_tags=need_tags):
            tagged = _tagged(file, sentence, scheme) if isinstance(sentence, Words) else sentence
            if isinstance(tagged, BadSentence):
                refuse(tagged.error, tagged.row)
            else:
                yield tagged

    return bad.read(file, rows)


def tag_scheme(path: Path, columns: TagColumns = USUAL_TAGS, table: Columns = USUAL) -> Scheme:
    """Return the tag scheme of a file; unreadable sentences are skipped.

    Entities in characters become BIO2 tags of words.
    """
    if columns.scheme != "auto":
        return columns.scheme
    return recognise_scheme(_tags(path, columns, table))


def tag_of_no_entity(path: Path, columns: TagColumns, table: Columns) -> str | None:
    """Return the first tag that keeps the tags of a file from being read as entities, or None.

    Only of a file that has tags of entities, such as B-LOC, all the same.
    """
    other: str | None = None
    entities = False
    for tags in _tags(path, columns, table):
        entities |= any(is_entity_tag(tag) and tag[1:2] == "-" for tag in tags)
        other = other or next((tag for tag in tags if not is_entity_tag(tag)), None)
        if entities and other is not None:
            return other
    return None


def _tags(path: Path, columns: TagColumns, table: Columns) -> Iterator[Sequence[str]]:
    """Yield the tags of each readable sentence."""
    for sentence in _sentences(path, columns, table, need_tags=False):
        if isinstance(sentence, Words) and sentence.tags is not None:
            yield sentence.tags


def _sentences(
    path: Path, columns: TagColumns, table: Columns, *, need_tags: bool
) -> Iterator[Words | Tagged | BadSentence]:
    file = TextFile(path, ExampleError, table.encoding)
    sign = joining_sign(path, columns, table.encoding)
    if sign is None and columns.layout == "auto" and kind_of(path) in KEYED:
        return record_sentences(path, table, need_tags=need_tags)
    if sign is None and kind_of(path) in DELIMITED:
        return tag_table_sentences(file, table, columns, need_tags=need_tags)
    table.check_read(path, "columns of words and tags (--tags.word and --tags.tag name them)")
    if sign is not None:
        return joined_sentences(file, sign)
    return column_sentences(file, columns, need_tags=need_tags)


def _tagged(file: TextFile, sentence: Words, scheme: Scheme) -> Tagged | BadSentence:
    text, spans = joined(sentence.words)
    tags = None
    if sentence.tags is not None:
        try:
            tags = to_bio2(sentence.tags, scheme)
        except BadTag as bad:
            remedy = "correct the tag, or name the scheme: bio1, bio2, bioes, ioe or plain"
            error = file.fault(bad.problem, sentence.lines[bad.index], remedy)
            return BadSentence(error=error, row=sentence.row)
    return Tagged(
        text=text,
        words=spans,
        tags=tags,
        entities=None if tags is None or scheme == "plain" else entities_of(spans, tags),
        document=sentence.document,
        source=str(file.path),
        line=sentence.lines[0],
    )
