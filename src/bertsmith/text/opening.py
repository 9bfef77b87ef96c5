"""Text and lines of plain, gzip and zstandard files, with errors that name file and line.

The encoding is given, or detected by `encodings`; the output is text, or UTF-8.
"""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Final, Protocol, cast, runtime_checkable

from bertsmith.core.errors import ExampleError, UserError
from bertsmith.core.files import FileState, unreadable
from bertsmith.core.pipes import open_file_or_pipe
from bertsmith.text.config import AUTO, UTF8, codec_named
from bertsmith.text.encodings import (
    OPTION,
    Guesses,
    Verdict,
    doubted,
    is_wide,
    judge,
    larger_codec,
    print_guess,
    resolve,
)
from bertsmith.text.growing import OpenedFile, opened_file

COMPRESSED = (".gz", ".zst")
TEXTS = (".txt", ".md", ".markdown", ".rst", ".log")
BLOCK_BYTES = 1 << 20
MAX_LINE_LENGTH = 1 << 26
MAX_FILE_LENGTH = 1 << 29
"""Maximum characters of a file that must be in memory as a whole, such as one JSON object."""

ESCAPED = re.compile("[\udc80-\udcff]")
"""An undecodable byte in text ("surrogateescape")."""
# a part of such a file is none
_WHOLE = (".json", ".parquet", ".xml")
_LINE_END = re.compile("(\r\n|\r|\n)")
_MAX_VERDICTS = 100_000
# files are opened several times, to recognise and to read them, but examined and reported once
_verdicts: dict[tuple[object, ...], Verdict] = {}


