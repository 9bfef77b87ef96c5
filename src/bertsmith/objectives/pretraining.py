"""All objectives of pre-training, by the targets that a batch may carry."""

from __future__ import annotations

from bertsmith.objectives.left_to_right import left_to_right
from bertsmith.objectives.masked_lm import masked_lm
from bertsmith.objectives.next_sentence import next_sentence
from bertsmith.objectives.objective import Objective
from bertsmith.objectives.sentence_order import sentence_order

PRETRAINING = Objective(
    {
        "masked_lm": masked_lm,
        "left_to_right": left_to_right,
        "next_sentence": next_sentence,
        "sentence_order": sentence_order,
    },
    at_targets=frozenset({"masked_lm", "left_to_right"}),
)
"""A batch's targets choose among these, so it serves whatever the sequences are made of."""
