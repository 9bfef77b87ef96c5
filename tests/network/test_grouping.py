"""Grouping of sequences: every token in one row, seeing its own sequence."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bertsmith.network.attention.cpu import Grouping, Rows, group

lengths = st.lists(st.integers(1, 700), min_size=1, max_size=12)


def owners(counts: list[int]) -> Tensor:
    return torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))


def tokens_of(rows: Rows, count: int) -> Tensor:
    """The token of each row, counted from 0; -1 where a row is spare."""
    tokens = torch.arange(count) if rows.take is None else rows.take.clone()
    return tokens if rows.spare is None else tokens.index_fill_(0, rows.spare, -1)


def check(found: Grouping, sizes: list[int], asked: list[int]) -> None:
    """Every token is one row, and every query sees the tokens of its own sequence, all of them."""
    queries = tokens_of(found.queries, sum(asked))
    keys = tokens_of(found.keys, sum(sizes))
    for tokens, counts in ((queries, asked), (keys, sizes)):
        assert sorted(tokens[tokens >= 0].tolist()) == list(range(sum(counts)))
    # the last is that of a spare row, whose token is -1
    asking = torch.cat([owners(asked), torch.tensor([-2])])
    owner = torch.cat([owners(sizes), torch.tensor([-1])])
    first_query = first_key = 0
    for item in found.groups:
        assert (item.first_query, item.first_key) == (first_query, first_key)
        first_query += item.count * item.queries
        first_key += item.count * item.keys
        hidden = torch.zeros(1) if item.hidden is None else item.hidden
        shape = (item.count, 1, item.queries, item.keys)
        sees = hidden.expand(shape)[:, 0] == 0
        # what softmax makes of nothing is no number
        assert sees.any(-1).all()
        own_queries = queries[item.first_query : first_query].view(item.count, item.queries)
        own_keys = keys[item.first_key : first_key].view(item.count, item.keys)
        sequence = asking[own_queries]
        expected = sequence[:, :, None] == owner[own_keys][:, None]
        real = own_queries >= 0
        assert torch.equal(sees[real], expected[real])
        # every key is there once, so these are all of the sequence
        assert torch.equal(sees[real].sum(-1), torch.tensor(sizes)[sequence[real]])
    assert (first_query, first_key) == (len(queries), len(keys))


@settings(max_examples=30)
@given(lengths, st.integers(1, 16))
def test_every_token_sees_its_own_sequence(sizes: list[int], heads: int) -> None:
    found = group(sizes, heads)
    check(found, sizes, sizes)
    tokens = torch.arange(1, sum(sizes) + 1)
    assert torch.equal(found.keys.scatter(found.keys.gather(tokens)), tokens)
    assert all(item.queries == item.keys for item in found.groups)


@settings(max_examples=30)
@given(lengths, st.data())
def test_queries_may_be_fewer_than_keys(sizes: list[int], data: st.DataObject) -> None:
    asked = [data.draw(st.integers(0, size)) for size in sizes]
    found = group(sizes, 4, asked)
    check(found, sizes, asked)
    wanted = torch.arange(sum(asked))
    if len(wanted):
        assert torch.equal(found.queries.scatter(found.queries.gather(wanted)), wanted)


def test_sequences_of_one_length_stay_where_they_are() -> None:
    found = group([128] * 40, 12)
    assert found.keys.take is found.keys.back is found.keys.spare is None
    assert all(item.hidden is None for item in found.groups)
    tokens = torch.arange(40 * 128)
    assert found.keys.gather(tokens) is tokens
    # no more than two million weights at once
    assert [item.count for item in found.groups] == [10, 10, 10, 10]


def test_little_is_filled_up() -> None:
    long = [384, 390, 400, 448, 512, 509]
    found = group(long, 12)
    assert sorted(item.keys for item in found.groups) == [384, 448, 448, 448, 512, 512]
    # one at a time: two of them would be more than two million weights
    assert {item.count for item in found.groups} == {1}


def test_short_sequences_share_rows() -> None:
    found = group([18] * 28 + [40] * 4, 12)
    # four bins with a long one and a short one, eight with three short ones
    assert [(item.count, item.keys) for item in found.groups] == [(12, 64)]
    # what is full is not put beside anything
    full = group([32] * 28 + [64] * 4, 12)
    assert sorted((item.count, item.keys) for item in full.groups) == [(4, 64), (28, 32)]
