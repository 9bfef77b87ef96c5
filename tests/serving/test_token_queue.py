"""The queue by itself: nothing is lost, nobody starves, the bound is kept, order is fair.

What is fair is counted in tokens from outside, and every batch is that of a simple simulation.
"""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass, field
from itertools import takewhile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bertsmith.serving.dispatch.queue import (
    PATIENCE,
    Entry,
    QueueFull,
    TakenBatch,
    TokenQueue,
    TooLarge,
)

NEVER = float("inf")


def add(queue: TokenQueue[str, str], text: str, tokens: int, group: str = "a") -> Entry[str, str]:
    (entry,) = queue.add(group, [(text, tokens)], deadline=NEVER)
    return entry


def batch(queue: TokenQueue[str, str], budget: int = 1) -> TakenBatch[str, str]:
    return queue.take(lambda group: budget, 0.0)


def taken(queue: TokenQueue[str, str], budget: int = 1) -> list[str]:
    return [item.content for item in batch(queue, budget).batch]


class Text:
    """A content that takes memory."""


def test_what_is_cancelled_is_kept_no_longer_though_its_turn_is_far_away() -> None:
    queue: TokenQueue[str, Text] = TokenQueue(1000)
    queue.add("a", [(Text(), 10)], deadline=NEVER)
    texts = [Text() for _ in range(100)]
    held = [weakref.ref(text) for text in texts]
    for large in (False, True):
        for _ in range(50):
            entries = queue.add("a", [(texts.pop(), 900)], deadline=NEVER, large=large)
            assert all(map(queue.cancel, entries))
            entries.clear()
    gc.collect()
    assert sum(text() is not None for text in held) == 0
    # what waits is still there
    assert (len(queue), queue.tokens) == (1, 10)
    assert queue.take(lambda group: 1, 0.0).tokens == 10


def test_equals_come_out_in_the_order_in_which_they_came() -> None:
    queue: TokenQueue[str, str] = TokenQueue(100)
    for name in "abcd":
        add(queue, name, 5)
    assert [taken(queue) for _ in range(5)] == [["a"], ["b"], ["c"], ["d"], []]


def test_a_batch_is_as_large_as_its_budget_and_of_one_group() -> None:
    queue: TokenQueue[str, str] = TokenQueue(100)
    for name, group in zip("abcde", ("x", "y", "x", "x", "y"), strict=True):
        add(queue, name, 5, group)
    assert taken(queue, budget=10) == ["a", "c"]
    assert taken(queue, budget=4) == ["b"]
    assert taken(queue, budget=99) == ["d"]
    assert taken(queue, budget=99) == ["e"]


def test_a_short_text_overtakes_a_long_one_and_the_rest_of_a_large_request() -> None:
    queue: TokenQueue[str, str] = TokenQueue(1000)
    add(queue, "long", 100)
    queue.add("a", [(f"part {n}", 10) for n in range(3)], deadline=NEVER)
    add(queue, "short", 8)
    order = [taken(queue)[0] for _ in range(5)]
    assert order == ["short", "part 0", "part 1", "part 2", "long"]


def test_what_is_too_much_is_refused_whole() -> None:
    queue: TokenQueue[str, str] = TokenQueue(20)
    add(queue, "a", 15)
    with pytest.raises(QueueFull):
        queue.add("a", [("b", 3), ("c", 3)], deadline=NEVER)
    assert (queue.tokens, len(queue)) == (15, 1)
    with pytest.raises(TooLarge):
        add(queue, "d", 21)
    add(queue, "e", 5)


def test_large_requests_have_no_room_where_small_ones_fill_the_queue() -> None:
    queue: TokenQueue[str, str] = TokenQueue(100)
    add(queue, "small", 95)
    assert not queue.has_room(6, large=True)
    with pytest.raises(QueueFull):
        queue.add("a", [("large", 6)], deadline=NEVER, large=True)
    queue.add("a", [("large", 5)], deadline=NEVER, large=True)


