"""The text of HTML and XML: tags, comments, scripts and styles dropped, entities decoded.

A tag ends a paragraph unless it is an inline tag (`_INLINE`); in XML a blank line does too, and
HTML that is escaped or in CDATA is read as HTML, but in articles, which may be about it. The
readings that HTML puts over characters (ruby) are left out. No tree is built and nothing is
fetched: entities that a document declares itself are not expanded, so that expansion cannot blow
up; deep nesting costs nothing; memory is that of a block of the file.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html.entities import html5
from itertools import chain

from bertsmith.text.corpus.documents import MAX_PARAGRAPH_LENGTH, Document, DocumentBuilder
from bertsmith.text.opening import TextFile

PAGES = (".html", ".htm", ".xhtml")
MARKUP = (*PAGES, ".xml")

_DROPPED_NAMES = "script style template noscript svg tex-math"
_DROPPED = frozenset(_DROPPED_NAMES.split())
# a formula in another notation, behind that which is shown
_DROPPED_IN_MATH = frozenset(["annotation", "annotation-xml"])
_INLINE_NAMES = f"""
    a abbr acronym b bdi bdo big cite code data del dfn em embed font foreign g hi i img ins kbd
    mark name nobr num orth picture q ref rs ruby rb rt rp rtc s samp small source span strike
    strong sub sup time tt u var w c pc wbr x
    math maction menclose merror mfrac mfenced mi mmultiscripts mn mo mover mpadded mphantom
    mprescripts mroot mrow ms mspace msqrt mstyle msub msubsup msup mtable mtd mtext mtr munder
    munderover none semantics
    {_DROPPED_NAMES}
"""
_INLINE = frozenset(_INLINE_NAMES.split())
# of DocBook, JATS and TEI; in other files such names may be those of records' parts
_PROSE_NAMES = """
    bold citetitle classname command computeroutput email emphasis envar ext-link filename firstterm
    function guibutton guilabel guimenu guimenuitem inline-formula inline-graphic inlineequation
    inlinemediaobject italic keycap link literal monospace named-content option parameter phrase
    productname quote replaceable roman sans-serif sc styled-content subscript superscript
    systemitem trademark ulink underline uri userinput varname xref
    add alternatives anchor cb corr date emph forename gloss lb mentioned milestone orgname pb
    persname placename ptr rolename seg settlement socalled supplied surname term unclear
"""
# what an index at the end says of the place where it stands
_INDEXED = frozenset(["indexterm", "index-term"])
_PROSE = _INLINE | _INDEXED | frozenset(_PROSE_NAMES.split())
# of a book that is spoken of, where others have a heading
_TEI = _PROSE | frozenset(["title"])
_PROSE_ROOTS_NAMES = """
    appendix article book chapter part pmc-articleset preface refentry reference section set
