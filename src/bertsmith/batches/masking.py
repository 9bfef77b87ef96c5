"""Selection of the tokens that language modelling predicts, and their masking."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.config import MaskingConfig
from bertsmith.core.errors import ConfigError
from bertsmith.core.streams import Bits, below, bits, uniform
from bertsmith.tokens.vocabulary import TokenInventory

Numbers = NDArray[np.int64]

# Joshi et al. 2019, section 3.1; Lan et al. 2019, section 4.1
_LONGEST_SPAN, _LONGEST_NGRAM = 10, 3


@dataclass(frozen=True, slots=True)
class Masked:
    """Masked token ids (tokens,), the positions `at` (targets,) and the original tokens there."""

    ids: NDArray[np.int64]
    at: NDArray[np.int64]
    labels: NDArray[np.int64]


class Masking:
    """Masking of packed sequences (Devlin et al. 2018, section 3.1), a pure function of keys."""

    def __init__(self, config: MaskingConfig, inventory: TokenInventory) -> None:
        self.config = config
        if inventory.mask_id is None:
            raise ConfigError(
                "the inventory of tokens has no mask", remedy="pre-train from left to right"
            )
        self._mask_id = inventory.mask_id
        self._ordinary = inventory.ordinary_ids
        self._continues = inventory.continues
        self._special = np.zeros(inventory.size, bool)
        self._special[sorted(inventory.special_ids)] = True
        self._lengths = _cumulated_lengths(config)

    def __call__(self, ids: Numbers, lengths: Numbers, keys: Bits) -> Masked:
        """Mask packed sequences: `ids` (tokens,), `lengths` and `keys` (sequences,).

        The share is reached in expectation in every sequence, however short: units are selected in
        random order until it is reached, and the one that would exceed it with the probability
        that makes up the difference.
        """
        sequence = np.repeat(np.arange(len(lengths)), lengths)
        column = np.arange(len(ids)) - (np.cumsum(lengths) - lengths)[sequence]
        candidates = np.flatnonzero(~self._special[ids])
        if not len(candidates):
            return Masked(ids=ids, at=candidates, labels=candidates)
        owner = sequence[candidates]
        first = self._unit_starts(ids[candidates], candidates, owner, keys, column[candidates])
        unit = np.cumsum(first) - 1
        selected = self._selected(
            owner[first], column[candidates][first], np.bincount(unit), len(lengths), keys
        )[unit]
        at = candidates[selected]
        # a span is masked, replaced or kept as a whole (Joshi et al. 2019, section 3.1)
        together = column[candidates][first][unit[selected]]
        drawn_at = together if self.config.unit == "span" else column[at]
        return self._hide(ids, at, keys[sequence[at]], column[at], drawn_at)

    def _unit_starts(
        self, ids: Numbers, at: Numbers, owner: Numbers, keys: Bits, column: Numbers
    ) -> NDArray[np.bool_]:
        """Mark the candidates (candidates,), in sequence order, that begin a unit."""
        if self.config.unit == "token":
            return np.ones(len(ids), bool)
        beside = np.r_[False, (np.diff(at) == 1) & (np.diff(owner) == 0)]
        word: NDArray[np.bool_] = ~self._continues[ids] | ~beside
        if self.config.unit == "word":
            return word
        drawn = uniform(bits(keys[owner], -4), column)[word]
        start = word.copy()
        start[word] = _unit_begins(
            ~beside[word], 1 + np.searchsorted(self._lengths, drawn, "right")
        )
        return start

    def _selected(
        self, owner: Numbers, column: Numbers, size: Numbers, sequences: int, keys: Bits
    ) -> NDArray[np.bool_]:
        """Mark the units (units,) of `size` tokens to predict."""
        order = np.lexsort((bits(keys[owner], column), owner))
        tokens = np.bincount(owner, size, sequences)
        sizes, owners = size[order], owner[order]
        before = np.cumsum(sizes) - sizes - (np.cumsum(tokens) - tokens)[owners]
        missing = tokens[owners] * self.config.probability - before
        selected = np.empty(len(size), bool)
        selected[order] = uniform(keys, -1)[owners] * sizes < missing
        return selected

    def _hide(
        self, ids: Numbers, at: Numbers, keys: Bits, column: Numbers, drawn_at: Numbers
    ) -> Masked:
        action = uniform(bits(keys, -2), drawn_at)
        random = self._ordinary[below(len(self._ordinary), bits(keys, -3), column)]
        config = self.config
        hidden = ids.copy()
        shown = np.where(action < config.as_mask + config.as_random, random, ids[at])
        hidden[at] = np.where(action < config.as_mask, self._mask_id, shown)
        return Masked(ids=hidden, at=at, labels=ids[at])


def _cumulated_lengths(config: MaskingConfig) -> NDArray[np.float64]:
    """Return the probability that a unit has at most 1, 2, ... words."""
    words = np.arange(1, 1 + (_LONGEST_NGRAM if config.unit == "ngram" else _LONGEST_SPAN))
    weights = 1 / words if config.unit == "ngram" else (1 - 1 / config.span) ** (words - 1)
    # without the last, so that any remaining draw is of the longest length
    return np.asarray(np.cumsum(weights / weights.sum())[:-1])


def _unit_begins(stretch: NDArray[np.bool_], lengths: Numbers) -> NDArray[np.bool_]:
    """Mark the words (words,) that begin a unit, which is `lengths` words long from that word on.

    `stretch` marks the words that begin a run of text, which no unit crosses. A word begins a unit
    if it is reached from the first by following unit lengths; pointer doubling finds one, then
    two, four, ... of them.
    """
    count = len(stretch)
    begins = np.append(np.flatnonzero(stretch), count)
    stop = begins[np.cumsum(stretch)]
    onward = np.append(np.minimum(np.arange(count) + lengths, stop), count)
    reached = np.zeros(count + 1, bool)
    reached[0] = True
    for _ in range(count.bit_length()):
        reached[onward[reached]] = True
        onward = onward[onward]
    return reached[:-1]


def following(ids: Numbers, ordinary: NDArray[np.bool_]) -> tuple[Numbers, Numbers]:
    """Return the targets of left-to-right language modelling for packed `ids` (tokens,).

    They are the positions of the tokens that an ordinary token follows, (targets,), and these
    following tokens; `ordinary` (vocabulary,) excludes the special tokens, so that nothing is
    predicted across sequences.
    """
    at = np.flatnonzero(ordinary[ids[1:]])
    return at, ids[at + 1]
