"""Token ids with where each of them stands in the text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """A text as token ids; `ids`, `starts` and `ends` are each (pieces,).

    Piece i stands for ``text[starts[i]:ends[i]]``, counted in characters of the text as it was
    given, as the offset mapping of `transformers`.
    """

    ids: NDArray[np.int32]
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.ids)


class Stretch(NamedTuple):
    """A part of a text as pieces: ids and where they start and end, counted from `place`."""

    place: int
    ids: Sequence[int]
    starts: Sequence[int]
    ends: Sequence[int]


def joined(stretches: Iterable[Stretch]) -> Encoding:
    """Parts of a text, in its order, as one."""
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


_REMEMBERED = 200_000
_LONGEST_REMEMBERED = 48

Worked = TypeVar("Worked")


class Remembered(dict[str, Worked]):
    """The ids of a stretch of text, or whatever else depends on nothing but the stretch.

    Memory is bounded: when it is full, everything is forgotten; long stretches are not kept.
    """

    def __init__(self, work_out: Callable[[str], Worked]) -> None:
        super().__init__()
        self._work_out = work_out

    def __missing__(self, stretch: str) -> Worked:
        found = self._work_out(stretch)
        if len(stretch) <= _LONGEST_REMEMBERED:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[stretch] = found
        return found
