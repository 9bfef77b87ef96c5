"""Heads and tags, entities, coreference: sections of the page of an inspection, and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bertsmith.analysis.heads.coreference import CoreferenceFigures
from bertsmith.analysis.heads.tag_pairs import SAME, PairFigures
from bertsmith.analysis.inspection import Annotated, Inspection
from bertsmith.core.printable import printable
from bertsmith.reports.drawing import Drawing, grouped_bars
from bertsmith.reports.layers import Placed, plain
from bertsmith.reports.page import named_rows

_DRAWN = 10
_LISTED = 30
_FEW = 100


def pair_name(each: PairFigures) -> str:
    """Return a pair of tags, or the type of an entity, in words."""
    return each.asked if each.wanted == SAME else f"{each.asked} → {each.wanted}"


def annotation_numbers(found: Annotated) -> dict[str, Any]:
    """Return the numbers of these sections as plain JSON values."""
    return {
        "tag_pairs": [_pair_numbers(each) for each in found.tags.pairs],
        "same_entity": [_pair_numbers(each) for each in found.tags.entities],
        "coreference": [_coreference_numbers(each) for each in found.coreference],
    }


def _pair_numbers(each: PairFigures) -> dict[str, Any]:
    return {
        "from": printable(each.asked),
        "to": printable(each.wanted),
        **_best(each),
        "chance": round(each.chance, 6),
        "offset": each.offset,
        "offset_accuracy": round(each.offset_accuracy, 6),
        "heads": plain(each.accuracy),
    }


def _coreference_numbers(each: CoreferenceFigures) -> dict[str, Any]:
    return {
        "name": each.name,
        **_best(each),
        "nearest": round(each.nearest, 6),
        "same_word": round(each.same_word, 6),
        "candidates": round(each.candidates, 6),
        "heads": plain(each.accuracy),
    }


def _best(each: PairFigures | CoreferenceFigures) -> dict[str, Any]:
    layer, head = each.best
    return {
        "count": each.count,
        "accuracy": round(each.best_accuracy, 6),
        "layer": layer,
        "head": head,
        "held_out": None if np.isnan(each.held_out) else round(each.held_out, 6),
    }


def annotation_sections(found: Inspection, placed: Placed) -> Iterator[tuple[str, str]]:
    """Yield title and content of each section that there is something for."""
    tags, control = found.annotated.tags, found.control.tags
    if tags.entities:
        yield "Words of one entity", _entities(tags.entities, control.entities, placed)
    if tags.pairs:
        yield "From tag to tag", _pairs(tags.pairs, control.pairs, placed)
    if found.annotated.coreference:
        own, random = found.annotated.coreference, found.control.coreference
        yield "Coreference", _coreference(own, random, placed)


def _entities(found: Sequence[PairFigures], control: Sequence[PairFigures], placed: Placed) -> str:
    whole = found[0]
    words = (
        f"In head {_head(whole.best)}, {percent(whole.best_accuracy)} of {whole.count:,} words in "
        "entities of several words attend most to another word of the same entity. A random word "
        f"of the sentence belongs to it in {percent(whole.chance)} of the cases, the word "
        f"{_offset(whole.offset)} in {percent(whole.offset_accuracy)}."
    )
    drawing = _bars("entities", found[:_DRAWN], "share that attends most to its entity")
    figure = placed("entities", drawing, "words of one entity, by type", words)
    return figure + _table("entity", found, control)


def _pairs(found: Sequence[PairFigures], control: Sequence[PairFigures], placed: Placed) -> str:
    often = [each for each in found if each.count >= _FEW] or list(found)
    gains = sorted(often, key=_gain, reverse=True)
    most = gains[0]
    words = (
        "The pairs in which a head exceeds chance and the best fixed offset by most, among those "
        f"with at least {min(_FEW, often[-1].count)} words. The largest gain is for "
        f"{pair_name(most)}: in head {_head(most.best)}, {percent(most.best_accuracy)} of "
        f"{most.count:,} words attend most to such a word. A random word of the sentence is one in "
        f"{percent(most.chance)} of the cases, the word {_offset(most.offset)} in "
        f"{percent(most.offset_accuracy)}."
    )
    drawing = _bars("tags", gains[:_DRAWN], "share that attends most to a word of the second tag")
    figure = placed("tags", drawing, "from tag to tag", words)
    note = (
        '<p class="note">Each row counts the words with the first tag whose sentence contains '
        f"another word with the second. The {_LISTED} most frequent pairs are shown; the JSON file "
        "contains more.</p>"
    )
    return figure + _table("tags", found[:_LISTED], control) + note


def _gain(each: PairFigures) -> float:
    return each.best_accuracy - max(each.chance, each.offset_accuracy)


def _bars(name: str, shown: Sequence[PairFigures], label: str) -> Drawing:
    series = {
        "best head": [each.best_accuracy for each in shown],
        "best fixed offset": [each.offset_accuracy for each in shown],
        "chance": [each.chance for each in shown],
    }
    return grouped_bars(name, [printable(pair_name(each), 40) for each in shown], series, label)


def _table(title: str, found: Sequence[PairFigures], control: Sequence[PairFigures]) -> str:
    random = {(each.asked, each.wanted): each.best_accuracy for each in control}
    names = ["words", "best head", "finds", "chosen on the other half", "chance", "best offset",
             "finds"]  # fmt: skip
    rows = [
        (
            pair_name(each), f"{each.count:,}", _head(each.best), percent(each.best_accuracy),
            percent(each.held_out), percent(each.chance), f"{each.offset:+d}",
            percent(each.offset_accuracy),
            *([percent(random.get((each.asked, each.wanted)))] if control else []),
        )
        for each in found
    ]  # fmt: skip
    return named_rows(title, [*names, *(["random weights"] if control else [])], rows)


def _coreference(
    found: Sequence[CoreferenceFigures], control: Sequence[CoreferenceFigures], placed: Placed
) -> str:
    whole = found[0]
    words = (
        f"{whole.count:,} mentions have an earlier mention of the same entity, and on average "
        f"{whole.candidates:.1f} earlier mentions in their passage. In head {_head(whole.best)}, "
        f"{percent(whole.best_accuracy)} of them attend most to a mention of the same entity. The "
        f"nearest mention is right for {percent(whole.nearest)}, the nearest with the same head "
        f"word (or else the nearest) for {percent(whole.same_word)}. Clark et al. 2019, section "
        "4.3."
    )
    series = {
        "best head": [each.best_accuracy for each in found],
        "nearest with the same head word": [each.same_word for each in found],
        "nearest": [each.nearest for each in found],
    }
    names = ["all mentions" if each.name == "all" else each.name for each in found]
    drawing = grouped_bars("coreference", names, series, "share whose antecedent is found")
    figure = placed("coreference", drawing, "coreference found by heads", words)
    random: Mapping[str, float] = {each.name: each.best_accuracy for each in control}
    rows = [
        (
            name, f"{each.count:,}", f"{each.candidates:.1f}", _head(each.best),
            percent(each.best_accuracy), percent(each.held_out), percent(each.nearest),
            percent(each.same_word),
            *([percent(random.get(each.name))] if control else []),
        )
        for name, each in zip(names, found, strict=True)
    ]  # fmt: skip
    titles = ["asked", "candidates", "best head", "finds", "chosen on the other half", "nearest",
              "same word"]  # fmt: skip
    return figure + named_rows(
        "mentions", [*titles, *(["random weights"] if control else [])], rows
    )


def _head(best: tuple[int, int]) -> str:
    return f"{best[0]}-{best[1]}"


def _offset(offset: int) -> str:
    places = abs(offset)
    return f"{places} place{'s' * (places != 1)} {'after' if offset > 0 else 'before'} it"


def percent(share: float | None) -> str:
    """Return a share in per cent, a dash where there is none."""
    return "–" if share is None or np.isnan(share) else f"{100 * share:.1f} %"
