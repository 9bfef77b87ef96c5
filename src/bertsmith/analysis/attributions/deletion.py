"""The deletion test: do the words that are said to matter, matter?

The words with the highest shares are masked, and as often as many words at random; if the shares
say anything of the model, the answer changes more often without the former. Words that the answer
consists of stay: without them it changes whatever an explanation says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bertsmith.analysis.attributions.attribution import (
    Explainer,
    Method,
    Shares,
    masked_words,
    parts,
)
from bertsmith.analysis.attributions.subjects import Subject, run
from bertsmith.core.streams import Purpose, stream
from bertsmith.evaluation.significance import Interval, mean_interval, share_interval
from bertsmith.network.model import forward_only

COUNTS = (1, 2, 3)
"""Number of words that are removed."""
DRAWS = 5
"""Number of times that as many words are drawn at random."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionFigures:
    """The shares of answers that change when words are deleted, and the difference of the two."""

    words: int
    answers: int
    top: float
    random: float
    difference: Interval


@dataclass
class DeletionTest:
    """Counts answers that change, over subjects that are added one by one."""

    explainer: Explainer
    seed: int = 0
    _flips: dict[tuple[Method, int], list[tuple[float, float]]] = field(default_factory=dict)
    _count: int = 0

    def add(self, subject: Subject, shares: dict[Method, Shares]) -> None:
        """Test the shares of a subject by some methods; texts of too few words are left out."""
        free = np.array(
            [
                n
                for n, word in enumerate(subject.words)
                if len(word.positions) and not word.in_answer
            ]
        )
        random = np.random.default_rng(int(stream(Purpose.DELETION, self.seed, self._count)))
        self._count += 1
        counts = [count for count in COUNTS if count < len(free)]
        if not counts:
            return
        drawn = [random.permutation(free) for _ in range(DRAWS)]
        removed = [words[:count] for count in counts for words in drawn]
        ranked = {
            method: free[np.argsort(-word_shares[free], kind="stable")]
            for method, word_shares in shares.items()
        }
        removed += [words[:count] for words in ranked.values() for count in counts]
        changed = self._changed(subject, removed)
        chance = changed[: len(counts) * DRAWS].reshape(len(counts), DRAWS).mean(1)
        top = changed[len(counts) * DRAWS :].reshape(len(ranked), len(counts))
        for method, word_shares in zip(ranked, top, strict=True):
            for count, one, other in zip(counts, word_shares, chance, strict=True):
                self._flips.setdefault((method, count), []).append((float(one), float(other)))

    def _changed(
        self, subject: Subject, removed: Sequence[NDArray[np.int64]]
    ) -> NDArray[np.float64]:
        """Return whether the answer is another one without each of some sets of words."""
        model, inventory = self.explainer.model, self.explainer.inventory
        ids = [masked_words(subject, inventory, words.tolist()) for words in removed]
        results = []
        for part in parts(subject, [subject.ids, *ids]):
            encoded, batch = run(model, subject, part)
            with forward_only(model, "fp32"):
                results += subject.target.answers(model, encoded, batch)
        return np.array([result != results[0] for result in results[1:]], np.float64)

    def figures(self) -> dict[Method, list[DeletionFigures]]:
        """Return the figures of each method, with 95 % intervals of the differences."""
        results: dict[Method, list[DeletionFigures]] = {}
        for (method, words), flips in self._flips.items():
            values = np.array(flips)
            difference = mean_interval(values[:, 0] - values[:, 1], resamples=2000)
            results.setdefault(method, []).append(
                DeletionFigures(
                    words=words,
                    answers=len(values),
                    top=float(values[:, 0].mean()),
                    random=float(values[:, 1].mean()),
                    difference=share_interval(difference, len(values), lowest=-1.0),
                )
            )
        return results
