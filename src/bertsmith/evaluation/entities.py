"""Entities found in sentences, as conlleval and seqeval count them, and in characters of texts.

An entity is right when its type and both its ends are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from bertsmith.text.schemes import parted

Sentences = Sequence[Sequence[str]]
_Span = tuple[int, int, str]
_Placed = tuple[int, int, int, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeScores:
    """How many entities of a type there are, were found, and were found right."""

    true: int
    found: int
    right: int

    @property
    def precision(self) -> float:
        """Share of those found that are right, 0 of none."""
        return self.right / self.found if self.found else 0.0

    @property
    def recall(self) -> float:
        """Share of the true ones that were found, 0 of none."""
        return self.right / self.true if self.true else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall, 0 where nothing is right."""
        return 2 * self.right / (self.true + self.found) if self.right else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityScores(TypeScores):
    """The counts of all types together, and of each."""

    by_type: dict[str, TypeScores]

    @property
    def macro_f1(self) -> float:
        """The mean F1 of the types, 0 of none."""
        return sum(each.f1 for each in self.by_type.values()) / max(1, len(self.by_type))


def conll_scores(true: Sentences, predicted: Sentences) -> EntityScores:
    """Scores as of conlleval and of seqeval's default: what begins with I is an entity too.

    Tags are BIO1, BIO2 or BIOES (BILOU); every sentence is a sequence of them.
    """
    return _compared(true, predicted, _lenient)


def strict_scores(
    true: Sentences, predicted: Sentences, scheme: Literal["bio2", "bioes"] = "bio2"
) -> EntityScores:
    """Scores as of seqeval's strict mode: only what the scheme allows is an entity."""
    return _compared(true, predicted, _strict_bio2 if scheme == "bio2" else _strict_bioes)


def span_scores(
    true: Sequence[Collection[_Span]], predicted: Sequence[Collection[_Span]]
) -> EntityScores:
    """Scores of entities given as start, end and type in characters of each text."""
    assert len(true) == len(predicted)
    sides = [
        {(text, *span) for text, spans in enumerate(side) for span in spans}
        for side in (true, predicted)
    ]
    return _counted(*sides)


def _compared(
    true: Sentences, predicted: Sentences, entities: Callable[[Sequence[str]], Iterator[_Span]]
) -> EntityScores:
    assert len(true) == len(predicted)
    assert all(len(one) == len(other) for one, other in zip(true, predicted, strict=True))
    sides = [
        {(number, *span) for number, tags in enumerate(side) for span in entities(tags)}
        for side in (true, predicted)
    ]
    return _counted(*sides)


def _counted(true: set[_Placed], found: set[_Placed]) -> EntityScores:
    counts = [Counter(label for *_, label in side) for side in (true, found, true & found)]
    by_type = {
        label: TypeScores(true=counts[0][label], found=counts[1][label], right=counts[2][label])
        for label in sorted(counts[0] | counts[1])
    }
    return EntityScores(true=len(true), found=len(found), right=len(true & found), by_type=by_type)


def _lenient(tags: Sequence[str]) -> Iterator[_Span]:
    begun, before, kind = 0, "O", ""
    for index, tag in enumerate((*tags, "O")):
        letter, label = parted(tag)
        begins = letter in "BS" or before in "OES" or label != kind
        if before != "O" and (letter == "O" or begins):
            yield begun, index, kind
        if letter != "O" and begins:
            begun = index
        before, kind = letter, label


def _strict_bio2(tags: Sequence[str]) -> Iterator[_Span]:
    begun, kind = -1, ""
    for index, tag in enumerate((*tags, "O")):
        letter, label = parted(tag)
        if begun >= 0 and not (letter == "I" and label == kind):
            yield begun, index, kind
            begun = -1
        if letter == "B":
            begun, kind = index, label


def _strict_bioes(tags: Sequence[str]) -> Iterator[_Span]:
    begun, kind = -1, ""
    for index, tag in enumerate(tags):
        letter, label = parted(tag)
        inside = begun >= 0 and letter in "IE" and label == kind
        if letter == "S" or (inside and letter == "E"):
            yield begun if inside else index, index + 1, label
        if letter == "B":
            begun, kind = index, label
        elif not (inside and letter == "I"):
            begun = -1
