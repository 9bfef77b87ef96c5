"""tokenizer.json of a WordPiece vocabulary: read with suspicion, written in full."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.compiled import (
    added_in,
    added_tokens,
    check_settings,
    check_template,
    dense,
    part,
    surrounded,
)
from bertsmith.tokens.settings import check_added
from bertsmith.tokens.vocabulary import SPECIALS, check_vocabulary
from bertsmith.tokens.wordpiece import CONTINUES, LONGEST_WORD

_MODEL = {
    "unk_token": "[UNK]",
    "continuing_subword_prefix": CONTINUES,
    "max_input_chars_per_word": LONGEST_WORD,
}


def read_compiled(data: dict[str, Any], where: Path) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The vocabulary of a parsed tokenizer.json, and its normaliser's settings.

    Raises `ModelFolderError` unless it describes BERT's own rules and WordPiece, and
    `VocabularyError` for a vocabulary that is none.
    """
    model = part(data, "model", "WordPiece", where)
    normaliser = part(data, "normalizer", "BertNormalizer", where)
    part(data, "pre_tokenizer", "BertPreTokenizer", where)
    check_settings(model, _MODEL, where)
    check_settings(normaliser, {"clean_text": True}, where)
    vocabulary = dense(model.get("vocab"), where)
    check_vocabulary(vocabulary, where, lines=False)
    check_added(added_in(data), SPECIALS, where, blanks=False, normalizes=True)
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    ends = (SPECIALS[2], SPECIALS[3])
    check_template(data.get("post_processor"), ends, ids, where, separators=1)
    return vocabulary, normaliser


def compiled_tokenizer(vocabulary: Sequence[str], rules: BasicRules) -> dict[str, Any]:
    """The contents of tokenizer.json for a vocabulary; adds [CLS] and [SEP] around texts."""
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added_tokens(ids, SPECIALS, {}),
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": rules.space_cjk,
            "strip_accents": rules.strip_accents,
            "lowercase": rules.lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": surrounded("[CLS]", "[SEP]", ids, segments=True),
        "decoder": {"type": "WordPiece", "prefix": CONTINUES, "cleanup": True},
        "model": {"type": "WordPiece", **_MODEL, "vocab": ids},
    }
