"""Extension of a WordPiece vocabulary by the pieces that save most in some text.

New pieces follow the vocabulary's own, which keep their ids, [unusedN] included; they become part
of the WordPiece table, not added tokens, so text is tokenised by the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bertsmith.core.errors import VocabularyError
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.learning.counting import SILENT, LearningObserver
from bertsmith.tokens.learning.mining import MinedPiece, PieceMiner, PieceTable, rarest_worth_adding
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import MAX_PIECES
from bertsmith.tokens.wordpiece import CONTINUES

RAREST = 5
"""Minimum count of an added piece: the embedding of a rarer one would not be learned."""


@dataclass(frozen=True, kw_only=True)
class Extension:
    """An extended vocabulary.

    `added` are the new pieces, best first, in the order of their ids; `replaced[i]` are the old ids
    that represented `added[i]` before, [UNK] if none did.
    """

    tokenizer: Tokenizer
    added: tuple[MinedPiece, ...]
    replaced: tuple[tuple[int, ...], ...]


def extend_vocabulary(
    tokenizer: Tokenizer,
    words: Mapping[str, int],
    *,
    count: int,
    observer: LearningObserver = SILENT,
) -> Extension:
    """Add the up to `count` pieces to a vocabulary that save most pieces in the words.

    `words` are the counts of words by the tokenizer's rules; an [UNK] word counts as many pieces as
    it has characters, so pieces that make it known are worth adding. Fewer pieces are added if no
    others occur five times and save any. Raises `VocabularyError` if there are none, or if the
    vocabulary would be too large.
    """
    assert isinstance(tokenizer.rules, BasicRules)
    if not 1 <= count <= MAX_PIECES - tokenizer.size:
        raise VocabularyError(
            f"{count} pieces cannot be added to {tokenizer.size}",
            remedy=f"add 1 to {MAX_PIECES - tokenizer.size}",
        )
    rarest = rarest_worth_adding(words, tokenizer.vocabulary, count=count, rarest=RAREST)
    miner = PieceMiner(words, tokenizer.vocabulary, rarest=rarest, observer=observer)
    observer.phase("choosing pieces", count, "pieces")
    added: list[MinedPiece] = []
    for mined in miner.mine(count):
        added.append(mined)
        observer.advance()
    if not added:
        raise VocabularyError(
            f"no piece that occurs {rarest} times in this text would save any",
            remedy="the vocabulary fits already, or give more text",
        )
    pieces = (*tokenizer.vocabulary, *(item.piece for item in added))
    return Extension(
        tokenizer=Tokenizer(pieces, tokenizer.rules, tokenizer.longest),
        added=tuple(added),
        replaced=_replaced(tokenizer, [item.piece for item in added]),
    )


def _replaced(tokenizer: Tokenizer, added: list[str]) -> tuple[tuple[int, ...], ...]:
    """Return the old ids that each piece was split into, as the start or continuation of a word."""
    table = PieceTable(tokenizer.vocabulary)
    ids = {piece: number for number, piece in enumerate(tokenizer.vocabulary)}
    replaced: list[tuple[int, ...]] = []
    for piece in added:
        continues_word = piece.startswith(CONTINUES)
        # any preceding character makes it a continuation
        word = f"x{piece.removeprefix(CONTINUES)}" if continues_word else piece
        old = table.cut(word, 1 if continues_word else 0)
        replaced.append(tuple(ids[part] for part in old or ()) or (tokenizer.unknown_id,))
    return tuple(replaced)