def kind_of(path: Path) -> str:
    """Return the extension without compression: ``.txt`` of ``b.txt`` and of ``b.TXT.gz``."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix in COMPRESSED else suffix


@runtime_checkable
class Stream(Protocol):
    """A readable stream of bytes."""

    def read(self, size: int = -1, /) -> bytes:
        """Return at most `size` bytes; none at the end."""
        ...


class TextFile:
    """A file to be read once, with the class of its errors."""

    def __init__(self, path: Path, error: type[UserError], encoding: str = AUTO) -> None:
        """Read `path` in the named encoding, or in the detected one."""
        self.path = path
        self.encoding = encoding
        self._codec = UTF8
        self._guessed = False
        self._candidates: tuple[str, ...] = ()
        self._error = error
        self._raw: BinaryIO | None = None
        self._closed_at = 0
        self._cut = False

    @property
    def compressed(self) -> bool:
        """True if the file is compressed on disk."""
        return self.path.suffix.lower() in COMPRESSED

    @property
    def bytes_read(self) -> int:
        """Number of bytes of the file on disk that have been read, for progress bars."""
        raw = self._raw
        if raw is None or raw.closed:
            return self._closed_at
        return raw.tell() if raw.seekable() else 0

    def fault(self, problem: str, line: int | None = None, remedy: str = "") -> UserError:
        """Return an error that names this file."""
        return self._error(problem, where=self.path, line=line, remedy=remedy)

    @contextmanager
    def open(self) -> Iterator[Stream]:
        """Open the decompressed bytes; errors in reading them become the file's error."""
        try:
            with open_file_or_pipe(self.path) as raw:
                self._raw = raw
                try:
                    yield _decompressed(raw, self.path.suffix.lower())
                finally:
                    self._raw = None
                    # it may have been deleted by now
                    with suppress(OSError):
                        self._closed_at = self.path.stat().st_size
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self._damaged(error) from error
        except OSError as error:
            if error.errno is None:  # pyarrow raises bare OSError for invalid content
                raise self._damaged(error) from error
            raise unreadable(self._error, error, self.path) from error

    def blocks(self, start: int = 0) -> Generator[bytes, None, None]:
        """Yield the text as UTF-8 from an offset on, in blocks of about a megabyte.

        In a file read as UTF-8, invalid bytes are left as they are.
        """
        codec, blocks = self._open_decoded(start)
        if codec == UTF8:
            yield from blocks
            return
        for text in self._texts(codec, blocks, "strict"):
            # UTF-7 can hold half of a surrogate pair, which cannot be encoded
            block = text.encode("utf-8", "replace")
            if start < len(block):
                yield block[start:]
            start = max(0, start - len(block))

    def _raw_blocks(self, start: int = 0, *, longer: bool = False) -> Generator[bytes, None, None]:
        """Yield the decompressed bytes from an offset on, in blocks of about a megabyte.

        With `longer` it may become longer meanwhile. Raises the file's error at the end if it was
        written to otherwise: what was read is a mixture of old and new, or a part.
        """
        with self.open() as stream:
            before = self.state()
            if start and stream is self._raw:
                self._raw.seek(start)
                start = 0
            while start > 0 and (skipped := stream.read(min(BLOCK_BYTES, start))):
                start -= len(skipped)
            while block := stream.read(BLOCK_BYTES):
                yield block
            if not (longer and self.state().size > before.size):
                self.check_unchanged(before)

    def _as_first_opened(self, opened: OpenedFile) -> Generator[bytes, None, None]:
        """Yield the bytes in blocks up to where the file ended when it was first opened.

        Raises the file's error if it has changed since otherwise than by growing.
        """
        with self.open():
            assert self._raw is not None
            before = opened.state(self.state())
            if not (yield from opened.blocks(self._raw)):
                raise self._changed(before, self.state())

    def _opened(self) -> OpenedFile | None:
        """Return the file as it was first opened, if it is one of lines that may become more."""
        if self.compressed or kind_of(self.path) in _WHOLE or not self.path.is_file():
            return None
        return opened_file(self.path)

    def state(self) -> FileState:
        """Return the state of the open file, which another may have replaced by its name."""
        assert self._raw is not None
        return FileState.of(self._raw.fileno())

    def check_unchanged(self, before: FileState) -> None:
        """Raise the file's error if the open file has been written to; pipes have no state."""
        now = self.state()
        if now != before and before.regular:
            raise self._changed(before, now)

    def _changed(self, before: FileState, now: FileState) -> UserError:
        sizes = f": {before.size:,} bytes before, {now.size:,} now"
        return self.fault(
            f"changed while it was read{sizes if now.size != before.size else ''}",
            remedy="run the command again when nothing writes to the file, or read a copy",
        )

    def _blocks_in(self, codec: str, start: int) -> Generator[bytes, None, None]:
        """Yield the bytes of a text in a codec: if UTF-8, from an offset on, else all."""
        # half of a wide character may look like the end of a line
        opened = None if is_wide(codec) else self._opened()
        if opened is not None:
            return self._as_first_opened(opened)
        return self._raw_blocks(start if codec == UTF8 else 0)

    def _open_decoded(self, start: int = 0) -> tuple[str, Generator[bytes, None, None]]:
        """Return the codec of the text, and its bytes: if UTF-8, from an offset on, else all."""
        if self.encoding == AUTO and self.path.is_file():
            codec = self._accepted(self._examined())
            return codec, self._blocks_in(codec, start)
        named = AUTO if self.encoding == AUTO else codec_named(self.encoding)
        if named == UTF8:
            return UTF8, self._blocks_in(UTF8, start)
        blocks = self._raw_blocks() if named == AUTO else self._blocks_in(named, start)
        first = next(blocks, b"")
        # a pipe is judged by its first block, since it cannot be read twice
        verdict = judge([first]) if named == AUTO else Verdict(codec=resolve(named, first))
        if verdict.guessed:
            print_guess(self.path, verdict)
        return self._accepted(verdict), _prepend(first, blocks)

    def examine(self, guesses: Guesses) -> None:
        """Detect the encoding before the file is read, and leave reporting a guess to `guesses`.

        So is a named encoding of a file that is valid UTF-8.
        """
        if not self.path.is_file():
            return
        if self.encoding == AUTO:
            self._examined(guesses.add)
            return
        key = (str(self.path.absolute()), self.encoding)
        if key in _verdicts:
            return
        with closing(self._raw_blocks()) as blocks:
            verdict = doubted(codec_named(self.encoding), next(blocks, b""))
        if verdict is not None:
            _remember(key, verdict)
            guesses.add(self.path, verdict)

    def _examined(self, report: Callable[[Path, Verdict], None] = print_guess) -> Verdict:
        """Return the verdict on this file's encoding, from its present bytes.

        A new guess is reported by `report`.
        """
        try:
            inode, state = self.path.stat().st_ino, FileState.of(self.path)
        except OSError as error:
            raise unreadable(self._error, error, self.path) from error
        if (opened := self._opened()) is not None:
            state = opened.state(state)
        key = (str(self.path.absolute()), inode, state.size, state.changed)
        if key not in _verdicts:
            with closing(self._raw_blocks(longer=True)) as blocks:
                _remember(key, judge(blocks))
            if _verdicts[key].guessed:
                report(self.path, _verdicts[key])
        return _verdicts[key]

    def _accepted(self, verdict: Verdict) -> str:
        """Set and return the codec. Raises the file's error if there is none."""
        self._guessed = bool(verdict.guessed)
        self._candidates = verdict.candidates
        if verdict.codec is None:
            raise self.fault(verdict.fault, 1, self._encoding_remedy())
        self._codec = verdict.codec
        return verdict.codec

    def lines(self, *, escaped: bool = False) -> Iterator[tuple[int, str]]:
        """Yield lines numbered from 1, without their ends (LF, CRLF or CR) and without a BOM.

        With `escaped`, undecodable bytes are kept for `undecodable` to find, so that one such line
        does not end the reading. Raises the file's error if it cannot be decoded, or a line has
        more than `MAX_LINE_LENGTH` characters.
        """
        number, rest = 1, ""
        for text in self._decoded("surrogateescape" if escaped else "strict"):
            first, *others = text.split("\n")
            rest += first
            for other in others:
                yield number, rest
                number, rest = number + 1, other
            self._check_length(number, rest)
        if rest:
            yield number, rest

    def lines_as_written(self) -> Iterator[tuple[int, str]]:
        """Yield lines as `lines` does with `escaped`, each with its own end: LF, CRLF or CR."""
        number, rest = 1, ""
        for text in self._undivided("surrogateescape"):
            first, *others = _LINE_END.split(text)
            *lines, rest = rest + first, *others
            for line, end in zip(lines[::2], lines[1::2], strict=True):
                yield number, line + end
                number += 1
            self._check_length(number, rest)
        if rest:
            yield number, rest

    def _check_length(self, number: int, line: str) -> None:
        """Raise the file's error for the beginning of a line that is too long."""
        if len(line) > MAX_LINE_LENGTH:
            remedy = "is a line end missing, or is this another kind of file?"
            raise self.fault(f"a line of over {MAX_LINE_LENGTH:,} characters", number, remedy)

    def texts(self) -> Iterator[str]:
        """Yield the text in blocks, every line end as LF."""
        return self._decoded("strict")

    def whole(self) -> str:
        """Return the text, every line end as LF. Raises the file's error beyond 2^29 characters."""
        parts, size = [], 0
        for text in self._decoded("strict"):
            parts.append(text)
            size += len(text)
            if size > MAX_FILE_LENGTH:
                remedy = "split it into several files"
                raise self.fault(f"more than {MAX_FILE_LENGTH:,} characters", None, remedy)
        return "".join(parts)

    def undecodable(self, text: str, line: int) -> UserError | None:
        """Return the error of a line that was read `escaped`, or None."""
        if text.isascii() or not (escaped := ESCAPED.search(text)):
            return None
        if self._codec != UTF8:
            return self._not_in_codec(ord(escaped[0]) - 0xDC00, line)
        try:
            text.encode(UTF8, "surrogateescape").decode(UTF8)
        except UnicodeDecodeError as error:
            if self._cut and error.end == len(error.object):
                return self._ends_early(line)
            return self._not_in_codec(error.object[error.start], line)
        raise AssertionError("no surrogate is text in any encoding")

    def check_line(self, text: str, line: int) -> None:
        """Raise the file's error for an undecodable byte, or a zero byte, in an `escaped` line."""
        if error := self.undecodable(text, line):
            raise error
        if "\0" in text:
            raise self.fault("a zero byte", line, "remove it: tr -d '\\000'")

    def decoded(self, data: bytes, line: int) -> str:
        """Decode whole lines, the first of number `line`, with every line end as LF.

        Raises the file's error if they are not UTF-8.
        """
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            number = line + line_ends(data[: error.start])
            if error.reason == "unexpected end of data":
                raise self._ends_early(number) from error
            raise self._not_in_codec(error.object[error.start], number) from error
        return with_line_feeds(text)

    def _decoded(self, errors: str) -> Iterator[str]:
        """Yield the text in blocks, every line end as one LF."""
        return map(with_line_feeds, self._undivided(errors))

    def _undivided(self, errors: str) -> Iterator[str]:
        """Yield the text in blocks, none of which divides a CRLF."""
        codec, blocks = self._open_decoded()
        # half of a wide character may be an ASCII byte, which cannot be escaped
        errors = "strict" if is_wide(codec) else errors
        held, first = "", True
        for decoded in self._texts(codec, blocks, errors):
            # a CR at the end of a block may be half of a CRLF
            text = held + (decoded.removeprefix("\ufeff") if first else decoded)
            first = False
            held = "\r" if text.endswith("\r") else ""
            yield text.removesuffix("\r")
        if held:
            yield held

    def _texts(
        self, codec: str, blocks: Generator[bytes, None, None], errors: str
    ) -> Iterator[str]:
        """Yield the decoded text in blocks. Raises the file's error, with the line."""
        decode = codecs.getincrementaldecoder(codec)(errors).decode
        line, last = 1, ""
        # closed at once, since the frames of an error would keep the file open
        with closing(blocks):
            for block in blocks:
                try:
                    text = decode(block)
                except UnicodeError as error:
                    if not isinstance(error, UnicodeDecodeError):
                        raise self._not_in_codec(None, line) from error
                    before = last + error.object[: error.start].decode(codec, "replace")
                    number = line + with_line_feeds(before).count("\n")
                    raise self._not_in_codec(error.object[error.start], number) from error
                counted = last + text
                last = "\r" if counted.endswith("\r") else ""
                line += with_line_feeds(counted.removesuffix("\r")).count("\n")
                yield text
        try:
            if rest := decode(b"", final=True):
                self._cut = True
                yield rest
        except UnicodeError as error:
            raise self._ends_early(line) from error

    def _ends_early(self, line: int) -> UserError:
        remedy = "it was truncated: copy or download it again"
        return self.fault("ends in the middle of a character", line, remedy)

    def _not_in_codec(self, byte: int | None, line: int) -> UserError:
        shown = "" if byte is None else f": byte 0x{byte:02X}"
        if self._codec == UTF8:
            return self.fault(f"is not UTF-8{shown}", line, self._encoding_remedy())
        guess = ", the encoding guessed from its beginning" if self._guessed else ""
        problem = f"is not {self._codec}{guess}{shown}"
        larger = larger_codec(self._codec)
        more = f"{larger}, which has more characters, or another NAME" if larger else "NAME"
        return self.fault(problem, line, f"name another encoding: {OPTION} {more}")

    def _encoding_remedy(self) -> str:
        names = self._candidates[:3] or ("cp1252", "latin-1", "gb18030")
        named = f"{OPTION} {' or '.join(names)}"
        remedy = f"name its encoding, such as {named}, if all files have it, or save it as UTF-8"
        # binary data in a log is in no encoding
        binary = "; bytes that are no text go with `iconv -c -f utf-8 -t utf-8`"
        return remedy if self._candidates else remedy + binary

    def _damaged(self, error: Exception) -> UserError:
        return self.fault(
            f"damaged or truncated: {error}", remedy="copy, download or compress it again"
        )


