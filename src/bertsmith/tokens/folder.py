"""The tokenizer's files in a model folder, as the hub lays them out.

    vocab.txt                 one piece a line, its id the line's number from 0
    tokenizer_config.json     casing and the like
    tokenizer.json            read only for what the first two do not say
    special_tokens_map.json   the names of the special tokens

Everything is validated here and parsed by Python: compiled parsers can panic on a hostile file.
A setting that would change ids and that we do not follow is refused by its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bertsmith.errors import DiskError, ModelFolderError, VocabularyError
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.compiled import compiled_tokenizer, read_compiled
from bertsmith.tokens.vocabulary import SPECIALS, check_vocabulary, is_placeholder

VOCABULARY_FILE = "vocab.txt"
COMPILED_FILE = "tokenizer.json"
SETTINGS_FILE = "tokenizer_config.json"
SPECIALS_FILE = "special_tokens_map.json"

_LARGEST_FILE = 64 * 2**20
_SPECIAL_NAMES = dict(
    zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIALS, strict=True)
)
_KNOWN_CLASSES = re.compile(
    r"(Bert|DistilBert|Electra|MobileBert|ConvBert)Tokenizer(Fast)?"
    r"|PreTrainedTokenizerFast|TokenizersBackend"
)
_CAPITAL = re.compile("[A-Z]")

Read = tuple[tuple[str, ...], BasicRules]


def read_folder(place: Path) -> Read:
    """The vocabulary and the rules of a model folder, or of a single vocabulary file."""
    if place.is_file() and place.suffix != ".json":
        vocabulary = _read_vocabulary(place)
        return vocabulary, BasicRules(lowercase=_looks_uncased(vocabulary))
    if not place.is_dir():
        raise ModelFolderError(
            "no such folder", where=place, remedy="name a model folder, or a vocab.txt"
        )
    settings = _read_settings(place)
    words, compiled = place / VOCABULARY_FILE, place / COMPILED_FILE
    if words.is_file():
        vocabulary = _read_vocabulary(words)
        said: dict[str, Any] = {}
        if "do_lower_case" not in settings and compiled.is_file():
            said = read_compiled(_read_json(compiled), compiled)[1]
    elif compiled.is_file():
        vocabulary, said = read_compiled(_read_json(compiled), compiled)
    else:
        raise ModelFolderError(
            f"holds neither {VOCABULARY_FILE} nor {COMPILED_FILE}",
            where=place,
            remedy="only WordPiece vocabularies can be read; was the tokenizer saved here?",
        )
    named = {"do_lower_case": "lowercase", "tokenize_chinese_chars": "handle_chinese_chars"}
    for key in ("do_lower_case", "strip_accents", "tokenize_chinese_chars"):
        if key not in settings:
            settings[key] = said.get(named.get(key, key))
    return vocabulary, _rules(settings, vocabulary, place / SETTINGS_FILE)


def _rules(settings: dict[str, Any], vocabulary: Sequence[str], where: Path) -> BasicRules:
    for key in ("do_lower_case", "strip_accents", "tokenize_chinese_chars"):
        if settings[key] is not None and not isinstance(settings[key], bool):
            raise ModelFolderError(
                f"{key} is {settings[key]!r}", where=where, remedy="it must be true or false"
            )
    lowercase = settings["do_lower_case"]
    return BasicRules(
        lowercase=_looks_uncased(vocabulary) if lowercase is None else lowercase,
        strip_accents=settings["strip_accents"],
        space_cjk=settings["tokenize_chinese_chars"] is not False,
    )


def _looks_uncased(vocabulary: Iterable[str]) -> bool:
    return not any(
        _CAPITAL.search(piece)
        for piece in vocabulary
        if piece not in SPECIALS and not is_placeholder(piece)
    )


def _read_vocabulary(path: Path) -> tuple[str, ...]:
    lines = _read_text(path, VocabularyError).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    check_vocabulary(lines, path)
    return tuple(lines)


def _read_settings(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json, once nothing in it (or beside it) asks for what we do not follow."""
    path = folder / SETTINGS_FILE
    settings = _read_json(path) if path.is_file() else {}
    beside = folder / SPECIALS_FILE
    _check_specials(settings, path)
    _check_specials(_read_json(beside) if beside.is_file() else {}, beside)
    kind = settings.get("tokenizer_class")
    if kind is not None and not (isinstance(kind, str) and _KNOWN_CLASSES.fullmatch(kind)):
        raise ModelFolderError(
            f"the tokenizer's class is {str(kind)[:50]!r}",
            where=path,
            remedy="only BERT's WordPiece tokenizers can be read",
        )
    if settings.get("do_basic_tokenize") not in (None, True) or settings.get("never_split"):
        raise ModelFolderError(
            "do_basic_tokenize or never_split is set",
            where=path,
            remedy="they change the ids and are not followed: remove them and train again",
        )
    extra = folder / "added_tokens.json"
    added = dict.fromkeys(_read_json(extra)) if extra.is_file() else {}
    table = settings.get("added_tokens_decoder") or {}
    for entry in table.values() if isinstance(table, dict) else [table]:
        added[str(entry.get("content") if isinstance(entry, dict) else entry)] = None
        if isinstance(entry, dict) and entry.get("single_word"):
            raise ModelFolderError("an added token is single_word", where=path, remedy=_NOT_ADDED)
    if foreign := sorted(set(added) - set(SPECIALS)):
        raise ModelFolderError(
            f"the token {foreign[0][:50]!r} was added to the vocabulary",
            where=extra if extra.is_file() else path,
            remedy=_NOT_ADDED,
        )
    return settings


