"""A vocabulary whose least useful pieces are exchanged for better ones.

Pieces that were joined pair by pair leave steps on the way behind, which hardly any word is cut
into once the longer ones are there, and were chosen for how words are joined, not for how they are
cut, longest match first. What is saved and lost here is counted in that cutting itself.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import nlargest

from bertsmith.tokens.cutting import PieceTable
from bertsmith.tokens.mining import PieceMiner, rarest_worth_adding
from bertsmith.tokens.observing import SILENT, LearningObserver
from bertsmith.tokens.wordpiece import CONTINUES

_SHARE = 0.5
# the commonest words, which are nearly all of any text; bounds the work on large corpora
_MOST_WORDS = 250_000


def refine(
    pieces: Sequence[str],
    words: Mapping[str, int],
    *,
    fixed: Collection[str],
    rarest: int,
    observer: LearningObserver = SILENT,
) -> list[str]:
    """As many pieces, half of those not `fixed` chosen anew, for fewer pieces in the words.

    The half goes that would be missed least, each taken by itself; those that save most come in its
    place, if they occur `rarest` times. What cannot be replaced by anything useful stays.
    """
    if len(words) > _MOST_WORDS:
        words = dict(nlargest(_MOST_WORDS, words.items(), key=lambda item: (item[1], item[0])))
    losses = _losses(pieces, words, fixed, observer)
    ranked = sorted(losses, key=lambda piece: (losses[piece], piece))
    dropped = ranked[: int(_SHARE * len(ranked))]
    gone = frozenset(dropped)
    kept = [piece for piece in pieces if piece not in gone]
    if not dropped:
        return kept
    least = rarest_worth_adding(words, kept, count=len(dropped), rarest=rarest)
    miner = PieceMiner(words, kept, rarest=least, observer=observer)
    observer.phase("exchanging pieces", len(dropped), "pieces")
    new: list[str] = []
    for mined in miner.mine(len(dropped)):
        new.append(mined.piece)
        observer.advance()
    back = [piece for piece in reversed(dropped) if piece not in set(new)]
    return [*kept, *new, *back[: len(dropped) - len(new)]]


def _losses(
    pieces: Sequence[str],
    words: Mapping[str, int],
    fixed: Collection[str],
    observer: LearningObserver,
) -> dict[str, int]:
    """How many pieces more the words would be cut into without each of the pieces."""
    table = PieceTable(pieces)
    losses = dict.fromkeys((piece for piece in pieces if piece not in fixed), 0)
    observer.phase("weighing pieces", len(words), "words")
    for word, count in observer.each(words.items()):
        cut = table.cut(word) or []
        start, seen = 0, set[str]()
        for before, piece in enumerate(cut):
            if piece in losses and piece not in seen:
                seen.add(piece)
                table.remove(piece)
                rest = table.cut(word, start)
                table.add(piece)
                other = len(word) if rest is None else before + len(rest)
                losses[piece] += count * (other - len(cut))
            start += len(piece) - (len(CONTINUES) if start else 0)
    return losses
