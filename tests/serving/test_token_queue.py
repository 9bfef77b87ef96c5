"""The queue by itself: nothing is lost, nobody starves, the bound is kept, order is fair."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from bertsmith.serving.dispatch.queue import PATIENCE, Entry, QueueFull, TokenQueue, TooLarge

NEVER = float("inf")


def add(queue: TokenQueue[str, str], text: str, tokens: int, group: str = "a") -> Entry[str, str]:
    (entry,) = queue.add(group, [(text, tokens)], deadline=NEVER)
    return entry


def taken(queue: TokenQueue[str, str], budget: int = 1, longest: float = NEVER) -> list[str]:
    return [each.content for each in queue.take(lambda group: budget, 0.0, longest=longest).batch]


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
    with pytest.raises(QueueFull) as full:
        queue.add("a", [("b", 3), ("c", 3)], deadline=NEVER)
    assert (full.value.tokens, queue.tokens, len(queue)) == (15, 15, 1)
    with pytest.raises(TooLarge):
        add(queue, "d", 21)
    add(queue, "e", 5)


def test_long_texts_wait_where_only_short_ones_are_taken() -> None:
    queue: TokenQueue[str, str] = TokenQueue(1000)
    for name, tokens in (("a", 50), ("b", 8), ("c", 60), ("d", 60)):
        add(queue, name, tokens, name)
    assert taken(queue, longest=20) == ["b"]
    assert taken(queue, longest=20) == []
    assert [taken(queue) for _ in range(3)] == [["a"], ["c"], ["d"]]


def test_what_is_late_or_cancelled_is_not_taken() -> None:
    queue: TokenQueue[str, str] = TokenQueue(100)
    (late,) = queue.add("a", [("late", 5)], deadline=1.0)
    gone, kept = add(queue, "gone", 5), add(queue, "kept", 5)
    assert queue.cancel(gone)
    assert not queue.cancel(gone)
    found = queue.take(lambda group: 100, now=1.0)
    assert (found.batch, found.expired) == ([kept], [late])
    assert (queue.tokens, len(queue)) == (0, 0)


class Queues(RuleBasedStateMachine):
    """Anything that may happen to a queue."""

    most = 200

    def __init__(self) -> None:
        super().__init__()
        self.queue: TokenQueue[int, int] = TokenQueue(self.most)
        self.waiting: dict[int, Entry[int, int]] = {}
        self.number = 0

    @rule(group=st.integers(0, 2), sizes=st.lists(st.integers(1, 60), min_size=1, max_size=5))
    def add(self, group: int, sizes: list[int]) -> None:
        numbered = [(self.number + place, size) for place, size in enumerate(sizes)]
        free = self.most - sum(entry.tokens for entry in self.waiting.values())
        try:
            entries = self.queue.add(group, numbered, deadline=NEVER)
        except (QueueFull, TooLarge):
            assert sum(sizes) > free
            return
        assert sum(sizes) <= free
        self.number += len(sizes)
        self.waiting |= {entry.content: entry for entry in entries}

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if self.waiting:
            number = data.draw(st.sampled_from(sorted(self.waiting)))
            assert self.queue.cancel(self.waiting.pop(number))

    @rule(budget=st.integers(1, 120))
    def take(self, budget: int) -> None:
        found = self.queue.take(lambda group: budget, 0.0).batch
        assert bool(found) == bool(self.waiting)
        assert len({entry.group for entry in found}) <= 1
        assert len(found) <= 1 or sum(entry.tokens for entry in found) <= budget
        for entry in found:
            # neither invented, nor given twice, nor cancelled
            assert self.waiting.pop(entry.content) is entry
        # nobody waits for more than what was there before and what may overtake
        for entry in self.waiting.values():
            assert self.queue.clock <= entry.rank[0] + self.most

    @invariant()
    def counts_agree(self) -> None:
        assert self.queue.tokens == sum(entry.tokens for entry in self.waiting.values())
        assert self.queue.tokens <= self.most
        assert len(self.queue) == len(self.waiting)


TestQueues = Queues.TestCase
TestQueues.settings = settings(max_examples=25)


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


@pytest.mark.parametrize("large", [3, 100])
@pytest.mark.parametrize("taken_before", [0, 1, 10, 400])
def test_a_small_request_waits_for_no_more_than_a_text_of_each_large_one(
    large: int, taken_before: int
) -> None:
    queue: TokenQueue[str, str] = TokenQueue(1_000_000)
    for _ in range(large):
        queue.add("a", [("part", 4)] * 1000, deadline=NEVER)
    for _ in range(taken_before):
        taken(queue, budget=128)
    add(queue, "small", 4)
    computed = 0
    while "small" not in (batch := taken(queue, budget=128)):
        computed += 4 * len(batch)
    assert computed <= 4 * large + PATIENCE * 4 + 128


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
