"""Pseudo-log-likelihoods of sentences by masked models, log-likelihoods by left-to-right ones.

The pseudo-log-likelihood of a sentence (Salazar et al. 2020, section 2) is the sum over its tokens
of the log-probability of each, given all others: one sequence per token, with that token masked.
Later pieces of a word give away its earlier ones, so that rare words of many pieces get a high
score; with `word-l2r` these later pieces are masked too (Kauf & Ivanova 2023). A model that reads
from left to right gives the log-likelihood itself, in one pass. Special tokens are not scored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.batches.examples import EncodedExamples, encode_examples
from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.engine.answers import Forward
from bertsmith.engine.config import Masking
from bertsmith.engine.language_model.cloze import Cloze, log_probabilities, predictions
from bertsmith.engine.predictor import Request, text_length
from bertsmith.network.model import Model
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer

# tokens of masked copies that are held at once: a text of n tokens has n copies
_TOKENS = 1 << 19


@dataclass(frozen=True, slots=True, kw_only=True)
class TextScore:
    """The log-probability of each piece of a text, (pieces,), given its context."""

    pieces: tuple[str, ...]
    log_probabilities: NDArray[np.float64]

    @property
    def total(self) -> float:
        """The score of the text."""
        return float(self.log_probabilities.sum())


class TextScoring:
    """The answering by which a model scores texts; of a pair, each text by itself.

    Raises `ConfigError` for a masking that is not for the model, `ExampleError` for a text with a
    mask, for one that is longer than the model reads, and for one without tokens in a pair.
    """

    def __init__(self, model: Model, tokenizer: Tokenizer, masking: Masking = "token") -> None:
        assert model.config.masked_lm
        if model.config.encoder.causal and masking != "token":
            raise ConfigError(
                f"--masking {masking} is for masked models, and this one reads from left to right",
                remedy="leave it out",
            )
        self._tokenizer, self._masking = tokenizer, masking
        self._causal, self._longest = model.config.encoder.causal, model.config.encoder.longest
        self._specials = tokenizer.specials_around(pair=False)

    def characters(self, example: Example) -> int:
        """Return the length of a text or pair."""
        return text_length(example)

    def encode(self, examples: Sequence[Example]) -> EncodedExamples:
        """Encode texts, each of a pair as a separate sequence."""
        texts = [
            [text for text in (example.text, example.text_pair) if text is not None]
            for example in examples
        ]
        flat = [text for text_of_pair in texts for text in text_of_pair]
        encoded = encode_examples(self._tokenizer, flat, longest=self._longest)
        grouped = encoded.grouped([len(text_of_pair) for text_of_pair in texts])
        for example, text_of_pair in zip(examples, grouped.by_row(), strict=True):
            self._check(example, text_of_pair)
        return grouped

    def _check(self, example: Example, encoded: EncodedExamples) -> None:
        mask_id = self._tokenizer.mask_id
        if encoded.cut[0]:
            problem = f"the text is longer than the {self._longest} tokens that the model reads"
            remedy = "split it into sentences"
        elif any(np.any(ids == mask_id) for ids in encoded.ids):
            problem = f"holds {self._tokenizer.vocabulary[mask_id]}, but every token is scored"
            remedy = "write the word"
        elif len(encoded.ids) > 1 and min(map(len, encoded.ids)) == self._specials:
            # a sum over no tokens is 0, and any other is below it
            problem = "one text of the pair has no tokens, of which it could have a score"
            remedy = "write both texts, or leave the pair out"
        else:
            return
        raise ExampleError(problem, where=example.source, line=example.line, remedy=remedy)

    def outputs(
        self, model: Model, requests: Sequence[Request[Example]], forward: Forward
    ) -> list[list[NDArray[np.float64]]]:
        """Return the log-probabilities of the tokens of each text of each request."""
        texts = EncodedExamples.joined([request.encoded for request in requests])
        score = self._score_left_to_right if self._causal else self._score_masked
        results = iter(score(model, texts, forward))
        return [[next(results) for _ in request.encoded.ids] for request in requests]

    def _score_masked(
        self, model: Model, texts: EncodedExamples, forward: Forward
    ) -> Iterator[NDArray[np.float64]]:
        """Yield the log-probabilities of each text, each of its tokens masked in its turn."""
        waiting: list[tuple[list[Cloze], list[list[int]]]] = []
        tokens = 0
        for ids, segments in zip(texts.ids, texts.segments, strict=True):
            clozes = list(self._clozes(ids, segments))
            waiting.append((clozes, [[int(ids[cloze.place])] for cloze in clozes]))
            tokens += len(clozes) * len(ids)
            if tokens >= _TOKENS:
                yield from self._run(model, waiting, forward)
                waiting, tokens = [], 0
        yield from self._run(model, waiting, forward)

    def _run(
        self, model: Model, texts: Sequence[tuple[list[Cloze], list[list[int]]]], forward: Forward
    ) -> Iterator[NDArray[np.float64]]:
        clozes = [item for own, _ in texts for item in own]
        targets = [item for _, own in texts for item in own]
        results = iter(log_probabilities(model, self._tokenizer, clozes, targets, forward))
        for own, _ in texts:
            yield np.concatenate([np.empty(0), *(next(results) for _ in own)])

    def _clozes(self, ids: NDArray[np.int32], segments: NDArray[np.int8]) -> Iterator[Cloze]:
        """Yield a sequence for each token of a text, masked by the chosen rule."""
        # the word of each token ends before the next token that begins one
        begins = np.flatnonzero(~self._tokenizer.continues[ids])
        for position in range(1, len(ids) - 1):
            end = position + 1
            if self._masking == "word-l2r":
                end = int(begins[np.searchsorted(begins, position, side="right")])
            masked = ids.copy()
            masked[position:end] = self._tokenizer.mask_id
            yield Cloze(ids=masked, segments=segments, place=position)

    def _score_left_to_right(
        self, model: Model, texts: EncodedExamples, forward: Forward
    ) -> Iterator[NDArray[np.float64]]:
        """Yield the log-probabilities of each text, each token given those before it."""
        results = [np.zeros(len(ids) - 2) for ids in texts.ids]
        positions = [range(len(result)) for result in results]
        # of a pair, each text by itself
        sequences = EncodedExamples.of(texts.ids, texts.segments)
        for keys, shares in predictions(model, self._tokenizer, sequences, positions, forward):
            following = torch.tensor(
                [int(texts.ids[number][position + 1]) for number, position in keys]
            )
            values = shares.gather(1, following[:, None].to(shares.device))[:, 0].tolist()
            for (number, position), value in zip(keys, values, strict=True):
                results[number][position] = value
        yield from results

    def decode(
        self, request: Request[Example], output: list[NDArray[np.float64]]
    ) -> tuple[TextScore, ...]:
        """Return the score of a text, or of each of a pair."""
        return tuple(
            TextScore(
                pieces=tuple(self._tokenizer.shown(token) for token in ids[1:-1].tolist()),
                log_probabilities=values,
            )
            for ids, values in zip(request.encoded.ids, output, strict=True)
        )
