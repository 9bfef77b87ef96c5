"""Ten thousand files of labelled data that chance has made."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzzing import fuzz

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("part", range(20))
def test_mutated_files(tmp_path: Path, part: int) -> None:
    seen = fuzz(tmp_path, range(10_000 + 500 * part, 10_500 + 500 * part))
    assert seen.total() == 500
    assert min(seen["good"], seen["left out"], seen["refused"]) > 25