_NOT_ADDED = "added tokens are not followed: use a folder whose vocab.txt holds every token"


def _check_specials(said: dict[str, Any], where: Path) -> None:
    for key, expected in _SPECIAL_NAMES.items():
        value = said.get(key)
        name = value.get("content") if isinstance(value, dict) else value
        if name not in (None, expected):
            raise ModelFolderError(
                f"{key} is {str(name)[:50]!r}", where=where, remedy=f"it must be {expected!r}"
            )
    if said.get("additional_special_tokens"):
        raise ModelFolderError("additional_special_tokens are set", where=where, remedy=_NOT_ADDED)


def _read_text(path: Path, error_kind: type[VocabularyError | ModelFolderError]) -> str:
    try:
        size = path.stat().st_size
        if size > _LARGEST_FILE:
            raise error_kind(
                f"is {size // 2**20} MiB long",
                where=path,
                remedy=f"a tokenizer's file has at most {_LARGEST_FILE // 2**20} MiB",
            )
        raw = path.read_bytes()
    except OSError as error:
        raise error_kind(f"cannot be read: {error.strerror}", where=path) from error
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise error_kind(
            "is not UTF-8",
            where=path,
            line=raw.count(b"\n", 0, error.start) + 1,
            remedy="save it as UTF-8",
        ) from error


def _read_json(path: Path) -> dict[str, Any]:
    text = _read_text(path, ModelFolderError)
    remedy = "the file is damaged: save or download the folder again"
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ModelFolderError(
            f"not JSON: {error.msg}", where=path, line=error.lineno, remedy=remedy
        ) from error
    except (ValueError, RecursionError) as error:
        raise ModelFolderError(f"not JSON: {error}", where=path, remedy=remedy) from error
    if not isinstance(data, dict):
        raise ModelFolderError("holds no JSON object", where=path, remedy=remedy)
    return data


def write_folder(
    folder: Path, vocabulary: Sequence[str], rules: BasicRules, *, longest: int | None
) -> None:
    """Write the four files; each is complete or absent. Raises `DiskError`."""
    settings: dict[str, Any] = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": rules.lowercase,
        "strip_accents": rules.strip_accents,
        "tokenize_chinese_chars": rules.space_cjk,
        **_SPECIAL_NAMES,
    }
    if longest is not None:
        settings["model_max_length"] = longest
    contents = {
        VOCABULARY_FILE: "".join(f"{piece}\n" for piece in vocabulary),
        COMPILED_FILE: _json(compiled_tokenizer(vocabulary, rules)),
        SETTINGS_FILE: _json(settings),
        SPECIALS_FILE: _json(dict(_SPECIAL_NAMES)),
    }
    parts = {folder / f".{name}.part": folder / name for name in contents}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for part, text in zip(parts, contents.values(), strict=True):
            part.write_text(text, encoding="utf-8", newline="\n")
        for part, path in parts.items():
            part.replace(path)
    except OSError as error:
        for part in parts:
            with suppress(OSError):
                part.unlink()
        raise DiskError(
            f"cannot be written: {error.strerror}", where=folder, remedy="free some space"
        ) from error


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