def _remember(key: tuple[object, ...], verdict: Verdict) -> None:
    if len(_verdicts) >= _MAX_VERDICTS:
        del _verdicts[next(iter(_verdicts))]
    _verdicts[key] = verdict


def _prepend(first: bytes, blocks: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
    yield first
    yield from blocks


def with_line_feeds(text: str) -> str:
    """Return the text with every line end, including CRLF and CR, as LF."""
    if "\r" in text:
        text = text.replace("\r\n", "\n")
        # a search without a match is many times faster than a replacement without one
        if "\r" in text:
            text = text.replace("\r", "\n")
    return text


def line_ends(data: bytes) -> int:
    """Count line ends: LF, CRLF or CR."""
    returns = data.count(b"\r")
    return data.count(b"\n") + (returns - data.count(b"\r\n") if returns else 0)


def cut_line(line: str, longest: int) -> Iterator[str]:
    """Split a long line into parts of at most `longest` characters, at white space if possible."""
    while len(line) > longest:
        end = line.rfind(" ", longest // 2, longest) + 1 or longest
        yield line[:end]
        line = line[end:]
    if line:
        yield line


def _decompressed(raw: BufferedReader, suffix: str) -> Stream:
    # to the decompressors no bytes are no text, but no program writes so few
    if suffix in COMPRESSED and not raw.peek(1):
        raise EOFError("the file is empty")
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if suffix == ".zst":
        import pyarrow as pa

        # unlike zstandard's reader, pyarrow's reports a truncated stream
        return cast("Stream", pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd"))
    return raw


FROM_ARROW: Final = "save it as Parquet, as to_parquet of a split in Hugging Face's `datasets` does"
"""The remedy for Arrow files, which `datasets` writes with `save_to_disk`."""

_EXPORT = "save the sheet as CSV (UTF-8) or TSV"
_KINDS: tuple[tuple[bytes, str, str], ...] = (
    (b"PK\x03\x04", "a zip archive", "unpack it and give the file inside"),
    (b"\xd0\xcf\x11\xe0", "an old Excel or Word file", f"{_EXPORT}, or the document as text"),
    (b"\x1f\x8b", "compressed by gzip", "rename it to end in .gz"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "rename it to end in .zst"),
    (b"BZh", "compressed by bzip2", "decompress it: bunzip2"),
    (b"\xfd7zXZ\x00", "compressed by xz", "decompress it: unxz"),
    (b"7z\xbc\xaf", "a 7z archive", "unpack it and give the file inside"),
    (b"PAR1", "a Parquet file", "rename it to end in .parquet"),
    (b"ARROW1", "an Arrow file", FROM_ARROW),
    (b"\xff\xff\xff\xff", "an Arrow stream", FROM_ARROW),
    (b"%PDF", "a PDF", "take its text out, as pdftotext does"),
    (b"%!PS", "PostScript", "take its text out, as ps2ascii does"),
    (b"{\\rtf", "rich text (RTF)", "save it as text"),
    (b"SQLite format 3", "an SQLite database", "export a table as CSV"),
)
# behind the name and the attributes of the first file inside
_TAR, _TAR_AT = b"ustar", 257
_START = 512
_WEB_PAGE = re.compile(rb"<!doctype html|<html", re.IGNORECASE)
_OFFICE = {
    ".xlsx": ("an Excel file", _EXPORT),
    ".ods": ("a spreadsheet", _EXPORT),
    ".docx": ("a Word file", "save it as text, or its table as CSV"),
    ".odt": ("an OpenDocument text", "save it as text"),
    ".epub": ("an e-book", "unpack it, for the folder of .xhtml inside"),
}


def refuse_pipe(path: Path, *, remedy: str = "write what it gives to a file") -> None:
    """Raise `ExampleError` for a pipe, where a file is read more than once.

    The second reading would wait for ever, or get another part.
    """
    if path.is_fifo():
        raise ExampleError(
            "is a pipe, and has to be read more than once", where=path, remedy=remedy
        )


def refuse_foreign(path: Path) -> None:
    """Raise `ExampleError` for a file that begins like a foreign format, not like a table or text.

    Pipes are not examined, since they cannot be read twice.
    """
    kind = kind_of(path)
    if path.suffix.lower() in COMPRESSED or kind == ".parquet" or not path.is_file():
        return
    try:
        with path.open("rb") as opened:
            start = opened.read(_START)
    except OSError:
        return  # reported when the file is read
    problem = foreign(path, start)
    if problem is None and kind in (".csv", ".tsv", ".jsonl") and _WEB_PAGE.match(start):
        problem = "a web page", "download the file itself"
    if problem is not None:
        what, remedy = problem
        raise ExampleError(f"is {what}, not text", where=path, remedy=remedy)


def foreign(path: Path, start: bytes) -> tuple[str, str] | None:
    """Return what a file is and a remedy, by its first bytes; None if it may be text."""
    for begins, what, remedy in _KINDS:
        if start.startswith(begins):
            return _archive(path) if begins.startswith(b"PK") else (what, remedy)
    if start.startswith(_TAR, _TAR_AT):
        return "a tar archive", "unpack it and give the files inside"
    return None


def _archive(path: Path) -> tuple[str, str]:
    """Return the kind of a zip archive, perhaps an office file, and the remedy."""
    kind = kind_of(path)
    problem, remedy = _OFFICE.get(kind, ("a zip archive", "unpack it and give the file inside"))
    if kind in (".csv", ".tsv"):
        remedy += f", or, of an Excel file, {_EXPORT}"
    return problem, remedy
