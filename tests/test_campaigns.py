"""Parts of campaigns: they follow one another, and what names none is refused."""

from __future__ import annotations

import pytest

import campaigns


@pytest.mark.parametrize(
    ("named", "expected"),
    [(None, range(7)), ("", range(7)), ("3", range(21, 28)), ("1-3", range(7, 28))],
)
def test_parts_have_numbers(
    named: str | None, expected: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    if named is None:
        monkeypatch.delenv(campaigns.PARTS, raising=False)
    else:
        monkeypatch.setenv(campaigns.PARTS, named)
    assert campaigns.numbers(7) == expected


@pytest.mark.parametrize("named", ["x", "-1", "2-1", "1-"])
def test_what_names_no_part_is_refused(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(campaigns.PARTS, named)
    with pytest.raises(AssertionError, match="BERTSMITH_PARTS is"):
        campaigns.numbers(7)
