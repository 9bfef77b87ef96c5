"""Token ids with their positions in the text, and a cache of encoded words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """The token ids of a text; `ids`, `starts` and `ends` are each (pieces,).

    Piece i represents ``text[starts[i]:ends[i]]``, in characters of the original text, as in the
    offset mapping of `transformers`.
    """

    ids: NDArray[np.int32]
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.ids)


class Stretch(NamedTuple):
    """A part of a text as pieces: ids, and their starts and ends relative to `place`."""

    place: int
    ids: Sequence[int]
    starts: Sequence[int]
    ends: Sequence[int]


def joined(stretches: Iterable[Stretch]) -> Encoding:
    """Return the encoding of a text from its parts, in order."""
    parts = list(stretches)
    sizes = [len(part.ids) for part in parts]
    places = np.repeat(np.array([part.place for part in parts], np.int32), sizes)

    def flat(rows: Iterable[Sequence[int]]) -> NDArray[np.int32]:
        return np.fromiter(chain.from_iterable(rows), np.int32, len(places))

    return Encoding(
        ids=flat(part.ids for part in parts),
        starts=flat(part.starts for part in parts) + places,
        ends=flat(part.ends for part in parts) + places,
    )


_CACHE_SIZE = 200_000
_LONGEST_CACHED = 48

Value = TypeVar("Value")


class Remembered(dict[str, Value]):
    """A cache of the ids of a piece of text, or of any other function of it.

    Memory is bounded: when the cache is full, it is cleared; long texts are not stored.
    """

    def __init__(self, compute: Callable[[str], Value]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, stretch: str) -> Value:
        value = self._compute(stretch)
        if len(stretch) <= _LONGEST_CACHED:
            if len(self) >= _CACHE_SIZE:
                self.clear()
            self[stretch] = value
        return value
