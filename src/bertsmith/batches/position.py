"""The position of a training in its data, which every kind of batches shares."""

from __future__ import annotations

from dataclasses import dataclass

from bertsmith.core.config import Config


@dataclass(frozen=True, kw_only=True)
class DataPosition(Config):
    """A position in the training data: all that a resumed run needs to know of it."""

    epoch: int = 0
    """Times the corpus was gone through."""
    index: int = 0
    """Sequences used in this epoch."""
    phase: int = 0
    """Phases of sequence length gone through, where there are several."""
