"""Generation of text by masked models, in three ways, and by left-to-right ones.

A masked model was not made to write: it predicts tokens given both sides, so it has to pass over
the whole text for each token or few. The text begins as a prompt and masks. These are filled from
left to right; all at once, the least probable ones again in every pass, fewer each time
(mask-predict: Ghazvininejad et al. 2019); or one by one in random order, each drawn anew given all
others as often as there are passes (gibbs: Wang & Cho 2019). A model that reads from left to right
predicts the next token from those before it. Special tokens are never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.batches.examples import EncodedExamples
from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.core.streams import Purpose, stream
from bertsmith.engine.answers import Forward
from bertsmith.engine.config import WritingConfig
from bertsmith.engine.language_model.cloze import predictions
from bertsmith.engine.language_model.continuation import apply_temperature, encode_prompts
from bertsmith.engine.predictor import Request, text_length
from bertsmith.network.model import Model
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A prompt with the text after it, the new tokens, and the passes of the model it took."""

    text: str
    ids: NDArray[np.int64]
    passes: int


Draw = tuple[int, float]
"""A token, and its log-probability before temperature."""


class TextWriting:
    """The answering by which a pre-trained model writes after prompts.

    What is drawn depends on the seed and on a prompt's number in the stream. Raises `ConfigError`
    for a way that is not for the model, `ExampleError` for a prompt that holds a mask or leaves
    too few positions.
    """

    def __init__(self, model: Model, tokenizer: Tokenizer, config: WritingConfig) -> None:
        assert model.config.masked_lm
        self._causal = model.config.encoder.causal
        if self._causal and config.how != "left-to-right":
            raise ConfigError(
                f"--how {config.how} is for masked models, and this one reads from left to right",
                remedy="leave it out",
            )
        self._tokenizer, self._config = tokenizer, config
        self._longest = model.config.encoder.longest
        barred = np.ones(tokenizer.size, bool)
        barred[tokenizer.ordinary_ids] = False
        self._excluded_pieces = torch.from_numpy(barred)

    def characters(self, example: Example) -> int:
        """Return the length of a prompt."""
        return text_length(example)

    def encode(self, examples: Sequence[Example]) -> EncodedExamples:
        """Encode prompts, checked."""
        return encode_prompts(self._tokenizer, [self._ids_of(example) for example in examples])

    def _ids_of(self, example: Example) -> NDArray[np.int32]:
        tokenizer, length = self._tokenizer, self._config.length
        (ids,) = tokenizer.encode([example.text])
        if tokenizer.mask_id in ids:
            problem = (
                f"holds {tokenizer.vocabulary[tokenizer.mask_id]}, and the text is written after"
            )
            remedy = "end the prompt where the new text is to begin"
        elif len(ids) + length + 2 > self._longest:
            problem = f"the prompt and {length} tokens are more than the {self._longest} that "
            problem += "the model reads"
            remedy = "give a shorter prompt or a smaller --length"
        else:
            return ids
        raise ExampleError(problem, where=example.source, line=example.line, remedy=remedy)

    def outputs(
        self, model: Model, requests: Sequence[Request[Example]], forward: Forward
    ) -> list[list[int]]:
        """Return the ids of each prompt with those written after it."""
        writer = _Texts(model, self._tokenizer, self._config, self._excluded_pieces, forward)
        prompts = [request.encoded.ids[0].tolist() for request in requests]
        draws = [
            np.random.default_rng(int(stream(Purpose.WRITING, self._config.seed, request.number)))
            for request in requests
        ]
        if self._causal:
            return writer.continued(prompts, draws)
        ways = {
            "left-to-right": writer.from_left,
            "mask-predict": writer.mask_predict,
            "gibbs": writer.gibbs,
        }
        return ways[self._config.how](prompts, draws)

    def decode(self, request: Request[Example], output: list[int]) -> Written:
        """Return the text of the prompt and of what follows."""
        begin = len(request.encoded.ids[0])
        return Written(
            text=self._tokenizer.decode(output[1:]),
            ids=np.array(output[begin:], np.int64),
            passes=self._config.passes_made,
        )


Prompts = Sequence[list[int]]
Generators = Sequence[np.random.Generator]


