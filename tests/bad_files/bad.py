"""A bad file, and small tables with a bad row between two good ones."""

from __future__ import annotations

import io
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import parquet

LONG_NUMBER = "a number of over 4,300 digits"


@dataclass(frozen=True)
class Bad:
    """A file, what is said of it, and how many examples are kept and refused (None: no reading)."""

    name: str
    data: bytes
    reader: str
    message: str
    line: int | None = 3
    kept: int | None = 2
    refused: int = 1


def csv(row: bytes) -> bytes:
    return b"text,label\nfirst one,a\n" + row + b"\nlast one,b\n"


def tsv(row: bytes, head: bytes = b"text\tlabel", good: bytes = b"first one\ta") -> bytes:
    return b"\n".join([head, good, row, good]) + b"\n"


def jsonl(row: bytes | str, good: bytes = b'{"text": "first one", "label": "a"}') -> bytes:
    row = row.encode() if isinstance(row, str) else row
    return b"\n".join([good, row, good]) + b"\n"


def parquet_of(**columns: list[object]) -> bytes:
    buffer = io.BytesIO()
    parquet.write_table(pa.table(columns), buffer)
    return buffer.getvalue()
