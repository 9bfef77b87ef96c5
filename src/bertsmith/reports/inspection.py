"""The report of a model's attention: JSON of every number, and a page of figures.

The page needs no network. Its figures are drawings with words beneath them; heads, texts and words
are chosen by pointer or by keyboard, and the attention of a text is drawn when it is chosen.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bertsmith.analysis.heads.relations import ALL, DIRECTIONS, RelationFigures
from bertsmith.analysis.heads.statistics import SHARES, STATISTICS
from bertsmith.analysis.inspection import Inspection
from bertsmith.core.log import Bar
from bertsmith.core.printable import counted, json_text, printable
from bertsmith.reports.annotations import annotation_numbers, annotation_sections, percent
from bertsmith.reports.drawing import (
    Drawing,
    grouped_bars,
    head_map,
    heat_map,
    layer_lines,
    layer_panels,
)
from bertsmith.reports.layers import layer_numbers, layer_sections, plain
from bertsmith.reports.page import Report, named_rows, safe

_PANELS = ("self", "next", "previous", "cls", "sep", "punctuation", "distance", "entropy")
_RELATIONS = 12


def as_json(inspection: Inspection) -> dict[str, Any]:
    """Return every number; what is not defined, such as attention between pairs, is null."""
    return {
        "layers": inspection.layers,
        "heads": inspection.heads,
        "texts": inspection.texts,
        "tokens": inspection.tokens,
        "statistics": {name: plain(values) for name, values in inspection.statistics.items()},
        "frequent_tokens": [
            {"token": token.token, "count": token.count, "attention": plain(token.attention)}
            for token in inspection.frequent
        ],
        "distances": plain(inspection.distances),
        "map": plain(inspection.points),
        "map_share": round(inspection.map_share, 6),
        "gradients": None
        if inspection.gradients is None
        else {
            "loss": inspection.gradients.loss,
            "sep": plain(inspection.gradients.of("sep"), 12),
            "cls": plain(inspection.gradients.of("cls"), 12),
            "all": plain(inspection.gradients.of("all"), 12),
        },
        "relations": [_relation(relation) for relation in inspection.annotated.relations],
        **annotation_numbers(inspection.annotated),
        **layer_numbers(inspection),
        "control_relations": [_relation(baseline) for baseline in inspection.control.relations],
        **{f"control_{k}": v for k, v in annotation_numbers(inspection.control).items()},
        "sample": [
            {
                "line": text.line,
                "tokens": [printable(token) for token in text.tokens],
                "statistics": {
                    name: plain(values, 4)
                    for name, values in text.statistics.items()
                    if not np.isnan(values).all()
                },
            }
            for text in inspection.sample
        ],
    }


def _relation(relation: RelationFigures) -> dict[str, Any]:
    direction, layer, head = relation.best
    return {
        "name": printable(relation.name),
        "count": relation.count,
        "accuracy": round(relation.best_accuracy, 6),
        "layer": layer,
        "head": head,
        "direction": DIRECTIONS[direction],
        "held_out": None if np.isnan(relation.held_out) else round(relation.held_out, 6),
        "offset": relation.offset,
        "offset_accuracy": round(relation.offset_accuracy, 6),
        "heads": {name: plain(relation.accuracy[n]) for n, name in enumerate(DIRECTIONS)},
    }


class InspectionPage:
    """The page of an inspection, and its drawings by name."""

    def __init__(
        self,
        inspection: Inspection,
        *,
        model: str,
        file: str,
        notes: Sequence[str],
        bar: Bar | None = None,
    ) -> None:
        """`notes` say how it was made. Raises `MissingExtra` without matplotlib."""
        self._bar = bar
        self.drawings: dict[str, Drawing] = {}
        self._found = inspection
        size = f"{counted(inspection.layers, 'layer')} of {counted(inspection.heads, 'head')}"
        read = f"{counted(inspection.texts, 'text')}, {counted(inspection.tokens, 'token')}"
        self._page = Report(f"What the heads of {model} attend to", f"{size}, over {file}: {read}")
        self._heads()
        self._panels()
        if inspection.annotated.relations:
            self._relations()
            self._sentences()
        for title, content in annotation_sections(inspection, self._figure):
            self._page.section(title, content)
        self._tokens()
        self._map()
        self._gradients()
        for title, content in layer_sections(inspection, self._figure):
            self._page.section(title, content)
        self._page.text("How this was made", notes)

    def html(self) -> str:
        """Return the whole page."""
        # a script ends at its closing tag, wherever that stands
        data = json_text(self._data()).replace("<", "\\u003c")
        return self._page.filled("inspection_page.html", data=data)

    def _data(self) -> dict[str, Any]:
        """Return the data for the page's script."""
        result = self._found
        record = as_json(result)
        shown = [name for name, values in result.statistics.items() if not np.isnan(values).all()]
        sample = [
            {
                **text,
                "weights": None if of.weights is None else b64encode(of.weights.tobytes()).decode(),
            }
            for text, of in zip(record["sample"], result.sample, strict=True)
        ]
        for text in sample:
            text["statistics"] = {name: text["statistics"].get(name) or _nothing(result)
                                  for name in shown}  # fmt: skip
        examples = {
            printable(name): [
                {
                    "words": [printable(word) for word in example.words],
                    "dependent": example.dependent,
                    "head": example.head,
                    "found": example.found,
                    "right": example.right,
                }
                for example in examples
            ]
            for name, examples in result.examples.items()
        }
        return {
            "layers": result.layers,
            "heads": result.heads,
            "statistics": {name: record["statistics"][name] for name in shown},
            "titles": {name: STATISTICS[name] for name in shown},
            "shares": sorted(SHARES),
            "sample": sample,
            "relations": [
                {key: value for key, value in item.items() if key != "heads"}
                for item in record["relations"]
            ],
            "examples": examples,
        }

    def _figure(self, name: str, drawing: Drawing, label: str, words: str) -> str:
        """Keep a drawing, and return it with the words beneath it."""
        self._add_drawing(name, drawing)
        picture = f'<div role="img" aria-label="{safe(label)}">{drawing.svg}</div>'
        return f"<figure>{picture}<figcaption>{safe(words)}</figcaption></figure>"

    def _add_drawing(self, name: str, drawing: Drawing) -> None:
        self.drawings[name] = drawing
        if self._bar is not None:
            self._bar.advance()

    def _heads(self) -> None:
        result = self._found
        options = "".join(
            f'<option value="{name}">{safe(STATISTICS[name])}</option>'
            for name, values in result.statistics.items()
            if not np.isnan(values).all()
        )
        heads = range(result.heads)
        header = "".join(f'<th scope="col">{head + 1}</th>' for head in heads)
        rows = "".join(
            f'<tr><th scope="row">{layer + 1}</th>'
            + "".join(
                f'<td><button type="button" id="head-{layer}-{head}"></button></td>'
                for head in heads
            )
            + "</tr>"
            for layer in range(result.layers)
        )
        body = (
            "<p>A row is a layer, a column a head, brighter is more. Choose what is shown, and a "
            "head (with the arrow keys too), to see its other figures, the texts behind the "
            "number, and its attention in one of them.</p>"
            '<div class="controls"><span><label for="statistic">Shown</label>'
            f'<select id="statistic">{options}</select></span> <span id="unit"></span></div>'
            '<div class="wide"><table class="grid" id="grid" aria-label="heads by layer">'
            f"<thead><tr><td></td>{header}</tr></thead><tbody>{rows}</tbody></table></div>"
            f'<p class="note">{safe(self._extremes())}</p>'
            '<h3 id="head-title"></h3><ul class="facts" id="facts"></ul>'
            '<h3 id="texts-title"></h3><ol class="texts" id="texts"></ol>'
            "<h3>Attention in this text</h3>"
            '<p class="note" id="in-words" aria-live="polite"></p>'
            '<div id="drawing" class="wide"></div>'
        )
        self._page.section("Heads", body)
        # pictures of the usual statistics, beside the page
        for name in _PANELS:
            grid = heat_map(f"grid-{name}", result.statistics[name], STATISTICS[name], as_svg=False)
            self._add_drawing(f"grid-{name}", grid)

    def _extremes(self) -> str:
        """Return which head has most of each of the usual statistics."""
        parts = []
        for name in _PANELS:
            values = self._found.statistics[name]
            layer, head = np.unravel_index(np.nanargmax(values), values.shape)
            value = values[layer, head]
            shown = f"{100 * value:z.1f} %" if name in SHARES else f"{value:z.2f}"
            title = STATISTICS[name][0].lower() + STATISTICS[name][1:]
            parts.append(f"{title}: {layer + 1}-{head + 1} ({shown})")
        return "Most of each: " + "; ".join(parts) + "."

    def _panels(self) -> None:
        chosen = {name: self._found.statistics[name] for name in _PANELS}
        chosen |= {
            name: values
            for name, values in self._found.statistics.items()
            if name not in chosen and not np.isnan(values).all()
        }
        means = {name: values.mean(1) for name, values in chosen.items()}
        strongest = "; ".join(
            f"{STATISTICS[name][0].lower() + STATISTICS[name][1:]}, layer {int(v.argmax()) + 1}"
            for name, v in means.items()
        )
        drawing = layer_panels("layers", chosen, STATISTICS, SHARES)
        words = (
            "A dot is a head, the line the mean of a layer's heads. The layer with the highest "
            f"mean: {strongest}."
        )
        self._page.section(
            "Layer by layer", self._figure("layers", drawing, "heads by layer", words)
        )

    def _relations(self) -> None:
        result = self._found
        relations = result.annotated.relations
        control = {baseline.name: baseline for baseline in result.control.relations}
        shown = relations[: _RELATIONS + 1]
        series = {
            "best head": [figures.best_accuracy for figures in shown],
            "best fixed offset": [figures.offset_accuracy for figures in shown],
        }
        if control:
            series["best head, random weights"] = [
                control[figures.name].best_accuracy if figures.name in control else 0.0
                for figures in shown
            ]
        names = ["all relations" if figures.name == ALL else figures.name for figures in shown]
        drawing = grouped_bars("relations", names, series, "share of words whose head is found")
        above = [
            figures
            for figures in shown[1:]
            if figures.best_accuracy > figures.offset_accuracy and figures.name != ALL
        ]
        best = max(shown[1:], key=lambda figures: figures.best_accuracy - figures.offset_accuracy)
        gain = 100 * (best.best_accuracy - best.offset_accuracy)
        words = (
            f"The best of {2 * result.layers * result.heads} heads and directions beats the best "
            f"fixed offset for {len(above)} of the {len(shown) - 1} most frequent relations; the "
            f"gain is largest for {best.name} (head {best.best[1]}-{best.best[2]}, {gain:+z.1f} "
            "points). A head finds a relation if the most attended other word is the right one. "
            "Punctuation and roots are left out. Clark et al. 2019, section 4.2."
        )
        figure = self._figure("relations", drawing, "relations found by heads", words)
        titles = ["words", "best head", "finds", "chosen on the other half", "best offset", "finds",
                  *(["random weights"] if control else [])]  # fmt: skip
        rows = [_relation_row(relation, control) for relation in relations]
        note = (
            '<p class="note">Each row shows the best head and direction for a relation. "Chosen on '
            'the other half": the head is chosen on every second sentence and scored on the rest, '
            "and vice versa, so that the choice does not inflate the score.</p>"
        )
        table = named_rows("relation", titles, rows, words=["best head"])
        self._page.section("Relations between words", figure + table + note)

    def _sentences(self) -> None:
        relations, examples = self._found.annotated.relations, self._found.examples
        named = [relation.name for relation in relations[1:] if examples[relation.name]]
        if not named:
            return
        options = "".join(f"<option>{safe(name)}</option>" for name in named)
        body = (
            '<div class="controls"><span><label for="relation">Relation</label>'
            f'<select id="relation">{options}</select></span></div>'
            '<p class="note" id="relation-note" aria-live="polite"></p><div class="columns">'
            '<div><h3>Found</h3><div id="right"></div></div>'
            '<div><h3>Not found</h3><div id="wrong"></div></div></div>'
        )
        self._page.section("The sentences behind a relation", body)

    def _tokens(self) -> None:
        result = self._found
        names = ("share of the tokens", "share of the attention", "ratio", "head with most",
                 "its share")  # fmt: skip
        rows = []
        for token in result.frequent:
            layer, head = np.unravel_index(token.attention.argmax(), token.attention.shape)
            share, mean = token.count / result.tokens, token.attention.mean()
            rows.append(
                (token.token, percent(share), percent(mean), f"{mean / share:.2f}",
                 f"{layer + 1}-{head + 1}", percent(token.attention.max()))
            )  # fmt: skip
        note = (
            '<p class="note">The most frequent tokens. A ratio above 1 means more attention than '
            "if every token got as much.</p>"
        )
        self._page.section("The most frequent tokens", named_rows("token", names, rows) + note)

    def _map(self) -> None:
        result = self._found
        layers = np.repeat(np.arange(result.layers), result.heads)
        same = (layers[:, None] == layers) & ~np.eye(len(layers), dtype=bool)
        other = layers[:, None] != layers
        pairs = {"within a layer": same, "between layers": other}
        means = ", ".join(
            f"{name} {result.distances[at].mean():.3f}" for name, at in pairs.items() if at.any()
        )
        words = (
            "Each point is a head (layer-head); heads near each other attend to similar positions. "
            f"Mean distance {means} (root of the mean Jensen-Shannon divergence, at most 0.833), "
            f"over {counted(len(result.sample), 'sampled text')}. The map keeps "
            f"{100 * result.map_share:.0f} % of the variance of the distances."
            if means
            else "The model has one head, so there is no other to compare it with."
        )
        drawing = head_map("map", result.points, result.layers, result.heads)
        self._page.section(
            "Map of the heads", self._figure("map", drawing, "map of the heads", words)
        )

    def _gradients(self) -> None:
        result = self._found
        if result.gradients is None:
            body = (
                "<p>The model has no head for masked words or classes, so there is no loss with a "
                "gradient. Use a pre-trained or a fine-tuned model.</p>"
            )
            self._page.section("Does attention to [SEP] matter?", body)
            return
        of = result.gradients.of
        means = {
            "to [SEP]": of("sep").mean(1).tolist(),
            "to [CLS]": of("cls").mean(1).tolist(),
            "to any token": of("all").mean(1).tolist(),
        }
        drawing = layer_lines(
            "gradients", means, y_label="mean |gradient of the loss|", logarithmic=True
        )
        share = result.statistics["sep"].mean(1)
        layer = int(share.argmax())
        words = (
            f"The gradient of the {result.gradients.loss} with respect to the attention to a kind "
            f"of token, by layer. Layer {layer + 1} attends most to [SEP] "
            f"({100 * share[layer]:.1f} % of its attention); "
            "its gradient with respect to attention to [SEP] is "
            f"{means['to [SEP]'][layer] / max(means['to any token'][layer], 1e-30):.2f} times that "
            "to any token. Small gradients where attention is high mean that heads attend to [SEP] "
            "when they have nothing else to do (Clark et al. 2019, section 3.2)."
        )
        figure = self._figure("gradients", drawing, "gradients by layer", words)
        self._page.section("Does attention to [SEP] matter?", figure)


def _relation_row(
    relation: RelationFigures, control: Mapping[str, RelationFigures]
) -> tuple[str, ...]:
    direction, layer, head = relation.best
    own = control.get(relation.name)
    return (
        "all relations" if relation.name == ALL else relation.name,
        f"{relation.count:,}",
        f"{layer}-{head}, {DIRECTIONS[direction]}",
        percent(relation.best_accuracy),
        percent(relation.held_out),
        f"{relation.offset:+d}",
        percent(relation.offset_accuracy),
        *([percent(None if own is None else own.best_accuracy)] if control else []),
    )


def _nothing(inspection: Inspection) -> list[list[None]]:
    return [[None] * inspection.heads for _ in range(inspection.layers)]
