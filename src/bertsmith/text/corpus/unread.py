"""Files that a corpus does not read: what they are, and how the text in them is read.

They are judged by their first bytes, and by the name where those do not tell: the remedy that a
message names has to fit the file. Folders are judged by the names of the files in them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from bertsmith.core.errors import CorpusError
from bertsmith.core.printable import shell_word
from bertsmith.text.corpus.markup import is_markup
from bertsmith.text.opening import TextFile, foreign, kind_of

_HEAD_BYTES = 4096
_MAN_PAGE = re.compile(
    rb"""(?:\xef\xbb\xbf)?(?:[.']\\"[^\n]*\n|\.\n|\n)*\.(?:TH|Dd|so|de|if|ie)\b"""
)
_MESSAGE = re.compile(
    rb"From \S+ |(?:Return-Path|Received|Delivered-To|Message-ID): ", re.IGNORECASE
)
_NAMES_END = re.compile(r"\d[\d.-]*")
_TO_LINES = r"tr '\0' '\n' > FILE.txt"
# names in a store, in one that is being made, in a vocabulary or model, in a run of pre-training,
# of tasks or of the demo, in results of GLUE, and in a checkpoint of Google's; a tokenizer.json
# alone may have been saved beside texts
_OUTPUTS = (
    *({"store.json", "sentences.bin"}, {"journal.jsonl", "digests", "store"}),
    *({"tokenizer_config.json"}, {"config.json", "vocab.txt"}),
    *({"tokenizer.json", other} for other in ("config.json", "vocab.txt", "merges.txt")),
    *({"run.json", other} for other in ("log.jsonl", "results.json", "seeds", "teacher-outputs")),
    {"demo.json", "report.html"},
    {"results.json", "table.md"},
    {"bert_config.json", "vocab.txt"},
)
_MAIL = "mail, whose text may be encoded: write it into a .jsonl, as with Python's mailbox"
_TAKEN_OUT = {
    ".po": f"translations; their text: msgexec -i FILE 0 | {_TO_LINES}",
    ".pot": "templates of translations, in the language of a program",
    ".mo": f"translations; their text: msgunfmt FILE | msgexec 0 | {_TO_LINES}",
    ".srt": "subtitles; without times: grep -vE '^[0-9]*.?$|-->' FILE > FILE.txt",
    ".vtt": "subtitles; without times: grep -vE '^[0-9]*.?$|-->' FILE > FILE.txt",
    ".conllu": "a treebank; its text: grep '^# text = ' FILE | cut -c10- > FILE.txt",
    ".mbox": _MAIL,
    ".eml": _MAIL,
    ".json": "in a folder JSON is left out: name the file itself to read its records",
}


def remedy_for(path: Path) -> str:
    """Return what a file is and how its text can be read; "" if none appears to be in it.

    It is one phrase for all files of the same kind. Nothing is read of a pipe.
    """
    kind = kind_of(path)
    head = first_bytes(path)
    if not head:
        return ""
    if known := foreign(path, head):
        return ": ".join(known)
    if kind in _TAKEN_OUT:
        return _TAKEN_OUT[kind]
    if _MESSAGE.match(head):
        return _MAIL
    if _MAN_PAGE.match(head):
        return "manual pages; their text: man -l FILE | col -b > FILE.txt"
    pattern = shell_word(f"*{kind}" if kind else _NAMES_END.sub("*", path.name, count=1))
    if is_markup(head):
        return f"HTML or XML: --markup-files {pattern} reads it without its tags"
    if b"\0" in head:
        return ""
    return f"--text-files {pattern} reads it as text"


def is_output(names: Collection[str]) -> bool:
    """Return whether a folder with these names in it is a store, a vocabulary, a model or a run.

    What lies in them, such as a vocab.txt, a log or a model card, is made of a corpus and none.
    """
    return any(output.issubset(names) for output in _OUTPUTS)


def outputs_among(folders: Iterable[Path], root: Path) -> set[Path]:
    """Return the outputs that folders are or are in, below `root`; none inside another."""
    above = {each for path in folders for each in (path, *path.parents) if root in each.parents}
    # a folder may not be listed, or hold millions of files
    outputs = {
        each
        for each in above
        if any(all((each / name).exists() for name in output) for output in _OUTPUTS)
    }
    return {each for each in outputs if outputs.isdisjoint(each.parents)}


def first_bytes(path: Path) -> bytes:
    """Return the first bytes of a file, decompressed; none if it cannot be read."""
    if not path.is_file():
        return b""
    try:
        with TextFile(path, CorpusError).open() as stream:
            return stream.read(_HEAD_BYTES)
    except CorpusError:
        return b""
