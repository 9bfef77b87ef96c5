"""The added tokens of ModernBERT's tokenizer.json: read with suspicion, and written."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.tokens.compiled import refused
from bertsmith.tokens.modern_rules import AddedPiece, ModernRules
from bertsmith.tokens.vocabulary import SPECIALS

_MOST_ADDED = 10_000
_MASK = SPECIALS[4]
_NEVER = ("single_word", "rstrip")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def read_added(
    table: object, learned: Sequence[str], where: Path
) -> tuple[tuple[AddedPiece, ...], list[dict[str, Any]]]:
    """The added tokens, in the order of the file, and their checked entries.

    Those that are no learned pieces must have the numbers behind them in the order of the file: the
    compiled tokenizers number them so whatever the file says. Raises `ModelFolderError`.
    """
    if not isinstance(table, list) or len(table) > _MOST_ADDED:
        raise refused("its added_tokens are no short list", where, "save the tokenizer again")
    ids = {piece: number for number, piece in enumerate(learned)}
    seen: set[str] = set()
    entries: list[dict[str, Any]] = []
    for entry in table:
        entries.append(_checked(entry, where))
        piece, number = entries[-1]["content"], entries[-1]["id"]
        expected = ids.setdefault(piece, len(ids))
        if piece in seen or number != expected:
            raise refused(
                f"the added token {piece[:50]!r} has the id {str(number)[:20]}, or is there twice",
                where,
                f"it must have {expected}: the ids go on behind the vocabulary's in order",
            )
        seen.add(piece)
    if missing := [piece for piece in SPECIALS if piece not in seen]:
        raise refused(
            f"{missing[0]} is none of its added_tokens", where, "all special tokens must be"
        )
    entries.sort(key=lambda each: int(each["id"]))
    return tuple(
        AddedPiece(piece=each["content"], special=each["special"], composed=each["normalized"])
        for each in entries
    ), entries


def _checked(entry: object, where: Path) -> dict[str, Any]:
    """An entry of the list, when it is one, and one we can follow."""
    if not (
        isinstance(entry, dict)
        and set(entry) == {"id", "content", *_FLAGS}
        and type(entry["id"]) is int
        and isinstance(entry["content"], str)
        and entry["content"]
        and all(isinstance(entry[flag], bool) for flag in _FLAGS)
    ):
        raise refused(
            f"the added token {str(entry)[:80]!r} is none", where, "save the tokenizer again"
        )
    piece = entry["content"]
    for flag in (*_NEVER, *(["lstrip"] if piece != _MASK else [])):
        if entry[flag]:
            raise refused(
                f"the added token {piece[:50]!r} is {flag}", where, "only [MASK] may be, lstrip"
            )
    if piece in SPECIALS and not entry["special"]:
        raise refused(f"{piece} is not special", where, "save the tokenizer again")
    if entry["normalized"] and not unicodedata.is_normalized("NFC", piece):
        raise refused(f"the added token {piece[:50]!r} is not in NFC", where, "write it composed")
    return entry


def added_entries(rules: ModernRules, ids: Mapping[str, int]) -> list[dict[str, Any]]:
    """The added tokens as tokenizer.json has them, by their ids."""
    return [
        {
            "id": ids[each.piece],
            "content": each.piece,
            "single_word": False,
            "lstrip": rules.mask_takes_blank and each.piece == _MASK,
            "rstrip": False,
            "normalized": each.composed,
            "special": each.special,
        }
        for each in rules.added
    ]
