"""Numbers of rows that come again from step to step.

torch's products on a processor are compiled for each shape as it is first met. Packed batches have
another number of tokens each time, and a small network would spend a tenth of its time on that
(docs/log.md). A few rows more, that nobody reads, and the shapes come again.
"""

from __future__ import annotations

# rounded to _STEP from _MANY rows on, where that adds few of them, and to _FEW_STEP below
_MANY, _STEP, _FEW_STEP = 1024, 64, 16
# below, more rows cost a small network more than the compiling of few and small products
_LEAST = 512
# what a larger network gains by, where steps are small: fine-tuning on sentences (docs/log.md)
FEW = 64


def evened(rows: int, least: int = _LEAST) -> int:
    """The number of rows rounded up to a multiple of 64, or of 16 below 1,024.

    Below `least` it stays as it is.
    """
    if rows < least:
        return rows
    step = _STEP if rows >= _MANY else _FEW_STEP
    return -(-rows // step) * step
