"""Texts continued, token after token, by a model that reads from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.batches.examples import EncodedExamples
from bertsmith.batches.truncation import Ids
from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.core.streams import Purpose, stream
from bertsmith.engine.answers import Forward, finite
from bertsmith.engine.config import ContinuationConfig
from bertsmith.engine.predictor import Request, text_length
from bertsmith.network.model import Model
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer

# texts whose logits over the whole vocabulary are computed at once
_TEXTS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """The tokens that follow a text, (tokens,), and what they add to it."""

    ids: NDArray[np.int64]
    text: str


class TextContinuation:
    """The answering by which a model that reads from left to right continues texts.

    Special tokens are never chosen. What is drawn depends on the seed and on a text's number in the
    stream. Raises `ConfigError` for a model that does not read from left to right or has no head to
    predict tokens with, `ExampleError` for a pair, for a text with a mask, and for one that leaves
    no position free.
    """

    def __init__(self, model: Model, tokenizer: Tokenizer, config: ContinuationConfig) -> None:
        if not (model.config.encoder.causal and model.config.masked_lm):
            raise ConfigError("only a model pre-trained from left to right continues texts")
        self._tokenizer, self._config = tokenizer, config
        self._longest = model.config.encoder.longest

    def characters(self, example: Example) -> int:
        """Return the length of a text."""
        return text_length(example)

    def encode(self, examples: Sequence[Example]) -> EncodedExamples:
        """Encode texts, checked."""
        return encode_prompts(self._tokenizer, [self._ids_of(example) for example in examples])

    def _ids_of(self, example: Example) -> Ids:
        tokenizer, longest = self._tokenizer, self._longest
        (ids,) = tokenizer.encode([example.text])
        problem = ""
        if example.text_pair is not None:
            problem = "is a pair of texts, but a model continues single texts"
            remedy = "leave the second out"
        elif tokenizer.mask_id in ids:
            problem = (
                f"holds {tokenizer.vocabulary[tokenizer.mask_id]}, and the model continues texts"
            )
            remedy = "end the text where the continuation is to begin"
        elif len(ids) + 1 >= longest:
            problem = f"the text fills the {longest} tokens that the model reads"
            remedy = "keep only its end"
        if problem:
            raise ExampleError(problem, where=example.source, line=example.line, remedy=remedy)
        return ids

    def outputs(
        self, model: Model, requests: Sequence[Request[Example]], forward: Forward
    ) -> list[list[int]]:
        """Return the ids of each text with those that follow it."""
        texts = [request.encoded.ids[0].tolist() for request in requests]
        draws = [
            np.random.default_rng(
                int(stream(Purpose.CONTINUATION, self._config.seed, request.number))
            )
            for request in requests
        ]
        # after as many there is no position free
        for _ in range(min(self._config.max_new_tokens, model.config.encoder.longest)):
            _extend(model, self._tokenizer, texts, draws, self._config, forward)
        return texts

    def decode(self, request: Request[Example], output: list[int]) -> Continuation:
        """Return the new tokens, and their text with the blank that stands before it."""
        begin = len(request.encoded.ids[0])
        prompt_text = self._tokenizer.decode(output[1:begin])
        full_text = self._tokenizer.decode(output[1:])
        goes_on = full_text.startswith(prompt_text)
        text = full_text[len(prompt_text) :] if goes_on else self._tokenizer.decode(output[begin:])
        return Continuation(ids=np.array(output[begin:], np.int64), text=text)


def encode_prompts(tokenizer: Tokenizer, texts: Sequence[Ids]) -> EncodedExamples:
    """Return texts as texts begin in training: [CLS], and no [SEP] yet."""
    begin = np.array([tokenizer.cls_id], np.int32)
    return EncodedExamples.of([np.concatenate([begin, text]) for text in texts])


def _extend(
    model: Model,
    tokenizer: Tokenizer,
    texts: list[list[int]],
    draws: Sequence[np.random.Generator],
    config: ContinuationConfig,
    forward: Forward,
) -> None:
    """Append a token to each text that has a position free."""
    free = [n for n, ids in enumerate(texts) if len(ids) < model.config.encoder.longest]
    if not free:
        return
    encoded = EncodedExamples.of([np.array(texts[number], np.int32) for number in free])
    specials = torch.tensor(sorted(tokenizer.special_ids), device=model.device)
    for units, batch in forward.batches(model, encoded):
        last = model.encoder(batch, selected=batch.offsets[1:] - 1).last
        numbers = [free[unit] for unit in units.tolist()]
        for part, row_numbers in zip(last.split(_TEXTS), _split(numbers), strict=True):
            # a table may have more rows than there are pieces
            logits = finite(model.masked_lm(part)[:, : tokenizer.size])
            logits = logits.index_fill(1, specials, -torch.inf)
            for number, token in zip(
                row_numbers, _choose_tokens(logits, row_numbers, draws, config), strict=True
            ):
                texts[number].append(token)


def apply_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Return probabilities, in float64, of logits or log-probabilities at a temperature above 0."""
    exact = logits.double()
    # of differences from the highest: divided by a very small number these are 0 or infinite
    return ((exact - exact.amax(1, keepdim=True)) / temperature).softmax(1)


def _split(numbers: list[int]) -> list[list[int]]:
    return [numbers[begin : begin + _TEXTS] for begin in range(0, len(numbers), _TEXTS)]


def _choose_tokens(
    logits: Tensor,
    numbers: Sequence[int],
    draws: Sequence[np.random.Generator],
    config: ContinuationConfig,
) -> list[int]:
    """Return a token for each text, the likeliest or one that its own generator draws."""
    if not config.temperature:
        return logits.argmax(1).tolist()
    sums = apply_temperature(logits, config.temperature).cumsum(1)
    points = [[draws[number].random()] for number in numbers]
    at = torch.tensor(points, dtype=torch.float64, device=logits.device) * sums[:, -1:]
    return torch.searchsorted(sums, at, right=True)[:, 0].tolist()
