"""English prose out of docstrings: markup, code, tables and field lists left out."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from itertools import zip_longest

from bertsmith.text.wordlists import COMMON, words

_QUOTE = re.compile(r"^(\s*)>\s(?:\[!\w+\])?\s*")
_UNDERLINE = re.compile(r"\s*([=\-~^\"*#+`_.:])\1{2,}\s*$")
_TABLE = re.compile(r"\s*(#+\s|\||\+[-=]+\+|={2,}\s+={2,})|.*\S {4,}\S")
_DIRECTIVE = re.compile(r"\s*\.\. *(\[?[\w#|-]+\]?)(:+|\s|$)\s*(.*)")
_KEPT_DIRECTIVES = words("note warning tip important hint caution attention admonition")
_FIELD = re.compile(
    r"\s*:(param|parameter|arg|return|returns|raise|raises|yields?|keyword)\b[^:]*:\s*"
)
_OTHER_FIELD = re.compile(r"\s*[:@][\w -]+:? .*|\s*:\w+:\s*$")
_BULLET = re.compile(r"\s*(?:[-*+•]|\(?(?:\d+|[a-z])[.)])\s+(?=\S)")
_ARGUMENT = re.compile(
    r"\s*`{0,2}\*{0,2}\w[\w.]*(?:\[[\w., |\[\]]*\])?`{0,2}"
    r"\s*(\([^()]*(?:\([^()]*\)[^()]*)*\))?\s*(:|--)\s+(?=\S)"
)
_NAMES_AND_TYPE = re.compile(
    r"\s*[`*{]*[\w.]+[`*}]*(,\s*[`*{]*[\w.]+[`*}]*)*\s*(:\s*|\s:.*|\(.*\):?|\s*)$"
)
_SIGNATURE = re.compile(r"\s*[\w.]+\s*\(.*\)\s*(->.*|:)?$")
_DROPPED_SECTIONS = ("references", "see also", "authors", "author", "usage", "signature", "license")
_MARKED = re.compile(r"[`*\[<\\]|::|//")
_MARKUP = (
    (re.compile(r":[\w:+-]+:`([^`<]*?)\s*<[^`>]*>`"), r"\1"),
    (re.compile(r":[\w:+-]+:`~(?:[\w.]*\.)?([^`]*)`"), r"\1"),
    (re.compile(r":[\w:+-]+:`!?([^`]*)`"), r"\1"),
    (re.compile(r"`([^`<]+?)\s*<[^`>]+>`__?"), r"\1"),
    (re.compile(r"!?\[([^\]]+)\]\([^)\s]+\)"), r"\1"),
    (re.compile(r"\[`~?([^`]+)`\]"), r"\1"),
    (re.compile(r"\s*\[[\w#*-]{1,12}\]_"), ""),
    (re.compile(r"`{1,3}([^`]+)`{1,3}_{0,2}"), r"\1"),
    (re.compile(r"\*\*(\S(?:[^*]*\S)?)\*\*"), r"\1"),
    (re.compile(r"(?<![\w*])\*(\w(?:[^*]*\w)?)\*(?![\w*])"), r"\1"),
    (re.compile(r"<[a-z]+://[^>]*>|\b[a-z]+://\S+"), ""),
    (re.compile(r"</?[a-z]+\d?/?>"), ""),
    (re.compile(r"::(?=\s|$)"), ":"),
    (re.compile(r"\\(?=[*_`|])"), ""),
)
_CODE = re.compile(
    r"[{}\\]|\(\)[;:]|\w\[\d|(?<![=<>!])=(?![=<>])\S*[('\"\[]|^\s*(def|class|import|from|@)\s?\w+.*[:(]|"
    r"^[\w.]+ = |\$ |;\s*$|-->|==>|\w\) as \w|\bSUITE\b|\) +# |"
    r"\b(if|for|while|with|except|else|try)\b[^.]*: (if|raise|return|print|pass|for|with|[a-z_]+\()"
)
_WORD = re.compile(r"[A-Za-z][a-z]*(?:['’-][A-Za-z]+)*$")


def prose(docstring: str) -> Iterator[str]:
    """The paragraphs of a docstring that read as English, one line each.

    Wrapped lines are joined. Doctests, literal blocks, tables, headings, signatures, names with
    their types and reST or markdown markup are left out; inline names stay.
    """
    lines = inspect.cleandoc(docstring).expandtabs().splitlines()
    for block in _blocks([_QUOTE.sub(r"\1", line) for line in lines]):
        for paragraph in _paragraphs(block):
            text = _plain(paragraph)
            if _is_english(text):
                yield text


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _blocks(lines: list[str]) -> Iterator[list[str]]:
    """Runs of lines without blank ones between, outside code and unwanted sections."""
    block: list[str] = []
    literal: int | None = None  # indent of the line that announced a literal block
    fenced = doctest = skipping = False
    for line, after in zip_longest(lines, lines[1:], fillvalue=""):
        stripped = line.strip()
        if stripped.startswith(("```", "~~~")):
            fenced = not fenced
            continue
        if fenced:
            continue
        if not stripped:
            doctest = False
            yield block
            block = []
            continue
        if literal is not None and _indent(line) > literal:
            continue
        literal = None
        doctest = doctest or stripped.startswith((">>>", "In ["))
        if _UNDERLINE.match(after) or _UNDERLINE.match(line):
            skipping = stripped.lower().rstrip(":") in _DROPPED_SECTIONS or (
                skipping and bool(_UNDERLINE.match(line))
            )
            yield block
            block = []
            continue
        if doctest or skipping:
            continue
        directive = _DIRECTIVE.match(line)
        if directive:
            yield block
            kept = directive[1] in _KEPT_DIRECTIVES
            block = [directive[3]] if kept and directive[3] else []
            literal = None if kept else _indent(line)
            continue
        if stripped.endswith("::"):
            literal = _indent(line)
        block.append(line)
    yield block


def _paragraphs(block: list[str]) -> Iterator[str]:
    """The paragraphs of a block: a list item, field or change of indent begins another."""
    parts: list[str] = []
    indent = 0
    torn = False
    for line, after in zip_longest(block, block[1:], fillvalue=""):
        deeper = _indent(after) > _indent(line)
        lead = _FIELD.match(line) or _BULLET.match(line)
        typed = deeper and lead is None and _NAMES_AND_TYPE.match(line)
        if lead is None and (_indent(line) > 0 or deeper):
            lead = _ARGUMENT.match(line)
        small = line.lstrip()[0].islower()
        # the rest of a sentence that began in a line left out is left out as well
        torn = bool(_is_markup(line) or (lead is None and _OTHER_FIELD.match(line))) or (
            torn and small and lead is None
        )
        unfinished = small and not typed and bool(parts) and parts[-1][-1:] not in (".", ":", "")
        if torn or typed or lead or not (_indent(line) >= indent or unfinished):
            yield " ".join(parts)
            parts = []
        if torn or typed:
            continue
        if not parts:
            # what hangs under a list item or a named argument belongs to it
            indent = _indent(line) + (1 if lead else 0)
        parts.append(line[lead.end() :] if lead else line.strip())
    yield " ".join(parts)


def _is_markup(line: str) -> bool:
    return bool(_TABLE.match(line) or _SIGNATURE.match(line))


def _plain(paragraph: str) -> str:
    if _MARKED.search(paragraph):
        for pattern, by in _MARKUP:
            paragraph = pattern.sub(by, paragraph)
    return " ".join(paragraph.split())


def _is_english(text: str) -> bool:
    """Whether three in five words, three at least, are plain, a common one or a stop at the end.

    Signs of code are borne with once in fifteen words.
    """
    if not text.isascii() and sum(not c.isascii() for c in text) * 20 > len(text):
        return False
    words = [word.strip(".,:;!?\"'()[]") for word in text.split()]
    plain = sum(_WORD.match(word) is not None for word in words)
    if plain < 3 or plain * 5 < len(words) * 3:
        return False
    if sum(1 for _ in _CODE.finditer(text)) * 15 > len(words):
        return False
    if any(word.lower() in COMMON for word in words):
        return True
    return plain == len(words) and text.endswith(".")
