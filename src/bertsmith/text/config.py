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
LabelSeparator = Literal["auto", "|", ",", ";"]
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
    """Column of the text, or of the first text of a pair: a name or, in CSV and TSV, a position
    from 0."""
    text_pair: str | None = field(default=None, metadata=named("text-pair-column"))
    """Column of the second text of a pair."""
    header: HeaderOption = "auto"
    """First line of a CSV or TSV: yes if it names the columns, no if it is a row, or auto, which
    decides from the first lines and reports its decision."""
    encoding: str = AUTO
    """Encoding of the file, such as latin-1, cp1252, utf-16 or gb18030; auto is UTF-8, what a byte
    order mark says, or a detected encoding, which is reported."""

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
    """Column of the class, the number or the relevance."""
    labels: tuple[str, ...] = field(default=(), metadata=named("label-columns"))
    """Columns of 0 and 1, one for each class and named for it, separated by commas
    (multi-label)."""
    id: str | None = field(default=None, metadata=named("id-column"))
    """Column with a unique name for each row."""
    group: str | None = field(default=None, metadata=named("group-column"))
    """Column of what rows have in common, such as a patient or an author, whose rows are held out,
    and drawn for intervals, together; of a pair to be ranked the query (by default its text), of a
    tagged word the sentence."""
    layout: Literal["table", "label-first"] = "table"
    """label-first: each line is a label, a space and a text, as in TREC and any .label file."""
    label_until: str | None = None
    """Keep only the part of a label before this sign, such as the colon in ENTY:animal."""
    label_separator: LabelSeparator = "auto"
    """Separator of several labels in a cell; auto is |, or a comma or semicolon if labels
    recur."""
    label_start: LabelStart = "auto"
    """Number of the first option in multiple choice, 0 or 1; auto decides from all labels."""
    classes: tuple[str, ...] = ()
    """Classes to keep, separated by commas; with several labels for a text, the labels to keep."""
    exclude: tuple[str, ...] = ()
    """Classes to leave out, separated by commas."""

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
            problem = "--header no does not apply to JSON and Parquet, where every value has a name"
            raise ConfigError(problem, where=path, remedy="omit it")

    def check_read(self, path: Path | str, reader: str, *fields: str) -> None:
        """Raise `ConfigError` if a column, header or layout is given that is not among `fields`.

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
        problem = f"{_OPTIONS[unread[0]]} does not apply to {reader}"
        raise ConfigError(problem, where=path, remedy=known)


USUAL = Columns()
_OPTIONS = {
    "text": "--text-column",
    "text_pair": "--text-pair-column",
    "label": "--label-column",
    "labels": "--label-columns",
    "id": "--id-column",
    "group": "--group-column",
    "header": "--header",
    "layout": "--layout",
}
"""The command's options for the columns of a row, the header and the layout, by setting."""


@dataclass(frozen=True, kw_only=True)
class TagColumns(Config):
    """The columns of words and tags, counted from 0 or, if negative, from the end.

    In CoNLL-U they are FORM and UPOS by default, each where it is not given; MISC is 9 there.
    """

    word: int = 0
    """Column of the word."""
    tag: int = -1
    """Column of the tag."""
    scheme: Literal["auto", "bio1", "bio2", "bioes", "ioe", "plain"] = "auto"
    """Tag scheme, which marks where an entity begins; auto detects it from all tags. bioes includes
    BILOU, BMES and BMEWO, ioe both IOE1 and IOE2."""
    layout: Literal["auto", "columns", "joined"] = "auto"
    """Layout of text files: columns, one word a line; joined, sentences of word_TAG; auto detects
    it."""
    sign: str | None = None
    """Sign between joined words and tags, such as _ or /; detected by default."""

    def __post_init__(self) -> None:
        if self.sign is not None and (
            not self.sign or self.layout == "columns" or any(map(str.isspace, self.sign))
        ):
            problem = f"tags.sign is {self.sign!r}" + " of columns" * (self.layout == "columns")
            raise ConfigError(
                problem, remedy="give the sign of joined words and tags, such as _ or /"
            )


USUAL_TAGS = TagColumns()
