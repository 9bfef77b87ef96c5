"""An objective: a model and a batch become losses."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from operator import or_

import torch
from torch import Tensor, nn

from bertsmith.core.shapes import SelectedTokens
from bertsmith.network import shape_buckets
from bertsmith.network.batch import Batch, Target
from bertsmith.network.encoded import NO_TAPS, Encoded, Taps
from bertsmith.network.model import Model


@dataclass(frozen=True, kw_only=True)
class Loss:
    """One objective's loss over the targets of a batch.

    `sum` is the loss summed over `count` targets, float32 with gradient; `correct` counts targets
    predicted right, without gradient, and means nothing unless the objective `predicts`; `weight`
    multiplies its mean in a total. `majority`, where classes are uneven, counts targets of the most
    frequent one: what is right of a constant prediction.
    """

    sum: Tensor
    count: int
    correct: Tensor
    weight: float = 1.0
    predicts: bool = True
    majority: Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class Losses:
    """The losses of a batch by objective."""

    parts: Mapping[str, Loss]

    def total(self, counts: Mapping[str, int] | None = None) -> Tensor:
        """Return the weighted sum of mean losses, a scalar.

        `counts` are the targets of all batches that share one step: with them, the totals of
        these batches add up to the loss of one large batch.
        """
        shares = [
            loss.weight * loss.sum / max(counts[name] if counts else loss.count, 1)
            for name, loss in self.parts.items()
        ]
        return torch.stack(shares).sum()


class Term(ABC):
    """One term of a loss: it reads what the encoder made of a batch, and runs none itself."""

    reads: Taps = NO_TAPS
    """The taps that it reads besides the last layer's output."""
    own: nn.Module | None = None
    """Extra parameters, such as a projection: trained and checkpointed with the model, never
    part of its folder."""

    def prepare(self, model: Model, batch: Batch) -> Batch:
        """Return the batch that the encoder and all terms are given: by default as it is."""
        return batch

    def selected_tokens(self, model: Model, batch: Batch, target: Target) -> SelectedTokens | None:
        """Return the tokens at which it reads the last layer, each once; None for all."""
        return None

    @abstractmethod
    def __call__(self, model: Model, encoded: Encoded, batch: Batch, target: Target) -> Loss:
        """Return the loss over the target."""


class TokenTerm(Term):
    """A term that reads the last layer at the tokens of its target."""

    def selected_tokens(self, model: Model, batch: Batch, target: Target) -> SelectedTokens | None:
        """Return the tokens of the target."""
        return target.positions


class SequenceTerm(Term):
    """A term that reads one vector a sequence."""

    def selected_tokens(self, model: Model, batch: Batch, target: Target) -> SelectedTokens | None:
        """Return the tokens that sequences are pooled at."""
        return model.pooled_tokens(batch)


class TapsTerm(Term):
    """A term that reads taps of the inside, and the last layer at no token."""

    def selected_tokens(self, model: Model, batch: Batch, target: Target) -> SelectedTokens | None:
        """Return no token."""
        return target.positions[:0]


@dataclass(frozen=True)
class Objective:
    """Terms by the name of the target they predict; the encoder runs once for all of them."""

    terms: Mapping[str, Term]

    @property
    def own(self) -> nn.ModuleDict:
        """The modules that terms train beside the model, by the terms' names."""
        return nn.ModuleDict(
            {n: term.own for n, term in self.terms.items() if term.own is not None}
        )

    def __call__(self, model: Model, batch: Batch) -> Losses:
        """Return the loss of each term whose targets the batch carries."""
        terms = {name: term for name, term in self.terms.items() if name in batch.targets}
        for term in terms.values():
            batch = term.prepare(model, batch)
        taps = functools.reduce(or_, (term.reads for term in terms.values()), NO_TAPS)
        read = self.selected_tokens(model, batch)
        encoded = shape_buckets.encode(model.encoder, batch, selected=read, taps=taps)
        return Losses(
            parts={
                name: term(model, encoded, batch, batch.targets[name])
                for name, term in terms.items()
            }
        )

    def selected_tokens(self, model: Model, batch: Batch) -> SelectedTokens | None:
        """Return the tokens at which terms read the last layer, in order; None for most or all."""
        selected = []
        for name in self.terms.keys() & batch.targets.keys():
            read = self.terms[name].selected_tokens(model, batch, batch.targets[name])
            if read is None:
                return None
            selected.append(read)
        # so few that it pays
        if not 0 < sum(map(len, selected)) <= batch.tokens // 2:
            return None
        tokens = torch.cat(selected)
        # to count different ones, the host would wait for a GPU; one read twice does no harm there
        return tokens.sort().values if tokens.is_cuda else tokens.unique()
