"""Random bytes in files of every kind end in documents, examples or a `UserError`."""

from __future__ import annotations

import gzip
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from bertsmith.core.errors import CorpusError, ExampleError
from bertsmith.text.config import Layout
from bertsmith.text.corpus.files import Corpus
from bertsmith.text.examples.reading import read_examples

KINDS = (".txt", ".jsonl", ".csv", ".tsv", ".parquet")
LAYOUTS: tuple[Layout, ...] = ("auto", "documents", "prose", "wrapped")

PIECES = st.sampled_from(
    [
        b"text",
        b"label",
        b",",
        b"\t",
        b"\n",
        b"\r\n",
        b"\r",
        b'"',
        b'{"text": "x"}',
        b"{",
        b"1",
        b"\xef",
    ]
)
DATA = st.binary(max_size=200) | st.lists(PIECES, max_size=40).map(b"".join)
quick = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(data=DATA, packed=st.sampled_from(["", ".gz", ".zst"]), layout=st.sampled_from(LAYOUTS))
@example(data=gzip.compress(b'{"text": "x", "label": 1}'), packed=".gz", layout="auto")
def test_random_bytes(tmp_path: Path, kind: str, data: bytes, packed: str, layout: Layout) -> None:
    path = tmp_path / f"a{kind}{packed}"
    path.write_bytes(data)
    fault = None
    try:
        found = list(Corpus([path], layout=layout))
    except CorpusError as error:
        found, fault = [], error
    assert found or (fault and fault.where == path and fault.remedy)
    assert all(document.line >= 1 and document.paragraphs for document in found)
    for text in (text for document in found for text in document.paragraphs):
        assert text
        assert text == " ".join(text.split())
        assert "\0" not in text
        text.encode()


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(data=DATA, packed=st.sampled_from(["", ".gz", ".zst"]))
def test_random_bytes_as_examples(tmp_path: Path, kind: str, data: bytes, packed: str) -> None:
    path = tmp_path / f"a{kind}{packed}"
    path.write_bytes(data)
    fault = None
    try:
        found = list(read_examples(path, need_label=True))
    except ExampleError as error:
        found, fault = [], error
    assert found or (fault and fault.where == path and fault.remedy)
    assert all(example.text and example.label for example in found)


@quick
@given(place=st.integers(0, 10_000), byte=st.integers(0, 255), cut=st.booleans())
def test_a_damaged_parquet_file(tmp_path: Path, place: int, byte: int, cut: bool) -> None:
    path = tmp_path / "a.parquet"
    parquet.write_table(pa.table({"text": ["a b", "c"], "label": ["x", "y"]}), path)
    data = bytearray(path.read_bytes())
    place %= len(data)
    data[place] = byte
    path.write_bytes(data[:place] if cut else data)
    with suppress(ExampleError):
        list(read_examples(path, need_label=True))
