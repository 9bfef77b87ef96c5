"""tokenizer.json of a byte-level vocabulary: read with suspicion, written in full."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.tokens.byte_rules import ByteRules
from bertsmith.tokens.compiled import (
    added_in,
    check_settings,
    check_template,
    dense,
    part,
    refused,
)
from bertsmith.tokens.settings import check_added
from bertsmith.tokens.vocabulary import BYTE_SPECIALS, MOST_PIECES, check_vocabulary

MODEL: dict[str, Any] = {
    "dropout": None,
    "unk_token": (None, "<unk>"),
    "continuing_subword_prefix": ("", None),
    "end_of_word_suffix": ("", None),
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}

Merges = tuple[tuple[str, str], ...]


def read_compiled_bytes(
    data: Mapping[str, Any], where: Path
) -> tuple[tuple[str, ...], Merges, dict[str, Any]]:
    """The vocabulary, the merges and the settings of a parsed tokenizer.json.

    Raises `ModelFolderError` unless it describes RoBERTa's own rules. Vocabulary and merges are
    yet to be checked against each other. The settings are whether a blank goes before a text
    ("add_prefix_space") and the table of added tokens ("added").
    """
    model = part(data, "model", "BPE", where)
    if data.get("normalizer") is not None:
        raise refused("it has a normalizer", where, "RoBERTa's rules have none, ModernBERT's NFC")
    words = part(data, "pre_tokenizer", "ByteLevel", where)
    check_settings(model, MODEL, where)
    check_settings(words, {"use_regex": True, "add_prefix_space": (True, False)}, where)
    added = added_in(data)
    check_added(added, BYTE_SPECIALS, where, blanks=True, normalizes=False)
    said = {"add_prefix_space": words.get("add_prefix_space", True), "added": added}
    vocabulary = dense(model.get("vocab"), where)
    check_vocabulary(vocabulary, where, specials=BYTE_SPECIALS, lines=False)
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    ends = (BYTE_SPECIALS[2], BYTE_SPECIALS[3])
    check_template(data.get("post_processor"), ends, ids, where, separators=2)
    return vocabulary, merges_in(model.get("merges"), where), said


def merges_in(table: object, where: Path) -> Merges:
    """The merges of a model: pairs, or texts of two pieces with a blank between them.

    Raises `ModelFolderError`.
    """
    if not isinstance(table, list) or len(table) > MOST_PIECES:
        raise refused("its merges are no list of pairs", where, "save the tokenizer again")
    pairs: list[tuple[str, str]] = []
    for entry in table:
        pair = entry.split(" ") if isinstance(entry, str) else entry
        if not (
            isinstance(pair, list) and len(pair) == 2 and all(isinstance(p, str) for p in pair)
        ):
            raise refused(
                f"the merge {str(entry)[:50]!r} is no pair", where, "save the tokenizer again"
            )
        pairs.append((pair[0], pair[1]))
    return tuple(pairs)


def byte_tokenizer(
    ids: Mapping[str, int], rules: ByteRules, added: list[dict[str, Any]]
) -> dict[str, Any]:
    """The contents of tokenizer.json for a vocabulary; adds <s> and </s> around texts."""
    level = {
        "type": "ByteLevel",
        "add_prefix_space": rules.prefix_blank,
        "trim_offsets": True,
        "use_regex": True,
    }
    cls, sep = BYTE_SPECIALS[2:4]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": {
            "type": "RobertaProcessing",
            "sep": [sep, ids[sep]],
            "cls": [cls, ids[cls]],
            "trim_offsets": True,
            "add_prefix_space": rules.prefix_blank,
        },
        "decoder": level | {"add_prefix_space": True},
        "model": {
            "type": "BPE",
            **{
                key: value[0] if isinstance(value, tuple) else value for key, value in MODEL.items()
            },
            "vocab": dict(ids),
            "merges": [list(merge) for merge in rules.merges],
        },
    }
