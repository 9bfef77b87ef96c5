"""Unigram tokenisation: the most probable segmentation of a text into pieces (Kudo 2018).

Equal to SentencePiece's, including the rounding of its sums: they have 32 bits and start at the
beginning of the text, so that in a long text nearly equal segmentations compare as equal. No piece
crosses a blank, so a word is segmented independently of its context, except for that rounding. If
it could change the order of the two best segmentations of a word, the whole text is segmented."""

from __future__ import annotations

import math
import re
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, repeat
from typing import NamedTuple

from bertsmith.tokens.added import LiteralSpecials, Part
from bertsmith.tokens.normalisation import (
    SPACE,
    UnigramRules,
    lowered,
    normalised,
    original_span,
    tidied,
    traced,
)
from bertsmith.tokens.vocabulary import (
    BoundedCache,
    Pieces,
    Spans,
    TextRun,
    Traced,
    sizes_by_beginning,
)

_UNKNOWN_PENALTY = 10.0
_MIN_FLOAT = 2.0**-126
_PREFIX = 2


@dataclass(frozen=True, slots=True)
class Cutting:
    """The pieces of a text, their score, and the margin over the second-best segmentation."""

    pieces: tuple[str, ...]
    score: float
    margin: float


class Unigram:
    """Segments texts by the scores of pieces, which are logarithms of probabilities."""

    def __init__(
        self, pieces: Sequence[str], scores: Sequence[float], *, wanted: Collection[str] = ()
    ) -> None:
        """`pieces` are those a text may be split into; those in `wanted` are always split off."""
        self._scores = dict(zip(pieces, scores, strict=True))
        ordinary = [score for piece, score in self._scores.items() if piece not in wanted]
        best = max([_MIN_FLOAT, *ordinary])
        self._unknown = _rounded(min(ordinary, default=0.0) - _UNKNOWN_PENALTY)
        for piece in wanted:
            self._scores[piece] = _rounded(len(piece.encode()) * best - 0.1)
        self._sizes = sizes_by_beginning(pieces, _PREFIX)

    def __contains__(self, piece: str) -> bool:
        return piece in self._scores

    def cut(self, text: str, *, rounded: bool = False) -> Cutting:
        """Return the best segmentation of a text, with each unknown character a separate piece.

        Its sums have 64 bits, or are `rounded` to 32 as SentencePiece's.
        """
        size = len(text)
        best = _Best([0.0] * (size + 1), [-1] * (size + 1), [-math.inf] * (size + 1))
        cell = array("f" if rounded else "d", (0.0,))
        scores, sizes = self._scores, self._sizes
        for start in range(size):
            total = best.sums[start]
            single = False
            for length in sizes.get(text[start : start + _PREFIX], (1,)):
                score = scores.get(text[start : start + length])
                # a text may end before a piece of this length does
                if score is None or start + length > size:
                    continue
                single = single or length == 1
                cell[0] = total + score
                best.offer(cell[0], start, start + length)
            if not single:
                cell[0] = total + self._unknown
                best.offer(cell[0], start, start + 1)
        return best.traced(text)


class _Best(NamedTuple):
    """For each end position, the best sum, the start of its last piece, and the second-best sum."""

    sums: list[float]
    starts: list[int]
    second: list[float]

    def offer(self, score: float, start: int, end: int) -> None:
        """Offer a piece for its end position; of equal scores the first is kept."""
        if self.starts[end] < 0:
            self.sums[end], self.starts[end] = score, start
        elif score > self.sums[end]:
            self.second[end], self.sums[end], self.starts[end] = self.sums[end], score, start
        elif score > self.second[end]:
            self.second[end] = score

    def traced(self, text: str) -> Cutting:
        """Return the segmentation of the whole text."""
        pieces: list[str] = []
        end, margin = len(text), math.inf
        while end > 0:
            margin = min(margin, self.sums[end] - self.second[end])
            pieces.append(text[self.starts[end] : end])
            end = self.starts[end]
        return Cutting(tuple(reversed(pieces)), self.sums[len(text)], margin)


def joined_unknowns(pieces: Iterable[str], is_unknown: Callable[[str], bool]) -> list[str]:
    """Merge adjacent unknown pieces."""
    merged: list[str] = []
    for unknown, run in groupby(pieces, is_unknown):
        parts = list(run)
        merged += ["".join(parts)] if unknown else parts
    return merged


def _rounded(value: float) -> float:
    return array("f", (value,))[0]


# the relative error of rounding to 32 bits, for each piece of two segmentations
_ROUNDING = 2.0**-23


class _Cut(NamedTuple):
    """The ids of a word, their score, and the size of a sum from which on rounding matters."""

    ids: tuple[int, ...]
    score: float
    reach: float


