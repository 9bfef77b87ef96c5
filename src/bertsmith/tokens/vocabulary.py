"""What makes a list of pieces a BERT vocabulary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bertsmith.errors import VocabularyError

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MOST_PIECES = 1_000_000

_PLACEHOLDER = re.compile(r"\[unused\d+\]")


def is_placeholder(piece: str) -> bool:
    """Whether a piece only keeps a place, as BERT's [unused0] to [unused993]."""
    return _PLACEHOLDER.fullmatch(piece) is not None


def check_vocabulary(vocabulary: Sequence[str], where: Path | None = None) -> None:
    """Raise `VocabularyError` unless these pieces, one a line in vocab.txt, make a vocabulary."""
    if not vocabulary:
        raise VocabularyError("holds no pieces", where=where, remedy="learn a vocabulary first")
    if len(vocabulary) > MOST_PIECES:
        raise VocabularyError(
            f"holds more than {MOST_PIECES:,} pieces",
            where=where,
            remedy="is it a vocabulary? It must have one piece a line",
        )
    lines: dict[str, int] = {}
    for line, piece in enumerate(vocabulary, start=1):
        if not piece or "\n" in piece or "\r" in piece or not _encodes(piece):
            raise VocabularyError(
                "a piece is empty, holds a line break or cannot be written as UTF-8",
                where=where,
                line=line,
                remedy="every line must hold one piece",
            )
        if piece in lines:
            raise VocabularyError(
                f"the piece {piece[:50]!r} stands on line {lines[piece]} already",
                where=where,
                line=line,
                remedy="a piece has one id: remove the double",
            )
        lines[piece] = line
    missing = [special for special in SPECIALS if special not in lines]
    if missing:
        raise VocabularyError(
            f"lacks the special tokens {' '.join(missing)}",
            where=where,
            remedy="a BERT vocabulary has [PAD] [UNK] [CLS] [SEP] [MASK], each on its own line",
        )
    if len(lines) == len(SPECIALS):
        raise VocabularyError(
            "holds nothing but special tokens", where=where, remedy="learn a vocabulary first"
        )


def _encodes(piece: str) -> bool:
    try:
        piece.encode()
    except UnicodeEncodeError:
        return False
    return True
