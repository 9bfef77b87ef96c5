"""Pre-training batches from a token store, for masked or left-to-right language modelling."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.batches import DataPosition
from bertsmith.batches.config import MaskingConfig, Phase, SampleConfig, check_phases
from bertsmith.batches.segments import Cuts, Sample, Segments
from bertsmith.batches.truncation import encode_pair
from bertsmith.core.errors import ConfigError, StoreError
from bertsmith.core.streams import Bits, Purpose, bits, permuted, random_integers, stream, uniform
from bertsmith.network.batch import Batch, Target, pack
from bertsmith.store.store import TokenStore
from bertsmith.tokens.vocabulary import TokenInventory

Numbers = NDArray[np.int64]

# Joshi et al. 2019, section 3.1; Lan et al. 2019, section 4.1
_MAX_SPAN_LENGTH, _MAX_NGRAM_LENGTH = 10, 3


@dataclass(frozen=True, slots=True)
class Masked:
    """Masked token ids (tokens,), their `positions` (targets,) and the original tokens there."""

    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    labels: NDArray[np.int64]


class Masking:
    """Masking of packed sequences (Devlin et al. 2018, section 3.1), a pure function of keys."""

    def __init__(
        self, config: MaskingConfig, inventory: TokenInventory, counts: Numbers | None = None
    ) -> None:
        """`counts` (vocabulary,) are those of the tokens, by which rare ones are preferred."""
        self.config = config
        self._weights: NDArray[np.float64] | None = None
        if config.smoothing and counts is not None:
            self._weights = np.maximum(counts, 1).astype(np.float64) ** -config.smoothing
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
            return Masked(ids=ids, positions=candidates, labels=candidates)
        owner = sequence[candidates]
        first = self._unit_starts(ids[candidates], candidates, owner, keys, column[candidates])
        unit = np.cumsum(first) - 1
        selected = self._selected(
            owner[first],
            self._order(ids[candidates][first], keys[owner[first]], column[candidates][first]),
            np.bincount(unit),
            len(lengths),
            keys,
        )[unit]
        positions = candidates[selected]
        # a span is masked, replaced or kept as a whole (Joshi et al. 2019, section 3.1)
        together = column[candidates][first][unit[selected]]
        drawn_at = together if self.config.unit == "span" else column[positions]
        return self._replace(ids, positions, keys[sequence[positions]], column[positions], drawn_at)

    def _unit_starts(
        self, ids: Numbers, positions: Numbers, owner: Numbers, keys: Bits, column: Numbers
    ) -> NDArray[np.bool_]:
        """Mark the candidates (candidates,), in sequence order, that begin a unit."""
        if self.config.unit == "token":
            return np.ones(len(ids), bool)
        adjacent = np.r_[False, (np.diff(positions) == 1) & (np.diff(owner) == 0)]
        word: NDArray[np.bool_] = ~self._continues[ids] | ~adjacent
        if self.config.unit == "word":
            return word
        draws = uniform(bits(keys[owner], -4), column)[word]
        start = word.copy()
        start[word] = _unit_begins(
            ~adjacent[word], 1 + np.searchsorted(self._lengths, draws, "right")
        )
        return start

    def _order(self, first: Numbers, keys: Bits, column: Numbers) -> NDArray[Any]:
        """Return numbers by which units (units,) are ordered, given their first tokens.

        With weights, a unit comes early with a probability in proportion to its own: draws from an
        exponential distribution over the weights (Efraimidis & Spirakis 2006).
        """
        if self._weights is None:
            return bits(keys, column)
        return -np.log1p(-uniform(keys, column)) / self._weights[first]

    def _selected(
        self, owner: Numbers, drawn: NDArray[Any], size: Numbers, sequences: int, keys: Bits
    ) -> NDArray[np.bool_]:
        """Mark the units (units,) of `size` tokens to predict, in the order of what was drawn."""
        order = np.lexsort((drawn, owner))
        tokens = np.bincount(owner, size, sequences)
        sizes, owners = size[order], owner[order]
        tokens_before = np.cumsum(sizes) - sizes - (np.cumsum(tokens) - tokens)[owners]
        missing = tokens[owners] * self.config.probability - tokens_before
        selected = np.empty(len(size), bool)
        selected[order] = uniform(keys, -1)[owners] * sizes < missing
        return selected

    def _replace(
        self, ids: Numbers, positions: Numbers, keys: Bits, column: Numbers, drawn_at: Numbers
    ) -> Masked:
        action = uniform(bits(keys, -2), drawn_at)
        random = self._ordinary[random_integers(len(self._ordinary), bits(keys, -3), column)]
        config = self.config
        hidden = ids.copy()
        shown = np.where(action < config.as_mask + config.as_random, random, ids[positions])
        hidden[positions] = np.where(action < config.as_mask, self._mask_id, shown)
        return Masked(ids=hidden, positions=positions, labels=ids[positions])


def _cumulated_lengths(config: MaskingConfig) -> NDArray[np.float64]:
    """Return the probability that a unit has at most 1, 2, ... words."""
    words = np.arange(1, 1 + (_MAX_NGRAM_LENGTH if config.unit == "ngram" else _MAX_SPAN_LENGTH))
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


def following(batch: Batch, ordinary: NDArray[np.bool_]) -> Target:
    """Return the target of left-to-right language modelling for a batch.

    It lies at the tokens that an ordinary token of the same sequence follows, and its labels are
    these following tokens; `ordinary` (vocabulary,) excludes the special tokens.
    """
    ids = batch.ids.numpy()
    follows = ordinary[ids]
    # nothing is predicted across sequences, whether or not a special token begins them
    follows[batch.starts.numpy()] = False
    after = np.flatnonzero(follows)
    return _target(after - 1, ids[after])


class PhasedBatches:
    """The batches of several phases, each of which iterates over the corpus separately.

    The paper's run (Devlin et al. 2018, appendix A.2) is one phase, nine tenths of the steps with
    128 tokens, before a rest with 512. A position contains its phase, so batches are a pure
    function of the position; only `enter` depends on the progress of the run.
    """

    def __init__(
        self,
        store: TokenStore,
        inventory: TokenInventory,
        config: SampleConfig,
        phases: Sequence[Phase],
        seed: int,
    ) -> None:
        """`phases` precede the rest of the run, whose sequences `config` describes."""
        check_phases(config, phases)
        self._ends = list(accumulate(phase.share for phase in phases))
        configs = [_config_of_phase(config, phase) for phase in phases]
        self.parts = [
            PretrainingBatches(store, inventory, phase_config, seed)
            for phase_config in (*configs, config)
        ]

    def next_batch(self, position: DataPosition) -> tuple[Batch, DataPosition]:
        """Return the batch at a position, and the position after it."""
        return self.parts[position.phase].next_batch(position)

    def after(self, position: DataPosition) -> DataPosition:
        """Return the position after the batch at a position, at a quarter of the batch's cost."""
        return self.parts[position.phase].after(position)

    def enter(self, position: DataPosition, progress: float) -> DataPosition:
        """Return the position to continue from when a share `progress` of the budget is spent.

        It is the same position, or the beginning of an epoch in the phase that is due.
        """
        phase = bisect_right(self._ends, progress)
        if phase <= position.phase:
            return position
        return replace(position, phase=phase, epoch=position.epoch + (position.index > 0), index=0)


