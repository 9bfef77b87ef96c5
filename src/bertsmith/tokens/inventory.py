"""The token inventory: all that batches and networks need to know of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenInventory:
    """The ids of a vocabulary, and the special ones among them.

    Tokens may be pieces of text (a `Tokenizer` is an inventory that also encodes), SMILES, codes or
    clusters. A sequence is ``cls first sep``, a pair ``cls first sep second sep`` with `separators`
    times ``sep`` in the middle; an inventory without `cls_id` or `sep_id` omits it.
    """

    size: int
    """Number of ids."""
    pad_id: int
    """Id of padding, needed only by other programs."""
    unknown_id: int
    """Id of unknown tokens."""
    cls_id: int | None = None
    """Id that begins a sequence."""
    sep_id: int | None = None
    """Id that ends a text."""
    mask_id: int | None = None
    """Id of the mask, required for masked language modelling."""
    special_ids: frozenset[int]
    """Ids that are never predicted nor used as a random replacement."""
    ordinary_ids: NDArray[np.int64]
    """Candidate ids of random replacement (ordinary,): no special tokens, no placeholders."""
    continues: NDArray[np.bool_]
    """True for tokens that continue the word of the previous token (size,)."""
    separators: int = 1
    """Number of separators between the two texts of a pair."""
    segments: bool = True
    """True if the second text of a pair has segment id 1."""
    fingerprint: str
    """SHA-256 of all that determines the ids, recorded by a token store."""

    @property
    def begin(self) -> tuple[int, ...]:
        """Ids before a text: the classification token, if there is one."""
        return () if self.cls_id is None else (self.cls_id,)

    @property
    def end(self) -> tuple[int, ...]:
        """Ids after a text: the separator, if there is one."""
        return () if self.sep_id is None else (self.sep_id,)

    def specials_around(self, *, pair: bool) -> int:
        """Return the number of special tokens around one text, or around and between two."""
        ends = (1 + self.separators * pair) * len(self.end)
        return len(self.begin) + ends
