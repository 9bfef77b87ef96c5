"""Numbers of rows that come again from step to step.

torch's products on a processor are compiled for each shape as it is first met. Packed batches have
another number of tokens each time, and a small network would spend a tenth of its time on that
(docs/log.md). A few rows more, that nobody reads, and the shapes come again.
"""

from __future__ import annotations

_STEP = 64
# below, more rows cost more than the compiling of few and small products
_LEAST = 512


def evened(rows: int) -> int:
    """The number of rows rounded up to a multiple of 64, if it is not small."""
    return rows if rows < _LEAST else -(-rows // _STEP) * _STEP
