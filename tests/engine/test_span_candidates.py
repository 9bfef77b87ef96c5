"""The best spans of a window are those of a search of all of them."""

from __future__ import annotations

import numpy as np
import pytest

from bertsmith.engine.answers import candidates

# Devlin et al.'s own code: --max_answer_length 30, --n_best_size 20
LONGEST, BEST = 30, 20


@pytest.mark.parametrize(("tokens", "begin", "share"), [(47, 5, 0.7), (3, 0, 1.0), (9, 2, 0.0)])
def test_the_best_spans_are_those_of_a_search_of_all(tokens: int, begin: int, share: float) -> None:
    draw = np.random.default_rng(11)
    logits = draw.normal(0, 2, (tokens, 2)).astype(np.float32)
    allowed = draw.random(tokens) < share
    # the ends of the longest span there is, and of one that is longer
    logits[[0, min(LONGEST, tokens) - 1, min(LONGEST + 1, tokens) - 1], [0, 1, 1]] += 9
    allowed[0] = share > 0
    every = [
        (float(logits[first, 0] + logits[last, 1]), begin + first, begin + last)
        for first in np.flatnonzero(allowed).tolist()
        for last in range(first, min(first + LONGEST, tokens))
    ]
    found = candidates(logits, begin, allowed)
    assert [(item.score, item.first, item.last) for item in found] == sorted(every)[::-1][:BEST]
