"""Grouping of sequences: every token in one row, every row in one group."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bertsmith.layers.grouping import Grouping, group

lengths = st.lists(st.integers(1, 700), min_size=1, max_size=12)


def owners(counts: list[int]) -> Tensor:
    return torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))


def check_rows(found: Grouping, sizes: list[int]) -> None:
    """Tokens come back from their rows, in groups that hold whole sequences and fit them."""
    tokens = torch.arange(1, sum(sizes) + 1)
    rows = found.keys.gather(tokens)
    assert torch.equal(found.keys.scatter(rows), tokens)
    owner, at, seen = owners(sizes), 0, []
    empty = torch.zeros(len(rows), dtype=torch.bool)
    if found.keys.spare is not None:
        empty[found.keys.spare] = True
    for each in found.groups:
        assert each.first_key == at
        for number in range(each.count):
            part = slice(at + number * each.keys, at + (number + 1) * each.keys)
            own = owner[rows[part][~empty[part]] - 1].unique().tolist()
            assert len(own) == 1
            seen += own
            assert int((~empty[part]).sum()) == sizes[own[0]]
            assert each.keys == 32 or each.keys <= sizes[own[0]] * 2
            if each.hidden is not None:
                assert torch.equal(each.hidden[number, 0, 0] == -torch.inf, empty[part])
            else:
                assert not empty[part].any()
        at += each.count * each.keys
    assert at == len(rows)
    assert sorted(seen) == list(range(len(sizes)))


@settings(max_examples=30)
@given(lengths, st.integers(1, 16))
def test_every_token_has_a_row(sizes: list[int], heads: int) -> None:
    found = group(sizes, heads)
    check_rows(found, sizes)
    assert all(each.queries == each.keys for each in found.groups)


@settings(max_examples=30)
@given(lengths, st.data())
def test_queries_may_be_fewer_than_keys(sizes: list[int], data: st.DataObject) -> None:
    asked = [data.draw(st.integers(0, size)) for size in sizes]
    found = group(sizes, 4, asked)
    check_rows(found, sizes)
    owner, key_owner = owners(asked), owners(sizes)
    wanted = torch.arange(sum(asked))
    if len(wanted):
        assert torch.equal(found.queries.scatter(found.queries.gather(wanted)), wanted)
    for each in found.groups:
        for number in range(each.count):
            first = each.first_query + number * each.queries
            key = each.first_key + number * each.keys
            whose = key_owner[key if found.keys.take is None else int(found.keys.take[key])]
            for row in range(first, first + each.queries):
                if found.queries.spare is not None and row in found.queries.spare:
                    continue
                token = row if found.queries.take is None else int(found.queries.take[row])
                assert owner[token] == whose


def test_sequences_of_one_length_stay_where_they_are() -> None:
    found = group([128] * 40, 12)
    assert found.keys.take is found.keys.back is found.keys.spare is None
    assert all(each.hidden is None for each in found.groups)
    tokens = torch.arange(40 * 128)
    assert found.keys.gather(tokens) is tokens
    # no more than two million weights at once
    assert [each.count for each in found.groups] == [10, 10, 10, 10]


def test_little_is_filled_up() -> None:
    long = [384, 390, 400, 448, 512, 509]
    found = group(long, 4)
    assert sorted(each.keys for each in found.groups) == [384, 448, 448, 512]
    short = [5, 31, 32, 33, 64, 65]
    assert sorted((each.count, each.keys) for each in group(short, 4).groups) == [
        (1, 96),
        (2, 64),
        (3, 32),
    ]
