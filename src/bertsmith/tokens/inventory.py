"""All that batches and networks know of tokens, whatever the tokens stand for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenInventory:
    """The ids there are and what is special among them.

    Tokens may be pieces of text (a `Tokenizer` is an inventory that also encodes), SMILES, codes or
    clusters. A sequence stands as ``cls first sep``, a pair as ``cls first sep second sep`` with
    `separators` of these in its middle; an inventory without `cls_id` or `sep_id` leaves it out.
    """

    size: int
    """Number of ids."""
    pad_id: int
    """Id of padding, which only other programs need."""
    unknown_id: int
    """Id of what the inventory has no token for."""
    cls_id: int | None = None
    """Id that begins a sequence."""
    sep_id: int | None = None
    """Id that ends a text."""
    mask_id: int | None = None
    """Id that hides a token; masked language modelling needs one."""
    special_ids: frozenset[int]
    """Ids that are never predicted, nor drawn as a replacement."""
    ordinary_ids: NDArray[np.int64]
    """Ids that a random replacement may draw (ordinary,): no specials, no placeholders."""
    continues: NDArray[np.bool_]
    """Whether a token goes on the word of the one before it (size,)."""
    separators: int = 1
    """Separators between the two texts of a pair."""
    segments: bool = True
    """Whether the second text of a pair is of segment 1."""
    fingerprint: str
    """SHA-256 of all that decides the ids, which a token store keeps."""

    @property
    def begin(self) -> tuple[int, ...]:
        """The ids before a text: the classification token, if there is one."""
        return () if self.cls_id is None else (self.cls_id,)

    @property
    def end(self) -> tuple[int, ...]:
        """The ids after a text: the separator, if there is one."""
        return () if self.sep_id is None else (self.sep_id,)

    def specials_around(self, *, pair: bool) -> int:
        """Return the number of special tokens around one text, or around and between two."""
        ends = (1 + self.separators * pair) * len(self.end)
        return len(self.begin) + ends
