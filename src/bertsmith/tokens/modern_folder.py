"""The files of ModernBERT's vocabulary in a model folder.

tokenizer.json            the pieces, how they are joined, and the added tokens
tokenizer_config.json     what else is to be known of the tokenizer
special_tokens_map.json   the names of the special tokens
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.errors import ModelFolderError
from bertsmith.tokens.byte_compiled import MODEL, merges_in
from bertsmith.tokens.byte_folder import VOCABULARY_FILE, check_merges
from bertsmith.tokens.byte_pairs import byte_letters
from bertsmith.tokens.compiled import (
    COMPILED_FILE,
    check_settings,
    dense,
    part,
    refused,
    surrounded,
)
from bertsmith.tokens.files import json_bytes, read_json
from bertsmith.tokens.modern_added import added_entries, read_added
from bertsmith.tokens.modern_rules import ModernRules
from bertsmith.tokens.settings import NAMES, SETTINGS_FILE, SPECIALS_FILE, Settings
from bertsmith.tokens.vocabulary import SPECIALS, check_vocabulary

_MODEL: dict[str, Any] = MODEL | {"unk_token": None}
_LEVEL: dict[str, Any] = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_CLS, _SEP = SPECIALS[2:4]


def is_modern(place: Path) -> bool:
    """Whether a folder's byte-level vocabulary is one of composed text, as ModernBERT's."""
    compiled = place / COMPILED_FILE
    if (place / VOCABULARY_FILE).is_file() or not compiled.is_file():
        return False
    normalizer = read_json(compiled).get("normalizer")
    return isinstance(normalizer, dict) and normalizer.get("type") == "NFC"


def read_folder(place: Path) -> tuple[tuple[str, ...], ModernRules]:
    """The vocabulary and the rules of a folder. Raises `ModelFolderError`, `VocabularyError`."""
    where = place / COMPILED_FILE
    data = read_json(where)
    model = part(data, "model", "BPE", where)
    check_settings(model, _MODEL, where)
    words = part(data, "pre_tokenizer", "ByteLevel", where)
    # what is not said of it is true
    check_settings({"add_prefix_space": True} | words, _LEVEL, where)
    part(data, "decoder", "ByteLevel", where)
    learned = dense(model.get("vocab"), where)
    known = set(learned)
    if lacking := [letter for letter in byte_letters() if letter not in known]:
        raise refused(
            f"its vocabulary lacks the byte {lacking[0]!r}", where, "all 256 must be pieces"
        )
    added, entries = read_added(data.get("added_tokens"), learned, where)
    vocabulary = (*learned, *(each.piece for each in added if each.piece not in known))
    check_vocabulary(vocabulary, where, specials=SPECIALS, lines=False)
    merges = merges_in(model.get("merges"), where)
    check_merges(merges, learned, where)
    _check_template(data.get("post_processor"), vocabulary, where)
    mask = next(each for each in entries if each["content"] == SPECIALS[4])
    _check_settings(place, entries, bool(mask["lstrip"]))
    return vocabulary, ModernRules(
        merges=merges, learned=len(learned), added=added, mask_takes_blank=mask["lstrip"]
    )


def _check_template(found: object, vocabulary: Sequence[str], where: Path) -> None:
    """Raise `ModelFolderError` unless texts stand as `[CLS] a [SEP] b [SEP]`, of any segments."""
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    if found not in [surrounded(_CLS, _SEP, ids, segments=each) for each in (True, False)]:
        raise refused(
            "its post_processor is not ModernBERT's", where, "it must put [CLS] a [SEP] b [SEP]"
        )


def _check_settings(place: Path, entries: Sequence[Mapping[str, Any]], takes_blank: bool) -> None:
    """Raise `ModelFolderError` where the files beside tokenizer.json do not agree with it."""
    settings = Settings(
        place,
        SPECIALS,
        blanks=True,
        normalizes=False,
        more=[str(each["content"]) for each in entries],
    )
    if settings.switch("add_prefix_space"):
        raise settings.refuse("add_prefix_space is set", "ModernBERT's own rules have none")
    if settings.takes_blank("mask_token", SPECIALS[4]) not in (None, takes_blank):
        raise settings.refuse(
            f"the mask's lstrip is not {takes_blank}", f"it is so in {COMPILED_FILE}"
        )
    table = settings.said.get("added_tokens_decoder")
    expected = _by_id(entries)
    if table and table != expected:  # what is no table was refused above
        keys = sorted(set(table) | set(expected))
        other = next(key for key in keys if table.get(key) != expected.get(key))
        raise ModelFolderError(
            f"the added token {other[:20]} is not that of {COMPILED_FILE}",
            where=settings.where,
            remedy="both must be of one tokenizer: save or download the folder again",
        )


def _by_id(entries: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {
        str(each["id"]): {key: value for key, value in each.items() if key != "id"}
        for each in entries
    }


def files_of(
    vocabulary: Sequence[str], rules: ModernRules, *, longest: int | None
) -> dict[str, bytes]:
    """The contents of the three files."""
    names = dict(zip(NAMES, SPECIALS, strict=True))
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    entries = added_entries(rules, ids)
    level = {"type": "ByteLevel", **_LEVEL}
    compiled = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": entries,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": level,
        "post_processor": surrounded(_CLS, _SEP, ids, segments=True),
        "decoder": level,
        "model": {
            "type": "BPE",
            **{
                key: value[0] if isinstance(value, tuple) else value
                for key, value in _MODEL.items()
            },
            "vocab": {piece: ids[piece] for piece in vocabulary[: rules.learned]},
            "merges": [list(merge) for merge in rules.merges],
        },
    }
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "added_tokens_decoder": _by_id(entries),
        "clean_up_tokenization_spaces": True,
        "model_input_names": ["input_ids", "attention_mask"],
        **names,
    }
    if longest is not None:
        settings["model_max_length"] = longest
    return {
        COMPILED_FILE: json_bytes(compiled),
        SETTINGS_FILE: json_bytes(settings),
        SPECIALS_FILE: json_bytes(dict(names)),
    }