class UnigramText:
    """Encodes texts by ALBERT's rules and unigram segmentation."""

    def __init__(self, vocabulary: Pieces, rules: UnigramRules, unknown_id: int) -> None:
        ids = dict(vocabulary.ids)
        # matched before lower-casing, and again after it
        self._specials = LiteralSpecials(
            ids,
            rules.specials,
            mask_takes_blank=rules.mask_takes_blank,
            lowercase=rules.lowercase,
        )
        for number in {ids[piece] for piece in rules.specials} | rules.control:
            del ids[vocabulary[number]]
        self._ids = ids
        wanted = [vocabulary[number] for number in sorted(rules.wanted)]
        self._wanted: defaultdict[int, dict[int, set[bytes]]] = defaultdict(dict)
        for piece in sorted((piece.encode() for piece in wanted), key=len, reverse=True):
            self._wanted[piece[0]].setdefault(len(piece), set()).add(piece)
        self._rules = rules
        self._unknown = unknown_id
        scores = list(map(rules.scores.__getitem__, ids.values()))
        self._unigram = Unigram(list(ids), scores, wanted=wanted)
        # without the space rule, words end at what the replacement rules make a blank
        space = r"\s" if rules.remove_space else re.escape(rules.exchanges.blanks)
        self._words = re.compile(f"[^{space}]+" if space else ".+", re.DOTALL)
        self._split = str.split if rules.remove_space else self._words.findall
        self._by_stretch = (
            rules.prefix_space
            and SPACE in self._ids
            # where no marker is but at the beginnings
            and "".join(ids).count(SPACE) == sum(map(str.startswith, ids, repeat(SPACE)))
            and not any(" " in piece for piece in wanted)
            and not rules.exchanges.crosses_blanks
        )
        self._stretches = BoundedCache(self._stretch)
        self._stretch_spans = BoundedCache(self._spans_of)

    def ids(
        self, text: str, *, specials_in_text: bool, inside: bool = False
    ) -> Iterator[Sequence[int]]:
        """Yield the ids of a text, in parts."""
        for start, end, special in self._parts(text, specials_in_text):
            if special is not None:
                yield (special,)
            else:
                part = text[start:end]
                yield from self._plain(part, prefix=not inside or bool(start) or part[0] == " ")

    def spans(self, text: str, *, specials_in_text: bool) -> Iterator[TextRun]:
        """Yield the ids with the positions of the pieces, without surrounding blanks."""
        for start, end, special in self._parts(text, specials_in_text):
            if special is not None:
                yield TextRun(start, (special,), (0,), (end - start,))
                continue
            part = text[start:end]
            if self._rounding_matters(part):
                yield TextRun(start, *self._spans_of(part, rounded=True))
                continue
            for match in self._words.finditer(part):
                yield TextRun(start + match.start(), *self._stretch_spans[match[0]])

    def _parts(self, text: str, specials_in_text: bool) -> Iterable[Part]:
        if not specials_in_text:
            return (Part(0, len(text), None),) if text else ()
        return self._specials.parts(text)

    def _plain(self, text: str, *, prefix: bool) -> Iterator[Sequence[int]]:
        if not prefix or self._rounding_matters(text):
            lowered_text = lowered(text) if self._rules.lowercase else text
            made = self._normalised(tidied(self._rules, lowered_text), prefix=prefix)
            return iter([self._ids_of(self._pieces(made.text, rounded=True))])
        return iter([self._stretches[stretch].ids for stretch in self._split(text)])

    def _rounding_matters(self, text: str) -> bool:
        """Return whether a text must be segmented as a whole, as SentencePiece does."""
        if not self._by_stretch or SPACE in text:
            return True
        cut = [self._stretches[stretch] for stretch in self._split(text)]
        total = math.fsum(word.score for word in cut)
        return min((word.reach for word in cut), default=math.inf) < 1 - total

    def _stretch(self, stretch: str) -> _Cut:
        given = lowered(stretch) if self._rules.lowercase else stretch
        made = self._normalised(tidied(self._rules, given), prefix=True)
        best = self._unigram.cut(made.text)
        reach = best.margin / (len(made.text) + 2) / _ROUNDING
        return _Cut(self._ids_of(joined_unknowns(best.pieces, self._is_unknown)), best.score, reach)

    def _spans_of(self, text: str, *, rounded: bool = False) -> Spans:
        """Return the ids of a text, and the starts and ends of its pieces."""
        whole = traced(self._rules, text)
        made = self._normalised(whole.text, prefix=True)
        starts: list[int] = []
        ends: list[int] = []
        pieces = self._pieces(made.text, rounded=rounded)
        done = 0
        for piece in pieces:
            parts = self._without_comma(piece)
            apart = "".join(parts) == piece
            for part in parts:
                size = len(part) if apart else len(piece)
                start, end = original_span(made, done, done + size, whole.text)
                starts.append(whole.starts[start])
                ends.append(whole.ends[end - 1] if start < end else starts[-1])
                done += size if apart else 0
            done += 0 if apart else len(piece)
        return self._ids_of(pieces), tuple(starts), tuple(ends)

    def _pieces(self, given: str, *, rounded: bool) -> list[str]:
        return joined_unknowns(self._unigram.cut(given, rounded=rounded).pieces, self._is_unknown)

    def _is_unknown(self, piece: str) -> bool:
        return piece not in self._unigram

    def _normalised(self, text: str, *, prefix: bool) -> Traced:
        prefix = prefix and self._rules.prefix_space
        return normalised(self._rules, self._wanted, text, prefix=prefix)

    def _ids_of(self, pieces: Sequence[str]) -> tuple[int, ...]:
        parts = chain.from_iterable(map(self._without_comma, pieces))
        return tuple(self._ids.get(part, self._unknown) for part in parts)

    def _without_comma(self, piece: str) -> list[str]:
        """Split the comma off a piece that ends in digit and comma (google-research/bert)."""
        if not self._rules.number_commas or not (
            len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()
        ):
            return [piece]
        pieces = self._pieces(
            self._normalised(piece[:-1].replace(SPACE, ""), prefix=True).text, rounded=True
        )
        if piece[0] != SPACE and pieces[0][0] == SPACE:
            pieces = pieces[1:] if len(pieces[0]) == 1 else [pieces[0][1:], *pieces[1:]]
        return [*pieces, ","]
