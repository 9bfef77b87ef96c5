"""Attributions: the logit of an answer shared out among the words.

integrated-gradients  the gradient by the embeddings, integrated on the straight line from a
                      baseline where all words are masks (Sundararajan et al. 2017); the shares add
                      up to the difference of the logits at both ends
gradient-x-input      the gradient at the text itself, times its embeddings
leave-one-out         what the logit loses when a word is masked
rollout               how much of the word reaches the answer through the attention of all layers
                      (Abnar & Zuidema 2020), whatever the answer

A word's share is the sum of those of its pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.analysis.attributions.subjects import Subject, run
from bertsmith.batches.truncation import Ids
from bertsmith.network.batch import Batch
from bertsmith.network.encoded import Taps
from bertsmith.network.model import Model, forward_only
from bertsmith.tokens.vocabulary import TokenInventory

Method = Literal["integrated-gradients", "gradient-x-input", "leave-one-out", "rollout"]
Baseline = Literal["mask", "pad"]
Shares = NDArray[np.float64]

# tokens of the copies of a sequence that are computed at once
_TOKENS = 4096
_FIRST_STEPS = 16
_MAX_STEPS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The share of each word, (words,), or of each token, (length,), in an answer.

    Of integrated gradients `difference` is that of the logits of text and baseline, `gap` how far
    the shares of all tokens are from adding up to it, after `steps` gradients.
    """

    shares: Shares
    difference: float | None = None
    gap: float | None = None
    steps: int | None = None


Value = Callable[[Tensor], Tensor]
"""A function of the embeddings of copies of a sequence, (copies, length, hidden), to (copies,)."""


