"""How many random cases a campaign of `make faults` runs, and which of them.

A case is a function of its number. One run covers one part of the numbers, by default part 0; the
environment variable BERTSMITH_PARTS (`make faults PARTS=4`) names another one, or several of them
("0-9"), so that many runs cover more than one.
"""

from __future__ import annotations

import os
import re

PARTS = "BERTSMITH_PARTS"


def numbers(part: int) -> range:
    """Return the numbers of the cases to run, where a part has so many."""
    named = os.environ.get(PARTS) or "0"
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", named)
    assert found, f"{PARTS} is {named!r}: give a part, 4 say, or several, 0-9"
    first, last = int(found[1]), int(found[2] or found[1])
    assert first <= last, f"{PARTS} is {named!r}, which is no part"
    return range(first * part, (last + 1) * part)
