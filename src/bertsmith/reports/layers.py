"""The layers in an inspection, as sections of its page and as numbers.

Probes, the similarity to the layers of another model, and the uses of single words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.analysis.inspection import Inspection
from bertsmith.analysis.layers.context import WordFigures
from bertsmith.analysis.layers.probes import ProbeFigures, Score
from bertsmith.analysis.layers.similarity import Similarity
from bertsmith.core.printable import counted, printable, to_millionths
from bertsmith.reports.drawing import Drawing, grouped_bars, heat_map, layer_lines, use_map
from bertsmith.reports.page import safe

_SHOWN_USES = 5
_AROUND = 12

Placed = Callable[[str, Drawing, str, str], str]
"""Keep a drawing by its name; return it with a label and the words beneath it."""


def layer_numbers(inspection: Inspection) -> dict[str, Any]:
    """Return the numbers of these sections as plain JSON values."""
    similarity = inspection.similarity
    return {
        "probes": None if inspection.probes is None else _probe_numbers(inspection.probes),
        "similarity": None
        if similarity is None
        else {
            "words": similarity.words,
            "cka": plain(similarity.cka),
            "rsa": plain(similarity.rsa),
        },
        "anisotropy": None if inspection.anisotropy is None else plain(inspection.anisotropy),
        "words": [_use_numbers(use) for use in inspection.uses],
    }


def layer_sections(inspection: Inspection, placed: Placed) -> Iterator[tuple[str, str]]:
    """Yield title and content of each section that there is something for."""
    if inspection.probes is not None:
        yield "What probes read", _probes(inspection.probes, placed)
    if inspection.similarity is not None:
        yield "What moved", _similarity(inspection.similarity, placed)
    if inspection.uses:
        yield "Words in context", _context(inspection, placed)
    for number, use in enumerate(inspection.uses, 1):
        yield f"Uses of {printable(use.word)}", _uses(use, f"word-{number}", placed)


def plain(values: NDArray[np.float64], digits: int = 6) -> Any:  # noqa: ANN401
    """Return nested lists, with None for NaN."""
    rounded = (np.round(values, digits) + 0.0).astype(object)
    rounded[np.isnan(values)] = None
    return rounded.tolist()


def _probe_numbers(probes: ProbeFigures) -> dict[str, Any]:
    def accuracies(of: Score) -> dict[str, float]:
        return {"task": round(of.task, 6), "control": round(of.control, 6)}

    return {
        "sentences_learned": probes.learned,
        "sentences_measured": probes.measured,
        "edges": {name: accuracies(edge) for name, edge in probes.edges.items()},
        "fixed_offset": round(probes.fixed_offset, 6),
        "tags_by_layer": [accuracies(tag) for tag in probes.tags],
        "commonest_tag": round(probes.commonest_tag, 6),
        "tag_of_word": round(probes.tag_of_word, 6),
        "structure_by_layer": [
            {"uuas": edges, "spearman": ranks} for edges, ranks in plain(np.array(probes.structure))
        ],
    }


def _use_numbers(figures: WordFigures) -> dict[str, Any]:
    return {
        "word": printable(figures.word),
        "layer": figures.layer,
        "silhouette": to_millionths(figures.silhouette),
        "self_similarity": plain(figures.self_similarity),
        "map_share": round(figures.map_share, 6),
        "uses": [
            {
                "line": use.line,
                "words": [printable(word) for word in use.words],
                "place": use.place,
                "cluster": int(cluster),
                "neighbours": neighbours,
                "point": point,
            }
            for use, cluster, neighbours, point in zip(
                figures.uses,
                figures.clusters,
                figures.neighbours.tolist(),
                plain(figures.points),
                strict=True,
            )
        ],
    }


def _probes(probes: ProbeFigures, placed: Placed) -> str:
    series = {
        "task": [edge.task for edge in probes.edges.values()],
        "control task": [edge.control for edge in probes.edges.values()],
    }
    edges = grouped_bars(
        "probes-edges", list(probes.edges), series, "share of words whose head is found"
    )
    name, best = max(probes.edges.items(), key=lambda item: item[1].task)
    words = (
        f"A linear probe finds the head of each word best from {name} "
        f"({100 * best.task:.1f} %, selectivity {100 * best.selectivity:+z.1f} points; the "
        f"most frequent offset finds {100 * probes.fixed_offset:.1f} %). In the control task, each "
        "word of the vocabulary attaches to the first, last or next word, whatever the sentence. "
        f"{counted(probes.learned, 'sentence')} for training, {probes.measured:,} others for "
        "measuring."
    )
    body = placed("probes-edges", edges, "probes of the head of each word", words)
    tags = layer_lines(
        "probes-tags",
        {
            "part of speech": [tag.task for tag in probes.tags],
            "control task": [tag.control for tag in probes.tags],
            "selectivity": [tag.selectivity for tag in probes.tags],
        },
        y_label="accuracy", first=0, percent=True,
    )  # fmt: skip
    top = max(range(len(probes.tags)), key=lambda layer: probes.tags[layer].task)
    words = (
        f"A linear probe finds parts of speech best from layer {top} "
        f"({100 * probes.tags[top].task:.1f} %). The most frequent tag of each word in training "
        f"scores {100 * probes.tag_of_word:.1f} %. The control task gives each word of the "
        "vocabulary a random tag; layers that preserve the word do well at it. Selectivity is the "
        "difference (Hewitt and Liang 2019)."
    )
    body += placed("probes-tags", tags, "part of speech by layer", words)
    trees = layer_lines(
        "probes-structure",
        {
            "edges of the tree found (UUAS)": [edges for edges, _ in probes.structure],
            "rank correlation of distances": [ranks for _, ranks in probes.structure],
        },
        y_label="score", first=0,
    )  # fmt: skip
    top = max(range(len(probes.structure)), key=lambda layer: probes.structure[layer][0])
    words = (
        "Trees as distances: a linear map of a layer in which squared distances between words "
        f"equal those in the tree (Hewitt and Manning 2019). Layer {top} has most of the tree: "
        f"{100 * probes.structure[top][0]:.1f} % of the edges, without punctuation."
    )
    return body + placed("probes-structure", trees, "trees by layer", words)


def _similarity(similarity: Similarity, placed: Placed) -> str:
    body = ""
    for name, values, what in (
        ("cka", similarity.cka, "CKA: 1 where one layer is a rotation and scaling of the other"),
        ("rsa", similarity.rsa, "RSA: rank correlation of the cosines between all pairs of words"),
    ):
        labels = ("layer of this model", "layer of the other")
        drawing = heat_map(f"similarity-{name}", values, what, labels=labels, first=(0, 0))
        same = np.diag(values)
        least = int(same.argmin())
        words = (
            f"{name.upper()} between the layers of two models over "
            f"{counted(similarity.words, 'word')}; layer 0 is the embeddings. Among layers of the "
            f"same number, layer {least} differs most ({same[least]:.3f}) and layer "
            f"{int(same.argmax())} least ({same.max():.3f})."
        )
        body += placed(f"similarity-{name}", drawing, f"{name} of layers", words)
    return body


def _context(inspection: Inspection, placed: Placed) -> str:
    series = {printable(use.word): use.self_similarity.tolist() for use in inspection.uses}
    if inspection.anisotropy is not None:
        series["any two words"] = inspection.anisotropy.tolist()
    drawing = layer_lines("context", series, y_label="mean cosine", first=0)
    words = (
        "Mean cosine between two uses of a word by layer, and between any two words of the texts. "
        "Where the line of a word falls, it has different vectors in different contexts; where the "
        "line of any two words rises, all vectors point in similar directions (Ethayarajh 2019)."
    )
    return placed("context", drawing, "self-similarity by layer", words)


def _uses(word: WordFigures, name: str, placed: Placed) -> str:
    drawing = use_map(f"{name}-map", word.points, word.clusters)
    count = int(word.clusters.max()) + 1
    words = (
        f"{counted(len(word.uses), 'use')} in layer {word.layer}, the layer whose "
        f"{counted(count, 'cluster')} are best separated (silhouette {word.silhouette:z.2f}; "
        "below 0.2 they are hardly clusters). The map keeps "
        f"{100 * word.map_share:.0f} % of the variance."
    )
    body = placed(f"{name}-map", drawing, f"uses of {word.word}", words)
    for cluster in range(count):
        members = np.flatnonzero(word.clusters == cluster).tolist()
        lines = "".join(
            f'<li>{_use(word, use)}<br><span class="note">most like it: '
            f"{_use(word, int(word.neighbours[use, 0]))}</span></li>"
            for use in members[:_SHOWN_USES]
        )
        title = f"Cluster {cluster + 1}: {counted(len(members), 'use')}"
        body += f"<details><summary>{safe(title)}</summary><ul>{lines}</ul></details>"
    return body


def _use(word: WordFigures, number: int) -> str:
    """Return a use with the words around it, its own in bold."""
    use = word.uses[number]
    begin, end = max(0, use.place - _AROUND), use.place + _AROUND + 1
    before, after = " ".join(use.words[begin : use.place]), " ".join(use.words[use.place + 1 : end])
    # in the direction of its script, which does not turn round what is beside it
    return f"<bdi>{safe(before)} <b>{safe(use.words[use.place])}</b> {safe(after)}</bdi>"
