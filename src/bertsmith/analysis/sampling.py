"""A fixed number of items of a stream of unknown length, each as likely as any other."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

from bertsmith.core.streams import Purpose, stream

T = TypeVar("T")


class Sample(Generic[T]):
    """The `size` items with the smallest random numbers; the number of an item decides its own.

    So the same stream gives the same sample, in constant memory.
    """

    def __init__(self, size: int, purpose: Purpose = Purpose.INSPECTED_TEXTS) -> None:
        self._size, self._purpose = size, purpose
        self._heap: list[tuple[int, int, T]] = []
        self._count = 0

    def add(self, item: T) -> None:
        """Take the next item of the stream, or not."""
        number, self._count = self._count, self._count + 1
        if not self._size:
            return
        key = (-int(stream(self._purpose, number)), number, item)
        if len(self._heap) < self._size:
            heapq.heappush(self._heap, key)
        elif key[0] > self._heap[0][0]:
            heapq.heapreplace(self._heap, key)

    @property
    def items(self) -> list[T]:
        """The items taken, in the order of the stream."""
        return [item for _, _, item in sorted(self._heap, key=lambda entry: entry[1])]
