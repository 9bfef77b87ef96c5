"""The beginning and the end of an answer in a text (Devlin et al. 2018, sections 4.2 and 4.3)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bertsmith.network.batch import Batch, Target
from bertsmith.network.encoded import Encoded
from bertsmith.network.model import Model
from bertsmith.objectives.cross_entropy import cross_entropy
from bertsmith.objectives.objective import Loss, Term, TokenTerm
from bertsmith.objectives.texts import in_rows


@dataclass(frozen=True)
class Tag(TokenTerm):
    """Cross-entropy of the labels of words; the head works at these tokens only."""

    smoothing: float = 0.0
    weights: tuple[float, ...] = ()

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        """The loss over the words; the target lies at their first pieces."""
        logits = model.tag(encoded.rows(target.at))
        weights = torch.tensor(self.weights, device=logits.device) if self.weights else None
        return cross_entropy(logits, target.labels, self.smoothing, weights)


@dataclass(frozen=True)
class Span(Term):
    """The mean cross-entropy of the first and the last token of the answer among all of a window.

    A window without the answer has [CLS], place 0, for both.
    """

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        """The loss over the windows; labels are (windows, 2), places in the window."""
        logits = model.span(encoded.last).float()
        lengths = batch.offsets.diff()
        owner = torch.arange(batch.sequences, device=logits.device).repeat_interleave(lengths)
        place = torch.arange(batch.tokens, device=logits.device) - batch.starts[owner]
        rows = [in_rows(logits[:, end], owner, place, batch.sequences) for end in (0, 1)]
        starts, ends = (cross_entropy(row, target.labels[:, end]) for end, row in enumerate(rows))
        right = torch.stack([row.argmax(-1) for row in rows], -1) == target.labels
        return Loss(sum=(starts.sum + ends.sum) / 2, count=len(target), correct=right.all(-1).sum())
