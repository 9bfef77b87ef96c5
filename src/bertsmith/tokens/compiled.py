"""What the files tokenizer.json of all kinds have in common, for reading and for writing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.errors import ModelFolderError
from bertsmith.tokens.vocabulary import MOST_PIECES

COMPILED_FILE = "tokenizer.json"


def part(data: Mapping[str, Any], key: str, kind: str, where: Path) -> dict[str, Any]:
    """A part of a tokenizer that must be of a kind. Raises `ModelFolderError`."""
    found = data.get(key)
    if not isinstance(found, dict) or found.get("type") != kind:
        raise refused(f"its {key} is no {kind}", where, "only BERT's own kinds can be followed")
    return found


def check_settings(settings: Mapping[str, Any], expected: Mapping[str, Any], where: Path) -> None:
    """Raise `ModelFolderError` unless all settings that are there have one of the values expected.

    A value is a tuple where several will do.
    """
    for key, value in expected.items():
        values = value if isinstance(value, tuple) else (value,)
        if key in settings and not any(_same(settings[key], each) for each in values):
            raise refused(
                f"{key} is {str(settings[key])[:50]!r}", where, f"it must be {values[0]!r}"
            )


def _same(value: object, expected: object) -> bool:
    return type(value) is type(expected) and value == expected


def dense(table: object, where: Path) -> tuple[str, ...]:
    """The pieces by id, when the ids are exactly 0 to n-1."""
    if not isinstance(table, dict) or len(table) > MOST_PIECES:
        raise refused("its vocabulary is no table of pieces", where, "save the tokenizer again")
    pieces: list[str | None] = [None] * len(table)
    for piece, number in table.items():
        if type(number) is not int or not 0 <= number < len(pieces) or pieces[number] is not None:
            raise refused(
                f"the piece {piece[:50]!r} has the id {str(number)[:20]}",
                where,
                f"ids must be the numbers 0 to {len(pieces) - 1}, each once",
            )
        pieces[number] = piece
    return tuple(piece for piece in pieces if piece is not None)


def added_in(data: Mapping[str, Any]) -> dict[str, Any]:
    """The added tokens of a tokenizer by their text, nonsense by its own."""
    added = data.get("added_tokens") or []
    return {
        str(token.get("content") if isinstance(token, dict) else token): token
        for token in (added if isinstance(added, list) else [added])
    }


def added_tokens(
    ids: Mapping[str, int], specials: Sequence[str], mask: Mapping[str, bool]
) -> list[dict[str, Any]]:
    """The special tokens as tokenizer.json has them, by their ids; `mask` are flags of the last."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return [
        {"id": number, "content": piece, **flags, **(mask if piece == specials[-1] else {})}
        | {"special": True}
        for number, piece in sorted((ids[piece], piece) for piece in specials)
    ]


def surrounded(cls: str, sep: str, ids: Mapping[str, int], *, segments: bool) -> dict[str, Any]:
    """What puts the special tokens around one text or two."""

    def special(piece: str, number: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": piece, "type_id": number}}

    second = int(segments)
    first = [special(cls, 0), {"Sequence": {"id": "A", "type_id": 0}}, special(sep, 0)]
    pair = [*first, {"Sequence": {"id": "B", "type_id": second}}, special(sep, second)]
    return {
        "type": "TemplateProcessing",
        "single": first,
        "pair": pair,
        "special_tokens": {
            piece: {"id": piece, "ids": [ids[piece]], "tokens": [piece]} for piece in (cls, sep)
        },
    }


def refused(what: str, where: Path, remedy: str) -> ModelFolderError:
    """An error about a file we cannot follow."""
    return ModelFolderError(what, where=where, remedy=remedy)
