"""An exported file compared with the engine, on sequences of the model's vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from bertsmith.core.errors import ModelFolderError
from bertsmith.core.streams import Purpose, stream
from bertsmith.network.batch import Batch, pack
from bertsmith.network.config import ModelConfig
from bertsmith.network.model import Model, forward_only
from bertsmith.network.pooling import pooled
from bertsmith.recipes.export.graph import input_names, output_names
from bertsmith.recipes.export.runtimes import Runtime, padded_inputs
from bertsmith.tokens.tokenizer import Tokenizer
from bertsmith.weights.sentence_folder import SentenceSettings

BOUND = 1e-5
"""Largest difference from the engine's output, times the largest value where that exceeds 1."""
# attention of an exported model takes memory by the square of the length
_MAX_LENGTH = 2048
# of a masked-LM head, computed at once
_LOGITS = 2**26
# options of each question
_CHOICES = 3


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The largest difference found, in parts of max(1, the largest value), of all batches."""

    difference: float
    batches: int
    longest: int


def compare(
    runtime: Runtime, model: Model, tokenizer: Tokenizer, sentence: SentenceSettings | None = None
) -> Comparison:
    """Compare an exported file with an opened model, in float32, at several shapes.

    Raises `ModelFolderError` where they are further apart than `BOUND`.
    """
    config = model.config
    names, worst, count = output_names(config, sentence), (0.0, ""), 0
    choices = _CHOICES if config.predicts == "choice" else None
    longest = 0
    for batch in _batches(config, tokenizer):
        inputs = padded_inputs(batch, input_names(config), pad_id=tokenizer.pad_id, choices=choices)
        outputs = runtime(inputs)
        with forward_only(model, "fp32"):
            expected = engine_outputs(model, batch, sentence)
        real = inputs["attention_mask"].astype(bool)
        for name in names:
            actual, expected_output = outputs[name], expected[name].numpy()
            if actual.shape[: real.ndim] == real.shape and len(expected_output) == batch.tokens:
                actual = actual[real]
            distance = np.abs(actual.reshape(expected_output.shape) - expected_output).max()
            # a NaN is no number that is larger than another
            share = float(
                np.nan_to_num(distance / max(1.0, np.abs(expected_output).max()), nan=np.inf)
            )
            worst = max(worst, (share, name))
        count, longest = count + 1, max(longest, *batch.lengths)
    if worst[0] > BOUND:
        raise ModelFolderError(
            f"the exported {worst[1]} differ from the engine's by {worst[0]:.1e}, more than the "
            f"{BOUND:.0e} allowed",
            remedy="nothing was written; choose another format with --to",
        )
    return Comparison(difference=worst[0], batches=count, longest=longest)


def _batches(config: ModelConfig, tokenizer: Tokenizer) -> Iterator[Batch]:
    """Yield batches of sequences as the tokenizer frames them, short ones and long ones."""
    random = np.random.default_rng(int(stream(Purpose.EXPORT_CHECK)))
    limit, share = min(config.encoder.longest, _MAX_LENGTH), 2
    if config.masked_lm:
        limit, share = max(2, min(limit, _LOGITS // config.encoder.vocabulary)), 6
    middle = [max(2, limit // (share * parts)) for parts in (1, 2, 3, 4, 10)]
    for lengths in ([1], [2], [*middle, 1], [limit], [min(limit, 64)] * 3):
        options = _CHOICES if config.predicts == "choice" else 1
        yield pack(*_sequences(lengths * options, tokenizer, random))


def _sequences(
    lengths: Sequence[int], tokenizer: Tokenizer, random: np.random.Generator
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    ids, segments = [], []
    for length in lengths:
        sequence = random.integers(0, tokenizer.size, length)
        sequence[-1], sequence[0] = tokenizer.sep_id, tokenizer.cls_id
        ids.append(sequence)
        segments.append((np.arange(length) > length // 2).astype(np.int64))
    return ids, segments


def engine_outputs(
    model: Model, batch: Batch, sentence: SentenceSettings | None = None
) -> dict[str, Tensor]:
    """Return the engine's outputs by the names of an exported model's: of tokens packed."""
    config, encoded = model.config, model.encoder(batch)
    hidden = encoded.last
    match config.head:
        case "classify":
            return {"logits": model.classify(encoded, batch)}
        case "choose":
            return {"logits": model.choose(encoded, batch)}
        case "tag":
            return {"logits": model.tag(hidden)}
        case "span":
            return dict(zip(output_names(config), model.span(hidden).unbind(-1), strict=True))
    if config.replaced_tokens:
        return {"logits": model.replaced_tokens(hidden)}
    outputs: dict[str, Tensor] = {}
    names = output_names(config, sentence)
    if config.masked_lm:
        outputs[names[0]] = model.masked_lm(hidden)
    if config.next_sentence:
        outputs[names[-1]] = model.next_sentence(encoded, batch)
    if outputs:
        return outputs
    outputs["last_hidden_state"] = hidden
    if sentence is not None:
        vectors = pooled(sentence.pool, hidden, batch.offsets)
        for layer in sentence.after:
            vectors = layer(vectors)
        outputs["sentence_embedding"] = vectors
    elif model.pooler is not None:
        outputs["pooler_output"] = model.pooled(encoded, batch)
    return outputs
