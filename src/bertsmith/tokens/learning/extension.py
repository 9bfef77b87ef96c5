"""More pieces for a vocabulary that exists: those that save most in some text.

They go behind the vocabulary's own, which keep their ids, [unusedN] among them; into the table that
cuts words itself, not beside it as added tokens, so text is tokenised by the same rules and as
fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bertsmith.core.errors import VocabularyError
from bertsmith.tokens.basic import BasicRules
from bertsmith.tokens.learning.counting import SILENT, LearningObserver
from bertsmith.tokens.learning.mining import MinedPiece, PieceMiner, PieceTable, rarest_worth_adding
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.tokens.vocabulary import MOST_PIECES
from bertsmith.tokens.wordpiece import CONTINUES

RAREST = 5
"""A piece met less often than this is not added: its vector would not be learned."""


@dataclass(frozen=True, kw_only=True)
class Extension:
    """A vocabulary with more pieces.

    `added` are the new pieces, best first, in the order of their ids; `replaced[i]` are the ids,
    all old, that stood for `added[i]` before: [UNK] where no old pieces did.
    """

    tokenizer: Tokenizer
    added: tuple[MinedPiece, ...]
    replaced: tuple[tuple[int, ...], ...]


def extend_vocabulary(
    tokenizer: Tokenizer,
    words: Mapping[str, int],
    *,
    count: int,
    rarest: int = RAREST,
    observer: LearningObserver = SILENT,
) -> Extension:
    """Add up to `count` pieces to a vocabulary, those that save most pieces in the words.

    `words` are words by the tokenizer's rules and how often each occurs; one that is [UNK] counts
    as many pieces as it has characters, so what makes it legible is worth adding. Fewer pieces are
    added when no others occur `rarest` times and save any. Raises `VocabularyError` when there are
    none, or when the vocabulary would be too large.
    """
    assert isinstance(tokenizer.rules, BasicRules)
    if not 1 <= count <= MOST_PIECES - tokenizer.size:
        raise VocabularyError(
            f"{count} pieces cannot be added to {tokenizer.size}",
            remedy=f"add 1 to {MOST_PIECES - tokenizer.size}",
        )
    rarest = rarest_worth_adding(words, tokenizer.vocabulary, count=count, rarest=rarest)
    miner = PieceMiner(words, tokenizer.vocabulary, rarest=rarest, observer=observer)
    observer.phase("choosing pieces", count, "pieces")
    added = tuple(_watched(miner.mine(count), observer))
    if not added:
        raise VocabularyError(
            f"no piece that occurs {rarest} times in this text would save any",
            remedy="the vocabulary fits already, or give more text",
        )
    pieces = (*tokenizer.vocabulary, *(each.piece for each in added))
    return Extension(
        tokenizer=Tokenizer(pieces, tokenizer.rules),
        added=added,
        replaced=_replaced(tokenizer, [each.piece for each in added]),
    )


def _watched(mined: Iterator[MinedPiece], observer: LearningObserver) -> Iterator[MinedPiece]:
    for piece in mined:
        observer.advance()
        yield piece


def _replaced(tokenizer: Tokenizer, added: list[str]) -> tuple[tuple[int, ...], ...]:
    """The old ids each piece was cut into, as the beginning or the continuation of a word."""
    table = PieceTable(tokenizer.vocabulary)
    ids = {piece: number for number, piece in enumerate(tokenizer.vocabulary)}
    found: list[tuple[int, ...]] = []
    for piece in added:
        goes_on = piece.startswith(CONTINUES)
        # any character before it makes it a continuation
        word = f"x{piece.removeprefix(CONTINUES)}" if goes_on else piece
        old = table.cut(word, 1 if goes_on else 0)
        found.append(tuple(ids[each] for each in old or ()) or (tokenizer.unknown_id,))
    return tuple(found)
