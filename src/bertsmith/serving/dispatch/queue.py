"""The queue of texts that wait to be computed: bounded in tokens, fair to short ones.

Entries are ordered by a virtual time. That of an entry is the time when it came, and `PATIENCE`
times its own tokens; the entries of one request add up. So a short text overtakes a long one that
came a little earlier, and the first texts of a small request overtake the last ones of a large
request; among equals the first comes first.

The time goes on by the tokens that are taken. Nobody starves: whatever comes after `PATIENCE` times
its tokens have been taken stands behind it. But large requests, of several texts that wait, cannot
have a share of 1 / `PATIENCE` each when they are more than that: time goes on more slowly then, by
as much as each of them gets (as in weighted fair queueing; Demers et al. 1989). Else they would all
be late, and who comes would stand behind all that they are late by.

Batches are taken when somebody is free to compute them, of whatever waits by then: nothing waits
for a batch to fill. A batch holds entries of one group (a model and a task).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

PATIENCE = 4
"""Tokens of others that are computed first, for each token of one's own."""

G = TypeVar("G", bound=Hashable)
T = TypeVar("T")


class QueueFull(Exception):
    """More tokens would wait than may; `tokens` wait already."""

    def __init__(self, tokens: int) -> None:
        super().__init__(f"{tokens} tokens wait")
        self.tokens = tokens


class TooLarge(Exception):
    """A request has more tokens than may wait at all."""

    def __init__(self, tokens: int, most: int) -> None:
        super().__init__(f"{tokens} tokens, and {most} may wait")
        self.tokens, self.most = tokens, most


@dataclass(slots=True)
class _Request:
    """The texts of one request that wait."""

    waiting: int


@dataclass(slots=True, eq=False)
class Entry(Generic[G, T]):
    """A text that waits: its content, its tokens, and the time after which nobody wants it."""

    content: T
    group: G
    tokens: int
    deadline: float
    rank: tuple[float, int]
    request: _Request
    waiting: bool = True

    def __lt__(self, other: Entry[G, T]) -> bool:
        return self.rank < other.rank


@dataclass(frozen=True, slots=True)
class Taken(Generic[G, T]):
    """The entries of a batch, and those that were passed over because their deadline has passed."""

    batch: list[Entry[G, T]] = field(default_factory=list)
    expired: list[Entry[G, T]] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """The tokens of the batch."""
        return sum(entry.tokens for entry in self.batch)


class TokenQueue(Generic[G, T]):
    """Entries of any content, in groups, of at most `most` tokens together."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.tokens = 0
        self.clock = 0.0
        """The virtual time."""
        self._large = 0
        self._serial = count()
        self._groups: dict[G, list[Entry[G, T]]] = {}
        self._entries = 0

    def __len__(self) -> int:
        return self._entries

    def add(
        self, group: G, contents: Sequence[tuple[T, int]], *, deadline: float
    ) -> list[Entry[G, T]]:
        """Add the texts of one request with their tokens, all of them or none.

        Raises `QueueFull`, and `TooLarge` for a request that would not fit into an empty queue.
        """
        total = sum(tokens for _, tokens in contents)
        if total > self.most:
            raise TooLarge(total, self.most)
        if self.tokens + total > self.most:
            raise QueueFull(self.tokens)
        entries, rank, request = [], self.clock, _Request(len(contents))
        self._large += len(contents) > 1
        heap = self._groups.setdefault(group, [])
        for content, tokens in contents:
            rank += PATIENCE * tokens
            entry = Entry(content, group, tokens, deadline, (rank, next(self._serial)), request)
            heappush(heap, entry)
            entries.append(entry)
        self.tokens += total
        self._entries += len(entries)
        return entries

    def cancel(self, entry: Entry[G, T]) -> bool:
        """Take an entry out that nobody wants any more; return whether it was still waiting."""
        if not entry.waiting:
            return False
        self._remove(entry)
        return True

    def take(
        self, budget: Callable[[G], int], now: float, *, longest: float = float("inf")
    ) -> Taken[G, T]:
        """Take the next batch: the entry whose turn it is, and others of its group.

        These are at most as many tokens as `budget` has for the group, but always one entry.
        Entries of more than `longest` tokens stay.
        """
        taken: Taken[G, T] = Taken()
        kept: list[Entry[G, T]] = []
        pace = PATIENCE / max(PATIENCE, self._large + 1)
        group = self._next_group(now, longest, taken.expired, kept)
        if group is not None:
            heap, room = self._groups[group], budget(group)
            while heap and (entry := self._head(heap, now, longest, taken.expired, kept)):
                if taken.batch and entry.tokens > room:
                    break
                heappop(heap)
                room -= entry.tokens
                self._remove(entry)
                taken.batch.append(entry)
        self.clock += pace * taken.tokens
        for entry in kept:
            heappush(self._groups[entry.group], entry)
        self._groups = {each: heap for each, heap in self._groups.items() if heap}
        return taken

    def _next_group(
        self, now: float, longest: float, expired: list[Entry[G, T]], kept: list[Entry[G, T]]
    ) -> G | None:
        """Return the group of the entry whose turn it is."""
        heads = [
            head
            for heap in self._groups.values()
            if (head := self._head(heap, now, longest, expired, kept)) is not None
        ]
        return min(heads).group if heads else None

    def _head(
        self,
        heap: list[Entry[G, T]],
        now: float,
        longest: float,
        expired: list[Entry[G, T]],
        kept: list[Entry[G, T]],
    ) -> Entry[G, T] | None:
        """Return the first entry of a heap that can be taken; others before it are put aside."""
        while heap:
            entry = heap[0]
            if not entry.waiting:
                heappop(heap)
            elif entry.deadline <= now:
                heappop(heap)
                self._remove(entry)
                expired.append(entry)
            elif entry.tokens > longest:
                kept.append(heappop(heap))
            else:
                return entry
        return None

    def _remove(self, entry: Entry[G, T]) -> None:
        entry.waiting = False
        entry.request.waiting -= 1
        self._large -= entry.request.waiting == 1
        self.tokens -= entry.tokens
        self._entries -= 1
