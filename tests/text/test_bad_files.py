"""Hand-made bad files: each named by file and line; left out or put aside, each counted exactly."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import pytest

from bad_files.asked import of_choices, of_spans
from bad_files.bad import Bad
from bad_files.glue import of_glue
from bad_files.tables import of_csv, of_jsonl, of_lines, of_parquet, of_tsv
from bad_files.tagged import of_marked_texts, of_tags
from bad_files.whole import of_whole_files
from bertsmith.core.errors import ExampleError
from bertsmith.text.bad_rows import BadRows
from reading import READERS


def _ending(files: Iterable[Bad], kind: str) -> list[Bad]:
    return [dataclasses.replace(bad, name=f"{bad.name}.{kind}") for bad in files]


BAD = [
    *(*_ending(of_csv(), "csv"), *_ending(of_tsv(), "tsv"), *_ending(of_jsonl(), "jsonl")),
    *chain(of_parquet(), of_lines(), of_whole_files(), of_tags(), of_marked_texts()),
    *chain(of_spans(), of_choices(), of_glue()),
]


def test_there_are_enough_of_them() -> None:
    assert len(BAD) >= 250
    assert len({(bad.reader, bad.name) for bad in BAD}) == len(BAD)


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: f"{bad.reader}-{bad.name}")
def test_a_bad_file(tmp_path: Path, bad: Bad) -> None:
    path = tmp_path / bad.name
    path.write_bytes(bad.data)
    read = READERS[bad.reader]
    with pytest.raises(ExampleError) as caught:
        list(read(path, BadRows("fail")))
    error = caught.value
    assert bad.message in error.problem
    assert (error.where, error.line) == (path, bad.line)
    assert error.remedy
    assert "\n" not in str(error)
    for rows in (BadRows("skip"), BadRows("quarantine", folder=tmp_path / "aside")):
        (tmp_path / "aside").mkdir(exist_ok=True)
        if bad.kept is None:
            with pytest.raises(ExampleError, match=path.name):
                list(read(path, rows))
            continue
        assert len(list(read(path, rows))) == bad.kept
        assert rows.count == bad.refused
        assert str(rows.first) == str(error)
        told = rows.message()
        assert told is not None
        assert told.startswith(f"{bad.refused:,} bad row")
    if bad.kept is not None:
        aside = (tmp_path / "aside" / f"{bad.name}.bad.jsonl").read_text().splitlines()
        assert len(aside) == bad.refused
        first = json.loads(aside[0])
        assert (first["line"], bad.message in first["reason"]) == (bad.line, True)
        assert first["row"]
