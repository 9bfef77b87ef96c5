"""The parts of tokenizer.json that all kinds share; settings not supported are refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.core.errors import ModelFolderError
from bertsmith.core.files import same_value
from bertsmith.tokens.folder.files import refused
from bertsmith.tokens.vocabulary import MAX_PIECES, Pieces


def tokenizer_json(added: list[dict[str, Any]], **components: object) -> dict[str, Any]:
    """Return the contents of tokenizer.json, given its added tokens and its components."""
    nothing = {"version": "1.0", "truncation": None, "padding": None}
    return {**nothing, "added_tokens": added, **components}


def by_id(entries: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return tokenizer.json's entries of added tokens as tokenizer_config.json has them."""
    return {
        str(entry["id"]): {key: value for key, value in entry.items() if key != "id"}
        for entry in entries
    }


def part(data: Mapping[str, Any], key: str, kind: str, where: Path) -> dict[str, Any]:
    """Return a component of the given type. Raises `ModelFolderError`."""
    component = data.get(key)
    # old files do not contain the type of their model
    usual = kind if key == "model" else None
    if not isinstance(component, dict) or component.get("type", usual) != kind:
        raise refused(f"its {key} is not a {kind}", where, "only BERT's own kinds are supported")
    return component


def lowered_before(normalizer: object) -> list[Any] | None:
    """Return the normalisers behind a Lowercase; None for a normaliser that begins with no such."""
    stated = normalizer if isinstance(normalizer, dict) else {}
    steps = stated.get("normalizers") if stated.get("type") == "Sequence" else None
    if not isinstance(steps, list) or steps[:1] != [{"type": "Lowercase"}]:
        return None
    return steps[1:]


def lowered(where: Path) -> ModelFolderError:
    """Return the error for a Lowercase before other normalisers, which some versions do not read.

    So sentence-transformers saves its do_lower_case.
    """
    return refused(
        "its normalizer begins with a Lowercase, as sentence-transformers writes do_lower_case",
        where,
        'take that out, and set "do_lower_case": true in sentence_bert_config.json',
    )


def check_settings(settings: Mapping[str, Any], expected: Mapping[str, Any], where: Path) -> None:
    """Raise `ModelFolderError` unless all settings present have one of the expected values.

    A tuple contains several accepted values.
    """
    for key, value in expected.items():
        values = value if isinstance(value, tuple) else (value,)
        if key in settings and not any(same_value(settings[key], allowed) for allowed in values):
            raise refused(
                f"{key} is {str(settings[key])[:50]!r}", where, f"it must be {values[0]!r}"
            )


def dense(table: object, where: Path) -> Pieces:
    """Return the pieces by id, which must be exactly 0 to n-1. Raises `ModelFolderError`."""
    if not isinstance(table, dict) or len(table) > MAX_PIECES:
        raise refused("its vocabulary is not a table of pieces", where, "save the tokenizer again")
    numbers = list(table.values())
    if numbers == list(range(len(table))) and set(map(type, numbers)) <= {int}:
        # as nearly all are saved; below, what is wrong with others is named
        return Pieces.of_table(table)
    pieces: list[str | None] = [None] * len(table)
    for piece, number in table.items():
        if type(number) is not int or not 0 <= number < len(pieces) or pieces[number] is not None:
            raise refused(
                f"the piece {piece[:50]!r} has the id {str(number)[:20]}",
                where,
                f"ids must be the numbers 0 to {len(pieces) - 1}, each once",
            )
        pieces[number] = piece
    return Pieces(piece for piece in pieces if piece is not None)


def check_same(
    pieces: Sequence[object], compiled: Sequence[object], name: str, where: Path
) -> None:
    """Raise `ModelFolderError` unless another file agrees with tokenizer.json, in its order.

    The slow tokenizers of `transformers` read the one, the fast ones the other.
    """
    if tuple(pieces) == tuple(compiled):
        return
    index = next(
        (n for n, (one, other) in enumerate(zip(pieces, compiled, strict=False)) if one != other),
        min(len(pieces), len(compiled)),
    )
    one, other = (
        repr(side[index])[:50] if index < len(side) else "nothing" for side in (pieces, compiled)
    )
    raise refused(
        f"is not of the same tokenizer as {name}: entry {index} is {other} here and {one} there",
        where,
        f"remove the one that the model was not trained with, this file or {name}",
    )


def added_in(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the added tokens of a tokenizer by their text; invalid entries by their string."""
    added = data.get("added_tokens") or []
    return {
        str(token.get("content") if isinstance(token, dict) else token): token
        for token in (added if isinstance(added, list) else [added])
    }


def added_tokens(
    ids: Mapping[str, int], specials: Sequence[str], mask: Mapping[str, bool]
) -> list[dict[str, Any]]:
    """Return tokenizer.json's entries of the special tokens; `mask` are flags of the last."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return [
        {"id": number, "content": piece, **flags, **(mask if piece == specials[-1] else {})}
        | {"special": True}
        for number, piece in sorted((ids[piece], piece) for piece in specials)
    ]


def surrounded(cls: str, sep: str, ids: Mapping[str, int], *, segments: bool) -> dict[str, Any]:
    """Return the post-processor that adds the special tokens around one text or two."""

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


def check_template(
    result: object, ends: tuple[str, str], ids: Mapping[str, int], where: Path, *, separators: int
) -> None:
    """Raise `ModelFolderError` unless special tokens are added around texts as the kind requires.

    `ends` are the tokens before and after a text, `separators` the number between two texts.
    """
    if not isinstance(result, dict) or not (
        _is_processor(result, ends, ids, separators) or _is_template(result, ends, ids, separators)
    ):
        around = " ".join([ends[0], "a", *[ends[1]] * separators, "b", ends[1]])
        raise refused("its post_processor is not that of its kind", where, f"it must put {around}")


def _is_processor(
    result: Mapping[str, Any], ends: tuple[str, str], ids: Mapping[str, int], separators: int
) -> bool:
    kind = "BertProcessing" if separators == 1 else "RobertaProcessing"
    tokens = {key: [piece, ids[piece]] for key, piece in zip(("cls", "sep"), ends, strict=True)}
    return result.get("type") == kind and all(result.get(key) == tokens[key] for key in tokens)


def _is_template(
    result: Mapping[str, Any], ends: tuple[str, str], ids: Mapping[str, int], separators: int
) -> bool:
    segments = separators == 1
    usual = surrounded(*ends, ids, segments=segments)
    if separators == 2:
        usual["pair"].insert(3, usual["single"][2])
    table = result.get("special_tokens")
    return (
        result.get("type") == "TemplateProcessing"
        and isinstance(table, dict)
        and all(table.get(piece) == usual["special_tokens"][piece] for piece in ends)
        and all(
            _shape(result.get(key), segments) == _shape(usual[key], segments)
            for key in ("single", "pair")
        )
    )


def _shape(steps: object, segments: bool) -> object:
    """Return the steps of a template, without segments if they do not matter."""
    if segments or not isinstance(steps, list):
        return steps
    return [
        {key: value.get("id") if isinstance(value, dict) else value for key, value in step.items()}
        if isinstance(step, dict)
        else step
        for step in steps
    ]