def integrate(
    value: Value,
    inputs: Tensor,
    baseline: Tensor,
    *,
    tolerance: float,
    most_steps: int = _MAX_STEPS,
) -> Attribution:
    """Integrate gradients from a baseline to inputs, both (length, hidden).

    By Gauss and Legendre's points, twice as many as before until the shares add up to the
    difference of the values within the tolerance, or there are `most_steps`.
    """
    with torch.no_grad():
        upper, lower = (float(value(tensor[None])[0]) for tensor in (inputs, baseline))
    steps = min(_FIRST_STEPS, most_steps)
    while True:
        nodes, weights = np.polynomial.legendre.leggauss(steps)
        mean = torch.zeros(inputs.shape, dtype=torch.float64)
        copies = max(1, _TOKENS // len(inputs))
        for begin in range(0, steps, copies):
            at = torch.from_numpy((nodes[begin : begin + copies] + 1) / 2).to(inputs)
            part = torch.from_numpy(weights[begin : begin + copies] / 2)
            points = baseline + at[:, None, None] * (inputs - baseline)
            gradients = _gradients(value, points).double().cpu()
            mean += torch.einsum("k,knh->nh", part, gradients)
        shares = ((inputs - baseline).double().cpu() * mean).sum(-1).numpy()
        gap = abs(float(shares.sum()) - (upper - lower))
        if gap <= tolerance or 2 * steps > most_steps:
            return Attribution(shares=shares, difference=upper - lower, gap=gap, steps=steps)
        steps *= 2


def _gradients(value: Value, points: Tensor) -> Tensor:
    """Return the gradients of the values by the points, (copies, length, hidden)."""
    with torch.enable_grad():
        points = points.detach().requires_grad_(True)
        (result,) = torch.autograd.grad(value(points).sum(), points)
    return result


def attention_rollout(weights: Sequence[Tensor]) -> Tensor:
    """Return (length, length), rows by output token, of the weights of all layers.

    Those of a layer are (heads, length, length), rows by query; the first layer comes first. A
    layer passes on the mean of its heads, half of it replaced by the identity for the residual
    connection. The product says what share of each input token there is in each output token, if
    attention were all that mixes them.
    """
    length = weights[0].shape[-1]
    shares = torch.eye(length, dtype=torch.float64)
    for layer in weights:
        mixed = (layer.double().mean(0).cpu() + torch.eye(length, dtype=torch.float64)) / 2
        shares = mixed / mixed.sum(-1, keepdim=True) @ shares
    return shares


@dataclass(frozen=True, kw_only=True)
class Explainer:
    """A model, not in training, whose answers are attributed to words."""

    model: Model
    inventory: TokenInventory
    baseline: Baseline = "mask"
    tolerance: float = 1e-3

    def attribute(self, subject: Subject, method: Method) -> Attribution:
        """Return the share of each word of a subject by a method."""
        if method == "integrated-gradients":
            result = self.integrated_gradients(subject)
            return replace(result, shares=by_word(subject, result.shares))
        if method == "leave-one-out":
            return Attribution(shares=self.leave_one_out(subject))
        of_tokens = {"gradient-x-input": self.gradient_times_input, "rollout": self.rollout}
        return Attribution(shares=by_word(subject, of_tokens[method](subject)))

    def integrated_gradients(self, subject: Subject) -> Attribution:
        """Return the integrated gradients of each token; special ones have none."""
        neutral = self.inventory.mask_id if self.baseline == "mask" else self.inventory.pad_id
        assert neutral is not None
        ids = subject.ids.copy()
        for word in subject.words:
            ids[word.positions] = neutral
        inputs, baseline = self._embeddings(subject, subject.ids), self._embeddings(subject, ids)
        return integrate(self._value(subject), inputs, baseline, tolerance=self.tolerance)

    def gradient_times_input(self, subject: Subject) -> Shares:
        """Return the gradient by the embeddings of each token times these."""
        inputs = self._embeddings(subject, subject.ids)
        gradient = _gradients(self._value(subject), inputs[None])[0]
        return (inputs.double() * gradient.double()).sum(-1).cpu().numpy()

    def leave_one_out(self, subject: Subject) -> Shares:
        """Return the fall of the logit when each word is masked; 0 for a word without tokens."""
        masked = [
            masked_words(subject, self.inventory, [number]) for number in range(len(subject.words))
        ]
        full_value, *others = self.values(subject, [subject.ids, *masked])
        return full_value - np.array(others, np.float64)

    def rollout(self, subject: Subject) -> Shares:
        """Return the share of each token at the tokens that the answer is read from."""
        batch = subject.copies([subject.ids]).to(self.model.device)
        layers = range(1, self.model.config.encoder.layers + 1)
        with forward_only(self.model, "fp32"):
            encoded = self.model.encoder(batch, taps=Taps(weights=frozenset(layers)))
        shares = attention_rollout([encoded.weights[layer][0] for layer in layers])
        return shares[list(subject.target.positions)].mean(0).numpy()

    def values(self, subject: Subject, ids: Sequence[Ids]) -> list[float]:
        """Return the logit of the answer in sequences of the subject's length."""
        results: list[float] = []
        for part in parts(subject, ids):
            encoded, batch = run(self.model, subject, part)
            with forward_only(self.model, "fp32"):
                results += subject.target.values(self.model, encoded, batch).tolist()
        return results

    def _embeddings(self, subject: Subject, ids: Ids) -> Tensor:
        """Return the embeddings of a sequence, (length, hidden)."""
        batch = subject.copies([ids]).to(self.model.device)
        with torch.no_grad():
            embeddings = self.model.encoder.embeddings
            # words keep their positions where padding stands in their place
            positions = embeddings.counted_positions(
                subject.copies([subject.ids]).to(self.model.device)
            )
            result: Tensor = embeddings(batch.ids, batch.segments, positions)
        return result

    def _value(self, subject: Subject) -> Value:
        """Return the logit of the answer as a function of embeddings."""
        batches: dict[int, Batch] = {}

        def value(points: Tensor) -> Tensor:
            copies = len(points)
            if copies not in batches:
                batches[copies] = subject.copies([subject.ids] * copies).to(points.device)
            batch = batches[copies]
            encoded = self.model.encoder.transform(points.flatten(0, 1), batch)
            return subject.target.values(self.model, encoded, batch)

        return value


def by_word(subject: Subject, shares: Shares) -> Shares:
    """Return the sums of the shares of each word's tokens, (words,)."""
    return np.array([float(shares[word.positions].sum()) for word in subject.words])


def masked_words(subject: Subject, inventory: TokenInventory, words: Sequence[int]) -> Ids:
    """Return the ids with masks for all tokens of some words."""
    assert inventory.mask_id is not None
    ids = subject.ids.copy()
    for number in words:
        ids[subject.words[number].positions] = inventory.mask_id
    return ids


def parts(subject: Subject, ids: Sequence[Ids]) -> Iterator[Sequence[Ids]]:
    """Yield sequences of a subject in parts of a bounded number of tokens."""
    copies = max(1, _TOKENS // len(subject.ids))
    for begin in range(0, len(ids), copies):
        yield ids[begin : begin + copies]
