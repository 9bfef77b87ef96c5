"""Texts that came before, exactly and in bounded memory, however many there are.

A text is known by 128 bits of BLAKE2. The digests are first kept in a table in memory; a full table
is sorted and written to a file, and eight files of a size are merged into one. A Bloom filter
(Bloom 1970) of fixed size tells most of those that are in no file without looking there.

Memory: 71 MB for the table, which holds two million documents, 67 MB more for the filter when there
are more, and 32 KB for each further million: what says where in the files to look. A moment of 120
MB is added when a table is sorted. On disk: 16 bytes a document in a log, in their order, from
which all else is made again after an interruption, and 16 in the sorted files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertsmith.core.errors import StoreError
from bertsmith.core.files import write_all
from bertsmith.store.writing import BEGIN_ANEW

DIGEST_BYTES = 16

Digests = NDArray[np.uint64]
"""Digests as (documents, 2) halves; the first is the more significant."""

_TABLE_SLOTS = 1 << 22
_FILTER_BITS = 1 << 29
_PAGE = 256  # digests that are read at a time, 4 KB
_MERGED = 8
_REPLAYED = 1 << 16


class SeenTexts:
    """The digests that have come before; they are kept in a folder as well."""

    def __init__(
        self,
        folder: Path,
        *,
        count: int = 0,
        slots: int = _TABLE_SLOTS,
        filter_bits: int = _FILTER_BITS,
    ) -> None:
        """Start from nothing, or resume with the first `count` digests of the folder's log."""
        self._folder = folder
        folder.mkdir(exist_ok=True)
        for path in folder.glob("sorted-*"):
            path.unlink()
        self._table = _Table(slots)
        self._filter: NDArray[np.uint8] | None = None
        self._filter_bits = filter_bits
        self._files: list[_SortedFile] = []
        self._made = 0
        self.count = 0
        self.log = folder / "digests.bin"
        self._log = self.log.open("a+b", buffering=0)
        if self.log.stat().st_size < count * DIGEST_BYTES:
            self._log.close()
            raise StoreError("is shorter than it was", where=self.log, remedy=BEGIN_ANEW)
        self._log.truncate(count * DIGEST_BYTES)
        for start in range(0, count, _REPLAYED):
            self._insert(_read(self._log.fileno(), start, start + _REPLAYED))
        self.count = count

    def add(self, digests: Digests) -> NDArray[np.bool_]:
        """Return which of some digests, all different, are new (documents,), and remember them."""
        old = self._table.holds(digests)
        maybe = np.flatnonzero(~old)
        maybe = maybe[self._passes(digests[maybe])]
        for file in self._files:
            result = file.holds(digests[maybe])
            old[maybe[result]] = True
            maybe = maybe[~result]
        new = digests[~old]
        write_all(self._log, new.astype("<u8").tobytes())
        self._insert(new)
        self.count += len(new)
        return ~old

    def close(self) -> None:
        """Close the files."""
        self._log.close()
        for file in self._files:
            file.close()

    def _insert(self, digests: Digests) -> None:
        """Put digests that are new into the table, emptied into a file when it is half full."""
        while len(digests):
            room = self._table.room
            self._table.insert(digests[:room])
            digests = digests[room:]
            if not self._table.room:
                full = self._table.take()
                self._note(full)
                self._files.append(self._write([full]))
                self._merge()

    def _note(self, digests: Digests) -> None:
        if self._filter is None:
            self._filter = np.zeros(self._filter_bits // 8, np.uint8)
        for bits in self._bits(digests):
            np.bitwise_or.at(self._filter, bits >> 3, np.uint8(1) << (bits & 7).astype(np.uint8))

    def _passes(self, digests: Digests) -> NDArray[np.bool_]:
        if self._filter is None:
            return np.zeros(len(digests), bool)
        passes = np.ones(len(digests), bool)
        for bits in self._bits(digests):
            passes &= (self._filter[bits >> 3] >> (bits & 7).astype(np.uint8)) & 1 == 1
        return passes

    def _bits(self, digests: Digests) -> Iterator[NDArray[np.int64]]:
        """Yield three places in the filter for each digest."""
        high, low = digests[:, 0], digests[:, 1]
        for part in (low, low >> np.uint64(32), high):
            yield (part % np.uint64(self._filter_bits)).astype(np.int64)

    def _merge(self) -> None:
        """Make one file of the last eight while these are of one size."""
        while len(self._files) >= _MERGED:
            last = self._files[-_MERGED:]
            if last[0].count != last[-1].count:
                break
            merged = self._write(_merged(last))
            for file in last:
                file.close()
                file.path.unlink()
            self._files[-_MERGED:] = [merged]

    def _write(self, parts: Sequence[Digests] | Iterator[Digests]) -> _SortedFile:
        self._made += 1
        path = self._folder / f"sorted-{self._made}.bin"
        fences = []
        count = 0
        with path.open("wb", buffering=0) as file:
            for part in parts:
                write_all(file, part.astype("<u8").tobytes())
                # a copy, else it would hold on to all of the part
                fences.append(part[-count % _PAGE :: _PAGE, 0].copy())
                count += len(part)
        return _SortedFile(path, count, np.concatenate(fences))


class _Table:
    """A set of digests in memory: open addressing, a slot for two of them at most half in use."""

    def __init__(self, slots: int) -> None:
        self._slots: Digests = np.zeros((slots, 2), np.uint64)
        self._used = np.zeros(slots, bool)
        self.room = slots // 2

    def holds(self, digests: Digests) -> NDArray[np.bool_]:
        results = np.zeros(len(digests), bool)
        pending = np.arange(len(digests))
        slot = self._first(digests)
        while len(pending):
            equal = (self._slots[slot] == digests[pending]).all(axis=1)
            used = self._used[slot]
            results[pending[equal & used]] = True
            on = used & ~equal
            pending, slot = pending[on], self._next(slot[on])
        return results

    def insert(self, digests: Digests) -> None:
        self.room -= len(digests)
        slot = self._first(digests)
        while len(digests):
            free = ~self._used[slot]
            self._slots[slot[free]] = digests[free]
            # of several that want one slot, the one that got it
            stays = free & (self._slots[slot] == digests).all(axis=1)
            self._used[slot[free]] = True
            digests, slot = digests[~stays], self._next(slot[~stays])

    def take(self) -> Digests:
        """Return all digests, sorted; the table is empty then."""
        taken = self._slots[self._used]
        self._used[:] = False
        self.room = len(self._used) // 2
        return _sorted(taken)

    def _first(self, digests: Digests) -> NDArray[np.int64]:
        return (digests[:, 1] % np.uint64(len(self._used))).astype(np.int64)

    def _next(self, slot: NDArray[np.int64]) -> NDArray[np.int64]:
        return (slot + 1) % len(self._used)


class _SortedFile:
    """Sorted digests in a file; `fences` are the first halves of every 256th."""

    def __init__(self, path: Path, count: int, fences: Digests) -> None:
        self.path = path
        self.count = count
        self._fences = fences
        self._handle = os.open(path, os.O_RDONLY)

    def holds(self, digests: Digests) -> NDArray[np.bool_]:
        """Return which of the digests are in the file (documents,)."""
        first = digests[:, 0]
        # equal first halves may lie on both sides of a fence
        start = np.maximum(np.searchsorted(self._fences, first, side="left") - 1, 0)
        stop = np.searchsorted(self._fences, first, side="right")
        results = np.zeros(len(digests), bool)
        for number, (begin, end) in enumerate(zip(start.tolist(), stop.tolist(), strict=True)):
            part = self.read(begin * _PAGE, end * _PAGE)
            results[number] = bool((part == digests[number]).all(axis=1).any())
        return results

    def read(self, start: int, stop: int) -> Digests:
        """Return digests start to stop, or to the last."""
        return _read(self._handle, start, min(stop, self.count))

    def close(self) -> None:
        with suppress(OSError):
            os.close(self._handle)


def _merged(files: Sequence[_SortedFile]) -> Iterator[Digests]:
    """Yield the digests of several sorted files, sorted, a part at a time."""
    places = [0] * len(files)
    while True:
        heads = [file.read(at, at + _REPLAYED) for file, at in zip(files, places, strict=True)]
        nonempty = [head for head in heads if len(head)]
        if not nonempty:
            return
        # beyond the smallest last one there may be more to come in between
        limit = min(head[-1, 0] for head in nonempty)
        cuts = [int(np.searchsorted(head[:, 0], limit, side="right")) for head in heads]
        yield _sorted(np.concatenate([head[:cut] for head, cut in zip(heads, cuts, strict=True)]))
        places = [at + cut for at, cut in zip(places, cuts, strict=True)]


def _read(handle: int, start: int, stop: int) -> Digests:
    data = os.pread(handle, max(0, stop - start) * DIGEST_BYTES, start * DIGEST_BYTES)
    return np.frombuffer(data, "<u8").reshape(-1, 2).astype(np.uint64)


def _sorted(digests: Digests) -> Digests:
    return digests[np.lexsort((digests[:, 1], digests[:, 0]))]
