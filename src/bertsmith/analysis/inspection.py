"""A whole inspection of a model's attention: one pass over a corpus, and a closer look at a sample.

The pass counts, for all texts, what each head attends to and, in a treebank, which relations it
finds. The sample is for what cannot be counted cheaply, or has to be shown: distances between
heads, gradients, each text's own statistics, and attention to draw.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.analysis.heads.attention import LayerAttention, Scan, scan
from bertsmith.analysis.heads.coreference import CoreferenceFigures
from bertsmith.analysis.heads.distances import classical_map, head_distances
from bertsmith.analysis.heads.gradients import GradientFigures, attention_gradients
from bertsmith.analysis.heads.relations import Parsed, RelationCounts, RelationFigures, arcs
from bertsmith.analysis.heads.statistics import (
    Figures,
    HeadStatistics,
    HeadSums,
    Sums,
    TokenFigures,
    TokenRoles,
    layer_sums,
)
from bertsmith.analysis.heads.tag_pairs import TagCounts, TagFigures, TaggedWords
from bertsmith.analysis.heads.words import best_words, word_sums
from bertsmith.analysis.layers.context import WordFigures
from bertsmith.analysis.layers.probes import ProbeFigures, probe, probed_sentences
from bertsmith.analysis.layers.similarity import Similarity
from bertsmith.batches.examples import EncodedExamples
from bertsmith.batches.truncation import Ids, Segments
from bertsmith.core.log import Bar, progress
from bertsmith.core.streams import Sample
from bertsmith.network.model import Model
from bertsmith.tokens.tokenizer import Tokenizer

_TEXTS = 1024
# weights that a page can carry, in bytes, and the longest text whose attention can be seen
_DRAWN_BYTES = 3_000_000
_DRAWN_TOKENS = 48
_EXAMPLES = 6
_MIN_PROBED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A text or pair as the model reads it.

    `parsed` is there for a sentence of a treebank, `tagged` for one whose words have tags. `words`
    are those of a single text.
    """

    ids: Ids
    segments: Segments
    line: int
    words: tuple[str, ...] = ()
    parsed: Parsed | None = None
    tagged: TaggedWords | None = None


class Annotated(NamedTuple):
    """The figures of a model's heads on the annotations of a file."""

    relations: Sequence[RelationFigures] = ()
    tags: TagFigures = TagFigures()
    coreference: Sequence[CoreferenceFigures] = ()


