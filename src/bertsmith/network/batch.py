"""The one kind of batch: sequences packed end to end, without padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.core.shapes import Offsets, TokenIds


@dataclass(frozen=True, kw_only=True)
class Target:
    """The labels to predict, and their positions.

    `positions` (targets,) indexes the batch's tokens, or its sequences for objectives that read one
    vector a sequence (`by_sequence`); `labels` (targets,) holds class numbers, token ids or, for
    regression, floats.
    """

    positions: Tensor
    labels: Tensor
    by_sequence: bool = False

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> Target:
        """Return the same target on another device."""
        return replace(
            self, positions=moved(self.positions, device), labels=moved(self.labels, device)
        )

    def between(self, begin: int, end: int) -> Target:
        """Return the labels from `begin` to before `end`, at positions counted from there."""
        inside = (self.positions >= begin) & (self.positions < end)
        return replace(self, positions=self.positions[inside] - begin, labels=self.labels[inside])


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The tokens of some sequences, end to end.

    `ids`, `segments` and `positions` are (tokens,); `offsets` is (sequences + 1,), its last entry
    the number of tokens; `lengths` repeats the differences of `offsets` on the host, so that
    nothing waits for an accelerator. `targets` are named by the objective that reads them, `given`
    is what else one reads, such as random numbers.
    """

    ids: TokenIds
    segments: TokenIds
    positions: TokenIds
    offsets: Offsets
    lengths: tuple[int, ...]
    targets: Mapping[str, Target] = field(default_factory=dict)
    given: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return len(self.ids)

    @property
    def sequences(self) -> int:
        """Number of sequences."""
        return len(self.lengths)

    @property
    def starts(self) -> Tensor:
        """The first token of each sequence, (sequences,): the position of its [CLS]."""
        return self.offsets[:-1]

    def parts(self, count: int) -> list[Batch]:
        """Cut the batch between sequences into at most `count` parts of about as many tokens."""
        assert not self.given, "what terms are given cannot be cut"
        ends = np.cumsum(self.lengths)
        ideal_ends = np.arange(1, count) * (self.tokens / count)
        # the first sequence that ends behind the place where a part should
        inner = np.searchsorted(ends, ideal_ends) + 1
        edges = np.unique(np.clip([0, *inner.tolist(), self.sequences], 0, self.sequences))
        return [self._part(int(a), int(b)) for a, b in pairwise(edges.tolist())]

    def _part(self, first: int, last: int) -> Batch:
        """Return the sequences from `first` to before `last`."""
        begin, end = int(self.offsets[first]), int(self.offsets[last])
        targets = {
            name: target.between(*((first, last) if target.by_sequence else (begin, end)))
            for name, target in self.targets.items()
        }
        return Batch(
            ids=self.ids[begin:end],
            segments=self.segments[begin:end],
            positions=self.positions[begin:end],
            offsets=self.offsets[first : last + 1] - begin,
            lengths=self.lengths[first:last],
            targets=targets,
        )

    def to(self, device: torch.device) -> Batch:
        """Return the same batch on another device."""
        if self.ids.device == device:
            return self
        return replace(
            self,
            ids=moved(self.ids, device),
            segments=moved(self.segments, device),
            positions=moved(self.positions, device),
            offsets=moved(self.offsets, device),
            targets={name: target.to(device) for name, target in self.targets.items()},
            given={name: moved(value, device) for name, value in self.given.items()},
        )


# bytes that a driver copies to a GPU without waiting for it
_STAGED = 2**16


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor on another device; for a GPU, the host does not wait until it is there.

    With much in memory that is not pinned it would, until the GPU has done all it was asked before.
    """
    waits = device.type == "cuda" and tensor.device.type == "cpu" and tensor.nbytes > _STAGED
    return (tensor.pin_memory() if waits else tensor).to(device, non_blocking=True)


def offsets_of(lengths: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the offsets of consecutive runs of these lengths, and the end of the last."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def pack(
    ids: Sequence[NDArray[np.integer]],
    segments: Sequence[NDArray[np.integer]],
    targets: Mapping[str, Target] | None = None,
) -> Batch:
    """Pack sequences of token ids and their segment numbers, each (length,), end to end."""
    lengths = tuple(len(sequence) for sequence in ids)
    offsets = offsets_of(lengths)
    positions = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    return Batch(
        ids=torch.from_numpy(np.concatenate(ids).astype(np.int64)),
        segments=torch.from_numpy(np.concatenate(segments).astype(np.int64)),
        positions=torch.from_numpy(positions),
        offsets=torch.from_numpy(offsets),
        lengths=lengths,
        targets=targets or {},
    )
