"""Files that chance has made: some hundreds here, ten thousand among the faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertsmith.text.bad_rows import BadRows
from fuzzing import fuzz
from mutated import good_files
from reading import READERS


def test_what_is_to_be_mutated_is_good(tmp_path: Path) -> None:
    for name, (data, reader) in good_files().items():
        (tmp_path / name).write_bytes(data)
        assert len(list(READERS[reader](tmp_path / name, BadRows("fail")))) >= 4, name


@pytest.mark.parametrize("part", range(5))
def test_mutated_files(tmp_path: Path, part: int) -> None:
    seen = fuzz(tmp_path, range(100 * part, 100 * (part + 1)))
    assert seen.total() == 100
    assert min(seen["good"], seen["left out"], seen["refused"]) > 5
