"""The options of reading files: encodings, columns, layouts, bad rows."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bertsmith.core.config import Config, named
from bertsmith.core.errors import ConfigError

HeaderOption = Literal["auto", "yes", "no"]
Layout = Literal["auto", "documents", "prose", "wrapped"]
LabelStart = Literal["auto", "0", "1"]
OnBad = Literal["fail", "skip", "quarantine"]

AUTO = "auto"
"""The encoding of a file whose encoding is to be found out."""
UTF8 = "utf-8"
_NOT_OF_FILES = {"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape"}
# names that editors, mail and web pages use and Python lacks (WHATWG, Encoding Standard)
_OTHER_NAMES = {
    "x-sjis": "cp932", "windows-31j": "cp932", "ms932": "cp932", "x-euc-jp": "euc_jp",
    "windows-949": "cp949", "x-gbk": "gbk", "windows-936": "gbk", "x-x-big5": "big5",
    "windows-874": "cp874", "dos-874": "cp874", "iso-8859-8-i": "iso8859-8",
    "iso-8859-8-e": "iso8859-8", "iso-8859-6-i": "iso8859-6", "iso-8859-6-e": "iso8859-6",
    "x-mac-cyrillic": "mac-cyrillic", "x-mac-roman": "mac-roman", "x-cp1250": "cp1250",
    "x-cp1251": "cp1251", "x-cp1252": "cp1252", "dos-866": "cp866",
}  # fmt: skip


def codec_named(name: str) -> str:
    """Return Python's name of an encoding. Raises `ConfigError` if it is unknown."""
    try:
        info = codecs.lookup(_OTHER_NAMES.get(name.lower().replace("_", "-"), name))
    except (LookupError, ValueError):
        info = None
    # Python itself uses this attribute to refuse decoding text with "hex"
    if info is None or not info._is_text_encoding or info.name in _NOT_OF_FILES:
        remedy = "name one such as utf-8, latin-1, cp1252, utf-16, gb18030, shift_jis, or auto"
        raise ConfigError(f"unknown text encoding {name!r}", remedy=remedy)
    return UTF8 if info.name == "utf-8-sig" else info.name


def check_encoding(name: str) -> None:
    """Raise `ConfigError` unless `name` is ``auto`` or a text encoding."""
    if name != AUTO:
        codec_named(name)


@dataclass(frozen=True, kw_only=True)
class TextColumns(Config):
    """The columns of texts."""

    text: str | None = field(default=None, metadata=named("text-column"))
    """Column of the text, or of a pair's first: a name or, in CSV and TSV, a position from 0."""
    text_pair: str | None = field(default=None, metadata=named("text-pair-column"))
    """Column of the second text of a pair."""
    header: HeaderOption = "auto"
    """Header of a CSV or TSV, a first line with the names of its columns: yes, no, or auto, which
    decides by the first lines and says what it found."""
    encoding: str = AUTO
    """Of the file's text, such as latin-1, cp1252, utf-16 or gb18030; auto is UTF-8, what a byte
    order mark says, or a guess that is said."""

    def __post_init__(self) -> None:
        check_encoding(self.encoding)


@dataclass(frozen=True, kw_only=True)
class Columns(TextColumns):
    """The columns of texts and labels.

    They are given by name or, in a CSV or TSV, by position from 0. Columns not given are found by
    their usual names, a second text only if `text` is not given either. In a CSV or TSV of two
    columns without header (``ham<TAB>text``) the label is the column of few repeated values, or of
    numbers.
    """

    label: str | None = field(default=None, metadata=named("label-column"))
    """Column of the class, number or relevance."""
    labels: tuple[str, ...] = field(default=(), metadata=named("label-columns"))
    """Several columns of 0 and 1, each named for its class (multi-label)."""
    id: str | None = field(default=None, metadata=named("id-column"))
    """Column of a name for each row; no two rows may have the same."""
    group: str | None = field(default=None, metadata=named("group-column"))
    """Of pairs to be ranked, what names the query; without it, the query's text; of words
    with tags, what names the sentence."""
    layout: Literal["table", "label-first"] = "table"
    """label-first: lines of a label, a blank and a text, as in TREC and any .label file."""
    label_until: str | None = None
    """Keep the label up to this sign only, as the colon in ENTY:animal."""
    label_separator: Literal["auto", "|", ",", ";"] = "auto"
    """Separator of several labels in a cell; auto is |, or commas if labels recur."""
    label_start: LabelStart = "auto"
    """Of multiple choice, what numeric labels count from: 0, 1, or auto, as all labels show."""
    classes: tuple[str, ...] = ()
    """The only classes to read examples of, with commas between; of several labels, the only
    labels."""
    exclude: tuple[str, ...] = ()
    """Classes to leave out, with commas between."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.label is not None and self.labels:
            raise ConfigError("both a label's column and several of 0 and 1", remedy="name one")

    def named(self) -> list[str]:
        """Return the columns that are given."""
        single = (self.text, self.text_pair, self.label, self.id, self.group)
        return [name for name in (*single, *self.labels) if name is not None]

    def check_named(self, path: Path) -> None:
        """Raise `ConfigError` if the header is denied to a file whose values always have names."""
        if self.header == "no":
            what = "--header no does not apply to JSON and Parquet, where every value has a name"
            raise ConfigError(what, where=path, remedy="omit it")

    def check_read(self, path: Path | str, reader: str, *fields: str) -> None:
        """Raise `ConfigError` if a column or header is given that is not among `fields`.

        `reader` names the task or kind of file that reads only those fields.
        """
        unread = [
            name
            for name in _OPTIONS
            if name not in fields and getattr(self, name) != getattr(USUAL, name)
        ]
        if not unread:
            return
        options = [_OPTIONS[name] for name in _OPTIONS if name in fields]
        known = f"omit it; {', '.join(options)} can be given" if options else "omit it"
        what = f"{_OPTIONS[unread[0]]} does not apply to {reader}"
        raise ConfigError(what, where=path, remedy=known)


USUAL = Columns()
_OPTIONS = {
    "text": "--text-column",
    "text_pair": "--text-pair-column",
    "label": "--label-column",
    "labels": "--label-columns",
    "id": "--id-column",
    "group": "--group-column",
    "header": "--header",
}
"""The command's options for the columns of a row and the header, by setting."""


@dataclass(frozen=True, kw_only=True)
class TagColumns(Config):
    """The columns of words and tags, counted from 0 or, if negative, from the end.

    In CoNLL-U they are FORM and UPOS by default.
    """

    word: int = 0
    """The word."""
    tag: int = -1
    """Its tag."""
    scheme: Literal["auto", "bio1", "bio2", "bioes", "plain"] = "auto"
    """Scheme of tags that says where an entity begins; auto looks at all of them."""
    layout: Literal["auto", "columns", "joined"] = "auto"
    """Of text files: columns, a word a line; joined, sentences of word_TAG; auto looks at them."""
    sign: str | None = None
    """Of joined words and tags, what stands between them, such as _ or /; else found."""

    def __post_init__(self) -> None:
        if self.sign is not None and (
            not self.sign or self.layout == "columns" or any(map(str.isspace, self.sign))
        ):
            what = f"tags.sign is {self.sign!r}" + " of columns" * (self.layout == "columns")
            raise ConfigError(what, remedy="give the sign of joined words and tags, such as _ or /")


USUAL_TAGS = TagColumns()
