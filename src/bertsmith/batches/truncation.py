"""Fitting texts that are longer than a model's maximum length.

head        keep the beginning
tail        keep the end
head+tail   keep a quarter from the beginning, the rest from the end (Sun et al. 2019, 5.3.1)
windows     keep all of it, in windows that overlap by a quarter; their predictions are averaged
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.network.config import Fit
from bertsmith.tokens.vocabulary import TokenInventory

Tokens = NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class Fitted:
    """The sequences of a text or pair, whether it was too long, and whether it was truncated."""

    sequences: list[tuple[Ids, Segments]]
    long: bool
    cut: bool


def fitted(
    inventory: TokenInventory,
    first: Tokens,
    second: Tokens | None,
    *,
    longest: int,
    fit: Fit,
    question: int = 0,
) -> Fitted:
    """Return the token ids of a text or a pair in sequences of at most `longest` tokens.

    The longer text of a pair is truncated, or split into windows next to as much of the other as
    fits. Of the first text, the last `question` tokens are a question about those before them,
    which are truncated in its place.
    """
    kept_first, kept_second = fitting_lengths(
        inventory, len(first), None if second is None else len(second), longest=longest
    )
    long = kept_first < len(first) or (second is not None and kept_second < len(second))
    if long and fit == "windows":
        pairs, cut = _windows(first, second, kept_first, kept_second)
    else:
        sequence = _with_question(first, kept_first, fit, question)
        two = None if second is None else _shortened(second, kept_second, fit)
        pairs, cut = [(sequence, two)], long
    sequences = [encode_pair(inventory, sequence, two, longest=longest) for sequence, two in pairs]
    return Fitted(sequences, long, cut)


def window_starts(length: int, width: int, overlap: int) -> list[int]:
    """Return the starts of windows of `width` tokens that cover a text and overlap by `overlap`.

    The last one is as full as the others: it is aligned with the end of the text.
    """
    assert 0 <= overlap < width
    starts = list(range(0, max(length - width, 0), width - overlap))
    return [*starts, max(length - width, 0)]


def window_of(length: int, width: int, overlap: int) -> tuple[list[int], NDArray[np.int64]]:
    """Return the starts of windows over a text, and for each of its tokens (length,) the best one.

    Windows have at most `width` tokens and share `overlap`. A token in several is read where
    it has most text on its nearer side: there the model sees it best (the "max context" of Devlin
    et al.'s own code).
    """
    starts = window_starts(length, width, min(overlap, width - 1))
    chosen = np.zeros(length, np.int64)
    widest = np.full(length, -1)
    for window, start in enumerate(starts):
        size = min(width, length - start)
        positions = np.arange(size)
        # as in the original: the nearer side counts, and of equals the earlier window
        nearer = np.minimum(positions, size - 1 - positions)
        window_slice = slice(start, start + size)
        better = nearer > widest[window_slice]
        chosen[window_slice][better] = window
        widest[window_slice][better] = nearer[better]
    return starts, chosen


def _windows(
    first: Tokens, second: Tokens | None, kept_first: int, kept_second: int
) -> tuple[list[tuple[Tokens, Tokens | None]], bool]:
    """Return windows over the longer text, and whether the other one was truncated."""
    longer, width = first, kept_first
    if second is not None and len(second) >= len(first):
        longer, width = second, kept_second
    parts = [
        longer[start : start + width] for start in window_starts(len(longer), width, width // 4)
    ]
    if second is None:
        return [(part, None) for part in parts], False
    if longer is first:
        return [(part, second[:kept_second]) for part in parts], kept_second < len(second)
    return [(first[:kept_first], part) for part in parts], kept_first < len(first)


def _with_question(tokens: Tokens, count: int, fit: Fit, question: int) -> Tokens:
    """Return `count` tokens of a text whose last `question` tokens are kept if they fit."""
    context, asked = tokens[: len(tokens) - question], tokens[len(tokens) - question :]
    if count <= question:
        return _shortened(asked, count, fit)
    return np.concatenate([_shortened(context, count - question, fit), asked])


def _shortened(tokens: Tokens, count: int, fit: Fit) -> Tokens:
    if fit in ("head", "windows"):
        return tokens[:count]
    head = count // 4 if fit == "head+tail" else 0
    return np.concatenate([tokens[:head], tokens[len(tokens) - (count - head) :]])


Ids = NDArray[np.int32]
Segments = NDArray[np.int8]


def encode_pair(
    inventory: TokenInventory,
    first: NDArray[np.integer],
    second: NDArray[np.integer] | None,
    *,
    longest: int,
) -> tuple[Ids, Segments]:
    """Return token ids and segment ids, each (length,), of a text or a pair (Devlin et al. 2018).

    Tokens beyond `longest`, special tokens included, are removed from the end of the text, or of
    the longer text of a pair, token by token, of the second if both have the same length.
    """
    kept_first, kept_second = fitting_lengths(
        inventory, len(first), None if second is None else len(second), longest=longest
    )
    end = np.array(inventory.end, np.int32)
    parts = [np.array(inventory.begin, np.int32), first[:kept_first], end]
    if second is not None:
        parts += [end] * (inventory.separators - 1) + [second[:kept_second], end]
    ids = np.concatenate(parts).astype(np.int32)
    segments = np.zeros(len(ids), np.int8)
    if inventory.segments and second is not None:
        segments[second_begins(inventory, kept_first) :] = 1
    return ids, segments


def second_begins(inventory: TokenInventory, first: int) -> int:
    """Return the position of the second text of a pair whose first one has `first` tokens."""
    return len(inventory.begin) + first + inventory.separators * len(inventory.end)


def fitting_lengths(
    inventory: TokenInventory, first: int, second: int | None, *, longest: int
) -> tuple[int, int]:
    """Return the number of tokens of each text that fit into `longest`, special tokens included."""
    budget = longest - inventory.specials_around(pair=second is not None)
    if second is None:
        assert budget >= 1
        return min(first, budget), 0
    assert budget >= 1
    if first + second <= budget:
        return first, second
    kept_second = min(second, max(budget // 2, budget - first))
    return budget - kept_second, kept_second
