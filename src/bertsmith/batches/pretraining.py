"""Batches for pre-training: pairs of segments with some tokens masked, from a token store."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.batches.batch import Batch, Target, pack
from bertsmith.batches.masking import Masking, MaskingConfig
from bertsmith.batches.randomness import below, bits, permuted, stream, uniform
from bertsmith.batches.store import TokenStore
from bertsmith.batches.windows import Cuts, Windows
from bertsmith.config import Config
from bertsmith.errors import ConfigError, StoreError
from bertsmith.tokens.tokenizer import Tokenizer

IS_NEXT, IS_RANDOM = 0, 1

# purposes of random streams, so that no two draw the same numbers
_ORDER, _CUTS, _PAIRS, _RANDOM_DOCUMENT, _MASKS = range(5)


@dataclass(frozen=True, kw_only=True)
class SampleConfig(Config):
    """What a training sequence is made of."""

    longest: int = 128
    """Tokens a sequence at most, [CLS] and [SEP] included."""
    tokens_per_batch: int = 8192
    """Tokens a batch at most."""
    pairs: bool = True
    """Two segments and the next-sentence objective, or one segment."""
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    """Which tokens are predicted."""

    def __post_init__(self) -> None:
        if self.longest < 8:
            raise ConfigError(f"longest is {self.longest}", remedy="it must be at least 8 tokens")
        if self.tokens_per_batch < self.longest:
            raise ConfigError(
                f"tokens_per_batch ({self.tokens_per_batch}) holds no sequence of {self.longest}"
            )


@dataclass(frozen=True, kw_only=True)
class Place(Config):
    """Where training stands in the data: two integers, and all that a resumed run needs of it."""

    epoch: int = 0
    """Times the corpus was gone through."""
    index: int = 0
    """Sequences used in this epoch."""


@dataclass(frozen=True, slots=True)
class _Sample:
    first: NDArray[np.integer]
    second: NDArray[np.integer] | None
    label: int | None


class PretrainingBatches:
    """The samples of a store in an order, pairing and masking that depend on (seed, epoch, index).

    Next-sentence pairs (Devlin et al. 2018, section 3.1, task 2): a window of text is cut at a
    beginning of a sentence into A and B; for half of the windows B is exchanged for text of the
    same length from another document, mostly by swapping with the neighbour in the epoch's order,
    so that little text is seen twice and lengths tell nothing of the label. A window without a
    beginning of a sentence inside stays one segment and carries no label.
    """

    def __init__(
        self, store: TokenStore, tokenizer: Tokenizer, config: SampleConfig, seed: int
    ) -> None:
        if not store.tokens:
            raise StoreError("holds no text", where=store.folder)
        if config.pairs and store.index.documents < 2:
            raise StoreError(
                "holds one document, and a random next sentence needs another",
                where=store.folder,
                remedy="put blank lines between documents, or pre-train with --samples.pairs false",
            )
        self.config = config
        self._store = store
        self._tokenizer = tokenizer
        self._seed = seed
        self._masking = Masking(config.masking, tokenizer)
        budget = config.longest - (3 if config.pairs else 2)
        cuts_seed = int(stream(seed, _CUTS))
        self._windows = Windows(store, budget, tokenizer.continues, cuts_seed)

    @property
    def sequences(self) -> int:
        """Sequences an epoch."""
        return self._windows.count

    def take(self, place: Place) -> tuple[Batch, Place]:
        """The batch that begins at a place, and the place after it."""
        cuts = self._fill(place)
        index = np.arange(place.index, place.index + len(cuts))
        batch = self._batch(index, place.epoch, cuts)
        after = replace(place, index=place.index + len(cuts))
        return batch, after if after.index < self.sequences else Place(epoch=place.epoch + 1)

    def _fill(self, place: Place) -> Cuts:
        """As many windows from a place on as the token budget holds."""
        budget, specials = self.config.tokens_per_batch, 3 if self.config.pairs else 2
        guess = 8 + budget * 5 // (4 * self.config.longest)
        while True:
            index = np.arange(place.index, min(place.index + guess, self.sequences))
            cuts = self._windows.cut(self._numbers(index, place.epoch), place.epoch)
            sizes = np.cumsum(cuts.ends - cuts.starts + specials)
            if sizes[-1] >= budget or place.index + guess >= self.sequences:
                return cuts.first(int(np.searchsorted(sizes, budget, side="right")))
            guess *= 2

    def samples(self, index: NDArray[np.int64], epoch: int) -> Batch:
        """The samples with these numbers of an epoch as one batch."""
        return self._batch(index, epoch, self._windows.cut(self._numbers(index, epoch), epoch))

    def _batch(self, index: NDArray[np.int64], epoch: int, own: Cuts) -> Batch:
        samples = self._pairs(index, epoch, own) if self.config.pairs else self._singles(own)
        ids, segments = zip(*(self._with_specials(sample) for sample in samples), strict=True)
        batch = pack(ids, segments)
        keys = bits(stream(self._seed, epoch, _MASKS), index)
        masked = self._masking(batch.ids.numpy(), np.asarray(batch.lengths), keys)
        targets = {
            "masked_lm": Target(
                at=torch.from_numpy(masked.at), labels=torch.from_numpy(masked.labels)
            )
        }
        if self.config.pairs:
            at = [i for i, sample in enumerate(samples) if sample.label is not None]
            labels = [sample.label for sample in samples if sample.label is not None]
            targets["next_sentence"] = Target(
                at=torch.tensor(at, dtype=torch.int64),
                labels=torch.tensor(labels, dtype=torch.int64),
            )
        return replace(batch, ids=torch.from_numpy(masked.ids), targets=targets)

    def _numbers(self, index: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        return permuted(index, self.sequences, stream(self._seed, epoch, _ORDER))

    def _singles(self, cuts: Cuts) -> list[_Sample]:
        read = self._store.read
        ranges = zip(cuts.starts.tolist(), cuts.ends.tolist(), strict=True)
        return [_Sample(read(start, end), None, None) for start, end in ranges]

    def _pairs(self, index: NDArray[np.int64], epoch: int, own: Cuts) -> list[_Sample]:
        partner = np.where((index ^ 1) < self.sequences, index ^ 1, index)
        other = self._windows.cut(self._numbers(partner, epoch), epoch)
        key = stream(self._seed, epoch, _PAIRS)
        share = 0.1 + 0.8 * uniform(key, index // 2)
        random = bits(key, index // 2) & np.uint64(1) == 1
        own_split = self._splits(own.starts, own.ends, share)
        other_split = self._splits(other.starts, other.ends, share)
        samples = []
        for i, split in enumerate(own_split.tolist()):
            start, end = int(own.starts[i]), int(own.ends[i])
            if not start < split < end:
                samples.append(_Sample(self._store.read(start, end), None, None))
                continue
            first = self._store.read(start, split)
            if not random[i]:
                samples.append(_Sample(first, self._store.read(split, end), IS_NEXT))
                continue
            document = int(other.documents[i])
            begin = int(other_split[i])
            if document == own.documents[i] or begin < 0:
                document, begin = self._elsewhere(int(index[i]), int(own.documents[i]), epoch)
            stop = min(begin + end - split, self._windows.document_end(document))
            samples.append(_Sample(first, self._store.read(begin, stop), IS_RANDOM))
        return samples

    def _splits(
        self, starts: NDArray[np.int64], ends: NDArray[np.int64], share: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """The beginning of a sentence inside each window nearest to a share of it; -1 if none."""
        sentences = self._store.sentences
        wanted = starts + (ends - starts) * share
        after = np.minimum(np.searchsorted(sentences, wanted), len(sentences) - 1)
        up, down = np.asarray(sentences[after]), np.asarray(sentences[np.maximum(after - 1, 0)])
        up_inside, down_inside = (starts < up) & (up < ends), (starts < down) & (down < ends)
        nearer_up = up_inside & (~down_inside | (up - wanted <= wanted - down))
        return np.where(nearer_up, up, np.where(down_inside, down, -1))

    def _elsewhere(self, index: int, document: int, epoch: int) -> tuple[int, int]:
        """A random document other than the given one, and a beginning of a sentence in it."""
        key = stream(self._seed, epoch, _RANDOM_DOCUMENT, index)
        drawn = int(below(self._store.index.documents - 1, key, 0))
        drawn += drawn >= document
        first, last = self._store.documents[drawn : drawn + 2].tolist()
        sentence = first + int(below(last - first, key, 1))
        return drawn, int(self._store.sentences[sentence])

    def _with_specials(self, sample: _Sample) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        parts = [sample.first] if sample.second is None else [sample.first, sample.second]
        cls, sep = [self._tokenizer.cls_id], [self._tokenizer.sep_id]
        ids = np.concatenate([cls, *(piece for part in parts for piece in (part, sep))])
        segments = np.zeros(len(ids), np.int64)
        segments[len(sample.first) + 2 :] = 1
        return ids, segments
