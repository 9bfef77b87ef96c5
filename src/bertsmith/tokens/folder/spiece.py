"""spiece.model, the file of SentencePiece: a vocabulary with scores, as a protocol buffer.

Field numbers are those of sentencepiece_model.proto; unsupported settings are refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertsmith.core.errors import ModelFolderError
from bertsmith.core.protocol_buffers import (
    Damaged,
    Value,
    as_bytes,
    as_float,
    as_number,
    as_text,
    bytes_field,
    fields,
    float_field,
    number_field,
)
from bertsmith.tokens.folder.files import read_bytes
from bertsmith.tokens.unigram.rules import CharsMap, UnigramRules
from bertsmith.tokens.vocabulary import MOST_PIECES, UNIGRAM_SPECIALS

_PIECES, _TRAINER, _NORMALISER = 1, 2, 3
_TEXT, _SCORE, _TYPE = 1, 2, 3
_NORMAL, _UNKNOWN, _CONTROL, _WANTED, _UNUSED = 1, 2, 3, 4, 5
_MODEL_TYPES = {1: "unigram", 2: "BPE", 3: "word", 4: "char"}
_MODEL_TYPE, _VOCABULARY_SIZE, _SUFFIX, _FALLBACK = 3, 4, 24, 35
_UNKNOWN_ID, _BEGIN_ID, _END_ID, _PAD_ID, _UNKNOWN_PIECE, _PAD_PIECE = 40, 41, 42, 43, 45, 48
_NAME, _CHARSMAP, _PREFIX, _REMOVES, _ESCAPES = 1, 2, 3, 4, 5
_DAMAGED = "the file is damaged: save or download it again"


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A piece of a model: its text, score and type number."""

    text: str
    score: float
    type: int


def read_spiece(path: Path) -> tuple[tuple[str, ...], UnigramRules]:
    """Return the vocabulary of a model, and rules with only the model's own settings.

    Raises `ModelFolderError`.
    """
    data = read_bytes(path)
    pieces: list[Piece] = []
    trainer: dict[int, Value] = {}
    normaliser: dict[int, Value] = {}
    try:
        for number, value in fields(data):
            if number == _PIECES:
                pieces.append(_piece(as_bytes(value)))
            elif number == _TRAINER:
                trainer |= dict(fields(as_bytes(value)))
            elif number == _NORMALISER:
                normaliser |= dict(fields(as_bytes(value)))
            if len(pieces) > MOST_PIECES:
                raise Damaged(f"more than {MOST_PIECES:,} pieces")
        _check(trainer, normaliser, path)
        charsmap = as_bytes(normaliser.get(_CHARSMAP, b""))
        CharsMap(charsmap)
    except ValueError as error:
        raise ModelFolderError(
            f"not a SentencePiece model: {error}", where=path, remedy=_DAMAGED
        ) from error
    types = [piece.type for piece in pieces]
    if _WANTED + 2 in types:
        raise _refused("has pieces for single bytes", path)
    return tuple(piece.text for piece in pieces), UnigramRules(
        scores=tuple(piece.score for piece in pieces),
        control=frozenset(
            number
            for number, piece in enumerate(pieces)
            if piece.type not in (_NORMAL, _WANTED) and piece.text not in UNIGRAM_SPECIALS
        ),
        wanted=frozenset(n for n, kind in enumerate(types) if kind == _WANTED),
        charsmap=charsmap,
        prefix_space=bool(normaliser.get(_PREFIX, 1)),
    )


def _piece(data: bytes) -> Piece:
    values = dict(fields(data))
    score = as_float(values.get(_SCORE, bytes(4)))
    text = as_text(values.get(_TEXT, b""))
    if not text or not math.isfinite(score):
        raise Damaged("a piece is empty or its score is not a number")
    return Piece(text=text, score=score, type=as_number(values.get(_TYPE, _NORMAL)))


def _check(trainer: Mapping[int, Value], normaliser: Mapping[int, Value], path: Path) -> None:
    kind = as_number(trainer.get(_MODEL_TYPE, 1))
    if kind != 1:
        raise _refused(f"is of the type {_MODEL_TYPES.get(kind, kind)}, not unigram", path)
    if trainer.get(_FALLBACK):
        raise _refused("falls back to bytes", path)
    if trainer.get(_SUFFIX):
        raise _refused("has blanks behind words (treat_whitespace_as_suffix)", path)
    for key, name in ((_REMOVES, "remove_extra_whitespaces"), (_ESCAPES, "escape_whitespaces")):
        if not normaliser.get(key, 1):
            raise _refused(f"has {name} off", path)


def _refused(what: str, path: Path) -> ModelFolderError:
    return ModelFolderError(
        what, where=path, remedy="only unigram models like ALBERT's are supported"
    )


def spiece_model(vocabulary: Sequence[str], rules: UnigramRules) -> bytes:
    """Return the contents of spiece.model for a vocabulary."""
    pad, unknown, *_ = (vocabulary.index(piece) for piece in UNIGRAM_SPECIALS)
    special = {vocabulary.index(piece) for piece in UNIGRAM_SPECIALS}
    rows: list[bytes] = []
    for number, (piece, score) in enumerate(zip(vocabulary, rules.scores, strict=True)):
        kind = _NORMAL
        if number == unknown:
            kind = _UNKNOWN
        elif number in special:
            kind = _CONTROL
        elif number in rules.wanted:
            kind = _WANTED
        elif number in rules.control:
            kind = _UNUSED
        row = bytes_field(_TEXT, piece.encode()) + float_field(_SCORE, score)
        rows.append(bytes_field(_PIECES, row + number_field(_TYPE, kind)))
    trainer = [
        *(number_field(_MODEL_TYPE, 1), number_field(_VOCABULARY_SIZE, len(vocabulary))),
        *(number_field(_UNKNOWN_ID, unknown), number_field(_BEGIN_ID, -1)),
        *(number_field(_END_ID, -1), number_field(_PAD_ID, pad)),
        bytes_field(_UNKNOWN_PIECE, vocabulary[unknown].encode()),
        bytes_field(_PAD_PIECE, vocabulary[pad].encode()),
    ]
    normaliser = [
        bytes_field(_NAME, b"user_defined" if rules.charsmap else b"identity"),
        bytes_field(_CHARSMAP, rules.charsmap),
        number_field(_PREFIX, rules.prefix_space),
        *(number_field(_REMOVES, 1), number_field(_ESCAPES, 1)),
    ]
    rows += [
        bytes_field(_TRAINER, b"".join(trainer)),
        bytes_field(_NORMALISER, b"".join(normaliser)),
    ]
    return b"".join(rows)
