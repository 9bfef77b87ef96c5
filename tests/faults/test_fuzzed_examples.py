"""Ten thousand files of labelled data that chance has made, or others (campaigns.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

import campaigns
from fuzzing import fuzz

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("part", range(20))
def test_mutated_files(tmp_path: Path, part: int) -> None:
    numbers = campaigns.numbers(500)
    # a part after the other, as many numbers apart as all have
    first = 10_000 + 20 * numbers.start + len(numbers) * part
    seen = fuzz(tmp_path, range(first, first + len(numbers)))
    assert seen.total() == len(numbers)
    assert min(seen["good"], seen["left out"], seen["refused"]) > 25