"""
_TEI_ROOTS = frozenset(["tei", "tei.2", "teicorpus"])
_PROSE_ROOTS = frozenset(_PROSE_ROOTS_NAMES.split())
# where lines, columns and pages of a printed source begin
_BEGINNINGS = frozenset(["lb", "cb", "pb"])
# readings over the characters of a <ruby>, and the brackets for browsers that cannot show them
_READINGS = frozenset(["rt", "rp", "rtc"])
_AFTER_READINGS = frozenset(["ruby", "rb"])
# records of an XML file, each a separate document
_RECORDS_NAMES = "article chapter doc document entry item page post record review row pubmedarticle"
_RECORDS = frozenset(_RECORDS_NAMES.split())
# unless they are parts of a table or a list within a document
_PARTS = frozenset(["entry", "item", "row"])
_LISTS = frozenset(["informaltable", "list", "table", "tgroup"])
_BEGINNING = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*<(?:\?xml\b|!doctype\b|!--|(?:html|doc|tei|body)\b[^<>]*>)",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"&(?:#[0-9xX][0-9a-fA-F]{0,40}|\w{1,40});")
# a number of no character; Python reads none of thousands of digits
_LONG_NUMBER = re.compile(r"&#\d{1000,};?")
_BLANK_LINES = re.compile(r"\n[ \t]*\n")
# HTML inside XML, as feeds and exports of blogs have it
_HTML_INSIDE = re.compile(
    r"</(?:p|div|span|a|li|h[1-6]|blockquote|strong|em|b|i|td|pre|code)>|<br ?/?>", re.IGNORECASE
)
_MARK = re.compile(
    r"<(?:(!--|!\[CDATA\[|!(?i:doctype)?|\?(?i:xml:)?)|(/?)([A-Za-z_][\w:.-]{0,100}))"
)
_PAGE_ROOTS = frozenset(["html", "body"])
# names of places, persons and dates that Office marks in pages, such as <st1:City>
_SMART_TAG = re.compile(r"st\d+:", re.IGNORECASE)
_TAG_END = re.compile(r"[>\"']")
# a possible beginning of markup or an entity that continues in the next block
_UNFINISHED = re.compile(r"(?:<[!/?\[\w:.-]{0,110}|&#?\w{0,40})\Z")
# the declarations of a DOCTYPE, if there are any, are between brackets
_DOCTYPE, _DECLARATIONS = "[ or >", "]>"
# with a colon it is what Office writes into pages, <?xml:namespace prefix = o />, as <![endif]>
_ENDS = {
    "!--": "-->", "![CDATA[": "]]>", "?": "?>", "?xml:": ">", "!doctype": _DOCTYPE, "!": ">"
}  # fmt: skip
_MAX_BLANK = 100
_DECLARATIONS_END = re.compile(rf"\]\s{{0,{_MAX_BLANK}}}>")
_NAMES = {"!--": "a comment", "![CDATA[": "a CDATA section"}


def is_markup(head: bytes) -> bool:
    """Return whether a file begins as HTML and XML do."""
    return _BEGINNING.match(head) is not None


@dataclass(slots=True)
class _Open:
    """An unfinished piece of markup: its description, its end, and its first line."""

    description: str
    end: str
    line: int


@dataclass(slots=True)
class _Scanner:
    """A scanner that splits the text of a file into tags and the text between them."""

    file: TextFile
    xml: bool = False
    line: int = 1
    rest: str = ""
    open: _Open | None = None
    quote: str = ""
    before: str = ""
    tag: tuple[str, bool] = ("", False)
    dropped: str = ""
    reading: bool = False
    math: bool = False
    root: str = ""
    inline: frozenset[str] = _INLINE
    pieces: list[tuple[int, str, str]] = field(default_factory=list)

    def feed(self, text: str, *, last: bool = False) -> list[tuple[int, str, str]]:
        """Return line, tag name or "", and text of the pieces that are complete."""
        self.pieces = []
        text, self.rest = self.rest + text, ""
        at = 0
        while at < len(text):
            before = at
            if self.dropped:
                at = self._dropped(text, at)
            else:
                at = self._skip(text, at) if self.open else self._text(text, at, last=last)
            self.line += text.count("\n", before, at)
            if self.rest:
                break
        return self.pieces

    def end(self) -> None:
        """Raise an error if the file ends within a comment, a script or a tag."""
        if self.open is not None:
            problem = f"ends within {self.open.description} that begins here"
            remedy = "copy it again if it was truncated; --text-files reads it as plain text"
            raise self.file.fault(problem, self.open.line, remedy)

    def _text(self, text: str, at: int, *, last: bool) -> int:
        """Take the text up to the next tag and open the tag; return the offset behind its name."""
        match = _MARK.search(text, at)
        end = match.start() if match else len(text)
        # a name must be complete before it is used
        near = not last and end > len(text) - 120
        cut = _UNFINISHED.search(text, max(at, len(text) - 120)) if near else None
        if cut is not None and cut.start() <= end:
            end, match = min(end, cut.start()), None
            self.rest = text[end:]
        if end > at and not self.reading:
            is_html = not self.xml or self.root in _PAGE_ROOTS
            unescape = _unescaped if is_html else _without_references
            self.pieces.append((self.line, "", unescape(text[at:end])))
        if match is None:
            return end
        line = self.line + text.count("\n", at, end)
        if match[1]:
            mark = match[1] if match[1] in _ENDS else match[1].lower()
            self.open = _Open(_NAMES.get(mark, "a declaration"), _ENDS[mark], line)
            # <!--> is a whole comment: its dashes both begin and end it
            return match.end() - 2 * (match[1] == "!--")
        name = "span" if _SMART_TAG.match(match[3]) else match[3].lower().rpartition(":")[2]
        self.tag = (name, bool(match[2]))
        # what closed the tag before this one closes no other
        self.before = ""
        self.open = _Open(f"a tag <{match[2]}{match[3]}>", "", line)
        return match.end()

    def _dropped(self, text: str, at: int) -> int:
        """Skip the content of a script or the like, where only the end tag counts."""
        name = self.dropped
        end_tag = rf"</(?:[\w.-]{{1,40}}:)?{name}(?:[\s/][^>]{{0,60}})?>"
        match = re.compile(end_tag, re.IGNORECASE).search(text, at)
        if match is None:
            end = max(at, text.rfind("<", max(at, len(text) - 120)))
            self.rest = text[end:] if text[end : end + 1] == "<" and len(text) - end < 120 else ""
            return end if self.rest else len(text)
        self.dropped = ""
        self.open = None
        return match.end()

    def _skip(self, text: str, at: int) -> int:
        assert self.open is not None
        if self.open.end:
            return self._skip_to(self.open.end, text, at)
        while True:  # in a tag, a > between quotes does not end it
            if self.quote:
                end = text.find(self.quote, at)
                if end < 0:
                    return len(text)
                at, self.quote, self.before = end + 1, "", ""
            match = _TAG_END.search(text, at)
            end = match.start() if match else len(text)
            self.before = text[max(at, end - 8) : end].rstrip()[-1:] or self.before
            if match is None:
                return len(text)
            at = match.end()
            if match[0] == ">":
                break
            # a quote counts only at the beginning of a value
            if self.before == "=":
                self.quote = match[0]
        self._end_tag(self_closing=self.before == "/")
        return at

    def _skip_to(self, mark: str, text: str, at: int) -> int:
        assert self.open is not None
        if mark == _DOCTYPE:
            mark, end = ">", text.find(">", at)
            if text.find("[", at, end if end >= 0 else len(text)) >= 0:
                self.open.end = mark = _DECLARATIONS
        if mark == _DECLARATIONS:
            return self._skip_declarations(text, at)
        end = text.find(mark, at)
        cdata = self.open.description == _NAMES["![CDATA["]
        ended = end >= 0
        if not ended:
            end = max(at, len(text) - len(mark) + 1)
            self.rest = text[end:]
        if cdata and end > at:
            self.pieces.append((self.line, "", text[at:end]))
        if not ended:
            return end
        self.open = None
        return end + len(mark)

    def _skip_declarations(self, text: str, at: int) -> int:
        """Skip the declarations of a DOCTYPE; return the offset behind them or all of the text."""
        match = _DECLARATIONS_END.search(text, at)
        if match is not None:
            self.open = None
            return match.end()
        # white space may follow the bracket, in the next block too
        bracket = text.rfind("]", at)
        held = (
            bracket >= 0 and len(text) - bracket <= _MAX_BLANK and not text[bracket + 1 :].strip()
        )
        end = bracket if held else len(text)
        self.rest = text[end:]
        return end

    def _end_tag(self, *, self_closing: bool) -> None:
        """Record a complete tag."""
        name, closing = self.tag
        assert self.open is not None
        line, self.open = self.open.line, None
        if not self.root:
            self.root = name
            self.inline = (
                _PROSE if name in _PROSE_ROOTS else _TEI if name in _TEI_ROOTS else _INLINE
            )
        if name == "math":
            self.math = not closing
        dropped = name in _DROPPED or (self.math and name in _DROPPED_IN_MATH)
        dropped |= name in _INDEXED and name in self.inline
        if dropped and not closing and not self_closing:
            self.dropped = name
            self.open = _Open(f"<{name}>", "", line)
            return
        if name in _READINGS:
            # its end tag may be left out
            self.reading = not closing
        elif name in _AFTER_READINGS or name not in self.inline:
            self.reading = False
        if name not in self.inline:
            self.pieces.append((line, f"/{name}" if closing else name, ""))
            if self_closing:
                self.pieces.append((line, f"/{name}", ""))
        elif name in _BEGINNINGS:
            self.pieces.append((line, "", " "))


def documents_of_markup(
    file: TextFile, blocks: Iterable[str], *, records: bool
) -> Iterator[Document]:
    """Yield the documents of HTML or XML text: one or, with `records`, one for each record."""
    scanner = _Scanner(file, xml=records)
    builder = DocumentBuilder(str(file.path))
    parts: list[str] = []
    start = length = lists = 0
    blank = True
    ends = False

    def paragraph() -> bool:
        text = "".join(parts)
        parts.clear()
        full = False
        texts = [text]
        if records and scanner.inline is _INLINE and _HTML_INSIDE.search(text):
            texts = _paragraphs_of_html(file, text)
        for each in texts:
            for part in _BLANK_LINES.split(each) if records else [each]:
                full = builder.add(start, part)
        return full

    for block in chain(blocks, (None,)):
        for line, tag, text in scanner.feed(block or "", last=block is None):
            if not tag:
                if not parts:
                    blank, length = True, 0
                if blank:
                    start = line + text[: len(text) - len(text.lstrip())].count("\n")
                    blank = not text.strip()
                parts.append(text)
                length += len(text)
                full = False
                if length > MAX_PARAGRAPH_LENGTH:
                    parts[-1], rest = _parted_at_blank(text)
                    start_of_rest = line + parts[-1].count("\n")
                    full = paragraph()
                    if rest:
                        parts.append(rest)
                        start, length, blank = start_of_rest, len(rest), not rest.strip()
            else:
                full = paragraph()
                name = tag.removeprefix("/")
                if name in _LISTS and name != scanner.root:
                    lists = max(0, lists + (1 if tag == name else -1))
                ends = name in _RECORDS and not (
                    (lists and name in _PARTS)
                    or (name == "article" and scanner.root == "pubmedarticleset")
                )
            if full or (records and ends):
                yield from builder.end()
            ends = False
    scanner.end()
    paragraph()
    yield from builder.end()


def _parted_at_blank(text: str) -> tuple[str, str]:
    """Return a text up to its last blank line, or else its last white space, and the rest."""
    end = max(text.rfind("\n\n"), 0) or max(text.rfind(" "), text.rfind("\n"), 0) or len(text)
    return text[:end], text[end:]


def _unescaped(text: str) -> str:
    """Return text of HTML with its references as characters."""
    return html.unescape(_LONG_NUMBER.sub("\ufffd", text) if "&#" in text else text)


def _without_references(text: str) -> str:
    """Return text of XML with its references as characters, but for those it declares itself.

    In HTML the semicolon may be missing, so that ``&gtk;`` is a sign and two letters there.
    """
    return _REFERENCE.sub(lambda found: _referred(found[0]), text) if "&" in text else text


def _referred(reference: str) -> str:
    known = reference[1] == "#" or reference[1:] in html5
    return html.unescape(reference) if known else reference


def _paragraphs_of_html(file: TextFile, text: str) -> list[str]:
    """Return the paragraphs of HTML that was text in another file; as it is if a tag is open."""
    scanner = _Scanner(file)
    pieces = scanner.feed(text, last=True)
    if scanner.open is not None:
        return [text]
    paragraphs: list[list[str]] = [[]]
    for _, tag, piece in pieces:
        if tag:
            paragraphs.append([])
        else:
            paragraphs[-1].append(piece)
    return ["".join(parts) for parts in paragraphs]