@dataclass(frozen=True)
class _Texts:
    """Several texts that are written side by side."""

    model: Model
    tokenizer: Tokenizer
    config: WritingConfig
    excluded: Tensor
    forward: Forward

    def continued(self, prompts: Prompts, draws: Generators) -> list[list[int]]:
        """Append a token after another, by a model that reads from left to right."""
        texts = [list(prompt) for prompt in prompts]
        for _ in range(self.config.length):
            ends = [[len(text) - 1] for text in texts]
            for text, tokens in zip(texts, self._draw(texts, ends, draws), strict=True):
                text.append(tokens[0][0])
        return texts

    def from_left(self, prompts: Prompts, draws: Generators) -> list[list[int]]:
        """Fill the masks after each prompt from left to right."""
        texts = self._masked(prompts)
        for step in range(self.config.length):
            positions = [[len(prompt) + step] for prompt in prompts]
            self._fill(texts, positions, draws)
        return [text[:-1] for text in texts]

    def mask_predict(self, prompts: Prompts, draws: Generators) -> list[list[int]]:
        """Fill all masks at once, then mask and fill the least probable ones, fewer each time."""
        texts = self._masked(prompts)
        certain = [np.full(self.config.length, -np.inf) for _ in prompts]
        for count in self.config.masked_again:
            positions = []
            for text, prompt, certainties in zip(texts, prompts, certain, strict=True):
                lowest = np.sort(np.argsort(certainties, kind="stable")[:count])
                positions.append((lowest + len(prompt)).tolist())
                for position in positions[-1]:
                    text[position] = self.tokenizer.mask_id
            result = self._fill(texts, positions, draws)
            for prompt, certainties, at, drawn in zip(
                prompts, certain, positions, result, strict=True
            ):
                certainties[np.array(at) - len(prompt)] = [share for _, share in drawn]
        return [text[:-1] for text in texts]

    def gibbs(self, prompts: Prompts, draws: Generators) -> list[list[int]]:
        """Draw one token after another given all others, in random orders."""
        texts, length = self._masked(prompts), self.config.length
        orders: list[list[int]] = [[] for _ in prompts]
        for step in range(self.config.all_passes):
            if step % length == 0:
                orders = [draw.permutation(length).tolist() for draw in draws]
            positions = [
                [len(prompt) + order[step % length]]
                for prompt, order in zip(prompts, orders, strict=True)
            ]
            for text, (position,) in zip(texts, positions, strict=True):
                text[position] = self.tokenizer.mask_id
            self._fill(texts, positions, draws)
        return [text[:-1] for text in texts]

    def _masked(self, prompts: Prompts) -> list[list[int]]:
        """Return the prompts with masks and the end of the text after them."""
        masks = [self.tokenizer.mask_id] * self.config.length
        return [[*prompt, *masks, self.tokenizer.sep_id] for prompt in prompts]

    def _fill(
        self, texts: list[list[int]], positions: list[list[int]], draws: Generators
    ) -> list[list[Draw]]:
        """Draw ids at some places of each text, all at once; write them there and return them."""
        result = self._draw(texts, positions, draws)
        for text, at, drawn in zip(texts, positions, result, strict=True):
            for position, (token, _) in zip(at, drawn, strict=True):
                text[position] = token
        return result

    def _draw(
        self, texts: list[list[int]], positions: list[list[int]], draws: Generators
    ) -> list[list[Draw]]:
        """Return a token for each of the places of each text, which its own generator draws."""
        points = [draw.random(len(at)) for draw, at in zip(draws, positions, strict=True)]
        sequences = EncodedExamples.of([np.array(text, np.int32) for text in texts])
        results: list[list[Draw]] = [[(0, 0.0)] * len(at) for at in positions]
        for keys, shares in predictions(
            self.model, self.tokenizer, sequences, positions, self.forward
        ):
            tokens = self._choose_tokens(
                shares, np.array([points[number][n] for number, n in keys])
            )
            drawn_shares = shares.gather(1, tokens[:, None])[:, 0].tolist()
            for (number, n), token, share in zip(keys, tokens.tolist(), drawn_shares, strict=True):
                results[number][n] = (token, share)
        return results

    def _choose_tokens(self, shares: Tensor, points: NDArray[np.float64]) -> Tensor:
        """Return a token for each row of log-probabilities: the likeliest, or that of its point."""
        allowed = shares.masked_fill(self.excluded.to(shares.device), -torch.inf)
        if not self.config.temperature:
            return allowed.argmax(1)
        if self.config.top_k is not None and self.config.top_k < allowed.shape[1]:
            least = allowed.topk(self.config.top_k).values[:, -1:]
            allowed = allowed.masked_fill(allowed < least, -torch.inf)
        sums = apply_temperature(allowed, self.config.temperature).cumsum(1)
        at = torch.from_numpy(points)[:, None].to(sums.device) * sums[:, -1:]
        return torch.searchsorted(sums, at, right=True)[:, 0]
