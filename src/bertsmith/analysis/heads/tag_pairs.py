"""Heads against tags: does a word of one tag attend most to one of another, or of its own entity?

For each pair of tags, the words of the first tag are counted in whose sentence there is another
word of the second, and the share of them whose most attended word has it. With tags of entities
(B-PER, I-PER), words of entities of several words are counted too, and the share that attends most
to another word of the same entity. Words outside of entities take no part, nor does punctuation,
which draws attention whatever asks. Both are compared with chance, a word drawn from the others of
the sentence, and with the best fixed offset: always the next word, always the one before, and so
on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bertsmith.analysis.heads.best_heads import Counts, HeadShares, held_out_share
from bertsmith.analysis.heads.words import SplitWords
from bertsmith.text.examples.tagged import entity_spans, names_entities

ALL = "all"
"""The name under which the entities of all types are counted together."""
SAME = "same entity"
"""The tag that stands for other words of the same entity."""
_LEFT_OUT = ("O", "PUNCT")
_MAX_TAGS = 100
_MAX_PAIRS = 200
_REACH = 10


@dataclass(frozen=True, slots=True)
class TaggedWords:
    """A sentence that the model can read, the tag of each word, and its number in the file."""

    split: SplitWords
    tags: tuple[str, ...]
    number: int


@dataclass(frozen=True, slots=True)
class _Block:
    """Tags and entities of the words of a block, (sequences, words); -1 for none."""

    tag: Counts
    entity: Counts
    kind: Counts
    half: Counts


@dataclass(frozen=True, slots=True, kw_only=True)
class PairFigures(HeadShares):
    """The accuracy of heads: of `count` words the share whose most attended word is one `wanted`.

    `accuracy` is (layers, heads). `chance` is the share that a word drawn from the others of the
    sentence would have, `offset_accuracy` that of the best fixed `offset`.
    """

    asked: str
    wanted: str
    count: int
    chance: float
    offset: int
    offset_accuracy: float


class TagFigures(NamedTuple):
    """The figures of pairs of tags, the commonest first, and of the words of one entity."""

    pairs: Sequence[PairFigures] = ()
    entities: Sequence[PairFigures] = ()


class _Tally:
    """Counts of words by what is asked and wanted; grows with the number of tags."""

    def __init__(self, layers: int, heads: int) -> None:
        self.hits = np.zeros((0, 0, 2, layers, heads), np.int64)
        self.words = np.zeros((0, 0, 2), np.int64)
        self.chance = np.zeros((0, 0))
        self.offsets = np.zeros((0, 0, 2 * _REACH + 1), np.int64)

    def grow(self, rows_needed: int, columns_needed: int) -> None:
        """Grow the counts to a larger number of kinds."""
        more = (rows_needed - self.words.shape[0], columns_needed - self.words.shape[1])
        if not any(more):
            return
        for name, values in list(vars(self).items()):
            rest = [(0, 0)] * (values.ndim - 2)
            setattr(self, name, np.pad(values, [(0, more[0]), (0, more[1]), *rest]))

    def figures(self, asked: str, wanted: str, at: tuple[int, int]) -> PairFigures:
        """Return the figures of a pair of tags."""
        hits, words, offsets = self.hits[at], self.words[at], self.offsets[at]
        total = int(words.sum())
        # of equal ones the nearest, and of these the next before the previous
        offset = max(range(-_REACH, _REACH + 1), key=lambda k: (offsets[k + _REACH], -abs(k), k))
        return PairFigures(
            asked=asked,
            wanted=wanted,
            count=total,
            accuracy=hits.sum(0) / total,
            held_out=held_out_share(hits, words),
            chance=float(self.chance[at]) / total,
            offset=offset,
            offset_accuracy=float(offsets[offset + _REACH]) / total,
        )


class TagCounts:
    """Counts of the words whose most attended word has a tag, or is of the same entity.

    Memory depends on the number of tags, not on that of sentences; tags beyond the first
    hundred are left out.
    """

    def __init__(self, layers: int, heads: int) -> None:
        self._tags: dict[str, int] = {}
        # rows of types begin with the second: the first is for entities of all types
        self._kinds: dict[str, int] = {}
        self._pairs = _Tally(layers, heads)
        self._entities = _Tally(layers, heads)
        self._entities.grow(1, 1)

    def block(self, sentences: Sequence[TaggedWords]) -> _Block:
        """Count the words of the sentences of a block, and return them for `add`."""
        shape = (len(sentences), max(sentence.split.words for sentence in sentences))
        tag, entity, kind = (np.full(shape, -1, np.int64) for _ in range(3))
        result = _Block(tag=tag, entity=entity, kind=kind, half=np.zeros(shape[0], np.int64))
        present = np.zeros(shape, bool)
        for row, sentence in enumerate(sentences):
            present[row, np.unique(sentence.split.owner[sentence.split.owner >= 0])] = True
            result.half[row] = sentence.number % 2
            if present[row].sum() > 1:
                # a word alone has no other to attend to
                self._write_row(result, row, sentence.tags, present[row])
        self._pairs.grow(len(self._tags), len(self._tags))
        self._entities.grow(1 + len(self._kinds), 1)
        if self._tags:
            self._count_pairs(result, present)
        self._count_entities(result, present)
        return result

    def _write_row(
        self, result: _Block, row: int, tags: Sequence[str], present: NDArray[np.bool_]
    ) -> None:
        """Write the tags and entities of a sentence into a row, of words that have tokens."""
        for index, tag in enumerate(tags):
            # tags without a letter are those of punctuation
            if present[index] and tag not in _LEFT_OUT and any(map(str.isalnum, tag)):
                result.tag[row, index] = self._number(self._tags, tag)
        if not names_entities(tags):
            return
        for number, (begin, end, kind) in enumerate(entity_spans(tags)):
            inside = begin + np.flatnonzero(present[begin:end])
            if len(inside) > 1:
                result.entity[row, inside] = number
                own = self._number(self._kinds, kind)
                result.kind[row, inside] = own + 1 if own >= 0 else -1

    def _number(self, known: dict[str, int], name: str) -> int:
        """Return the number of a name, a new one for a new one; -1 if there are too many."""
        if name not in known and len(known) < _MAX_TAGS:
            known[name] = len(known)
        return known.get(name, -1)

    def _count_pairs(self, result: _Block, present: NDArray[np.bool_]) -> None:
        """Count words, chance and offsets of pairs of tags."""
        kinds = len(self._tags)
        one_hot = result.tag[..., None] == np.arange(kinds)
        rows, places = np.nonzero(result.tag >= 0)
        own_tags = one_hot[rows, places]
        others = one_hot.sum(1)[rows] - own_tags
        for half in (0, 1):
            chosen = result.half[rows] == half
            self._pairs.words[:, :, half] += own_tags[chosen].T.astype(int) @ (others[chosen] > 0)
        rest = np.maximum(present.sum(1)[rows] - 1, 1)
        self._pairs.chance += own_tags.T.astype(float) @ (others / rest[:, None])
        for offset, asked, wanted in _shifted(result.tag):
            both = (asked >= 0) & (wanted >= 0)
            counted = self._pairs.offsets[:, :, offset + _REACH]
            np.add.at(counted, (asked[both], wanted[both]), 1)

    def _count_entities(self, result: _Block, present: NDArray[np.bool_]) -> None:
        """Count words, chance and offsets of entities."""
        rows, places = np.nonzero(result.kind >= 0)
        same_entity = result.entity[rows] == result.entity[rows, places][:, None]
        shares = (same_entity.sum(1) - 1) / np.maximum(present.sum(1)[rows] - 1, 1)
        for kind in (np.zeros_like(rows), result.kind[rows, places]):
            np.add.at(self._entities.words[:, 0], (kind, result.half[rows]), 1)
            np.add.at(self._entities.chance[:, 0], kind, shares)
        pairs = zip(_shifted(result.entity), _shifted(result.kind), strict=True)
        for (offset, asked, wanted), (_, kinds, _) in pairs:
            same = (asked == wanted) & (kinds >= 0)
            for kind in (np.zeros_like(kinds[same]), kinds[same]):
                np.add.at(self._entities.offsets[:, 0, offset + _REACH], kind, 1)

    def add(self, result: _Block, layer: int, best: Counts) -> None:
        """Count what a layer finds: `best` (sequences, heads, words) is the most attended word."""
        rows = np.arange(len(best))[:, None, None]
        tags = result.tag[rows, best]
        row, head, index = np.nonzero((tags >= 0) & (result.tag[:, None] >= 0))
        at = (result.tag[row, index], tags[row, head, index], result.half[row])
        np.add.at(self._pairs.hits[..., layer - 1, :], (*at, head), 1)
        same = result.entity[rows, best] == result.entity[:, None]
        row, head, index = np.nonzero(same & (result.kind[:, None] >= 0))
        for kind in (np.zeros_like(row), result.kind[row, index]):
            hits = self._entities.hits[:, 0, :, layer - 1]
            np.add.at(hits, (kind, result.half[row], head), 1)

    def figures(self) -> TagFigures:
        """Return the figures; none where no word has a tag."""
        totals = self._pairs.words.sum(-1)
        names = list(self._tags)
        places = ((int(asked), int(wanted)) for asked, wanted in np.argwhere(totals))
        order = sorted(places, key=lambda at: (-totals[at], at))
        pairs = [
            self._pairs.figures(names[asked], names[wanted], (asked, wanted))
            for asked, wanted in order[:_MAX_PAIRS]
        ]
        counts = self._entities.words.sum((1, 2))
        kinds = sorted(self._kinds.items(), key=lambda item: -counts[item[1] + 1])
        rows = [(ALL, 0), *((name, number + 1) for name, number in kinds)]
        entities = [
            self._entities.figures(name, SAME, (row, 0)) for name, row in rows if counts[row]
        ]
        return TagFigures(pairs, entities)


def _shifted(values: Counts) -> list[tuple[int, Counts, Counts]]:
    """Return each offset, the values of words, and those of the words at that offset from them."""
    width = values.shape[1]
    reach = [k for k in range(-_REACH, _REACH + 1) if k and abs(k) < width]
    return [
        (k, values[:, max(0, -k) : width - max(0, k)], values[:, max(0, k) : width + min(0, k)])
        for k in reach
    ]