def test_long_texts_wait_where_only_short_ones_are_taken() -> None:
    queue: TokenQueue[str, str] = TokenQueue(1000)
    for name, tokens in (("a", 50), ("b", 8), ("c", 60), ("d", 60)):
        queue.add(name, [(name, tokens)], deadline=NEVER, large=True)
    short = [queue.take(lambda group: 1, 0.0, longest=20).batch for _ in range(2)]
    assert [[entry.content for entry in item] for item in short] == [["b"], []]
    assert [taken(queue) for _ in range(3)] == [["a"], ["c"], ["d"]]


def test_small_requests_have_room_where_large_ones_fill_the_queue() -> None:
    queue: TokenQueue[str, str] = TokenQueue(100)
    queue.add("a", [("large", 50)] * 2, deadline=NEVER, large=True)
    with pytest.raises(QueueFull):
        queue.add("a", [("large", 1)], deadline=NEVER, large=True)
    for _ in range(5):
        add(queue, "small", 5)
    with pytest.raises(QueueFull):
        add(queue, "small", 1)
    # half of what is computed from now on is theirs
    assert (queue.ahead(large=False), queue.ahead(large=True)) == (50, 125)


def test_it_is_nobody_elses_turn_where_there_is_no_room_for_who_has_it() -> None:
    queue: TokenQueue[str, str] = TokenQueue(1000)
    queue.add("a", [("large", 10)] * 4, deadline=NEVER, large=True)
    add(queue, "small", 10)
    add(queue, "later", 10)

    def names(small: bool, large: bool) -> list[str]:
        found = queue.take(lambda group: 10, 0.0, small=small, large=large)
        return [entry.content for entry in found.batch]

    assert names(small=False, large=True) == []
    assert names(small=True, large=False) == ["small"]
    assert names(small=True, large=False) == []
    assert names(small=True, large=True) == ["large"]
    assert names(small=True, large=False) == ["later"]
    # who waits for nobody has all turns
    assert [names(small=False, large=True) for _ in range(4)] == [["large"]] * 3 + [[]]


def test_what_is_late_or_cancelled_is_not_taken() -> None:
    queue: TokenQueue[str, str] = TokenQueue(100)
    (late,) = queue.add("a", [("late", 5)], deadline=1.0)
    gone, kept = add(queue, "gone", 5), add(queue, "kept", 5)
    assert queue.cancel(gone)
    assert not queue.cancel(gone)
    found = queue.take(lambda group: 100, now=1.0)
    assert (found.batch, found.expired) == ([kept], [late])
    assert (queue.tokens, len(queue)) == (0, 0)


@dataclass
class Waiting:
    """A text in the simulation."""

    name: int
    group: int
    tokens: int
    due: tuple[float, int]
    request: int


@dataclass
class Simulated:
    """A flow of the simulation: a list that is sorted anew for each batch."""

    texts: list[Waiting] = field(default_factory=list)
    start: int = 0
    clock: float = 0.0

    def next(self, longest: float) -> list[Waiting]:
        """The texts that may be taken, in their order."""
        found = (text for text in self.texts if text.tokens <= longest)
        return sorted(found, key=lambda entry: entry.due)

    def pace(self) -> float:
        """What virtual time goes on by for each token."""
        requests = [text.request for text in self.texts]
        several = {request for request in requests if requests.count(request) > 1}
        return PATIENCE / max(PATIENCE, len(several) + 1)


