"""Tagged sentences out of CoNLL columns, CoNLL-U and JSONL, their tags in BIO2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bertsmith.errors import ExampleError
from bertsmith.text.bad_rows import FAIL, BadRows, examples_missing
from bertsmith.text.columns import USUAL, Columns
from bertsmith.text.conll_columns import USUAL_TAGS, TagColumns, column_sentences
from bertsmith.text.joined_tags import joined_sentences, joining_sign
from bertsmith.text.opening import TextFile, kind_of
from bertsmith.text.schemes import BadTag, Scheme, recognise_scheme, to_bio2
from bertsmith.text.tables import DELIMITED, JSON
from bertsmith.text.tag_tables import tag_table_sentences
from bertsmith.text.tagged import BadSentence, Tagged, Words, entities_of, joined
from bertsmith.text.tagged_json import json_sentences

__all__ = ["USUAL_TAGS", "TagColumns", "read_tagged", "tag_scheme"]


def read_tagged(
    path: Path,
    columns: TagColumns = USUAL_TAGS,
    *,
    need_tags: bool,
    scheme: Scheme | None = None,
    bad: BadRows = FAIL,
    table: Columns = USUAL,
) -> Iterator[Tagged]:
    """Stream the sentences of a tagged file, also .gz or .zst.

    Columns stand between tabs or blanks, sentences between empty lines and documents between
    ``-DOCSTART-`` lines; .csv and .tsv are tables; .conllu is CoNLL-U; or a line is a sentence of
    ``word_TAG`` or ``word/TAG``. A .jsonl has a text with ``entities`` as ``[start, end, label]``
    in characters, or ``tokens`` with ``tags``, or the keys that `table` names. How the tags
    are to be read is seen from all of them (`tag_scheme`) unless `scheme` says it. Raises
    `ExampleError`, with file and line, for a sentence that cannot be read, unless `bad` takes
    it. Words without tags will do unless `need_tags`.
    """
    file = TextFile(path, ExampleError, table.encoding)
    scheme = scheme or tag_scheme(path, columns, table)
    before, empty = bad.count, True
    with bad.of(path) as refuse:
        for found in _sentences(path, columns, table, need_tags=need_tags):
            made = _tagged(file, found, scheme) if isinstance(found, Words) else found
            if isinstance(made, BadSentence):
                refuse(made.error, made.row)
            else:
                empty = False
                yield made
    if empty:
        raise examples_missing(file, bad, before)


def tag_scheme(path: Path, columns: TagColumns = USUAL_TAGS, table: Columns = USUAL) -> Scheme:
    """How a file's tags say where an entity begins; what cannot be read is passed over.

    Entities in characters are BIO2 once they are tags of words.
    """
    if columns.scheme != "auto":
        return columns.scheme
    return recognise_scheme(
        found.tags
        for found in _sentences(path, columns, table, need_tags=False)
        if isinstance(found, Words) and found.tags is not None
    )


def _sentences(
    path: Path, columns: TagColumns, table: Columns, *, need_tags: bool
) -> Iterator[Words | Tagged | BadSentence]:
    file = TextFile(path, ExampleError, table.encoding)
    sign = joining_sign(path, columns, table.encoding)
    if sign is None and columns.layout == "auto" and kind_of(path) in JSON:
        return json_sentences(path, table, need_tags=need_tags)
    if sign is None and kind_of(path) in DELIMITED:
        return tag_table_sentences(file, table, columns, need_tags=need_tags)
    table.check_read(path, "columns of words and tags (--tags.word and --tags.tag name them)")
    if sign is not None:
        return joined_sentences(file, sign)
    return column_sentences(file, columns, need_tags=need_tags)


def _tagged(file: TextFile, found: Words, scheme: Scheme) -> Tagged | BadSentence:
    text, spans = joined(found.words)
    tags = None
    if found.tags is not None:
        try:
            tags = to_bio2(found.tags, scheme)
        except BadTag as bad:
            remedy = "mend the tag, or name the scheme: bio1, bio2, bioes or plain"
            error = file.fault(bad.what, found.lines[bad.index], remedy)
            return BadSentence(error=error, row=found.row)
    return Tagged(
        text=text,
        words=spans,
        tags=tags,
        entities=None if tags is None or scheme == "plain" else entities_of(spans, tags),
        document=found.document,
        source=str(file.path),
        line=found.lines[0],
    )
