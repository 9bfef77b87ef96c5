"""What of a store's text an epoch of sequences shows, measured on some of them.

Windows cover the text without a gap (windows.py), so nothing is lost for being too long. Two things
keep text out of an epoch: a random next sentence stands where text of the document should, which
another sequence may or may not show in its turn; and sequences that are short on purpose leave out
the rest of their window. And where a window ends inside a sentence, neither side sees the whole of
it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.pretraining import SampleConfig
from bertsmith.batches.segments import Segments
from bertsmith.batches.store import TokenStore

MOST_TOKENS = 500_000


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Shares are of what was looked at."""

    sequences: int
    """Sequences looked at."""
    hidden: float
    """Share of the tokens that stand in no sequence of the epoch."""
    torn: float
    """Share of the sequences that begin inside a sentence."""
    unlabelled: float
    """Share of the sequences of one segment, with no next sentence to tell, where there are such
    labels; else 0."""


def coverage(
    store: TokenStore, config: SampleConfig, seed: int, most: int = MOST_TOKENS
) -> Coverage:
    """Look at some of the sequences of an epoch, of about so many tokens at most."""
    # for a share, it does not matter which token of a word a cut falls on
    nowhere = np.broadcast_to(np.False_, store.tokens)
    text = (_Positions(store), config.text, config.longest, nowhere, seed)
    segments, whole = Segments(*text, config.short), Segments(*text)
    index = np.arange(min(segments.count, max(2, most // config.longest)))
    samples = segments.read(index, 0, segments.cut(index, 0))
    own = whole.cut(index, 0)
    shown = np.unique(np.concatenate([part for sample in samples for part in sample.parts]))
    order = np.argsort(own.starts)
    starts, ends = own.starts[order], own.ends[order]
    window = np.searchsorted(starts, shown, side="right") - 1
    inside = (window >= 0) & (shown < ends[window])
    sentences = store.sentences
    begins = np.asarray(sentences[np.searchsorted(sentences, own.starts)]) == own.starts
    return Coverage(
        sequences=len(index),
        hidden=1 - float(inside.sum() / (ends - starts).sum()),
        torn=1 - float(begins.mean()),
        unlabelled=float(np.mean([sample.label is None for sample in samples])) * config.pairs,
    )


class _Positions(TokenStore):
    """A store that tells where tokens lie instead of what they are."""

    def __init__(self, store: TokenStore) -> None:
        self.__dict__.update(store.__dict__)

    def read(self, start: int, end: int) -> NDArray[np.integer]:
        """The numbers of tokens start to end."""
        return np.arange(start, end)