class Queues(RuleBasedStateMachine):
    """Anything that may happen to a queue, beside the simulation."""

    max_tokens = 200

    def __init__(self) -> None:
        super().__init__()
        self.queue: TokenQueue[int, int] = TokenQueue(self.max_tokens)
        self.entries: dict[int, Entry[int, int]] = {}
        self.small, self.large = Simulated(), Simulated()
        self.last = self.number = 0

    def tokens(self) -> int:
        return sum(text.tokens for flow in (self.small, self.large) for text in flow.texts)

    @rule(
        group=st.integers(0, 2),
        sizes=st.lists(st.integers(1, 60), min_size=1, max_size=5),
        large=st.booleans(),
    )
    def add(self, group: int, sizes: list[int], large: bool) -> None:
        flow = self.large if large else self.small
        numbered = [(self.number + place, size) for place, size in enumerate(sizes)]
        total, own = sum(sizes), sum(text.tokens for text in flow.texts)
        fits = self.tokens() + total <= self.max_tokens or (
            not large and 4 * (own + total) <= self.max_tokens
        )
        try:
            entries = self.queue.add(group, numbered, deadline=NEVER, large=large)
        except (QueueFull, TooLarge):
            assert not fits
            return
        assert fits
        if not self.entries:
            self.small.start = self.large.start = max(self.small.start, self.large.start)
        due = flow.clock
        for number, size in numbered:
            due += PATIENCE * size
            flow.texts.append(Waiting(number, group, size, (due, number), self.number))
        self.number += len(sizes)
        self.entries |= {entry.content: entry for entry in entries}

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.entries:
            number = data.draw(st.sampled_from(sorted(self.entries)))
            assert self.queue.cancel(self.entries.pop(number))
            for flow in (self.small, self.large):
                flow.texts = [text for text in flow.texts if text.name != number]

    @rule(
        budget=st.integers(1, 120),
        longest=st.sampled_from([NEVER, NEVER, 20, 0]),
        free=st.sampled_from([(True, True), (True, True), (True, False), (False, True)]),
    )
    def take(self, budget: int, longest: float, free: tuple[bool, bool]) -> None:
        found = self.queue.take(
            lambda group: budget, 0.0, longest=longest, small=free[0], large=free[1]
        )
        names = [entry.content for entry in found.batch]
        assert names == self.simulated(budget, longest, free)
        for name in names:
            # neither invented, nor given twice, nor cancelled
            del self.entries[name]

    def simulated(self, budget: int, longest: float, free: tuple[bool, bool]) -> list[int]:
        """Return the names of the next batch."""
        small, large = self.small.next(NEVER), self.large.next(longest)
        if small and large:
            flow = self.large if self.large.start < self.small.start else self.small
        else:
            flow = self.large if large else self.small
        if not (small or large) or not free[flow is self.large]:
            return []
        order = large if flow is self.large else small
        same = [item for item in order if item.group == order[0].group]
        sums = [sum(item.tokens for item in same[: n + 1]) for n in range(len(same))]
        count = max(1, len(list(takewhile(lambda total: total <= budget, sums))))
        flow.clock += flow.pace() * sums[count - 1]
        if not (small and large):
            other = self.small if flow is self.large else self.large
            other.start = max(other.start, flow.start)
        flow.start += sums[count - 1]
        names = [item.name for item in same[:count]]
        flow.texts = [text for text in flow.texts if text.name not in names]
        return names

    @invariant()
    def counts_agree(self) -> None:
        assert self.queue.tokens == self.tokens()
        assert self.queue.tokens <= 1.25 * self.max_tokens
        assert len(self.queue) == len(self.entries)


TestQueues = Queues.TestCase
TestQueues.settings = settings(max_examples=50)


@given(st.integers(5, 50), st.integers(2, 5))
def test_a_long_text_is_reached_however_many_short_ones_come(tokens: int, short: int) -> None:
    queue: TokenQueue[str, str] = TokenQueue(1000)
    add(queue, "long", tokens)
    computed = 0
    for _ in range(1000):
        add(queue, "short", short)
        if taken(queue) == ["long"]:
            break
        computed += short
    assert computed <= PATIENCE * tokens + short


floods = pytest.mark.parametrize(
    "large", [1, 10, 100, pytest.param(1000, marks=pytest.mark.faults)]
)


def flooded(large: int, texts: int = 100) -> TokenQueue[str, str]:
    """A queue where so many large requests wait, each of texts of 4 tokens."""
    queue: TokenQueue[str, str] = TokenQueue(10_000_000)
    for number in range(large):
        queue.add("a", [(f"large {number}", 4)] * texts, deadline=NEVER, large=True)
    return queue


