"""Choosing and hiding the tokens that masked language modelling predicts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.randomness import Bits, below, bits, uniform
from bertsmith.config import Config
from bertsmith.errors import ConfigError
from bertsmith.tokens.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class MaskingConfig(Config):
    """How many tokens are predicted, and what stands in their place."""

    share: float = 0.15
    """Share of the tokens to predict."""
    as_mask: float = 0.8
    """Share of these replaced by [MASK]."""
    as_random: float = 0.1
    """Share of these replaced by a random token; the rest stay as they are."""

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ConfigError(f"the masked share is {self.share}", remedy="it must be in (0, 1)")
        if min(self.as_mask, self.as_random) < 0 or self.as_mask + self.as_random > 1:
            raise ConfigError(
                f"as_mask {self.as_mask} and as_random {self.as_random} are no shares of one whole"
            )


@dataclass(frozen=True, slots=True)
class Masked:
    """Token ids (tokens,) with some hidden, the places `at` (targets,) and what stood there."""

    ids: NDArray[np.int64]
    at: NDArray[np.int64]
    labels: NDArray[np.int64]


class Masking:
    """Masks packed sequences (Devlin et al. 2018, section 3.1); a pure function of their keys."""

    def __init__(self, config: MaskingConfig, tokenizer: Tokenizer) -> None:
        self.config = config
        self._mask_id = tokenizer.mask_id
        self._ordinary = tokenizer.ordinary_ids
        self._special = np.zeros(tokenizer.size, bool)
        self._special[sorted(tokenizer.special_ids)] = True

    def __call__(self, ids: NDArray[np.int64], lengths: NDArray[np.int64], keys: Bits) -> Masked:
        """Mask packed sequences: `ids` (tokens,), `lengths` and `keys` (sequences,).

        The share is met in expectation in every sequence, however short: the number of its
        targets is the share of its ordinary tokens, rounded up or down at random.
        """
        sequence = np.repeat(np.arange(len(lengths)), lengths)
        starts = np.cumsum(lengths) - lengths
        column = np.arange(len(ids)) - starts[sequence]
        candidates = np.flatnonzero(~self._special[ids])
        owner = sequence[candidates]
        maskable = np.bincount(owner, minlength=len(lengths))
        count = np.floor(maskable * self.config.share + uniform(keys, -1)).astype(np.int64)
        order = np.lexsort((bits(keys[owner], column[candidates]), owner))
        rank = np.arange(len(order)) - (np.cumsum(maskable) - maskable)[owner[order]]
        at = np.sort(candidates[order[rank < count[owner[order]]]])
        return self._hide(ids, at, keys[sequence[at]], column[at])

    def _hide(
        self, ids: NDArray[np.int64], at: NDArray[np.int64], keys: Bits, column: NDArray[np.int64]
    ) -> Masked:
        action = uniform(bits(keys, -2), column)
        random = self._ordinary[below(len(self._ordinary), bits(keys, -3), column)]
        config = self.config
        hidden = ids.copy()
        shown = np.where(action < config.as_mask + config.as_random, random, ids[at])
        hidden[at] = np.where(action < config.as_mask, self._mask_id, shown)
        return Masked(ids=hidden, at=at, labels=ids[at])
