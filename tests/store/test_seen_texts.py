from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bertsmith.core.errors import StoreError
from bertsmith.store import duplicates
from bertsmith.store.duplicates import DIGEST_BYTES, Digests, SeenTexts

SMALL = {"slots": 64, "filter_bits": 1 << 10}


def stream(count: int, most: int, *, alike: int = 2**64 - 1, seed: int = 0) -> list[Digests]:
    """Batches of different digests, of which many come again in later batches."""
    random = np.random.default_rng(seed)
    pool = random.integers(0, alike, (count, 2), np.uint64, endpoint=True)
    pool[:, 1] = random.integers(0, 2**64 - 1, count, np.uint64)
    batches = []
    for _ in range(count // most * 3):
        size = int(random.integers(0, most + 1))
        batches.append(pool[random.choice(count, size, replace=False)])
    return batches


def first_ones(batches: list[Digests], seen: set[bytes] | None = None) -> list[list[bool]]:
    """What a set of Python says to the same question."""
    seen = set() if seen is None else seen
    told = []
    for batch in batches:
        keys = [row.tobytes() for row in batch]
        told.append([key not in seen for key in keys])
        seen.update(keys)
    return told


# halves that are alike by the dozen, as no hash makes them, must not mislead
@pytest.mark.parametrize("alike", [2**64 - 1, 3])
def test_first_occurrences_as_a_set_would_tell_them(
    tmp_path: Path, alike: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # files are merged in parts
    monkeypatch.setattr(duplicates, "_REPLAYED", 40)
    batches = stream(9000, 150, alike=alike)
    seen = SeenTexts(tmp_path / "seen", **SMALL)
    assert [seen.add(batch).tolist() for batch in batches] == first_ones(batches)
    seen.close()
    assert seen.count == len({row.tobytes() for batch in batches for row in batch})
    # 250 tables and more were emptied, in files of 32, 256, 2048 digests
    sizes = {path.stat().st_size // DIGEST_BYTES for path in (tmp_path / "seen").glob("sorted-*")}
    assert {32, 256, 2048} >= sizes > {2048}
    # those that were merged are gone
    assert sum(path.stat().st_size for path in seen.log.parent.glob("sorted-*")) <= (
        seen.log.stat().st_size
    )


def test_all_in_memory(tmp_path: Path) -> None:
    batches = stream(500, 100)
    seen = SeenTexts(tmp_path / "seen", slots=1024)
    assert [seen.add(batch).tolist() for batch in batches] == first_ones(batches)
    seen.close()
    assert [path.name for path in (tmp_path / "seen").iterdir()] == ["digests.bin"]


@pytest.mark.parametrize("cut", [0, 1, 30])
def test_it_goes_on_from_its_log(tmp_path: Path, cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "_REPLAYED", 100)
    batches = stream(2000, 90)
    seen = SeenTexts(tmp_path / "seen", **SMALL)
    for batch in batches[:cut]:
        seen.add(batch)
    count = seen.count
    for batch in batches[cut : cut + 5]:
        seen.add(batch)
    seen.close()
    with seen.log.open("ab") as log:
        log.write(b"half")
    again = SeenTexts(tmp_path / "seen", count=count, **SMALL)
    assert [again.add(batch).tolist() for batch in batches[cut:]] == first_ones(batches)[cut:]
    again.close()
    assert again.log.stat().st_size == again.count * DIGEST_BYTES


def test_a_log_that_lost_something_is_refused(tmp_path: Path) -> None:
    seen = SeenTexts(tmp_path / "seen", **SMALL)
    seen.add(stream(200, 100)[1])
    seen.close()
    with pytest.raises(StoreError, match=r"digests\.bin: is shorter than it was; .*--fresh"):
        SeenTexts(tmp_path / "seen", count=seen.count + 1, **SMALL)