def ahead_of(queue: TokenQueue[str, str], name: str, budget: int) -> int:
    """The tokens that are computed before a text."""
    computed = 0
    while name not in (names := taken(queue, budget)):
        computed += 4 * len(names)
    return computed + 4 * names.index(name)


@floods
@pytest.mark.parametrize("batches_before", [0, 1, 2])
def test_a_small_request_waits_for_no_large_one(large: int, batches_before: int) -> None:
    queue = flooded(large)
    for _ in range(batches_before):
        taken(queue, budget=128)
    add(queue, "small", 4)
    assert ahead_of(queue, "small", 128) == 0


@floods
def test_who_asks_again_and_again_waits_for_a_batch_at_most(large: int) -> None:
    queue = flooded(large, texts=20_000 // large)
    waits = []
    for number in range(300):
        add(queue, f"small {number}", 4)
        waits.append(ahead_of(queue, f"small {number}", 128))
    assert max(waits) == 128
    # a batch of large ones for as many tokens of small ones, and not more often
    assert sum(waits) <= 300 * 4 + 128


@floods
def test_a_small_request_waits_for_the_small_ones_and_as_many_tokens(large: int) -> None:
    queue = flooded(large)
    for number in range(200):
        add(queue, f"other {number}", 4)
    add(queue, "small", 4)
    assert 200 * 4 <= ahead_of(queue, "small", 128) <= 2 * 200 * 4 + 128


@pytest.mark.parametrize(("small", "large"), [(4, 1), (100, 1), (4, 50), (100, 50)])
def test_of_a_flood_on_both_sides_each_gets_half(small: int, large: int) -> None:
    queue = flooded(large, texts=10_000 // large)
    got = {False: 0, True: 0}
    for _ in range(500):
        while queue.ahead(large=False) < 2 * 2 * 128:
            add(queue, "small", small)
        found = batch(queue, budget=128)
        got[found.large] += found.tokens
        assert abs(got[True] - got[False]) <= 128


def test_every_large_request_is_reached_in_a_flood_of_small_ones() -> None:
    queue, texts, computed = flooded(20, texts=30), 20 * 30, 0
    reached: dict[str, int] = {}
    while texts:
        for _ in range(32):
            add(queue, "small", 4)
        found = batch(queue, budget=128)
        computed += found.tokens
        if found.large:
            texts -= len(found.batch)
            for entry in found.batch:
                reached.setdefault(entry.content, computed)
    # all begin together
    assert len(reached) == 20
    assert max(reached.values()) <= 2 * (20 * 4 + 128)
    assert computed <= 2 * (20 * 30 * 4 + 128)


def test_a_large_request_is_reached_however_many_small_ones_come() -> None:
    queue: TokenQueue[str, str] = TokenQueue(1000)
    queue.add("a", [("part", 10)] * 5, deadline=NEVER)
    computed = parts = 0
    while parts < 5 and computed < 10_000:
        add(queue, "small", 5)
        (name,) = taken(queue)
        parts += name == "part"
        computed += 5 * (name == "small")
    assert computed <= PATIENCE * 50 + 5


def test_what_was_taken_alone_or_before_a_pause_is_held_against_nobody() -> None:
    queue = flooded(1, texts=1000)
    while len(queue):
        taken(queue, budget=128)
    order = []
    queue.add("a", [("large", 4)] * 2, deadline=NEVER, large=True)
    for _ in range(4):
        add(queue, "small", 4)
    while len(queue):
        order += taken(queue)
    assert order == ["small", "large", "small", "large", "small", "small"]
    # long texts that wait for a worker save nothing up
    queue.add("a", [("long", 50)], deadline=NEVER, large=True)
    for _ in range(4):
        add(queue, "small", 4)
        assert queue.take(lambda group: 4, 0.0, longest=20).tokens == 4
    queue.add("a", [("large", 4)] * 9, deadline=NEVER, large=True)
    add(queue, "small", 4)
    add(queue, "small", 4)
    assert [taken(queue)[0] for _ in range(4)] == ["large", "small", "large", "small"]
