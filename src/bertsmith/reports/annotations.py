"""Heads and tags, entities, coreference: sections of the page of an inspection, and numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from bertsmith.analysis.heads.coreference import CoreferenceFigures
from bertsmith.analysis.heads.tag_pairs import SAME, PairFigures
from bertsmith.analysis.inspection import Annotated, Inspection
from bertsmith.core.printable import counted, printable
from bertsmith.reports.drawing import Drawing, grouped_bars
from bertsmith.reports.layers import Placed, plain
from bertsmith.reports.page import named_rows

_DRAWN = 10
_LISTED = 30
_FEW = 100
# characters of the name of a bar
_NAME = 40


def pair_name(pair: PairFigures) -> str:
    """Return a pair of tags, or the type of an entity, in words."""
    return pair.asked if pair.wanted == SAME else f"{pair.asked} → {pair.wanted}"


def _short_name(pair: PairFigures) -> str:
    """Return a pair, or a type, as a bar is named: of both tags the beginning."""
    if pair.wanted == SAME:
        return printable(pair.asked, _NAME)
    tags = (printable(tag, _NAME // 2) for tag in (pair.asked, pair.wanted))
    return " → ".join(tags)


def annotation_numbers(result: Annotated) -> dict[str, Any]:
    """Return the numbers of these sections as plain JSON values."""
    return {
        "tag_pairs": [_pair_numbers(pair) for pair in result.tags.pairs],
        "same_entity": [_pair_numbers(entity) for entity in result.tags.entities],
        "coreference": [_coreference_numbers(item) for item in result.coreference],
    }


def _pair_numbers(pair: PairFigures) -> dict[str, Any]:
    return {
        "from": printable(pair.asked),
        "to": printable(pair.wanted),
        **_best(pair),
        "chance": round(pair.chance, 6),
        "offset": pair.offset,
        "offset_accuracy": round(pair.offset_accuracy, 6),
        "heads": plain(pair.accuracy),
    }


def _coreference_numbers(figures: CoreferenceFigures) -> dict[str, Any]:
    return {
        "name": figures.name,
        **_best(figures),
        "nearest": round(figures.nearest, 6),
        "same_word": round(figures.same_word, 6),
        "candidates": round(figures.candidates, 6),
        "heads": plain(figures.accuracy),
    }


def _best(figures: PairFigures | CoreferenceFigures) -> dict[str, Any]:
    layer, head = figures.best
    return {
        "count": figures.count,
        "accuracy": round(figures.best_accuracy, 6),
        "layer": layer,
        "head": head,
        "held_out": None if np.isnan(figures.held_out) else round(figures.held_out, 6),
    }


def annotation_sections(inspection: Inspection, placed: Placed) -> Iterator[tuple[str, str]]:
    """Yield title and content of each section that there is something for."""
    tags, control = inspection.annotated.tags, inspection.control.tags
    if tags.entities:
        yield "Words of one entity", _entities(tags.entities, control.entities, placed)
    if tags.pairs:
        yield "From tag to tag", _pairs(tags.pairs, control.pairs, placed)
    if inspection.annotated.coreference:
        measured, random = inspection.annotated.coreference, inspection.control.coreference
        yield "Coreference", _coreference(measured, random, placed)


def _entities(
    results: Sequence[PairFigures], control: Sequence[PairFigures], placed: Placed
) -> str:
    total = results[0]
    words = (
        f"In head {_head(total.best)}, {percent(total.best_accuracy)} of {total.count:,} words in "
        "entities of several words attend most to another word of the same entity. A random word "
        f"of the sentence belongs to it in {percent(total.chance)} of the cases, the word "
        f"{_offset(total.offset)} in {percent(total.offset_accuracy)}."
        f"{_of_control(_by_pair(control).get((total.asked, total.wanted)))}"
    )
    drawing = _bars("entities", results[:_DRAWN], "share that attends most to its entity")
    figure = placed("entities", drawing, "words of one entity, by type", words)
    return figure + _table("entity", results, control)


def _pairs(results: Sequence[PairFigures], control: Sequence[PairFigures], placed: Placed) -> str:
    often = [result for result in results if result.count >= _FEW] or list(results)
    random = _by_pair(control)

    def gain(pair: PairFigures) -> float:
        simpler = pair.chance, pair.offset_accuracy, random.get((pair.asked, pair.wanted), 0.0)
        return pair.best_accuracy - max(simpler)

    gains = sorted(often, key=gain, reverse=True)
    best = gains[0]
    beside = (
        ", the best fixed offset and random weights" if random else " and the best fixed offset"
    )
    first = "The largest gain is" if gain(best) > 0 else "No head does; the nearest is"
    words = (
        f"The pairs in which a head exceeds chance{beside} by most, among those with at least "
        f"{counted(min(_FEW, often[-1].count), 'word')}. {first} for {pair_name(best)}: in head "
        f"{_head(best.best)}, {percent(best.best_accuracy)} of {best.count:,} words attend most to "
        f"such a word. A random word of the sentence is one in {percent(best.chance)} of the "
        f"cases, the word {_offset(best.offset)} in {percent(best.offset_accuracy)}."
        f"{_of_control(random.get((best.asked, best.wanted)))}"
    )
    drawing = _bars("tags", gains[:_DRAWN], "share that attends most to a word of the second tag")
    figure = placed("tags", drawing, "from tag to tag", words)
    note = (
        "Each row counts the words with the first tag whose sentence contains another word with "
        "the second."
    )
    if len(results) > _LISTED:
        note += f" The {_LISTED} most frequent pairs are shown; the JSON file contains more."
    return figure + _table("tags", results[:_LISTED], control) + f'<p class="note">{note}</p>'


def _by_pair(control: Sequence[PairFigures]) -> Mapping[tuple[str, str], float]:
    """Return the accuracy of the best head with random weights for each pair."""
    return {(figures.asked, figures.wanted): figures.best_accuracy for figures in control}


def _of_control(accuracy: float | None) -> str:
    """Return a sentence on the network with random weights, "" without one."""
    if accuracy is None:
        return ""
    return f" With random weights the best head finds {percent(accuracy)}."


def _bars(name: str, shown: Sequence[PairFigures], label: str) -> Drawing:
    series = {
        "best head": [figures.best_accuracy for figures in shown],
        "best fixed offset": [figures.offset_accuracy for figures in shown],
        "chance": [figures.chance for figures in shown],
    }
    return grouped_bars(name, list(map(_short_name, shown)), series, label)


def _table(title: str, results: Sequence[PairFigures], control: Sequence[PairFigures]) -> str:
    random = _by_pair(control)
    names = ["words", "best head", "finds", "chosen on the other half", "chance", "best offset",
             "finds"]  # fmt: skip
    rows = [
        (
            pair_name(pair), f"{pair.count:,}", _head(pair.best), percent(pair.best_accuracy),
            percent(pair.held_out), percent(pair.chance), f"{pair.offset:+d}",
            percent(pair.offset_accuracy),
            *([percent(random.get((pair.asked, pair.wanted)))] if control else []),
        )
        for pair in results
    ]  # fmt: skip
    return named_rows(title, [*names, *(["random weights"] if control else [])], rows)


def _coreference(
    results: Sequence[CoreferenceFigures], control: Sequence[CoreferenceFigures], placed: Placed
) -> str:
    total = results[0]
    random: Mapping[str, float] = {figures.name: figures.best_accuracy for figures in control}
    words = (
        f"{total.count:,} mentions have an earlier mention of the same entity, and on average "
        f"{total.candidates:.1f} earlier mentions in their passage. In head {_head(total.best)}, "
        f"{percent(total.best_accuracy)} of them attend most to a mention of the same entity. The "
        f"nearest mention is right for {percent(total.nearest)}, the nearest with the same head "
        f"word (or else the nearest) for {percent(total.same_word)}."
        f"{_of_control(random.get(total.name))} Clark et al. 2019, section 4.3."
    )
    series = {
        "best head": [result.best_accuracy for result in results],
        "nearest with the same head word": [result.same_word for result in results],
        "nearest": [result.nearest for result in results],
    }
    names = ["all mentions" if result.name == "all" else result.name for result in results]
    drawing = grouped_bars("coreference", names, series, "share whose antecedent is found")
    figure = placed("coreference", drawing, "coreference found by heads", words)
    rows = [
        (
            name, f"{result.count:,}", f"{result.candidates:.1f}", _head(result.best),
            percent(result.best_accuracy), percent(result.held_out), percent(result.nearest),
            percent(result.same_word),
            *([percent(random.get(result.name))] if control else []),
        )
        for name, result in zip(names, results, strict=True)
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
    """Return a share in per cent, a dash for none."""
    return "–" if share is None or np.isnan(share) else f"{100 * share:.1f} %"
