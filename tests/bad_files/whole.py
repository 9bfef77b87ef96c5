"""Files that cannot be read at all, whatever becomes of bad rows."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

from bad_files.bad import LONG_NUMBER, Bad, csv, parquet_of


def of_whole_files() -> Iterator[Bad]:
    """Those that cannot be read at all, whatever becomes of bad rows."""

    def whole(name: str, data: bytes, message: str, line: int | None = None) -> Bad:
        reader = {"xml": "choice", "json": "span", "conll": "tag"}.get(name.split(".")[1], "class")
        return Bad(name, data, reader, message, line, kept=None)

    table = csv(b"x,a").decode()
    for kind in ("csv", "tsv", "jsonl", "conll"):
        yield whole(f"empty.{kind}", b"", "holds no examples")
        yield whole(f"blanks.{kind}", b" \n\n", "holds no examples")
        yield whole(f"bom.{kind}", b"\xef\xbb\xbf", "holds no examples")
        wide = table.encode("utf-16")
        yield whole(f"utf16half.{kind}", wide + b"\x00\xd8\n\0", "is not utf-16-le: byte 0x00", 5)
        yield whole(f"zeros.{kind}", bytes(500), "full of zero bytes", 1)
    yield whole("empty.parquet", b"", "not a valid Parquet file")
    yield whole("text.parquet", b"text,label\nx,a\n", "not a valid Parquet file")
    yield whole("cut.parquet", parquet_of(text=["x"], label=["a"])[:-9], "not a valid Parquet file")
    odd = parquet_of(text=["x"], label=["a"], café=["y"])
    for name, data in {
        "name": odd.replace("café".encode(), b"caf\xce("),
        "value": parquet_of(text=["café"], label=["a"]).replace("café".encode(), b"caf\xce("),
    }.items():
        yield whole(f"latin-{name}.parquet", data, "not a valid Parquet file: 'utf-8' codec")
    yield whole("no-rows.parquet", parquet_of(text=[], label=[]), "holds no examples")
    yield whole("names.parquet", parquet_of(a=["x"], b=["y"]), "looks like the text", 1)
    yield whole("head.csv", b"text,label\n", "holds no examples")
    yield whole("head.tsv", b"text\tlabel\n", "holds no examples")
    yield whole("names.csv", b"a,b\nx,1\n", "no column that looks like the text", 1)
    yield whole("unlabelled.csv", b"text,length\nx,1\n", "looks like the label", 1)
    yield whole("unlabelled.jsonl", b'{"text": "x"}\n', "looks like the label", 1)
    yield whole("latin-head.csv", b"text,caf\xe9\nx,a\n", "byte 0xE9", 1)
    yield whole("latin-first.jsonl", b'{"text": "\xe9", "label": 1}\n', "byte 0xE9", 1)
    yield whole("quote-head.csv", b'"text,label\nx,a\n', "not CSV", 1)
    yield whole("what.docx", b"PK\3\4", "is a Word file, not text")
    yield whole("what.txt", b"just a line\n", "is of an unknown kind")
    yield whole("cut.csv.gz", gzip.compress(table.encode() * 99)[:-9], "damaged or truncated")
    yield whole("plain.tsv.gz", b"text\tlabel\nx\ta\n", "damaged or truncated")
    yield whole("plain.jsonl.zst", b'{"text": "x"}', "damaged or truncated")
    yield whole("line.tsv", b"text\tlabel\n" + b"x" * (1 << 26) + b"y" * 9, "a line of over", 2)
    yield whole("one.conll", b"EU\nrejects\n\nPeter\n", "one column only, so no tags", 1)
    yield whole("start.conll", b"-DOCSTART- -X- O\n\n", "holds no examples")
    yield whole("endless.conll", b"x O\n" * 100_001, "no empty line in 100,001 lines", 100_001)
    for name, data in {
        "nothing": b"",
        "cut": b'{"data": [{"par',
        "trailing": b'{"data": []} x',
    }.items():
        yield whole(f"{name}.json", data, "not JSON: ", 1)
    yield whole("comma.json", b'{"version": "1.1"\n"data": []}', "Expecting ','", 2)
    yield whole(
        "deep.json", b'{"data": [{"paragraphs": ' + b"[" * 100_000, "not JSON: nested too deeply", 1
    )
    digits = b'{"data": [\n{"a": 1},\n' + b"9" * 5000 + b"]}"
    yield whole("digits.json", digits, f"not JSON: {LONG_NUMBER}", 3)
    yield whole("top-list.json", b'[{"data": []}]', "no list 'data'", 1)
    yield whole("object.json", b'{"data": {"paragraphs": []}}', "no list 'data'", 1)
    yield whole("no-articles.json", b'{"data": []}', "holds no examples")
    yield whole("zeros.json", b'{"data": []}' + bytes(50), "full of zero bytes", 1)
    yield whole("latin.json", b'{"data": [\n"\xe9"]}', "byte 0xE9", 2)
    yield whole("empty.xml", b"", "not XML: no element found", 1)
    yield whole("none.xml", b"<copa-corpus></copa-corpus>", "holds no examples")
    yield whole("open.xml", b'<copa-corpus>\n<item id="1">', "not XML: no element found", 2)
    yield whole("crossed.xml", b"<copa-corpus>\n<p></q>", "not XML: mismatched tag", 2)
    yield whole("two.xml", b"<a></a>\n<b></b>", "not XML: junk after document element", 2)
    laugh = b'<!DOCTYPE copa-corpus [\n<!ENTITY a "ha">\n<!ENTITY b "&a;&a;">]>\n<copa-corpus/>'
    yield whole("laugh.xml", laugh, "declares entities of its own", 2)
