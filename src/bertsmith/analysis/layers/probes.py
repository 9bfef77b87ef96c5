"""Probes: what a small model can read from attention or from hidden states.

    edges        the head of each word, from attention alone, from attention with static word
                 vectors (Clark et al. 2019, section 5), and from distances with the same vectors
    tags         the part of speech, a linear map of each layer's hidden states
    structure    distances in the tree, as squared distances after a linear map of each layer's
                 hidden states (Hewitt & Manning 2019)

A probe may learn a task on its own. A control task (Hewitt & Liang 2019) shows how much: each word
of the vocabulary gets a random answer, which no text determines; what a probe scores above that is
its selectivity. Everything is measured on sentences that no probe has learned from.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn

from bertsmith.analysis.heads.attention import attention, blocks
from bertsmith.analysis.heads.relations import Parsed
from bertsmith.analysis.heads.words import word_attention, word_sums
from bertsmith.batches.examples import EncodedExamples, evaluation_batches
from bertsmith.core.log import progress
from bertsmith.core.streams import Purpose, permutation, random_integers, stream
from bertsmith.evaluation.metrics import spearman
from bertsmith.network.encoded import Taps
from bertsmith.network.model import Model, forward_only
from bertsmith.network.torch_state import threads_of_torch

_TEST_SHARE = 0.3
_SENTENCES = 32
_RANK = 64
_MAX_DISTANCE = 10
_MIN_RANKED_LENGTH = 5
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedSentence:
    """A sentence of `words` as probes read it.

    `states` (layers + 1, words, hidden) are means over pieces, `static` (words, width) those of the
    token table, `attention` (layers x heads, words, words) is from word to word.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    heads: Numbers
    punctuation: NDArray[np.bool_]
    states: Tensor
    static: Tensor
    attention: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The share that a probe gets right, and what it gets right of its control task."""

    task: float
    control: float

    @property
    def selectivity(self) -> float:
        """Return the score above that of the control task."""
        return self.task - self.control


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeFigures:
    """Scores of all probes.

    `edges` are by name. `tags` and `structure` have an entry for each layer from the embeddings on;
    that of `structure` is the share of edges of the tree in the minimum spanning tree (UUAS), and
    the mean Spearman correlation of distances.
    """

    learned: int
    measured: int
    edges: dict[str, Score]
    fixed_offset: float
    tags: list[Score]
    commonest_tag: float
    tag_of_word: float
    structure: list[tuple[float, float]]


def probed_sentences(model: Model, parsed: Sequence[Parsed]) -> list[ProbedSentence]:
    """Return the inputs of probes; sentences with a word that the tokenizer drops are left out."""
    config = model.config.encoder
    layers = frozenset(range(1, config.layers + 1))
    taps = Taps(states=layers | {0}, qkv=layers)
    table = model.encoder.embeddings.tokens.weight.detach()
    splits = [item.split for item in parsed]
    encoded = EncodedExamples.of(
        [split.ids for split in splits], [split.segments for split in splits]
    )
    results: dict[int, ProbedSentence] = {}
    with forward_only(model, "fp32"):
        for units, packed in evaluation_batches(encoded):
            batch = packed.to(model.device)
            inside = model.encoder(batch, taps=taps)
            stacked = torch.stack([inside.states[layer] for layer in range(config.layers + 1)])
            for block in blocks(batch, config.heads):
                block_units = units[block.first : block.first + block.sequences].tolist()
                sums = word_sums(block, [splits[unit] for unit in block_units], batch.ids.device)
                to_words = sums.share.transpose(-1, -2)
                states = to_words @ stacked[:, block.rows]
                static = to_words @ table[batch.ids[block.rows]]
                between = torch.cat(
                    [
                        word_attention(layer_attention.weights, sums).half()
                        for layer_attention in attention(inside, batch, block, config)
                    ],
                    1,
                )
                for row, unit in enumerate(block_units):
                    tree, count = parsed[unit].tree, splits[unit].words
                    if not sums.there[row, :count].all():
                        continue
                    results[unit] = ProbedSentence(
                        words=tree.words,
                        tags=tree.tags,
                        heads=np.array(tree.heads),
                        punctuation=np.array([relation == "punct" for relation in tree.relations]),
                        states=states[:, row, :count].cpu(),
                        static=static[row, :count].cpu(),
                        attention=between[row, :, :count, :count].cpu(),
                    )
    return [results[unit] for unit in sorted(results)]


def probe(sentences: Sequence[ProbedSentence], *, epochs: int = 20) -> ProbeFigures:
    """Train and measure all probes; the sentences are divided in a fixed way."""
    order = permutation(len(sentences), stream(Purpose.PROBE_SPLIT))
    count = round(len(sentences) * _TEST_SHARE)
    test = [sentences[number] for number in order[:count].tolist()]
    train = [sentences[number] for number in order[count:].tolist()]
    tags = _tag_tables(train, test)
    layers = range(len(sentences[0].states))
    edges: dict[str, Score] = {}
    in_tags: list[Score] = []
    in_trees: list[tuple[float, float]] = []
    total = len(EDGE_PROBES) + 2 * len(layers)
    # threads that share such small products wait for each other most of the time
    with threads_of_torch(1), progress("training probes", total, "probes") as bar:
        for name, kind in EDGE_PROBES.items():
            edges[name] = Score(
                task=_edge_score(kind, train, test, epochs),
                control=_edge_score(kind, _control_task(train), _control_task(test), epochs),
            )
            bar.advance(1)
        for layer in layers:
            in_tags.append(_tag_score(layer, train, test, tags, epochs))
            bar.advance(1)
            in_trees.append(_structure_score(layer, train, test, epochs))
            bar.advance(1)
    return ProbeFigures(
        learned=len(train),
        measured=len(test),
        edges=edges,
        fixed_offset=_offset_score(train, test),
        tags=in_tags,
        commonest_tag=tags.commonest,
        tag_of_word=tags.of_word,
        structure=in_trees,
    )


# edges


@dataclass(frozen=True, slots=True)
class _Kind:
    """The features of an edge probe: attention or distances, and whether words too."""

    attention: bool
    words: bool


EDGE_PROBES = {
    "attention": _Kind(attention=True, words=False),
    "attention and words": _Kind(attention=True, words=True),
    "distance and words": _Kind(attention=False, words=True),
}
"""Probes of edges by name."""


class EdgeProbe(nn.Module):
    """A linear score of each candidate head i of a word j (Clark et al. 2019, section 5).

    The sum over features k of f_k(j, i) times a weight, or with words times a linear function of
    both words' vectors.
    """

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(features))
        self.of_head = nn.Parameter(torch.zeros(features, width)) if width else None
        self.of_dependent = nn.Parameter(torch.zeros(features, width)) if width else None

    def forward(self, features: Tensor, words: Tensor) -> Tensor:
        """(sentences, dependents, heads) of features (sentences, features, dependents, heads)."""
        scores = torch.einsum("bkji,k->bji", features, self.weight)
        if self.of_head is not None and self.of_dependent is not None:
            heads, dependents = words @ self.of_head.T, words @ self.of_dependent.T
            scores = scores + torch.einsum("bkji,bik->bji", features, heads)
            scores = scores + torch.einsum("bkji,bjk->bji", features, dependents)
        return scores


_Edges = tuple[Tensor, Tensor, Tensor, Tensor]


def _edge_batches(kind: _Kind, sentences: Sequence[ProbedSentence]) -> Iterator[_Edges]:
    """Yield features, words, true heads (-1 for none) and what cannot be a head."""
    for batch in _in_batches(sentences):
        widest = max(len(item.words) for item in batch)
        heads = torch.full((len(batch), widest), -1)
        words = torch.zeros(len(batch), widest, batch[0].static.shape[1])
        closed = torch.ones(len(batch), widest, widest, dtype=torch.bool)
        seen = torch.zeros(len(batch), len(batch[0].attention), widest, widest)
        for row, item in enumerate(batch):
            count = len(item.words)
            heads[row, :count] = torch.from_numpy(item.heads)
            words[row, :count] = F.normalize(item.static, dim=-1)
            closed[row, :count, :count] = torch.eye(count, dtype=torch.bool)
            seen[row, :, :count, :count] = item.attention.float()
        if kind.attention:
            features = torch.cat([seen, seen.transpose(-1, -2)], 1)
        else:
            features = _distances(widest).expand(len(batch), -1, -1, -1)
        yield features, words, heads, closed


def _distances(count: int) -> Tensor:
    """Return the indicators of clipped distances, (1, distances, dependents, heads)."""
    position = torch.arange(count)
    distances = (position[None, :] - position[:, None]).clamp(
        -_MAX_DISTANCE, _MAX_DISTANCE
    ) + _MAX_DISTANCE
    return F.one_hot(distances, 2 * _MAX_DISTANCE + 1).permute(2, 0, 1).float()[None]


def _edge_score(
    kind: _Kind, train: Sequence[ProbedSentence], test: Sequence[ProbedSentence], epochs: int
) -> float:
    known = list(_edge_batches(kind, train))
    width = train[0].static.shape[1] if kind.words else 0
    model = EdgeProbe(known[0][0].shape[1], width)

    def scored(batch: _Edges) -> tuple[Tensor, Tensor]:
        features, words, heads, closed = batch
        has_head = heads >= 0
        scores = model(features, words).masked_fill(closed, -1e9)
        return scores[has_head], heads[has_head]

    def loss(batch: _Edges) -> Tensor:
        return F.cross_entropy(*scored(batch))

    _fit(model, [partial(loss, batch) for batch in known], epochs, rate=0.03)
    right = total = 0
    with torch.no_grad():
        for batch in _edge_batches(kind, test):
            scores, heads = scored(batch)
            right += int((scores.argmax(-1) == heads).sum())
            total += len(heads)
    return right / max(total, 1)


def _control_task(sentences: Sequence[ProbedSentence]) -> list[ProbedSentence]:
    """Return sentences in which each word attaches to the first, the last or the next word.

    Which of them, its letters decide (Hewitt & Liang 2019, section 2.2); a word that would attach
    to itself has no head.
    """
    results = []
    for sentence in sentences:
        count = len(sentence.words)
        heads = []
        for index, word in enumerate(sentence.words):
            head = (0, count - 1, index + 1)[_random(word, 3)]
            heads.append(head if head != index and head < count else -1)
        results.append(replace(sentence, heads=np.array(heads)))
    return results


def _offset_score(train: Sequence[ProbedSentence], test: Sequence[ProbedSentence]) -> float:
    """Return the score of the commonest offset in training."""

    def offsets(sentences: Sequence[ProbedSentence]) -> Counter[int]:
        return Counter(
            int(head) - index
            for sentence in sentences
            for index, head in enumerate(sentence.heads)
            if head >= 0
        )

    best = offsets(train).most_common(1)[0][0]
    result = offsets(test)
    return result[best] / max(result.total(), 1)


def _random(word: str, limit: int) -> int:
    """Return a number below a limit that the letters of a word decide, whatever its case."""
    letters = hashlib.blake2b(word.casefold().encode(), digest_size=8).digest()
    key = stream(Purpose.CONTROL_TASK, int.from_bytes(letters, "little"))
    return int(random_integers(limit, key, 0))


# tags


@dataclass(frozen=True, slots=True)
class _Tags:
    """Numbers of tags, of the task and of its control, and what simple rules score."""

    number: dict[str, int]
    control: Callable[[str], int]
    commonest: float
    of_word: float


def _tag_tables(train: Sequence[ProbedSentence], test: Sequence[ProbedSentence]) -> _Tags:
    tags = [tag for sentence in train for tag in sentence.tags]
    number = {tag: n for n, tag in enumerate(sorted(set(tags)))}
    counts = Counter(tags)
    common = counts.most_common(1)[0][0]
    of_word: dict[str, Counter[str]] = {}
    for sentence in train:
        for word, tag in zip(sentence.words, sentence.tags, strict=True):
            of_word.setdefault(word.casefold(), Counter())[tag] += 1
    test_words = [
        (word.casefold(), tag)
        for sentence in test
        for word, tag in zip(sentence.words, sentence.tags, strict=True)
    ]
    guessed = [
        of_word.get(word, Counter({common: 1})).most_common(1)[0][0] for word, _ in test_words
    ]

    def control(word: str) -> int:
        # drawn as often as tags occur
        return number[tags[_random(word, len(tags))]]

    return _Tags(
        number=number,
        control=control,
        commonest=sum(tag == common for _, tag in test_words) / max(len(test_words), 1),
        of_word=sum(g == tag for g, (_, tag) in zip(guessed, test_words, strict=True))
        / max(len(test_words), 1),
    )


def _tag_score(
    layer: int,
    train: Sequence[ProbedSentence],
    test: Sequence[ProbedSentence],
    tags: _Tags,
    epochs: int,
) -> Score:
    def data(sentences: Sequence[ProbedSentence], *, control: bool) -> tuple[Tensor, Tensor]:
        vectors = torch.cat([sentence.states[layer] for sentence in sentences])
        numbers = [
            tags.control(word) if control else tags.number.get(tag, -1)
            for sentence in sentences
            for word, tag in zip(sentence.words, sentence.tags, strict=True)
        ]
        return vectors, torch.tensor(numbers)

    scores = []
    for control in (False, True):
        vectors, wanted = data(train, control=control)
        centre, spread = vectors.mean(0), vectors.std(0) + 1e-6
        vectors = (vectors - centre) / spread
        model = nn.Linear(vectors.shape[1], len(tags.number))
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
        order = torch.from_numpy(permutation(len(wanted), stream(Purpose.PROBE_WEIGHTS, layer)))
        parts = [(vectors[at], wanted[at]) for at in order.split(512)]
        _fit(model, [partial(_tag_loss, model, *part) for part in parts], epochs, rate=0.003)
        test_vectors, truths = data(test, control=control)
        with torch.no_grad():
            result = model((test_vectors - centre) / spread).argmax(-1)
        scores.append(float((result == truths).double().mean()))
    return Score(task=scores[0], control=scores[1])


def _tag_loss(model: nn.Module, vectors: Tensor, wanted: Tensor) -> Tensor:
    return F.cross_entropy(model(vectors), wanted)


# structure


def _structure_score(
    layer: int, train: Sequence[ProbedSentence], test: Sequence[ProbedSentence], epochs: int
) -> tuple[float, float]:
    """Return UUAS without punctuation, and the mean Spearman correlation of distances."""
    hidden = train[0].states.shape[-1]
    generator = torch.Generator().manual_seed(int(stream(Purpose.PROBE_WEIGHTS, layer)) % 2**63)
    model = nn.Linear(hidden, min(_RANK, hidden), bias=False)
    with torch.no_grad():
        model.weight.uniform_(-0.05, 0.05, generator=generator)
    scale = torch.cat([sentence.states[layer] for sentence in train]).std()
    known = [_padded_trees(layer, part) for part in _in_batches(train)]

    def loss(batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        states, wanted, there = batch
        apart = _squared(model(states / scale))
        distances = ((apart - wanted).abs() * there).sum((1, 2))
        return (distances / there.sum((1, 2))).mean()

    _fit(model, [partial(loss, batch) for batch in known], epochs, rate=0.003)
    right = total = 0
    ranks = []
    for sentence in test:
        with torch.no_grad():
            apart = _squared(model(sentence.states[layer] / scale)[None])[0].double().numpy()
        result, edges = _edges_found(sentence, apart)
        right, total = right + result, total + edges
        if len(sentence.words) >= _MIN_RANKED_LENGTH:
            upper = np.triu_indices(len(sentence.words), 1)
            true = tree_distances(sentence.heads)[upper]
            rank = spearman(true, apart[upper])
            # words with equal vectors, or all as far from each other, have none
            if not np.isnan(rank):
                ranks.append(rank)
    return right / max(total, 1), float(np.mean(ranks)) if ranks else float("nan")


def tree_distances(heads: Numbers) -> NDArray[np.float64]:
    """Return the number of edges between each two words of a tree, (words, words)."""
    from scipy.sparse.csgraph import shortest_path

    edges = np.zeros((len(heads), len(heads)))
    places = np.flatnonzero(heads >= 0)
    edges[places, heads[places]] = 1
    result: NDArray[np.float64] = shortest_path(edges, directed=False, unweighted=True)
    return result


def _edges_found(sentence: ProbedSentence, distances: NDArray[np.float64]) -> tuple[int, int]:
    """Return the edges of a tree in the minimum spanning tree of distances, and all its edges."""
    from scipy.sparse.csgraph import minimum_spanning_tree

    words = np.flatnonzero(~sentence.punctuation)
    number = {int(index): n for n, index in enumerate(words)}
    true = {
        frozenset((number[index], number[int(sentence.heads[index])]))
        for index in number
        if int(sentence.heads[index]) in number
    }
    # up to 1e-8 is no edge to scipy; the same distance more for all leaves the tree as it is
    tree = minimum_spanning_tree(distances[np.ix_(words, words)] + 1).nonzero()
    results = {frozenset(pair) for pair in zip(*(item.tolist() for item in tree), strict=True)}
    return len(true & results), len(true)


def _in_batches(sentences: Sequence[ProbedSentence]) -> Iterator[Sequence[ProbedSentence]]:
    ordered = sorted(sentences, key=lambda sentence: len(sentence.words))
    for begin in range(0, len(ordered), _SENTENCES):
        yield ordered[begin : begin + _SENTENCES]


def _padded_trees(layer: int, sentences: Sequence[ProbedSentence]) -> tuple[Tensor, Tensor, Tensor]:
    """Return states (sentences, words, hidden), distances and which of them count."""
    widest = max(len(sentence.words) for sentence in sentences)
    states = torch.zeros(len(sentences), widest, sentences[0].states.shape[-1])
    wanted = torch.zeros(len(sentences), widest, widest)
    is_word = torch.zeros(len(sentences), widest, widest)
    for row, sentence in enumerate(sentences):
        count = len(sentence.words)
        states[row, :count] = sentence.states[layer]
        apart = tree_distances(sentence.heads)
        # a treebank's sentence may have two roots
        reached = np.isfinite(apart)
        wanted[row, :count, :count] = torch.from_numpy(np.where(reached, apart, 0))
        is_word[row, :count, :count] = torch.from_numpy(reached.astype(np.float32))
    return states, wanted, is_word


def _squared(mapped: Tensor) -> Tensor:
    """Return squared distances between the words of each sentence, (sentences, words, words)."""
    return (mapped[:, :, None] - mapped[:, None]).square().sum(-1)


def _fit(
    model: nn.Module, losses: Sequence[Callable[[], Tensor]], epochs: int, *, rate: float
) -> None:
    """Train a probe: Adam, its rate falling to zero."""
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    steps = epochs * len(losses)
    with torch.enable_grad():
        for step in range(steps):
            for group in optimiser.param_groups:
                group["lr"] = rate * (1 - step / steps)
            loss = losses[(step * 7919) % len(losses)]()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