def _config_of_phase(config: SampleConfig, phase: Phase) -> SampleConfig:
    tokens = phase.tokens_per_batch or config.tokens_per_batch
    return replace(config, max_length=phase.max_length, tokens_per_batch=tokens)


class PretrainingBatches:
    """The sequences of a store, with an order and masks that depend on (seed, epoch, index)."""

    def __init__(
        self, store: TokenStore, inventory: TokenInventory, config: SampleConfig, seed: int
    ) -> None:
        if not store.tokens:
            raise StoreError("holds no text", where=store.folder)
        if config.text == "next_sentence" and store.index.documents < 2:
            raise StoreError(
                "holds one document, and a random next sentence needs another",
                where=store.folder,
                remedy="put blank lines between documents, or pre-train with "
                "--sequences within_documents",
            )
        if inventory.sep_id is None and (config.pairs or config.text == "across_documents"):
            raise ConfigError(
                f"the inventory of tokens has no separator, which {config.text} needs",
                remedy="pre-train with --sequences within_documents",
            )
        self.store = store
        self.config = config
        self._inventory = inventory
        self._ordinary = np.ones(inventory.size, bool)
        self._ordinary[sorted(inventory.special_ids)] = False
        self._seed = seed
        counts = store.counts(inventory.size) if config.masking.smoothing else None
        self._masking = None if config.left_to_right else Masking(config.masking, inventory, counts)
        self._segments = Segments(
            store,
            config.text,
            config.max_length,
            inventory.continues,
            seed,
            config.short_sequences,
            specials=inventory.specials_around(pair=config.pairs),
        )

    @property
    def sequences(self) -> int:
        """Number of sequences per epoch."""
        return self._segments.count

    def next_batch(self, position: DataPosition) -> tuple[Batch, DataPosition]:
        """Return the batch at a position, and the position after it."""
        index, copy, cuts = self._filling(position)
        return self._batch(index, copy, cuts), self._advanced(position, len(index))

    def after(self, position: DataPosition) -> DataPosition:
        """Return the position after the batch at a position, at a quarter of the batch's cost."""
        index, _, _ = self._filling(position)
        return self._advanced(position, len(index))

    def samples(self, index: NDArray[np.int64], epoch: int) -> Batch:
        """Return the given sequences of an epoch as one batch."""
        index, copy = self._in_copy(index, epoch)
        return self._batch(index, copy, self._segments.cut(index, copy))

    def _advanced(self, position: DataPosition, sequences: int) -> DataPosition:
        after = position.index + sequences
        if after < self.sequences:
            return replace(position, index=after)
        return replace(position, epoch=position.epoch + 1, index=0)

    def _filling(self, position: DataPosition) -> tuple[NDArray[np.int64], int, Cuts]:
        """Return the sequences that fill the token budget: their indices, copy and cuts."""
        budget, specials = self.config.tokens_per_batch, self._segments.specials
        guess = 8 + budget * 5 // (4 * self.config.max_length)
        while True:
            index = np.arange(position.index, min(position.index + guess, self.sequences))
            index, copy = self._in_copy(index, position.epoch)
            cuts = self._segments.cut(index, copy)
            sizes = np.cumsum(cuts.lengths + specials)
            if sizes[-1] >= budget or position.index + guess >= self.sequences:
                count = int(np.searchsorted(sizes, budget, side="right"))
                return index[:count], copy, cuts.first(count)
            guess *= 2

    def _in_copy(self, index: NDArray[np.int64], epoch: int) -> tuple[NDArray[np.int64], int]:
        """Return the indices in a copy of the text, and the copy; without copies, the epoch."""
        if not self.config.copies:
            return index, epoch
        order = stream(Purpose.COPY_ORDER, self._seed, epoch)
        return permuted(index, self.sequences, order), epoch % self.config.copies

    def _batch(self, index: NDArray[np.int64], copy: int, cuts: Cuts) -> Batch:
        samples = self._segments.read(index, copy, cuts)
        ids, segments = zip(*(self._with_specials(sample) for sample in samples), strict=True)
        batch = pack(ids, segments)
        targets = {}
        if self._masking is None:
            targets["left_to_right"] = following(batch, self._ordinary)
        else:
            keys = bits(stream(Purpose.MASKS, self._seed, copy), index)
            masked = self._masking(batch.ids.numpy(), np.asarray(batch.lengths), keys)
            batch = replace(batch, ids=torch.from_numpy(masked.ids))
            targets["masked_lm"] = _target(masked.positions, masked.labels)
        extras = {}
        if self.config.replaced_tokens:
            keys = bits(stream(Purpose.REPLACEMENTS, self._seed, copy), index)
            owner = np.repeat(np.arange(len(index)), batch.lengths)[masked.positions]
            draws = uniform(keys[owner], batch.positions.numpy()[masked.positions])
            extras["draws"] = torch.from_numpy(draws)
            # the labels are known when the generator has drawn
            every = np.arange(batch.tokens)
            targets["replaced_tokens"] = _target(every, np.zeros_like(every))
        if self.config.pairs:
            labels = [(i, item.label) for i, item in enumerate(samples) if item.label is not None]
            pairs = _target(*np.array(labels, np.int64).reshape(-1, 2).T)
            targets[self.config.text] = replace(pairs, by_sequence=True)
        return replace(batch, targets=targets, given=extras)

    def _with_specials(self, sample: Sample) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
        inventory = self._inventory
        if sample.label is not None:
            first, second = sample.parts
            longest = len(first) + len(second) + inventory.specials_around(pair=True)
            return encode_pair(inventory, first, second, longest=longest)
        ends = [part for text in sample.parts for part in (text, inventory.end)]
        ids = np.concatenate([inventory.begin, *ends]).astype(np.int32)
        return ids, np.zeros(len(ids), np.int8)


def _target(positions: NDArray[np.int64], labels: NDArray[np.int64]) -> Target:
    return Target(positions=torch.from_numpy(positions), labels=torch.from_numpy(labels))
