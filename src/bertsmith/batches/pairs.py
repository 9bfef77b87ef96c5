"""One text or a pair of texts as one sequence, as the vocabulary's kind has it.

[CLS] A [SEP]    [CLS] A [SEP] B [SEP]        of WordPiece and unigram vocabularies
<s> A </s>       <s> A </s></s> B </s>        of byte-level ones
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bertsmith.tokens.tokenizer import Tokenizer

Ids = NDArray[np.int32]
Segments = NDArray[np.int8]


def encode_pair(
    tokenizer: Tokenizer,
    first: NDArray[np.integer],
    second: NDArray[np.integer] | None,
    *,
    longest: int,
) -> tuple[Ids, Segments]:
    """Token ids and segment numbers, each (length,), of a text or a pair (Devlin et al. 2018).

    What exceeds `longest` tokens, special tokens included, is cut from the end of the text, or of
    the longer text of a pair, token by token, of the second where both are of one length.
    """
    kept_first, kept_second = kept(
        tokenizer, len(first), None if second is None else len(second), longest=longest
    )
    cls, sep = np.array([tokenizer.cls_id]), np.array([tokenizer.sep_id])
    parts = [cls, first[:kept_first], sep]
    if second is not None:
        parts += [sep] * (tokenizer.separators - 1) + [second[:kept_second], sep]
    ids = np.concatenate(parts).astype(np.int32)
    segments = np.zeros(len(ids), np.int8)
    if tokenizer.segments:
        segments[second_begins(tokenizer, kept_first) :] = 1
    return ids, segments


def second_begins(tokenizer: Tokenizer, first: int) -> int:
    """The place of the second text of a pair whose first one has so many tokens."""
    return 1 + first + tokenizer.separators


def specials_around(tokenizer: Tokenizer, *, pair: bool) -> int:
    """Special tokens around one text, or around and between two."""
    return 2 + tokenizer.separators * pair


def kept(tokenizer: Tokenizer, first: int, second: int | None, *, longest: int) -> tuple[int, int]:
    """How many tokens of texts of these lengths fit into `longest`, special tokens included."""
    budget = longest - specials_around(tokenizer, pair=second is not None)
    if second is None:
        assert budget >= 1
        return min(first, budget), 0
    assert budget >= 1
    if first + second <= budget:
        return first, second
    kept_second = min(second, max(budget // 2, budget - first))
    return budget - kept_second, kept_second
