"""Examples in XML: COPA's items of a premise and alternatives, and pairs of texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

from bertsmith.core.errors import ExampleError, UserError
from bertsmith.text.bad_rows import BadRows, Refuse
from bertsmith.text.config import Columns
from bertsmith.text.examples.example import (
    Check,
    Example,
    Kind,
    checked,
    label_of,
    located,
    text_of,
)
from bertsmith.text.opening import MAX_LINE_LENGTH, TextFile

_ALTERNATIVE = re.compile("a([0-9]{1,4})")
_NUMBER = re.compile("[1-9][0-9]{0,3}")
# elements inside each other that have a text: a file may nest as many as it has bytes
_DEPTH = 16


Element = tuple[int, dict[str, str], dict[str, str]]


def copa_items(file: TextFile) -> Iterator[tuple[int, dict[str, object], str]]:
    """Yield line, parts and text of each item. Raises the file's error for invalid XML."""
    for line, attributes, texts in xml_items(file, ("item",)):
        options = [texts[key] for key in sorted(texts, key=_number) if _number(key)]
        parts: dict[str, object] = {
            "context": texts.get("p"),
            "question": attributes.get("asks-for"),
            "options": options,
            "label": _from_zero(attributes.get("most-plausible-alternative")),
            "id": attributes.get("id"),
        }
        yield line, parts, json.dumps(attributes | texts)


def xml_items(file: TextFile, names: tuple[str, ...]) -> Iterator[Element]:
    """Yield line, attributes and texts by inner element of each element with one of the names.

    A text includes those of the elements inside, such as ``<b>``; of a name that occurs twice there
    is none, since it is not known which is meant. Entity declarations are refused: a few lines of
    them can expand to gigabytes.
    """
    handler = _ElementHandler(file, names)
    # the blocks are UTF-8, whatever the document declares
    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler = lambda name, given: handler.begin(
        name, given, parser.CurrentLineNumber
    )
    parser.EndElementHandler = handler.end
    parser.CharacterDataHandler = handler.add
    parser.EntityDeclHandler = lambda *_: handler.refuse_entity(parser.CurrentLineNumber)
    try:
        for block in file.blocks():
            parser.Parse(block)
            yield from handler.take_items()
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        reason = expat.errors.messages[error.code]
        raise file.fault(f"not XML: {reason}", error.lineno, "copy or export it again") from error
    yield from handler.take_items()


class _ElementHandler:
    """The state of the parser: complete and open elements."""

    def __init__(self, file: TextFile, names: tuple[str, ...]) -> None:
        self._file = file
        self._names = names
        self._items: list[Element] = []
        self._line = 0
        self._given: dict[str, str] | None = None
        self._texts: dict[str, str] = {}
        self._repeated: set[str] = set()
        self._open: list[str] = []

    def begin(self, name: str, attributes: dict[str, str], line: int) -> None:
        if name in self._names:
            self._line, self._given, self._texts, self._open = line, attributes, {}, []
            self._repeated = set()
        elif self._given is not None:
            self._open.append(name)
            if name in self._texts:
                self._repeated.add(name)
            self._texts.setdefault(name, "")

    def add(self, text: str) -> None:
        for name in {*self._open[:_DEPTH]}:
            self._texts[name] += text
            if len(self._texts[name]) > MAX_LINE_LENGTH:
                remedy = "is this another kind of file?"
                problem = f"a text of over {MAX_LINE_LENGTH:,} characters"
                raise self._file.fault(problem, self._line, remedy)

    def end(self, name: str) -> None:
        if name in self._names and self._given is not None:
            texts = {key: self._texts[key] for key in self._texts if key not in self._repeated}
            self._items.append((self._line, self._given, texts))
            self._given = None
        elif self._open:
            self._open.pop()

    def take_items(self) -> list[Element]:
        items, self._items = self._items, []
        return items

    def refuse_entity(self, line: int) -> None:
        raise self._file.fault("declares entities of its own", line, "write them out")


def _number(element: str) -> int:
    """Return 2 for ``a2``, 0 for other elements."""
    match = _ALTERNATIVE.fullmatch(element)
    return int(match[1]) if match else 0


def _from_zero(written: str | None) -> str | None:
    if written is None or not _NUMBER.fullmatch(written):
        return written
    return str(int(written) - 1)


_LABELS = ("entailment", "value", "label", "judgment", "class", "score")
_FIRST = ("t", "text", "text1", "sentence1", "premise")
_SECOND = ("h", "hypothesis", "text2", "sentence2", "text_pair")


def has_elements(file: TextFile, name: str) -> bool:
    """Return whether an XML file holds elements of a name."""
    return next(xml_items(file, (name,)), None) is not None


def pair_examples(
    path: Path, columns: Columns, kind: Kind, check: Check | None, bad: BadRows, *, need_label: bool
) -> Iterator[Example]:
    """Yield the pairs of an XML file, their label being an attribute."""
    file = TextFile(path, ExampleError, columns.encoding)

    def rows(refuse: Refuse) -> Iterator[Example]:
        for line, attributes, texts in xml_items(file, ("pair",)):
            try:
                example = _example(file, line, attributes, texts, kind)
                if need_label and (example.label, example.number, example.labels) == (None,) * 3:
                    remedy = f"give each <pair> an attribute {' or '.join(_LABELS[:3])}"
                    raise file.fault("no label", line, remedy)
                example = checked(file, example, check)
            except UserError as error:
                refuse(error, json.dumps(attributes | texts))
            else:
                yield example

    return bad.read(file, rows)


def _example(
    file: TextFile, line: int, attributes: dict[str, str], texts: dict[str, str], kind: Kind
) -> Example:
    first = next((texts[name] for name in _FIRST if name in texts), None)
    second = next((texts[name] for name in _SECOND if name in texts), None)
    if first is None or second is None:
        raise file.fault("a <pair> without <t> and <h>", line, "write one <t> and one <h> in it")
    value = next((attributes[name] for name in _LABELS if name in attributes), None)
    with located(file, line):
        label, number, labels = label_of(kind, value)
    return Example(
        text=text_of(file, line, "text", first),
        text_pair=text_of(file, line, "second text", second),
        label=label,
        source=str(file.path),
        line=line,
        labels=labels,
        number=number,
        id=attributes.get("id"),
    )
