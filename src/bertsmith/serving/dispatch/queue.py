"""The queue of texts that wait to be computed: bounded in tokens, fair to small requests.

An entry is a text, or a few short ones of a request.

Requests are of two flows, small ones and large ones, as the caller of `add` states; those that a
batch holds are small. Where both wait, each flow gets half of the tokens that are taken, and where
one waits, all of them: start-time fair queueing (Goyal, Vin and Cheng 1996), whose packets are
batches. A batch of a flow starts, in virtual time, where the flow's last one finished, or where the
batch that was taken last started if the flow had nothing to take then; the flow whose batch starts
first has its turn. So a small request waits for no large one, unless small ones have just had more
than their half; and as long as both wait, what one flow gets is never more than a batch of each
ahead of what the other gets.

Within a flow entries are ordered by a virtual time of its own. That of an entry is the time when it
came, and `PATIENCE` times its own tokens; the entries of one request add up. So a short text
overtakes a long one that came a little earlier, and the first texts of a request overtake the last
ones of a larger one; among equals the first comes first.

That time advances by the tokens that are taken of the flow. Nobody starves: whatever comes after
`PATIENCE` times its tokens have been taken stands behind it. But requests of several texts that
wait cannot have a share of 1 / `PATIENCE` each when they are more than that: time advances more
slowly then, by as much as each of them gets (as in weighted fair queueing; Demers et al. 1989).
Else they would all be late, and a new request would stand behind all that they are late by.

Where large requests fill the queue, small ones may fill a quarter more, or they would be refused.

Batches are taken when somebody is free to compute them, of whatever waits by then: nothing waits
for a batch to fill. A batch holds entries of one flow and one group (a model and a task).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

PATIENCE = 4
"""Tokens of others of the same flow that are computed first, for each token of one's own."""
_FOR_SMALL = 1 / 4

G = TypeVar("G", bound=Hashable)
T = TypeVar("T")


class QueueFull(Exception):
    """More tokens would wait than may."""


class TooLarge(Exception):
    """A request has more tokens than may wait at all."""

    def __init__(self, tokens: int, max_tokens: int) -> None:
        super().__init__(f"{tokens} tokens, and at most {max_tokens} may wait")
        self.tokens, self.max_tokens = tokens, max_tokens


@dataclass(slots=True, eq=False)
class _Flow(Generic[G, T]):
    """The requests of one flow: their entries that wait, those of each group in a heap."""

    large: bool
    start: int = 0
    """The virtual time at which its next batch starts, in tokens that are taken of each flow."""
    clock: float = 0.0
    """The virtual time of its entries."""
    tokens: int = 0
    cancelled: int = 0
    """Tokens of cancelled entries that are still in the heaps."""
    of_several: int = 0
    """Requests of which several entries wait."""
    groups: dict[G, list[Entry[G, T]]] = field(default_factory=dict)

    def discard_cancelled(self) -> None:
        """Remove the entries from the heaps that do not wait any more."""
        for group, heap in list(self.groups.items()):
            self.groups[group] = [entry for entry in heap if entry.waiting]
            heapify(self.groups[group])
        self.cancelled = 0


@dataclass(slots=True, eq=False)
class _Request(Generic[G, T]):
    """The number of entries of one request that wait."""

    flow: _Flow[G, T]
    waiting: int


@dataclass(slots=True, eq=False)
class Entry(Generic[G, T]):
    """A content that waits, its tokens, and its deadline."""

    content: T
    group: G
    tokens: int
    deadline: float
    rank: tuple[float, int]
    request: _Request[G, T]
    waiting: bool = True

    def __lt__(self, other: Entry[G, T]) -> bool:
        return self.rank < other.rank


@dataclass(slots=True)
class TakenBatch(Generic[G, T]):
    """The entries of a batch, and those that were passed over because their deadline has passed."""

    batch: list[Entry[G, T]] = field(default_factory=list)
    expired: list[Entry[G, T]] = field(default_factory=list)
    large: bool = False
    """True if the batch is of large requests."""

    @property
    def tokens(self) -> int:
        """The tokens of the batch."""
        return sum(entry.tokens for entry in self.batch)


@dataclass(slots=True, eq=False)
class _Turn(Generic[G, T]):
    """A batch while it is taken: the time, and the entries that are put back afterwards.

    Entries of large requests that have more than `longest` tokens stay.
    """

    now: float
    longest: float
    taken: TakenBatch[G, T] = field(default_factory=TakenBatch)
    kept: list[Entry[G, T]] = field(default_factory=list)