NOTHING = Annotated()


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledText:
    """A text of the sample: its tokens, its statistics (layers, heads) by name, and its attention.

    `weights` (layers, heads, tokens, tokens) are in steps of 1/255; None for a text that is too
    long to be drawn.
    """

    line: int
    tokens: tuple[str, ...]
    statistics: Mapping[str, Figures]
    weights: NDArray[np.uint8] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationExample:
    """A word of a sampled sentence, its true head, and the word that the best head found."""

    words: tuple[str, ...]
    line: int
    dependent: int
    head: int
    found: int
    right: bool


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The figures of a model's attention.

    `statistics` are (layers, heads) by name. `distances` (heads, heads) and `points` (heads, 2) are
    of all heads, layer by layer; `map_share` is the variance that the map keeps. `annotated` is
    what heads find of relations, tags and coreference, `control` what those of a model with random
    weights find. `similarity` is that to the layers of another model. `uses` are of single words,
    to be compared with the `anisotropy` of each layer.
    """

    layers: int
    heads: int
    texts: int
    tokens: int
    statistics: Mapping[str, Figures]
    frequent: Sequence[TokenFigures]
    distances: NDArray[np.float64]
    points: NDArray[np.float64]
    map_share: float
    gradients: GradientFigures | None
    sample: Sequence[SampledText]
    annotated: Annotated = NOTHING
    control: Annotated = NOTHING
    examples: Mapping[str, Sequence[RelationExample]]
    probes: ProbeFigures | None = None
    similarity: Similarity | None = None
    uses: Sequence[WordFigures] = ()
    anisotropy: NDArray[np.float64] | None = None


def inspect_attention(
    model: Model,
    tokenizer: Tokenizer,
    items: Iterable[Item],
    *,
    sample: int,
    frequent: int,
    probed: int = 0,
) -> Inspection:
    """Inspect the attention of a model over a corpus, in constant memory.

    `sample` texts are looked at closely, `frequent` tokens are listed, and probes are trained and
    measured on `probed` sentences of a treebank. There must be an item.
    """
    config = model.config.encoder
    statistics = HeadStatistics(config, tokenizer)
    annotations = _Annotations(model)
    kept: Sample[Item] = Sample(sample)
    read: Sample[Item] = Sample(probed)
    with progress("inspecting", None, "texts") as bar:
        for window in _windows(items):
            for scanned in scan(model, encoded_items(window)):
                _count(scanned, window, statistics, annotations)
                bar.advance(scanned.block.sequences)
            for item in window:
                kept.add(item)
                read.add(item)
    chosen = kept.items
    closer = _SampleInspection(model, tokenizer, chosen)
    points, share = classical_map(closer.distances)
    result = annotations.figures()
    return Inspection(
        layers=config.layers,
        heads=config.heads,
        texts=statistics.texts,
        tokens=int(statistics.sums.tokens[0]),
        statistics=statistics.sums.statistics(),
        frequent=statistics.frequent_tokens(frequent),
        distances=closer.distances,
        points=points,
        map_share=share,
        gradients=attention_gradients(model, tokenizer, encoded_items(chosen)),
        sample=closer.texts,
        annotated=result,
        examples={relation.name: closer.examples(relation) for relation in result.relations[1:]},
        probes=_probes(model, read.items),
    )


def _probes(model: Model, items: Sequence[Item]) -> ProbeFigures | None:
    """Return the scores of probes; None without enough sentences."""
    parsed = [item.parsed for item in items if item.parsed is not None]
    sentences = probed_sentences(model, parsed) if parsed else []
    return probe(sentences) if len(sentences) >= _MIN_PROBED else None


class _Annotations:
    """Counts of what heads find of the relations and the tags of words."""

    def __init__(self, model: Model) -> None:
        config = model.config.encoder
        self.relations = RelationCounts(config.layers, config.heads)
        self.tags = TagCounts(config.layers, config.heads)

    def figures(self) -> Annotated:
        """Return the figures of relations and of tags."""
        return Annotated(relations=self.relations.figures(), tags=self.tags.figures())


def annotation_figures(model: Model, items: Iterable[Item], bar: Bar | None = None) -> Annotated:
    """Return the figures of a model's heads on relations and tags, and nothing else."""
    annotations = _Annotations(model)
    for window in _windows(items):
        for scanned in scan(model, encoded_items(window)):
            _count(scanned, window, None, annotations)
            if bar is not None:
                bar.advance(scanned.block.sequences)
    return annotations.figures()


def _windows(items: Iterable[Item]) -> Iterator[list[Item]]:
    rest = iter(items)
    while window := list(islice(rest, _TEXTS)):
        yield window


def encoded_items(items: Sequence[Item]) -> EncodedExamples:
    """Return the sequences of items."""
    return EncodedExamples.of([item.ids for item in items], [item.segments for item in items])


def _count(
    scanned: Scan,
    items: Sequence[Item],
    statistics: HeadStatistics | None,
    annotations: _Annotations,
) -> None:
    """Count one block."""
    batch, block = scanned.batch, scanned.block
    units = scanned.units.tolist()
    parsed = [each for unit in units if (each := items[unit].parsed)]
    tagged = [each for unit in units if (each := items[unit].tagged)]
    assert len(parsed) in (0, block.sequences), "sentences of a treebank, or other texts"
    assert len(tagged) in (0, block.sequences), "sentences with tags, or other texts"
    roles = None if statistics is None else statistics.block(batch, block)
    splits = [item.split for item in parsed or tagged]
    sums = word_sums(block, splits, batch.ids.device) if splits else None
    arcs_of_block = annotations.relations.block(parsed) if parsed else None
    tags_of_block = annotations.tags.block(tagged) if tagged else None
    for layer in scanned.layers:
        if statistics is not None and roles is not None:
            statistics.add(layer, batch, block, roles)
        if sums is None:
            continue
        best = best_words(layer.weights, sums)
        if arcs_of_block is not None:
            annotations.relations.add(arcs_of_block, layer.layer, best)
        if tags_of_block is not None:
            annotations.tags.add(tags_of_block, layer.layer, best)


