"""What every reader must do with a file that chance has made."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

from bertsmith.core.errors import UserError
from bertsmith.text.bad_rows import BadRows
from bertsmith.text.examples.detection import recognise
from mutated import good_files, mutated
from reading import READERS


def fuzz(folder: Path, numbers: range) -> Counter[str]:
    """Read a mutated file for each number; how many were good, mended by leaving out, or refused.

    Nothing but a `UserError` may come of it. What `fail` raises is the first that is put aside,
    whatever is put aside is counted, and where nothing is, both ways read the same.
    """
    files = good_files()
    names = sorted(files)
    others = [data for data, _ in files.values()]
    seen: Counter[str] = Counter()
    for number in numbers:
        chance = random.Random(number)
        name = chance.choice(names)
        data, reader = files[name]
        if chance.random() < 0.05:
            reader = chance.choice(sorted(READERS))
        path = folder / f"{number}-{name}"
        path.write_bytes(mutated(data, others, chance))
        seen[_read(path, reader)] += 1
        for file in folder.iterdir():
            file.unlink()
    return seen


def _read(path: Path, reader: str) -> str:
    read = READERS[reader]
    told = []
    try:
        recognise(path)
    except UserError as error:
        told.append(error)
    whole: list[object] | None = None
    first: UserError | None = None
    try:
        whole = list(read(path, BadRows("fail")))
    except UserError as error:
        first = error
        told.append(error)
    aside = BadRows("quarantine")
    kept: list[object] | None = None
    try:
        kept = list(read(path, aside))
    except UserError as error:
        told.append(error)
    for fault in told:
        assert fault.where == path
        assert fault.problem
        assert fault.remedy
        assert "\n" not in str(fault)
    written = [line for file in aside.files for line in file.read_text().splitlines()]
    assert len(written) == aside.count
    assert all(json.loads(line)["reason"] for line in written)
    if aside.first is not None:
        assert str(aside.first) == str(first)
    if aside.count == 0:
        assert whole == kept
    else:
        assert whole is None
    return "refused" if kept is None else "left out" if aside.count else "good"
