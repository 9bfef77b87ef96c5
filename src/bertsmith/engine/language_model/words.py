"""Words of one or several pieces as fillings of a mask.

A word of n pieces stands at n masks and is predicted from left to right: each piece given those
before it, the rest of the word still masked. The product of these n probabilities is its
probability among all strings of n pieces. Words of different lengths are compared by the mean
log-probability of a piece: products get smaller with every piece, whatever the word.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from bertsmith.batches.truncation import Ids
from bertsmith.engine.answers import Forward
from bertsmith.engine.language_model.cloze import Cloze, cloze_predictions, log_probabilities
from bertsmith.network.model import Model
from bertsmith.tokens.tokenizer import Tokenizer

Pieces = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Filling:
    """A piece or word, and the probability that it stands behind a mask.

    `piece` is a piece as `Tokenizer.shown` has it, or the text of a word of several `ids`.
    """

    piece: str
    probability: float
    ids: Pieces = ()
    log_probability: float | None = None
    """Its logarithm, where it is known: the probability of a long word may be below all floats."""

    @property
    def score(self) -> float:
        """The mean log-probability of its pieces, by which words of any length are compared."""
        total = self.log_probability
        if total is None:
            total = math.log(max(self.probability, 1e-300))
        return total / max(1, len(self.ids))


def best_first(fillings: Iterable[Filling]) -> list[Filling]:
    """Return fillings by their scores, the best first."""
    return sorted(fillings, key=lambda filling: -filling.score)


def with_pieces(masked: Cloze, pieces: Sequence[int]) -> Cloze:
    """Return a cloze with pieces instead of what stands at its place, which is the first's."""
    place = masked.place
    segment = np.repeat(masked.segments[place], len(pieces))
    new = np.array(pieces, masked.ids.dtype)
    return Cloze(
        ids=np.concatenate([masked.ids[:place], new, masked.ids[place + 1 :]]),
        segments=np.concatenate([masked.segments[:place], segment, masked.segments[place + 1 :]]),
        place=place,
    )


def _next_piece(masked: Cloze, before: Pieces, length: int, mask_id: int) -> Cloze:
    """Return the cloze for the piece after those `before` in a word of some length."""
    rest = (mask_id,) * (length - len(before))
    return replace(with_pieces(masked, before + rest), place=masked.place + len(before))


def score_words(
    model: Model,
    tokenizer: Tokenizer,
    masked_words: Sequence[tuple[Cloze, Sequence[Pieces]]],
    forward: Forward,
) -> list[list[float]]:
    """Return for each mask the log-probability of each of some words, sums over their pieces.

    Words that begin alike share the clozes of what they have in common.
    """
    clozes: list[Cloze] = []
    targets: list[list[int]] = []
    first_cloze: dict[tuple[int, int, Pieces], int] = {}
    terms: list[list[list[tuple[int, int]]]] = []
    for number, (masked, words) in enumerate(masked_words):
        terms.append([])
        for word in words:
            positions = []
            for done in range(len(word)):
                key = (number, len(word), word[:done])
                if key not in first_cloze:
                    first_cloze[key] = len(clozes)
                    cloze = _next_piece(masked, word[:done], len(word), tokenizer.mask_id)
                    clozes.append(cloze)
                    targets.append([])
                wanted = targets[first_cloze[key]]
                positions.append((first_cloze[key], len(wanted)))
                wanted.append(word[done])
            terms[-1].append(positions)
    result = log_probabilities(model, tokenizer, clozes, targets, forward)
    return [
        [sum(float(result[cloze][position]) for cloze, position in word) for word in words]
        for words in terms
    ]


def likely_words(
    model: Model,
    tokenizer: Tokenizer,
    masked: Sequence[Cloze],
    forward: Forward,
    *,
    most_pieces: int,
    top: int,
) -> list[list[Filling]]:
    """Return for each mask the likeliest words of a limited number of pieces, the best first.

    Those of each length are found by a beam search of width `top`, at least 5.
    """
    results: list[list[Filling]] = [[] for _ in masked]
    for length in range(1, most_pieces + 1):
        beams = _beam_search(model, tokenizer, masked, length, max(5, top), forward)
        for fillings, beam in zip(results, beams, strict=True):
            fillings += [
                Filling(tokenizer.decode(word), math.exp(total), word, total)
                for word, total in beam
            ]
    return [best_first(result)[:top] for result in results]


Beam = list[tuple[Pieces, float]]


def _beam_search(
    model: Model,
    tokenizer: Tokenizer,
    masked: Sequence[Cloze],
    length: int,
    width: int,
    forward: Forward,
) -> list[Beam]:
    """Return for each mask the likeliest words of a length with their log-probabilities."""
    beams: list[Beam] = [[((), 0.0)] for _ in masked]
    for done in range(length):
        barred = _excluded_pieces(tokenizer, first=done == 0)
        steps = [(number, word, total) for number, beam in enumerate(beams) for word, total in beam]
        clozes = [
            _next_piece(masked[number], word, length, tokenizer.mask_id)
            for number, word, _ in steps
        ]
        longer: list[Beam] = [[] for _ in masked]
        for numbers, every in cloze_predictions(model, tokenizer, clozes, forward):
            shares = every.masked_fill(barred.to(every.device), -torch.inf)
            values, pieces = shares.topk(min(width, shares.shape[1]))
            for step, row, ids in zip(numbers, values.tolist(), pieces.tolist(), strict=True):
                mask, word, total = steps[step]
                longer[mask] += [
                    ((*word, piece), total + share)
                    for piece, share in zip(ids, row, strict=True)
                    if share > -math.inf
                ]
        beams = [sorted(beam, key=lambda candidate: -candidate[1])[:width] for beam in longer]
    return beams


def _excluded_pieces(tokenizer: Tokenizer, *, first: bool) -> torch.Tensor:
    """Return which pieces (vocabulary,) cannot be the first of a word, or a later one."""
    barred = np.ones(tokenizer.size, bool)
    barred[tokenizer.ordinary_ids] = False
    return torch.from_numpy(barred | (tokenizer.continues == first))


Before = Literal["start", "blank", "glued"]
"""The context before a word: nothing, a blank, or a sign without a blank between."""


def before(tokenizer: Tokenizer, text: str, position: int, ids: Ids, index: int) -> Before:
    """Return the context before the mask at a character of a text, and at a place of its ids.

    A blank that is a piece of its own there belongs to no word.
    """
    if not text[:position].strip():
        return "start"
    last = int(ids[index - 1])
    is_separate = last not in tokenizer.special_ids and not tokenizer.decode([last]).strip()
    return "blank" if text[position - 1].isspace() and not is_separate else "glued"


# what a word may stand behind: the first is taken that shares no piece with it
_SIGNS = ("(", "a", "1")


def choice_pieces(tokenizer: Tokenizer, choice: str, before: Before) -> Pieces:
    """Return the pieces of a word by what stands before it; a bracket is taken for any sign.

    Pieces of some vocabularies hold the blank before a word. Where one would hold the bracket too,
    as of ``()``, a letter or a digit is taken for any sign.
    """
    word, blank = choice.strip(), " " * (before == "blank")
    if before == "start":
        return tuple(tokenizer.encode_spans(word, specials_in_text=False).ids.tolist())
    result: Pieces = ()
    for sign in _SIGNS:
        encoded = tokenizer.encode_spans(f"{sign}{blank}{word}", specials_in_text=False)
        inside = encoded.ends > 1
        result = tuple(encoded.ids[inside].tolist())
        if not np.any(encoded.starts[inside] < 1):
            break
    return result
