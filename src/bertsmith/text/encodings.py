"""The encoding of a file's text: named, marked, UTF-8, or guessed from the bytes.

With ``auto`` the order is: a byte order mark; the zero bytes of UTF-16 and UTF-32; UTF-8, if the
file decodes as it; what XML or HTML declares, if the file decodes as that; a guess by language
(`encoding_guess`), taken only where every plausible encoding gives the same text, and said. A file
for which none of these holds is read as UTF-8, and its lines that are none are refused.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from bertsmith.errors import ConfigError
from bertsmith.text.encoding_guess import guess_codec

AUTO = "auto"
UTF8 = "utf-8"
OPTION = "--encoding"
EXAMINED_BYTES = 1 << 26
"""Bytes of a file from which its encoding is told; what does not fit beyond them is refused."""

_SAMPLE_BYTES = 1 << 14
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, UTF8),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_DECLARED = re.compile(
    rb"""<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]{1,40})"""
    rb"""|<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""",
    re.IGNORECASE,
)
# what browsers take for these, as the pages that declare them have it
_MEANT = {
    "iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030",
    "gbk": "gb18030", "shift_jis": "cp932", "euc_kr": "cp949", "big5": "cp950",
}  # fmt: skip
# codecs of Python's that are no encodings of files
_OTHERS = {"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape"}
_WIDE = ("utf-16", "utf-32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The codec of a file's text, and whether it was guessed; or why there is none.

    `candidates` are other codecs that the text may be in, and `fault` is why none is taken.
    """

    codec: str | None
    guessed: str = ""
    fault: str = ""
    candidates: tuple[str, ...] = ()


@cache
def codec_named(name: str) -> str:
    """Return Python's own name of an encoding; raises `ConfigError` when there is none."""
    try:
        found = codecs.lookup(name)
    except (LookupError, ValueError):
        found = None
    # the attribute is what Python itself goes by when it refuses to decode text with "hex"
    if found is None or not found._is_text_encoding or found.name in _OTHERS:
        remedy = "name one such as utf-8, latin-1, cp1252, utf-16, gb18030, shift_jis, or auto"
        raise ConfigError(f"no text encoding is called {name!r}", remedy=remedy)
    return UTF8 if found.name == "utf-8-sig" else found.name


def check_encoding(name: str) -> None:
    """Raise `ConfigError` unless this is ``auto`` or the name of a text encoding."""
    if name != AUTO:
        codec_named(name)


def is_wide(codec: str) -> bool:
    """Return whether characters have two bytes or more, zero bytes among them."""
    return codec.startswith(_WIDE)


def resolve(codec: str, head: bytes) -> str:
    """Return the codec with its byte order: that of the mark in `head`, or little-endian."""
    if codec not in _WIDE:
        return codec
    return next((each for mark, each in _MARKS if head.startswith(mark)), f"{codec}-le")


def judge(blocks: Iterable[bytes]) -> Verdict:
    """Return the encoding of some text from its first blocks of bytes."""
    decoder = codecs.getincrementaldecoder(UTF8)()
    sample = _Sample()
    multibyte = examined = 0
    declared = None
    for block in blocks:
        if not examined and (marked := _by_mark(block) or _by_zeros(block)):
            return marked
        declared = _declared(block) if not examined else declared
        examined += len(block)
        if not sample.begun:
            try:
                multibyte += len(block) - len(decoder.decode(block))
            except UnicodeDecodeError:
                sample.begun = True
        sample.add(block)
        if sample.size >= _SAMPLE_BYTES or examined >= EXAMINED_BYTES:
            break
    # a file that is cut in its last character is UTF-8, and damaged
    if not sample.begun:
        return Verdict(codec=UTF8)
    return _by_sample(sample.whole(), multibyte, declared)


class _Sample:
    """The first lines that are not ASCII from the block on that is not UTF-8.

    They are whole, so that no character of several bytes is cut.
    """

    def __init__(self) -> None:
        self.begun = False
        self.size = 0
        self._lines: list[bytes] = []
        self._rest = b""

    def add(self, block: bytes) -> None:
        """Take the lines of the next block; of those before the sample begins, the last."""
        if not self.begun:
            self._rest = block[block.rfind(b"\n") + 1 :][:_SAMPLE_BYTES]
            return
        *lines, self._rest = (self._rest + block).splitlines(keepends=True) or [b""]
        for line in lines:
            if not line.isascii() and self.size < _SAMPLE_BYTES:
                self._lines.append(line[:_SAMPLE_BYTES])
                self.size += len(self._lines[-1])
        if len(self._rest) >= _SAMPLE_BYTES:
            self.size += len(self._rest)

    def whole(self) -> bytes:
        """All of it, with what the last block ends in where there is nothing else."""
        rest = self._rest[:_SAMPLE_BYTES]
        return b"".join(self._lines) + (b"" if rest.isascii() else rest)


def _by_mark(head: bytes) -> Verdict | None:
    found = next((codec for mark, codec in _MARKS if head.startswith(mark)), None)
    return None if found is None else Verdict(codec=found)


def _by_zeros(head: bytes) -> Verdict | None:
    """UTF-16 and UTF-32 of mostly ASCII text, by where the zero bytes are; None of few zeros."""
    start = head[:4096]
    if start.count(0) * 5 <= len(start):
        return None
    for codec, size, last in (
        ("utf-32-le", 4, 0), ("utf-32-be", 4, 3), ("utf-16-le", 2, 0), ("utf-16-be", 2, 1),
    ):  # fmt: skip
        units = len(start) // size
        zeros = [start[place::size][:units].count(0) for place in range(size)]
        others = [count for place, count in enumerate(zeros) if place != last]
        if units and not zeros[last] and min(others) > 0.8 * units and _decodes(start, codec):
            return Verdict(codec=codec, guessed="zero bytes where ASCII has them in it")
    return Verdict(
        codec=None,
        fault="is not UTF-8 text: full of zero bytes, so perhaps UTF-16, or no text",
        candidates=("utf-16-le", "utf-16-be"),
    )


def _decodes(data: bytes, codec: str) -> bool:
    try:
        codecs.getincrementaldecoder(codec)().decode(data)
    except UnicodeDecodeError:
        return False
    return True


def _declared(head: bytes) -> str | None:
    """The codec that the beginning of an XML or HTML file declares."""
    found = _DECLARED.search(head[:4096]) if head[:4096].lstrip().startswith(b"<") else None
    try:
        codec = codec_named((found[1] or found[2]).decode()) if found else None
    except ConfigError:
        return None
    return None if codec is None or is_wide(codec) else _MEANT.get(codec, codec)


def _by_sample(sample: bytes, multibyte: int, declared: str | None) -> Verdict:
    text = sample.decode(UTF8, "surrogateescape")
    escaped = sum("\udc80" <= letter <= "\udcff" for letter in text)
    # bytes of the lines in the sample that are no single characters, nor escaped ones
    valid = max(multibyte, len(sample) - len(text))
    if 2 * valid > escaped:
        return Verdict(codec=UTF8)
    if declared not in (None, UTF8) and _decodes(sample, declared):
        return Verdict(codec=declared)
    guess = guess_codec(sample)
    if guess.codec is not None and (50 * valid <= escaped or not guess.latin):
        return Verdict(codec=guess.codec, guessed=f"it is not UTF-8, and reads as {guess.language}")
    # as UTF-8 the lines that are none are refused one by one
    return Verdict(codec=UTF8, candidates=guess.plausible)
