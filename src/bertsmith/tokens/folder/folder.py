"""Reading and writing of the tokenizer files in a model folder, for all kinds of vocabularies.

Everything is validated here and parsed by Python: compiled parsers can panic on a hostile file.
A setting that would change ids and is not supported is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bertsmith.core.errors import ModelFolderError
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.bpe.modern import ModernRules
from bertsmith.tokens.bpe.pairs import ByteRules
from bertsmith.tokens.folder import bpe as byte_folder
from bertsmith.tokens.folder import modern
from bertsmith.tokens.folder import unigram as unigram_folder
from bertsmith.tokens.folder import wordpiece as wordpiece_folder
from bertsmith.tokens.folder.files import GENERIC_CLASS, SETTINGS_FILE, read_json, write_files
from bertsmith.tokens.kinds import Rules
from bertsmith.tokens.unigram.rules import UnigramRules
from bertsmith.tokens.vocabulary import KindName

_CLASSES: dict[KindName, str] = {
    "wordpiece": "Bert|DistilBert|Electra|MobileBert|ConvBert",
    "byte-bpe": "Roberta",
    "unigram": "Albert",
}
_COMPILED_KINDS: dict[str, KindName] = {
    "BPE": "byte-bpe",
    "WordPiece": "wordpiece",
    "Unigram": "unigram",
}

Read = tuple[tuple[str, ...], Rules]


def read_folder(place: Path) -> Read:
    """Return the vocabulary and the rules of a model folder, or of a single vocabulary file."""
    if place.is_file() and place.suffix == ".model":
        return unigram_folder.read_file(place)
    if place.is_file() and place.suffix != ".json":
        return wordpiece_folder.read_file(place)
    if not place.is_dir():
        raise ModelFolderError(
            "no such folder", where=place, remedy="name a model folder, or a vocab.txt"
        )
    named = _kind_by_class(place)
    kind = named or _kind_by_files(place)
    if kind == "byte-bpe" and named is None and modern.is_modern(place):
        return modern.read_folder(place)
    if kind == "byte-bpe":
        return byte_folder.read_folder(place)
    if kind == "unigram":
        return unigram_folder.read_folder(place)
    return wordpiece_folder.read_folder(place)


def write_folder(
    folder: Path, vocabulary: Sequence[str], rules: Rules, *, longest: int | None
) -> None:
    """Write the files of the rules' kind; each is complete or absent. Raises `DiskError`."""
    match rules:
        case BasicRules():
            contents = wordpiece_folder.files_of(vocabulary, rules, longest=longest)
        case ByteRules():
            contents = byte_folder.files_of(vocabulary, rules, longest=longest)
        case ModernRules():
            contents = modern.files_of(vocabulary, rules, longest=longest)
        case UnigramRules():
            contents = unigram_folder.files_of(vocabulary, rules, longest=longest)
    write_files(folder, contents)


def _kind_by_class(folder: Path) -> KindName | None:
    """Return the kind of tokenizer_config.json's class, None if the class does not determine it."""
    path = folder / SETTINGS_FILE
    name = read_json(path).get("tokenizer_class") if path.is_file() else None
    if name is None or (isinstance(name, str) and GENERIC_CLASS.fullmatch(name)):
        return None
    for kind, classes in _CLASSES.items():
        if isinstance(name, str) and re.fullmatch(f"(?:{classes})Tokenizer(?:Fast)?", name):
            return kind
    raise ModelFolderError(
        f"the tokenizer's class is {str(name)[:50]!r}",
        where=path,
        remedy="tokenizers of BERT, DistilBERT, RoBERTa, ModernBERT and ALBERT can be read",
    )


def _kind_by_files(folder: Path) -> KindName:
    if (folder / wordpiece_folder.VOCABULARY_FILE).is_file():
        return "wordpiece"
    if (folder / byte_folder.VOCABULARY_FILE).is_file():
        return "byte-bpe"
    if (folder / unigram_folder.MODEL_FILE).is_file():
        return "unigram"
    compiled = folder / wordpiece_folder.COMPILED_FILE
    model = read_json(compiled).get("model") if compiled.is_file() else None
    if not isinstance(model, dict):
        return "wordpiece"
    # old files do not state the type
    usual = "BPE" if "merges" in model else "Unigram" if "unk_id" in model else "WordPiece"
    return _COMPILED_KINDS.get(str(model.get("type", usual)), "wordpiece")
