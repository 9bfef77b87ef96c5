"""The files of a unigram vocabulary in a model folder.

spiece.model              the pieces with their scores, and rules of normalisation
tokenizer_config.json     casing, accents and the like
tokenizer.json            read where the first is not there
special_tokens_map.json   the names of the special tokens
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertsmith.errors import ModelFolderError
from bertsmith.tokens.files import json_bytes, read_json
from bertsmith.tokens.settings import NAMES, SETTINGS_FILE, SPECIALS_FILE, Settings
from bertsmith.tokens.spiece import read_spiece, spiece_model
from bertsmith.tokens.unigram_compiled import read_compiled_unigram, unigram_tokenizer
from bertsmith.tokens.unigram_rules import UnigramRules
from bertsmith.tokens.vocabulary import UNIGRAM_SPECIALS, check_vocabulary

MODEL_FILE = "spiece.model"
COMPILED_FILE = "tokenizer.json"

_LOWERCASE, _ACCENTS, _SPACES = "do_lower_case", "keep_accents", "remove_space"


def read_file(path: Path) -> tuple[tuple[str, ...], UnigramRules]:
    """A SentencePiece model by itself, with the rules AlbertTokenizer has by itself."""
    vocabulary, rules = read_spiece(path)
    check_vocabulary(vocabulary, path, specials=UNIGRAM_SPECIALS, lines=False)
    return vocabulary, rules


def read_folder(place: Path) -> tuple[tuple[str, ...], UnigramRules]:
    """The vocabulary and the rules of a folder. Raises `ModelFolderError`, `VocabularyError`."""
    settings = Settings(place, UNIGRAM_SPECIALS, blanks=True)
    if settings.said.get("sp_model_kwargs"):
        raise settings.refuse("sp_model_kwargs are set", "they change the ids: remove them")
    model, compiled = place / MODEL_FILE, place / COMPILED_FILE
    if model.is_file():
        path = model
        vocabulary, rules = read_file(model)
        rules = replace(
            rules,
            lowercase=settings.switch(_LOWERCASE) is not False,
            keep_accents=settings.switch(_ACCENTS) is True,
            remove_space=settings.switch(_SPACES) is not False,
        )
    elif compiled.is_file():
        path = compiled
        vocabulary, rules = read_compiled_unigram(read_json(compiled), compiled)
    else:
        raise ModelFolderError(
            f"holds neither {MODEL_FILE} nor {COMPILED_FILE}",
            where=place,
            remedy="was the tokenizer saved here?",
        )
    check_vocabulary(vocabulary, path, specials=UNIGRAM_SPECIALS, lines=False)
    takes_blank = settings.takes_blank("mask_token", UNIGRAM_SPECIALS[4])
    if takes_blank is not None:
        rules = replace(rules, mask_takes_blank=takes_blank)
    return vocabulary, rules


def files_of(
    vocabulary: Sequence[str], rules: UnigramRules, *, longest: int | None
) -> dict[str, bytes]:
    """The contents of the files; of a tokenizer.json without spiece.model there is none again."""
    names = dict(zip(NAMES, UNIGRAM_SPECIALS, strict=True))
    names |= {"bos_token": names["cls_token"], "eos_token": names["sep_token"]}
    compiled = unigram_tokenizer(vocabulary, rules)
    settings: dict[str, Any] = {
        "tokenizer_class": "AlbertTokenizer",
        _LOWERCASE: rules.lowercase,
        _ACCENTS: rules.keep_accents,
        _SPACES: rules.remove_space,
        "added_tokens_decoder": {
            str(each["id"]): {key: value for key, value in each.items() if key != "id"}
            for each in compiled["added_tokens"]
        },
        **names,
    }
    if longest is not None:
        settings["model_max_length"] = longest
    contents = {
        COMPILED_FILE: json_bytes(compiled),
        SETTINGS_FILE: json_bytes(settings),
        SPECIALS_FILE: json_bytes(dict(names)),
    }
    return ({MODEL_FILE: spiece_model(vocabulary, rules)} if rules.number_commas else {}) | contents
