"""How far the answers of two models that should be one are from each other."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from bertsmith.batches.batch import Batch, pack
from bertsmith.batches.randomness import Purpose, stream
from bertsmith.evaluation.forward_only import forward_only
from bertsmith.models.model import Model

_LENGTHS = (3, 17, 64, 128)


def largest_differences(one: Model, other: Model) -> dict[str, float]:
    """The largest absolute difference of hidden states, and of the answers of heads both have.

    Both read the same ids, drawn once and for all, in sequences of several lengths; float32.
    """
    batch = _drawn(one, other)
    mine, its = _answers(one, batch), _answers(other, batch)
    return {
        name: float((mine[name] - its[name]).abs().max())
        for name in mine
        if name in its and mine[name].shape == its[name].shape
    }


def _answers(model: Model, batch: Batch) -> dict[str, Tensor]:
    with forward_only(model, "fp32"):
        hidden = model.encoder(batch)
        found = {"hidden states": hidden}
        if "masked_lm" in model.heads:
            found["masked tokens"] = model.masked_lm(hidden)
        if "next_sentence" in model.heads:
            found["next sentence"] = model.next_sentence(hidden, batch)
        if "classify" in model.heads:
            found["classes"] = model.classify(hidden, batch)
        if "tag" in model.heads:
            found["tags"] = model.tag(hidden)
        if "span" in model.heads:
            found["spans"] = model.span(hidden)
        if "choose" in model.heads:
            found["choices"] = model.choose(hidden, batch)
    return found


def _drawn(one: Model, other: Model) -> Batch:
    """Some sequences, their second half of another segment."""
    configs = [model.config.encoder for model in (one, other)]
    longest = min(config.longest for config in configs)
    vocabulary = min(config.vocabulary for config in configs)
    several = all(config.segments != 1 for config in configs)
    random = np.random.default_rng(int(stream(Purpose.AGREEMENT)))
    lengths = [min(each, longest) for each in _LENGTHS]
    ids = [random.integers(0, vocabulary, length) for length in lengths]
    segments = [np.arange(length) * 2 // length * several for length in lengths]
    return pack(ids, segments)
