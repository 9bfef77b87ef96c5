"""An objective: a model and a batch become losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bertsmith.core.shapes import Places, SequencePlaces
from bertsmith.network import shape_buckets
from bertsmith.network.batch import Batch, Target
from bertsmith.network.encoded import Encoded
from bertsmith.network.model import Model


@dataclass(frozen=True, kw_only=True)
class Loss:
    """One objective's loss over the targets of a batch.

    `sum` is the loss summed over `count` targets, float32 with gradient; `correct` counts targets
    predicted right, without gradient.
    """

    sum: Tensor
    count: int
    correct: Tensor


@dataclass(frozen=True, kw_only=True)
class Losses:
    """The losses of a batch by objective."""

    parts: Mapping[str, Loss]

    def total(self, counts: Mapping[str, int] | None = None) -> Tensor:
        """The sum of mean losses, a scalar.

        `counts` are the targets of all batches that share one step: with them, the totals of
        these batches add up to the loss of one large batch.
        """
        shares = [
            loss.sum / max(counts[name] if counts else loss.count, 1)
            for name, loss in self.parts.items()
        ]
        return torch.stack(shares).sum()


Term = Callable[[Model, Encoded, Batch, Target], Loss]


@dataclass(frozen=True)
class Objective:
    """Terms by the name of the target they predict; the encoder runs once for all of them.

    `at_targets` names the terms that read the hidden states of the tokens at their targets; any
    other reads the tokens that sequences are pooled at. The last layer then works where somebody
    reads. None for terms that may read anything.
    """

    terms: Mapping[str, Term]
    at_targets: frozenset[str] | None = None

    def __call__(self, model: Model, batch: Batch) -> Losses:
        """The loss of each term whose targets the batch carries."""
        read = self.read(batch, model.pooled_places(batch))
        encoded = shape_buckets.encode(model.encoder, batch, at=read)
        return Losses(
            parts={
                name: term(model, encoded, batch, batch.targets[name])
                for name, term in self.terms.items()
                if name in batch.targets
            }
        )

    def read(self, batch: Batch, pooled: SequencePlaces | None) -> Places | None:
        """The tokens whose last hidden states are read, in order; None for most or all.

        `pooled` are those that stand for the sequences, None where these are means.
        """
        if self.at_targets is None or pooled is None:
            return None
        names = batch.targets.keys() & self.terms.keys()
        places = [batch.targets[name].at for name in sorted(names & self.at_targets)]
        if names - self.at_targets:
            places.append(pooled)
        count = sum(map(len, places))
        # so few that it pays
        if not 0 < count <= batch.tokens // 2:
            return None
        read: Tensor = torch.cat(places).unique()
        return read
