"""The validation of vocabularies, and their special tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from bertsmith.core.errors import VocabularyError

KindName = Literal["wordpiece", "byte-bpe", "unigram"]
"""The kinds of vocabularies, defined in `bertsmith.tokens.kinds`."""
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BYTE_SPECIALS = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
UNIGRAM_SPECIALS = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
MOST_PIECES = 1_000_000

_PLACEHOLDER = re.compile(r"\[unused\d+\]|madeupword\d{4}|<\|(?:padding|endoftext)\|>")


def is_placeholder(piece: str) -> bool:
    """Return whether a piece is a placeholder, such as BERT's [unused0], RoBERTa's madeupword0000.

    ModernBERT's <|padding|> and <|endoftext|> are left over from another tokenizer.
    """
    return _PLACEHOLDER.fullmatch(piece) is not None


def check_vocabulary(
    vocabulary: Sequence[str],
    where: Path | None = None,
    *,
    specials: Sequence[str] = SPECIALS,
    lines: bool = True,
) -> None:
    """Raise `VocabularyError` unless the pieces form a vocabulary with the given special tokens.

    `lines` states that `where` has one piece per line, as vocab.txt.
    """
    if not vocabulary:
        raise VocabularyError("holds no pieces", where=where, remedy="learn a vocabulary first")
    if len(vocabulary) > MOST_PIECES:
        raise VocabularyError(
            f"holds more than {MOST_PIECES:,} pieces",
            where=where,
            remedy="is it a vocabulary? It must have one piece a line",
        )
    places: dict[str, int] = {}
    for line, piece in enumerate(vocabulary, start=1):
        broken = lines and ("\n" in piece or "\r" in piece)
        if not piece or broken or not _encodes(piece):
            raise VocabularyError(
                "a piece is empty, holds a line break or cannot be written as UTF-8",
                where=where,
                line=line if lines else None,
                remedy="every line must hold one piece",
            )
        if piece in places:
            raise VocabularyError(
                f"the piece {piece[:50]!r} is already on line {places[piece]}",
                where=where,
                line=line if lines else None,
                remedy="a piece has one id: remove the duplicate",
            )
        places[piece] = line
    missing = [special for special in specials if special not in places]
    if missing:
        raise VocabularyError(
            f"lacks the special tokens {' '.join(missing)}",
            where=where,
            remedy=f"a vocabulary of this kind has {' '.join(specials)}, each once",
        )
    if len(places) == len(specials):
        raise VocabularyError(
            "holds nothing but special tokens", where=where, remedy="learn a vocabulary first"
        )


def _encodes(piece: str) -> bool:
    try:
        piece.encode()
    except UnicodeEncodeError:
        return False
    return True
