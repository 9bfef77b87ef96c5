"""Sentence-order prediction (ALBERT: Lan et al. 2019, section 3.1)."""

from __future__ import annotations

from bertsmith.batches.batch import Batch, Target
from bertsmith.models.model import Model
from bertsmith.objectives.losses import Loss
from bertsmith.objectives.next_sentence import next_sentence
from bertsmith.shapes import Hidden


def sentence_order(model: Model, hidden: Hidden, batch: Batch, target: Target) -> Loss:
    """Cross-entropy of "in order" (0) against "exchanged" (1), for sequences of two segments.

    The head is that of next sentence, as both tell whether B is what follows A.
    """
    return next_sentence(model, hidden, batch, target)
