"""Documents that share most of their text with another one, without comparing each with each.

By MinHash (Broder 1997): of a document's runs of 5 tokens the least hash under each of 24 keys is
kept. Two documents agree in as many of these as the share of runs they have in common. Documents
that agree in one of 8 bands of 3 are compared, which finds 97 % of the pairs that share 70 %.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.randomness import Purpose, bits, stream
from bertsmith.batches.store import TokenStore

Numbers = NDArray[np.int64]

_SHINGLE, _BANDS, _ROWS = 5, 8, 3
_ALIKE = 0.5
_LONGEST, _SHORTEST = 5_000, 20
_SHOWN = 40


class Likeness:
    """Gathers documents of a store; `found` tells how many are near duplicates."""

    def __init__(self, store: TokenStore) -> None:
        self._store = store
        self._ends = store.document_starts()
        self._keys = bits(stream(Purpose.MINHASH), np.arange(_BANDS * _ROWS))
        self._signatures: list[NDArray[np.uint32]] = []
        self._begins: list[Numbers] = []

    @property
    def documents(self) -> int:
        """Documents looked at; those of under 20 tokens are left out."""
        return sum(map(len, self._begins))

    def add(self, begins: Numbers) -> None:
        """Look at the documents that begin at these tokens, neighbours in one file, in order."""
        begins = np.unique(begins)  # a document may be empty
        ends = self._ends[np.searchsorted(self._ends, begins, side="right")]
        ends = np.minimum(ends, begins + _LONGEST)
        begins, ends = (part[ends - begins >= _SHORTEST] for part in (begins, ends))
        if len(begins):
            origin = int(begins[0])
            ids = self._store.read(origin, int(ends.max())).astype(np.int64)
            self._signatures.append(self._signed(ids, begins - origin, ends - origin))
            self._begins.append(begins)

    def found(self) -> tuple[float, tuple[int, int]]:
        """The share of near duplicates, and (token, length) of the beginning of one, or (0, 0)."""
        if not self._begins:
            return 0.0, (0, 0)
        signatures, begins = np.concatenate(self._signatures), np.concatenate(self._begins)
        twins = np.zeros(len(begins), np.int64)
        for band in np.split(signatures, _BANDS, axis=1):
            keys = bits(bits(band[:, 0].astype(np.uint64), band[:, 1]), band[:, 2])
            _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
            other = first[inverse]
            same = (signatures == signatures[other]).mean(1) >= _ALIKE
            same &= other != np.arange(len(begins))
            twins += same
            np.add.at(twins, other[same], 1)
        commonest = int(twins.argmax())
        if not twins[commonest]:
            return 0.0, (0, 0)
        start = int(begins[commonest])
        end = int(self._ends[np.searchsorted(self._ends, start, side="right")])
        return float(np.mean(twins > 0)), (start, min(_SHOWN, end - start))

    def _signed(self, ids: Numbers, begins: Numbers, ends: Numbers) -> NDArray[np.uint32]:
        """The least hashes of the documents' shingles, (documents, keys)."""
        shingles = np.zeros(len(ids) - _SHINGLE + 1, np.uint64)
        for place in range(_SHINGLE):
            shingles = bits(shingles, ids[place : place + len(shingles)])
        edges = np.stack([begins, ends - _SHINGLE + 1], axis=1).ravel()
        shingles = np.append(shingles, np.uint64(0))
        # a product with an odd number changes the order of numbers that are random already
        hashes = [
            np.minimum.reduceat(shingles * (key | np.uint64(1)), edges)[::2] for key in self._keys
        ]
        return (np.stack(hashes, axis=1) >> np.uint64(32)).astype(np.uint32)
