"""Hidden states of words, layer by layer: means over the pieces of a word."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.analysis.heads.attention import blocks
from bertsmith.analysis.heads.words import split_words, word_sums
from bertsmith.batches.examples import EncodedExamples, evaluation_batches
from bertsmith.network.encoded import Taps
from bertsmith.network.model import Model, forward_only
from bertsmith.tokens.tokenizer import Tokenizer

States = NDArray[np.float32]


def word_states(
    model: Model, tokenizer: Tokenizer, sentences: Sequence[Sequence[str]]
) -> list[States | None]:
    """Return the states (layers + 1, words, hidden) of each sentence, the embeddings first.

    A word that the tokenizer drops has NaN; None for a sentence that is too long for the model.
    """
    config = model.config.encoder
    results: list[States | None] = [None] * len(sentences)
    split = [split_words(tokenizer, words, config.longest) for words in sentences]
    read = [(number, item) for number, item in enumerate(split) if item is not None]
    if not read:
        return results
    encoded = EncodedExamples.of([s.ids for _, s in read], [s.segments for _, s in read])
    taps = Taps(states=frozenset(range(config.layers + 1)))
    with forward_only(model, "fp32"):
        for units, packed in evaluation_batches(encoded):
            batch = packed.to(model.device)
            states = model.encoder(batch, taps=taps).states
            for block in blocks(batch, config.heads):
                block_units = units[block.first : block.first + block.sequences].tolist()
                sums = word_sums(block, [read[unit][1] for unit in block_units], batch.ids.device)
                to_words = sums.share.transpose(-1, -2)
                means = torch.stack(
                    [to_words @ states[n][block.rows].float() for n in range(config.layers + 1)], 1
                )
                for row, unit in enumerate(block_units):
                    number, each = read[unit]
                    means[row, :, ~sums.there[row]] = float("nan")
                    results[number] = means[row, :, : each.words].cpu().numpy()
    return results


def unit_vectors(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return vectors (..., width) of length 1 with the same directions."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.maximum(lengths, 1e-12))


def words_with_states(states: States) -> NDArray[np.bool_]:
    """Mark the words (words,) of a sentence that the tokenizer has not dropped."""
    return ~np.asarray(np.isnan(states).any((0, 2)))
