from __future__ import annotations

import gzip
import io
import json
import os
import re
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
import zstandard
from pyarrow import parquet

from bertsmith.core.errors import CorpusError
from bertsmith.text.corpus import sections
from bertsmith.text.corpus.documents import MAX_DOCUMENT_LENGTH
from bertsmith.text.corpus.files import Corpus, shown_kinds
from bertsmith.text.corpus.unread import remedy_for
from bertsmith.text.opening import with_line_feeds

Pack = Callable[[bytes], bytes]
PACKS: dict[str, Pack] = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def paragraphs(path: Path, **options: str) -> list[tuple[str, ...]]:
    return [document.paragraphs for document in Corpus([path], **options)]  # type: ignore[arg-type]


@pytest.mark.parametrize("suffix", PACKS)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_text_of_every_line_end_and_packing(
    tmp_path: Path, suffix: str, end: str, mark: str
) -> None:
    text = mark + end.join(["One  é.", "Two.", "", "Three.", "\tFour. "])
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(PACKS[suffix](text.encode()))
    corpus = Corpus([path])
    found = list(corpus)
    assert [document.paragraphs for document in found] == [("One é.", "Two."), ("Three.", "Four.")]
    assert [document.line for document in found] == [1, 4]
    assert found[0].source == str(path)
    assert corpus.bytes_read == corpus.total_bytes == path.stat().st_size


def _table(folder: Path, kind: str, suffix: str) -> Path:
    rows = [{"id": 7, "text": "One.\nTwo."}, {"id": 8, "text": "Three, four."}]
    path = folder / f"a{kind}{suffix}"
    if kind == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), folder / "plain")
        data = (folder / "plain").read_bytes()
    elif kind == ".jsonl":
        data = "\n\n".join(json.dumps(row) for row in rows).encode()
    elif kind == ".csv":
        data = b'id,text\r\n7,"One.\r\nTwo."\r\n8,"Three, four."\r\n'
    else:
        data = b"id\ttext\n7\tOne.\x0bTwo.\n8\tThree, four.\n"
    path.write_bytes(PACKS[suffix](data))
    return path


