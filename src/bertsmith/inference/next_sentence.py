"""How likely the second text of a pair follows the first, by the head of pre-training."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bertsmith.batches.examples import TOKENS_PER_BATCH, EncodedExamples, evaluation_batches
from bertsmith.evaluation.forward_only import Precision, forward_only
from bertsmith.models.model import Model


def next_sentence_probabilities(
    model: Model,
    examples: EncodedExamples,
    *,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    precision: Precision = "fp32",
) -> NDArray[np.float32]:
    """Return the probability that each pair is as in the text, (pairs,).

    Of a BERT that the second text is the next one and no random one (Devlin et al. 2018, section
    3.1), of an ALBERT that the two are in order (Lan et al. 2019, section 3.1).
    """
    found = np.empty(len(examples), np.float32)
    with forward_only(model, precision):
        for units, packed in evaluation_batches(examples, tokens_per_batch=tokens_per_batch):
            batch = packed.to(model.device)
            hidden = model.encoder(batch, model.pooled_places(batch))
            shares = model.next_sentence(hidden, batch).float().softmax(-1)
            found[units] = shares[:, 0].cpu().numpy()
    return found
