"""An objective: a model and a batch become losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bertsmith.batches.batch import Batch, Target
from bertsmith.models.model import Model
from bertsmith.objectives.losses import Loss, Losses
from bertsmith.shapes import Hidden, Places, SequencePlaces

Term = Callable[[Model, Hidden, Batch, Target], Loss]


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
        hidden = model.encoder(batch, self.read(batch, model.pooled_places(batch)))
        return Losses(
            parts={
                name: term(model, hidden, batch, batch.targets[name])
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