@pytest.mark.parametrize("suffix", PACKS)
@pytest.mark.parametrize("kind", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_a_row_of_a_table_is_a_document(tmp_path: Path, kind: str, suffix: str) -> None:
    corpus = Corpus([_table(tmp_path, kind, suffix)])
    found = list(corpus)
    assert [document.paragraphs for document in found] == [("One.", "Two."), ("Three, four.",)]
    lines = {".csv": [2, 4], ".tsv": [2, 3], ".jsonl": [1, 3], ".parquet": [1, 2]}
    assert [document.line for document in found] == lines[kind]
    assert corpus.bytes_read == corpus.total_bytes


def test_other_columns_by_name_and_by_number(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x;First.\ny;Second, two.\n", encoding="utf-8")
    assert paragraphs(path, text_column="1") == [("First.",), ("Second, two.",)]
    path.write_text("Kind,Body\nx,First.\n", encoding="utf-8")
    assert paragraphs(path, text_column="body") == [("First.",)]


def test_folders_globs_and_files_in_a_fixed_order_and_once(tmp_path: Path) -> None:
    for name in ("b/2.txt", "b/10.txt", "a/z.txt", "a/notes.pdf", ".hidden/x.txt", "c.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"text": "x"}', encoding="utf-8")

    def names(*paths: str) -> list[str]:
        corpus = Corpus([tmp_path / path for path in paths])
        return [str(file.relative_to(tmp_path)) for file in corpus.files]

    assert names(".") == ["c.jsonl", "a/z.txt", "b/10.txt", "b/2.txt"]
    assert names("b/2.txt", ".", "c.jsonl")[:2] == ["b/2.txt", "c.jsonl"]
    assert names("*/*.txt") == ["a/z.txt", "b/10.txt", "b/2.txt"]
    assert names("**/*.txt") == ["a/z.txt", "b/10.txt", "b/2.txt"]
    assert len(names("b", "b/2.txt", "b/../b")) == 2


def test_bytes_read_grows_and_starts_again(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(("A line. " * 40 + "\n\n") * 6_000, encoding="utf-8")
    corpus = Corpus([tmp_path], layout="documents")
    seen = [corpus.bytes_read for _ in corpus]
    assert seen == sorted(seen)
    assert 0 < seen[0] < seen[-1] == corpus.total_bytes
    next(iter(corpus))
    assert corpus.bytes_read < corpus.total_bytes


def test_a_long_document_comes_in_parts(tmp_path: Path) -> None:
    sentence = "Seventeen letters. "
    path = tmp_path / "a.txt"
    path.write_text(sentence * (2 * MAX_DOCUMENT_LENGTH // len(sentence)), encoding="utf-8")
    found = paragraphs(path)
    assert len(found) == 2
    words = [word for parts in found for part in parts for word in part.split()]
    assert words == sentence.split() * (2 * MAX_DOCUMENT_LENGTH // len(sentence))
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "x" * 9_500_000}), encoding="utf-8")
    assert [sum(map(len, parts)) for parts in paragraphs(path)] == [4_000_000, 4_000_000, 1_500_000]
    path.write_text(json.dumps({"text": "paragraph of seven " * 70_000}), encoding="utf-8")
    assert " ".join(*paragraphs(path)).split() == ["paragraph", "of", "seven"] * 70_000


def test_zero_bytes_and_half_characters_are_mended(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(r'{"text": "a\u0000b \ud800c"}', encoding="utf-8")
    assert paragraphs(path) == [("ab ?c",)]


def _bad_files() -> Iterator[tuple[str, bytes, int | None, str]]:
    """Name, content, line and a piece of the message."""
    latin = "Good.\r\nWell.\r\ncaf\xe9 au lait\r\n".encode("latin-1")
    yield "latin.txt", latin, 3, "name its encoding, such as --encoding"
    log = b"a line of text\n" * 60_000 + b"\xb9\x80\xff\n"
    yield "some.log", log, 60_001, "bytes that are no text go with `iconv -c"
    yield "windows.csv", b"text\nIt\x92s\n", 2, "is not UTF-8: byte 0x92"
    yield "far.txt", b"a line of text, \r\n" * 60_000 + b"\xff", 60_001, "0xFF"
    yield (
        "far.txt.gz",
        gzip.compress(b"a line of text..\r" * 70_000 + b"\xff", mtime=0),
        70_001,
        "--encoding",
    )
    yield "half.txt", "Good.\nWell".encode("utf-16")[:-1], 2, "in the middle of a character"
    yield "zeros.txt", b"Good.\n" + bytes(50), 1, "full of zero bytes"
    yield "zeros.jsonl", bytes(50), 1, "full of zero bytes"
    yield "cut.txt", "Good.\ncafé".encode()[:-1], 2, "middle of a character"
    yield "empty.txt", b"", None, "holds no text"
    yield "blank.txt", b" \n\r\n\t\n", None, "holds no text"
    yield "empty.csv", b"", None, "holds no text"
    yield "head.csv", b"text\n", None, "holds no text"
    yield "a.txt.gz", b"no gzip", None, "damaged or truncated"
    yield "b.txt.gz", gzip.compress(b"Good. " * 999)[:-9], None, "damaged or truncated"
    yield "c.jsonl.zst", b"no zstandard", None, "damaged or truncated"
    packed = zstandard.ZstdCompressor().compress(b"Good. " * 999)
    yield "d.txt.zst", packed[:-3], None, "damaged or truncated"
    # what is left of a download that failed
    for name in ("e.txt.gz", "f.txt.zst", "g.jsonl.gz", "h.parquet.gz", "i.html.zst"):
        yield name, b"", None, "damaged or truncated: the file is empty"
    yield "title.csv", b"Export,\nid,text\n1,x\n", 1, "remove the lines above its header"
    yield (
        "columns.csv",
        b"id,body\n1,x\n",
        1,
        "name one of its columns with --text-column: 'id', 'body'",
    )
    yield "columns.jsonl", b'{"body": "x"}\n', 1, "no column 'text'"
    yield "later.jsonl", b'{"text": "x"}\n\n{"body": "x"}\n', 3, "has no 'text'"
    yield "bad.jsonl", b'{"text": "x"}\n{"text": \n', 2, "not JSON"
    yield "deep.jsonl", b"[" * 200_000, 1, "not JSON"
    yield "list.jsonl", b'["x"]\n', 1, "a list, not a JSON object"
    yield "number.jsonl", b'{"text": 1}\n', 1, "'text' is a number"
    yield "ragged.csv", b"id,text\n1,One.\n2,Two, three.\n", 3, "3 columns where"
    yield "quote.csv", b'id,text\n1,One.\n2,"Two\n3,Three\n', 3, "not CSV"
    yield "stray.csv", b'text\n"a" b\n', 2, "not CSV"
    yield "bad.parquet", b"PAR1 and no more", None, "not a valid Parquet file"
    yield (
        "bad.parquet.gz",
        gzip.compress(b"PAR1 and no more", mtime=0),
        None,
        "not a valid Parquet file",
    )


@pytest.mark.parametrize(
    ("name", "data", "line", "message"), [pytest.param(*bad, id=bad[0]) for bad in _bad_files()]
)
def test_a_bad_file_is_named_with_line_and_remedy(
    tmp_path: Path, name: str, data: bytes, line: int | None, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(CorpusError) as caught:
        list(Corpus([path]))
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{line}: " if line else f"{path}: ")
    assert caught.value.line == line
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "kind"),
    [(b"text", "bytes"), (date(2026, 1, 2), "a date"), ({"en": "x"}, "an object"), (1.5, "a num")],
)
def test_a_column_of_parquet_without_text(tmp_path: Path, value: object, kind: str) -> None:
    parquet.write_table(pa.Table.from_pylist([{"text": value}]), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match=f"'text' is {kind}.*, not text; name a column"):
        list(Corpus([tmp_path / "a.parquet"]))


def test_a_missing_column_of_parquet(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"body": ["x"]}), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match="'body'"):
        list(Corpus([tmp_path / "a.parquet"]))
    parquet.write_table(pa.table({"text": [1]}), tmp_path / "a.parquet")
    with pytest.raises(CorpusError, match="a number, not text"):
        list(Corpus([tmp_path / "a.parquet"]))


def test_nothing_found(tmp_path: Path) -> None:
    (tmp_path / "book.pdf").write_bytes(b"%PDF")
    for path, message in (
        (tmp_path, "no file with text in it"),
        (tmp_path / "book.pdf", "is of an unknown kind"),
        (tmp_path / "missing.txt", "does not exist"),
        (tmp_path / "*.txt", "no file with text in it"),
        (tmp_path / "a\0b.txt", "a"),
    ):
        with pytest.raises(CorpusError, match=message):
            Corpus([path])
    with pytest.raises(CorpusError, match="no corpus was given"):
        Corpus([])


def test_one_empty_file_among_others_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"")
    (tmp_path / "b.txt").write_bytes(b"Text.")
    assert paragraphs(tmp_path) == [("Text.",)]
    (tmp_path / "b.txt").write_bytes(b"\n")
    with pytest.raises(CorpusError, match="the corpus holds no text"):
        list(Corpus([tmp_path]))


def test_an_unreadable_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"Text.")
    corpus = Corpus([path])
    path.unlink()
    with pytest.raises(CorpusError, match="cannot be read: No such file"):
        list(corpus)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\n\nMore.")