class TokenQueue(Generic[G, T]):
    """Entries of any content, in groups, of at most `max_tokens` tokens together.

    Of small requests a quarter of `max_tokens` may wait in any case.
    """

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.tokens = 0
        self._flows: tuple[_Flow[G, T], _Flow[G, T]] = (_Flow(large=False), _Flow(large=True))
        self._serial = count()
        self._entries = 0

    def __len__(self) -> int:
        return self._entries

    def has_room(self, tokens: int, *, large: bool) -> bool:
        """Return whether the tokens of another small or large request may wait."""
        flow_tokens = self._flows[large].tokens + tokens
        return self.tokens + tokens <= self.max_tokens or (
            not large and flow_tokens <= self.max_tokens * _FOR_SMALL
        )

    def ahead(self, *, large: bool) -> int:
        """Return about how many tokens are computed before a request that comes now."""
        return self.tokens if large else min(self.tokens, 2 * self._flows[large].tokens)

    def add(
        self, group: G, contents: Sequence[tuple[T, int]], *, deadline: float, large: bool = False
    ) -> list[Entry[G, T]]:
        """Add the contents of one request with their tokens, all of them or none.

        Raises `QueueFull`, and `TooLarge` for a request that would not fit into an empty queue.
        """
        total = sum(tokens for _, tokens in contents)
        if total > self.max_tokens:
            raise TooLarge(total, self.max_tokens)
        if not self.has_room(total, large=large):
            raise QueueFull
        if not self._entries:
            # what was taken before a pause is forgotten
            for item in self._flows:
                item.start = max(other.start for other in self._flows)
        flow = self._flows[large]
        entries, rank, request = [], flow.clock, _Request(flow, len(contents))
        flow.of_several += len(contents) > 1
        heap = flow.groups.setdefault(group, [])
        for content, tokens in contents:
            rank += PATIENCE * tokens
            entry = Entry(content, group, tokens, deadline, (rank, next(self._serial)), request)
            heappush(heap, entry)
            entries.append(entry)
        self.tokens += total
        flow.tokens += total
        self._entries += len(entries)
        return entries

    def cancel(self, entry: Entry[G, T]) -> bool:
        """Remove an abandoned entry; return whether it was still waiting."""
        if not entry.waiting:
            return False
        self._remove(entry)
        flow = entry.request.flow
        flow.cancelled += entry.tokens
        if flow.cancelled > flow.tokens:
            # else clients that ask and hang up fill the memory with texts that nobody waits for
            flow.discard_cancelled()
        return True

    def take(
        self,
        room: Callable[[G], float],
        now: float,
        *,
        longest: float = float("inf"),
        small: bool = True,
        large: bool = True,
    ) -> TakenBatch[G, T]:
        """Take the next batch: the entry whose turn it is, and others of its flow and group.

        These have at most as many tokens as `room` returns for the group, but are at least one
        entry. Nothing is taken where it is the turn of a flow for which `small` or `large` is
        false. Of large requests, entries of more than `longest` tokens stay, and where these are
        all that wait, or it is 0, it is the turn of small ones.
        """
        turn: _Turn[G, T] = _Turn(now, longest)
        heads = []
        for flow in self._flows if longest > 0 else self._flows[:1]:
            head = self._next(flow, turn)
            if head is not None:
                heads.append((flow.start, flow.large, head))
        batch = turn.taken
        if heads:
            start, batch.large, head = min(heads)
            if large if batch.large else small:
                flow = head.request.flow
                self._fill(head, room(head.group), turn)
                flow.start += batch.tokens
                if len(heads) == 1:
                    # a flow that has nothing to take saves nothing up
                    other = self._flows[not flow.large]
                    other.start = max(other.start, start)
        for entry in turn.kept:
            heappush(entry.request.flow.groups[entry.group], entry)
        for flow in self._flows:
            flow.groups = {group: heap for group, heap in flow.groups.items() if heap}
        return batch

    def _fill(self, head: Entry[G, T], tokens: float, turn: _Turn[G, T]) -> None:
        """Move entries of a flow and a group into the batch, from the first one on."""
        flow, batch = head.request.flow, turn.taken.batch
        heap = flow.groups[head.group]
        pace = PATIENCE / max(PATIENCE, flow.of_several + 1)
        while entry := self._head(heap, turn):
            if batch and entry.tokens > tokens:
                break
            heappop(heap)
            tokens -= entry.tokens
            self._remove(entry)
            batch.append(entry)
        flow.clock += pace * turn.taken.tokens

    def _next(self, flow: _Flow[G, T], turn: _Turn[G, T]) -> Entry[G, T] | None:
        """Return the entry of a flow whose turn it is."""
        heads = [self._head(heap, turn) for heap in flow.groups.values()]
        return min((head for head in heads if head is not None), default=None)

    def _head(self, heap: list[Entry[G, T]], turn: _Turn[G, T]) -> Entry[G, T] | None:
        """Return the first entry of a heap that can be taken; others before it are put aside."""
        while heap:
            entry = heap[0]
            if not entry.waiting:
                heappop(heap)
                entry.request.flow.cancelled -= entry.tokens
            elif entry.deadline <= turn.now:
                heappop(heap)
                self._remove(entry)
                turn.taken.expired.append(entry)
            elif entry.request.flow.large and entry.tokens > turn.longest:
                turn.kept.append(heappop(heap))
            else:
                return entry
        return None

    def _remove(self, entry: Entry[G, T]) -> None:
        flow = entry.request.flow
        entry.waiting = False
        entry.request.waiting -= 1
        flow.of_several -= entry.request.waiting == 1
        flow.tokens -= entry.tokens
        self.tokens -= entry.tokens
        self._entries -= 1
