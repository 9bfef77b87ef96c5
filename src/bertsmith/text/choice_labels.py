"""The number that the labels of multiple choice count from, 0 or 1, seen from all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from bertsmith.text.opening import TextFile

LabelStart = Literal["auto", "0", "1"]


def label_start(labels: Iterable[tuple[int, int, int]], file: TextFile) -> int:
    """Return what numeric labels count from, given line, label and number of options of each.

    A 0 says that it is 0; where there is none, a label that is the number of options says that it
    is 1. Raises the file's error where there is neither; 0 where there are no numeric labels.
    """
    first: tuple[int, int] | None = None
    last = False
    for line, label, options in labels:
        if label == 0:
            return 0
        first = first or (line, label)
        last = last or label == options
    if first is None or last:
        return int(last)
    what = (
        f"the labels may count from 0 or from 1: none is 0, and none the last, such as {first[1]}"
    )
    remedy = "state it: --columns.label_start 0 or --columns.label_start 1"
    raise file.fault(what, first[0], remedy)