def _rewrite(path: Path) -> None:
    path.write_bytes(path.read_bytes()[::-1])
    os.utime(path, ns=(1, 1))


@pytest.mark.parametrize("change", [_cut, _append, _rewrite, Path.unlink])
@pytest.mark.parametrize("suffix", [".txt", ".txt.gz", ".csv"])
def test_a_file_that_changes_while_it_is_read(
    tmp_path: Path, suffix: str, change: Callable[[Path], None]
) -> None:
    other, path = tmp_path / "a.txt", tmp_path / f"b{suffix}"
    other.write_text("First.\n")
    text = "".join(f"text {number},\n" for number in range(500)).encode()
    path.write_bytes(gzip.compress(text) if suffix == ".txt.gz" else text)
    options = {"text_column": "0", "header": "no"} if suffix == ".csv" else {"layout": "documents"}
    corpus = Corpus([other, path], **options)  # type: ignore[arg-type]
    documents = iter(corpus)
    next(documents)
    next(documents)
    change(path)
    with pytest.raises(CorpusError, match=r"changed while|cannot be read") as caught:
        list(documents)
    assert caught.value.where == path
    assert caught.value.remedy


def test_a_file_that_changes_before_its_turn(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("First.\n\nSecond, and more.\n")
    corpus = Corpus([tmp_path])
    _cut(tmp_path / "b.txt")
    with pytest.raises(CorpusError, match="26 bytes before, 17 now"):
        list(corpus)


def _write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"Text of {name}.\n", encoding="utf-8")


