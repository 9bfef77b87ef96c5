"""Lines of text out of plain, gzip and zstandard files, with every fault named by file and line."""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal, Protocol, cast, runtime_checkable

from bertsmith.errors import UserError

COMPRESSED = (".gz", ".zst")
BLOCK_BYTES = 1 << 20
LONGEST_LINE = 1 << 26
LONGEST_FILE = 1 << 29
"""Characters of a file that must be in memory as a whole, such as one JSON object."""

Encoding = Literal["utf-8", "iso-8859-1", "windows-1252"]
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
# how Python writes bytes that are not of the encoding into text ("surrogateescape")
_ESCAPED = re.compile("[\udc80-\udcff]")


def kind_of(path: Path) -> str:
    """The extension that says how to read a file: ``.txt`` of ``b.txt`` and of ``b.TXT.gz``."""
    suffix = path.suffix.lower()
    return Path(path.stem).suffix.lower() if suffix in COMPRESSED else suffix


@runtime_checkable
class Stream(Protocol):
    """What gives its bytes bit by bit."""

    def read(self, size: int = -1, /) -> bytes:
        """At most `size` bytes; none at the end."""
        ...


class TextFile:
    """A file to be read once, and the class of error that its faults raise."""

    def __init__(self, path: Path, error: type[UserError], encoding: Encoding = "utf-8") -> None:
        self.path = path
        self.encoding = encoding
        self._error = error
        self._raw: BinaryIO | None = None
        self._closed_at = 0
        self._cut = False

    @property
    def compressed(self) -> bool:
        """Whether its bytes on the disk are not those of its text."""
        return self.path.suffix.lower() in COMPRESSED

    @property
    def bytes_read(self) -> int:
        """How far the file as it lies on the disk has been read, for progress bars."""
        raw = self._raw
        if raw is None or raw.closed:
            return self._closed_at
        return raw.tell() if raw.seekable() else 0

    def fault(self, what: str, line: int | None = None, remedy: str = "") -> UserError:
        """An error that names this file."""
        return self._error(what, where=self.path, line=line, remedy=remedy)

    @contextmanager
    def open(self) -> Iterator[Stream]:
        """The decompressed bytes; whatever goes wrong in reading them becomes the file's error."""
        try:
            with self.path.open("rb") as raw:
                self._raw = raw
                try:
                    yield _decompressed(raw, self.path.suffix.lower())
                finally:
                    self._raw, self._closed_at = None, self.path.stat().st_size
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self._damaged(error) from error
        except OSError as error:
            if error.errno is None:  # pyarrow's complaints about the content come as bare OSError
                raise self._damaged(error) from error
            raise self.fault(f"cannot be read: {error.strerror}") from error

    def blocks(self, start: int = 0) -> Generator[bytes, None, None]:
        """The decompressed bytes from a place on, in blocks of about a megabyte."""
        with self.open() as stream:
            if start and stream is self._raw:
                self._raw.seek(start)
                start = 0
            while start > 0 and (passed := stream.read(min(BLOCK_BYTES, start))):
                start -= len(passed)
            while block := stream.read(BLOCK_BYTES):
                yield block

    def lines(
        self, *, longest: int = LONGEST_LINE, escaped: bool = False
    ) -> Iterator[tuple[int, str]]:
        """Numbered lines, from 1, without their ends (LF, CRLF or CR) and without a BOM.

        Raises the file's error when it is not in its encoding, or a line of more than `longest`
        characters. With `escaped`, the bytes that are not are kept for `undecodable` to find, so
        that one such line need not end the reading.
        """
        number, rest = 1, ""
        for text in self._decoded("surrogateescape" if escaped else "strict"):
            first, *others = text.split("\n")
            rest += first
            for other in others:
                yield number, rest
                number, rest = number + 1, other
            if len(rest) > longest:
                remedy = "is a line end missing, or is this another kind of file?"
                raise self.fault(f"a line of over {longest:,} characters", number, remedy)
        if rest:
            yield number, rest

    def whole(self) -> str:
        """All of its text, every line end as LF; the file's error beyond 2^29 characters."""
        parts, size = [], 0
        for text in self._decoded("strict"):
            parts.append(text)
            size += len(text)
            if size > LONGEST_FILE:
                remedy = "split it into several files"
                raise self.fault(f"more than {LONGEST_FILE:,} characters", None, remedy)
        return "".join(parts)

    def undecodable(self, text: str, line: int) -> UserError | None:
        """What is wrong with a line that was read `escaped`, or None."""
        if text.isascii() or not _ESCAPED.search(text):
            return None
        try:
            text.encode(self.encoding, "surrogateescape").decode(self.encoding)
        except UnicodeDecodeError as error:
            if self._cut and error.end == len(error.object):
                return self._ends_early(line)
            return self._not_utf8(error, line)
        raise AssertionError("no surrogate is text in any encoding")

    def decoded(self, data: bytes, line: int) -> str:
        """The text of some whole lines, the first of this number, every line end turned into LF.

        Raises the file's error when they are not UTF-8.
        """
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            number = line + line_ends(data[: error.start])
            if error.reason == "unexpected end of data":
                raise self._ends_early(number) from error
            raise self._not_utf8(error, number) from error
        return with_line_feeds(text)

    def _decoded(self, errors: str) -> Iterator[str]:
        """Text in blocks, every line end turned into one LF."""
        decode = codecs.getincrementaldecoder(self.encoding)(errors).decode
        line, held, first = 1, "", True
        for block in self.blocks():
            if first:
                self.check_start(block)
            try:
                text = held + decode(block)
            except UnicodeDecodeError as error:
                before = held.encode() + error.object[: error.start]
                raise self._not_utf8(error, line + line_ends(before)) from error
            if first:
                text, first = text.removeprefix("\ufeff"), False
            # a CR at the end of a block may be half of a CRLF
            held = "\r" if text.endswith("\r") else ""
            text = with_line_feeds(text.removesuffix("\r"))
            line += text.count("\n")
            yield text
        try:
            if rest := decode(b"", final=True):
                self._cut, held = True, held + rest
        except UnicodeDecodeError as error:
            raise self._ends_early(line) from error
        if held:
            yield with_line_feeds(held)

    def check_start(self, block: bytes) -> None:
        """Raise the file's error when it does not begin as UTF-8 text does."""
        for mark, encoding in _BYTE_ORDER_MARKS:
            if block.startswith(mark):
                raise self.fault(f"is {encoding}, not UTF-8", 1, self._iconv(encoding))
        start = block[:4096]
        if start.count(0) * 5 > len(start):
            encoding = "UTF-16LE" if start[1::2].count(0) > start[::2].count(0) else "UTF-16BE"
            what = f"is not UTF-8 text: full of zero bytes, so perhaps {encoding}, or no text"
            raise self.fault(what, 1, self._iconv(encoding))

    def _ends_early(self, line: int) -> UserError:
        remedy = "it was cut short: copy or download it again"
        return self.fault("ends in the middle of a character", line, remedy)

    def _not_utf8(self, error: UnicodeDecodeError, line: int) -> UserError:
        byte = error.object[error.start]
        if self.encoding != "utf-8":
            what = f"is not {self.encoding}: byte 0x{byte:02X}"
            return self.fault(what, line, "name another encoding")
        guess = "WINDOWS-1252" if 0x80 <= byte < 0xA0 else "ISO-8859-1"
        what = f"is not UTF-8: byte 0x{byte:02X}, perhaps {guess}"
        return self.fault(what, line, self._iconv(guess))

    def _iconv(self, encoding: str) -> str:
        name = self.path.name
        if self.compressed:
            return f"decompress it, then convert it: iconv -f {encoding} -t UTF-8"
        return f"convert it: iconv -f {encoding} -t UTF-8 '{name}' > 'utf8-{name}'"

    def _damaged(self, error: Exception) -> UserError:
        return self.fault(
            f"damaged or cut short: {error}", remedy="copy, download or compress it again"
        )


def with_line_feeds(text: str) -> str:
    """The text with every line end, CRLF and CR too, as LF."""
    if "\r" in text:
        text = text.replace("\r\n", "\n")
        # a search that finds nothing is many times faster than a replacement that does nothing
        if "\r" in text:
            text = text.replace("\r", "\n")
    return text


def line_ends(data: bytes) -> int:
    """How many line ends there are: LF, CRLF or CR."""
    returns = data.count(b"\r")
    return data.count(b"\n") + (returns - data.count(b"\r\n") if returns else 0)


def cut_line(line: str, longest: int) -> Iterator[str]:
    """A long line in parts of at most so many characters, cut at white space where there is any."""
    while len(line) > longest:
        end = line.rfind(" ", longest // 2, longest) + 1 or longest
        yield line[:end]
        line = line[end:]
    if line:
        yield line


def _decompressed(raw: BinaryIO, suffix: str) -> Stream:
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if suffix == ".zst":
        import pyarrow as pa

        # unlike zstandard's reader, pyarrow's reports a stream that ends too early
        return cast("Stream", pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd"))
    return raw
