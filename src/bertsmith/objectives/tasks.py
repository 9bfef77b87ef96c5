"""The terms of fine-tuning: classes, numbers, choices, tags and spans.

The last two follow Devlin et al. 2018, sections 4.2 and 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from bertsmith.network.batch import Batch, Target
from bertsmith.network.encoded import Encoded
from bertsmith.network.model import Model
from bertsmith.objectives.cross_entropy import cross_entropy
from bertsmith.objectives.objective import Loss, SequenceTerm, Term, TokenTerm


def owners(positions: Tensor, sequences: int) -> Tensor:
    """Return the group of each sequence (sequences,); groups begin at `positions` (groups,)."""
    numbers = torch.arange(sequences, device=positions.device)
    return torch.searchsorted(positions, numbers, right=True) - 1


def group_means(values: Tensor, positions: Tensor, batch: Batch) -> Tensor:
    """Return means over the sequences of each group: (sequences, outputs) to (groups, outputs)."""
    if len(positions) == batch.sequences:
        return values
    owner = owners(positions, batch.sequences)
    sums = values.new_zeros(len(positions), values.shape[1]).index_add(0, owner, values)
    return sums / owner.bincount(minlength=len(positions))[:, None]


def in_rows(values: Tensor, owner: Tensor, position: Tensor, rows: int) -> Tensor:
    """Return values (values,) in rows (rows, longest) by owner and place in it, -inf elsewhere."""
    spread = values.new_full((rows, int(position.max()) + 1), -torch.inf)
    return spread.index_put((owner, position), values)


@dataclass(frozen=True)
class Classify(SequenceTerm):
    """Cross-entropy of one class a text, optionally with smoothed labels and weighted classes.

    `weights` (labels,) multiply the losses of texts of each class. The logits of several windows of
    a text are averaged before the softmax.
    """

    smoothing: float = 0.0
    weights: tuple[float, ...] = ()

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        """Return the loss over the texts that begin at the target's sequences."""
        logits = group_means(model.classify(encoded, batch), target.positions, batch)
        weights = torch.tensor(self.weights, device=logits.device) if self.weights else None
        return cross_entropy(logits, target.labels, self.smoothing, weights)


@dataclass(frozen=True)
class MultiLabel(SequenceTerm):
    """Binary cross-entropy of every label, averaged over the labels and summed over texts.

    `weights` (labels,) multiply the losses of labels that a text has.
    """

    smoothing: float = 0.0
    weights: tuple[float, ...] = ()

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        """Return the loss over the texts; the target's labels are (texts, labels), 0 or 1."""
        logits = group_means(model.classify(encoded, batch), target.positions, batch).float()
        truth = target.labels.float()
        weights = torch.tensor(self.weights, device=logits.device) if self.weights else None
        targets = truth * (1 - self.smoothing) + self.smoothing / 2
        loss = F.binary_cross_entropy_with_logits(
            logits, targets, pos_weight=weights, reduction="sum"
        )
        right = ((logits > 0) == (truth > 0.5)).all(-1).sum()
        return Loss(sum=loss / logits.shape[1], count=len(truth), correct=right)


@dataclass(frozen=True)
class Regress(SequenceTerm):
    """The squared error of a number, in units of the numbers' own `spread` around their `mean`.

    So the learning rate means the same whatever the numbers measure; the head's last layer has to
    be scaled in the end (`scaled`). Correct are those nearer to the truth than `mean` is.
    """

    mean: float = 0.0
    spread: float = 1.0

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        """Return the loss over the texts; the target's labels are (texts,)."""
        predicted = group_means(model.classify(encoded, batch), target.positions, batch).float()[
            :, 0
        ]
        truth = ((target.labels.double() - self.mean) / self.spread).float()
        right = ((predicted - truth).abs() < truth.abs()).sum()
        loss = F.mse_loss(predicted, truth, reduction="sum")
        return Loss(sum=loss, count=len(truth), correct=right)


@dataclass(frozen=True)
class Relevance(SequenceTerm):
    """Binary cross-entropy of a relevance in [0, 1] (Nogueira & Cho 2019, equation 1)."""

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        """Return the loss over the pairs; the target's labels are (pairs,)."""
        predicted = group_means(model.classify(encoded, batch), target.positions, batch).float()[
            :, 0
        ]
        truth = target.labels.float()
        loss = F.binary_cross_entropy_with_logits(predicted, truth, reduction="sum")
        return Loss(sum=loss, count=len(truth), correct=((predicted > 0) == (truth > 0.5)).sum())


@dataclass(frozen=True)
class Choose(SequenceTerm):
    """Cross-entropy of the right option among those of its question, any number of them."""

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        """Return the loss over the questions; a label is the number of the right option, from 0."""
        owner = owners(target.positions, batch.sequences)
        position = torch.arange(batch.sequences, device=owner.device) - target.positions[owner]
        scores = in_rows(model.choose(encoded, batch).float(), owner, position, len(target))
        return cross_entropy(scores, target.labels)


@dataclass(frozen=True)
class Tag(TokenTerm):
    """Cross-entropy of the labels of words; the head works at these tokens only."""

    smoothing: float = 0.0
    weights: tuple[float, ...] = ()

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        """Return the loss over the words; the target lies at their first pieces."""
        logits = model.tag(encoded.rows(target.positions))
        weights = torch.tensor(self.weights, device=logits.device) if self.weights else None
        return cross_entropy(logits, target.labels, self.smoothing, weights)


@dataclass(frozen=True)
class Span(Term):
    """The mean cross-entropy of the first and the last token of the answer among all of a window.

    A window without the answer has [CLS], place 0, for both.
    """

    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        """Return the loss over the windows; labels are (windows, 2), positions in the window."""
        logits = model.span(encoded.last).float()
        lengths = batch.offsets.diff()
        owner = torch.arange(batch.sequences, device=logits.device).repeat_interleave(lengths)
        position = torch.arange(batch.tokens, device=logits.device) - batch.starts[owner]
        rows = [in_rows(logits[:, end], owner, position, batch.sequences) for end in (0, 1)]
        starts, ends = (cross_entropy(row, target.labels[:, end]) for end, row in enumerate(rows))
        right = torch.stack([row.argmax(-1) for row in rows], -1) == target.labels
        return Loss(sum=(starts.sum + ends.sum) / 2, count=len(target), correct=right.all(-1).sum())