def test_kinds_of_files_in_a_folder(tmp_path: Path) -> None:
    _write(tmp_path, "a.txt", "b.md", "c.rst", "d.LOG", "e.html", "f.xml", "sub/g.txt")
    _write(tmp_path, "h.py", "i.pdf", "j", ".k.txt", "l.org", "m.py")
    corpus = Corpus([tmp_path])
    names = [file.name for file in corpus.files]
    assert names == ["a.txt", "b.md", "c.rst", "d.LOG", "e.html", "f.xml", "g.txt"]
    assert corpus.skipped == {".py": 2, ".pdf": 1, "without extension": 1, "hidden": 1, ".org": 1}
    corpus = Corpus([tmp_path], text_files=("*.py", "l.*"))
    assert [file.name for file in corpus.files][-4:] == ["h.py", "l.org", "m.py", "g.txt"]
    assert [item.paragraphs for item in Corpus([tmp_path / "h.py"])] == [("Text of h.py.",)]
    assert [item.paragraphs for item in Corpus([tmp_path / "e.html"], text_files=["*.html"])]


@pytest.mark.parametrize(
    "names",
    [
        ("store.json", "sentences.bin", "vocabulary/vocab.txt"),
        ("journal.jsonl", "digests/digests.bin", "store/documents.bin"),
        ("tokenizer_config.json", "vocab.txt", "README.md"),
        ("tokenizer.json", "config.json", "README.md"),
        ("tokenizer.json", "merges.txt"),
        ("config.json", "vocab.txt"),
        ("run.json", "log.jsonl", "report.html", "model/README.md"),
        ("run.json", "results.json", "report.html"),
        ("run.json", "seeds/log.jsonl"),
        ("run.json", "teacher-outputs/log.jsonl"),
        ("demo.json", "report.html", "store/README.md"),
        ("results.json", "table.md", "RTE/report.html"),
        ("bert_config.json", "vocab.txt", "bert_model.ckpt.index"),
    ],
)
def test_what_was_made_of_a_corpus_in_its_folder_is_no_text_of_it(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    _write(tmp_path, "a.txt", "run/b.txt", "vocabulary/c.txt", "vocabulary/config.json")
    (tmp_path / "sub" / "made").mkdir(parents=True)
    _write(tmp_path / "sub" / "made", *names)
    corpus = Corpus([tmp_path])
    assert [file.name for file in corpus.files] == ["a.txt", "b.txt", "c.txt"]
    assert shown_kinds(corpus.skipped) == "1 folder of a store, vocabulary, model or run, 1 .json"
    made = tmp_path / "sub" / "made"
    # what a shell makes of a *, and what is left to us
    corpus = Corpus([tmp_path / "a.txt", made])
    assert [file.name for file in corpus.files] == ["a.txt"]
    assert corpus.skipped["folder of a store, vocabulary, model or run"] == 1
    for pattern in ("**", "**/*.*", "s*/m*/*"):
        corpus = Corpus([tmp_path / "a.txt", f"{tmp_path}/{pattern}"])
        assert made not in {folder for file in corpus.files for folder in file.parents}
        assert corpus.skipped["folder of a store, vocabulary, model or run"] >= 1
    with pytest.raises(CorpusError, match=r"made: no file.* 1 folder of.*; name the files in it"):
        Corpus([made])
    with pytest.raises(CorpusError, match=r"but 2 folders of stores, vocabularies, models or r"):
        Corpus([made, made])


def test_a_tokenizer_beside_texts_leaves_out_none_of_them(tmp_path: Path) -> None:
    """Scripts of tokenizers save a tokenizer.json where they run: the folder was refused."""
    _write(tmp_path, "a.txt", "tokenizer.json", "sub/b.txt", "sub/tokenizer.json")
    for path in (tmp_path, f"{tmp_path}/**/*.txt"):
        assert [file.name for file in Corpus([path]).files] == ["a.txt", "b.txt"]


@pytest.mark.parametrize("name", ["a.py", "a.log"])
def test_code_and_logs_keep_their_lines_as_paragraphs(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    line = "value = function(argument, other)  # a line of even width, as in wrapped text, yes\n"
    path.write_text(f"def f():\n    return 1\n\n{line * 40}", encoding="utf-8")
    (found,) = paragraphs(path)
    assert found[:3] == ("def f():", "return 1", " ".join(line.split()))
    assert len(found) == 42


def test_what_a_folder_without_text_holds(tmp_path: Path) -> None:
    _write(tmp_path, "a.py", "b.py", "c.pdf", ".d")
    with pytest.raises(
        CorpusError, match=r"but 2 \.py, 1 hidden, 1 \.pdf; .*--text-files '\*\.py'"
    ):
        Corpus([tmp_path])
    with pytest.raises(CorpusError, match=r"unknown kind; .*--text-files '\*\.pdf' reads it as"):
        Corpus([tmp_path / "c.pdf"])


GZIP_MAGIC = b"\x1f\x8b\x08\x00"
MAN = b'.\\" t\n.TH LS 1\n.SH NAME\n'


def tar_of(name: str) -> bytes:
    """Return an archive of one file of text."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    return made.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "remedy"),
    [
        (
            "ls.1.gz",
            gzip.compress(MAN, mtime=0),
            r"manual pages; their text: man -l FILE | col -b >",
        ),
        (
            "a.page",
            b'<?xml version="1.0"?>\n<page>',
            "--markup-files '*.page' reads it without its",
        ),
        ("wiki_07", b'<doc id="1">\nText', "--markup-files 'wiki_*' reads it without its tags"),
        ("README", b"Read me.", "--text-files README reads it as text"),
        ("tang300", "兰叶春葳蕤".encode(), "--text-files 'tang*' reads it as text"),
        ("a.po", b'msgid ""\nmsgstr ""\n', "their text: msgexec -i FILE 0 |"),
        ("a.conllu", b"# text = It rains.\n1\tIt\t", "grep '^# text = ' FILE | cut -c10- >"),
        ("a.srt", b"1\n00:00:01,000 --> 00:00:02,000\nHi.\n", "grep -vE '^[0-9]*.?$|-->' FILE >"),
        ("a.mbox", b"From a@b Thu\n", "mail, whose text may be encoded: write it into a .jsonl"),
        (
            "Sent",
            b"From a@b Thu Jan 1\n",
            "mail, whose text may be encoded: write it into a .jsonl",
        ),
        ("a.pdf", b"%PDF-1.7\n", "a PDF: take its text out, as pdftotext does"),
        ("a.arrow", b"\xff\xff\xff\xff\xe0\0\0\0", "an Arrow stream: save it as Parquet"),
        ("a.epub", b"PK\x03\x04", "an e-book: unpack it, for the folder of .xhtml inside"),
        ("a.dict.dz", GZIP_MAGIC, "compressed by gzip: rename it to end in .gz"),
        ("a.tar", tar_of("a.txt"), "a tar archive: unpack it and give the files inside"),
        (
            "a.tar.gz",
            gzip.compress(tar_of("a.txt"), mtime=0),
            "a tar archive: unpack it and give the files",
        ),
        ("a.bin", b"\x00\x01\x02", "a corpus is .txt, .md, .rst,"),
    ],
)
def test_the_remedy_for_a_file_of_another_kind_fits_it(
    tmp_path: Path, name: str, content: bytes, remedy: str
) -> None:
    (tmp_path / name).write_bytes(content)
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(CorpusError, match=re.escape(remedy)):
            Corpus([path])
    (tmp_path / "a.txt").write_text("Text.\n")
    corpus = Corpus([tmp_path])
    assert corpus.skipped.total() == 1
    assert [remedy in found for _, found in corpus.remedies()] == [True] * (name != "a.bin")


@pytest.mark.parametrize(
    ("command", "content", "expected"),
    [
        (
            "grep '^# text = ' FILE | cut -c10- > FILE.txt",
            "# sent_id = 1\n# text = Es regnet.\n1\tEs\t_\n\n# text = Ja.\n1\tJa\t_\n",
            "Es regnet.\nJa.\n",
        ),
        (
            "grep -vE '^[0-9]*.?$|-->' FILE > FILE.txt",
            "1\r\n00:00:01,000 --> 00:00:02,000\r\nHi.\r\n\r\n12\r\n00:01 --> 00:02\r\n2 men.\r\n",
            "Hi.\r\n2 men.\r\n",
        ),
    ],
)
def test_the_commands_of_remedies_take_the_text_out(
    tmp_path: Path, command: str, content: str, expected: str
) -> None:
    kind = ".conllu" if "text =" in command else ".srt"
    (tmp_path / f"a{kind}").write_text(content, newline="")
    assert command in remedy_for(tmp_path / f"a{kind}")
    subprocess.run(["sh", "-c", command.replace("FILE", f"a{kind}")], cwd=tmp_path, check=True)
    assert (tmp_path / f"a{kind}.txt").read_bytes().decode() == expected


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_text_before_each_of_many_blank_lines_is_not_looked_at(
    tmp_path: Path, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take 13 seconds a megabyte."""
    looked: list[int] = []

    def counted(text: str) -> str:
        looked.append(len(text))
        assert len(looked) < 100
        return with_line_feeds(text)

    monkeypatch.setattr(sections, "with_line_feeds", counted)
    path = tmp_path / "a.txt"
    path.write_bytes((f"One.{end * 2}" * 4 + end * 1_500_000 + "Two.").encode())
    paragraphs = [text for document in Corpus([path]) for text in document.paragraphs]
    assert paragraphs == [*["One."] * 4, "Two."]


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("a.txt", GZIP_MAGIC, "is compressed by gzip"),
        ("b.md", b"%PDF-1.7\n", "is a PDF, not text"),
        ("c.txt.gz", gzip.compress(tar_of("a.txt"), mtime=0), "is a tar archive, not text"),
    ],
)
def test_a_file_that_is_named_text_and_is_none(
    tmp_path: Path, name: str, content: bytes, what: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=what):
        list(Corpus([tmp_path]))


