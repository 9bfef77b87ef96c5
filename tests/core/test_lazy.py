"""Tables whose entries are imported when they are asked for."""

from __future__ import annotations

import pytest

from bertsmith.core.lazy import LazyTable


def test_an_entry_is_made_once_and_only_when_it_is_asked_for() -> None:
    asked: list[str] = []

    def entry(name: str) -> list[str]:
        asked.append(name)
        return [name]

    table = LazyTable(("three", "one", "two"), entry)
    assert list(table) == ["three", "one", "two"]
    assert len(table) == 3
    assert "one" in table
    assert "four" not in table
    assert not asked
    assert table["one"] is table["one"]
    assert asked == ["one"]
    assert dict(table) == {"three": ["three"], "one": ["one"], "two": ["two"]}


def test_an_unknown_name_is_a_key_error() -> None:
    table = LazyTable(("one",), len)
    assert table.get("three") is None
    with pytest.raises(KeyError, match="three"):
        table["three"]