class _SampleInspection:
    """A closer look at a sample."""

    def __init__(self, model: Model, tokenizer: Tokenizer, items: Sequence[Item]) -> None:
        config = model.config.encoder
        self._items = items
        self._sums = HeadSums(config.layers, config.heads, (len(items),))
        self._roles = TokenRoles(tokenizer)
        self._weights: dict[int, NDArray[np.uint8]] = {}
        self._best: dict[int, NDArray[np.int64]] = {}
        self._room = _DRAWN_BYTES
        with progress("looking closer", len(items), "texts") as bar:
            self.distances = head_distances(self._scanned(model, bar))
        texts = self._sums.statistics()
        self.texts = [
            SampledText(
                line=item.line,
                tokens=tuple(map(tokenizer.shown, item.ids.tolist())),
                statistics={name: figures[number] for name, figures in texts.items()},
                weights=self._weights.get(number),
            )
            for number, item in enumerate(items)
        ]

    def _scanned(self, model: Model, bar: Bar) -> Iterator[Tensor]:
        """Count all blocks, and yield the weights (heads, tokens, tokens) of each text."""
        for scanned in scan(model, encoded_items(self._items)):
            layers = list(scanned.layers)
            self._add(scanned, layers)
            for row, unit in enumerate(scanned.units.tolist()):
                length = len(self._items[unit].ids)
                weights = torch.stack([layer.weights[row, :, :length, :length] for layer in layers])
                if length <= _DRAWN_TOKENS and weights.numel() <= self._room:
                    self._room -= weights.numel()
                    self._weights[unit] = (weights * 255).round().byte().cpu().numpy()
                yield weights.flatten(0, 1)
                bar.advance()

    def _add(self, scanned: Scan, layers: Sequence[LayerAttention]) -> None:
        roles = self._roles.of_block(scanned.batch, scanned.block)
        self._sums.tokens[scanned.units] += roles.sum(1).double().cpu().numpy()
        for layer in layers:
            sums = layer_sums(layer, roles)
            for name in Sums._fields:
                result = getattr(sums, name).double().cpu().numpy()
                getattr(self._sums, name)[scanned.units, layer.layer - 1] += result
        parsed = [each for unit in scanned.units.tolist() if (each := self._items[unit].parsed)]
        if not parsed:
            return
        words = word_sums(scanned.block, [tree.split for tree in parsed], scanned.batch.ids.device)
        best = np.stack([best_words(layer.weights, words) for layer in layers], 1)
        self._best |= dict(zip(scanned.units.tolist(), best, strict=True))

    def examples(self, relation: RelationFigures) -> list[RelationExample]:
        """Return words that the best head of a relation gets right, and others, as many of each."""
        direction, layer, head = relation.best
        right: list[RelationExample] = []
        wrong: list[RelationExample] = []
        for number, item in enumerate(self._items):
            if item.parsed is None:
                continue
            best, tree = self._best[number][layer - 1, head - 1], item.parsed.tree
            for dependent, governor, name in arcs(item.parsed):
                if name != relation.name:
                    continue
                attending, wanted = (
                    (dependent, governor) if not direction else (governor, dependent)
                )
                example = RelationExample(
                    words=tree.words, line=tree.line, dependent=dependent, head=governor,
                    found=int(best[attending]), right=bool(best[attending] == wanted),
                )  # fmt: skip
                (right if example.right else wrong).append(example)
        return right[:_EXAMPLES] + wrong[:_EXAMPLES]