def test_a_page_named_text_is_read_without_its_tags(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n<!DOCTYPE html>\n<p>One<p>Two")
    corpus = Corpus([path])
    assert corpus.layout_of(path) == "text without tags (as found)"
    assert [each.paragraphs for each in corpus] == [("One", "Two")]
    (plain,) = Corpus([path], text_files=["a.*"])
    assert plain.paragraphs[0] == "<!DOCTYPE html>"
    note = tmp_path / "b.md"
    note.write_text("<!-- a note -->\n# Title\n")
    assert Corpus([note]).layout_of(note).startswith("layout ")


def test_links_are_counted(tmp_path: Path) -> None:
    """A folder reached by a link may be the whole corpus."""
    _write(tmp_path, "a.txt", "sub/b.txt")
    (tmp_path / "sub" / "above").symlink_to(tmp_path)
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere.txt")
    (tmp_path / "twice.txt").symlink_to(tmp_path / "a.txt")
    os.mkfifo(tmp_path / "pipe.txt")
    corpus = Corpus([tmp_path])
    assert [file.name for file in corpus.files] == ["a.txt", "b.txt"]
    assert corpus.skipped == {"link to a folder": 1, "broken link": 1, "pipe or device": 1}
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "books").symlink_to(tmp_path / "sub")
    with pytest.raises(CorpusError, match=r"but 1 link to a folder; .*name the folder"):
        Corpus([tmp_path / "only"])


