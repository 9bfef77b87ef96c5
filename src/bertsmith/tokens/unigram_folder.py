"""The files of a unigram vocabulary in a model folder.

spiece.model              the pieces with their scores, and rules of normalisation
tokenizer_config.json     casing, accents and the like
tokenizer.json            read where the folder follows the fast tokenizer; must agree otherwise
special_tokens_map.json   the names of the special tokens
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertsmith.errors import ModelFolderError
from bertsmith.tokens.compiled import check_same, refused
from bertsmith.tokens.files import json_bytes, read_json
from bertsmith.tokens.settings import NAMES, SETTINGS_FILE, SPECIALS_FILE, Settings
from bertsmith.tokens.spiece import read_spiece, spiece_model
from bertsmith.tokens.unigram_compiled import (
    NUMBER_COMMA_PENALTY,
    read_compiled_unigram,
    unigram_tokenizer,
)
from bertsmith.tokens.unigram_rules import UnigramRules
from bertsmith.tokens.vocabulary import UNIGRAM_SPECIALS, check_vocabulary

MODEL_FILE = "spiece.model"
COMPILED_FILE = "tokenizer.json"

# scores are written with 32 bits in one file and as decimal numbers in the other
_ROUNDING = 1e-5

_LOWERCASE, _ACCENTS, _SPACES = "do_lower_case", "keep_accents", "remove_space"


def read_file(path: Path) -> tuple[tuple[str, ...], UnigramRules]:
    """A SentencePiece model by itself, with the rules AlbertTokenizer has by itself."""
    vocabulary, rules = read_spiece(path)
    check_vocabulary(vocabulary, path, specials=UNIGRAM_SPECIALS, lines=False)
    return vocabulary, rules


def read_folder(place: Path) -> tuple[tuple[str, ...], UnigramRules]:
    """The vocabulary and the rules of a folder. Raises `ModelFolderError`, `VocabularyError`."""
    settings = Settings(place, UNIGRAM_SPECIALS, blanks=True, normalizes=True)
    if settings.said.get("sp_model_kwargs"):
        raise settings.refuse("sp_model_kwargs are set", "they change the ids: remove them")
    model, compiled = place / MODEL_FILE, place / COMPILED_FILE
    if not model.is_file() and not compiled.is_file():
        raise ModelFolderError(
            f"holds neither {MODEL_FILE} nor {COMPILED_FILE}",
            where=place,
            remedy="was the tokenizer saved here?",
        )
    fast = compiled.is_file() and (settings.followed == "fast" or not model.is_file())
    if fast:
        vocabulary, rules = read_compiled_unigram(read_json(compiled), compiled)
        _check_agreement(settings, rules)
    else:
        vocabulary, rules = read_file(model)
        rules = replace(
            rules,
            lowercase=settings.switch(_LOWERCASE) is not False,
            keep_accents=settings.switch(_ACCENTS) is True,
            remove_space=settings.switch(_SPACES) is not False,
            number_commas=settings.followed == "slow",
        )
        if compiled.is_file():
            pieces, others = read_compiled_unigram(read_json(compiled), compiled)
            check_same(vocabulary, pieces, MODEL_FILE, compiled)
            _check_scores(vocabulary, rules, others, compiled)
            _check_agreement(settings, others)
    takes_blank = settings.takes_blank("mask_token", UNIGRAM_SPECIALS[4])
    if takes_blank is not None:
        rules = replace(rules, mask_takes_blank=takes_blank)
    return vocabulary, rules


def _check_agreement(settings: Settings, compiled: UnigramRules) -> None:
    """Raise `ModelFolderError` where tokenizer_config.json says otherwise than tokenizer.json.

    Of a generic class the latter counts; of AlbertTokenizer the first does with some versions of
    `transformers`, with defaults for what it does not say, and the latter with others.
    """
    if settings.generic:
        return
    for key, default, found in (
        (_LOWERCASE, True, compiled.lowercase),
        (_ACCENTS, False, compiled.keep_accents),
        ("add_prefix_space", True, compiled.prefix_space),
    ):
        stated = settings.switch(key)
        if (default if stated is None else stated) != found:
            raise settings.refuse(
                f"{key} is {'not said' if stated is None else stated}",
                f"{COMPILED_FILE} has {found}: both must be the same",
            )


def _check_scores(
    vocabulary: Sequence[str], rules: UnigramRules, compiled: UnigramRules, where: Path
) -> None:
    """Raise `ModelFolderError` unless tokenizer.json has the scores and exchanges of the model."""
    if rules.charsmap != compiled.charsmap:
        raise refused(f"exchanges other characters than {MODEL_FILE}", where, "save both again")
    for piece, one, other in zip(vocabulary, rules.scores, compiled.scores, strict=True):
        # pieces with a comma behind a digit are made unlikely there
        apart = min(abs(one - other), abs(one - other - NUMBER_COMMA_PENALTY))
        if apart > _ROUNDING * max(1, abs(one), abs(other)):
            raise refused(
                f"the score of {piece[:50]!r} is not that of {MODEL_FILE}",
                where,
                f"remove the one that the model was not trained with, this file or {MODEL_FILE}",
            )


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
        **({} if rules.prefix_space else {"add_prefix_space": False}),
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
