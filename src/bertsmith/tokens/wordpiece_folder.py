"""The files of a WordPiece vocabulary in a model folder.

vocab.txt                 one piece a line, its id the line's number from 0
tokenizer_config.json     casing and the like
tokenizer.json            read only for what the first two do not say
special_tokens_map.json   the names of the special tokens
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bertsmith.errors import ModelFolderError, VocabularyError
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.files import json_bytes, read_json, read_lines
from bertsmith.tokens.settings import NAMES, SETTINGS_FILE, SPECIALS_FILE, Settings
from bertsmith.tokens.vocabulary import SPECIALS, check_vocabulary, is_placeholder
from bertsmith.tokens.wordpiece_compiled import compiled_tokenizer, read_compiled

VOCABULARY_FILE = "vocab.txt"
COMPILED_FILE = "tokenizer.json"

_CAPITAL = re.compile("[A-Z]")
_CASING = {
    "do_lower_case": "lowercase",
    "strip_accents": "strip_accents",
    "tokenize_chinese_chars": "handle_chinese_chars",
}


def read_file(path: Path) -> tuple[tuple[str, ...], BasicRules]:
    """A vocabulary in a file of one piece a line, its casing guessed from capitals in it."""
    vocabulary = _read_vocabulary(path)
    return vocabulary, BasicRules(lowercase=_looks_uncased(vocabulary))


def read_folder(place: Path) -> tuple[tuple[str, ...], BasicRules]:
    """The vocabulary and the rules of a folder. Raises `ModelFolderError`, `VocabularyError`."""
    settings = Settings(place, SPECIALS, blanks=False)
    if settings.said.get("do_basic_tokenize") not in (None, True) or settings.said.get(
        "never_split"
    ):
        raise settings.refuse(
            "do_basic_tokenize or never_split is set",
            "they change the ids and are not followed: remove them and train again",
        )
    words, compiled = place / VOCABULARY_FILE, place / COMPILED_FILE
    said: dict[str, Any] = {}
    if words.is_file():
        vocabulary = _read_vocabulary(words)
        if "do_lower_case" not in settings.said and compiled.is_file():
            said = read_compiled(read_json(compiled), compiled)[1]
    elif compiled.is_file():
        vocabulary, said = read_compiled(read_json(compiled), compiled)
    else:
        raise ModelFolderError(
            f"holds neither {VOCABULARY_FILE} nor {COMPILED_FILE}",
            where=place,
            remedy="name a folder with a vocabulary; was the tokenizer saved here?",
        )
    switches = {key: settings.switch(key) for key in _CASING}
    for key, name in _CASING.items():
        if key not in settings.said:
            switches[key] = _switch(said, name, compiled)
    lowercase = switches["do_lower_case"]
    return vocabulary, BasicRules(
        lowercase=_looks_uncased(vocabulary) if lowercase is None else lowercase,
        strip_accents=switches["strip_accents"],
        space_cjk=switches["tokenize_chinese_chars"] is not False,
    )


def _switch(said: dict[str, Any], name: str, where: Path) -> bool | None:
    value = said.get(name)
    if value is not None and not isinstance(value, bool):
        raise ModelFolderError(
            f"{name} is {str(value)[:50]!r}", where=where, remedy="it must be true or false"
        )
    return value


def _looks_uncased(vocabulary: Iterable[str]) -> bool:
    return not any(
        _CAPITAL.search(piece)
        for piece in vocabulary
        if piece not in SPECIALS and not is_placeholder(piece)
    )


def _read_vocabulary(path: Path) -> tuple[str, ...]:
    lines = read_lines(path, VocabularyError)
    if any("\r" in line for line in lines):
        # as old machines ended lines
        lines = [part for line in lines for part in line.split("\r")]
    if lines[-1] == "":
        lines.pop()
    check_vocabulary(lines, path)
    return tuple(lines)


def files_of(
    vocabulary: Sequence[str], rules: BasicRules, *, longest: int | None
) -> dict[str, bytes]:
    """The contents of the four files."""
    names = dict(zip(NAMES, SPECIALS, strict=True))
    settings: dict[str, Any] = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": rules.lowercase,
        "strip_accents": rules.strip_accents,
        "tokenize_chinese_chars": rules.space_cjk,
        **names,
    }
    if longest is not None:
        settings["model_max_length"] = longest
    return {
        VOCABULARY_FILE: "".join(f"{piece}\n" for piece in vocabulary).encode(),
        COMPILED_FILE: json_bytes(compiled_tokenizer(vocabulary, rules)),
        SETTINGS_FILE: json_bytes(settings),
        SPECIALS_FILE: json_bytes(dict(names)),
    }
