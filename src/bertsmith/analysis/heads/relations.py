"""Heads against dependency relations (Clark et al. 2019, section 4.2).

A head finds a relation if the word that a dependent attends to most is its head ("to head"), or the
other way round ("to dependent"). What a head finds is compared with the best fixed offset: always
the next word, always the one before, and so on. The best of many heads is chosen on the words it is
scored on; `held_out` shows what it scores on the other half.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.analysis.heads.best_heads import Counts, held_out_share
from bertsmith.analysis.heads.words import SplitWords, split_words
from bertsmith.text.treebank import Tree
from bertsmith.tokens.tokenizer import Tokenizer

ALL = "all"
"""The name under which all relations are counted together."""
LEFT_OUT = frozenset({"punct", "root"})
TO_HEAD, TO_DEPENDENT = 0, 1
DIRECTIONS = ("to head", "to dependent")


@dataclass(frozen=True, slots=True)
class Parsed:
    """A tree that the model can read, with its words as tokens."""

    tree: Tree
    split: SplitWords
    number: int


@dataclass(frozen=True, slots=True)
class Arcs:
    """The arcs of a block, each (arcs,): the row of its sentence, and what is counted."""

    row: Counts
    dependent: Counts
    head: Counts
    relation: Counts
    half: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationFigures:
    """The accuracy of heads for one relation.

    `accuracy` (directions, layers, heads) and `held_out` are shares of `count` words; `offset` is
    the best fixed offset from a dependent to its head, and `offset_accuracy` its share.
    """

    name: str
    count: int
    accuracy: NDArray[np.float64]
    held_out: float
    offset: int
    offset_accuracy: float

    @property
    def best(self) -> tuple[int, int, int]:
        """Direction, layer and head, the last two from 1, with the highest share."""
        direction, layer, head = np.unravel_index(self.accuracy.argmax(), self.accuracy.shape)
        return int(direction), int(layer) + 1, int(head) + 1

    @property
    def best_accuracy(self) -> float:
        """The share of the best head."""
        return float(self.accuracy.max())


class RelationCounts:
    """Counts of the words whose head is the most attended word, by relation and head.

    Memory depends on the number of relations, not on that of sentences.
    """

    def __init__(self, layers: int, heads: int) -> None:
        self._names: dict[str, int] = {}
        # by relation, half of the corpus, direction, layer and head
        self._hits = np.zeros((0, 2, 2, layers, heads), np.int64)
        self._words = np.zeros((0, 2), np.int64)
        self._offsets: list[Counter[int]] = []

    def block(self, sentences: Sequence[Parsed]) -> Arcs:
        """Count the arcs of the sentences of a block, and return them for `add`."""
        rows = [
            (row, dependent, head, self._number(name), parsed.number % 2)
            for row, parsed in enumerate(sentences)
            for dependent, head, name in arcs(parsed)
        ]
        result = Arcs(*np.array(rows, np.int64).reshape(-1, 5).T)
        np.add.at(self._words, (result.relation, result.half), 1)
        for _, dependent, head, relation, _ in rows:
            self._offsets[relation][head - dependent] += 1
        return result

    def add(self, arcs: Arcs, layer: int, best: NDArray[np.int64]) -> None:
        """Count what a layer finds: `best` (sequences, heads, words) is the most attended word."""
        pairs = ((arcs.dependent, arcs.head), (arcs.head, arcs.dependent))
        for direction, (attending, target) in enumerate(pairs):
            right = best[arcs.row, :, attending] == target[:, None]
            np.add.at(self._hits[:, :, direction, layer - 1], (arcs.relation, arcs.half), right)

    def _number(self, name: str) -> int:
        """Return the row of a relation, a new one for one that is new."""
        if name not in self._names:
            self._names[name] = len(self._names)
            self._hits = np.concatenate([self._hits, np.zeros((1, *self._hits.shape[1:]), int)])
            self._words = np.concatenate([self._words, np.zeros((1, 2), int)])
            self._offsets.append(Counter())
        return self._names[name]

    def figures(self) -> list[RelationFigures]:
        """Return the relations, the commonest first, after what all of them are together."""
        if not self._names:
            return []
        order = sorted(self._names.items(), key=lambda item: (-self._words[item[1]].sum(), item[0]))
        offsets: Counter[int] = Counter()
        for offset in self._offsets:
            offsets.update(offset)
        whole = _figures(ALL, self._hits.sum(0), self._words.sum(0), offsets)
        return [whole] + [
            _figures(name, self._hits[row], self._words[row], self._offsets[row])
            for name, row in order
        ]


def _figures(name: str, hits: Counts, words: Counts, offsets: Counter[int]) -> RelationFigures:
    total = int(words.sum())
    offset, result = min(offsets.items(), key=lambda item: (-item[1], abs(item[0]), item[0]))
    return RelationFigures(
        name=name,
        count=total,
        accuracy=hits.sum(0) / total,
        held_out=held_out_share(hits, words),
        offset=offset,
        offset_accuracy=result / total,
    )


def arcs(parsed: Parsed) -> Iterator[tuple[int, int, str]]:
    """Yield dependent, head and relation of the arcs that are counted.

    Those of a word that the tokenizer drops are not.
    """
    tree, words_with_tokens = parsed.tree, set(parsed.split.owner.tolist())
    for dependent, (head, name) in enumerate(zip(tree.heads, tree.relations, strict=True)):
        if head >= 0 and name not in LEFT_OUT and {dependent, head} <= words_with_tokens:
            yield dependent, head, name


def parsed_trees(
    trees: Iterable[Tree], tokenizer: Tokenizer, longest: int
) -> Iterator[Parsed | None]:
    """Yield trees with their words as tokens, numbered; None for one that is too long."""
    number = 0
    for tree in trees:
        split = split_words(tokenizer, tree.words, longest)
        if split is None:
            yield None
            continue
        yield Parsed(tree=tree, split=split, number=number)
        number += 1
