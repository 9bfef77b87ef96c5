"""Tagged sentences out of JSONL: texts with the characters of entities, or tokens with tags."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from bertsmith.errors import ExampleError, UserError
from bertsmith.text.columns import Columns, first_of
from bertsmith.text.documents import tidy
from bertsmith.text.headers import NAMED, column_of, listed
from bertsmith.text.opening import TextFile
from bertsmith.text.tables import Head, Pick, Table
from bertsmith.text.tagged import BadSentence, Entity, Tagged, Words, tags_of, words_of

TEXTS = ("text", "sentence", "content")
ENTITIES = ("entities", "spans", "labels", "label", "ents")
TOKENS = ("tokens", "words")
TAGS = ("tags", "ner_tags", "labels", "pos_tags", "ner")
_SPAN = "write [start, end, label], in characters of the text from 0, the end not included"


def json_sentences(
    path: Path, columns: Columns, *, need_tags: bool
) -> Iterator[Words | Tagged | BadSentence]:
    """The sentences of a .jsonl file; which keys it has is seen at its first line.

    Of `columns`, the text is that of the text or of the tokens, the label that of the entities or
    tags. Texts are not tidied: places of entities are characters of them as they are.
    """
    columns.check_read(path, "tags in JSON", "text", "label", "header")
    refused: list[BadSentence] = []

    def refuse(error: UserError, row: str) -> None:
        refused.append(BadSentence(error=error, row=row))

    table = Table(path, ExampleError, encoding=columns.encoding, refuse=refuse)
    known: list[str] = []

    def pick(head: Head) -> Pick:
        given = _given(head, columns, table.file)
        main = given.get("text", first_of(head.names, (*TOKENS, *TEXTS)))
        if main is None:
            remedy = (
                "give a text and its entities, or name its key with --text-column; the keys are: "
                f"{listed(head.names)}"
            )
            raise table.file.fault("no key that looks like a text", 1, remedy)
        known.append(head.names[main].strip().casefold())
        usual = TAGS if known[0] in TOKENS else (*ENTITIES, *TAGS)
        marks = given.get("label", first_of(head.names, usual))
        if marks is None and need_tags:
            remedy = (
                "give entities as [start, end, label], or name their key with --label-column; the "
                f"keys are: {listed(head.names)}"
            )
            raise table.file.fault("no key that looks like entities or tags", 1, remedy)
        return Pick(columns=(main,) if marks is None else (main, marks))

    for line, (main, *marks) in table.rows(pick):
        yield from refused
        refused.clear()
        # what a key holds that was named by the user is seen from each row
        tokens = known[0] in TOKENS or (isinstance(main, list) and known[0] not in TEXTS)
        read = _tokens if tokens else _marked_text
        try:
            yield read(table.file, line, main, marks[0] if marks else None, table.row())
        except UserError as error:
            yield BadSentence(error=error, row=table.row())
    yield from refused


def _given(head: Head, columns: Columns, file: TextFile) -> dict[str, int]:
    """Return where the keys stand that the user named."""
    columns.check_named(file.path)
    given = {
        role: column_of(name, head.names, NAMED, file)
        for role in ("text", "label")
        if (name := getattr(columns, role)) is not None
    }
    if len(set(given.values())) < len(given):
        what = f"the key {columns.text!r} is named for the text and for the label"
        raise file.fault(what, 1, "name a key of its own for each")
    return given


def _tokens(file: TextFile, line: int, main: object, marks: object, row: str) -> Words:
    words = _strings(file, line, "tokens", main)
    tags = None if marks is None else _strings(file, line, "tags", marks)
    if tags is not None and len(tags) != len(words):
        what = f"{len(words)} tokens, and {len(tags)} tags"
        raise file.fault(what, line, "give every token one tag")
    return Words(words=words, tags=tags, lines=[line] * len(words), document=line, row=row)


def _strings(file: TextFile, line: int, role: str, value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise file.fault(f"the {role} are no list of strings", line, 'write ["O", "B-PER"]')
    found = [tidy(each) for each in value]
    if not found or not all(found):
        raise file.fault(f"the {role} are empty, or one of them is", line, "fill them in")
    return found


def _marked_text(file: TextFile, line: int, main: object, marks: object, row: str) -> Tagged:
    del row
    if not isinstance(main, str) or not main.strip():
        raise file.fault("the text is empty, or no string", line, "remove the line or fill it in")
    if "\0" in main:
        raise file.fault("a zero byte in the text", line, "remove it")
    # half a surrogate pair is no text; one sign takes its place, so that places stay
    text = main.encode("utf-8", "replace").decode()
    words = words_of(text)
    entities = None if marks is None else _entities(file, line, text, marks)
    return Tagged(
        text=text,
        words=words,
        tags=None if entities is None else tags_of(words, entities),
        entities=entities,
        document=line,
        source=str(file.path),
        line=line,
    )


def _entities(file: TextFile, line: int, text: str, marks: object) -> tuple[Entity, ...]:
    if not isinstance(marks, list):
        raise file.fault("the entities are no list", line, _SPAN)
    found = sorted(_entity(file, line, text, mark) for mark in marks)
    for first, second in pairwise(found):
        if second.start < first.end:
            what = f"entities overlap: {list(first)} and {list(second)}"
            raise file.fault(what, line, "keep one of them: a word has one tag")
    return tuple(found)


def _entity(file: TextFile, line: int, text: str, mark: object) -> Entity:
    if isinstance(mark, dict):
        mark = [mark.get("start"), mark.get("end"), mark.get("label")]
    if not isinstance(mark, list) or len(mark) != 3:
        raise file.fault("an entity is no list of three", line, _SPAN)
    start, end, label = mark
    if type(start) is not int or type(end) is not int or not isinstance(label, str):
        raise file.fault("an entity of other types than number, number, string", line, _SPAN)
    if not 0 <= start < end <= len(text):
        what = f"no characters {start} to {end} in a text of {len(text)}"
        raise file.fault(what, line, _SPAN)
    if text[start].isspace() or text[end - 1].isspace():
        what = f"the entity at {start} to {end} begins or ends with white space"
        raise file.fault(what, line, "leave it outside")
    if not tidy(label):
        raise file.fault(f"the label of the entity at {start} is empty", line, _SPAN)
    return Entity(start, end, tidy(label))
