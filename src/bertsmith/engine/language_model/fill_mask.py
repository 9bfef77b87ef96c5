"""Fill-mask: the likeliest pieces or words for each [MASK] of a text, or those among choices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from bertsmith.batches.examples import EncodedExamples, encode_rows
from bertsmith.batches.truncation import Ids, Segments
from bertsmith.core.errors import ConfigError, ExampleError
from bertsmith.engine.answers import FORWARD, Forward, finite
from bertsmith.engine.config import FillingConfig
from bertsmith.engine.language_model.cloze import ROWS_PROJECTED, Cloze
from bertsmith.engine.language_model.words import (
    Before,
    Filling,
    Pieces,
    before,
    best_first,
    choice_pieces,
    likely_words,
    score_words,
    with_pieces,
)
from bertsmith.engine.predictor import ROWS, Predictor, Request, text_length
from bertsmith.network.batch import Batch
from bertsmith.network.model import Model
from bertsmith.text.examples.example import Example
from bertsmith.tokens.tokenizer import Tokenizer

Filled = list[list[Filling]]
"""The likeliest fillings of each mask of a text, from left to right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JointFilling:
    """All masks of a text filled one after another, the most confident one first.

    `words` has the filling of each mask, from left to right; `order` the numbers of the masks, from
    0, in the order in which they were filled.
    """

    words: tuple[Filling, ...]
    order: tuple[int, ...]

    @property
    def probability(self) -> float:
        """The product of the probabilities, each given the words that were filled in before."""
        return float(np.prod([word.probability for word in self.words]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fillings:
    """The fillings of each mask, the others still masked, and all masks filled together."""

    masks: Filled
    joint: JointFilling | None = None


def fill_mask(model: Model, tokenizer: Tokenizer, text: str, *, top: int = 5) -> Filled:
    """Return the `top` likeliest pieces for each [MASK] of a text, from left to right.

    Several masks are filled independently, each beside the others still masked. Raises
    `ExampleError` when there is no mask, or when the text is longer than the model reads.
    """
    example = Example(text=text, text_pair=None, label=None, source="text", line=1)
    return next(fill_masks(model, tokenizer, [example], top=top))


def fill_masks(
    model: Model,
    tokenizer: Tokenizer,
    examples: Iterable[Example],
    *,
    top: int = 5,
    among: Sequence[int] = (),
    rows: int = ROWS,
    forward: Forward = FORWARD,
) -> Iterator[Filled]:
    """Fill the masks of a stream of examples, in their order and in constant memory.

    With `among`, ids of pieces, these are the fillings, in that order, whatever `top` is; their
    probabilities are still those among all pieces.

    Raises `ExampleError` as `fill_mask` does, with file and line.
    """
    filling = MaskFilling(model, tokenizer, top=top, among=among)
    predictor = Predictor(model=model, answering=filling, forward=forward)
    return (answer.masks for answer in predictor(examples, rows=rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class _MaskedText:
    """A sequence with masks, and what stands `before` each of them in the text."""

    ids: Ids
    segments: Segments
    before: tuple[Before, ...]

    @classmethod
    def of(cls, request: Request[Example], tokenizer: Tokenizer) -> _MaskedText:
        """Return the sequence of a request."""
        example, (ids,) = request.example, request.encoded.ids
        texts = [example.text] if example.text_pair is None else [example.text, example.text_pair]
        mask = re.escape(tokenizer.vocabulary[tokenizer.mask_id])
        written = [(text, match.start()) for text in texts for match in re.finditer(mask, text)]
        positions = np.flatnonzero(ids == tokenizer.mask_id).tolist()
        if len(written) < len(positions):
            # rules that exchange characters first also find masks that are written otherwise
            written = [(text, start) for text in texts for start in _mask_starts(tokenizer, text)]
        # a text that was cut has more masks than its ids
        results = [
            before(tokenizer, text, at, ids, position)
            for (text, at), position in zip(written, positions, strict=False)
        ]
        assert len(results) == len(positions)
        return cls(ids=ids, segments=request.encoded.segments[0], before=tuple(results))

    def cloze(self, position: int) -> Cloze:
        """Return the cloze of a place."""
        return Cloze(ids=self.ids, segments=self.segments, place=position)

    def filled(self, mask: int, position: int, word: Pieces) -> _MaskedText:
        """Return the same with a word in place of a mask, given its number and place."""
        cloze = with_pieces(self.cloze(position), word)
        others = self.before[:mask] + self.before[mask + 1 :]
        return _MaskedText(ids=cloze.ids, segments=cloze.segments, before=others)


def _mask_starts(tokenizer: Tokenizer, text: str) -> list[int]:
    encoding = tokenizer.encode_spans(text)
    starts: list[int] = encoding.starts[encoding.ids == tokenizer.mask_id].tolist()
    return starts


class MaskFilling:
    """The answering by which a model fills masks.

    Raises `ConfigError` for a choice that the vocabulary cannot spell.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        *,
        top: int,
        among: Sequence[int] = (),
        config: FillingConfig | None = None,
    ) -> None:
        """The `top` likeliest pieces are answers, or those of `among`."""
        self._tokenizer, self._top, self._among = tokenizer, top, among
        self._config = config or FillingConfig()
        self._longest = model.config.encoder.longest
        self._choices = {
            place: [self._spell(choice, place) for choice in self._config.choices]
            for place in get_args(Before)
        }

    def _spell(self, choice: str, place: Before) -> Pieces:
        """Return the pieces of a choice; raises `ConfigError`."""
        pieces = choice_pieces(self._tokenizer, choice, place)
        if not pieces or self._tokenizer.unknown_id in pieces:
            problem = f"the model's vocabulary cannot spell the choice {choice!r}"
            raise ConfigError(problem, remedy="leave it out")
        return pieces

    @property
    def _most_pieces(self) -> int:
        """The most pieces of a word that may stand at a mask."""
        spelled = [len(word) for words in self._choices.values() for word in words]
        return max(spelled, default=self._config.most_pieces)

    def characters(self, example: Example) -> int:
        """Return the length of a text or pair."""
        return text_length(example)

    def encode(self, examples: Sequence[Example]) -> EncodedExamples:
        """Encode texts with masks; raises `ExampleError` for one without, or one too long."""
        encoded = encode_rows(self._tokenizer, examples, longest=self._longest)
        for example, units in zip(examples, encoded.by_row(), strict=True):
            self.check(example, units)
        return encoded

    def check(self, example: Example, encoded: EncodedExamples) -> None:
        """Raise `ExampleError` for a text without a mask, or one too long for the model."""
        mask_id = self._tokenizer.mask_id
        mask = self._tokenizer.vocabulary[mask_id]
        masks = int((encoded.ids[0] == mask_id).sum())
        more = (self._most_pieces - 1) * (masks if self._config.joint else min(masks, 1))
        if encoded.cut[0] or len(encoded.ids[0]) + more > self._longest:
            words = f", words of {self._most_pieces} pieces included" if more else ""
            problem = (
                f"the text is longer than the {self._longest} tokens that the model reads{words}"
            )
            remedy = f"keep only the text around {mask}"
        elif not masks:
            problem, remedy = (
                f"no {mask} in the text",
                f"write {mask} where a word is to be filled in",
            )
        else:
            return
        raise ExampleError(problem, where=example.source, line=example.line, remedy=remedy)

    def outputs(
        self, model: Model, requests: Sequence[Request[Example]], forward: Forward
    ) -> list[Fillings]:
        """Return the likeliest fillings for each mask of each text."""
        texts = [_MaskedText.of(request, self._tokenizer) for request in requests]
        result = self._fill(model, texts, forward)
        if not self._config.joint:
            return [Fillings(masks=fillings) for fillings in result]
        joint_fillings = self._joint(model, texts, result, forward)
        return [
            Fillings(masks=fillings, joint=joint)
            for fillings, joint in zip(result, joint_fillings, strict=True)
        ]

    def _words(self, model: Model, texts: Sequence[_MaskedText], forward: Forward) -> list[Filled]:
        """Return words for each mask of some sequences, the best first."""
        masks = [self._masks(text) for text in texts]
        masked_words = [
            (text.cloze(position), written)
            for text, positions in zip(texts, masks, strict=True)
            for position, written in zip(positions, text.before, strict=True)
        ]
        if self._config.choices:
            result = self._score_choices(model, masked_words, forward)
        else:
            clozes = [cloze for cloze, _ in masked_words]
            max_pieces = self._config.most_pieces
            result = likely_words(
                model, self._tokenizer, clozes, forward, most_pieces=max_pieces, top=self._top
            )
        rest = iter(result)
        return [[next(rest) for _ in positions] for positions in masks]

    def _masks(self, text: _MaskedText) -> list[int]:
        return np.flatnonzero(text.ids == self._tokenizer.mask_id).tolist()

    def _score_choices(
        self, model: Model, masked: Sequence[tuple[Cloze, Before]], forward: Forward
    ) -> Filled:
        """Return all choices for each mask, the best first."""
        masked_words = [(cloze, self._choices[written]) for cloze, written in masked]
        scored = score_words(model, self._tokenizer, masked_words, forward)
        return [
            best_first(
                Filling(choice, float(np.exp(total)), word, total)
                for choice, word, total in zip(self._config.choices, words, totals, strict=True)
            )
            for (_, words), totals in zip(masked_words, scored, strict=True)
        ]

    def _joint(
        self, model: Model, masked: Sequence[_MaskedText], alone: Sequence[Filled], forward: Forward
    ) -> list[JointFilling]:
        """Fill all masks of each text, the one whose best filling has the best score first.

        `alone` are the fillings of each mask beside the others masked.
        """
        texts = list(masked)
        results = [list(fillings) for fillings in alone]
        open_masks = [list(range(len(fillings))) for fillings in alone]
        words: list[dict[int, Filling]] = [{} for _ in texts]
        while True:
            for number, fillings in enumerate(results):
                if fillings:
                    best = max(range(len(fillings)), key=lambda mask: fillings[mask][0].score)
                    position = self._masks(texts[number])[best]
                    texts[number] = texts[number].filled(best, position, fillings[best][0].ids)
                    words[number][open_masks[number].pop(best)] = fillings[best][0]
            open_texts = [number for number, fillings in enumerate(open_masks) if fillings]
            if not open_texts:
                break
            refilled = self._fill(model, [texts[number] for number in open_texts], forward)
            results = [[] for _ in texts]
            for number, fillings in zip(open_texts, refilled, strict=True):
                results[number] = fillings
        return [
            JointFilling(
                words=tuple(fillings[mask] for mask in sorted(fillings)), order=tuple(fillings)
            )
            for fillings in words
        ]

    def _fill(self, model: Model, texts: Sequence[_MaskedText], forward: Forward) -> list[Filled]:
        """Return the likeliest fillings for each mask of some sequences, the others masked."""
        if self._config.choices or self._config.most_pieces > 1:
            return self._words(model, texts, forward)
        encoded = EncodedExamples.of(
            [text.ids for text in texts], [text.segments for text in texts]
        )
        results: list[Filled] = [[]] * len(texts)
        for indices, batch in forward.batches(model, encoded):
            # a mask that is filled with another one would stay open
            fillings = _fillings(
                model, self._tokenizer, batch, self._top, self._among,
                specials=not self._config.joint,
            )  # fmt: skip
            for index, fillings_of_text in zip(indices.tolist(), fillings, strict=True):
                results[index] = fillings_of_text
        return results

    def decode(self, request: Request[Example], output: Fillings) -> Fillings:
        """Return the fillings as they are."""
        del request
        return output


def _fillings(
    model: Model,
    tokenizer: Tokenizer,
    batch: Batch,
    top: int,
    among: Sequence[int],
    *,
    specials: bool,
) -> list[Filled]:
    """Return for each sequence of a batch, for each of its masks, the likeliest pieces."""
    left_out = [] if specials else sorted(tokenizer.special_ids)
    selected = torch.nonzero(batch.ids == tokenizer.mask_id)[:, 0]
    encoded = model.encoder(batch, selected=selected)
    owners = torch.searchsorted(batch.offsets, selected, right=True) - 1
    fillings: list[Filled] = [[] for _ in batch.lengths]
    for part, owner in zip(
        selected.split(ROWS_PROJECTED), owners.split(ROWS_PROJECTED), strict=True
    ):
        # a table may have more rows than there are pieces
        logits = model.masked_lm(encoded.rows(part))[:, : tokenizer.size]
        values, pieces = _score_choices(logits, top, among, left_out)
        for sequence, shares, ids in zip(owner.tolist(), values, pieces, strict=True):
            fillings[sequence].append(
                [
                    Filling(tokenizer.shown(piece), share, (piece,))
                    for share, piece in zip(shares, ids, strict=True)
                ]
            )
    return fillings


def _score_choices(
    logits: Tensor, top: int, among: Sequence[int], left_out: Sequence[int]
) -> tuple[list[list[float]], list[list[int]]]:
    probabilities = finite(logits).softmax(-1)
    if among:
        probabilities_of_choices = probabilities[:, list(among)].tolist()
        return probabilities_of_choices, [list(among) for _ in probabilities_of_choices]
    probabilities[:, list(left_out)] = -1
    values, pieces = probabilities.topk(min(top, probabilities.shape[-1] - len(left_out)))
    return values.tolist(), pieces.tolist()
