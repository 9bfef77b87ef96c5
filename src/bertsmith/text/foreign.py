"""Files that are no text at all, recognised by their first bytes whatever their name says."""

from __future__ import annotations

from pathlib import Path

from bertsmith.errors import ExampleError
from bertsmith.text.opening import COMPRESSED, kind_of

_EXPORT = "save the sheet as CSV (UTF-8) or TSV"
_KINDS: tuple[tuple[bytes, str, str], ...] = (
    (b"PK\x03\x04", "a zip archive", "unpack it and give the file inside"),
    (b"\xd0\xcf\x11\xe0", "an old Excel or Word file", _EXPORT),
    (b"\x1f\x8b", "compressed by gzip", "let its name end in .gz"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "let its name end in .zst"),
    (b"BZh", "compressed by bzip2", "decompress it: bunzip2"),
    (b"\xfd7zXZ\x00", "compressed by xz", "decompress it: unxz"),
    (b"7z\xbc\xaf", "a 7z archive", "unpack it and give the file inside"),
    (b"PAR1", "a Parquet file", "let its name end in .parquet"),
    (b"ARROW1", "an Arrow file", "save it as Parquet, CSV or JSONL"),
    (b"%PDF", "a PDF", "give its text as a table: CSV, TSV or JSONL"),
    (b"SQLite format 3", "an SQLite database", "export a table as CSV"),
    (b"<!DOCTYPE html", "a web page", "download the file itself"),
    (b"<html", "a web page", "download the file itself"),
)
_OFFICE = {
    ".xlsx": ("an Excel file", _EXPORT),
    ".ods": ("a spreadsheet", _EXPORT),
    ".docx": ("a Word file", "save it as text, or its table as CSV"),
}


def refuse_foreign(path: Path) -> None:
    """Raise `ExampleError` for a file whose first bytes are those of no kind of table or text.

    Pipes are left alone: what is read of them is gone.
    """
    kind = kind_of(path)
    if path.suffix.lower() in COMPRESSED or kind == ".parquet" or not path.is_file():
        return
    try:
        with path.open("rb") as opened:
            start = opened.read(16)
    except OSError:
        return  # whoever reads it says why
    for begins, what, remedy in _KINDS:
        if start[: len(begins)].lower() != begins.lower():
            continue
        if begins.startswith(b"PK"):
            raise _archive(path, kind)
        if not begins.startswith(b"<") or kind in (".csv", ".tsv", ".jsonl"):
            raise ExampleError(f"is {what}, not text", where=path, remedy=remedy)


def _archive(path: Path, kind: str) -> ExampleError:
    """Return the error of a zip archive, which office files are too."""
    what, remedy = _OFFICE.get(kind, ("a zip archive", "unpack it and give the file inside"))
    if kind in (".csv", ".tsv"):
        remedy += f", or, of an Excel file, {_EXPORT}"
    return ExampleError(f"is {what}, not text", where=path, remedy=remedy)