@pytest.mark.parametrize("path", ["", " "])
def test_an_empty_path_is_not_the_working_folder(path: str) -> None:
    with pytest.raises(CorpusError, match="an empty path; name a file or a folder"):
        Corpus([path])


def test_a_folder_that_cannot_be_listed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files would be missing from the corpus, and nobody would know."""
    (tmp_path / "a.txt").write_text("One.\n")
    (tmp_path / "closed").mkdir()
    listed = os.scandir

    def scandir(path: str) -> Iterator[os.DirEntry[str]]:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)
    for place in (tmp_path, tmp_path / "closed", tmp_path / "*/*.txt", tmp_path / "**/*.txt"):
        with pytest.raises(
            CorpusError,
            match=r"closed: cannot be read: Permission denied; get permission to read it$",
        ):
            Corpus([place])


def test_a_pipe_is_refused_with_what_to_do_instead(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="write what a pipe gives to a"):
        Corpus(["-"])
    os.mkfifo(tmp_path / "63")
    with pytest.raises(CorpusError, match="it is a pipe: write what it gives to a"):
        Corpus([str(tmp_path / "63")])


def test_a_list_of_strings_is_a_document_of_as_many_paragraphs(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"text": ["One.", "Two."]}, {"text": []}, {"text": "Three."}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert [document.paragraphs for document in Corpus([path])] == [("One.", "Two."), ("Three.",)]
    path.write_text('{"text": ["One.", 2]}\n', encoding="utf-8")
    with pytest.raises(CorpusError, match="'text' is a list, not text"):
        list(Corpus([path]))
