"""tokenizer.json, the file of the compiled tokenizers: read with suspicion, written in full."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertsmith.errors import ModelFolderError
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.vocabulary import MOST_PIECES, SPECIALS, check_vocabulary
from bertsmith.tokens.wordpiece import CONTINUES, LONGEST_WORD


def read_compiled(data: dict[str, Any], where: Path) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The vocabulary of a parsed tokenizer.json, and its normaliser's settings.

    Raises `ModelFolderError` unless it describes BERT's own rules and WordPiece, and
    `VocabularyError` for a vocabulary that is none.
    """
    model = _part(data, "model", "WordPiece", where)
    normaliser = _part(data, "normalizer", "BertNormalizer", where)
    _part(data, "pre_tokenizer", "BertPreTokenizer", where)
    expected = {
        "unk_token": "[UNK]",
        "continuing_subword_prefix": CONTINUES,
        "max_input_chars_per_word": LONGEST_WORD,
    }
    for key, value in expected.items():
        if model.get(key, value) != value:
            raise _refused(f"{key} is {str(model[key])[:50]!r}", where, f"it must be {value!r}")
    if normaliser.get("clean_text", True) is not True:
        raise _refused("clean_text is off", where, "only BERT's own rules can be followed")
    vocabulary = _dense(model.get("vocab"), where)
    check_vocabulary(vocabulary, where)
    added = data.get("added_tokens") or []
    for token in added if isinstance(added, list) else [added]:
        content = token.get("content") if isinstance(token, dict) else token
        if content not in SPECIALS:
            raise _refused(
                f"the token {str(content)[:50]!r} was added to the vocabulary",
                where,
                "added tokens are not followed: use a folder whose vocabulary holds every token",
            )
    return vocabulary, normaliser


def _part(data: dict[str, Any], key: str, kind: str, where: Path) -> dict[str, Any]:
    part = data.get(key)
    if not isinstance(part, dict) or part.get("type") != kind:
        raise _refused(f"its {key} is no {kind}", where, "only BERT's WordPiece can be read")
    return part


def _dense(table: object, where: Path) -> tuple[str, ...]:
    """The pieces by id, when the ids are exactly 0 to n-1."""
    if not isinstance(table, dict) or len(table) > MOST_PIECES:
        raise _refused("its vocabulary is no table of pieces", where, "save the tokenizer again")
    pieces: list[str | None] = [None] * len(table)
    for piece, number in table.items():
        if type(number) is not int or not 0 <= number < len(pieces) or pieces[number] is not None:
            raise _refused(
                f"the piece {piece[:50]!r} has the id {str(number)[:20]}",
                where,
                f"ids must be the numbers 0 to {len(pieces) - 1}, each once",
            )
        pieces[number] = piece
    return tuple(piece for piece in pieces if piece is not None)


def _refused(what: str, where: Path, remedy: str) -> ModelFolderError:
    return ModelFolderError(what, where=where, remedy=remedy)


def compiled_tokenizer(vocabulary: Sequence[str], rules: BasicRules) -> dict[str, Any]:
    """The contents of tokenizer.json for a vocabulary; adds [CLS] and [SEP] around texts."""
    ids = {piece: number for number, piece in enumerate(vocabulary)}

    def special(piece: str) -> dict[str, Any]:
        return {"SpecialToken": {"id": piece, "type_id": 0}}

    first = {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 1}}
    last = {"SpecialToken": {"id": "[SEP]", "type_id": 1}}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = sorted((ids[piece], piece) for piece in SPECIALS)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": piece, **flags, "special": True} for number, piece in added
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": rules.space_cjk,
            "strip_accents": rules.strip_accents,
            "lowercase": rules.lowercase,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [special("[CLS]"), first, special("[SEP]")],
            "pair": [special("[CLS]"), first, special("[SEP]"), second, last],
            "special_tokens": {
                piece: {"id": piece, "ids": [ids[piece]], "tokens": [piece]}
                for piece in ("[CLS]", "[SEP]")
            },
        },
        "decoder": {"type": "WordPiece", "prefix": CONTINUES, "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": CONTINUES,
            "max_input_chars_per_word": LONGEST_WORD,
            "vocab": ids,
        },
    }
