"""Pairs of texts in XML, as those of RTE: <pair entailment="YES"><t>..</t><h>..</h></pair>."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from bertsmith.errors import ExampleError, UserError
from bertsmith.text.bad_rows import BadRows, examples_missing
from bertsmith.text.choices_xml import xml_items
from bertsmith.text.columns import Columns
from bertsmith.text.example import Check, Example, Kind, checked, label_of, text_of
from bertsmith.text.labels import BadLabel
from bertsmith.text.opening import TextFile

_LABELS = ("entailment", "value", "label", "judgment", "class", "score")
_FIRST = ("t", "text", "text1", "sentence1", "premise")
_SECOND = ("h", "hypothesis", "text2", "sentence2", "text_pair")


def has_pairs(file: TextFile) -> bool:
    """Return whether the first elements of an XML file are pairs."""
    return next(xml_items(file, ("pair",)), None) is not None


def pair_examples(
    path: Path,
    columns: Columns,
    kind: Kind,
    check: Check | None,
    bad: BadRows,
    *,
    need_label: bool,
) -> Iterator[Example]:
    """The pairs of an XML file, their label an attribute."""
    file = TextFile(path, ExampleError, columns.encoding)
    before, empty = bad.count, True
    with bad.of(path) as refuse:
        for line, given, texts in xml_items(file, ("pair",)):
            try:
                example = _example(file, line, given, texts, kind)
                if need_label and (example.label, example.number, example.labels) == (None,) * 3:
                    remedy = f"give each <pair> an attribute {' or '.join(_LABELS[:3])}"
                    raise file.fault("no label", line, remedy)
                example = checked(file, example, check)
            except UserError as error:
                refuse(error, json.dumps(given | texts))
                continue
            empty = False
            yield example
    if empty:
        raise examples_missing(file, bad, before)


def _example(
    file: TextFile, line: int, given: dict[str, str], texts: dict[str, str], kind: Kind
) -> Example:
    first = next((texts[name] for name in _FIRST if name in texts), None)
    second = next((texts[name] for name in _SECOND if name in texts), None)
    if first is None or second is None:
        raise file.fault("a <pair> without <t> and <h>", line, "write <t>..</t><h>..</h> in it")
    value = next((given[name] for name in _LABELS if name in given), None)
    try:
        label, number, labels = label_of(kind, value)
    except BadLabel as error:
        raise file.fault(error.what, line, error.remedy) from error
    return Example(
        text=text_of(file, line, "text", first),
        text_pair=text_of(file, line, "second text", second),
        label=label,
        source=str(file.path),
        line=line,
        labels=labels,
        number=number,
        id=given.get("id"),
    )
