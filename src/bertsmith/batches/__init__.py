"""Packed batches, from the token ids of a store or from encoded examples.

`pretraining` makes them from a store: `segments` cuts windows of text and pairs them, `truncation`
adds special tokens, `Masking` selects what is to be predicted. Each is a function of seed, epoch
and index, so that the position in the data is two integers. `examples` makes batches of labelled or
unlabelled texts, of similar length together.
"""

from __future__ import annotations

from dataclasses import dataclass

from bertsmith.core.config import Config


@dataclass(frozen=True, kw_only=True)
class DataPosition(Config):
    """A position in the training data, whatever makes the batches: all that a resumed run needs."""

    epoch: int = 0
    """Times the corpus was gone through."""
    index: int = 0
    """Sequences used in this epoch."""
    phase: int = 0
    """Phases of sequence length gone through, where there are several."""

    @property
    def epochs(self) -> int:
        """Return the number of epochs that text was read in, the last one perhaps in part."""
        return self.epoch + (self.index > 0)
